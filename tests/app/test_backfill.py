"""`gpuledger import prometheus` against a stub: what reaches the ledger, what fails, and what a second run does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.prometheus.backfill import Backfill
from collector.prometheus.client import QueryClient
from collector.prometheus.plan import Survey
from collector.prometheus.survey import Span, survey
from gpuledger.app import backfill
from gpuledger.app.client import Client
from gpuledger.errors import BadInput, SourceError
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, Ran
from tests.collector.prometheus.stub import Store, Stored, Stub, error, serving

UTIL = "DCGM_FI_DEV_GPU_UTIL"
NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
WEEK = Span(datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 2, 27, tzinfo=UTC))
ONE_CARD = {UTIL: [{"UUID": "GPU-0", "Hostname": "n0"}]}


def run(api: Api, stub: Stub, span: Span, *, now: datetime = NOW, **options: Any) -> dict[str, Any]:
    """One run of the import, and what it answers."""
    asked = backfill.Wanted(span=span, **options)
    with QueryClient(stub.url, clock=FakeClock(now), attempts=1, params=asked.params) as server:
        found = survey(server, span, asked.matchers)
        what = backfill.plan(server.name, found, asked, now)
        return backfill.run(Client(api.http), server, what)


def rows(api: Api, text: str) -> list[Any]:
    with api.service.warehouse.writing() as cursor:
        return cursor.execute(text).fetchall()


def in_three_shifts(file: Path | None) -> list[Stored]:
    """One card at 40, 60 and 80 % under three pods, an hour each, a sample a minute; 10:00 is in two series."""
    if file is not None:
        result = json.loads(file.read_text())["data"]["result"]
        return [(item["metric"].pop("__name__"), item["metric"], item["values"]) for item in result]
    begin = int(NINE.timestamp())
    exporter = {"UUID": "GPU-churn-0", "Hostname": "n7", "pod": "dcgm-exporter-x", "namespace": "monitoring"}
    shifts = [("one", 0, 60, "40"), ("two", 60, 120, "60"), ("three", 121, 180, "80")]
    return [
        (
            UTIL,
            {**exporter, "exported_pod": pod, "exported_namespace": "default"},
            [(begin + 60 * minute, value) for minute in range(first, last + 1)],
        )
        for pod, first, last, value in shifts
    ]


def check_three_shifts(api: Api, stored: list[Stored]) -> None:
    with serving(Store(stored)) as stub:
        answer = run(api, stub, Span(NINE, NINE + timedelta(hours=3)), step="60s", now=NOW + timedelta(hours=1))
    assert answer["gaps"] == []
    assert answer["ledger"]["violations"] == 0
    assert rows(api, "select count(distinct gpu_uuid), count(distinct ts), count(*) from reading") == [(1, 181, 181)]
    (mean,) = rows(api, "select avg(gpu_util_ratio) from reading")[0]
    assert 0.599 <= mean <= 0.6003
    window = f"where hour_at < '{(NINE + timedelta(hours=3)).isoformat()}'"
    assert rows(api, f"select sum(gpu_hours) from ledger_hour {window}")[0][0] == pytest.approx(3.0, abs=0.02)
    held = dict(rows(api, f"select workload_id, sum(gpu_hours) from state_span {window} group by 1 order by 1"))
    assert len(held) == 3
    assert all(hours == pytest.approx(1.0, abs=1 / 60 + 1e-9) for hours in held.values())


def test_one_card_under_three_pods_is_one_card(api: Api) -> None:
    check_three_shifts(api, in_three_shifts(None))


def test_the_shared_card_under_three_pods(api: Api, shared: Path) -> None:
    """Problem 020."""
    check_three_shifts(api, in_three_shifts(shared / "problems" / "020-one-gpu-three-pods.json"))


def test_a_week_of_15_seconds_under_the_servers_limit(api: Api) -> None:
    """Problem 125: a stub that refuses (end - start) / step > 11,000."""
    with serving(Stub(ONE_CARD)) as stub:
        answer = run(api, stub, WEEK)
    assert len(stub.ranges()) == answer["chunks"] >= 4
    assert all((end - start) / step <= 11_000 for start, end, step in stub.ranges())
    assert answer["imported"]["reading"] == 40_321
    assert rows(api, "select count(*), count(distinct ts), min(ts), max(ts) from reading") == [
        (40_321, 40_321, WEEK.since, WEEK.until)
    ]


def test_the_shared_week(api: Api, clock: FakeClock, shared: Path) -> None:
    given = yaml.safe_load((shared / "problems" / "125-range-11000.yaml").read_text())
    span = Span(*(datetime.fromisoformat(given[name]) for name in ("start", "end")))
    clock.instant = span.until + timedelta(hours=1)
    with serving(Stub(ONE_CARD)) as stub:
        run(api, stub, span, step=f"{given['step_seconds']}s", now=clock.instant)
        assert all((end - start) / step <= given["server_max_points"] for start, end, step in stub.ranges())
    assert rows(api, "select count(distinct ts) from reading") == [(given["expect_points"],)]


@contextmanager
def failing_once(times: int, at: datetime) -> Iterator[Stub]:
    """A stub that refuses the chunk which holds `at`, `times` times."""
    left = [times]

    def refuse(window):
        start, end, _ = window
        if start <= at.timestamp() <= end and left[0] > 0:
            left[0] -= 1
            return 422, error("execution", "too many samples")
        return None

    with serving(Stub(ONE_CARD, refuse=refuse)) as stub:
        yield stub


MIDWEEK = datetime(2026, 2, 24, 12, tzinfo=UTC)


def test_a_chunk_that_failed_is_asked_for_once_more_alone(api: Api) -> None:
    with failing_once(1, MIDWEEK) as stub:
        answer = run(api, stub, WEEK)
    assert answer["gaps"] == []
    assert answer["imported"]["reading"] == 40_321
    windows = stub.ranges()
    assert len(windows) == answer["chunks"] + 1
    assert windows[-1] in windows[:-1]
    assert api.count("quality_event") == 0


def test_a_chunk_that_fails_for_good_is_a_gap_and_the_next_run_fills_it_alone(api: Api) -> None:
    with failing_once(2, MIDWEEK) as stub:
        first = run(api, stub, WEEK)
        asked = len(stub.ranges())
        second = run(api, stub, WEEK)
        third = run(api, stub, WEEK)
        windows = stub.ranges()[asked:]
    (gap,) = first["gaps"]
    assert "HTTP 422 execution: too many samples" in gap["reason"]
    assert gap["from"] <= MIDWEEK < gap["to"]
    lost = (gap["to"] - gap["from"]) // timedelta(seconds=15)
    assert first["imported"]["reading"] == 40_321 - lost
    kinds = rows(api, "select kind, count, subject, ts from quality_event")
    assert kinds == [("gap", lost, stub.url, gap["from"])]
    assert len(windows) == 1
    assert (second["imported"]["reading"], second["gaps"]) == (lost, [])
    assert second["chunks_had_before"] == second["chunks"] - 1
    assert (third["imported"], third["chunks_had_before"]) == ({}, third["chunks"])
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(40_321, 40_321)]


def test_a_server_that_went_away_is_not_asked_for_every_chunk(api: Api) -> None:
    with serving(Stub(ONE_CARD, refuse=lambda _: (422, error("execution", "away")))) as stub:
        away, stub.refuse = stub.refuse, lambda times: away(times) if len(stub.ranges()) > 1 else None
        answer = run(api, stub, WEEK)
        assert len(stub.ranges()) == 1 + backfill.HOPELESS_CHUNKS
        stub.refuse = lambda _: None
        second = run(api, stub, WEEK)
    assert (answer["chunks_not_tried"], len(answer["gaps"])) == (answer["chunks"] - 4, 3)
    assert (second["chunks_had_before"], second["gaps"], second["chunks_not_tried"]) == (1, [], 0)
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(40_321, 40_321)]


def test_a_run_that_was_killed_goes_on_where_it_stopped(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    read = Backfill.read

    def dies(self, chunk):
        reads.append(chunk)
        if len(reads) == 3:
            raise KeyboardInterrupt
        return read(self, chunk)

    with serving(Stub(ONE_CARD)) as stub:
        monkeypatch.setattr(Backfill, "read", dies)
        with pytest.raises(KeyboardInterrupt):
            run(api, stub, WEEK)
        monkeypatch.setattr(Backfill, "read", read)
        answer = run(api, stub, WEEK)
    assert answer["chunks_had_before"] == 2
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(40_321, 40_321)]
    assert answer["ledger"]["violations"] == 0


def test_a_later_run_fetches_only_what_is_new(api: Api) -> None:
    """`--since 7d` an hour later: the chunks in the middle are the same ones."""
    later = timedelta(hours=1)
    with serving(Stub(ONE_CARD)) as stub:
        run(api, stub, WEEK)
        answer = run(api, stub, Span(WEEK.since + later, WEEK.until + later))
    assert answer["chunks"] - answer["chunks_had_before"] <= 2
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(40_561, 40_561)]


def test_again_reads_what_is_known_and_the_later_reading_counts(api: Api) -> None:
    span = Span(WEEK.since, WEEK.since + timedelta(hours=1))
    with serving(Stub(ONE_CARD, value=lambda _: 10)) as stub:
        run(api, stub, span)
        stub.value = lambda _: 90
        assert run(api, stub, span)["imported"] == {}
        answer = run(api, stub, span, is_again=True, now=NOW + timedelta(minutes=1))
    assert answer["imported"]["reading"] == 241
    assert rows(api, "select distinct gpu_util_ratio from reading") == [(0.9,)]


def test_a_server_without_gpus_is_an_error_and_not_an_empty_fleet(api: Api) -> None:
    with (
        serving(Stub({"kube_pod_info": [{"pod": "a", "namespace": "b"}]})) as stub,
        pytest.raises(SourceError, match="no metrics of dcgm-exporter"),
    ):
        run(api, stub, WEEK)


@pytest.mark.parametrize(
    ("since", "until", "begin", "end"),
    [
        ("30d", None, NOW - timedelta(days=30), NOW - timedelta(minutes=1)),
        ("2026-03-01", "2026-03-02T00:00:00Z", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)),
        ("1d", "12h", NOW - timedelta(days=1), NOW - timedelta(hours=12)),
        ("1d", "2027-01-01", NOW - timedelta(days=1), NOW - timedelta(minutes=1)),
    ],
)
def test_spans(since: str, until: str | None, begin: datetime, end: datetime) -> None:
    assert backfill.span_of(since, until, NOW) == Span(begin, end)


@pytest.mark.parametrize(
    ("since", "until", "field"),
    [
        ("soon", None, "since"),
        ("1h", "2h", "until"),
        ("0d", None, "since"),
        ("9999d", None, "since"),
        ("99999999d", None, "since"),
        ("1000000000d", None, "since"),
        ("1000000000w", None, "since"),
        ("1d", "9999999999w", "until"),
        ("9" * 5000 + "s", None, "since"),
        ("1d", "x", "until"),
    ],
)
def test_spans_that_are_none(since: str, until: str | None, field: str) -> None:
    with pytest.raises(BadInput) as raised:
        backfill.span_of(since, until, NOW)
    assert raised.value.field == field


def test_a_large_import_wants_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Survey({UTIL: 10_000.0}, 10_000, 15_000, is_closed=True)
    what = backfill.plan("http://m", found, backfill.Wanted(span=WEEK, step="15s"), NOW)
    assert what.cost.samples == 403_210_000
    assert backfill.agreed(what.cost, is_yes=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(BadInput, match="403,210,000 samples"):
        backfill.agreed(what.cost, is_yes=False)
    small = backfill.plan("http://m", found, backfill.Wanted(span=WEEK, step="1h"), NOW)
    assert backfill.agreed(small.cost, is_yes=False)


def test_the_command_line(cli: Callable[..., Ran], tmp_path: Path) -> None:
    """The command, its estimate, its token from the environment, and a matcher that tries to break out."""
    file, secret = tmp_path / "w.duckdb", "s3cr3t-t0ken"
    hostile = 'x"} or up{job="'
    options = ("--since", WEEK.since.isoformat(), "--until", (WEEK.since + timedelta(hours=2)).isoformat())
    more = ("--match", f"namespace={hostile}", "--param", "dedup=true", "--header", "X-Scope-OrgID: a", "--step", "60s")
    with serving(Stub(ONE_CARD)) as stub:
        command = ("import", "prometheus", "--url", stub.url, *options, *more, "--format", "json")
        estimated = cli(*command, "--estimate-only", GPULEDGER_PROMETHEUS_TOKEN=secret)
        assert (estimated.code, estimated.json["samples"], estimated.json["chunks"]) == (0, 121, 1)
        assert estimated.json["source_interval_seconds"] == 15.0
        assert not file.exists()
        ran = cli(*command, "--warehouse", file, GPULEDGER_PROMETHEUS_TOKEN=secret)
    assert ran.code == 0, ran.err
    assert ran.json["imported"] == {"reading": 121, "source_read": 121}
    assert secret not in ran.out + ran.err + estimated.out + estimated.err
    queries = [given["query"] for _, given, _ in stub.asked if "over_time(DCGM" in given.get("query", "")]
    assert queries
    assert all(r'{namespace="x\"} or up{job=\""}' in query for query in queries)
    assert all(headers["authorization"] == f"Bearer {secret}" for _, _, headers in stub.asked)
    assert all((given["dedup"], headers["x-scope-orgid"]) == ("true", "a") for _, given, headers in stub.asked)
    with serving(Stub({})) as stub:
        refused = cli("import", "prometheus", "--url", stub.url, *options, "--warehouse", file)
    assert refused.code == 1
    assert "no metrics of dcgm-exporter" in refused.err
