"""The doctor's advice and `GET /v1/quality`: what is wrong, where, and what an operator can do about it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.app import doctor
from gpuledger.app.problem_rows import merged
from gpuledger.model import Window
from gpuledger.model.vocabulary import QUALITY_KINDS
from gpuledger.presentation import texts
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, Ran, a_reading, a_table, opened_api

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = NOW - 2 * HOUR
DOCS = Path(__file__).resolve().parents[2] / "docs" / "data-quality.md"


def minutes(count: int, number: int = 0, *, start: Any = START, **values: Any) -> list[dict[str, Any]]:
    said = {"interval_seconds": 60.0, "gpu_util_ratio": 0.0} | values
    return [a_reading(number, at=start + i * MINUTE, **said) for i in range(count)]


WHOLE: dict[str, Any] = {"gpu_util_ratio": 0.0, "sm_active_ratio": 0.0, "power_watts": 300.0, "fb_used_bytes": 2**30}


def built(api: Api, *rows: dict[str, Any]) -> dict[str, Any]:
    assert api.put("reading", a_table("reading", *rows), "readings").status_code == 200
    api.service.build_ledger(Window(START, NOW))
    answer = api.http.get("/v1/quality")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def advice(body: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(problem["kind"], problem["detail"]): problem["advice"] for problem in body["problems"]}


def test_an_empty_warehouse_has_no_problems(api: Api) -> None:
    assert api.http.get("/v1/quality").json() == {"from": None, "to": None, "summary": [], "problems": []}


def test_a_fleet_that_is_read_whole_has_no_problems(api: Api) -> None:
    body = built(api, *minutes(120, **WHOLE))
    assert (body["problems"], body["summary"]) == ([], [])
    assert body["from"].startswith(START.isoformat()[:16])


def test_sm_active_that_is_missing_is_told_with_what_to_add_where(api: Api) -> None:
    rows = [
        row
        for number in range(5)
        for row in minutes(120, number, node=f"n{number}", power_watts=300.0, fb_used_bytes=2**30)
    ]
    body = built(api, *rows)
    assert advice(body) == {
        ("missing_metric", "sm_active_ratio"): (
            "SM_ACTIVE is missing from dcgm on n0, n1, n2 and 2 more: add DCGM_FI_PROF_SM_ACTIVE to the exporter's "
            "counter file (csv) and restart it. Without it work is ungraded: active, but nothing says how well."
        )
    }
    (problem,) = body["problems"]
    assert (problem["subject_count"], problem["event_count"], problem["problem"]) == (5, 10, "metric missing")
    assert problem["subjects"] == ["n0", "n1", "n2", "n3", "n4"]
    (row,) = body["summary"]
    assert (row["source"], row["kind"], row["subject_count"], row["event_count"]) == ("dcgm", "missing_metric", 5, 10)


def test_a_source_that_cannot_measure_it_gets_its_own_advice(api: Api) -> None:
    values: dict[str, Any] = {"power_watts": 300.0, "fb_used_bytes": 2**30, "source": "nvidia_smi"}
    (text,) = advice(built(api, *minutes(120, **values))).values()
    assert text.startswith("SM_ACTIVE is missing on n0: nvidia-smi does not tell it there. Run dcgm-exporter")


def test_advice_in_chinese(api: Api) -> None:
    built(api, *minutes(120, power_watts=300.0, fb_used_bytes=2**30))
    (problem,) = api.http.get("/v1/quality", params={"language": "zh"}).json()["problems"]
    assert problem["problem"] == "缺少指标"
    assert problem["advice"].startswith("n0 的 dcgm 缺少 SM_ACTIVE")
    assert "请把 DCGM_FI_PROF_SM_ACTIVE 加入导出器的计数器文件" in problem["advice"]


def test_remote_write_that_has_stopped_is_silent(api: Api, clock: FakeClock) -> None:
    body = built(api, *minutes(119, **WHOLE, source="remote_write/a"))
    assert body["problems"] == []
    clock.advance(2 * 3600)
    problems = api.http.get("/v1/quality").json()["problems"]
    assert [(problem["kind"], problem["source"]) for problem in problems] == [("silent", "remote_write/a")]
    assert problems[0]["advice"].startswith("Remote write has not sent for 2 h 2 min (1 cards). Look at prometheus_")
    asked = {"from": START.isoformat(), "to": NOW.isoformat()}
    assert api.http.get("/v1/quality", params=asked).json()["problems"] == []


def test_back_fill_is_not_expected_to_go_on(api: Api, clock: FakeClock) -> None:
    built(api, *minutes(119, **WHOLE, source="prometheus"))
    clock.advance(2 * 3600)
    assert api.http.get("/v1/quality").json()["problems"] == []


def test_a_span_that_an_import_could_not_read_is_to_be_asked_for_again(api: Api) -> None:
    gap = {
        "ts": START, "source": "prometheus", "subject_kind": "target", "subject": "prom:9090", "kind": "gap",
        "detail": "10:00 to 11:00: HTTP 503", "count": 60,
    }  # fmt: skip
    assert api.put("quality_event", a_table("quality_event", gap), "gap").status_code == 200
    assert advice(built(api, *minutes(120, **WHOLE)))["gap", "10:00 to 11:00: HTTP 503"] == (
        "60 steps of prom:9090 could not be read when the import ran (10:00 to 11:00: HTTP 503). "
        "Run the import again: it asks only for what is missing, and names the gaps that are left."
    )


def test_numbers_in_advice_have_their_units(api: Api) -> None:
    skew = {
        "ts": START, "source": "collector", "subject_kind": "target", "subject": "gpu-7:9400", "kind": "clock_skew",
        "detail": "behind the agent", "count": 540,
    }  # fmt: skip
    assert api.put("quality_event", a_table("quality_event", skew), "e").status_code == 200
    slow = [a_reading(0, at=START + 5 * i * MINUTE, interval_seconds=300.0, **WHOLE) for i in range(24)]
    told = advice(built(api, *slow, *minutes(45, 1, **WHOLE), *minutes(60, 1, start=START + HOUR, **WHOLE)))
    assert told["clock_skew", "behind the agent"] == (
        "The clock of gpu-7:9400 is up to 540 s off (behind the agent). "
        "Let NTP or chrony set it; samples too far off are refused."
    )
    assert told["slow_interval", ""].startswith("n0 is read every 5 min only")
    assert told["low_coverage", ""].startswith("15 readings of GPU-1 are missing; in the worst hour 75.0 % came.")


@pytest.mark.parametrize("language", texts.LANGUAGES)
@pytest.mark.parametrize("kind", [*QUALITY_KINDS, "silent"])
def test_every_kind_has_its_name_and_advice_in_every_language(kind: str, language: str) -> None:
    words = texts.Texts(language)
    row = {
        "source": "dcgm", "kind": kind, "detail": "DETAIL", "subject_kind": "node", "subject_count": 1,
        "subjects": ["NODE"], "event_count": 7, "worst_value": 0.5, "vendor": "",
    }  # fmt: skip
    made = doctor._problem(row, words)
    assert made["problem"] == words(f"quality_kind.{kind}")
    assert len(made["advice"]) > 10
    assert "{" not in made["advice"]


def a_row(kind: str, source: str = "dcgm", detail: str = "", **more: Any) -> dict[str, Any]:
    row = {
        "source": source, "kind": kind, "detail": detail, "subject_kind": "node", "subject_count": 1,
        "subjects": ["n1"], "event_count": 3, "worst_value": None, "vendor": "",
    }  # fmt: skip
    return row | more


REFUSED = (
    ("remote_write", "too old", "Correct the clock of the sender"),
    ("ingest", "ts lies in the future", "Correct the clock of the sender"),
    ("ingest", "power_watts is above 5000 W", "Correct the sender; docs/contracts.md"),
    ("npu_exporter", "measured too long before it was read", "a collector of that exporter stands still"),
    ("remote_write", "label not UTF-8", "The protocol forbids it"),
    ("remote_write", "labels not sorted", "The protocol forbids it"),
    ("remote_write", "no metric name", "The protocol forbids it"),
    ("remote_write", "label too long", "Drop the labels"),
    ("remote_write", "native histogram", "Native histograms are not read"),
)


@pytest.mark.parametrize(("source", "reason", "expected"), REFUSED)
def test_refused_samples_get_the_advice_of_their_reason(source: str, reason: str, expected: str) -> None:
    for language in texts.LANGUAGES:
        made = doctor._problem(a_row("refused_sample", source, reason), texts.Texts(language))["advice"]
        assert reason in made
        assert "{" not in made
        assert language != "en" or expected in made


def test_a_pair_of_servers_has_its_problems_once() -> None:
    rows = [
        a_row("low_coverage", f"remote_write/{name}", subjects=subjects, subject_count=len(subjects), worst_value=worst)
        for name, subjects, worst in (("a", ["n1", "n2"], 0.5), ("b", ["n2", "n3"], 0.25))
    ]
    (row,) = merged([*rows])
    assert (row["source"], row["subjects"], row["subject_count"]) == (
        "remote_write/a, remote_write/b",
        ["n1", "n2", "n3"],
        3,
    )
    assert (row["event_count"], row["worst_value"]) == (6, 0.25)
    assert len(merged([*rows, a_row("low_coverage")])) == 2


def test_deprecated_names_are_one_note_of_their_source_and_stand_last() -> None:
    names = [a_row("renamed_metric", detail=f"old_{number} -> new_{number}") for number in range(8)]
    first, last = merged([*names, a_row("gap")])
    assert (first["kind"], last["kind"]) == ("gap", "renamed_metric")
    assert last["detail"] == "old_0 -> new_0, old_1 -> new_1, +6"
    assert doctor._problem(last, texts.Texts("en"))["advice"] == (
        "n1 uses deprecated metric names (old_0 -> new_0, old_1 -> new_1, +6). "
        "They are understood: nothing to do until the exporter drops them."
    )


@pytest.mark.parametrize(("kind", "value"), [("low_coverage", 0.25), ("stale", 5400.0)])
def test_what_one_of_a_pair_lacks_is_told_of_it(kind: str, value: float) -> None:
    row = a_row(kind, "remote_write/b", subject_kind="target", subjects=["remote_write/b"], worst_value=value)
    made = doctor._problem(row, texts.Texts("en"))["advice"]
    assert made.startswith("remote_write/b ")
    assert "look at this source" in made


def test_a_busy_fleet_that_nobody_holds_is_told(api: Api) -> None:
    values = {"gpu_util_ratio": 0.9, "sm_active_ratio": 0.9}
    body = built(api, *[row for number in range(2) for row in minutes(120, number, **WHOLE | values)])
    assert advice(body)["active_unheld", ""].startswith(
        "Cards on n0 worked for 4.0 GPU-h while nobody was known to hold them, so that these hours count as free."
    )


def test_a_warehouse_that_is_only_back_filled_is_fresh_enough(api: Api) -> None:
    built(api, *minutes(60, **WHOLE, source="prometheus"))
    fresh = next(check for check in doctor.checks(api.service) if check["name"] == "readings_are_fresh")
    assert (fresh["ok"], fresh["detail"]) == (
        True,
        "the newest reading is 1 h 1 min old; it was back-filled, and nothing is sent live",
    )
    assert api.put("reading", a_table("reading", *minutes(60, **WHOLE)), "live").status_code == 200
    api.service.build_ledger(Window(START, NOW))
    fresh = next(check for check in doctor.checks(api.service) if check["name"] == "readings_are_fresh")
    assert (fresh["ok"], fresh["detail"]) == (False, "nothing was read for 61 min")


@pytest.mark.parametrize("kind", QUALITY_KINDS)
def test_every_kind_is_documented(kind: str) -> None:
    assert f"\n### `{kind}`\n" in DOCS.read_text(encoding="utf-8")


@pytest.fixture
def ungraded(tmp_path: Path) -> Path:
    with opened_api(tmp_path, FakeClock(NOW)) as api:
        built(api, *minutes(120, node="[n0]", power_watts=300.0, fb_used_bytes=2**30))
    return tmp_path / "app.duckdb"


def test_the_doctor_says_it_on_the_command_line(ungraded: Path, cli: Callable[..., Ran]) -> None:
    ran = cli("doctor", "--warehouse", ungraded, "--format", "json")
    kinds = [problem["kind"] for problem in ran.json["problems"]]
    assert "missing_metric" in kinds
    assert {check["name"] for check in ran.json["checks"]} >= {"ledger_closes", "readings_are_fresh"}
    people = cli("doctor", "--warehouse", ungraded, "--language", "zh")
    assert "DCGM_FI_PROF_SM_ACTIVE" in people.out.replace("\n", "")
    assert "[n0]" in people.out
    assert cli("doctor", "--warehouse", ungraded, "--language", "fr").code == 2
