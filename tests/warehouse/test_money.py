"""Money and converted card-hours: views on the ledger's hours, worked by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.model import RECORDS, Finding, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse
from warehouse.analysis import Analysis

AT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
NUMBERS = itertools.count()
SPAN = {"from_at": AT, "to_at": AT + 4 * HOUR}
ASKED = {"price_basis": "amortised", "currency": "CNY", **SPAN}
PARTS = ("priced_gpu_hours", "unpriced_gpu_hours", "overlapping_gpu_hours", "other_currency_gpu_hours")


def put(house: Warehouse, record: str, *rows: dict[str, Any]) -> None:
    table = to_table(record, [RECORDS[record].cls(**row) for row in rows])
    result = house.ingest(record, table, f"{record}-{next(NUMBERS)}")
    assert not result.rejected, result.rejected


def price(house: Warehouse, amount: float, model: str = "", tenant: str = "", **more: Any) -> None:
    given_ = {"basis": "amortised", "currency": "CNY", "from_at": AT} | more
    put(house, "price", {"model": model, "tenant": tenant, "price_per_gpu_hour": amount, **given_})


@pytest.fixture
def house(built: Warehouse) -> Warehouse:
    """The ledger of all tests, without a price, a step or a finding."""
    with built.writing() as cursor:
        for table in ("price", "conversion", "job_step", "finding", "claim"):
            cursor.execute(f"truncate {table}")
    return built


@pytest.fixture(scope="module")
def built() -> Iterator[Warehouse]:
    """For 4 hours: ads holds two H100, speech holds one A100 (half of it), nobody holds a T4."""
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as opened:
        cards = {"h0": "H100", "h1": "H100", "a0": "A100", "t0": "T4"}
        put(
            opened,
            "asset",
            *(
                {"gpu_uuid": card, "node": "n", "model": model, "status": "in_service", "from_at": AT}
                for card, model in cards.items()
            ),
        )
        shape = {"submitted_at": AT, "started_at": AT, "pod_count": 1, "gpu_milli": 1000, "cpu_milli": 0}
        for name, num_gpu in (("ads", 2), ("speech", 1)):
            row = {
                "workload_id": f"job-{name}",
                "tenant": name,
                "kind": "training",
                "num_gpu": num_gpu,
                "memory_mib": 0,
            }
            put(opened, "workload", row | shape)
        for card, name, share in (("h0", "ads", 1.0), ("h1", "ads", 1.0), ("a0", "speech", 0.5)):
            held = {"allocation_id": card, "workload_id": f"job-{name}", "pod": name, "node": "n", "gpu_uuid": card}
            put(opened, "allocation", held | {"share": share, "started_at": AT, "ready_at": AT})
        build = opened.build_ledger(Window(AT, AT + 4 * HOUR), until_at=AT + 4 * HOUR)
        assert build.violations == 0
        yield opened


def by_tenant(house: Warehouse, **asked: Any) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for row in house.query("money_by", by="tenant", **ASKED | asked).to_pylist():
        sums = found.setdefault(row["key"], dict.fromkeys((*PARTS, "gpu_hours"), 0.0) | {"amount": None})
        for name in (*PARTS, "gpu_hours"):
            sums[name] += row[name]
        if row["amount"] is not None:
            sums["amount"] = (sums["amount"] or 0) + row["amount"]
    return found


def test_without_a_price_book_hours_are_unpriced_and_never_cost_nothing(house: Warehouse) -> None:
    found = by_tenant(house)
    assert {name: (row["unpriced_gpu_hours"], row["amount"]) for name, row in found.items()} == {
        "ads": (8.0, None),
        "speech": (2.0, None),
        "": (6.0, None),
    }


def test_a_price_that_changes_inside_an_hour_counts_to_the_minute(house: Warehouse) -> None:
    price(house, 10, "H100")
    price(house, 20, "H100", from_at=AT + timedelta(minutes=90))
    ads = by_tenant(house)["ads"]
    assert ads["amount"] == pytest.approx(2 * (1.5 * 10 + 2.5 * 20), abs=1e-9)
    assert (ads["priced_gpu_hours"], ads["unpriced_gpu_hours"]) == pytest.approx((8.0, 0.0), abs=1e-9)


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ([(1, "", "")], (8, 2)),
        ([(1, "", ""), (2, "", "ads")], (16, 2)),
        ([(1, "", ""), (2, "", "ads"), (3, "H100", "")], (24, 2)),
        ([(1, "", ""), (2, "", "ads"), (3, "H100", ""), (4, "H100", "ads")], (32, 2)),
        ([(4, "H100", "speech"), (1, "", "speech")], (None, 2)),
        ([(0, "H100", "")], (0, None)),
    ],
)
def test_the_most_specific_price_wins(house: Warehouse, prices: Any, expected: Any) -> None:
    for one in prices:
        price(house, *one)
    found = by_tenant(house)
    assert (found["ads"]["amount"], found["speech"]["amount"]) == expected


def test_currencies_are_never_added(house: Warehouse) -> None:
    price(house, 10, "H100")
    price(house, 3, "A100", currency="USD")
    cny, usd = by_tenant(house), by_tenant(house, currency="USD")
    assert (cny["ads"]["amount"], usd["ads"]["amount"], usd["ads"]["other_currency_gpu_hours"]) == (80, None, 8)
    assert (cny["speech"]["amount"], cny["speech"]["other_currency_gpu_hours"]) == (None, 2)
    assert usd["speech"]["amount"] == 6
    rows = house.query("money_currencies", price_basis="amortised", **SPAN).to_pylist()
    assert rows == [{"currency": "CNY", "price_count": 1}, {"currency": "USD", "price_count": 1}]
    assert house.query("money_currencies", price_basis="list", **SPAN).num_rows == 0


def test_overlaps_and_holes_are_told_and_not_guessed(house: Warehouse) -> None:
    price(house, 10, "H100", until_at=AT + HOUR)
    price(house, 20, "H100", from_at=AT + 2 * HOUR, until_at=AT + 4 * HOUR)
    price(house, 30, "H100", from_at=AT + 3 * HOUR, until_at=AT + 4 * HOUR)
    ads = by_tenant(house)["ads"]
    assert ads["amount"] == pytest.approx(2 * 10 + 2 * 20)
    assert [ads[name] for name in PARTS] == pytest.approx([4, 2, 2, 0])
    book = house.query("money_book").to_pylist()
    assert [(row["problem"], row["problem_until_at"]) for row in book] == [
        ("gap", AT + 2 * HOUR),
        ("overlap", AT + 4 * HOUR),
        ("", None),
    ]
    told = house.query("money_unpriced", **ASKED).to_pylist()
    assert [(row["model"], row["tenant"], row["reason"], row["gpu_hours"]) for row in told] == [
        ("T4", "", "no_price", 4.0),
        ("A100", "", "no_price", 2.0),
        ("A100", "speech", "no_price", 2.0),
        ("H100", "ads", "no_price", 2.0),
        ("H100", "ads", "overlapping_prices", 2.0),
    ]
    assert (told[3]["first_at"], told[3]["last_at"]) == (AT + HOUR, AT + 2 * HOUR)


def test_a_price_that_outlasts_its_neighbour_overlaps_with_those_after_it(house: Warehouse) -> None:
    """The first lasts 8 hours; the second agrees with it, the third differs, the fourth begins after a hole."""
    price(house, 10, "H100", until_at=AT + 8 * HOUR)
    price(house, 10, "H100", from_at=AT + HOUR, until_at=AT + 2 * HOUR)
    price(house, 12, "H100", from_at=AT + 4 * HOUR, until_at=AT + 6 * HOUR)
    price(house, 10, "H100", from_at=AT + 9 * HOUR)
    book = house.query("money_book").to_pylist()
    assert [(row["problem"], row["problem_until_at"]) for row in book] == [
        ("overlap", AT + 6 * HOUR),
        ("", None),
        ("gap", AT + 9 * HOUR),
        ("", None),
    ]


def test_prices_that_overlap_and_agree_are_a_price(house: Warehouse) -> None:
    price(house, 10, "H100", until_at=AT + 3 * HOUR)
    price(house, 10, "H100", from_at=AT + 2 * HOUR)
    ads = by_tenant(house)["ads"]
    assert (ads["amount"], ads["overlapping_gpu_hours"]) == (80, 0)
    assert [row["problem"] for row in house.query("money_book").to_pylist()] == ["", ""]


def found(house: Warehouse, *windows: tuple[datetime, datetime, str]) -> list[str]:
    """Findings of one rule about the job of ads, each with its window and cause; their identities."""
    common: dict[str, Any] = {"analyzer": "r", "rule_id": "r", "rule_version": 1, "action_code": "notify", "basis": ""}
    common |= {"subject_kind": "job", "subject_id": "job-ads", "tenant": "ads", "confidence": 1.0}
    common |= dict.fromkeys(("gpu_hours_observed", "gpu_hours_wasted", "gpu_hours_recoverable"), 1.0)
    rows = [
        Finding(
            window_start=start, window_end=end, cause_code=cause, action_params={"workload_id": "job-ads"}, **common
        )
        for start, end, cause in windows
    ]
    spans = dict.fromkeys(("from_at", "since", "final_until_at", "analysed_until_at"), AT)
    house.save_analysis(Analysis(analyzer="r", rule_version=1, choices="", findings=rows, **spans))
    return [row.finding_id for row in rows]


def claim(house: Warehouse, start: datetime, *, cause: str = "c", seen: float = 1.0) -> None:
    """An hour of h0 that the rule claims, of which a part was observed."""
    texts = dict.fromkeys(("user", "queue", "kind", "slice_id", "basis"), "")
    row = {
        **texts,
        "analyzer": "r",
        "cause": cause,
        "subject_kind": "job",
        "subject_id": "job-ads",
        "workload_id": "job-ads",
        "tenant": "ads",
        "model": "H100",
        "gpu_uuid": "h0",
        "allocation_id": "h0",
        "node": "n",
        "state": "alloc_idle",
        "hour_at": start,
        "from_at": start,
        "until_at": start + HOUR,
        "gpu_hours": seen,
        "held_gpu_hours": 1.0,
        "is_shared": False,
        "observed_minutes": 60 * seen,
    }
    with house.writing() as cursor:
        cursor.register("staged", pa.Table.from_pylist([row]))
        cursor.execute("insert into claim by name from staged")
        cursor.unregister("staged")


def test_a_finding_costs_what_its_claims_do_at_the_price_of_each_minute(house: Warehouse) -> None:
    price(house, 10, "H100")
    price(house, 20, "H100", from_at=AT + timedelta(minutes=90))
    (finding,) = found(house, (AT, AT + 3 * HOUR, "c"))
    claim(house, AT)
    claim(house, AT + HOUR, seen=0.8)
    claim(house, AT + 2 * HOUR)
    (row,) = house.query("money_by_finding", **ASKED).to_pylist()
    assert row["finding_id"] == finding
    assert row["gpu_hours"] == pytest.approx(2.8)
    assert row["amount"] == pytest.approx(10 + 0.8 * (0.5 * 10 + 0.5 * 20) + 20)


def test_a_claim_proves_one_finding(house: Warehouse) -> None:
    """Two causes of one job take turns: their windows overlap, their claims do not count twice."""
    price(house, 10, "H100")
    ids = found(house, (AT, AT + 3 * HOUR, "x"), (AT + HOUR, AT + 4 * HOUR, "y"))
    for number, cause in enumerate("xyxy"):
        claim(house, AT + number * HOUR, cause=cause)
    rows = {row["finding_id"]: row["amount"] for row in house.query("money_by_finding", **ASKED).to_pylist()}
    assert rows == dict.fromkeys(ids, 20.0)


def test_a_finding_without_a_price_has_no_amount(house: Warehouse) -> None:
    found(house, (AT, AT + HOUR, "c"))
    claim(house, AT)
    (row,) = house.query("money_by_finding", **ASKED).to_pylist()
    assert (row["amount"], row["unpriced_gpu_hours"], row["priced_gpu_hours"]) == (None, 1.0, 0.0)
    later = {**ASKED, "from_at": AT + HOUR}
    assert house.query("money_by_finding", **later).num_rows == 0


def converted(house: Warehouse, basis: str, reference: str = "A100") -> dict[str, tuple[float, float | None, float]]:
    asked = {"by": "model", "price_basis": "amortised", "conversion_basis": basis, "reference": reference, **SPAN}
    sums: dict[str, tuple[float, float | None, float]] = {}
    for row in house.query("converted_hours", **asked).to_pylist():
        raw, other, none = sums.get(row["key"], (0.0, None, 0.0))
        more = row["converted_gpu_hours"]
        other = other if more is None else (other or 0.0) + more
        sums[row["key"]] = (raw + row["gpu_hours"], other, none + row["unconverted_gpu_hours"])
    return sums


def test_card_hours_are_converted_by_peaks_of_the_data_sheets(house: Warehouse) -> None:
    found_: dict[Any, Any] = dict(converted(house, "peak_bf16"))
    assert found_["H100"] == (8.0, pytest.approx(8 * 989 / 312), 0.0)
    assert found_["A100"] == (4.0, 4.0, 0.0)
    assert found_["T4"] == (4.0, None, 4.0)
    assert converted(house, "peak_bf16", "nonesuch")["H100"] == (8.0, None, 8.0)


def test_factors_of_the_owner_are_dated(house: Warehouse) -> None:
    put(house, "conversion", {"model": "H100", "basis": "owner", "factor": 2.0, "from_at": AT + HOUR})
    put(house, "conversion", {"model": "H100", "basis": "owner", "factor": 3.0, "from_at": AT + timedelta(minutes=150)})
    found_ = converted(house, "owner")
    assert found_["H100"] == pytest.approx((8.0, 2 * (1.5 * 2 + 1.5 * 3), 2.0))
    assert found_["A100"] == (4.0, None, 4.0)


def test_card_hours_are_converted_by_prices_of_one_currency(house: Warehouse) -> None:
    price(house, 5, "A100")
    price(house, 10, "H100")
    price(house, 15, "H100", from_at=AT + 3 * HOUR)
    price(house, 1, "T4", currency="USD")
    found_: dict[Any, Any] = dict(converted(house, "price"))
    assert found_["H100"] == (8.0, pytest.approx(2 * (3 * 2 + 3)), 0.0)
    assert found_["T4"] == (4.0, None, 4.0)


def test_steps_and_tokens_cost_the_hours_in_which_they_were_told(house: Warehouse) -> None:
    price(house, 10, "H100")
    steps = [
        {
            "workload_id": "job-ads",
            "rank": rank,
            "step": step,
            "ts": AT + timedelta(minutes=20 * step),
            "tokens": 4000.0,
        }
        for step in range(6)
        for rank in range(2)
    ]
    put(house, "job_step", *steps)
    (row,) = house.query("unit_cost", **ASKED).to_pylist()
    assert (row["model"], row["workload_count"], row["step_count"], row["gpu_hours"]) == ("H100", 1, 6, 4.0)
    assert row["gpu_hours_per_step"] == pytest.approx(4 / 6)
    assert row["amount_per_step"] == pytest.approx(40 / 6)
    assert row["amount_per_1000_tokens"] == pytest.approx(40 / 24)
    assert row["gpu_hours_per_1000_tokens"] == pytest.approx(4 / 24)


def test_unit_costs_abstain_where_something_is_not_known(house: Warehouse) -> None:
    put(house, "job_step", {"workload_id": "job-ads", "rank": 0, "step": 1, "ts": AT + HOUR})
    (row,) = house.query("unit_cost", **ASKED).to_pylist()
    assert (row["gpu_hours_per_step"], row["amount_per_step"]) == (2.0, None)
    assert (row["token_count"], row["gpu_hours_per_1000_tokens"], row["amount_per_1000_tokens"]) == (None, None, None)
    price(house, 10, "H100", until_at=AT + timedelta(minutes=90))
    (row,) = house.query("unit_cost", **ASKED).to_pylist()
    assert row["amount_per_step"] is None


PRICES = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.sampled_from(["", "H100", "A100"]),
        st.sampled_from(["", "ads", "speech"]),
        st.sampled_from(["CNY", "USD"]),
        st.integers(-2, 10),
        st.integers(1, 8),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prices=PRICES)
def test_whatever_the_book_says_every_hour_is_in_one_part(house: Warehouse, prices: Any) -> None:
    with house.writing() as cursor:
        cursor.execute("delete from price")
        cursor.execute("delete from batch where record = 'price'")
    for amount, model, tenant, currency, begin, length in prices:
        start = AT + begin * timedelta(minutes=25)
        price(
            house,
            amount,
            model,
            tenant,
            currency=currency,
            from_at=start,
            until_at=start + length * timedelta(minutes=35),
        )
    rows = house.query("money_by", by="tenant", **ASKED).to_pylist()
    plain = {
        (row["key"], row["state"]): row["gpu_hours"]
        for row in house.query("ledger_by", by="tenant", **SPAN).to_pylist()
    }
    assert {(row["key"], row["state"]): row["gpu_hours"] for row in rows} == pytest.approx(plain)
    for row in rows:
        assert sum(row[name] for name in PARTS) == pytest.approx(row["gpu_hours"])
        assert (row["amount"] is None) == (row["priced_gpu_hours"] == 0)
    missing = sum(row["gpu_hours"] for row in house.query("money_unpriced", **ASKED).to_pylist())
    assert missing == pytest.approx(sum(row[name] for row in rows for name in PARTS[1:]))
