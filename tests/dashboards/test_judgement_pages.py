"""The pages of findings, fragments, health, cost and basis: what they say of recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from gpuledger.errors import QueryRefused
from tests.dashboards.recorded import END, HOSTILE, RecordedClient
from tests.dashboards.test_pages import metrics_of, open_page, texts_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")

NEW = ("waste", "fragments", "health", "money", "basis")
SHORT = {"period": "24h"}


def table(test: Any, column: str) -> Any:
    """The first table with such a column."""
    return next(frame.value for frame in test.dataframe if column in frame.value)


def test_findings_say_where_they_stand_whose_they_are_and_what_they_cost(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "waste", currency="USD")
    shown = table(test, "owner")
    assert set(shown["status"]) <= {"new", "ongoing", "acknowledged", "disputed", "exempted", "resolved"}
    assert len(set(shown["status"])) > 1
    assert list(shown["amount"].dropna()) == [1000.0, 2000.0]
    assert metrics_of(test)["Cost"] == "3,000 USD"
    words = texts_of(test).replace("\\", "").replace("\N{MULTIPLICATION SIGN}", "*")
    assert "coverage 0.97 * agreement of the counters 1.00 * sharing 0.50" in words
    assert test.code[0].value.startswith("gpuledger explain f0")
    assert "Advice is about" not in metrics_of(test)


@pytest.mark.parametrize(
    ("category", "figures"),
    [
        ("advice", {"Findings": "1", "Advice is about": "120 GPU-h", "Cost": "-"}),
        ("health", {"Findings": "3", "Lost to faults": "112 GPU-h"}),
    ],
)
def test_what_is_no_waste_is_not_added_to_it(monkeypatch, category, figures):
    test = open_page(monkeypatch, RecordedClient(), "waste", category=category)
    assert metrics_of(test) == figures


def test_findings_are_narrowed_by_status(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "waste", status="disputed")
    assert set(table(test, "owner")["status"]) == {"disputed"}


def test_without_a_price_book_nothing_is_said_of_money(monkeypatch):
    class Poor(RecordedClient):
        def query(self, name, /, **parameters):
            if name == "money_by_finding":
                raise QueryRefused("not asked without a book")
            found = super().query(name, **parameters)
            return found.slice(0, 0) if name == "money_currencies" else found

    test = open_page(monkeypatch, Poor(), "waste")
    assert not test.error
    assert "Cost" not in metrics_of(test)
    assert "amount" not in table(test, "owner")


def test_precision_stands_with_its_interval_and_says_who_is_silent(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "waste")
    shown = table(test, "interval")
    assert [text.replace("\N{EN DASH}", "to") for text in shown["interval"]] == [
        "86.5 % to 99.9 %",
        "19.4 % to 99.4 %",
        "-",
    ]
    assert list(shown["notifies"]) == ["yes", "no: too often wrong", "no: not reviewed"]
    assert "2 of 3 groups of findings only record" in test.info[0].value


def test_a_site_that_tells_all_shows_no_banner(monkeypatch):
    class Loud(RecordedClient):
        def get(self, path, **parameters):
            answer = super().get(path, **parameters)
            return {**answer, "notifications": "all"} if path == "/v1/precision" else answer

    assert not open_page(monkeypatch, Loud(), "waste").info


def test_fragments_name_what_blocks_most_and_fold_the_rest(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, "fragments", pool="a", **SHORT)
    at = int((END.timestamp() - 3600) // 3600)
    values = [(at + number) % 7 + number / 2 for number in range(9)]
    found = metrics_of(test)
    assert (found["Free GPUs"], found["Usable"]) == (f"{sum(values):.0f}", f"{values[0]:.1f}".removesuffix(".0"))
    gangs = table(test, "x64")
    assert list(gangs["level"]) == ["node", "leaf", "cluster"]
    assert (list(gangs["x8"]), list(gangs["ratio"])) == ([8] * 3, [0.25] * 3)
    asked = [p for name, p in client.calls if name == "fragmentation_series"]
    assert {(p["pool"], p["measure"]) for p in asked} == {("a", "free"), ("a", "fgd_typical")}


def test_no_snapshot_is_not_the_same_as_no_fragments(monkeypatch):
    class Young(RecordedClient):
        def query(self, name, /, **parameters):
            found = super().query(name, **parameters)
            return found.slice(0, 0) if name == "fragmentation_series" else found

    test = open_page(monkeypatch, Young(), "fragments")
    assert "No snapshot of free GPUs is stored" in test.info[0].value
    assert not test.metric


def test_faults_name_their_jobs_and_what_they_cost(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, "health")
    assert ("/v1/findings", {"category": "health"}) in client.calls
    assert metrics_of(test)["Nodes"] == "1"
    shown = table(test, "jobs")
    assert (list(shown["jobs"]), list(shown["gang_gpus"]), list(shown["lost"])) == (["job-7 <b>, job-8"], [16], [96.5])
    assert list(table(test, "events")["kind"]) == ["node not ready", "XID"]


def test_the_network_is_shown_by_node_and_gang_and_what_was_not_told_is_not_zero(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "health")
    nodes = table(test, "network_use")
    assert (list(nodes["ports"]), list(nodes["sent"].dropna())) == (["4 / 4", "0 / 4"], [25.0])
    assert (list(nodes["network_use"].dropna()), list(nodes["link_downed"].dropna())) == ([0.5], [2])
    gangs = table(test, "told_nodes")
    assert (list(gangs["told_nodes"]), list(gangs["shared_nodes"]), list(gangs["sent"])) == (["2 / 2"], [1], [1.0])
    assert list(gangs["received"].dropna()) == []


def test_without_adapters_the_page_says_which_sources_read_them(monkeypatch):
    class Offline(RecordedClient):
        def query(self, name, /, **parameters):
            found = super().query(name, **parameters)
            return found.slice(0, 0) if name.startswith("fabric") else found

    assert "No network adapter was read" in texts_of(open_page(monkeypatch, Offline(), "health"))


def test_services_show_their_last_hour_with_prefill_and_decode_apart(monkeypatch):
    shown = table(open_page(monkeypatch, RecordedClient(), "health"), "first_token")
    assert (list(shown["role"]), list(shown["requests"].dropna())) == (["prefill", "decode"], [5.0])
    assert (list(shown["first_token"].dropna()), list(shown["output_token"].dropna())) == ([400.0], [25.0])
    assert (list(shown["cache_mean"]), list(shown["cache_most"])) == ([0.5] * 2, [0.9] * 2)


def test_without_servers_the_page_says_which_sources_read_them(monkeypatch):
    class Silent(RecordedClient):
        def query(self, name, /, **parameters):
            found = super().query(name, **parameters)
            return found.slice(0, 0) if name == "service_activity" else found

    assert "No server of models was read" in texts_of(open_page(monkeypatch, Silent(), "health"))


def test_what_was_observed_and_what_is_expected_are_told_apart(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "health")
    found = metrics_of(test)
    assert found["Failures in 1,000 node-days"].replace("\N{EN DASH}", "to") == "6.5 (3.5 to 11)"
    assert (found["ETTR, observed"], found["ETTR without queues, observed"], found["Goodput"]) == ("90.6 %", "-", "-")
    shown = table(test, "mttf")
    assert list(shown["mttf"]) == ["14 h 25 min", "14 min"]
    assert (list(shown["ettr"]), list(shown["model_note"])) == ([0.947, 0.0], ["-", "would not progress"])
    assert "not what was observed; the checkpoint interval is assumed" in texts_of(test)


def test_the_basis_page_says_what_moves(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "basis")
    assert metrics_of(test) == {"Change their state": "742 GPU-h", "Kinds of change": "2"}
    assert list(table(test, "shift")["shift"]) == [-230.0, 742.5, -512.5]
    answer = next(each.value for each in test.markdown if each.value.startswith("#####"))
    assert "512 GPU-h from Productive to Working, ungraded" in answer.replace("\\", "")


def test_a_long_period_is_not_judged_anew(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, "basis", period="30d")
    assert "at most 7 days" in test.info[0].value
    assert "/v1/basis-shift" not in {name for name, _ in client.calls}


def test_money_stands_beside_hours_and_what_has_no_price_costs_nothing_known(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, "money", by="tenant", price_basis="list")
    found = metrics_of(test)
    assert (found["GPU-hours"], found["Amount"]) == ("150 GPU-h", "1,234 CNY")
    assert (found["Without a price"], found["Converted card-hours"]) == ("50 GPU-h", "317 GPU-h")
    shown = table(test, "converted")
    assert list(shown["hours"]) == [100, 50]
    assert list(shown["amount"].dropna()) == [1234.5]
    assert list(table(test, "per_step")["per_step"]) == ["0.07 CNY"]
    (asked,) = [p for name, p in client.calls if name == "/v1/money"]
    assert (asked["by"], asked["price_basis"], asked["currency"]) == ("tenant", "list", "CNY")


@pytest.mark.parametrize("page", NEW)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_names_are_shown_as_text(monkeypatch, page, language):
    test = open_page(monkeypatch, RecordedClient(), page, lang=language, period="24h")
    assert "<script>" not in texts_of(test).replace("\\<", "")
    assert HOSTILE not in texts_of(test)
