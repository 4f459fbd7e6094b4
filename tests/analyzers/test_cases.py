"""Runs every case of tests/cases/*.yaml: records in, ledger built, rule or recommender run, answer compared.

A file names its `rule` or `recommender` and lists `cases`. A case has `name`, `given` (record: rows), `window`,
`options`, `ledger: false` where none is needed, and `expect`: `findings` or `recommendations` (as many as given, in
order, each with at least these fields) and `totals` (at least these). A row may carry `each` (field: values, one row a
value) and `every` (a time field, its step in seconds and a count, and by what counters rise with each).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.registry import resolve
from gpuledger.testing import FakeClock
from warehouse import Warehouse

CASES = Path(__file__).resolve().parents[1] / "cases"


def _load() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        for case in document["cases"]:
            kinds = {key: document[key] for key in ("rule", "recommender") if key in document}
            yield pytest.param({**kinds, **case}, id=f"{path.stem}: {case['name']}")


def _rows(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    row = {key: value for key, value in given.items() if key not in ("each", "every")}
    each = given.get("each", {})
    variants = [dict(zip(each, values, strict=True)) for values in zip(*each.values(), strict=True)] or [{}]
    every = given.get("every", {"field": None, "seconds": 0, "count": 1})
    for variant, i in itertools.product(variants, range(every["count"])):
        made = {**row, **variant}
        if every["field"]:
            made[every["field"]] += timedelta(seconds=i * every["seconds"])
        made.update({field: made[field] + i * step for field, step in every.get("step", {}).items()})
        yield made


def _matches(actual: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            held = actual[key] if isinstance(actual, Mapping) else getattr(actual, key)
            _matches(held, value, f"{path}.{key}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(actual) == len(expected), f"{path}: {actual}"
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            _matches(one, other, f"{path}[{i}]")
    elif isinstance(expected, bool) or not isinstance(expected, int | float):
        assert actual == expected, f"{path}: {actual!r}"
    else:
        assert actual == pytest.approx(expected, abs=1e-6), f"{path}: {actual!r}"


def _window(case: Mapping[str, Any]) -> Window:
    begin, end = (value if isinstance(value, datetime) else datetime.fromisoformat(value) for value in case["window"])
    return Window(begin, end)


@pytest.mark.parametrize("case", list(_load()))
def test_case(case: dict[str, Any]) -> None:
    window = _window(case)
    with Warehouse.open(None, clock=FakeClock(window.to_at + timedelta(days=1))) as house:
        for record, rows in case["given"].items():
            made = [RECORDS[record].cls(**row) for given in rows for row in _rows(given)]
            result = house.ingest(record, to_table(record, made), f"case-{record}")
            assert not result.rejected, result.rejected
        if case.get("ledger", True):
            assert house.build_ledger(window, until_at=window.to_at).violations == 0
        options = case.get("options", {})
        expect = case["expect"]
        if "rule" in case:
            found = resolve("rules", case["rule"])().run(house, window, options)
            _matches([dataclasses.asdict(finding) for finding in found.findings], expect["findings"], "findings")
            _matches(found.totals, expect.get("totals", {}), "totals")
            _check_bounds(found.findings)
        else:
            proposals = resolve("recommenders", case["recommender"])().recommend(house, window, options)
            _matches([dataclasses.asdict(one) for one in proposals], expect["recommendations"], "recommendations")


def _check_bounds(findings: Sequence[Any]) -> None:
    for finding in findings:
        assert 0 <= finding.gpu_hours_recoverable <= finding.gpu_hours_wasted + 1e-9
        assert finding.gpu_hours_wasted <= finding.gpu_hours_observed + 1e-9
        assert 0 <= finding.confidence <= 1
    assert len({finding.finding_id for finding in findings}) == len(findings), "two findings share an identity"
