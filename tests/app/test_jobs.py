"""What runs by itself: ledger, rules, reports, mail and heartbeat, on a clock that moves when told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from alerts import signature
from gpuledger import registry
from gpuledger.app.encoding import to_arrow_stream
from gpuledger.app.jobs import BACKFILL_QUIET, Jobs
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult
from gpuledger.testing import FakeClock
from tests.alerts.receiver import Receiver, listening
from tests.app.conftest import NOW, Api, a_reading, a_table

MINUTE = timedelta(minutes=1)
PLANTED: list[Finding] = []


class Planted:
    """A rule that finds what the test says."""

    name = "planted"
    version = 1

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        return RuleResult(findings=tuple(PLANTED))


class Raising(Planted):
    name = "raising"

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        raise ZeroDivisionError("by the rule")


def _finding(subject: str, hours: float = 100.0) -> Finding:
    return Finding(
        analyzer="planted",
        rule_id="planted",
        rule_version=1,
        subject_kind="workload",
        subject_id=subject,
        window_start=NOW - timedelta(hours=5),
        window_end=NOW,
        gpu_hours_observed=hours,
        gpu_hours_wasted=hours,
        gpu_hours_recoverable=hours,
        confidence=0.9,
        basis="sm_active",
        cause_code="idle",
        action_code="notify",
        is_open=True,
    )


def _plant(monkeypatch: pytest.MonkeyPatch, **rules: str) -> None:
    table = cast("dict[str, str]", registry.RULES)
    for name in list(table):
        monkeypatch.delitem(table, name)
    for name, place in rules.items():
        monkeypatch.setitem(table, name, place)
    monkeypatch.setattr("tests.app.test_jobs.PLANTED", PLANTED, raising=False)
    PLANTED.clear()


def _fill(api: Api, at: datetime, batch_id: str, minutes: int = 60) -> None:
    rows = [a_reading(0, at=at + number * MINUTE, interval_seconds=60.0) for number in range(minutes)]
    assert api.put("reading", a_table("reading", *rows), batch_id).status_code == 200


def _extent(api: Api) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", api.service.query("ledger_extent").to_pylist()[0])


class Spy:
    """Which windows were built."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.windows: list[Window] = []
        self.error: Exception | None = None
        build = api.service.build_ledger

        def spied(window: Window, until_at: datetime | None = None) -> Any:
            self.windows.append(window)
            if self.error is not None:
                raise self.error
            return build(window, until_at)

        monkeypatch.setattr(api.service, "build_ledger", spied)


def test_live_readings_start_the_ledger_though_they_never_pause(
    api: Api, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, spy = Jobs(api.service), Spy(api, monkeypatch)
    for number in range(20):  # one batch each 15 s, for five minutes
        api.put("reading", a_table("reading", a_reading(at=clock.now())), f"b{number}")
        jobs.build_open_hours()
        clock.advance(15)
    assert spy.windows
    assert _extent(api)["from_at"] == NOW


def test_open_hours_are_rebuilt_up_to_the_horizon(api: Api, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(api.service)
    _fill(api, NOW - timedelta(hours=3), "old", 180)
    clock.advance(BACKFILL_QUIET.total_seconds())
    jobs.build_open_hours()
    horizon = clock.now() - timedelta(seconds=api.service.settings.settle_seconds)
    assert _extent(api)["to_at"] == horizon
    assert _extent(api)["final_until_at"] == NOW - timedelta(hours=1)
    spy = Spy(api, monkeypatch)
    clock.advance(60)
    jobs.build_open_hours()
    assert spy.windows == [Window(NOW - timedelta(hours=1), horizon + MINUTE)]


def test_late_readings_reopen_closed_hours_after_a_quiet_time(
    api: Api, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(api.service)
    _fill(api, NOW - timedelta(hours=5), "old", 300)
    clock.advance(BACKFILL_QUIET.total_seconds())
    jobs.build_open_hours()
    spy, late = Spy(api, monkeypatch), NOW - timedelta(hours=4)
    for number in range(5):  # a back-fill is coming in, and live readings with it
        api.put("reading", a_table("reading", a_reading(1, at=late + number * MINUTE)), f"late{number}")
        api.put("reading", a_table("reading", a_reading(0, at=clock.now())), f"live{number}")
        clock.advance(10)
        jobs.build_open_hours()
    assert [window.from_at for window in spy.windows] == [NOW - timedelta(hours=1)] * 5
    for number in range(5, 9):  # only live ones now
        api.put("reading", a_table("reading", a_reading(0, at=clock.now())), f"live{number}")
        clock.advance(10)
        jobs.build_open_hours()
    assert [window.from_at for window in spy.windows[5:]].count(late) == 1
    assert spy.windows[-1].from_at == NOW - timedelta(hours=1)


def test_a_build_that_fails_is_tried_again(api: Api, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, spy = Jobs(api.service), Spy(api, monkeypatch)
    _fill(api, NOW - timedelta(hours=3), "old")
    clock.advance(BACKFILL_QUIET.total_seconds())
    spy.error = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        jobs.build_open_hours()
    spy.error = None
    jobs.build_open_hours()
    assert [window.from_at for window in spy.windows] == [NOW - timedelta(hours=3)] * 2


@pytest.fixture
def built(make_api: Callable[..., Api]) -> Callable[..., Api]:
    def make(**settings: Any) -> Api:
        api = make_api(**settings)
        _fill(api, NOW - timedelta(hours=5), "old", 300)
        api.service.build_ledger(Window(NOW - timedelta(hours=5), NOW))
        return api

    return make


def test_only_new_findings_are_announced(built: Callable[..., Api], monkeypatch: pytest.MonkeyPatch) -> None:
    api = built(alert_webhook_url="http://127.0.0.1:1/x", alert_minimum_gpu_hours=8, notifications="all")
    _plant(monkeypatch, planted="tests.app.test_jobs:Planted")
    jobs = Jobs(api.service)
    PLANTED[:] = [_finding("a"), _finding("small", hours=7.9)]
    jobs.run_rules()
    assert api.service.state.outbox_counts()["pending"] == 1
    jobs.run_rules()
    assert api.service.state.outbox_counts()["pending"] == 1
    PLANTED.append(_finding("b"))
    jobs.run_rules()
    assert api.service.state.outbox_counts()["pending"] == 2
    statuses = {finding["subject_id"]: finding["status"] for finding in api.service.findings()}
    assert statuses == {"a": "ongoing", "small": "ongoing", "b": "new"}


@pytest.mark.parametrize("place", ["nowhere:Nothing", "tests.app.test_jobs:Nothing", "tests.app.test_jobs:Raising"])
def test_a_broken_rule_costs_only_itself(
    built: Callable[..., Api], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    api = built()
    _plant(monkeypatch, broken=place, planted="tests.app.test_jobs:Planted")
    PLANTED[:] = [_finding("a")]
    Jobs(api.service).run_rules()
    assert [finding["subject_id"] for finding in api.service.findings()] == ["a"]
    assert api.metric("gpuledger_job_failures_total", job="rule_broken") == 1
    assert api.metric("gpuledger_job_failures_total", job="rule_planted") == 0
    answer = api.http.post("/v1/analyze/broken")
    assert (answer.status_code, "broken" in answer.json()["reason"]) == (500, True)


def test_a_finding_that_cannot_be_stored_costs_its_rule_only(
    built: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = built()
    _plant(monkeypatch, first="tests.app.test_jobs:Planted", planted="tests.app.test_jobs:Planted")
    PLANTED[:] = [_finding("a", hours=cast("float", None))]
    Jobs(api.service).run_rules()
    assert api.metric("gpuledger_job_failures_total", job="rule_first") == 1
    assert api.metric("gpuledger_job_failures_total", job="rule_planted") == 1


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Shanghai"])
def test_one_report_for_each_local_week(
    make_api: Callable[..., Api], clock: FakeClock, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    clock.instant = datetime(2026, 2, 24, tzinfo=UTC)
    api = make_api(timezone=zone)
    _fill(api, clock.now() - timedelta(hours=5), "old", 300)
    api.service.build_ledger(Window(clock.now() - timedelta(hours=5), clock.now()))
    made: list[tuple[datetime, Window]] = []

    def report(name: str, window: Window, **_: Any) -> str:
        made.append((clock.now(), window))
        return "<html></html>"

    monkeypatch.setattr(api.service, "report", report)
    local, hours = ZoneInfo(zone), 0
    while clock.now() < datetime(2026, 4, 5, tzinfo=UTC):  # both changes to summer time lie within: 8 and 29 March
        if hours % 24 == 0:
            jobs = Jobs(api.service)  # a restart forgets nothing
        jobs.write_reports()
        hours += 1
        clock.advance(3600 if clock.now().astimezone(local).weekday() in {0, 6} else 6 * 3600)
    begins = [window.from_at.astimezone(local) for _, window in made]
    assert [f"{begin:%A %H:%M}" for begin in begins] == ["Monday 00:00"] * len(begins)
    assert [begin.date().isoformat() for begin in begins] == [
        *("2026-02-23", "2026-03-02", "2026-03-09", "2026-03-16", "2026-03-23"),
    ]
    assert [window.to_at for _, window in made[:-1]] == [window.from_at for _, window in made[1:]]
    assert all(timedelta(hours=1) <= at - window.to_at < timedelta(hours=2) for at, window in made)
    short = {"Europe/Berlin": "2026-03-23", "America/Los_Angeles": "2026-03-02"}.get(zone)
    assert [begin.date().isoformat() for begin, (_, week) in zip(begins, made, strict=True) if week.hours == 167] == (
        [short] if short else []
    )
    files = sorted(path.name for path in api.service.settings.report_directory.iterdir())
    assert files == [f"weekly-2026-W{week:02}.html" for week in range(9, 14)]


def test_a_webhook_that_comes_back_gets_every_message_once(
    built: Callable[..., Api], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(monkeypatch, planted="tests.app.test_jobs:Planted")
    with listening(Receiver(answers=[503] * 6 + [200])) as receiver:
        api = built(alert_webhook_url=receiver.url, alert_webhook_secret="s3cret", notifications="all")
        jobs = Jobs(api.service)
        PLANTED[:] = [_finding(f"w{number}") for number in range(5)]
        jobs.run_rules()
        for _ in range(20):
            jobs._mailer.deliver()
            clock.advance(60)
        jobs.run_rules()
        Jobs(api.service)._mailer.deliver()
        accepted = receiver.requests[6:]
    keys = [json.loads(content)["key"] for _, _, content in accepted]
    assert len(keys) == len(set(keys)) == 5
    assert api.service.state.outbox_counts() == {"pending": 0, "delivered": 5, "dead": 0}


def test_the_heartbeat_moves_and_arrives_signed(make_api: Callable[..., Api], clock: FakeClock) -> None:
    with listening(Receiver()) as receiver:
        api = make_api(heartbeat_url=receiver.url, alert_webhook_secret="s3cret")
        jobs = Jobs(api.service)
        seen = []
        for _ in range(2):
            jobs.beat()
            seen.append(api.metric("gpuledger_heartbeat_timestamp_seconds"))
            clock.advance(60)
        assert seen == [NOW.timestamp(), NOW.timestamp() + 60]
        assert len(receiver.requests) == 2
    _, headers, content = receiver.requests[1]
    assert json.loads(content)["kind"] == "heartbeat"
    assert headers[signature.HEADER.lower()] == signature.sign("s3cret", content, NOW + MINUTE)


def test_a_heartbeat_that_cannot_be_sent_is_counted_and_the_series_moves(make_api: Callable[..., Api]) -> None:
    api = make_api(heartbeat_url="http://127.0.0.1:1/gone")
    jobs = Jobs(api.service)
    jobs.start()
    jobs.stop()
    assert api.metric("gpuledger_job_failures_total", job="heartbeat") == 1
    assert api.metric("gpuledger_heartbeat_timestamp_seconds") == NOW.timestamp()


def test_a_token_is_asked_for_everywhere_but_on_health(make_api: Callable[..., Api]) -> None:
    api = make_api(token="s3cret-ü")
    content = to_arrow_stream(a_table("reading", a_reading()))
    for given in (None, "", "Bearer ", "Bearer wrong", "s3cret", "Bearer é", b"Bearer \xff"):
        headers: dict[str, Any] = {"x-batch-id": "b"} | ({} if given is None else {"authorization": _encoded(given)})
        answer = api.http.post("/v1/ingest/reading", content=content, headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (401, "Authorization")
        for path in ("/v1/ledger", "/v1/queries", "/openapi.json", "/docs", "/nowhere"):
            assert api.http.get(path, headers=headers).status_code == 401
    for path in ("/healthz", "/readyz", "/metrics"):
        assert api.http.get(path).status_code == 200
    right: dict[str, Any] = {"authorization": _encoded("Bearer s3cret-ü")}
    assert api.http.get("/v1/ledger", headers=right).status_code == 200
    assert api.count("reading") == 0
    assert "s3cret" not in api.http.get("/metrics").text


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
