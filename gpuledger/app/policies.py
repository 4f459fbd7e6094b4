"""A policy against the rules that there are, and what it does to the findings that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzers.options import read_options
from gpuledger import policy as policy_file
from gpuledger.errors import BadInput, ConfigError
from gpuledger.policy import Exemption, Policy, Threshold
from gpuledger.registry import RULES, resolve

if TYPE_CHECKING:
    from gpuledger.app.service import Service


def load_checked(path: Path | None) -> Policy:
    """The policy in `path`, known to name rules and options that exist. Raises ConfigError naming the place."""
    policy = policy_file.load(path)
    check(policy, str(path))
    return policy


def parse_checked(text: str, name: str) -> Policy:
    """As `load_checked`, of a text."""
    policy = policy_file.parse(text, name)
    check(policy, name)
    return policy


def check(policy: Policy, name: str) -> None:
    """Raise ConfigError where `policy` names a rule or an option that there is not, or a value that it cannot have."""
    for number, one in enumerate(policy.threshold, 1):
        place = f"policy {name}: threshold {number}{_line(one)}"
        if not one.options:
            raise ConfigError(f"{place}: sets no option")
        try:
            read_options(_options_class(one.rule, place), one.options)
        except BadInput as error:
            raise ConfigError(f"{place}.{error}") from error
    for number, exempted in enumerate(policy.exemption, 1):
        if not any(fnmatchcase(rule, exempted.rule) for rule in RULES) and not _is_plugin(exempted.rule):
            place = f"policy {name}: exemption {number}{_line(exempted)}"
            raise ConfigError(f"{place}.rule: {exempted.rule!r} matches no rule; known: {', '.join(RULES)}")


def _line(one: Threshold | Exemption) -> str:
    return f" (line {one.line})" if one.line else ""


def _options_class(rule: str, place: str) -> type[Any]:
    try:
        found = resolve("rules", rule)
    except ConfigError as error:
        raise ConfigError(f"{place}.rule: {error}") from error
    kind: type[Any] | None = getattr(found, "options_class", None)
    if kind is None:
        raise ConfigError(f"{place}.rule: {rule} takes no thresholds for some work only")
    return kind


def _is_plugin(rule: str) -> bool:
    try:
        resolve("rules", rule)
    except ConfigError:
        return False
    return True


def place_of(one: Threshold | Exemption) -> str:
    """Where a line of the policy stands, for people."""
    return f"policy line {one.line}" if one.line else "policy"


def effect(service: Service, policy: Policy, now: datetime) -> dict[str, Any]:
    """What `policy` says, and what it would exempt of the stored findings now.

    A changed threshold is told with what it is without the policy; its findings change with the next analysis.
    """
    rows = service.findings()
    return {
        "thresholds": [row for one in policy.threshold for row in changes(one)],
        "exemptions": [exemption(one, policy, rows, now) for one in policy.exemption],
        "exempted_count": sum(_exempts(policy, row, now) is not None for row in rows),
        "finding_count": len(rows),
    }


def changes(one: Threshold) -> Iterable[dict[str, Any]]:
    """What a threshold sets, option by option, beside the default. Its rule and options must be known to exist."""
    kind = _options_class(one.rule, place_of(one))
    default, chosen = kind(), read_options(kind, one.options)
    for name in one.options:
        yield {
            "rule": one.rule,
            "option": name,
            "default": getattr(default, name),
            "value": getattr(chosen, name),
            "for": _patterns(one),
            "where": place_of(one),
        }


def _patterns(one: Threshold | Exemption) -> str:
    return ", ".join(f"{name} {pattern}" for name, pattern in one.patterns.items()) or "all"


def _exempts(policy: Policy, row: Mapping[str, Any], now: datetime) -> Exemption | None:
    return policy.exemption_of(row["analyzer"], subject_of(row), now)


def exemption(one: Exemption, policy: Policy, rows: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, Any]:
    """What an exemption says, and what of `rows` it is the one to exempt."""
    own = [row for row in rows if _exempts(policy, row, now) is one]
    return {
        "rule": one.rule,
        "for": _patterns(one),
        "owner": one.owner,
        "reason": one.reason,
        "expires_at": one.expires_at,
        "is_expired": one.expires_at <= now,
        "finding_count": len(own),
        "gpu_hours": sum(max(row["gpu_hours_wasted"], row["gpu_hours_lost"]) for row in own),
        "where": place_of(one),
    }


def subject_of(row: Mapping[str, Any]) -> dict[str, str]:
    """What the policy's patterns are held against, of a stored finding."""
    parameters = row["action_params"] or {}
    own_workload = row["subject_id"] if row["subject_kind"] in {"job", "workload"} else ""
    own_node = row["subject_id"].partition("/")[0] if row["subject_kind"] == "node" else ""
    return {
        "tenant": row["tenant"],
        "queue": row["queue"],
        "kind": row["kind"],
        "workload_id": str(parameters.get("workload_id") or own_workload),
        "node": str(parameters.get("node") or own_node),
    }
