"""Answers as columns: the fast way and the general way say the same, and what is no answer is an error with a name."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.prometheus import answer
from collector.prometheus.answer import labels_of, parse
from gpuledger.errors import SourceError
from tests.collector.prometheus.stub import matrix

texts = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.one_of(st.floats(width=64).map(repr), st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1e+06", "97.25"]))
rows = st.lists(st.tuples(st.integers(0, 2 * 10**9), values), min_size=1, max_size=6)
series = st.lists(st.tuples(st.dictionaries(texts, texts, max_size=3), rows), max_size=5)


def read(text: str) -> float:
    return float(text.replace("Inf", "inf"))


@settings(deadline=None)
@given(series)
def test_a_compact_answer_is_read_fast_and_exactly(held) -> None:
    body = matrix(held)
    fast = answer._cut(body)
    assert fast is not None
    assert [labels_of(text) for text in fast.labels] == [labels for labels, _ in held]
    assert fast.lengths.tolist() == [len(points) for _, points in held]
    assert fast.times_ms.tolist() == [at * 1000 for _, points in held for at, _ in points]
    expected = np.array([read(value) for _, points in held for _, value in points])
    np.testing.assert_array_equal(fast.values, expected)


@settings(deadline=None)
@given(series, st.sampled_from([None, 1]))
def test_both_ways_give_the_same(held, indent) -> None:
    document = json.loads(matrix(held, warnings=["w"], infos=["i"]))
    fast, slow = parse(matrix(held, warnings=["w"], infos=["i"])), parse(json.dumps(document, indent=indent).encode())
    np.testing.assert_array_equal(fast.values, slow.values)
    np.testing.assert_array_equal(fast.times_ms, slow.times_ms)
    np.testing.assert_array_equal(fast.lengths, slow.lengths)
    assert list(fast.series()) == list(slow.series())
    assert tuple(fast.warnings) == tuple(slow.warnings) == ("w", "i")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_source_error(body: bytes) -> None:
    with contextlib.suppress(SourceError):
        found = parse(b'{"status":"success","data":{"resultType":"matrix","result":[' + body)
        assert len(found.values) == len(found.times_ms) == found.lengths.sum()


@settings(deadline=None)
@given(series.filter(bool), st.data())
def test_a_truncated_answer_is_an_error_and_never_fewer_samples(held, data) -> None:
    body = matrix(held)
    with pytest.raises(SourceError):
        parse(body[: data.draw(st.integers(0, len(body) - 1))])


def test_labels_that_look_like_the_text_around_them() -> None:
    labels = {"a": '},"values":[[1,"2"]]},{"metric":{', "b": '"resultType":"matrix","result":[', "c": "]]}"}
    found = parse(matrix([(labels, [(1.5, "2")]), ({"d": "e"}, [(2, "3")])]))
    assert list(found.series()) == [labels, {"d": "e"}]
    assert found.times_ms.tolist() == [1500, 2000]
    assert found.values.tolist() == [2.0, 3.0]


def test_vectors_scalars_and_empty_answers() -> None:
    vector = parse(
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[7.25,"NaN"]}]}}'
    )
    assert (list(vector.series()), vector.times_ms.tolist()) == ([{"a": "b"}], [7250])
    assert math.isnan(vector.values[0])
    scalar = parse(b'{"status":"success","data":{"resultType":"scalar","result":[7,"1"]}}')
    assert (list(scalar.series()), scalar.values.tolist()) == ([{}], [1.0])
    assert len(parse(matrix([])).values) == 0


def test_histograms_are_left_out_and_lose_nothing_else() -> None:
    body = json.loads(matrix([({"a": "1"}, [(1, "2")]), ({"a": "2"}, [(1, "3")])]))
    body["data"]["result"].insert(1, {"metric": {"a": "h"}, "histograms": [[1, {"count": "4", "sum": "5"}]]})
    body["data"]["result"][0]["histograms"] = [[2, {"count": "4", "sum": "5"}]]
    found = parse(json.dumps(body, separators=(",", ":")).encode())
    assert found.lengths.tolist() == [1, 0, 1]
    assert found.values.tolist() == [2.0, 3.0]


def test_partial_answers_say_so() -> None:
    assert parse(matrix([], warnings=["a store is away"], infos=["x"])).warnings == ("a store is away", "x")
    assert parse(matrix([], isPartial=True)).warnings == ("the answer is partial",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"status":"error","errorType":"timeout","error":"query timed out"}', "timeout: query timed out"),
        (b"<html>sign in</html>", "no JSON"),
        (b"[]", "not of the query API"),
        (b'{"status":"success"}', "no result"),
        (b'{"status":"success","data":{"resultType":"streams","result":[]}}', "streams"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"]]}]}}', "'x'"),
        (
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2","3"]]}]}}',
            "many",
        ),
        (
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1e300,"3"]]}]}}',
            "time",
        ),
    ],
)
def test_what_is_no_answer_is_an_error_that_says_why(body: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        parse(body)


def test_the_shared_errors_and_forms(shared) -> None:
    held = json.loads((shared / "fixtures/exposition/prom_query_range_and_errors.json").read_text())
    found = parse(json.dumps(held["range_ok"]).encode())
    assert list(found.series()) == [{"UUID": "GPU-a"}]
    assert found.times_ms.tolist() == [1718000000000, 1718000030000, 1718000120000]
    assert found.values.tolist() == [97.0, 98.0, 12.0]
    assert found.warnings == ("PromQL warning: example",)
    scalar = parse(json.dumps(held["scalar"]).encode())
    assert (scalar.times_ms.tolist(), scalar.values.tolist()) == ([1718000000500], [1.0])
    with pytest.raises(SourceError, match="bad_data: exceeded maximum resolution of 11,000 points"):
        parse(json.dumps(held["too_many_points"]).encode())
    with pytest.raises(SourceError, match="timeout: query timed out in expression evaluation"):
        parse(json.dumps(held["timeout"]).encode())
