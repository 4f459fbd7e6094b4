"""The page of queues: limits that are no numbers, what waits, and what nobody told."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from gpuledger.testing import FakeClock
from tests.dashboards.recorded import END, HOSTILE, QUERIES, RecordedClient
from tests.dashboards.test_pages import metrics_of, open_page, texts_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")


def only(monkeypatch, queues=(), waits=()):
    """A client whose service knows these of queues and waits."""
    monkeypatch.setitem(QUERIES, "queue_usage", lambda _: list(queues))
    monkeypatch.setitem(QUERIES, "waits", lambda _: list(waits))
    return RecordedClient()


@pytest.mark.parametrize(
    ("language", "unlimited", "not_reported", "none"),
    [("en", "unlimited", "not reported", "no quota"), ("zh", "不限", "未上报", "无配额")],
)
def test_a_limit_that_is_no_number_says_why(monkeypatch, language, unlimited, not_reported, none):
    table = open_page(monkeypatch, RecordedClient(), "queues", lang=language).dataframe[0]
    assert list(table.value["nominal"]) == ["16", unlimited, none]
    assert list(table.value["limit"]) == [unlimited, "8", not_reported]
    assert list(table.value["told"])[2] == not_reported
    assert table.proto.placeholder == not_reported


def test_what_was_not_told_is_no_zero(monkeypatch):
    table = open_page(monkeypatch, RecordedClient(), "queues").dataframe[0].value
    assert list(table["used"])[:2] == [24.0, 2.5]
    assert list(table["pending"])[:2] == [0.0, 32.0]
    assert [math.isnan(value) for value in table["borrowed"]] == [False, True, True]
    assert [math.isnan(value) for value in table["lent"]] == [True, False, True]


def test_waits_stand_by_cause_with_who_can_end_them_and_the_scheduler_s_words(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "queues")
    table = test.dataframe[1].value
    assert list(table["cause"]) == [
        "enough GPUs free, not together",
        "held back by its owner",
        "quota used up",
        "brand new",
    ]
    assert list(table["blame"])[1:] == ["whoever submitted it", "whoever gives out quota", "not known"]
    assert table["reasons"][1] == f"JobHeldUser, {HOSTILE}"
    assert metrics_of(test) == {
        "Queues": "3",
        "Waited": "800 GPU-h",
        "For lack of GPUs": "640 GPU-h",
        "Still waiting": "4",
    }
    answer = next(str(each.value) for each in test.markdown if each.value.startswith("#####"))
    assert "enough GPUs free, not together, in night" in answer


def test_queues_are_asked_as_of_the_end_of_the_period_and_never_after_the_ledger(monkeypatch):
    client = RecordedClient()
    days = {"period": "days", "from": "2026-03-14", "to": "2026-03-20"}
    open_page(monkeypatch, client, "queues", **days, tz="UTC")
    asked = dict(client.calls)
    assert asked["queue_usage"] == {"at": END}
    assert asked["waits"] == {"from_at": END - timedelta(days=2), "to_at": END}


def test_a_period_after_the_ledger_has_no_waits(monkeypatch):
    client = RecordedClient()
    open_page(monkeypatch, client, "queues", **{"period": "days", "from": "2026-03-19", "to": "2026-03-20"})
    assert "waits" not in dict(client.calls)


def test_without_a_ledger_waits_end_now(monkeypatch):
    client, clock = RecordedClient(is_empty=True), FakeClock(END)
    clock.advance(1210)
    open_page(monkeypatch, client, "queues", clock)
    assert dict(client.calls)["waits"]["to_at"] == END + timedelta(minutes=20)


def test_the_tenant_s_queues_and_waits_alone_are_shown(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "queues", tenant="speech")
    assert metrics_of(test)["Queues"] == "0"
    assert list(test.dataframe[0].value["cause"]) == ["quota used up"]
    assert metrics_of(test)["For lack of GPUs"] == "0 GPU-h"
    assert "its work waits in queues of others" in texts_of(test)
    nobody = open_page(monkeypatch, RecordedClient(), "queues", tenant="nobody")
    assert not nobody.metric
    assert "nobody" in nobody.info[0].value


def test_a_fleet_without_a_scheduler_is_told_how_to_connect_one(monkeypatch):
    test = open_page(monkeypatch, only(monkeypatch), "queues")
    assert "docs/schedulers/README.md" in test.info[0].value
    assert not test.metric


def test_queues_without_a_told_wait_claim_no_zero(monkeypatch):
    rows = QUERIES["queue_usage"]({"at": END})
    test = open_page(monkeypatch, only(monkeypatch, queues=rows), "queues")
    assert [metrics_of(test)[name] for name in ("Waited", "For lack of GPUs", "Still waiting")] == ["-"] * 3
    assert "No wait was reported" in texts_of(test)


def test_waits_of_an_unknown_size_are_listed_without_a_chart(monkeypatch):
    rows = [row for row in QUERIES["waits"]({}) if row["gpu_hours"] is None]
    test = open_page(monkeypatch, only(monkeypatch, waits=rows), "queues")
    assert metrics_of(test)["Waited"] == "-"
    assert list(test.dataframe[0].value["queue"]) == ["(no queue)"]
    assert not test.get("arrow_vega_lite_chart")
