"""Findings by their API and command line: narrowed, decided, owned; a policy's exemptions and thresholds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.app import doctor
from gpuledger.app.jobs import Jobs
from gpuledger.app.policies import load_checked
from gpuledger.errors import ConfigError
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, Ran
from tests.app.finding_fleet import a_finding, idle_cards, plant, save

DAY = timedelta(days=1)
FINDINGS = (
    a_finding("a", gpu_hours_wasted=30.0),
    a_finding("b", tenant="vision", user="", vendor="ascend", gpu_hours_wasted=20.0),
    a_finding("c", kind="notebook", category="advice", gpu_hours_wasted=0.0, gpu_hours_recoverable=0.0),
)


@pytest.fixture
def found(make_api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    def make(**settings: Any) -> Api:
        api = make_api(**settings)
        plant(monkeypatch, *FINDINGS)
        save(api)
        return api

    return make


def _subjects(api: Api, **filters: str) -> list[str]:
    answer = api.http.get("/v1/findings", params=filters)
    assert answer.status_code == 200, answer.text
    return [row["subject_id"] for row in answer.json()["findings"]]


def test_findings_are_narrowed_by_every_filter(found: Callable[..., Api]) -> None:
    api = found()
    assert _subjects(api) == ["a", "b", "c"]
    for filters, subjects in (
        ({"rule": "planted"}, ["a", "b", "c"]),
        ({"rule": "other"}, []),
        ({"tenant": "vision"}, ["b"]),
        ({"owner": "li"}, ["a", "c"]),
        ({"owner": "vision"}, ["b"]),
        ({"category": "advice"}, ["c"]),
        ({"vendor": "ascend"}, ["b"]),
        ({"kind": "notebook"}, ["c"]),
        ({"status": "new"}, ["a", "b", "c"]),
        ({"status": "new", "kind": "training", "vendor": "nvidia"}, ["a"]),
    ):
        assert _subjects(api, **filters) == subjects, filters
    answer = api.http.get("/v1/findings", params={"status": "open"})
    assert (answer.status_code, answer.json()["field"]) == (400, "status")


def _decide(api: Api, finding_id: str, **said: Any) -> Any:
    return api.http.post(f"/v1/findings/{finding_id}/status", json={"by": "ann", **said})


def test_a_decision_is_shown_kept_over_runs_and_written_down(found: Callable[..., Api], clock: FakeClock) -> None:
    api, finding_id = found(), FINDINGS[0].finding_id
    answer = _decide(api, finding_id, status="disputed", reason="planned", note="festival", owner="bo")
    assert answer.json() == {"finding_id": finding_id, "status": "disputed"}
    clock.advance(3600)
    save(api)
    shown = api.http.get(f"/v1/findings/{finding_id}").json()
    assert (shown["status"], shown["reason"], shown["note"], shown["owner"]) == (
        "disputed",
        "planned",
        "festival",
        "bo",
    )
    assert shown["silent_because"] == "disputed"
    changes = api.http.get(f"/v1/findings/{finding_id}/history").json()["changes"]
    assert [(change["actor"], change["before"], change["after"]) for change in changes] == [
        ("gpuledger", "", "new"),
        ("ann", "new", "disputed"),
    ]
    assert changes[1]["at"] == "2026-03-02T12:00:00Z"
    assert _subjects(api, owner="bo") == ["a"]
    assert _subjects(api, status="ongoing") == ["b", "c"]


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"status": "disputed"}, "reason"),
        ({"status": "disputed", "reason": "never"}, "reason"),
        ({"status": "exempted"}, "expires_at"),
        ({"status": "exempted", "expires_at": "2026-03-02T12:00:00Z"}, "expires_at"),
        ({"status": "exempted", "expires_at": "2026-04-01T00:00:00"}, "expires_at"),
        ({"status": "exempted", "expires_at": "9999-12-31T23:59:59-12:00"}, "expires_at"),
        ({"status": "acknowledged", "by": ""}, "by"),
        ({"status": "acknowledged", "by": "  "}, "by"),
        ({}, "status"),
    ],
)
def test_what_is_wrong_in_a_decision_is_named(found: Callable[..., Api], said: dict[str, Any], field: str) -> None:
    answer = _decide(found(), FINDINGS[0].finding_id, **said)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_an_exemption_ends_by_itself_when_findings_are_listed(found: Callable[..., Api], clock: FakeClock) -> None:
    api, until = found(), NOW + DAY
    assert _decide(api, FINDINGS[0].finding_id, status="exempted", expires_at=until.isoformat()).status_code == 200
    clock.instant = until - timedelta(seconds=1)
    assert _subjects(api, status="exempted") == ["a"]
    clock.instant = until
    assert _subjects(api, status="exempted") == []
    assert _subjects(api, status="ongoing") == ["a"]


def _policy(folder: Path, text: str) -> Path:
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    return file


EXEMPTION = """
[[exemption]]
rule = "planted"
tenant = "vis*"
owner = "li.wei"
reason = "warm spares"
expires_at = 2026-03-03T12:00:00Z
"""


def test_a_policy_exempts_counts_and_ends(found: Callable[..., Api], tmp_path: Path, clock: FakeClock) -> None:
    api = found(policy_file=_policy(tmp_path, EXEMPTION.replace("planted", "*")))
    shown = api.http.get(f"/v1/findings/{FINDINGS[1].finding_id}").json()
    assert (shown["status"], shown["changed_by"], shown["note"]) == ("exempted", "li.wei", "warm spares")
    assert shown["silent_because"] == "exempted"
    Jobs(api.service)
    assert api.metric("gpuledger_findings_exempted_by_policy") == 1
    told = api.http.get(f"/v1/findings/{FINDINGS[1].finding_id}/explanation").json()
    assert (told["exemption"]["where"], told["exemption"]["by"]) == ("policy line 2", "li.wei")
    checks = {check["name"]: check for check in doctor.checks(api.service)}
    assert checks["policy_is_current"]["detail"] == "0 thresholds, 1 exemptions in force"
    clock.instant = NOW + DAY
    assert _subjects(api, status="exempted") == []
    check = {check["name"]: check for check in doctor.checks(api.service)}["policy_is_current"]
    assert (check["ok"], check["detail"]) == (
        True,
        "0 thresholds, 0 exemptions in force; 1 ended: policy line 2 of li.wei, on 2026-03-03",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[threshold]]\nrule = 'speed'\nlimit = 3", "threshold 1 (line 1).rule: no rule called 'speed'"),
        ("\n[[threshold]]\nrule = 'idle_allocation'", "threshold 1 (line 2): sets no option"),
        ("[[threshold]]\nrule = 'idle_allocation'\nspeed = 3", "threshold 1 (line 1).speed: no such option"),
        ("[[threshold]]\nrule = 'idle_allocation'\nmin_idle_minutes = 29", "min_idle_minutes: 29 is below 30 minutes"),
        ("[[threshold]]\nrule = 'idle_allocation'\nmin_idle_minutes = 'x'", "min_idle_minutes: 'x' is not a number"),
        (EXEMPTION.replace("planted", "idel*"), "exemption 1 (line 2).rule: 'idel*' matches no rule"),
        (EXEMPTION.replace("owner = ", "ownr = "), "exemption 1 (line 2).owner: Field required"),
        (EXEMPTION.replace('"li.wei"', '""'), "exemption 1 (line 2).owner"),
        (EXEMPTION.replace('"li.wei"', '" "'), "exemption 1 (line 2).owner: Value error, must name somebody"),
        (EXEMPTION.replace('"li.wei"', r'"li\u202ewei"'), "holds the invisible character U+202E"),
        (EXEMPTION.replace("2026-03-03T12:00:00Z", "2026-03-03T12:00:00"), "exemption 1 (line 2).expires_at"),
        ("[[exemptions]]", "exemptions"),
        pytest.param("a = " + "[" * 3000, "recursion", id="nested too deep"),
        ("[[threshold", "Expected ']]' at the end of an array declaration"),
    ],
)
def test_a_broken_policy_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = _policy(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_checked(file)
    assert str(caught.value).startswith(f"policy {file}: ")
    assert message in str(caught.value)


def test_a_policy_may_begin_with_an_editors_mark(tmp_path: Path) -> None:
    assert not load_checked(
        _policy(tmp_path, "\ufeff[[threshold]]\nrule = 'idle_allocation'\nmin_idle_minutes = 60")
    ).exemption


def test_a_policy_that_is_sent_may_begin_so_too(api: Api) -> None:
    text = "\ufeff[[threshold]]\nrule = 'idle_allocation'\nmin_idle_minutes = 60"
    answer = api.http.post("/v1/policy/check", content=text.encode())
    assert answer.status_code == 200, answer.text


def test_findings_and_policy_on_the_command_line(api: Api, cli: Callable[..., Ran], tmp_path: Path) -> None:
    idle_cards(api)
    span = {"from": "2026-03-02T08:00:00Z", "to": "2026-03-02T10:00:00Z", "save": "true"}
    (found,) = api.http.post("/v1/analyze/idle_allocation", params=span).json()["findings"]
    api.service.close()
    file, finding_id = ("--warehouse", tmp_path / "app.duckdb"), found["finding_id"]
    json_ = ("--format", "json")
    assert cli("findings", "list", "--status", "new", *file, *json_).json["count"] == 1
    assert cli("findings", "list", "--kind", "inference", *file, *json_).json["count"] == 0
    said = ("--status", "disputed", "--reason", "was_working", "--by", "ann", "--note", "no")
    assert cli("findings", "decide", finding_id, *said, *file, *json_).json["status"] == "disputed"
    shown = cli("findings", "show", finding_id, *file, *json_).json
    assert (shown["status"], shown["reason"]) == ("disputed", "was_working")
    assert "disputed" in cli("findings", "history", finding_id, *file).out
    wrong = cli("findings", "decide", finding_id, "--status", "exempted", "--by", "ann", *file)
    assert (wrong.code, wrong.err) == (2, "gpuledger: expires_at: of an exemption must be a time to come\n")
    policy = _policy(tmp_path, EXEMPTION.replace("planted", "idle*").replace("vis*", "nlp").replace("2026", "2999"))
    checked = cli("policy", "check", policy, *file, *json_).json
    assert [(row["finding_count"], row["where"]) for row in checked["exemptions"]] == [(1, "policy line 2")]
    assert checked["exemptions"][0]["gpu_hours"] == pytest.approx(2.5)
    alone = cli("policy", "check", policy, "--warehouse", tmp_path / "none.duckdb", *json_)
    assert (alone.code, alone.json["exemptions"][0]["owner"]) == (0, "li.wei"), alone.err
    broken = cli("policy", "check", _policy(tmp_path, "[[threshold]]\nrule = 'speed'\nlimit = 3"), *file)
    assert (broken.code, broken.out) == (2, "")
    assert "threshold 1 (line 1).rule: no rule called 'speed'" in broken.err
