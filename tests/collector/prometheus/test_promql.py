"""Text that goes to a server: no value from outside can end its own string."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.exposition import Series, parse_series
from collector.prometheus.promql import Matcher, duration, quote, selector
from gpuledger.errors import BadInput

# What a PromQL lexer takes as one double-quoted string: it ends at the first quote that no backslash precedes.
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def read_literal(text: str) -> str:
    """The string that a server reads."""
    match = LITERAL.fullmatch(text)
    assert match is not None, text
    return re.sub(
        r"\\(x[0-9a-f]{2}|.)",
        lambda found: chr(int(found[1][1:], 16)) if found[1][0] == "x" else UNESCAPED[found[1]],
        match[1],
    )


@given(st.text(st.characters(codec="utf-8")))
def test_a_server_reads_back_exactly_what_was_quoted(text: str) -> None:
    assert read_literal(quote(text)) == text


def test_what_no_text_can_hold_is_replaced() -> None:
    assert quote("a\ud800b") == '"a?b"'


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ('x"} or up{job="', r'"x\"} or up{job=\""'),
        ("'; DROP TABLE gpu_samples; --", '"\'; DROP TABLE gpu_samples; --"'),
        ("a\\", r'"a\\"'),
        ("two\nlines\t\x00", r'"two\nlines\t\x00"'),
        ("队列", '"队列"'),
    ],
)
def test_hostile_values(value: str, literal: str) -> None:
    assert quote(value) == literal


def test_the_shared_hostile_namespaces_stay_inside_their_string(shared) -> None:
    """Problem 163: drill-down text for each namespace selects by the value, whatever it holds."""
    hostile = []
    for line in (shared / "problems" / "163-label-injection.prom").read_bytes().splitlines():
        if line and not line.startswith(b"#"):
            series, _ = parse_series(line)
            hostile.append(series.labels["exported_namespace"])
    assert len(hostile) == 4
    for namespace in hostile:
        text = selector("DCGM_FI_DEV_GPU_UTIL", [Matcher("exported_namespace", "=", namespace)])
        begin = "DCGM_FI_DEV_GPU_UTIL{exported_namespace="
        assert text.startswith(begin)
        assert text.endswith("}")
        assert read_literal(text[len(begin) : -1]) == namespace
    assert r"x\"} or up{job=\"" in selector("m", [Matcher("exported_namespace", "=", hostile[0])])


def test_a_quoted_value_is_read_alike_by_our_own_parser() -> None:
    value = 'x"} or up{job="\\'
    series, _ = parse_series(selector("m", [Matcher("a", "=", value)]).encode())
    assert series == Series("m", {"a": value})


@pytest.mark.parametrize(
    ("text", "matcher"),
    [
        ("cluster=a", Matcher("cluster", "=", "a")),
        ("cluster!=a=b", Matcher("cluster", "!=", "a=b")),
        ("pod=~web-.*", Matcher("pod", "=~", "web-.*")),
        ('pod!~"quoted"', Matcher("pod", "!~", '"quoted"')),
        ("empty=", Matcher("empty", "=", "")),
    ],
)
def test_matchers_as_people_write_them(text: str, matcher: Matcher) -> None:
    assert Matcher.parse(text) == matcher


@pytest.mark.parametrize("text", ["", "cluster", "=a", "1a=b", "a b=c", '{a="b"}'])
def test_what_is_no_matcher_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match="match"):
        Matcher.parse(text)


def test_selectors_and_durations() -> None:
    assert selector("m") == "m"
    assert selector("", [Matcher("__name__", "=~", "a|b")]) == '{__name__=~"a|b"}'
    assert (duration(60_000), duration(59_999), duration(300_000)) == ("60s", "59999ms", "300s")
    with pytest.raises(BadInput, match="metric"):
        selector('m{a="b"} or up')
