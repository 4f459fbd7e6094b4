"""Clocks that are apart are told once, with how far and in which direction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler

import httpx
import pytest

from collector.clocks import ClockWatch
from gpuledger.model import QualityEvent, to_table
from gpuledger.testing import FakeClock

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def told() -> list[QualityEvent]:
    return []


@pytest.fixture
def watch(clock, told) -> ClockWatch:
    return ClockWatch(clock, told.append, "n1")


def answer(at: datetime | None) -> httpx.Response:
    headers = {} if at is None else {"date": format_datetime(at, usegmt=True)}
    return httpx.Response(200, headers=headers, request=httpx.Request("GET", "http://gpu-7:9400/metrics"))


@pytest.mark.parametrize("seconds", [0, 5, -5])
def test_a_few_seconds_are_no_skew(watch, told, seconds):
    watch.look_at_target(answer(NOW + timedelta(seconds=seconds)))
    assert told == []


@pytest.mark.parametrize(
    ("seconds", "target", "service"),
    [(6, "ahead of the agent", "behind the service"), (-540, "behind the agent", "ahead of the service")],
)
def test_skew_is_told_in_seconds_and_with_its_direction(watch, told, seconds, target, service):
    watch.look_at_target(answer(NOW + timedelta(seconds=seconds)))
    watch.look_at_service(answer(NOW + timedelta(seconds=seconds)))
    assert [(e.subject_kind, e.subject, e.detail) for e in told] == [
        ("target", "gpu-7:9400", target),
        ("node", "n1", service),
    ]
    assert {(e.source, e.kind, e.count, e.ts) for e in told} == {("collector", "clock_skew", abs(seconds), NOW)}
    assert to_table("quality_event", told).num_rows == 2


def test_it_is_told_again_after_ten_minutes(watch, told, clock):
    for _ in range(21):
        watch.look_at_target(answer(clock.now() + timedelta(seconds=60)))
        clock.advance(60)
    assert len(told) == 3


@pytest.mark.parametrize("date", [None, "yesterday", "", "Mon, 02 Mar 2026 10:00:00"])
def test_an_answer_without_a_readable_date_says_nothing(watch, told, date):
    response = answer(None)
    if date is not None:
        response.headers["date"] = date
    watch.look_at_target(response)
    assert told == []


def test_a_real_server_whose_clock_is_wrong(serve, watch, told):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(NOW - timedelta(days=7), usegmt=True)

        def log_message(self, *arguments: object) -> None: ...

    url = serve(Handler)
    with httpx.Client(trust_env=False, event_hooks={"response": [watch.look_at_target]}) as client:
        client.get(url)
    (event,) = told
    assert (event.count, event.detail) == (7 * 86_400, "behind the agent")
    assert url.endswith(event.subject)
