"""Money over the API and the command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.app.conftest import NOW, Api, a_table

FROM, TO = NOW - timedelta(hours=4), NOW - timedelta(hours=2)
SPAN = {"from": FROM.isoformat(), "to": TO.isoformat()}


@pytest.fixture
def fleet(api: Api) -> Api:
    """Two H100 in service: two hours of two cards that nobody holds."""
    cards = [
        {"gpu_uuid": f"GPU-{n}", "node": "n0", "model": "H100", "status": "in_service", "from_at": FROM} for n in (0, 1)
    ]
    api.put("asset", a_table("asset", *cards), "cards")
    answer = api.http.post("/v1/ledger/build", params=SPAN)
    assert answer.json()["violations"] == 0
    return api


def put_price(api: Api, currency: str, model: str = "", amount: float = 10.0) -> None:
    row = {"model": model, "basis": "amortised", "price_per_gpu_hour": amount, "currency": currency, "from_at": FROM}
    assert api.put("price", a_table("price", row), f"{currency}{model}").status_code == 200


def test_money_is_a_view_on_the_same_hours(fleet: Api) -> None:
    empty = fleet.http.get("/v1/money", params=SPAN).json()
    assert (empty["currency"], empty["total"]["amount"], empty["total"]["unpriced_gpu_hours"]) == (None, None, 4.0)
    put_price(fleet, "CNY")
    answer = fleet.http.get("/v1/money", params={"by": "model", **SPAN}).json()
    assert (answer["currency"], answer["currencies"]) == ("CNY", ["CNY"])
    assert answer["total"] == {
        "gpu_hours": 4.0,
        "priced_gpu_hours": 4.0,
        "unpriced_gpu_hours": 0.0,
        "overlapping_gpu_hours": 0.0,
        "other_currency_gpu_hours": 0.0,
        "amount": 40.0,
    }
    assert {row["key"] for row in answer["rows"]} == {"H100"}
    assert answer["converted"]["reference"] == "A100"
    assert answer["converted"]["converted_gpu_hours"] == pytest.approx(4 * 989 / 312)
    assert (answer["findings"], answer["finding_totals"], answer["unit_costs"], answer["unpriced"]) == ([], {}, [], [])


def test_of_two_currencies_one_must_be_chosen(fleet: Api) -> None:
    put_price(fleet, "CNY")
    put_price(fleet, "USD", "H100", 2.0)
    refused = fleet.http.get("/v1/money", params=SPAN)
    assert (refused.status_code, refused.json()["field"]) == (400, "currency")
    assert "CNY, USD" in refused.json()["reason"]
    assert fleet.http.get("/v1/money", params={"currency": "USD", **SPAN}).json()["total"]["amount"] == 8.0
    other = fleet.http.get("/v1/money", params={"currency": "CNY", **SPAN}).json()["total"]
    assert (other["amount"], other["other_currency_gpu_hours"]) == (None, 4.0)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"price_basis": "market"}, "price_basis"),
        ({"by": "colour"}, "by"),
        ({"currency": "EUR"}, "currency"),
        ({"conversion_basis": "x"}, "conversion_basis"),
        ({"curency": "CNY"}, "curency"),
    ],
)
def test_a_wrong_parameter_is_named(fleet: Api, given: dict[str, str], field: str) -> None:
    refused = fleet.http.get("/v1/money", params={**given, **SPAN})
    assert (refused.status_code, refused.json()["field"]) == (400, field)


BOOK = """model,basis,price_per_gpu_hour,currency,from_at,until_at
,list,3,USD,2026-01-01,2026-02-01
,list,4,USD,2026-01-15,2026-03-01
,list,4,USD,2026-03-02,
,list,x,USD,2026-03-03,
"""


def test_a_book_is_imported_and_what_overlaps_is_told(cli, tmp_path: Path) -> None:
    book, warehouse = tmp_path / "book.csv", tmp_path / "w.duckdb"
    book.write_text(BOOK)
    done = cli("import", "prices", book, "--warehouse", warehouse, "--format", "json")
    assert done.code == 0, done.err
    assert (done.json["imported"], done.json["rejected"][0]["field"]) == ({"price": 3}, "line 5, price_per_gpu_hour")
    assert [row["problem"] for row in done.json["book_problems"]] == ["overlap", "gap"]
    again = cli("import", "prices", book, "--warehouse", warehouse, "--format", "json")
    assert again.json["imported"] == {"price": 3}
    span = ("--from", "2026-01-01", "--to", "2026-01-02")
    shown = cli("money", "--warehouse", warehouse, "--price-basis", "list", *span)
    assert shown.code == 0, shown.err
    assert "currency: USD" in shown.out
    assert "amount: -" in shown.out
