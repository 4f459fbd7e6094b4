"""Prometheus text exposition, read line by line: a bad line costs itself and is counted.

Ours because `prometheus_client.parser` loses the whole page for one bad line (an unescaped quote in a label, a value
"ERROR - FAILED TO CONVERT TO STRING", a truncated last line), renames counters that lack `_total`, and reads a warm
page dozens of times slower (`benchmarks/exposition_parse.py` prints the ratio).
"""

from collector.exposition.lines import Series, parse_series, parse_value
from collector.exposition.parser import MAX_LINE_BYTES, MAX_SERIES, ColumnPage, ExpositionParser, Page

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_SERIES",
    "ColumnPage",
    "ExpositionParser",
    "Page",
    "Series",
    "parse_series",
    "parse_value",
]
