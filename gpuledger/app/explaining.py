"""Why a finding says what it says: thresholds and their source, confidence, the query, the rows that prove it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from analyzers.options import read_options
from gpuledger.app.policies import place_of, subject_of
from gpuledger.errors import ConfigError
from gpuledger.presentation.findings import view
from gpuledger.presentation.texts import Texts
from gpuledger.registry import resolve
from warehouse import queries

if TYPE_CHECKING:
    from gpuledger.app.service import Service

TOLERANCE_GPU_HOURS = 1e-6
"""By how much the sum of claims may miss the finding's hours: they are added up in another order."""

HOUR = timedelta(hours=1)


def explain(service: Service, finding_id: str, language: str) -> dict[str, Any]:
    """All that shows whether a stored finding is right. Raises BadInput where nobody knows it.

    `claims` are the pieces of the ledger that it counts, each beside the span it is cut from. `claimed_gpu_hours` is
    their sum (of waste: observed hours; of advice and health: held ones), `counted_gpu_hours` what the finding says of
    the same (wasted; observed), `is_proven` whether they are equal (None for a rule that claims nothing of the ledger).
    A finding that no run finds any more has its life only.
    """
    found = service.finding_book.shown(finding_id)
    history = service.finding_book.history(found["finding_id"])
    if not found["is_stored"]:
        return {"finding": found, "history": history}
    rule = _rule(found["analyzer"])
    words = Texts(language)
    seen = view(found, words)
    return {
        "finding": found,
        "what": seen.sentence(words),
        "rule": seen.rule,
        "cause": seen.cause,
        "action": seen.action,
        "would_change": seen.changes,
        "thresholds": _thresholds(service, rule, found),
        "confidence": {
            "value": found["confidence"],
            "parts": found["data_quality"].get("confidence_parts") or {},
            "basis": found["basis"],
            "data_quality": found["data_quality"],
        },
        "evidence": found["evidence"],
        "query": _query(rule, found),
        **_claimed(service, rule, found),
        "exemption": _exemption(service, found),
        "silent_because": found["silent_because"],
        "history": history,
    }


def _rule(name: str) -> Any:
    """The rule, or None where it is not installed any more."""
    try:
        return resolve("rules", name)()
    except ConfigError:
        return None


def _thresholds(service: Service, rule: Any, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every option of the rule as it holds for the finding now, its default, its unit, and what set it."""
    kind = getattr(rule, "options_class", None)
    if kind is None:
        return []
    subject = subject_of(found)
    chosen = read_options(kind, service.policy.options(found["analyzer"], {}, subject))
    rows = []
    for field in dataclasses.fields(kind):
        origin = service.policy.origin(found["analyzer"], field.name, subject)
        scope = ", ".join(f"{name} {pattern}" for name, pattern in origin.patterns.items()) if origin else ""
        rows.append(
            {
                "option": field.name,
                "value": getattr(chosen, field.name),
                "unit": field.metadata.get("unit", ""),
                "default": field.default,
                "source": "default" if origin is None else f"{place_of(origin)}: {scope or 'the whole site'}",
            }
        )
    return rows


def _query(rule: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """The named query that found it, with the parameters that give the same rows again, and its text."""
    facts = found["evidence"] if isinstance(found["evidence"], list) else []
    named = next((str(fact["query"]) for fact in facts if isinstance(fact, Mapping) and fact.get("query")), "")
    name = next((one for one in (found["analyzer"], named) if one in queries.catalogue()), "")
    if not name:
        return {"name": named, "parameters": {}, "sql": ""}
    from_at = found["window_start"].replace(minute=0, second=0, microsecond=0)
    to_at = found["window_end"].replace(minute=0, second=0, microsecond=0)
    given: dict[str, Any] = {"from_at": from_at, "to_at": to_at + HOUR if to_at < found["window_end"] else to_at}
    query = queries.find(name)
    if hasattr(rule, "parameters") and getattr(rule, "options_class", None) is not None:
        given.update(rule.parameters(rule.options_class()))
    return {"name": name, "parameters": {key: given.get(key) for key in query.parameters}, "sql": query.sql.strip()}


def _claimed(service: Service, rule: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    cause = found["cause_code"] if getattr(rule, "by_cause", False) else ""
    rows = service.query("finding_claims", finding_id=found["finding_id"], cause=cause).to_pylist()
    if cause and not rows:  # the cause of its claims has another name
        rows = service.query("finding_claims", finding_id=found["finding_id"], cause="").to_pylist()
    is_waste = found["category"] == "waste"
    counted = float(found["gpu_hours_wasted" if is_waste else "gpu_hours_observed"])
    claimed = math.fsum(row["gpu_hours" if is_waste else "held_gpu_hours"] for row in rows)
    return {
        "claims": rows,
        "claimed_gpu_hours": claimed if rows else None,
        "counted_gpu_hours": counted,
        "is_proven": abs(claimed - counted) <= TOLERANCE_GPU_HOURS * max(1.0, counted) if rows else None,
        "cards": _cards(rows),
        "spans_gone_count": sum(row["span_from_at"] is None for row in rows),
    }


def _cards(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """GPU-hours by card, the most first."""
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["node"], row["gpu_uuid"]
        found[key] = found.get(key, 0.0) + row["gpu_hours"]
    by_hours = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [{"node": node, "gpu_uuid": uuid, "gpu_hours": hours} for (node, uuid), hours in by_hours]


def _exemption(service: Service, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """What exempts the finding now: a person, or a line of the policy; None where nothing does."""
    if found["status"] != "exempted":
        return None
    line = service.policy.exemption_of(found["analyzer"], subject_of(found), service.clock.now())
    is_policy = line is not None and (line.owner, line.reason) == (found["changed_by"], found["note"])
    return {
        "by": found["changed_by"],
        "reason": found["note"],
        "expires_at": found["expires_at"],
        "where": place_of(line) if line is not None and is_policy else "a person's decision",
    }
