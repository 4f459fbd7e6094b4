from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser

import pytest

from gpuledger import registry
from gpuledger.model import Window
from reports.weekly import WeeklyReport
from tests.dashboards.recorded import END, HOSTILE, RecordedClient

WEEK = Window(END - timedelta(days=7), END)


class Outline(HTMLParser):
    """Tags, attributes and text of a document; complains about what is not closed."""

    _VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.ids, self.texts, self.links, self.open = [], [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found and tag == "section" else []
        self.links += [value for name, value in attrs if name in {"href", "src", "xlink:href", "action"}]
        assert not [name for name in found if name.startswith("on")]
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@cache
def rendered(window=WEEK, **options):
    return WeeklyReport().render(RecordedClient(), window, **options)


def render(client=None, **options):
    html = WeeklyReport().render(client, WEEK, **options) if client is not None else rendered(**options)
    outline = Outline(html)
    assert outline.open == []
    assert "script" not in outline.tags
    assert outline.links == []
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    return html, outline, " ".join(" ".join(outline.texts).split())


def test_the_registry_names_it():
    assert registry.resolve("reports", "weekly") is WeeklyReport


def test_the_fleets_report_answers_shows_and_explains():
    html, outline, text = render()
    assert outline.ids == ["waterfall", "daily", "tenants", "rates", "findings", "inventory", "coverage"]
    assert "Of 10,752 GPU-h of inventory" in text
    assert "31.6 % (3,394 GPU-h) worked productively" in text
    assert "Provisional: 108 GPU-h of this period may still change" in text
    assert "Coverage 98.2 %" in text
    assert outline.tags.count("article") == 3
    assert "18 rows in all; the first 3 are shown." in text
    assert "sum(alloc_*) / (inventory - unavailable)" in text
    assert "in service, not reporting" in text
    assert "ledger_by, ledger_series" in text
    assert "@page { size: A4" in html


def test_a_rate_with_nothing_to_divide_by_has_no_value():
    html, _, _ = render()
    row = re.search(r"<tr><td>MFU</td><td class=\"number\">(.*?)</td><td class=\"number\">(.*?)</td>", html)
    assert row is not None
    assert row.groups() == ("-", "0")


def test_one_tenants_report_shows_only_that_tenant():
    client = RecordedClient()
    _, outline, text = render(client, tenant="ads")
    assert outline.ids == ["waterfall", "daily", "tenants", "findings", "inventory"]
    assert "Of 742 GPU-h held by ads" in text
    assert "research" not in text
    asked = dict(client.calls)
    assert asked["ledger_series"]["tenant"] == asked["finding_list"]["tenant"] == "ads"


def test_hostile_names_are_text_everywhere():
    html, outline, text = render(tenant=HOSTILE)
    assert " ".join(HOSTILE.split()) in text
    assert "<script>" not in html.lower()
    assert "tbody" in outline.tags
    _, fleet, _ = render()
    assert "script" not in fleet.tags


def test_chinese_is_written_for_its_readers():
    html, _, text = render(language="zh", timezone="Asia/Shanghai")
    assert '<html lang="zh-CN">' in html
    for word in ("卡时去哪了", "空闲占卡", "碎片", "有效利用率", "口径与查询", "Asia/Shanghai"):
        assert word in text


def test_an_empty_warehouse_gives_a_valid_report_that_says_what_is_missing():
    html, outline, text = render(RecordedClient(is_empty=True))
    assert outline.ids[0] == "missing"
    assert "no assets list was imported and no collector has sent a reading" in text
    assert "svg" not in outline.tags
    assert "None" not in text
    assert "NaN" not in html


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": Window(END, END + timedelta(days=7))}, "holds no GPU-hour for 2026-03-16"),
        ({"tenant": "nobody"}, "Tenant nobody held no GPU in"),
    ],
)
def test_a_period_or_tenant_without_hours_is_said_to_be_so(options, said):
    _, outline, text = render(**options)
    assert outline.ids[0] == "missing"
    assert said in text
    assert "The ledger as a whole covers 2026-03-02" in text


def test_the_same_figures_give_the_same_bytes():
    assert render(RecordedClient(), tenant="ads")[0] == render(RecordedClient(), tenant="ads")[0]


class Advised(RecordedClient):
    """A client whose largest finding by hours is advice, and that counts it by category."""

    def query(self, name, /, **parameters):
        table = super().query(name, **parameters)
        rows = table.to_pylist()
        if name == "finding_list":
            rows[0] |= {
                "category": "advice",
                "gpu_hours_wasted": 0.0,
                "gpu_hours_observed": 9e5,
                "subject_id": "slow-job",
            }
        if name == "findings_by_category":
            told = {"finding_count": 1, "open_count": 1, "gpu_hours_wasted": 0.0, "gpu_hours_lost": 0.0}
            rows.append({"category": "advice", **told, "gpu_hours_observed": 9e5})
        return table.from_pylist(rows)


def test_advice_stands_outside_waste():
    html, outline, text = render(Advised())
    assert outline.ids[outline.ids.index("findings") + 1] == "aside"
    counted, aside = html.split('<section id="aside">')
    assert "slow-job" not in counted
    assert "slow-job" in aside
    assert "17 rows in all; the first 3 are shown." in text
    assert re.search(r"Advice</td><td[^>]*>1</td><td[^>]*>1</td><td[^>]*>900,000 GPU-h", html)


class Unpriced(RecordedClient):
    """A client of a site without a price book."""

    def query(self, name, /, **parameters):
        table = super().query(name, **parameters)
        return table.slice(0, 0) if name == "money_currencies" else table


def test_money_stands_beside_hours_by_currency_and_only_where_there_are_prices():
    _, _, text = render()
    assert "6,000 CNY, 6,000 USD" in text, "of three priced findings; currencies are not added"
    assert "Amount - " in text, "what has no price costs nothing known"
    assert "Amounts: amortised prices at each hour" in text
    _, _, text = render(Unpriced())
    assert "Amount" not in text
    assert "CNY" not in text


def test_a_tenants_report_has_no_other_tenants_money():
    _, _, text = render(tenant="ads")
    assert "CNY" not in text
