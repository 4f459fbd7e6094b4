from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from alerts.channels.webhook import WebhookChannel
from alerts.dispatch import Pending, Policy, Summary, dispatch
from gpuledger.errors import DeliveryError
from gpuledger.ports import Delivery, Message
from gpuledger.testing import FakeClock
from tests.alerts.receiver import Receiver, listening

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
MESSAGE = Message(key="a", kind="finding", title="t", text="x", severity="info", created_at=AT)


class Scripted:
    """Accepts, or fails as its script says; remembers keys in the order in which they were tried."""

    name = "scripted"

    def __init__(self, *script: bool | None) -> None:
        self.script = list(script)
        self.tried: list[str] = []

    def send(self, message: Message) -> Delivery:
        self.tried.append(message.key)
        retryable = self.script.pop(0) if self.script else None
        if retryable is not None:
            raise DeliveryError("host answered HTTP 500", retryable=retryable)
        return Delivery(channel=self.name, status="delivered", detail="ok")


def run(channel, *pending, policy=None):
    settled = []
    clock = FakeClock(AT)

    def settle(entry_id, status, *, detail, retry_in=None):
        settled.append((entry_id, status, retry_in))

    return dispatch(pending, channel, settle, clock, policy), settled, clock


def test_a_message_is_delivered_and_settled():
    summary, settled, clock = run(Scripted(), Pending(1, MESSAGE))
    assert (summary, settled, clock.slept) == (Summary(delivered=1), [(1, "delivered", None)], [])


def test_quick_tries_bridge_a_short_failure_with_growing_pauses():
    channel = Scripted(*[True] * 2)
    summary, _, clock = run(channel, Pending(1, MESSAGE))
    assert (summary.delivered, channel.tried, clock.slept) == (1, ["a"] * 3, [1.0, 2.0])


def test_a_channel_that_stays_down_postpones_the_rest():
    channel = Scripted(*[True] * 3)
    entries = [Pending(n, replace(MESSAGE, key=str(n)), attempts=2) for n in (1, 2, 3)]
    summary, settled, _ = run(channel, *entries)
    assert summary == Summary(retried=1, postponed=2)
    assert settled == [(1, "pending", timedelta(minutes=2))]


def test_what_cannot_be_helped_is_dead_at_once_and_the_rest_goes_on():
    channel = Scripted(*[False])
    summary, settled, clock = run(channel, Pending(1, MESSAGE), Pending(2, replace(MESSAGE, key="b")))
    assert (summary, clock.slept) == (Summary(delivered=1, dead=1), [])
    assert [(entry, status) for entry, status, _ in settled] == [(1, "dead"), (2, "delivered")]


def test_the_last_pass_makes_it_dead():
    summary, settled, _ = run(Scripted(*[True] * 3), Pending(1, MESSAGE, attempts=11))
    assert (summary.dead, settled) == (1, [(1, "dead", None)])


def test_critical_messages_go_first_and_equals_in_order():
    severities = ("info", "warning", "critical", "info", "critical")
    entries = [Pending(n, replace(MESSAGE, key=str(n), severity=s)) for n, s in enumerate(severities)]
    channel = Scripted()
    run(channel, *entries)
    assert channel.tried == ["2", "4", "1", "0", "3"]


def test_one_key_is_sent_once_in_a_pass():
    channel = Scripted()
    summary, settled, _ = run(channel, Pending(1, MESSAGE), Pending(2, replace(MESSAGE, text="other numbers")))
    assert (channel.tried, summary.delivered, len(settled)) == (["a"], 2, 2)


def test_pauses_between_passes_double_up_to_the_longest():
    policy = Policy()
    assert [policy.retry_in(n).total_seconds() for n in (0, 1, 6, 7, 1000)] == [30, 60, 1920, 3600, 3600]


def test_a_failing_record_sends_again_with_the_same_key():
    channel = Scripted()

    def settle(*_: object, **__: object) -> None:
        raise OSError("disk full")

    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            dispatch([Pending(1, MESSAGE)], channel, settle, FakeClock(AT))
    assert channel.tried == ["a", "a"]


def test_over_http_a_recovering_receiver_gets_the_message():
    with listening(Receiver([503, 429, 200])) as receiver:
        summary, settled, _ = run(WebhookChannel(receiver.url, "s", clock=FakeClock(AT)), Pending(7, MESSAGE))
    assert (summary.delivered, settled, len(receiver.requests)) == (1, [(7, "delivered", None)], 3)
