from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gpuledger.model import State, Window
from gpuledger.model.vocabulary import PENDING_CAUSES, QUEUE_STATUSES, QUIET_PHASES, Blame
from gpuledger.presentation import escaping, numbers, spans, states, texts
from gpuledger.presentation.balance import Balance
from gpuledger.presentation.findings import view
from gpuledger.registry import RULES

AT = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0, "0 GPU-h"),
        (0.01, "<0.1 GPU-h"),
        (3.44, "3.4 GPU-h"),
        (9.96, "10 GPU-h"),
        (1234.4, "1,234 GPU-h"),
    ],
)
def test_gpu_hours(value, shown):
    assert numbers.gpu_hours(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.1234, "12.3 %"),
        (0.99996, ">99.9 %"),
        (1, "100 %"),
        (1 - 1e-12, "100 %"),
        (1.5, "150.0 %"),
    ],
)
def test_percent(value, shown):
    assert numbers.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (0.0004, "±0 pp"), (0.012, "+1.2 pp"), (-0.012, "\N{MINUS SIGN}1.2 pp")]
)
def test_points(value, shown):
    assert numbers.points(value) == shown


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(None, "-"), (0, "0 min"), (5 + 50 / 60, "5 h 50 min"), (2, "2 h"), (81.6, "3.4 d"), (168, "7 d")],
)
def test_duration(hours, shown):
    assert numbers.duration(hours) == shown


def test_periods_name_their_zone_and_count_whole_local_days():
    week = timedelta(days=7)
    assert numbers.period(AT, AT + week, "UTC") == "2026-03-02 \N{EN DASH} 2026-03-08 UTC"
    assert numbers.period(AT, AT + timedelta(days=1), "UTC") == "2026-03-02 UTC"
    local = numbers.period(AT, AT + week, "Asia/Shanghai")
    assert local == "2026-03-02 08:00 \N{EN DASH} 2026-03-09 08:00 Asia/Shanghai"


def test_markdown_shows_exactly_the_characters():
    hostile = "<b>[x](javascript:1) $a$ :red[x] `c` **d** _e_ ~f~ #g |h| https://x.test\n# next\u202e"
    escaped = escaping.markdown(hostile)
    assert "\n" not in escaped
    assert "\u202e" not in escaped
    for index, sign in enumerate(escaped):
        if sign in string.punctuation and sign not in "\\,;%^?":
            assert escaped[index - 1] == "\\"


def test_one_line_is_cut_with_an_ellipsis():
    assert escaping.one_line("x" * 300) == "x" * 199 + "…"
    assert escaping.one_line(" a\t\nb\x00 ") == "a b"


def test_every_text_exists_in_both_languages_with_the_same_values():
    for key in sorted(texts.keys()):
        names = []
        for language in texts.LANGUAGES:
            parsed = string.Formatter().parse(texts._table()[key][language])
            names.append({name for _, name, _, _ in parsed if name is not None})
        assert names[0] == names[1], key


def test_every_cause_of_a_wait_has_its_words_and_so_has_who_can_end_it():
    wanted = [("wait_cause", PENDING_CAUSES), ("blame", Blame), ("queue_status", QUEUE_STATUSES)]
    assert {f"{family}.{word}" for family, words in wanted for word in words} <= texts.keys()


def test_every_state_has_its_words_and_the_order_holds_each_once():
    assert sorted(states.STATE_ORDER) == sorted(State)
    for state in State:
        assert {f"state.{state}", f"definition.{state}"} <= texts.keys()


def test_every_rule_and_every_cause_that_the_ledger_gives_has_its_words():
    causes = {f"cause.{word}" for word in (*QUIET_PHASES, "serving")}
    rules = {f"{family}.{rule}" for family in ("rule", "verdict") for rule in RULES if rule != "planted"}
    assert causes | rules <= texts.keys()


def _lightness(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    luminance = sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * luminance ** (1 / 3) - 16


def test_neighbours_in_the_stack_differ_in_lightness():
    looks = [states.LOOKS[state] for state in states.STATE_ORDER]
    assert all(abs(_lightness(a.colour) - _lightness(b.colour)) > 3.5 for a, b in pairwise(looks))
    assert {look.state for look in looks if look.is_hatched} == {State.ALLOC_UNKNOWN, State.ALLOC_UNGRADED}


def _row(key, state, hours):
    return {"key": key, "state": state, "gpu_hours": hours, "provisional_gpu_hours": hours / 2}


def test_the_waterfall_comes_down_to_productive_work():
    rows = [_row("x", "unavailable", 10.0), _row("x", "alloc_idle", 30.0), _row("x", "alloc_productive", 60.0)]
    balance = Balance.of_fleet(rows)
    bars = {bar.name: (bar.start_hours, bar.end_hours) for bar in balance.bars()}
    assert (bars["inventory"], bars["held"], bars["working"]) == ((100, 0), (90, 0), (60, 0))
    assert (bars["alloc_idle"], bars["alloc_productive"]) == ((90, 60), (60, 0))
    assert balance.provisional_gpu_hours == 50
    assert balance.share(*balance.step_states("held")) == 0.9
    assert balance.share(State.ALLOC_STALLED) == 0


def test_a_tenant_starts_at_what_it_held_and_nothing_is_not_zero():
    rows = [_row("", "free_usable", 5.0), _row("a", "alloc_low", 1.0), _row("a'", "alloc_low", 9.0)]
    assert Balance.of_tenant(rows, "a").total_gpu_hours == 1.0
    empty = Balance.of_tenant(rows, "b")
    assert empty.is_empty
    assert (empty.share(State.ALLOC_LOW), empty.gpu_hours(State.ALLOC_LOW)) == (None, None)


def _span(start, end, state="alloc_low", share=1.0):
    names = {"slice_id": "", "cause": "", "basis": "", "workload_id": "w", "tenant": ""}
    hours = {"from_at": AT + timedelta(hours=start), "until_at": AT + timedelta(hours=end)}
    return {**names, **hours, "state": state, "share": share}


def test_spans_join_across_the_ledgers_hours_but_not_across_gaps():
    joined = spans.joined([_span(0, 1), _span(1, 2), _span(3, 4), _span(2, 3, "alloc_idle")])
    ends = [(each["state"], (each["until_at"] - each["from_at"]).total_seconds() / 3600) for each in joined]
    assert ends == [("alloc_low", 2), ("alloc_idle", 1), ("alloc_low", 1)]
    assert spans.shares(joined, Window(AT, AT + timedelta(hours=4))) == {State.ALLOC_LOW: 0.75, State.ALLOC_IDLE: 0.25}
    assert spans.shares(joined, Window(AT, AT + timedelta(hours=1))) == {State.ALLOC_LOW: 1.0, State.ALLOC_IDLE: 0.0}


def test_a_finding_with_odd_evidence_still_reads():
    row = {
        "finding_id": "f", "analyzer": "own_rule", "subject_kind": "rack", "subject_id": "r\n1", "tenant": "",
        "window_start": AT, "window_end": AT + timedelta(hours=2), "gpu_hours_observed": 2.0,
        "gpu_hours_wasted": 1.0,
        "gpu_hours_recoverable": 0.5,
        "confidence": 0.5, "basis": "b", "cause_code": "odd_cause", "action_code": "do_it",
        "evidence": '[{"metric": "m", "value": null}, 3, {"value": [1]}]', "action_params": "not json",
    }  # fmt: skip
    seen = view(row, texts.Texts("en"))
    assert (seen.cause, seen.action, seen.tenant) == ("odd cause", "do it", "(no tenant)")
    assert [fact.value for fact in seen.evidence] == ["-", "[1]"]
    assert seen.sentence(texts.Texts("en")) == "rack r 1: odd cause for 2 h, 1.0 GPU-h."
