"""Which metrics to ask for, and what to ask of each over a step: a mean where there is one, else what loses nothing.

A reading for a step stands for [t, t + step). Every window therefore ends a millisecond before t + step is asked for,
and never reaches outside its step: a series that has ended is not in the answer, whereas a bare selector would go on
showing its last value for five minutes and a dead exporter would look alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from collector.devices.fields import HOLDER_COLUMNS, Field
from collector.exporters import device_field, mapped_holder_labels, mapped_names, names_holders_only
from collector.kube_state_metrics.book import METRICS as POD_AND_NODE_METRICS
from collector.prometheus.promql import Matcher, duration, selector

_PATTERNS = ("DCGM_.+", "dcgm_.+", "nvidia_gpu_.+", "kube_pod_.+", "kube_node_.+")
NAMES = Matcher("__name__", "=~", "|".join((*_PATTERNS, *mapped_names())))
"""Names that may mean something here; which of them a server has is asked before."""

KUBE_STEP_MS = 60_000
"""What is known of pods is asked this often at most: their times stand in the values, not in the samples."""


class Reduction(StrEnum):
    """What stands for the samples of one step."""

    MEAN = "mean"
    """Activity, power, rates, clocks, temperatures: what a step was like, not what it was at its end."""
    LAST = "last"
    """Memory: used, free and reserved of one scrape add up to the card. What was given to a holder is the holder's."""
    COUNTER = "counter"
    """Counters and limits, as they last stood: a mean of a counter is none."""
    MAX = "max"
    """Codes and flags: an XID that stood for one scrape of the step must not be lost in it."""


_COUNTERS = frozenset({"energy_joules", "power_limit_watts"})
_MAX = frozenset({"xid_code", "throttle_reasons", "row_remap_failure"})
_DCGM_HOLDER_LABELS = (
    *("pod", "namespace", "container", "pod_uid", "exported_pod", "exported_namespace", "exported_container"),
    *("pod_name", "pod_namespace", "container_name", "podname", "podnamespace", "ctrname"),
    *("hpc_job", "dra_claim_name", "dra_claim_namespace"),
)
_HOLDER_LABELS = ", ".join(dict.fromkeys((*_DCGM_HOLDER_LABELS, *mapped_holder_labels())))
_SEEN_BY = ("gpu_temp_celsius", "power_watts", "fb_used_bytes", "gpu_util_ratio")
SIGHTED = "DCGM_SIGHTED"
"""The name under which answers about holders are read: no field's, so that their values say nothing."""
_NO_GPU = Matcher("resource", "!~", "cpu|memory|ephemeral_storage|storage|pods|hugepages_.+|attachable_volumes_.+")
_BY_RESOURCE = ("_resource_requests", "_resource_limits", "_allocatable", "_capacity")
_SAME_POD = "and on (namespace, pod, exported_namespace, exported_pod)"


def reduction(column: str) -> Reduction:
    """How samples of a reading's column become one for a step."""
    if column in _MAX:
        return Reduction.MAX
    if column.endswith("_count") or column in _COUNTERS:
        return Reduction.COUNTER
    return Reduction.LAST if column.startswith("fb_") or column in HOLDER_COLUMNS else Reduction.MEAN


@dataclass(frozen=True, slots=True)
class Window:
    """The range of a step, for a server whose windows hold their first instant (Prometheus 2) or do not."""

    step_ms: int
    is_closed: bool

    def over(self, series: str) -> str:
        """`series` from the step's first millisecond to its last, asked for at the step's end."""
        length = self.step_ms - 1 if self.is_closed else self.step_ms
        return f"{series}[{duration(length)}] offset 1ms"

    def last(self, series: str) -> str:
        """The last sample of `series` in the step, if it has one."""
        return f"last_over_time({self.over(series)})"


def device_query(metric: str, matchers: Sequence[Matcher], window: Window, *, is_raw: bool) -> str:
    """The expression for one metric of devices. `is_raw`: a step holds one sample, which is then all of it.

    All but memory and holders' parts is of the card, whoever held it in the step: when a pod starts or ends, the card's
    samples go on in another series. A step in which a value was no measurement (a blank code, a utilization of
    thousands) has no mean: the offending value is answered instead, so that it is refused and counted.
    """
    series, field = selector(metric, matchers), device_field(metric)
    how = Reduction.LAST if is_raw or field is None else reduction(field.column)
    if how is Reduction.LAST:
        return window.last(series)
    over = window.over(series)

    def of_card(aggregate: str, function: str) -> str:
        return f"{aggregate} without ({_HOLDER_LABELS}) ({function}({over}))"

    largest = of_card("max", "max_over_time")
    if how is Reduction.COUNTER:
        return of_card("max", "last_over_time")
    if how is Reduction.MAX or field is None:
        return largest
    total, count = of_card("sum", "sum_over_time"), of_card("sum", "count_over_time")
    mean = f"{total} / {count} and {largest} <= {highest(field):.17g}"
    if not any(blank < 0 for blank in field.blanks):
        return f"({mean}) or {largest}"
    smallest = of_card("min", "min_over_time")
    return f"({mean} and {smallest} >= 0) or ({smallest} < 0) or {largest}"


def sighting_queries(metrics: Sequence[str], matchers: Sequence[Matcher], window: Window) -> Mapping[str, str]:
    """Who was seen on each card: the means have no holders any more. One query for each name of one quantity."""
    columns = {metric: field.column for metric in metrics if (field := device_field(metric)) is not None}
    seen = next((column for column in _SEEN_BY if column in columns.values()), None)
    chosen = [metric for metric, column in columns.items() if seen is None or column == seen]
    return {
        f"{SIGHTED}_{number}": f"count_over_time({window.over(selector(metric, matchers))})"
        for number, metric in enumerate(chosen)
    }


def pod_query(metric: str, matchers: Sequence[Matcher], window: Window) -> str:
    """The expression for one metric of kube-state-metrics: only of pods that ask for more than CPU and memory."""
    own = [*matchers, _NO_GPU] if metric.endswith(_BY_RESOURCE) else list(matchers)
    if metric == "kube_pod_status_phase":
        return f"({window.last(selector(metric, own))} == 1) {_SAME_POD} ({_askers(matchers, window)})"
    if metric.endswith(_BY_RESOURCE) or metric.startswith("kube_node_"):
        return window.last(selector(metric, own))
    return f"{window.last(selector(metric, own))} {_SAME_POD} ({_askers(matchers, window)})"


def _askers(matchers: Sequence[Matcher], window: Window) -> str:
    asking = [
        selector("kube_pod_container_resource_requests", [*matchers, _NO_GPU]),
        selector("kube_pod_container_resource_limits", [*matchers, _NO_GPU]),
        selector("kube_pod_resourceclaim_info", matchers),
    ]
    return " or ".join(window.last(series) for series in asking)


def highest(field: Field) -> float:
    """The largest value of a metric that is a measurement, in the exporter's unit."""
    return field.high * field.divided_by / field.times


def queries(names: Sequence[str], matchers: Sequence[Matcher], window: Window, *, is_raw: bool) -> Mapping[str, str]:
    """An expression for each of `names` that means something here: metrics of cards, their holders, and pods."""
    pods = Window(pod_step_ms(window.step_ms), window.is_closed)
    found = {
        name: device_query(name, matchers, window, is_raw=is_raw)
        for name in sorted(set(names))
        if device_field(name) is not None
    }
    found |= {name: window.last(selector(name, matchers)) for name in sorted(set(names)) if names_holders_only(name)}
    if not is_raw:
        found |= sighting_queries(list(found), matchers, window)
    found |= {name: pod_query(name, matchers, pods) for name in sorted(set(names) & POD_AND_NODE_METRICS)}
    return found


def is_of_pods(metric: str) -> bool:
    """Whether a metric is of kube-state-metrics."""
    return metric in POD_AND_NODE_METRICS


def pod_step_ms(step_ms: int) -> int:
    """The step in which metrics of pods are asked: a multiple of the readings' step."""
    return step_ms * -(-KUBE_STEP_MS // step_ms)


def reads_of(query: str) -> int:
    """How often a query reads the samples of its window."""
    return query.count(" offset 1ms")
