"""The line-tolerant parser: every legal form, and what a bad line costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.exposition import ExpositionParser, Series, lines, parse_series
from collector.samples import NO_TIMESTAMP


def parser(**limits: Any) -> ExpositionParser[Series]:
    return ExpositionParser(lambda series: series, **limits)


def one(line: bytes) -> tuple[Series, float, int | None]:
    """The only sample of `line`, read cold and then warm with the same result."""
    reader = parser()
    cold, warm = reader.parse(line), reader.parse(line)
    assert (cold.skipped_lines, warm.skipped_lines) == (0, 0)
    assert repr(cold.samples) == repr(warm.samples)
    (sample,) = cold.samples
    return sample


@pytest.mark.parametrize(
    ("line", "name", "labels", "value", "timestamp"),
    [
        (b"up 1", "up", {}, 1.0, None),
        (b"up 1\r", "up", {}, 1.0, None),
        (b"up\t1", "up", {}, 1.0, None),
        (b"  up   1  ", "up", {}, 1.0, None),
        (b"up 1 1772442000000", "up", {}, 1.0, 1772442000000),
        (b"up 1 -5", "up", {}, 1.0, -5),
        (b'a:b_c{x="1"} 2.5e-3', "a:b_c", {"x": "1"}, 0.0025, None),
        (b'a{x="1"} 1e+010', "a", {"x": "1"}, 1e10, None),
        (b'a{x="1"}5', "a", {"x": "1"}, 5.0, None),
        (b'a {x="1"} 5', "a", {"x": "1"}, 5.0, None),
        (b'a{ x = "1" , y = "2" , } 5 7', "a", {"x": "1", "y": "2"}, 5.0, 7),
        (b"a{} 5", "a", {}, 5.0, None),
        (b'a{x="{b},c=d # no"} 5', "a", {"x": "{b},c=d # no"}, 5.0, None),
        (b'a{x="says \\"hi\\""} 5', "a", {"x": 'says "hi"'}, 5.0, None),
        (b'a{x="C:\\\\new\\nline"} 5', "a", {"x": "C:\\new\nline"}, 5.0, None),
        (b'a{x="\\d"} 5', "a", {"x": "\\d"}, 5.0, None),
        ('a{x="训练任务-🚀"} 5'.encode(), "a", {"x": "训练任务-🚀"}, 5.0, None),
        (b'{"a.b","x.y"="1"} 5', "a.b", {"x.y": "1"}, 5.0, None),
        (b'a{x="1 2"} 3', "a", {"x": "1 2"}, 3.0, None),
        (b"a 9223372036854775794", "a", {}, 2.0**63, None),
        (b"a -Inf", "a", {}, -math.inf, None),
    ],
)
def test_a_legal_line_is_read_cold_and_warm(line, name, labels, value, timestamp):
    assert one(line) == (Series(name, labels), value, timestamp)


def test_not_a_number_is_a_value():
    assert math.isnan(one(b"a NaN")[1])


@pytest.mark.parametrize(
    "line",
    [
        b'a{x="1}',
        b'a{x="say "hi""} 5',
        b"a{x=1} 5",
        b'a{x="1" y="2"} 5',
        b'a{x="1",x="2"} 5',
        b'a{x="1"}',
        b'a{x="1"} ',
        b'a{x="1"} ERROR - FAILED TO CONVERT TO STRING',
        b'a{x="1"} 1_000',
        b'a{x="1"} 5 6 7',
        b'a{x="1"} 5 6.5',
        b'a{x="1"} 5 1_0',
        b'a{x="1"} 5 +7',
        b'a{x="\xff"} 5',
        b'{x="1"} 5',
        b"9a 5",
        b"<html>",
    ],
)
def test_a_bad_line_costs_itself_and_is_counted(line):
    page = b'a{x="0"} 1\n' + line + b'\na{x="2"} 3\n'
    reader = parser()
    for _ in ("cold", "warm"):
        read = reader.parse(page)
        assert [value for _, value, _ in read.samples] == [1.0, 3.0]
        assert read.skipped_lines == 1


def test_a_known_series_with_a_bad_value_is_counted_when_warm():
    reader = parser()
    reader.parse(b'a{x="1"} 5\n')
    assert reader.parse(b'a{x="1"} 1_000\n').skipped_lines == 1
    assert reader.parse(b'a{x="1"} 1_000 7\n').skipped_lines == 1
    assert reader.parse(b'a{x="1"} N/A\n').skipped_lines == 1
    assert reader.parse(b'a{x="1"} 6\t7\n').samples == [(Series("a", {"x": "1"}), 6.0, 7)]


def test_comments_and_blank_lines_are_neither_samples_nor_bad():
    read = parser().parse(b"# HELP a b\n# TYPE a gauge\n\n   \n  # indented\n# EOF\n")
    assert (read.samples, read.skipped_lines) == ([], 0)


def test_a_label_of_ten_megabytes_is_refused_unread():
    seen: list[Series] = []
    reader: ExpositionParser[None] = ExpositionParser(seen.append)
    read = reader.parse(b'a{x="' + b"y" * 10_000_000 + b'"} 1\nb 2\n')
    assert read.skipped_lines == 1
    assert [series.name for series in seen] == ["b"]


def test_a_series_is_resolved_once():
    seen = []

    def resolve(series: Series) -> str:
        seen.append(series)
        return series.name

    reader = ExpositionParser(resolve)
    for page in (b'a{x="1"} 5\n', b'a{x="1"} 6\n', b'a{x="1"} 7 8\n', b'a{x="1"}\t9\n'):
        assert len(reader.parse(page).samples) == 1
    assert len(seen) == 1


def test_what_is_ignored_stays_ignored():
    reader: ExpositionParser[None] = ExpositionParser(lambda _: None)
    assert [reader.parse(b"a 1\na 2 3\n").samples for _ in range(2)] == [[], []]


def test_memory_is_bounded_and_values_still_come():
    reader = parser(max_series=10)
    page = b"".join(b'a{x="%d"} %d\n' % (number, number) for number in range(25))
    for _ in range(3):
        read = reader.parse(page)
        assert sum(value for _, value, _ in read.samples) == 300
        assert read.uncached_series == 15
    assert reader.remembered == 10
    # The ten of the last page stay for one page more; then there is room again.
    assert [reader.parse(b"b 1\n").uncached_series for _ in range(2)] == [1, 0]


def test_forty_labels_are_one_series():
    line = b"a{" + b",".join(b'label_%02d="v%d"' % (n, n) for n in range(40)) + b"} 55"
    series, value, _ = one(line)
    assert (len(series.labels), value) == (40, 55.0)


@given(st.binary(max_size=400))
def test_no_bytes_raise(page):
    reader = parser(max_series=3)
    first = reader.parse(page)
    assert repr(reader.parse(page).samples) == repr(first.samples)


@given(
    st.lists(
        st.sampled_from([b"a", b"{", b"}", b'"', b"=", b",", b" ", b"\\", b"\n", b"1", b"#", b"\r", b"\t", b"_", b"+"])
    )
)
def test_no_arrangement_of_the_special_bytes_raises_or_reads_differently_when_warm(parts):
    page = b"".join(parts)
    reader = parser()
    cold, warm = reader.parse(page), reader.parse(page)
    assert repr(cold) == repr(warm)


LABEL_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)


@pytest.mark.parametrize("text", [",", ",x", "", "a,b", ",,"])
def test_a_value_may_begin_with_a_comma(text):
    series, _, _ = one(f'a{{A="{text}",B="{text}"}} 1'.encode())
    assert series.labels == {"A": text, "B": text}


@given(
    st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), LABEL_TEXT, max_size=5),
    st.floats(),
)
def test_what_is_written_with_escapes_comes_back(labels, value):
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    body = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    series, read, _ = one(f"a{{{body}}} {value!r}".encode())
    assert series.labels == labels
    assert read == value or (math.isnan(read) and math.isnan(value))


def test_the_reference_parser_reads_the_same_page_the_same(recordings):
    page = (recordings / "h100_node.prom").read_bytes()
    expected = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    ]
    ours = [(series.name, dict(series.labels), value) for series, value, _ in parser().parse(page).samples]
    assert ours == expected


@pytest.mark.parametrize(
    "series", [b"a{}", b'a{x="1"}', b'a{x="1",y="2 3,}"}', 'a{x="训练"}'.encode(), b'a:b{_x="",y="#"}']
)
def test_the_short_way_and_the_long_way_agree(series):
    assert lines._PLAIN.match(series)
    assert parse_series(series + b" 5") == lines._parse_any_series(series + b" 5")


@pytest.mark.parametrize("series", [b'a{x="1",}', b'a{x="1"y="2"}', b"a{,}", b'a{x="\\n"}', b'a{ x="1"}', b"a"])
def test_the_short_way_leaves_everything_else_to_the_long_way(series):
    assert lines._PLAIN.match(series) is None


def test_position_after_the_series():
    series, end = parse_series(b'a{x="1"} 5')
    assert (series.labels, end) == ({"x": "1"}, 8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'a{x="1}', "not a label"),
        (b'a{x="say "hi""} 5', "labels are not closed"),
        (b"a{x=1} 5", "not a label"),
        (b'a{x="1",x="2"} 5', "a label twice"),
        (b'a{x="1\\t",x="2"} 5', "a label twice"),
        (b'{x="1"} 5', "no metric name"),
        (b"<html>", "no metric name"),
        (b'a{x="\xff"} 5', "not UTF-8"),
        (b'a{x="1"}', "no value"),
        (b'a{x="1"} ', "no value"),
        (b'a{x="1"} 1_000', "not a number"),
        (b'a{x="1"} ERROR - FAILED TO CONVERT TO STRING', "more than a value and a timestamp"),
        (b'a{x="1"} 5 6.5', "not a timestamp"),
        (b'a{x="1"} 5 6 7', "more than a value and a timestamp"),
        (b'a{x="0"} 7', "duplicate series"),
        (b"a{x='0'} 7", "not a label"),
    ],
)
def test_each_refusal_has_its_reason(line, reason):
    reader = parser()
    for _ in ("cold", "warm"):
        read = reader.parse(b'a{x="0"} 1\n' + line + b"\n")
        assert read.refused == {reason: 1}
        assert read.skipped_lines == 1
        assert [value for _, value, _ in read.samples] == [1.0]


def test_reasons_are_counted_apart():
    read = parser(max_line_bytes=40).parse(b"a 1\na 2\na 3\nb x\nc y\n" + b"d" * 41 + b" 1\n")
    assert read.refused == {"duplicate series": 2, "not a number": 2, "line too long": 1}
    assert read.skipped_lines == 5


def test_of_a_series_written_twice_the_first_counts_in_whatever_form():
    reader = parser()
    page = b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\na{ x="1" , y="2", } 3\na{x="1",y="2",} 4\n'
    for _ in ("cold", "warm"):
        read = reader.parse(page)
        assert read.samples == [(Series("a", {"x": "1", "y": "2"}), 1.0, None)]
        assert read.refused == {"duplicate series": 3}


def test_a_series_at_two_times_is_no_duplicate():
    reader = parser()
    for _ in ("cold", "warm"):
        read = reader.parse(b"a 1 1000\na 2 2000\na 3 1000\na 4\n")
        assert [(value, time) for _, value, time in read.samples] == [(1.0, 1000), (2.0, 2000), (4.0, None)]
        assert read.refused == {"duplicate series": 1}


def test_a_page_with_carriage_returns_reads_as_one_without():
    page = b'# TYPE a gauge\na{x="1"} 1.5e2\nb NaN\nc{y="2"} +Inf 1772442000000\n\nd -7\n'
    plain, reader = parser().parse(page), parser()
    for _ in ("cold", "warm"):
        read = reader.parse(page.replace(b"\n", b"\r\n"))
        assert repr(read) == repr(plain)
    assert [str(value) for _, value, _ in plain.samples] == ["150.0", "nan", "inf", "-7.0"]


@pytest.mark.parametrize(
    ("end", "in_seconds", "times"),
    [
        (b"", None, [1772442000]),
        (b"# EOF\n", None, [1772442000000, 1772442000500]),
        (b"# EOF", None, [1772442000000, 1772442000500]),
        (b"# EOF\r\n", None, [1772442000000, 1772442000500]),
        (b"# EOF\n", False, [1772442000]),
        (b"", True, [1772442000000, 1772442000500]),
        (b'a{x="# EOF"} 5 7\n', None, [1772442000, 7]),
    ],
)
def test_openmetrics_writes_seconds(end, in_seconds, times):
    reader = parser()
    for _ in ("cold", "warm"):
        read = reader.parse(b"a 1 1772442000\nb 2 1772442000.5\n" + end, in_seconds=in_seconds)
        assert [time for _, _, time in read.samples] == times


@pytest.mark.parametrize("time", [b"nan", b"inf", b"1e99", b"1_0", b"x", b"."])
def test_a_time_in_seconds_must_be_one(time):
    assert parser().parse(b"a 1 " + time + b"\n# EOF\n").refused == {"not a timestamp": 1}


def test_an_exemplar_says_nothing_about_the_sample():
    page = b'a_bucket{le="1"} 5 # {trace_id="x} y"} 0.67 123.4\nb 6 7 # {} 1\n'
    read = parser().parse(page + b"# EOF\n")
    assert [(series.name, value, time) for series, value, time in read.samples] == [
        ("a_bucket", 5.0, None),
        ("b", 6.0, 7000),
    ]
    assert parser().parse(page).skipped_lines == 2


def test_columns_say_the_same_as_rows():
    page = b'a{x="1"} 1\na{x="2"} 2 5\nignored 9\na{x="1"} 3\nbad\n'

    def resolve(series: Series) -> str | None:
        return None if series.name == "ignored" else series.labels["x"]

    by_row, by_column = ExpositionParser(resolve), ExpositionParser(resolve)
    for _ in ("cold", "warm"):
        rows, columns = by_row.parse(page), by_column.parse_columns(page)
        samples = columns.samples
        assert rows.samples == [("1", 1.0, None), ("2", 2.0, 5)]
        assert [samples.meanings[slot] for slot in samples.series] == ["1", "2"]
        assert samples.values.tolist() == [1.0, 2.0]
        assert samples.times_ms.tolist() == [NO_TIMESTAMP, 5]
        assert columns.refused == rows.refused == {"duplicate series": 1, "no value": 1}
        assert columns.skipped_lines == 2


def test_the_legal_lines_of_the_known_problem_read_as_its_readme_says(shared):
    read = parser().parse((shared / "problems/053-label-escapes.prom").read_bytes())
    assert read.skipped_lines == 0
    assert [value for _, value, _ in read.samples] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    texts = ["{plpgsql}", "a,b=c", 'say "hi"', "C:\\jobs\\x", "line1\nline2", "训练任务-🚀"]
    assert [text for series, _, _ in read.samples for text in series.labels.values() if text in texts] == texts


def test_six_legal_lines_of_our_own_read_as_written():
    texts = ["{plpgsql}", "a,b=c", 'say "hi"', "C:\\jobs\\x", "line1\nline2", "训练任务-🚀"]
    written = [text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in texts]
    page = "".join(f'm{{pod="{text}",}} {number}\n' for number, text in enumerate(written, 1)).encode()
    read = parser().parse(page)
    assert [series.labels["pod"] for series, _, _ in read.samples] == texts
    assert sum(value for _, value, _ in read.samples) == 21.0


@pytest.mark.parametrize("line", [b"\x0b", b"\x0c# no comment", b"\x00"])
def test_other_white_space_is_neither_blank_nor_comment(line):
    assert parser().parse(line).refused.total() == 1
