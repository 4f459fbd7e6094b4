"""From faults to incidents: what follows a fault is told with it, and what to do is what the driver or history says."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from analyzers.health.catalogue import CODED_KINDS, Meaning, latest, meaning

TOGETHER = timedelta(minutes=5)
"""How far apart a fault and one that follows it may be (algorithms.md, section F)."""

RANKS: Mapping[str, int] = {"hw_fatal": 5, "link": 4, "driver": 3, "user_app": 2, "unknown": 1, "info": 0}

RESTARTING = frozenset({"reset_gpu", "reboot_node", "drain_and_reset"})
"""Actions that a reboot carries out; of these, some that did not help mean that the hardware must be looked at."""

Key = tuple[datetime, str, str, str, str]


def key_of(row: Mapping[str, Any]) -> Key:
    """What identifies a fault in the rows of every query about it: (ts, node, gpu_uuid, kind, code)."""
    return row["ts"], row["node"], row["gpu_uuid"], row["kind"], row["code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A fault with those that follow it. `action` stands over the catalogue's: the driver's word, or escalated."""

    fault: Mapping[str, Any]
    meaning: Meaning
    action: str
    action_by: str
    fault_class: str
    followers: tuple[Mapping[str, Any], ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the fault and its followers, the fault first."""
        return tuple(key_of(row) for row in (self.fault, *self.followers))

    @property
    def last_at(self) -> datetime:
        """When it was last told."""
        latest_at: datetime = max(row["last_at"] for row in (self.fault, *self.followers))
        return latest_at

    @property
    def is_of_hardware(self) -> bool:
        """Whether it counts as a failure of the node."""
        return self.meaning.is_of_hardware or self.fault_class in ("hw_fatal", "link", "driver")

    @property
    def name(self) -> str:
        """The fault in short: "xid-79", or its kind."""
        code = self.fault["code"]
        return f"{self.fault['kind']}-{code}" if code else str(self.fault["kind"])


def incidents(rows: Iterable[Mapping[str, Any]], *, escalate_after_reboots: int = 2) -> list[Incident]:
    """Incidents of faults (rows of query `hardware_fault`), in the order of time.

    A sympathetic fault goes with the strongest other fault of its card within 5 min: one that is not sympathetic,
    else an earlier one. It never goes with a weaker one, except that a counter goes with the code of its own error.
    """
    cards: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        cards["" if row["gpu_uuid"] else row["node"], row["gpu_uuid"]].append(row)
    found = [one for own in cards.values() for one in _of_card(own, escalate_after_reboots)]
    return sorted(found, key=lambda one: (one.fault["ts"], one.fault["node"], one.fault["gpu_uuid"], one.name))


def _of_card(rows: Sequence[Mapping[str, Any]], escalate_after_reboots: int) -> list[Incident]:
    ordered = sorted(rows, key=lambda row: (row["ts"], row["kind"], row["code"]))
    meanings = [meaning(row["vendor"], row["kind"], row["code"]) for row in ordered]
    parents = [_parent(place, ordered, meanings) for place in range(len(ordered))]
    found = []
    for place, row in enumerate(ordered):
        if parents[place] is None:
            followers = [other for other in range(len(ordered)) if _root(other, parents) == place and other != place]
            found.append(_incident(row, meanings[place], [ordered[i] for i in followers], escalate_after_reboots))
    return found


def _root(place: int, parents: Sequence[int | None]) -> int:
    seen = {place}
    while (parent := parents[place]) is not None and parent not in seen:
        place = parent
        seen.add(place)
    return place


def _parent(place: int, rows: Sequence[Mapping[str, Any]], meanings: Sequence[Meaning]) -> int | None:
    own, row = meanings[place], rows[place]
    if not own.is_sympathetic:
        return None

    def strength(other: int) -> tuple[bool, int, int]:
        return not meanings[other].is_sympathetic, RANKS[meanings[other].fault_class], -other

    candidates = [other for other in range(len(rows)) if other != place and _may_lead(other, place, rows, meanings)]
    near = [other for other in candidates if _is_near(rows[other], row)]
    return max(near, key=strength, default=None)


def _may_lead(leader: int, follower: int, rows: Sequence[Mapping[str, Any]], meanings: Sequence[Meaning]) -> bool:
    ours, theirs = meanings[follower], meanings[leader]
    is_counter = rows[follower]["kind"] not in CODED_KINDS
    if is_counter and rows[leader]["kind"] in CODED_KINDS and theirs.is_of_hardware:
        return True
    is_counter_of_ours = rows[leader]["kind"] not in CODED_KINDS and rows[follower]["kind"] in CODED_KINDS
    if is_counter_of_ours and ours.is_of_hardware:
        return False
    stronger = RANKS[theirs.fault_class] - RANKS[ours.fault_class]
    if theirs.is_sympathetic:  # of two that follow something unseen, the stronger leads, else the earlier
        return stronger > 0 or (stronger == 0 and leader < follower)
    return stronger >= 0


def _is_near(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["ts"] <= other["last_at"] + TOGETHER and other["ts"] <= one["last_at"] + TOGETHER)


def _incident(
    row: Mapping[str, Any], own: Meaning, followers: Sequence[Mapping[str, Any]], escalate_after_reboots: int
) -> Incident:
    action, action_by, fault_class = own.action, "catalogue", own.fault_class
    for told in (row, *followers):
        catalogue = latest().get(told["vendor"])
        if catalogue and meaning(told["vendor"], told["kind"], told["code"]).tells_recovery:
            recommended = catalogue.recommended(told["detail"])
            if recommended is not None:
                action, action_by = recommended, "driver"
    if own.tells_recovery and action_by == "driver" and action != "ignore":
        fault_class = "hw_fatal"  # the driver asks for a reset or more, and what went wrong was not seen
    if action in RESTARTING and row["ineffective_reboots"] >= escalate_after_reboots:
        action, action_by = "inspect_hardware", "history"
    return Incident(
        fault=row,
        meaning=own,
        action=action,
        action_by=action_by,
        fault_class=fault_class,
        followers=tuple(followers),
    )


def without_planned(found: Iterable[Incident]) -> tuple[list[Incident], list[Incident]]:
    """(what happened in service, what happened to nodes and cards that were drained or under repair already)."""
    everything = list(found)
    planned = [one for one in everything if one.fault["is_planned"]]
    return [one for one in everything if not one.fault["is_planned"]], planned


def describe(one: Incident) -> dict[str, Any]:
    """The incident's meaning as plain values: class, action and who says so, the vendor's bucket, the catalogue."""
    return {
        "class": one.fault_class,
        "action": one.action,
        "action_by": one.action_by,
        **{name: value for name, value in dataclasses.asdict(one.meaning).items() if name in ("bucket", "note")},
        "catalogue": one.meaning.catalogue,
        "followers": [{"kind": row["kind"], "code": row["code"], "ts": row["ts"].isoformat()} for row in one.followers],
    }
