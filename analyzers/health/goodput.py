"""Goodput in three factors: scheduling, runtime and program (Google's ML productivity goodput; algorithms.md, F).

    SG = GPU-hours held by started work on healthy cards / GPU-hours of the inventory
    RG = GPU-hours of training that was preserved / GPU-hours held by that work
    PG = what the model's arithmetic needed / what the hardware could have done in that time, of an ideal

Each factor has its own population: RG is over work of which checkpoints or ends are known, PG over work that tells its
steps. The product is one number only where all three are known, and says over how much of the fleet each was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuledger.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor: `numerator` over `denominator`, GPU-hours; `ratio` is None where there is no denominator."""

    numerator: float
    denominator: float

    def __post_init__(self) -> None:
        """Raise BadInput for what cannot be."""
        if self.numerator < 0 or self.denominator < 0:
            raise BadInput("goodput", "GPU-hours must not be negative")

    @property
    def ratio(self) -> float | None:
        """0 to 1; None: unknown, which is not zero."""
        return self.numerator / self.denominator if self.denominator > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The three factors of a fleet over a window."""

    scheduling: Factor
    runtime: Factor
    program: Factor

    @property
    def ratio(self) -> float | None:
        """SG x RG x PG; None while any of them is unknown."""
        factors = (self.scheduling.ratio, self.runtime.ratio, self.program.ratio)
        if None in factors:
            return None
        product = 1.0
        for factor in factors:
            product *= factor or 0.0
        return product


def program_factor(used_flops: float, peak_flops: float, *, gpu_hours: float, ideal_ratio: float = 1.0) -> Factor:
    """PG of `gpu_hours`: model FLOPs over what the peak allows, of `ideal_ratio` (1: the roofline; else a best MFU).

    Clipped at the ideal: work that beats it has made a better ideal known, not a program of more than 1.
    """
    if not 0 < ideal_ratio <= 1:
        raise BadInput("ideal_ratio", "must be above 0 and at most 1")
    if peak_flops <= 0:
        return Factor(numerator=0.0, denominator=0.0)
    return Factor(numerator=gpu_hours * min(1.0, used_flops / peak_flops / ideal_ratio), denominator=gpu_hours)
