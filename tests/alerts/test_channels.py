"""What every channel must do; a new one adds a line to CHANNELS_UNDER_TEST."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from alerts import signature
from alerts.channels.webhook import SCHEMA, WebhookChannel
from gpuledger import registry
from gpuledger.errors import ConfigError, DeliveryError
from gpuledger.ports import Channel, Message
from gpuledger.testing import FakeClock
from tests.alerts.receiver import CANARY, Receiver, listening

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
SECRET = "SECRET-CANARY-3"
MESSAGE = Message(
    key="finding:1:new", kind="finding", title="空闲占卡", text="x", severity="info", created_at=AT, fields={"n": 1.5}
)  # fmt: skip


def webhook(url: str) -> Channel:
    return WebhookChannel(url, SECRET, timeout_seconds=0.3, clock=FakeClock(AT))


CHANNELS_UNDER_TEST: dict[str, Callable[[str], Channel]] = {"webhook": webhook}

each_channel = pytest.mark.parametrize("make", CHANNELS_UNDER_TEST.values(), ids=CHANNELS_UNDER_TEST.keys())


def test_every_registered_channel_is_tested():
    assert set(CHANNELS_UNDER_TEST) == set(registry.CHANNELS)
    assert registry.resolve("channels", "webhook") is WebhookChannel


@each_channel
@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_2xx_is_accepted(make, status):
    with listening(Receiver([status])) as receiver:
        delivery = make(receiver.url).send(MESSAGE)
    assert (delivery.status, len(receiver.requests)) == ("delivered", 1)


@each_channel
@pytest.mark.parametrize(
    ("status", "is_retryable"),
    [
        *((status, True) for status in (408, 429, 500, 502, 503, 504)),
        *((status, False) for status in (400, 401, 403, 404, 410, 422)),
    ],
)
def test_other_answers_say_whether_trying_again_helps(make, status, is_retryable):
    with listening(Receiver([status])) as receiver, pytest.raises(DeliveryError) as caught:
        make(receiver.url).send(MESSAGE)
    assert caught.value.retryable is is_retryable
    assert len(receiver.requests) == 1


@each_channel
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_not_followed(make, status):
    with listening(Receiver([status])) as receiver, pytest.raises(DeliveryError) as caught:
        make(receiver.url).send(MESSAGE)
    assert not caught.value.retryable
    assert [path for path, _, _ in receiver.requests if "elsewhere" in path] == []


@each_channel
def test_a_timeout_may_be_tried_again(make):
    with listening(Receiver([-1])) as receiver, pytest.raises(DeliveryError) as caught:
        make(receiver.url).send(MESSAGE)
    assert caught.value.retryable


@each_channel
def test_nothing_listening_and_no_such_name_may_be_tried_again(make):
    for url in (f"http://127.0.0.1:1/{CANARY}", f"http://hooks.invalid/{CANARY}"):
        with pytest.raises(DeliveryError) as caught:
            make(url).send(MESSAGE)
        assert caught.value.retryable


@each_channel
@pytest.mark.parametrize("status", [200, 302, 404, 429, 500, -1, None])
def test_address_and_secret_stay_out_of_logs_errors_and_repr(make, status, caplog):
    caplog.set_level(logging.DEBUG)
    with listening(Receiver([status or 200])) as receiver:
        channel = make(receiver.url if status else f"http://hooks.invalid/{CANARY}")
        shown = repr(channel) + str(channel)
        outcome = pytest.raises(DeliveryError) if status != 200 else nullcontext()
        with outcome as caught:
            channel.send(MESSAGE)
    if caught is not None:
        error = caught.value
        assert (error.__cause__, error.__context__) == (None, None)
        assert channel.host in str(error)
        frames = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [frame for frame in frames.stack if "webhook" in frame.filename]
        assert ours
        shown += str(error) + "".join(str(frame.locals) for frame in ours)
    shown += caplog.text
    assert "CANARY" not in shown


@each_channel
def test_body_is_versioned_and_the_signature_verifies_at_the_receiver(make):
    with listening(Receiver()) as receiver:
        make(receiver.url).send(MESSAGE)
    _, headers, content = receiver.requests[0]
    received = json.loads(content)
    assert received["schema"] == SCHEMA == "gpuledger.alert/1"
    assert (received["key"], received["title"], received["fields"]) == (MESSAGE.key, MESSAGE.title, {"n": 1.5})
    header = headers[signature.HEADER.lower()]
    assert signature.verify(header, SECRET, content, AT + timedelta(minutes=4))
    assert not signature.verify(header, SECRET, content, AT + timedelta(minutes=6))
    assert not signature.verify(header, SECRET, content + b" ", AT)
    assert not signature.verify(header, "other", content, AT)


@each_channel
def test_the_same_key_reaches_the_receiver_each_time(make):
    with listening(Receiver([500, 200])) as receiver:
        channel = make(receiver.url)
        with pytest.raises(DeliveryError):
            channel.send(MESSAGE)
        channel.send(MESSAGE)
    assert [json.loads(content)["key"] for _, _, content in receiver.requests] == [MESSAGE.key] * 2
    assert {headers["idempotency-key"] for _, headers, _ in receiver.requests} == {MESSAGE.key}


def test_without_a_secret_nothing_is_signed():
    with listening(Receiver()) as receiver:
        WebhookChannel(receiver.url).send(MESSAGE)
    assert signature.HEADER.lower() not in receiver.requests[0][1]


def test_the_environment_cannot_send_messages_through_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with listening(Receiver()) as receiver:
        assert WebhookChannel(receiver.url).send(MESSAGE).status == "delivered"


@pytest.mark.parametrize("url", ["", "ftp://h/x", "file:///etc/passwd", "https://", "http://[::1", f"//{CANARY}"])
def test_an_address_that_cannot_work_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigError) as caught:
        WebhookChannel(url)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("header", ["", "t=,v1=", "t=x,v1=y", "v1=00", "t=1", "t=\uff11,v1=\xe9", "garbage"])
def test_an_unreadable_signature_is_not_one(header):
    assert not signature.verify(header, SECRET, b"{}", AT)
