"""What GPU-hours cost: money is a view on GPU-hours, never a second ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, quantity
from gpuledger.model.vocabulary import CONVERSION_BASES, PRICE_BASES


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU-hour of a model costs a tenant from `from_at` on. Grain: (`model`, `tenant`, `basis`, `from_at`).

    An empty `tenant` or `model` is for all that have no price of their own. `currency` is an ISO 4217 code.
    """

    model: str = ""
    tenant: str = ""
    basis: str = choice(PRICE_BASES)
    price_per_gpu_hour: float = quantity("currency units / GPU-hour", low=0)
    currency: str
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How many converted card-hours a card-hour of a model is from `from_at` on.

    Grain: (`model`, `basis`, `from_at`).
    """

    model: str
    basis: str = choice(CONVERSION_BASES)
    factor: float = quantity("ratio", low=0)
    from_at: datetime
    until_at: datetime | None = None
