"""What happened to this node's cards, from one snapshot to the next: errors, lost cards, what the driver recommends.

This is kept by the parent, so that a child that is started again tells nothing twice. What was so already when the
agent started is no event: nobody knows when it began. A lost card is the exception, because it is lost now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from collector.nvml.records import SOURCE, Pass
from gpuledger.model import Condition, FaultEvent, QualityEvent

RECOVERY_CHANGED = "154"
"""The XID with which drivers say that the recovery action changed."""

_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
_MAX_XID = 100_000
_MAX_COUNT = 1_000_000
_MAX_TEXT = 200


class _Faults:
    """Faults of one pass, each card's kind and code once."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._details: dict[tuple[str, str, str], str] = {}

    def add(self, uuid: str, kind: str, code: str = "", *, detail: str | None = None, count: int = 1) -> None:
        """One more; the last detail that is given stays. With `count` 0 only what was told already is described."""
        key = uuid, kind, code
        if count or key in self._counts:
            self._counts[key] = self._counts.get(key, 0) + count
            if detail is not None:
                self._details[key] = detail

    def records(self, taken: Pass) -> list[FaultEvent]:
        """The rows."""
        return [
            FaultEvent(
                ts=taken.now,
                node=taken.node,
                gpu_uuid=uuid,
                vendor="nvidia",
                kind=kind,
                code=code,
                source=SOURCE,
                detail=self._details.get((uuid, kind, code)),
                count=count,
            )
            for (uuid, kind, code), count in self._counts.items()
        ]

    def __contains__(self, key: tuple[str, str, str]) -> bool:
        return key in self._counts


class Incidents:
    """The cards of one node."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lost_since: dict[str, datetime] = {}
        self._unavailable: set[str] = set()
        self._before: dict[tuple[str, str], int] = {}
        self._nameless = (0, 0)
        self._failed: frozenset[str] = frozenset()

    def note(self, snapshot: Mapping[str, Any], taken: Pass) -> dict[str, Sequence[Any]]:
        """The rows, by record, of what is new in `snapshot`. Raises KeyError and the like for what is no snapshot."""
        faults, quality = _Faults(), list[QualityEvent]()
        devices = {str(device["uuid"]): device for device in snapshot["devices"]}
        for event in snapshot["events"]:
            _told(event, faults, quality, taken)
        for uuid, device in devices.items():
            self._changed(uuid, device, faults)
        lost = {str(uuid) for uuid in snapshot["lost"]} - devices.keys()
        lost |= self._without_name(snapshot, devices.keys() | lost)
        unavailable = {str(event["uuid"]) for event in snapshot["events"] if event["xid"] is None}
        known = self._lost_since.keys() | self._unavailable
        for uuid in sorted(unavailable - known):
            faults.add(uuid, "gpu_lost", detail="the driver says that the GPU is not available")
        for uuid in sorted(lost - known - unavailable):
            faults.add(uuid, "gpu_lost", detail="NVML says that the GPU is lost")
        self._unavailable = unavailable | (self._unavailable & lost)
        conditions = self._conditions(lost, devices.keys(), taken)
        self._nameless_changed(snapshot, lost, faults, quality, taken)
        failed = {str(uuid): str(text)[:_MAX_TEXT] for uuid, text in snapshot["failed"].items()}
        quality += [_gap(taken, "gpu", uuid, failed[uuid]) for uuid in sorted(failed.keys() - self._failed)]
        self._failed = frozenset(failed)
        self._known |= devices.keys() | lost
        return {"fault_event": faults.records(taken), "condition": conditions, "quality_event": quality}

    def _changed(self, uuid: str, device: Mapping[str, Any], faults: _Faults) -> None:
        """What the driver recommends, and whether bad pages wait for a reset."""
        action = device["fields"].get("recovery_action")
        if action is not None:
            action = int(action)
            detail = f"recovery action to {action} ({_ACTIONS.get(action, 'unknown')})" if action else None
            is_news = self._is_news(uuid, "recovery", action) and (uuid, "xid", RECOVERY_CHANGED) not in faults
            faults.add(uuid, "xid", RECOVERY_CHANGED, detail=detail, count=int(is_news))
        pending = device["retirement_pending"]
        if pending is not None and self._is_news(uuid, "retirement", int(pending)):
            faults.add(uuid, "row_remap_pending", detail="bad pages are retired at the next reset")

    def _is_news(self, uuid: str, name: str, value: int) -> bool:
        """Whether a value that means trouble unless it is 0 is another one than before."""
        before = self._before.get((uuid, name))
        self._before[uuid, name] = value
        return value != 0 and before is not None and value != before

    def _without_name(self, snapshot: Mapping[str, Any], answered: Iterable[str]) -> set[str]:
        """A card that is lost and does not say its UUID, where it can only be one that was seen before."""
        missing = self._known.difference(answered, map(str, snapshot["failed"]), map(str, snapshot["skipped"]))
        return missing if len(missing) == 1 and sum(map(bool, snapshot["nameless"])) == 1 else set()

    def _nameless_changed(
        self,
        snapshot: Mapping[str, Any],
        lost: set[str],
        faults: _Faults,
        quality: list[QualityEvent],
        taken: Pass,
    ) -> None:
        """Cards that do not say who they are: lost ones are the node's fault, others a gap in what is read."""
        gone = sum(map(bool, snapshot["nameless"]))
        others = len(snapshot["nameless"]) - gone
        if gone > self._nameless[0] and not lost:
            faults.add("", "gpu_lost", detail=f"{gone} of the node's cards, whose UUIDs are not known")
        if others > self._nameless[1]:
            quality.append(_gap(taken, "node", taken.node, f"{others} cards do not say their UUID"))
        self._nameless = (gone, others)

    def _conditions(self, lost: set[str], answered: Iterable[str], taken: Pass) -> list[Condition]:
        """`gpu_lost` of every card that is lost now, or was until now.

        While lost it holds for three intervals from each read on, so that an agent that dies leaves no card lost for
        ever.
        """
        back = self._lost_since.keys() & answered
        for uuid in lost:
            self._lost_since.setdefault(uuid, taken.now)
        until_at = taken.now + timedelta(seconds=3 * taken.interval_seconds)
        found = [self._condition(uuid, until_at) for uuid in sorted(lost)]
        found += [self._condition(uuid, taken.now) for uuid in sorted(back)]
        for uuid in back:
            del self._lost_since[uuid]
        return found

    def _condition(self, uuid: str, until_at: datetime) -> Condition:
        return Condition(
            subject_kind="gpu",
            subject=uuid,
            condition="gpu_lost",
            from_at=self._lost_since[uuid],
            until_at=until_at,
            reason="NVML says that the GPU is lost",
            source=SOURCE,
        )


def _told(event: Mapping[str, Any], faults: _Faults, quality: list[QualityEvent], taken: Pass) -> None:
    """An XID. Events without one say that a card is not available."""
    uuid, xid, instance = str(event["uuid"]), event["xid"], event["instance"]
    if xid is None:
        return
    if 0 < int(xid) < _MAX_XID:
        where = None if instance is None else f"GPU instance {int(instance)}"
        faults.add(uuid, "xid", str(int(xid)), detail=where, count=min(max(1, int(event["count"])), _MAX_COUNT))
    else:
        quality.append(_quality(taken, "gpu", uuid, "rejected_value", f"XID {int(xid)}"))


def left_out(place: str, reason: str, taken: Pass) -> QualityEvent:
    """The event of a place that is not asked for a while. `place` is a card's UUID, or another place of the child's."""
    is_card = place.startswith("GPU-")
    return _gap(taken, "gpu" if is_card else "node", place if is_card else taken.node, f"{place} left out: {reason}")


def _gap(taken: Pass, subject_kind: str, subject: str, detail: str) -> QualityEvent:
    return _quality(taken, subject_kind, subject, "gap", detail)


def _quality(taken: Pass, subject_kind: str, subject: str, kind: str, detail: str) -> QualityEvent:
    return QualityEvent(
        ts=taken.now,
        source=SOURCE,
        subject_kind=subject_kind,
        subject=subject,
        kind=kind,
        detail=detail[:_MAX_TEXT],
        count=1,
    )
