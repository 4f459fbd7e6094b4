"""What the doctor looks at: does the service work (checks), and what would make its numbers better (problems)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from collector.devices.freshness import TOO_OLD
from gpuledger.app.metric_names import NAMES, field_of, vendor_of
from gpuledger.app.policies import place_of
from gpuledger.app.problem_rows import RATIOS, family, merged
from gpuledger.app.schedulers.running import checked
from gpuledger.errors import GpuledgerError, RuleError
from gpuledger.model import Window
from gpuledger.presentation import numbers, texts
from gpuledger.registry import RULES, resolve
from warehouse.ledger import AUDITS

if TYPE_CHECKING:
    from gpuledger.app.service import Service

FRESH_MINUTES = 10
NAMED = 3
"""How many places a sentence names; the answer lists up to twenty."""

LOOKED_BACK = timedelta(days=1)
SILENT_AFTER_READS, SILENT_AFTER = 5, timedelta(minutes=5)
REMEMBERED = timedelta(days=7)
ONCE_ONLY = ("prometheus",)
"""Sources that are read when somebody asks: their silence says nothing."""

TOLD_ONCE, TOLD_WITHIN = ("renamed_metric", "exporter_labels"), timedelta(days=30)
"""Kinds that a reader tells when it first sees them, and how long they are believed to go on."""

TIME_REASONS = ("too old", "in the future")
REMOTE_REASONS: Mapping[str, str] = {
    "too many labels": "size",
    "label too long": "size",
    "series too large": "size",
    "native histogram": "histogram",
}
"""Why remote write refuses a sample; every other reason is its form, which the protocol forbids."""

SECONDS = ("stale", "slow_interval", "silent")

OF_ONE_SOURCE = ("low_coverage", "stale")
"""Kinds that are a source's own trouble, not a card's, where another source shows the cards."""


def checks(service: Service) -> list[dict[str, Any]]:
    """Does the ledger close, is anything stale, do all rules load, is all mail out."""
    every: Mapping[str, Callable[[], str]] = {
        "warehouse_answers": lambda: _answers(service),
        "ledger_closes": lambda: _closed(service),
        "readings_are_fresh": lambda: _fresh(service),
        "rules_load": lambda: ", ".join(map(_loaded, RULES)),
        "alerts_are_out": lambda: _delivered(service),
        "schedulers_are_read": lambda: checked(service),
        "policy_is_current": lambda: _policy(service),
    }
    return [_checked(name, check) for name, check in every.items()]


def _checked(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "detail": check()}
    except GpuledgerError as error:
        return {"name": name, "ok": False, "detail": str(error)}


def _answers(service: Service) -> str:
    known = service.evidence()
    return f"records from {known.from_at} to {known.to_at}" if known else "no records yet"


def _closed(service: Service) -> str:
    extent = service.query("ledger_extent").to_pylist()[0]
    if extent["from_at"] is None:
        return "no ledger yet"
    span = {"from_at": extent["from_at"], "to_at": extent["to_at"]}
    rows = {name: service.query(name, **span).num_rows for name in AUDITS}
    if any(rows.values()):
        raise GpuledgerError(f"audits returned rows: {rows}")
    return f"{', '.join(rows)} return no row"


def _fresh(service: Service) -> str:
    read_at = service.query("last_read").to_pylist()[0]["read_at"]
    if read_at is None:
        raise GpuledgerError("nothing was ever read")
    minutes = (service.clock.now() - read_at).total_seconds() / 60
    if minutes > FRESH_MINUTES:
        if _is_history(service):
            age = numbers.duration(minutes / 60, "en")
            return f"the newest reading is {age} old; it was back-filled, and nothing is sent live"
        raise GpuledgerError(f"nothing was read for {minutes:,.0f} min")
    return f"last read {max(0.0, minutes):,.0f} min ago"


def _is_history(service: Service) -> bool:
    """Whether all that the ledger was built of came from back-fills."""
    extent = service.query("ledger_extent").to_pylist()[0]
    if extent["from_at"] is None:
        return False
    rows = service.query("source_last_read", from_at=extent["from_at"], to_at=service.clock.now()).to_pylist()
    return bool(rows) and all(family(row["source"]) in ONCE_ONLY for row in rows)


def _loaded(rule: str) -> str:
    try:
        return str(resolve("rules", rule)().name)
    except GpuledgerError:
        raise
    except Exception as error:  # anything at all may come from a plug-in
        raise RuleError(f"{rule} could not run: {error}") from error


def _delivered(service: Service) -> str:
    counts = service.state.outbox_counts()
    if counts["dead"]:
        raise GpuledgerError(f"{counts['dead']} messages could not be delivered")
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _policy(service: Service) -> str:
    """How many exemptions are in force, and which have ended and say nothing any more; neither is a fault."""
    ended = service.policy.expired(service.clock.now())
    in_force = len(service.policy.exemption) - len(ended)
    words = f"{len(service.policy.threshold)} thresholds, {in_force} exemptions in force"
    if not ended:
        return words
    named = (f"{place_of(one)} of {one.owner}, on {one.expires_at:%Y-%m-%d}" for one in ended[:NAMED])
    more = f" and {len(ended) - NAMED} more" if len(ended) > NAMED else ""
    return f"{words}; {len(ended)} ended: {'; '.join(named)}{more}"


def active_unheld_gpu_hours(service: Service, window: Window) -> float:
    """How many of the window's free GPU-hours worked, as far as is known."""
    rows = service.query("quality_summary", from_at=window.from_at, to_at=window.to_at).to_pylist()
    return float(sum(row["event_count"] for row in rows if row["kind"] == "active_unheld")) / 60


def problems(service: Service, window: Window, language: str, *, now: datetime | None = None) -> list[dict[str, Any]]:
    """What lowers trust in the records of `window`, by source, each with what to do about it.

    With `now`, sources that have fallen silent are among them.
    """
    rows = service.query("quality_subjects", from_at=window.from_at, to_at=window.to_at).to_pylist()
    lasting = [] if now is None else [*_silent(service, now), *_told_before(service, window)]
    words = texts.Texts(language)
    return [_problem(row, words) for row in merged([*lasting, *rows])]


def _told_before(service: Service, window: Window) -> Iterator[dict[str, Any]]:
    before = {"from_at": window.from_at - TOLD_WITHIN, "to_at": window.from_at}
    for row in service.query("quality_subjects", **before).to_pylist():
        if row["kind"] in TOLD_ONCE:
            yield row


def _silent(service: Service, now: datetime) -> Iterator[dict[str, Any]]:
    """Sources that gave readings in the last days and have stopped."""
    for row in service.query("source_last_read", from_at=now - REMEMBERED, to_at=now).to_pylist():
        age = now - row["last_at"]
        is_silent = age > max(SILENT_AFTER, timedelta(seconds=SILENT_AFTER_READS * row["interval_seconds"]))
        if is_silent and family(row["source"]) not in ONCE_ONLY:
            yield {
                "source": row["source"],
                "kind": "silent",
                "detail": "",
                "subject_kind": "gpu",
                "subject_count": row["gpu_count"],
                "subjects": [],
                "event_count": 1,
                "worst_value": age.total_seconds(),
                "vendor": "",
            }


def _problem(row: Mapping[str, Any], words: texts.Texts) -> dict[str, Any]:
    vendor = vendor_of(row["vendor"], row["source"])
    effect = f"advice.effect_{row['detail']}"
    return {
        **row,
        "problem": words.code("quality_kind", row["kind"]),
        "advice": words(
            _key(row, vendor),
            source=row["source"],
            where=_where(row["subjects"], row["subject_count"], words),
            detail=row["detail"],
            count=numbers.count(row["event_count"]),
            value=_value(row["kind"], row["worst_value"], words.language),
            hours=numbers.gpu_hours(row["event_count"] / 60, words.language),
            metric=NAMES.get(row["detail"], row["detail"]),
            field=field_of(row["detail"], vendor),
            effect=words(effect) if _exists(effect) else "",
        ).strip(),
    }


def _key(row: Mapping[str, Any], vendor: str) -> str:
    """The text for this source or reason, where there is one, else that for the cards' vendor, else that for all."""
    common = f"advice.{row['kind']}"
    if row["kind"] in OF_ONE_SOURCE and row["subject_kind"] == "target":
        return f"{common}_source"
    if row["kind"] == "refused_sample":
        return f"{common}_{_refusal(row['detail'], row['source'])}"
    own = (f"{common}_{name}" for name in (family(row["source"]).partition(":")[0], vendor))
    return next(filter(_exists, own), common)


def _refusal(reason: str, source: str) -> str:
    """What class of reason a sample was refused for: its age, its time, its size, its form, or what it is."""
    if reason == TOO_OLD:
        return "age"
    if any(reason.endswith(end) for end in TIME_REASONS):
        return "time"
    if family(source) != "remote_write":
        return "row"
    return REMOTE_REASONS.get(reason, "form")


def _exists(key: str) -> bool:
    known = texts.keys()
    return key in known


def _where(subjects: Sequence[str], count: int, words: texts.Texts) -> str:
    if not subjects:
        return words("advice.cards", count=numbers.count(count))
    names = ", ".join(subjects[:NAMED])
    more = count - min(NAMED, len(subjects))
    return words("advice.where", names=names, count=numbers.count(more)) if more > 0 else names


def _value(kind: str, value: float | None, language: str) -> str:
    if value is None:
        return numbers.NO_VALUE
    if kind in RATIOS:
        return numbers.percent(value)
    return numbers.duration(value / 3600, language) if kind in SECONDS else numbers.count(round(value))
