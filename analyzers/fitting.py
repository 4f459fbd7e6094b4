"""What is the least that would do: a MIG slice, a smaller model, fewer cards, or half of a card."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gpuledger.model import GPU_MODELS, GpuModel, canonical_model

MIG_PROFILES = {
    (7, 8): ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4)),
    (4, 4): ((1, 1), (2, 2)),
}
"""(compute, memory) slices of a model: the (compute, memory) slices of its profiles, from NVIDIA's MIG user guide."""

TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What each of `card_count` cards of `model` was used for at the most: memory in bytes, compute as a ratio."""

    model: str
    card_count: int
    memory_bytes: float
    capacity_bytes: float
    compute_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Something smaller that the need fits into. `share` is the part of the present cards that it takes.

    `how` is mig, smaller_model, fewer_cards or share. `compute_slices` and `memory_slices` name a MIG profile.
    """

    how: str
    share: float
    model: str = ""
    card_count: int = 1
    compute_slices: int = 0
    memory_slices: int = 0

    def parameters(self) -> dict[str, Any]:
        """The fields that say something."""
        return {key: value for key, value in asdict(self).items() if value not in ("", 0)}


def smallest_fit(need: Need, *, headroom_ratio: float) -> Fit | None:
    """The smallest thing that holds `need` with `headroom_ratio` of room on top; None where nothing smaller does.

    A MIG slice is offered to single cards alone: slices of several cards cannot talk as cards do. Then a smaller model
    of the same vendor, then fewer cards, then sharing one card with others.
    """
    memory, compute = need.memory_bytes * (1 + headroom_ratio), need.compute_ratio * (1 + headroom_ratio)
    own = next((one for one in GPU_MODELS if one.model == canonical_model(need.model)), None)
    if need.card_count == 1 and own is not None and (slice_ := _slice(own, memory / need.capacity_bytes, compute)):
        return slice_
    if own is not None and (smaller := _smaller(own, memory, compute)):
        return Fit(how="smaller_model", share=_speed(smaller, own), model=smaller.model, card_count=need.card_count)
    part = max(memory / need.capacity_bytes, compute)
    if need.card_count == 1:
        return Fit(how="share", share=0.5) if part <= 0.5 + TINY else None
    cards = max(1, math.ceil(need.card_count * part - TINY))
    if cards >= need.card_count:
        return None
    return Fit(how="fewer_cards", share=cards / need.card_count, card_count=cards)


def _slice(own: GpuModel, memory_ratio: float, compute_ratio: float) -> Fit | None:
    for compute, memory in MIG_PROFILES.get((own.compute_slices, own.memory_slices), ()):
        if memory / own.memory_slices + TINY >= memory_ratio and compute / own.compute_slices + TINY >= compute_ratio:
            share = compute / own.compute_slices
            return Fit(how="mig", share=share, model=own.model, compute_slices=compute, memory_slices=memory)
    return None


def _smaller(own: GpuModel, memory: float, compute_ratio: float) -> GpuModel | None:
    """The slowest model of the vendor that has the memory and the arithmetic."""
    fitting = [
        one
        for one in GPU_MODELS
        if one.vendor == own.vendor
        and (one.memory_bytes or 0) >= memory
        and compute_ratio - TINY <= _speed(one, own) < 1
    ]
    return min(fitting, key=lambda one: one.peak_bf16_flops or 0, default=None)


def _speed(one: GpuModel, own: GpuModel) -> float:
    """The dense BF16 peak of `one` as a part of that of `own`; 0 where either is not known."""
    return (one.peak_bf16_flops or 0.0) / own.peak_bf16_flops if own.peak_bf16_flops else 0.0
