"""Cards and parts of them: the Device of each node, and the annotation that says which of them a pod got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.errors import BadInput
from gpuledger.model import Allocation, Condition
from schedulers.koordinator.kinds import CARD, CORE, PERCENT, RATIO, SHARED, amounts, annotation
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import (
    Object,
    created_at,
    ended_at,
    meta,
    name_of,
    node_of,
    requests_of,
    started_at,
    uid_of,
)
from schedulers.kubernetes.times import instant
from schedulers.rows import SnapshotRows

ALLOCATED = "scheduling.koordinator.sh/device-allocated"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of a node: its UUID, number, and where it sits."""

    uuid: str
    minor: int
    is_healthy: bool
    numa: str
    pcie: str
    since: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """A pod's part of the card with number `minor`."""

    minor: int
    share: float


@dataclass(slots=True)
class DeviceBook:
    """The cards of the nodes that have a Device."""

    cards: dict[str, dict[int, Card]] = field(default_factory=dict)

    @classmethod
    def of(cls, devices: Sequence[Object], rows: SnapshotRows) -> DeviceBook:
        """From Device objects, which have their node's name; one that cannot be understood costs its node's cards."""
        book = cls()
        for device in devices:
            with rows.sparing(name_of(device), "node"):
                given = (device.get("spec") or {}).get("devices") or ()
                cards = [_card(one) for one in given if one.get("type") == "gpu"]
                if cards:
                    book.cards[name_of(device)] = {card.minor: card for card in cards}
        return book

    def conditions(self, at: datetime) -> list[Condition]:
        """Cards that are not healthy: nothing is put on them."""
        return [
            Condition(
                subject_kind="gpu",
                subject=card.uuid,
                condition="not_ready",
                from_at=min(card.since or at, at),
                reason=card.reason or "Device says that it is not healthy",
            )
            for cards in self.cards.values()
            for card in cards.values()
            if not card.is_healthy
        ]


def _card(given: Object) -> Card:
    if not given.get("id") or not isinstance(given.get("minor"), int):
        raise BadInput("spec.devices", "a gpu has no id, or no minor")
    place = given.get("topology") or {}
    told: Object = next((one for one in given.get("conditions") or () if one.get("status") != "True"), {})
    return Card(
        uuid=given["id"],
        minor=given["minor"],
        is_healthy=bool(given.get("health")),
        numa=str(place.get("nodeID", "")),
        pcie=str(place.get("pcieID", "")),
        since=instant(told.get("lastTransitionTime"), "lastTransitionTime"),
        reason=": ".join(text for text in (told.get("reason"), told.get("message")) if text),
    )


def parts_of(pod: Object) -> list[Part]:
    """The parts of cards that a pod was given: of compute and memory the larger counts. Raises BadInput."""
    given = annotation(pod, ALLOCATED)
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise BadInput(ALLOCATED, "is no mapping")
    parts = []
    for one in given.get("gpu") or ():
        asked = amounts(one.get("resources") or {}, ALLOCATED)
        percent = [asked[name] for name in (PERCENT, CORE, RATIO) if name in asked]
        if not percent or not isinstance(one.get("minor"), int):
            raise BadInput(ALLOCATED, "a gpu has no minor, or no share")
        parts.append(Part(one["minor"], min(1.0, max(percent) / 100.0)))
    return parts


def cards_asked(requests: Mapping[str, float]) -> float | None:
    """How many cards the percents of a request are; None where it asks for none in percent.

    100 of `koordinator.sh/gpu` are a card. Where only memory is asked for in bytes, it is not known how much of a card
    that is before one was given.
    """
    percent = [requests[name] for name in (PERCENT, CORE, RATIO) if requests.get(name)]
    return max(percent) / 100.0 if percent else None


def held_cards(pod: Object) -> dict[str, float]:
    """What a pod holds or asks for in parts of cards, as a request for cards; nothing for a pod that asks for none.

    A pod whose annotation cannot be read holds what it asked for: `allocation_rows` tells of the annotation.
    """
    with suppress(BadInput):
        if parts := parts_of(pod):
            return {CARD: round(sum(part.share for part in parts), 6)}
    asked = cards_asked(requests_of(pod))
    return {} if asked is None else {CARD: asked}


def shape(pod: Object, core: CoreFacts) -> tuple[int, int] | None:
    """(cards, thousandths of each) of a pod that wants parts of cards; None for one that wants whole ones.

    `koordinator.sh/gpu.shared` is over how many cards what it asks for is spread; where it is not set, over one.
    """
    asked, spread = cards_asked(core.requests_of(pod)), int(core.requests_of(pod).get(SHARED) or 1)
    if asked is None or asked / spread >= 1:
        return None
    return spread, round(1000 * asked / spread)


def allocation_rows(core: CoreFacts, book: DeviceBook) -> None:
    """Adds a row for each part of a card that a bound pod holds."""
    for pod in core.pods_by_uid.values():
        node = node_of(pod)
        if node is None:
            continue
        with core.rows.sparing(name_of(pod)):
            parts = parts_of(pod)
            for index, part in enumerate(parts):
                card = book.cards.get(node, {}).get(part.minor)
                if card is None:
                    detail = f"{name_of(pod)}: node {node} has no card number {part.minor} in its Device"
                    core.rows.problem("unparsed_allocation", core.workload_of(pod), detail, subject_kind="workload")
                else:
                    core.rows.add(_allocation(core, pod, card.uuid, part.share, (index, len(parts))))


def _allocation(core: CoreFacts, pod: Object, uuid: str, share: float, place: tuple[int, int]) -> Allocation:
    """`place` is (index, count) among the pod's parts: they divide its CPU and memory, the first takes what is left."""
    requests, (index, count) = core.requests_of(pod), place
    cpu, memory = round(requests.get("cpu", 0.0) * 1000), int(requests.get("memory", 0.0) // 2**20)
    begin = started_at(pod) or created_at(pod) or core.rows.taken_at
    end = ended_at(pod)
    return Allocation(
        allocation_id=f"{uid_of(pod, core.rows.cluster)}/{uuid}",
        workload_id=core.workload_of(pod),
        pod=meta(pod)["name"],
        node=node_of(pod) or "",
        gpu_uuid=uuid,
        share=share,
        cpu_milli=cpu // count + (cpu % count if index == 0 else 0),
        memory_mib=memory // count + (memory % count if index == 0 else 0),
        started_at=min(begin, end) if end else begin,
        ended_at=end,
    )
