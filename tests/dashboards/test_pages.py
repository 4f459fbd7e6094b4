"""Every page, run as Streamlit runs it, against recorded answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboards import access, app
from dashboards.questions import hours
from gpuledger.errors import ConfigError, ServiceUnavailable
from gpuledger.testing import FakeClock
from tests.dashboards.recorded import END, HOSTILE, RecordedClient

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")

PAGES = tuple(app.QUESTIONS)


def open_page(monkeypatch, client, page="hours", clock=None, **query):
    st.cache_data.clear()
    st.cache_resource.clear()
    monkeypatch.delenv("GPULEDGER_TIMEZONE", raising=False)
    monkeypatch.setattr(access, "connect", lambda _url: client)
    monkeypatch.setattr(app, "SystemClock", lambda: clock or FakeClock(END))
    test = AppTest.from_string(f"from dashboards.app import main\nmain(first={page!r})", default_timeout=60)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    return test


def texts_of(test):
    kinds = ("title", "subheader", "markdown", "caption", "info", "warning", "error", "success", "text")
    return "\n".join(str(element.value) for kind in kinds for element in test.get(kind))


def metrics_of(test):
    return {metric.label: metric.value for metric in test.metric}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(monkeypatch, page, language):
    test = open_page(monkeypatch, RecordedClient(), page, lang=language)
    assert len(test.title) == 1
    assert not test.error


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_warehouse_says_what_is_missing(monkeypatch, page):
    test = open_page(monkeypatch, RecordedClient(is_empty=True), page)
    assert "start a collector" in texts_of(test)
    assert not [value for value in metrics_of(test).values() if value in {"0 GPU-h", "nan"}]
    assert "None" not in texts_of(test)


@pytest.mark.parametrize("page", ["hours", "waste"])
def test_a_tenant_that_holds_nothing_is_named_and_no_mean_is_zero(monkeypatch, page):
    test = open_page(monkeypatch, RecordedClient(), page, tenant="nobody")
    assert not test.metric
    assert test.info


def test_a_period_outside_the_ledger_says_what_it_covers(monkeypatch):
    dates = {"period": "days", "from": "2020-01-01", "to": "2020-01-07"}
    test = open_page(monkeypatch, RecordedClient(), "hours", **dates)
    assert "2026\\-03\\-02" in test.info[0].value


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ServiceUnavailable("no answer from <b>host</b>"), "did not answer"),
        (ConfigError("token: missing or wrong"), "Not allowed"),
    ],
)
def test_a_failing_and_a_refusing_service_look_different(monkeypatch, page, error, said):
    test = open_page(monkeypatch, RecordedClient(fails_with=error), page)
    assert (len(test.title), len(test.error)) == (1, 1)
    assert said in test.error[0].value
    assert "<b>" not in test.error[0].value


def test_figures_can_be_read_by_name(monkeypatch):
    found = metrics_of(open_page(monkeypatch, RecordedClient()))
    assert found["Inventory"] == "10,752 GPU-h"
    assert found["Productive"] == "3,394 GPU-h"
    assert found["Held, idle"] == "1,529 GPU-h"


@pytest.mark.parametrize(
    ("change", "good", "colour"),
    [
        (None, 1, "gray"),
        (0.02, 1, "green"),
        (-0.02, 1, "red"),
        (-0.02, -1, "green"),
        (0.02, -1, "red"),
        (0.02, 0, "gray"),
    ],
)
def test_only_a_change_that_matters_is_coloured(change, good, colour):
    assert hours._colour(change, good) == colour


def test_filters_travel_as_parameters_and_hostile_names_are_shown_as_text(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, tenant=HOSTILE, period="24h", tz="Asia/Shanghai")
    asked = [parameters for name, parameters in client.calls if name == "ledger_series"]
    assert [(each["tenant"], each["timezone"], each["bucket"]) for each in asked] == [
        (HOSTILE, "Asia/Shanghai", "hour")
    ]
    answer = next(str(each.value) for each in test.markdown if each.value.startswith("#####"))
    assert "\\<script\\>alert\\(1\\)\\</script\\>".replace("/", "\\/") in answer
    assert "<script>" not in answer.replace("\\<", "")
    assert metrics_of(test)["Held"] == "47 GPU-h"


def test_the_reader_changes_the_period_and_the_url_follows(monkeypatch):
    test = open_page(monkeypatch, RecordedClient())
    test.selectbox(key="period").select("24h").run()
    assert not test.exception
    assert test.query_params["period"] == "24h"
    assert metrics_of(test)["Inventory"] == "1,536 GPU-h"
    test.selectbox(key="tenant").select("ads").run()
    assert test.query_params["tenant"] == "ads"
    assert "Inventory" not in metrics_of(test)


def test_nonsense_in_the_url_falls_back(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), tz="Mars/Base", period="1y", lang="xx")
    assert metrics_of(test)["Inventory"] == "10,752 GPU-h"


def test_a_ledger_that_stopped_is_called_old(monkeypatch):
    clock = FakeClock(END)
    clock.advance(5 * 3600)
    test = open_page(monkeypatch, RecordedClient(), clock=clock)
    assert "5 h old" in test.warning[0].value


def test_the_entry_point_runs_as_a_script(monkeypatch):
    monkeypatch.setattr(access, "connect", lambda _url: RecordedClient())
    test = AppTest.from_file(str(Path(app.__file__)), default_timeout=60).run()
    assert not test.exception
    assert test.title[0].value == "Where did the hours go?"


def test_findings_are_filtered_and_explained(monkeypatch):
    client = RecordedClient()
    test = open_page(monkeypatch, client, "waste", rule="fragmentation", tenant="speech")
    assert ("/v1/findings", {}) in client.calls
    shown = texts_of(test)
    assert "Would change the verdict: a waiting or typical request shape" in shown
    assert metrics_of(test)["Findings"] == "1"


def test_a_search_without_a_match_says_so(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "gpu", q="<i>zzz</i>")
    assert "No GPU matches" in test.info[0].value
    assert "<i>" not in test.info[0].value


def test_one_gpu_is_chosen_by_url(monkeypatch):
    client = RecordedClient()
    open_page(monkeypatch, client, "gpu", q="node-03", gpu="GPU-0350c4e-77aa")
    asked = dict(client.calls)
    assert asked["gpu_list"] == {"text": "node-03", "limit_count": 200}
    assert asked["gpu_timeline"]["gpu_uuid"] == "GPU-0350c4e-77aa"


def test_differences_are_listed_by_kind(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "quality", kind="scheduler_count")
    assert metrics_of(test) == {"Differences": "2", "Nodes below 100 %": "1", "Unknown": "123 GPU-h"}
    assert list(test.dataframe[0].value["kind"]) == ["scheduler and assets list count differently"]


def test_what_lowers_trust_is_listed_by_kind_and_source(monkeypatch):
    test = open_page(monkeypatch, RecordedClient(), "quality")
    table = next(frame.value for frame in test.dataframe if "events" in frame.value)
    assert list(table["kind"]) == ["metric missing", "clocks apart", "never seen"]
    assert list(table["source"])[::2] == ["dcgm", "-"]
    assert list(table["events"]) == [1234] * 3
