"""Fair shares of GPUs: what each queue deserves first, then the rest by priority and weight (KAI's rule, k = 0).

No queue gets more than it asks for; what nobody asks for stays unallocated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HAIR = 1e-9
"""GPUs below which a rest counts as nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one queue deserves and asks for, in GPUs. `created_order` settles ties: the older queue first."""

    queue: str
    deserved_gpus: float
    request_gpus: float
    weight: float = 1.0
    priority: int = 0
    created_order: int = 0


def _fill(room: float, wants: dict[str, float], weights: dict[str, float]) -> dict[str, float]:
    """Pour `room` into `wants` in proportion to `weights` until it is used up or everybody is full."""
    given = dict.fromkeys(wants, 0.0)
    thirsty = [queue for queue, want in wants.items() if want > HAIR and weights[queue] > 0]
    while thirsty and room > HAIR:
        total_weight = math.fsum(weights[queue] for queue in thirsty)
        level = min(room / total_weight, *((wants[queue] - given[queue]) / weights[queue] for queue in thirsty))
        for queue in thirsty:
            given[queue] += level * weights[queue]
        room -= level * total_weight
        thirsty = [queue for queue in thirsty if wants[queue] - given[queue] > HAIR]
    return given


def water_fill(total_gpus: float, claims: Sequence[Claim]) -> list[float]:
    """Each claim's continuous share, in the order of `claims`; they never sum to more than `total_gpus`.

    Where even the deserved parts exceed the total, higher priorities are served first and equal ones in proportion.
    """
    shares = {claim.queue: 0.0 for claim in claims}
    for part in ("deserved", "rest"):
        for priority in sorted({claim.priority for claim in claims}, reverse=True):
            peers = [claim for claim in claims if claim.priority == priority]
            room = total_gpus - math.fsum(shares.values())
            if part == "deserved":
                wants = {claim.queue: min(claim.deserved_gpus, claim.request_gpus) for claim in peers}
                weights = dict(wants)
            else:
                wants = {claim.queue: claim.request_gpus - shares[claim.queue] for claim in peers}
                weights = {claim.queue: claim.weight for claim in peers}
            for queue, given in _fill(room, wants, weights).items():
                shares[queue] += given
    return [shares[claim.queue] for claim in claims]


def whole_gpus(total_gpus: float, claims: Sequence[Claim], shares: Sequence[float]) -> list[int | float]:
    """`shares` floored to whole GPUs where a queue asks for more than its share; one pass hands out what that leaves.

    A queue with a fraction cut off gets at most one GPU: largest fraction first, then the older queue, then its name.
    """
    asks_more = [claim.request_gpus > share + HAIR for claim, share in zip(claims, shares, strict=True)]
    given: list[int | float] = [
        math.floor(share + HAIR) if more else share for share, more in zip(shares, asks_more, strict=True)
    ]
    cut = [share - kept for share, kept in zip(shares, given, strict=True)]
    left = math.floor(total_gpus - math.fsum(given) + HAIR)
    waiting = [i for i in range(len(claims)) if cut[i] > HAIR]
    waiting.sort(key=lambda i: (-round(cut[i], 9), claims[i].created_order, claims[i].queue))
    for i in waiting[:left]:
        given[i] += 1
    return given
