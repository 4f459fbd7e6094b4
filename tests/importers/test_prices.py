"""Price books: every good line is kept, every bad one is named by line, column and reason."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.errors import BadInput, BadRecord
from gpuledger.registry import resolve

HEADER = "model,tenant,basis,price_per_gpu_hour,currency,from_at,until_at\n"
GOOD = "NVIDIA H100 80GB HBM3,ads,amortised,12.5,CNY,2026-03-01,2026-04-01T00:00:00+08:00\n"


def written(folder: Path, text: str, name: str = "book.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def kept(path: Path) -> tuple[dict[str, list[dict[str, Any]]], list[tuple[int, str, str]]]:
    """What is kept, and what is refused after it."""
    found: dict[str, list[dict[str, Any]]] = {}
    tables = resolve("importers", "prices")(file=path)
    while True:
        try:
            name, table = next(tables)
        except StopIteration:
            return found, []
        except BadRecord as error:
            return found, list(error.rejected)
        found[name] = table.to_pylist()


def test_a_line_is_a_dated_price_of_a_model_and_tenant(tmp_path: Path) -> None:
    found, bad = kept(written(tmp_path, "\ufeff" + HEADER + GOOD + ",,list,0,USD,2026-03-01T06:00:00Z,\n"))
    assert not bad
    assert found["price"] == [
        {
            "model": "H100",
            "tenant": "ads",
            "basis": "amortised",
            "price_per_gpu_hour": 12.5,
            "currency": "CNY",
            "from_at": datetime(2026, 3, 1, tzinfo=UTC),
            "until_at": datetime(2026, 3, 31, 16, tzinfo=UTC),
        },
        {
            "model": "",
            "tenant": "",
            "basis": "list",
            "price_per_gpu_hour": 0.0,
            "currency": "USD",
            "from_at": datetime(2026, 3, 1, 6, tzinfo=UTC),
            "until_at": None,
        },
    ]


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("H100,,market,1,CNY,2026-03-01,", "basis"),
        ("H100,,,1,CNY,2026-03-01,", "basis"),
        ("H100,,list,-1,CNY,2026-03-01,", "price_per_gpu_hour"),
        ("H100,,list,1e999,CNY,2026-03-01,", "price_per_gpu_hour"),
        ("H100,,list,nan,CNY,2026-03-01,", "price_per_gpu_hour"),
        ("H100,,list,,CNY,2026-03-01,", "price_per_gpu_hour"),
        ("H100,,list,1,yuan,2026-03-01,", "currency"),
        ("H100,,list,1,cny,2026-03-01,", "currency"),
        ("H100,,list,1,CNY,2026-13-01,", "from_at"),
        ("H100,,list,1,CNY,2026-03-01T00:00:00,", "from_at"),
        ("H100,,list,1,CNY,2026-03-01,2026-03-01", "until_at"),
        ("H100,,list,1,CNY,2026-03-01", None),
        ("H100,ads,amortised,9,CNY,2026-03-01,", "from_at"),
    ],
)
def test_a_bad_line_costs_itself(tmp_path: Path, line: str, column: str | None) -> None:
    found, bad = kept(written(tmp_path, f"{HEADER}{GOOD}{line}\n{GOOD.replace('ads', 'speech')}"))
    assert [row["tenant"] for row in found["price"]] == ["ads", "speech"]
    ((row, place, reason),) = bad
    assert (row, place) == (3, f"line 3, {column}" if column else "line 3")
    assert reason


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("tenant", "tennant"), "'tennant' is not known here"),
        (HEADER.replace("tenant", "model"), "'model' stands twice"),
        (HEADER.replace("tenant", "factor"), "'price_per_gpu_hour' is not known here"),
    ],
)
def test_a_column_that_is_not_known_is_no_price_for_everybody(tmp_path: Path, header: str, message: str) -> None:
    assert header != HEADER
    with pytest.raises(BadInput) as caught:
        kept(written(tmp_path, header + GOOD))
    assert message in str(caught.value)


def test_factors_are_told_from_prices_by_their_header(tmp_path: Path) -> None:
    text = "model,basis,factor,from_at\nH100,owner,2.5,2026-03-01\n,owner,1,2026-03-01\nA100,owner,0,2026-03-01\n"
    found, bad = kept(written(tmp_path, text))
    assert [(row["model"], row["factor"]) for row in found["conversion"]] == [("H100", 2.5)]
    assert [(row, place) for row, place, _ in bad] == [(3, "line 3, model"), (4, "line 4, factor")]


def test_a_spreadsheets_quoted_header_and_other_encoding(tmp_path: Path) -> None:
    found, bad = kept(written(tmp_path, '"model","basis","factor","from_at"\n"H100",owner,2.5,2026-03-01\n'))
    assert (found["conversion"][0]["factor"], bad) == (2.5, [])
    book = tmp_path / "gbk.csv"
    book.write_bytes(f"{HEADER}{GOOD}H100,\u8bed\u97f3,list,1,CNY,2026-03-01,\n".encode("gbk"))
    found, bad = kept(book)
    assert [row["tenant"] for row in found["price"]] == ["ads"], "a name that cannot be read prices nobody"
    assert [(row, place) for row, place, _ in bad] == [(3, "line 3, tenant")]


def test_a_number_that_no_float_holds_costs_its_table(tmp_path: Path) -> None:
    huge = "1" + "0" * 400
    text = f'[[price]]\nbasis = "list"\ncurrency = "CNY"\nfrom_at = 2026-03-01\nprice_per_gpu_hour = {huge}\n'
    _, bad = kept(written(tmp_path, text, "book.toml"))
    assert [(row, place) for row, place, _ in bad] == [(1, "line 1, price_per_gpu_hour")]


TOML = """# the book
[[price]]
model = "H100"
basis = "list"
price_per_gpu_hour = 3
currency = "USD"
from_at = 2026-03-01

[[conversion]]
model = "H100"
basis = "owner"
factor = 2.5
from_at = 2026-03-01T00:00:00+08:00

[[price]]
tenant = 7
basis = "list"
price_per_gpu_hour = true
currency = "USD"
from_at = "2026-03-01"

[[price]]
colour = "red"
"""


def test_a_book_in_toml_names_the_line_of_the_table(tmp_path: Path) -> None:
    found, bad = kept(written(tmp_path, TOML, "book.toml"))
    assert [(row["model"], row["price_per_gpu_hour"]) for row in found["price"]] == [("H100", 3.0)]
    assert found["conversion"][0]["from_at"] == datetime(2026, 2, 28, 16, tzinfo=UTC)
    assert [(row, place) for row, place, _ in bad] == [(15, "line 15, tenant"), (22, "line 22, colour")]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("book.toml", "[[price]\n", "file"),
        ("book.toml", "[price]\nmodel = 'a'\n", "price"),
        ("book.toml", "[[prise]]\n", "prise"),
        ("book.csv", "model,price\n", "line 1"),
        ("book.csv", "", "line 1"),
    ],
)
def test_a_file_that_is_no_book_is_refused_whole(tmp_path: Path, name: str, text: str, place: str) -> None:
    with pytest.raises(BadInput) as refused:
        list(resolve("importers", "prices")(file=written(tmp_path, text, name)))
    assert refused.value.field == place
    with pytest.raises(BadInput, match="cannot be read"):
        list(resolve("importers", "prices")(file=tmp_path / "absent.csv"))
