"""The InfiniBand part of node_exporter's page, whose byte counters are bytes already."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from collector.exposition import ExpositionParser, Series
from collector.fabric.counters import COUNTERS, Counter
from collector.fabric.ports import MAX_BITS_PER_SECOND, MAX_NAME, Port, Reader
from gpuledger.ports import Observation

PREFIX = "node_infiniband_"
UNAME = "node_uname_info"
MAX_SERIES = 20_000
RATE, STATE, PHYSICAL_STATE = "rate_bytes_per_second", "state_id", "physical_state_id"
_BITS = 8

_COUNTERS = {counter.metric: counter for counter in COUNTERS}
_LATER = {counter.later_metric: counter for counter in COUNTERS if counter.later_metric}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a series says: the metric's name without its prefix, and of which port; or the node's own name."""

    metric: str
    device: str = ""
    port: str = ""
    nodename: str = ""


class Target:
    """What is remembered between the pages of one endpoint. `node` stands over what the page says of its node."""

    def __init__(
        self,
        *,
        node: str | None = None,
        fallback_node: str = "unknown",
        name: str = "unknown",
        interval_seconds: float = 15.0,
        max_series: int = MAX_SERIES,
    ) -> None:
        self.parser: ExpositionParser[Meaning] = ExpositionParser(_meaning, max_series=max_series)
        self.reader = Reader(node or fallback_node, "node_exporter", name, interval_seconds)
        self._is_given = node is not None

    def learn(self, nodename: str) -> None:
        """The page's word on which node it is of."""
        if not self._is_given and 0 < len(nodename) <= 253 and nodename.isprintable():
            self.reader.node = nodename


def _meaning(series: Series) -> Meaning | None:
    if series.name == UNAME:
        return Meaning(UNAME, nodename=series.labels.get("nodename", ""))
    metric = series.name.removeprefix(PREFIX)
    if metric == series.name or metric not in (*_COUNTERS, *_LATER, RATE, STATE, PHYSICAL_STATE):
        return None
    device, port = series.labels.get("device", ""), series.labels.get("port", "")
    if not (0 < len(device) <= MAX_NAME and 0 < len(port) <= MAX_NAME):
        return None
    return Meaning(metric, device, port)


def parse(content: bytes, now: datetime, target: Target | None = None) -> Observation:
    """One row for each port on the page. Never raises. Of a value that stands twice for one port the first counts."""
    target = target or Target()
    page = target.parser.parse(content)
    reader = target.reader
    reader.wrong.update({("refused_line", why): count for why, count in page.refused.items()})
    if page.uncached_series:
        reader.wrong["too_many_series", "lines beyond the cap of remembered series"] += page.uncached_series
    ports: dict[tuple[str, str], Port] = {}
    seen: set[Meaning] = set()
    for meaning, value, _ in page.samples:
        if meaning.metric == UNAME:
            target.learn(meaning.nodename)
        elif meaning in seen:
            reader.wrong["repeated_sample", "one counter of a port twice"] += 1
        else:
            seen.add(meaning)
            port = ports.setdefault((meaning.device, meaning.port), Port(meaning.device, meaning.port))
            _take(port, meaning.metric, value, reader)
    return reader.observed(ports, now, skipped_lines=page.skipped_lines)


def _take(port: Port, metric: str, value: float, reader: Reader) -> None:
    if not math.isfinite(value) or value < 0:
        reader.wrong["rejected_value", f"{metric} of a port is no measurement"] += 1
    elif metric == RATE:
        if value * _BITS > MAX_BITS_PER_SECOND:
            reader.wrong["rejected_value", f"{metric} of a port is no measurement"] += 1
        else:
            port.rate_bits_per_second = value * _BITS
    elif metric == STATE:
        port.state = int(value)
    elif metric == PHYSICAL_STATE:
        port.physical_state = int(value)
    elif metric in _COUNTERS:
        port.counts[_COUNTERS[metric].column] = _in_kernels_unit(value, _COUNTERS[metric])
    else:
        port.later[_LATER[metric].column] = _in_kernels_unit(value, _LATER[metric])


def _in_kernels_unit(value: float, counter: Counter) -> int:
    """The kernel's count: whole words, where a data counter stands in bytes. Beyond 2^53 the page has lost digits."""
    return int(value) // counter.unit_bytes
