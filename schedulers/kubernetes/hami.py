"""HAMi shares cards: nodes register them in an annotation, pods hold parts of them in another.

`nvidia.com/gpu` of a node is then cards times the split, and memory is nowhere in allocatable. Both annotations have
an older form in text and a newer one in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import Object, meta

REGISTER = "hami.io/node-nvidia-register"
ALLOCATED = "hami.io/vgpu-devices-allocated"

GPU, MEMORY, MEMORY_PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A physical card that a node registered: how many pods may share it, and its memory."""

    uuid: str
    slots: int
    memory_mib: float
    model: str | None
    is_healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A pod's part of a card: memory in MiB, cores in percent of the card (0: no limit)."""

    uuid: str
    memory_mib: float
    cores_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a pod asks of HAMi: `cards`, and of each of them memory and cores (None: all of it)."""

    cards: float
    memory_mib: float | None
    memory_percent: float | None
    cores_percent: float | None

    @classmethod
    def by(cls, requests: Mapping[str, float]) -> Asked:
        """From a pod's requests. They are for each card."""
        return cls(
            cards=requests.get(GPU, 0.0),
            memory_mib=requests.get(MEMORY) or None,
            memory_percent=requests.get(MEMORY_PERCENT) or None,
            cores_percent=requests.get(CORES) or None,
        )

    @property
    def is_shared(self) -> bool:
        """Whether it wants parts of cards."""
        return self.memory_mib is not None or self.memory_percent is not None or self.cores_percent is not None

    def memory_of(self, card: Card) -> float:
        """What it takes of a card's memory, in MiB; all of it where nothing is said."""
        if self.memory_mib is not None:
            return self.memory_mib
        return card.memory_mib * (self.memory_percent or 100.0) / 100.0

    def share(self, card_mib: float | None) -> float:
        """The part of each card that it takes: the larger of cores and memory. `card_mib` None: not known."""
        cores = (self.cores_percent or 0.0) / 100.0
        if self.memory_mib is not None and card_mib:
            return min(1.0, max(cores, self.memory_mib / card_mib))
        if self.memory_percent is not None:
            return min(1.0, max(cores, self.memory_percent / 100.0))
        return 1.0 if self.memory_mib is None else min(1.0, cores or 1.0)


def _annotation(thing: Object, name: str) -> str:
    return str((meta(thing).get("annotations") or {}).get(name) or "").strip()


def _number(value: Any, field: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadInput(field, f"{str(value)[:40]!r} is no number") from None


def cards_of(node: Object) -> list[Card]:
    """The cards that a node registered; none where HAMi does not run. Raises BadInput for a form that is not known."""
    text = _annotation(node, REGISTER)
    if not text:
        return []
    if not text.startswith("["):
        return [_card_of_text(part) for part in text.split(":") if part.count(",") >= 4]
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadInput(REGISTER, f"no JSON: {error}") from error
    return [
        Card(
            uuid=one["id"],
            slots=int(_number(one.get("count", 1), REGISTER)),
            memory_mib=_number(one.get("devmem", 0), REGISTER),
            model=one.get("type") or None,
            is_healthy=one.get("health") is not False,
        )
        for one in given
    ]


def _card_of_text(part: str) -> Card:
    """uuid,slots,memory,cores,type[,numa],health."""
    cells = part.split(",")
    return Card(
        uuid=cells[0],
        slots=int(_number(cells[1], REGISTER)),
        memory_mib=_number(cells[2], REGISTER),
        model=cells[4] or None,
        is_healthy=cells[-1].strip().lower() != "false",
    )


def held_by(pod: Object) -> list[Held]:
    """The parts of cards that were given to a pod, over its containers; none before HAMi decided.

    A slice of MIG is "GPU-...[0-1]" there: of it the card is known.
    """
    text = _annotation(pod, ALLOCATED)
    held = []
    for device in text.replace(";", ":").split(":"):
        cells = device.split(",")
        if len(cells) >= 4:
            held.append(
                Held(
                    uuid=cells[0].partition("[")[0],
                    memory_mib=_number(cells[2], ALLOCATED),
                    cores_percent=_number(cells[3], ALLOCATED),
                )
            )
    return held
