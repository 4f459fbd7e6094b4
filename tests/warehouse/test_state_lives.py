"""A finding's life over many runs: what ends, what goes on under another identity, whose word counts, what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from gpuledger.errors import BadInput
from gpuledger.model import Finding
from gpuledger.policy import Policy
from warehouse.state import REASONS, Drawn, StateStore, Verdict, lives

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _finding(subject: str = "a", start: float = 0, end: float = 1, **values: Any) -> Finding:
    fields: dict[str, Any] = {
        "analyzer": "idle",
        "rule_id": "idle",
        "rule_version": 1,
        "subject_kind": "job",
        "subject_id": subject,
        "tenant": "nlp",
        "kind": "training",
        "vendor": "nvidia",
        "window_start": AT + start * HOUR,
        "window_end": AT + end * HOUR,
        "gpu_hours_observed": 1.0,
        "gpu_hours_wasted": 1.0,
        "gpu_hours_recoverable": 1.0,
        "confidence": 1.0,
        "basis": "sm_active",
        "cause_code": "idle",
        "action_code": "notify",
        "is_open": True,
    }
    return Finding(**{**fields, **values})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = StateStore.open(f"sqlite:///{tmp_path / 'state.sqlite'}")
    yield opened
    opened.close()


def _state(store: StateStore, finding: Finding) -> dict[str, Any]:
    return store.finding_states([finding.finding_id])[finding.finding_id]


def _turns(store: StateStore, finding: Finding) -> list[tuple[str, str]]:
    return [(change["before"], change["after"]) for change in store.finding_history(finding.finding_id)]


def test_what_has_ended_is_resolved_though_it_is_found_still(store: StateStore) -> None:
    store.sync_findings("idle", [_finding()], AT)
    ended = _finding(end=2, is_open=False)
    store.sync_findings("idle", [ended], AT + 2 * HOUR)
    assert (_state(store, ended)["status"], _state(store, ended)["resolved_at"]) == ("resolved", AT + 2 * HOUR)
    store.sync_findings("idle", [ended], AT + 3 * HOUR)
    assert _state(store, ended)["resolved_at"] == AT + 2 * HOUR
    store.sync_findings("idle", [_finding(end=4)], AT + 4 * HOUR)
    assert _turns(store, ended) == [("", "new"), ("new", "resolved"), ("resolved", "ongoing")]


def test_a_run_over_late_hours_resolves_only_what_it_could_have_found(store: StateStore) -> None:
    early, late, edge = _finding("early", 0, 2), _finding("late", 0, 6), _finding("edge", 0, 5)
    store.sync_findings("idle", [early, late, edge], AT)
    store.sync_findings("idle", [], AT + 6 * HOUR, since=AT + 5 * HOUR)
    notes = {one.subject_id: store.finding_history(one.finding_id)[-1]["note"] for one in (early, late, edge)}
    assert notes == {"early": "ended", "late": "found no longer", "edge": "ended"}
    assert {_state(store, one)["status"] for one in (early, late, edge)} == {"resolved"}


@pytest.mark.parametrize("start", [0.5, -1.0], ids=["begins later", "begins earlier"])
def test_a_decision_goes_with_a_finding_whose_start_moved(store: StateStore, start: float) -> None:
    old = _finding(end=3)
    store.sync_findings("idle", [old], AT)
    store.decide_finding(old.finding_id, "disputed", by="ann", note="a test", reason="planned", owner="bo", now=AT)
    moved = _finding(start=start, end=4, rule_version=2)
    assert moved.finding_id != old.finding_id
    assert store.sync_findings("idle", [moved], AT + HOUR) == []
    state = _state(store, moved)
    assert (state["status"], state["reason"], state["owner"], state["note"]) == ("disputed", "planned", "bo", "a test")
    assert (state["first_seen_at"], state["continues"]) == (AT, old.finding_id)
    assert store.newest_identity(old.finding_id) == moved.finding_id
    assert [change["actor"] for change in store.finding_history(moved.finding_id)][:2] == ["gpuledger", "ann"]
    (counted,) = store.owner_decisions()
    assert (counted["status"], counted["reason"], counted["finding_count"]) == ("disputed", "planned", 1)


@pytest.mark.parametrize(
    "other",
    [_finding("b", 0.5), _finding(start=3, end=4), _finding(start=0.5, action_params={"workload_id": "w2"})],
    ids=["another subject", "touches only", "another workload"],
)
def test_what_is_something_else_is_new(store: StateStore, other: Finding) -> None:
    old = _finding(end=3)
    store.sync_findings("idle", [old], AT)
    store.decide_finding(old.finding_id, "acknowledged", by="ann", now=AT)
    assert store.sync_findings("idle", [other], AT + HOUR) == [other]
    assert _state(store, other)["status"] == "new"


def test_a_second_stretch_beside_a_decided_one_is_new(store: StateStore) -> None:
    first = _finding(end=3)
    store.sync_findings("idle", [first], AT)
    store.decide_finding(first.finding_id, "acknowledged", by="ann", now=AT)
    beside = _finding(start=1, end=3)
    assert store.sync_findings("idle", [first, beside], AT + HOUR) == [beside]


def test_a_decided_finding_that_grows_stays_decided(store: StateStore) -> None:
    store.sync_findings("idle", [_finding()], AT)
    store.decide_finding(_finding().finding_id, "disputed", by="ann", reason="bad_data", now=AT)
    grown = _finding(end=9, gpu_hours_wasted=9.0, rule_version=3)
    assert store.sync_findings("idle", [grown], AT + HOUR) == []
    assert (_state(store, grown)["status"], _state(store, grown)["rule_version"]) == ("disputed", 3)


def test_an_exemption_ends_by_itself_at_its_instant(store: StateStore) -> None:
    store.sync_findings("idle", [_finding(), _finding("b", is_open=False)], AT)
    for subject in ("a", "b"):
        store.decide_finding(_finding(subject).finding_id, "exempted", by="ann", expires_at=AT + HOUR, now=AT)
    assert store.expire_exemptions(AT + HOUR - timedelta(microseconds=1)) == 0
    assert store.expire_exemptions(AT + HOUR) == 2
    assert _state(store, _finding())["status"] == "ongoing"
    assert _state(store, _finding("b"))["status"] == "resolved"
    assert store.finding_history(_finding().finding_id)[-1]["note"] == "the exemption has ended"


def test_a_decision_can_be_taken_back(store: StateStore) -> None:
    store.sync_findings("idle", [_finding(), _finding("b", is_open=False)], AT)
    for subject, after in (("a", "ongoing"), ("b", "resolved")):
        finding_id = _finding(subject).finding_id
        store.decide_finding(finding_id, "acknowledged", by="ann", now=AT)
        assert store.decide_finding(finding_id, "ongoing", by="bo", note="a slip", now=AT) == after


def test_an_owner_is_named_and_the_status_stays(store: StateStore) -> None:
    store.sync_findings("idle", [_finding()], AT)
    assert store.decide_finding(_finding().finding_id, "", by="ann", owner="team-b", now=AT) == "new"
    store.sync_findings("idle", [_finding(end=5)], AT + HOUR)
    assert (_state(store, _finding())["owner"], _state(store, _finding())["status"]) == ("team-b", "ongoing")
    assert store.finding_history(_finding().finding_id)[1]["owner"] == "team-b"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"status": "disputed"}, "reason"),
        ({"status": "disputed", "reason": "because"}, "reason"),
        ({"status": "acknowledged", "reason": "planned"}, "reason"),
        ({"status": "exempted"}, "expires_at"),
        ({"status": "exempted", "expires_at": AT}, "expires_at"),
        ({"status": "acknowledged", "expires_at": AT + HOUR}, "expires_at"),
        ({"status": "resolved"}, "status"),
        ({"status": ""}, "status"),
        ({"status": "acknowledged", "by": ""}, "by"),
    ],
)
def test_what_is_missing_in_a_decision_is_named(store: StateStore, said: dict[str, Any], field: str) -> None:
    store.sync_findings("idle", [_finding()], AT)
    with pytest.raises(BadInput) as caught:
        store.decide_finding(_finding().finding_id, now=AT, **{"by": "ann", **said})
    assert caught.value.field == field
    assert _turns(store, _finding()) == [("", "new")]


def _policy(**values: Any) -> Policy:
    one = {"tenant": "n*", "owner": "li.wei", "reason": "warm spares", "expires_at": AT + 5 * HOUR}
    return Policy.model_validate({"exemption": [{**one, **values}]})


def test_a_policy_exempts_until_it_expires_or_changes(store: StateStore) -> None:
    policy = _policy()
    assert store.sync_findings("idle", [_finding()], AT, policy=policy) == [_finding()]
    state = _state(store, _finding())
    assert (state["status"], state["changed_by"], state["note"]) == ("exempted", "li.wei", "warm spares")
    for _ in range(2):
        store.sync_findings("idle", [_finding()], AT + HOUR, policy=policy)
    assert _turns(store, _finding()) == [("", "new"), ("new", "exempted")]
    assert store.apply_policy(_policy(tenant="vision"), AT + 2 * HOUR) == 0
    assert _state(store, _finding())["status"] == "ongoing"
    assert store.apply_policy(policy, AT + 3 * HOUR) == 1
    store.sync_findings("idle", [_finding()], AT + 5 * HOUR, policy=policy)
    assert _state(store, _finding())["status"] == "ongoing"


def test_a_persons_word_stands_above_the_policy(store: StateStore) -> None:
    store.sync_findings("idle", [_finding()], AT, policy=_policy())
    store.decide_finding(_finding().finding_id, "acknowledged", by="ann", now=AT)
    store.sync_findings("idle", [_finding()], AT + HOUR, policy=_policy())
    assert store.apply_policy(_policy(), AT + HOUR) == 0
    assert _state(store, _finding())["status"] == "acknowledged"


def test_disputes_are_counted_by_reason(store: StateStore) -> None:
    found = [_finding(f"s{number}") for number in range(len(REASONS) + 2)]
    store.sync_findings("idle", found, AT)
    for finding, reason in zip(found, REASONS, strict=False):
        store.decide_finding(finding.finding_id, "disputed", by="ann", reason=reason, now=AT)
    store.decide_finding(found[-1].finding_id, "acknowledged", by="ann", now=AT)
    counts = {(row["status"], row["reason"]): row["finding_count"] for row in store.owner_decisions()}
    assert counts == {("acknowledged", ""): 1, **{("disputed", reason): 1 for reason in REASONS}}


def _draw(store: StateStore, sample: str, *found: Finding) -> None:
    fields: dict[str, Any] = {"analyzer": "idle", "kind": "training", "vendor": "nvidia"}
    drawn = [Drawn(finding_id=one.finding_id, stratum_count=9, drawn_count=len(found), **fields) for one in found]
    store.save_sample(sample, drawn, AT)


def _judge(store: StateStore, finding: Finding, verdict: str = "right", sample: str = "s1", hours: int = 0) -> bool:
    one = Verdict(finding_id=finding.finding_id, sample=sample, verdict=verdict, judged_by="ann")
    return store.save_verdict(one, AT + hours * HOUR)


def test_the_last_verdict_counts_and_each_is_in_the_history(store: StateStore) -> None:
    store.sync_findings("idle", [_finding()], AT)
    for sample in ("s1", "s2"):
        _draw(store, sample, _finding())
    assert store.verdicts_now() == []
    assert _judge(store, _finding())
    assert not _judge(store, _finding(), hours=1)
    assert _judge(store, _finding(), "wrong", "s2", hours=1)
    assert [(row["verdict"], row["stratum_count"]) for row in store.verdicts_now()] == [("wrong", 9)]
    assert [change["reason"] for change in store.finding_history(_finding().finding_id)] == ["", "right", "wrong"]
    assert _judge(store, _finding(), "cannot_tell", "s2", hours=2)
    assert [row["verdict"] for row in store.verdicts_now()] == ["cannot_tell"]


def test_nobody_chooses_what_is_judged(store: StateStore) -> None:
    store.sync_findings("idle", [_finding(), _finding("b")], AT)
    _draw(store, "s1", _finding())
    for finding, sample in ((_finding("b"), "s1"), (_finding(), "s2")):
        with pytest.raises(BadInput, match="was not drawn"):
            _judge(store, finding, sample=sample)
    with pytest.raises(BadInput, match="verdict"):
        _judge(store, _finding(), "maybe")
    assert store.judged_finding_ids() == set()


def test_a_rules_new_version_keeps_the_verdicts_on_what_it_finds_again(store: StateStore) -> None:
    kept, dropped = _finding("kept"), _finding("dropped")
    store.sync_findings("idle", [kept, dropped], AT)
    _draw(store, "s1", kept, dropped)
    assert _judge(store, kept)
    assert _judge(store, dropped, "wrong")
    assert len(store.verdicts_now()) == 2
    store.sync_findings("idle", [_finding("kept", rule_version=2)], AT + HOUR)
    assert [(row["finding_id"], row["verdict"]) for row in store.verdicts_now()] == [(kept.finding_id, "right")]


def test_what_comes_one_by_one_resolves_nothing(store: StateStore) -> None:
    assert store.add_findings("idle", [_finding()], AT) == [_finding()]
    assert store.add_findings("idle", [_finding("b")], AT) == [_finding("b")]
    assert store.add_findings("idle", [_finding()], AT) == []
    assert {_state(store, _finding(subject))["status"] for subject in ("a", "b")} == {"ongoing", "new"}


def test_a_store_of_the_first_release_keeps_its_decisions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.sqlite'}"
    config = Config()
    config.set_main_option("script_location", str(Path(lives.__file__).parent / "migrations"))
    config.attributes["url"] = url
    command.upgrade(config, "0001")
    engine = create_engine(url)
    with engine.begin() as connection:
        row = {"id": _finding().finding_id, "at": "2026-03-01 00:00:00"}
        connection.execute(
            text("insert into finding_state values (:id, 'idle', 'disputed', :at, :at, null, 'ann', 'no')"), row
        )
    engine.dispose()
    store = StateStore.open(url)
    assert store.sync_findings("idle", [_finding()], AT) == []
    state = _state(store, _finding())
    assert (state["status"], state["changed_by"], state["tenant"], state["owner"]) == ("disputed", "ann", "nlp", "")
    assert [row["finding_count"] for row in store.owner_decisions()] == [1]
    store.close()
    command.downgrade(config, "0001")
