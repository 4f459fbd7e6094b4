"""Parts of cards under KAI: pods ask for them in annotations and request no GPU; a reservation pod holds the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import Object, meta

FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
DEVICES = "gpu-fraction-num-devices"

SHARED = "nvidia.com/gpu.shared"
"""The resource that records say such a pod holds: so many cards, each of them in part."""


@dataclass(frozen=True, slots=True)
class Fraction:
    """What a pod asks of each of `devices` cards: a part of it, or memory in MiB. One of the two is None."""

    devices: int
    part: float | None
    memory_mib: float | None

    def share(self, card_mib: float | None) -> float | None:
        """The part of each card; None where it is asked for as memory and the card's is not known."""
        if self.part is not None:
            return self.part
        return min(1.0, self.memory_mib / card_mib) if self.memory_mib is not None and card_mib else None

    def cards(self, card_mib: float | None) -> float | None:
        """The whole cards that all its parts are."""
        share = self.share(card_mib)
        return None if share is None else share * self.devices


def fraction_of(pod: Object) -> Fraction | None:
    """What `pod` asks for in annotations; None for a pod that asks for no part. Raises BadInput naming the annotation.

    A part counts before memory where both are set, as in the scheduler.
    """
    annotations: Mapping[str, str] = meta(pod).get("annotations") or {}
    if FRACTION not in annotations and MEMORY not in annotations:
        return None
    devices = int(_number(annotations.get(DEVICES, "1"), DEVICES))
    if FRACTION in annotations:
        part = _number(annotations[FRACTION], FRACTION)
        if part > 1:
            raise BadInput(FRACTION, f"{part:g} is more than a card")
        return Fraction(devices, part, None)
    return Fraction(devices, None, _number(annotations[MEMORY], MEMORY))


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise BadInput(field, f"{str(text)[:40]!r} is no number") from None
    if not isfinite(value) or value <= 0:
        raise BadInput(field, f"{value} is no part of a card")
    return value
