"""Shadow mode: a rule notifies where a sample of its findings was judged right often enough, and nowhere else."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuledger.app.mail import mailer_for
from gpuledger.app.reviewing import MINIMUM_JUDGED, Gate
from gpuledger.model import Finding
from tests.app.conftest import Api, Ran
from tests.app.finding_fleet import a_finding, idle_cards, plant, save

TRAINING = [a_finding(f"t{number:03}") for number in range(60)]
NOTEBOOKS = [a_finding(f"n{number:03}", kind="notebook") for number in range(10)]
ASCEND = [a_finding(f"s{number:03}", vendor="ascend") for number in range(5)]


@pytest.fixture
def stocked(make_api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    def make(*findings: Finding, **settings: Any) -> Api:
        api = make_api(alert_webhook_url="http://127.0.0.1:1/x", **settings)
        plant(monkeypatch, *(findings or (*TRAINING, *NOTEBOOKS, *ASCEND)))
        save(api)
        return api

    return make


def _draw(api: Api, size: int, seed: int = 1) -> dict[str, Any]:
    answer: dict[str, Any] = api.http.post("/v1/reviews/sample", params={"size": size, "seed": seed}).json()
    return answer


def _judge(api: Api, rows: Sequence[dict[str, Any]], *verdicts: str) -> dict[str, Any]:
    names = ("sample", "finding_id")
    lines = [
        {"line": number + 2, **{name: row[name] for name in names}, "verdict": verdict, "judged_by": "ann"}
        for number, (row, verdict) in enumerate(zip(rows, verdicts, strict=True))
    ]
    answer: dict[str, Any] = api.http.post("/v1/reviews/verdicts", json={"lines": lines}).json()
    return answer


def _of(rows: Sequence[dict[str, Any]], kind: str, vendor: str = "nvidia") -> list[dict[str, Any]]:
    return [row for row in rows if (row["kind"], row["vendor"]) == (kind, vendor)]


def _announce(api: Api) -> Counter[str]:
    """Which findings were put into the outbox, by kind and vendor."""
    mailer_for(api.service).announce(api.service.findings())
    queued = {message["fields"]["finding_id"] for _, _, message, _ in api.service.state.due_messages(_now(api), 1000)}
    rows = api.service.findings()
    return Counter(f"{row['kind']}/{row['vendor']}" for row in rows if row["finding_id"] in queued)


def _now(api: Api) -> Any:
    return api.service.clock.now()


def test_a_sample_has_every_stratum_and_stands_for_all(stocked: Callable[..., Api]) -> None:
    api = stocked()
    drawn = _draw(api, 45)
    counts = Counter((row["kind"], row["vendor"]) for row in drawn["rows"])
    assert counts == {("training", "nvidia"): 30, ("notebook", "nvidia"): 10, ("training", "ascend"): 5}
    assert sum(row["stratum_count"] / row["drawn_count"] for row in drawn["rows"]) == pytest.approx(75)
    assert all(row["what"] and row["would_change"] and row["owner"] == "li" for row in drawn["rows"])
    ids = [row["finding_id"] for row in drawn["rows"]]
    assert len(set(ids)) == 45
    assert [row["finding_id"] for row in _draw(api, 45)["rows"]] == ids
    assert [row["finding_id"] for row in _draw(api, 45, seed=2)["rows"]] != ids
    assert len(_draw(api, 200)["rows"]) == 75


def test_drawing_favours_no_finding(stocked: Callable[..., Api]) -> None:
    api = stocked(*TRAINING[:12])
    times = Counter(row["finding_id"] for seed in range(1, 101) for row in _draw(api, 6, seed)["rows"])
    assert sum(times.values()) == 600
    assert len(times) == 12
    assert 30 <= min(times.values()) <= max(times.values()) <= 70  # 50 expected, standard deviation 5


@pytest.mark.parametrize(
    ("wrong", "judged", "reason"),
    [
        (0, 0, "not_reviewed"),
        (0, MINIMUM_JUDGED - 1, "too_few_judged"),
        (1, MINIMUM_JUDGED - 1, "below_precision"),
        (0, MINIMUM_JUDGED, ""),
        (1, MINIMUM_JUDGED, ""),
        (2, MINIMUM_JUDGED, "below_precision"),
        (2, 40, ""),
        (3, 40, "below_precision"),
    ],
)
def test_the_gate_opens_at_095_of_twenty(stocked: Callable[..., Api], wrong: int, judged: int, reason: str) -> None:
    api = stocked(*TRAINING)
    rows = _draw(api, 60)["rows"]
    verdicts = ["wrong"] * wrong + ["right"] * (judged - wrong) + ["cannot tell"] * (60 - judged)
    assert _judge(api, rows, *verdicts)["accepted_count"] == 60
    stratum = ("planted", "training", "nvidia")
    assert Gate(api.service).of_stratum(stratum) == reason
    (row,) = api.http.get("/v1/precision").json()["strata"]
    assert (row["may_notify"], row["silent_because"], row["judged_count"]) == (not reason, reason, judged)
    assert row["cannot_tell_count"] == 60 - judged
    assert sum(_announce(api).values()) == (0 if reason else 60)
    if reason:
        assert api.metric("gpuledger_alerts_silenced_total", rule="planted", reason=reason) == 60


def test_a_new_sites_rules_only_record(stocked: Callable[..., Api]) -> None:
    api = stocked()
    mailer = mailer_for(api.service)
    for _ in range(3):
        assert mailer.announce(api.service.findings()) == 0
    assert api.service.state.outbox_counts()["pending"] == 0
    assert api.metric("gpuledger_alerts_silenced_total", rule="planted", reason="not_reviewed") == 75
    shown = api.http.get(f"/v1/findings/{TRAINING[0].finding_id}").json()
    assert (shown["status"], shown["silent_because"]) == ("new", "not_reviewed")


def test_one_stratum_says_nothing_of_another(stocked: Callable[..., Api]) -> None:
    api = stocked()
    rows = _of(_draw(api, 75)["rows"], "training")
    _judge(api, rows, *["right"] * 60)
    assert _announce(api) == {"training/nvidia": 60}


def test_all_notifies_but_where_it_was_judged_wrong(stocked: Callable[..., Api]) -> None:
    api = stocked(notifications="all")
    rows = _of(_draw(api, 75)["rows"], "notebook")
    _judge(api, rows[:3], "right", "right", "wrong")
    assert _announce(api) == {"training/nvidia": 60, "training/ascend": 5}


def test_a_fault_waits_for_no_review_whatever_it_has_cost(stocked: Callable[..., Api]) -> None:
    health = {"category": "health", "gpu_hours_wasted": 0.0, "gpu_hours_recoverable": 0.0}
    fatal = a_finding("GPU-1", subject_kind="gpu", severity="critical", **health)
    mild = a_finding("GPU-2", subject_kind="gpu", severity="warning", gpu_hours_lost=50.0, **health)
    api = stocked(fatal, mild)
    mailer_for(api.service).announce(api.service.findings())
    ((_, _, message, _),) = api.service.state.due_messages(_now(api))
    assert (message["fields"]["subject"].endswith("GPU-1"), message["severity"]) == (True, "critical")
    assert api.metric("gpuledger_alerts_silenced_total", rule="planted", reason="not_reviewed") == 1


def test_decided_and_ended_findings_are_told_to_nobody(stocked: Callable[..., Api]) -> None:
    ended = a_finding("ended", is_open=False)
    api = stocked(TRAINING[0], TRAINING[1], ended, notifications="all")
    api.service.finding_book.decide(TRAINING[0].finding_id, "acknowledged", by="ann")
    save(api)
    assert _announce(api) == {"training/nvidia": 1}


def test_wrong_lines_are_named_and_the_rest_is_kept(stocked: Callable[..., Api]) -> None:
    api = stocked(*TRAINING[:5])
    rows = _draw(api, 5)["rows"]
    lines = [
        {"line": 2, "sample": rows[0]["sample"], "finding_id": rows[0]["finding_id"], "verdict": "right"},
        {"line": 3, "sample": "other", "finding_id": rows[0]["finding_id"], "verdict": "right", "judged_by": "ann"},
        {"line": 4, "sample": rows[0]["sample"], "finding_id": "f0", "verdict": "right", "judged_by": "ann"},
        {"line": 5, **_word(rows[1], "perhaps")},
        {"line": 6, **_word(rows[2], "")},
        {"line": 7, **_word(rows[3], "Cannot tell")},
        {"line": 8, **_word(rows[4], "RIGHT")},
    ]
    answer = api.http.post("/v1/reviews/verdicts", json={"lines": lines}).json()
    assert (answer["accepted_count"], answer["unjudged_count"], answer["rejected_count"]) == (2, 1, 4)
    assert [(row["line"], row["field"]) for row in answer["rejected"]] == [
        (2, "judged_by"),
        (3, "finding_id"),
        (4, "finding_id"),
        (5, "verdict"),
    ]
    (stratum,) = api.http.get("/v1/precision").json()["strata"]
    assert (stratum["right_count"], stratum["cannot_tell_count"], stratum["precision"]) == (1, 1, 1.0)
    assert api.http.post("/v1/reviews/verdicts", json={"lines": "x"}).json()["field"] == "body"


def test_a_line_of_another_shape_costs_itself(stocked: Callable[..., Api]) -> None:
    api = stocked(*TRAINING[:5])
    rows = _draw(api, 5)["rows"]
    lines = [
        {"line": 2, **_word(rows[0], "right")},
        {"line": 3, **_word(rows[1], "right"), "note": 7},
        {"line": "four", **_word(rows[2], "right")},
        "right",
        {"line": 6, **_word(rows[3], "x" * 65)},
        {"line": 7, **_word(rows[3], "right"), "judged_by": "ann\u202e"},
        {"line": 8, **_word(rows[4], "wrong")},
    ]
    answer = api.http.post("/v1/reviews/verdicts", json={"lines": lines}).json()
    assert (answer["accepted_count"], answer["rejected_count"]) == (2, 5)
    places = [(3, "note"), (3, "line"), (4, "line"), (6, "verdict"), (7, "judged_by")]
    assert [(row["line"], row["field"]) for row in answer["rejected"]] == places


def _word(row: dict[str, Any], verdict: str) -> dict[str, Any]:
    return {"sample": row["sample"], "finding_id": row["finding_id"], "verdict": verdict, "judged_by": "ann"}


def test_overall_precision_weighs_strata_by_their_findings(stocked: Callable[..., Api]) -> None:
    api = stocked()
    rows = _draw(api, 75)["rows"]
    _judge(api, _of(rows, "training")[:30], *["right"] * 27, *["wrong"] * 3)
    _judge(api, _of(rows, "notebook"), *["right"] * 5, *["wrong"] * 5)
    answer = api.http.get("/v1/precision").json()
    expected = (60 * 0.9 + 10 * 0.5) / 70
    assert answer["overall"]["precision"] == pytest.approx(expected)
    assert answer["overall"]["low"] < expected < answer["overall"]["high"]
    (rule,) = answer["rules"]
    assert (rule["rule"], rule["judged_count"], rule["precision"]) == ("planted", 40, pytest.approx(expected))


def test_owners_words_are_counted_beside_samples(stocked: Callable[..., Api]) -> None:
    api = stocked()
    for finding in TRAINING[:19]:
        api.service.finding_book.decide(finding.finding_id, "acknowledged", by="ann")
    api.service.finding_book.decide(TRAINING[19].finding_id, "disputed", by="bo", reason="was_working")
    (row,) = api.http.get("/v1/precision").json()["owners"]
    assert (row["confirmed_count"], row["disputed_count"], row["disputed_by_reason"]) == (19, 1, {"was_working": 1})
    assert (row["precision"], row["low"]) == pytest.approx((0.95, 0.751267), abs=1e-6)
    assert api.http.get("/v1/precision").json()["overall"]["precision"] is None


def test_review_on_the_command_line(api: Api, cli: Callable[..., Ran], tmp_path: Path) -> None:
    idle_cards(api)
    span = {"from": "2026-03-02T08:00:00Z", "to": "2026-03-02T10:00:00Z", "save": "true"}
    assert api.http.post("/v1/analyze/idle_allocation", params=span).status_code == 200
    api.service.close()
    file, out = ("--warehouse", tmp_path / "app.duckdb"), tmp_path / "deep" / "sample.csv"
    ran = cli("review", "--sample", "200", "--out", out, *file, "--format", "json")
    assert (ran.code, ran.json["drawn_count"]) == (0, 1), ran.err
    with out.open(encoding="utf-8-sig", newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert (row["rule"], row["kind"], row["tenant"]) == ("idle_allocation", "training", "nlp")
    with out.open("w", encoding="utf-8-sig", newline="") as opened:
        writer = csv.DictWriter(opened, row)
        writer.writeheader()
        writer.writerow({**row, "verdict": "right", "judged_by": "ann"})
        writer.writerow({**row, "verdict": "certainly", "judged_by": "ann"})
    judged = cli("review", "--judged", out, *file, "--format", "json")
    assert judged.code == 1
    assert judged.json["verdicts"]["accepted_count"] == 1
    assert judged.json["verdicts"]["rejected"][0]["line"] == 3
    shown = cli("review", *file)
    assert (shown.code, "too_few_judged" in shown.out, "0.025 to 1.000" in shown.out) == (0, True, True), shown.out
    assert cli("review", "--sample", "5", *file).code == 2
    assert cli("review", "--judged", tmp_path / "none.csv", *file).code == 2
