"""Delivering what waits in an outbox: at least once, in order of urgency, with backoff, and never for ever.

At least once: an attempt is recorded after the channel accepted it, so a crash between the two sends the message again,
with the same key, by which the receiver recognises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import tenacity

from gpuledger.clock import Clock
from gpuledger.errors import DeliveryError
from gpuledger.ports import Channel, Delivery, Message

_URGENCY = {"critical": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Pending:
    """An outbox entry that is due: its id there, the message, and how many passes have tried it already."""

    entry_id: int
    message: Message
    attempts: int = 0


class Settle(Protocol):
    """Records an attempt in the outbox: "delivered", "dead", or "pending" again after `retry_in`."""

    def __call__(self, entry_id: int, status: str, *, detail: str, retry_in: timedelta | None = None) -> object:
        """Record it durably before returning."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How stubborn delivery is: a few quick tries in one pass, then passes further and further apart, then dead."""

    quick_tries: int = 3
    quick_wait_seconds: float = 1.0
    first_retry: timedelta = timedelta(seconds=30)
    longest_retry: timedelta = timedelta(hours=1)
    passes: int = 12

    def retry_in(self, attempts: int) -> timedelta:
        """How long to wait after `attempts` failed passes."""
        doubled: timedelta = self.first_retry * 2 ** min(attempts, 20)
        return min(self.longest_retry, doubled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one pass did. `postponed` were not tried, because the channel was down."""

    delivered: int = 0
    retried: int = 0
    dead: int = 0
    postponed: int = 0


def _may_help(error: BaseException) -> bool:
    return isinstance(error, DeliveryError) and error.retryable


def _send(message: Message, channel: Channel, clock: Clock, policy: Policy) -> Delivery:
    retrying = tenacity.Retrying(
        sleep=clock.sleep,
        stop=tenacity.stop_after_attempt(policy.quick_tries),
        wait=tenacity.wait_exponential(multiplier=policy.quick_wait_seconds, max=30),
        retry=tenacity.retry_if_exception(_may_help),
        reraise=True,
    )
    return retrying(channel.send, message)


def _by_urgency(pending: Iterable[Pending]) -> list[Pending]:
    return sorted(pending, key=lambda each: (_URGENCY.get(each.message.severity, 2), each.entry_id))


def dispatch(
    pending: Sequence[Pending], channel: Channel, settle: Settle, clock: Clock, policy: Policy | None = None
) -> Summary:
    """Try each pending message on `channel` and settle it. A key that was delivered in this pass is not sent twice.

    After a failure that may pass, the rest of the pass is left alone: the channel is down, and each message would wait.
    """
    policy = policy or Policy()
    delivered: set[str] = set()
    counts = {"delivered": 0, "retried": 0, "dead": 0}
    waiting = _by_urgency(pending)
    for index, entry in enumerate(waiting):
        if entry.message.key in delivered:
            settle(entry.entry_id, "delivered", detail="duplicate of a delivered key")
            counts["delivered"] += 1
            continue
        try:
            delivery = _send(entry.message, channel, clock, policy)
        except DeliveryError as error:
            is_last = not error.retryable or entry.attempts + 1 >= policy.passes
            retry_in = None if is_last else policy.retry_in(entry.attempts)
            settle(entry.entry_id, "dead" if is_last else "pending", detail=str(error), retry_in=retry_in)
            counts["dead" if is_last else "retried"] += 1
            if error.retryable:
                return Summary(**counts, postponed=len(waiting) - index - 1)
        else:
            settle(entry.entry_id, "delivered", detail=delivery.detail)
            delivered.add(entry.message.key)
            counts["delivered"] += 1
    return Summary(**counts)
