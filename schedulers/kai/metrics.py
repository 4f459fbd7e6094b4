"""KAI's metrics of queues, whose names mislead: `queue_gpu_usage` is what was used over time, not what is used.

Its figure weighs hours past and may be any multiple of the cluster; what a queue holds now is `queue_allocated_gpus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from gpuledger.errors import BadInput
from schedulers.kai.spec import UNLIMITED

_FIGURES: Mapping[str, str] = {
    "queue_allocated_gpus": "allocated_gpus",
    "queue_deserved_gpus": "deserved_gpus",
    "queue_fair_share_gpu": "fair_share_gpus",
    "queue_gpu_usage": "used_over_time",
}

_PREFIX = "kai_"
"""The metrics' namespace by default; older releases and other settings have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """What a page says of one queue; None: not told. `deserved_gpus` is None for unlimited too.

    `used_over_time` is history in a unit of the scheduler's own: never a part of what a queue holds or may hold.
    """

    allocated_gpus: float | None = None
    deserved_gpus: float | None = None
    fair_share_gpus: float | None = None
    used_over_time: float | None = None

    @property
    def use_ratio(self) -> float | None:
        """The part of what it deserves that it holds now; None where one of the two is not told, or is unlimited."""
        if self.allocated_gpus is None or not self.deserved_gpus:
            return None
        return self.allocated_gpus / self.deserved_gpus


def figures_of(page: str) -> dict[str, QueueFigures]:
    """The queues of a page of KAI's metrics. Raises BadInput for what is no page of metrics."""
    found: dict[str, dict[str, float | None]] = {}
    try:
        families = list(text_string_to_metric_families(page))
    except ValueError as error:
        raise BadInput("metrics", f"no page of metrics: {error}") from error
    for family in families:
        figure = _FIGURES.get(family.name.removeprefix(_PREFIX))
        for sample in family.samples if figure else ():
            queue = sample.labels.get("queue_name")
            if queue and figure:
                is_unlimited = sample.value == UNLIMITED
                found.setdefault(queue, {})[figure] = None if is_unlimited else float(sample.value)
    return {queue: QueueFigures(**figures) for queue, figures in found.items()}
