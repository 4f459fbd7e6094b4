"""Which metric of which server is which column of `EngineReading`, and what the labels of a series say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from collector.exposition import Series

_POD = ("exported_pod", "pod", "pod_name", "podname")
_NAMESPACE = ("exported_namespace", "namespace", "pod_namespace", "podnamespace")
_LONGEST_NAME = 400
"""Characters of a label value that are kept; a longer one is cut, so that no page makes rows that nobody takes."""


class Shape(Enum):
    """How several series of one column of one engine become one value.

    A gauge is the same state told by several processes: the greatest counts. A counter is told in parts (by reason, by
    kind of request): they are added up.
    """

    GAUGE = "gauge"
    RATIO = "ratio"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name without the server's prefix, the column that it fills, and the name that replaced it, if any."""

    name: str
    column: str
    shape: Shape
    replaced_by: str = ""


def histogram(name: str, column: str, replaced_by: str = "") -> tuple[Metric, Metric]:
    """The sum and the count of a histogram of seconds as the counters `<column>_seconds` and `<column>_count`."""
    return (
        Metric(f"{name}_sum", f"{column}_seconds", Shape.COUNTER, f"{replaced_by}_sum" if replaced_by else ""),
        Metric(f"{name}_count", f"{column}_count", Shape.COUNTER, f"{replaced_by}_count" if replaced_by else ""),
    )


@dataclass(frozen=True, slots=True)
class Rank:
    """Which of the processes that compute one engine together told a series; the least is believed."""

    pipeline: int = 0
    tensor: int = 0
    expert: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """What ranks are compared by."""
        return self.pipeline, self.tensor, self.expert


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """What one series means. Empty texts were not on it: the page, or the settings, may say them."""

    metric: Metric
    namespace: str
    pod: str
    model_name: str
    role: str
    engine: str
    rank: Rank


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of server names things.

    `prefixes` are tried in order. `engine_label` numbers the engines; a series without it is of engine 0.
    `role_label` tells prefill from decode, `rank_labels` are those of pipeline, tensor and expert parallel ranks; each
    may be empty where the server has none.
    """

    source: str
    prefixes: tuple[str, ...]
    metrics: tuple[Metric, ...]
    engine_label: str
    role_label: str = ""
    rank_labels: tuple[str, str, str] = ("", "", "")

    def reader(self) -> Callable[[Series], EngineSeries | None]:
        """A function that says what a series means, or None for one that is of no use here."""
        known = {prefix + metric.name: metric for metric in self.metrics for prefix in self.prefixes}
        return lambda series: self._read(known, series)

    def _read(self, known: Mapping[str, Metric], series: Series) -> EngineSeries | None:
        metric = known.get(series.name)
        if metric is None:
            return None
        labels = series.labels
        return EngineSeries(
            metric=metric,
            namespace=_first(labels, _NAMESPACE),
            pod=_first(labels, _POD),
            model_name=labels.get("model_name", "")[:_LONGEST_NAME],
            role=_role(labels.get(self.role_label, "")),
            engine=labels.get(self.engine_label, "")[:_LONGEST_NAME] or "0",
            rank=Rank(*(_number(labels.get(name, "")) for name in self.rank_labels)),
        )


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")[:_LONGEST_NAME]


def _role(text: str) -> str:
    """Prefill and decode are told apart; every other word for an engine means that it does both."""
    return text if text in ("", "prefill", "decode") else "unified"


def _number(text: str) -> int:
    """A rank as a number; what is none comes after every rank."""
    if not text:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 10**9
