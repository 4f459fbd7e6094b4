"""A warehouse into which pages are read, and what is asked of it: for the faults that people reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collector.sources import dcgm, kube_state_metrics
from gpuledger.model import Window, to_table
from warehouse import Warehouse

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
FIELDS = "workload_id", "tenant", "gpu_uuid", "state", "node", "model"


def problem(name: str) -> str:
    if not PROBLEMS.is_dir():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    return (PROBLEMS / name).read_text(encoding="utf-8")


def gauge(metric: str, value: object, **labels: object) -> str:
    inside = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{metric}{{{inside}}} {value}\n"


class House:
    """A warehouse, and the pages that are read into it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self._batches = count()
        self._pods = kube_state_metrics.Target("ksm")

    def put(self, record: str, rows: Sequence[Any]) -> None:
        if rows:
            assert not self.warehouse.ingest(record, to_table(record, rows), str(next(self._batches))).rejected

    def scrape(self, pages: Mapping[datetime, str], *, interval_seconds: float = 60) -> None:
        """Pages of dcgm-exporter."""
        target = dcgm.Target(interval_seconds=interval_seconds)
        seen = [dcgm.parse(page.encode(), at, target) for at, page in sorted(pages.items())]
        self.put("reading", [row for one in seen for row in one.readings])
        self.put("source_read", [row for one in seen for row in one.reads])
        self.put("holding", [row for one in seen for row in one.holdings])

    def list_pods(self, pages: Mapping[datetime, str]) -> None:
        """Pages of kube-state-metrics."""
        for at, page in sorted(pages.items()):
            for record, rows in kube_state_metrics.parse(page.encode(), at, self._pods).others.items():
                self.put(record, rows)

    def hours(self, *by: str, hours: float = 1, begin: datetime = AT) -> dict[Any, float]:
        """GPU-hours of the window by `by`; it closes."""
        window = Window(begin, begin + timedelta(hours=hours))
        assert self.warehouse.build_ledger(window, until_at=window.to_at).violations == 0
        found: dict[Any, float] = {}
        with self.warehouse.writing() as cursor:
            rows = cursor.execute(
                "select workload_id, tenant, gpu_uuid, state, node, model, gpu_hours from ledger_hour"
            ).fetchall()
        for row in rows:
            named = dict(zip(FIELDS, row[:-1], strict=True))
            key = tuple(named[name] for name in by) if len(by) > 1 else named[by[0]]
            found[key] = found.get(key, 0) + row[-1]
        return found

    def rate(self, name: str, *, hours: float = 1, begin: datetime = AT) -> float:
        rows = self.warehouse.query("ledger_rates", from_at=begin, to_at=begin + timedelta(hours=hours)).to_pylist()
        return float(next(row["value"] for row in rows if row["name"] == name))

    def cards(self) -> int:
        return int(self.warehouse.query("ledger_extent")["gpu_count"][0].as_py())


def minutes(begin: datetime, end: datetime, step: timedelta = MINUTE) -> list[datetime]:
    return [begin + i * step for i in range(int((end - begin) / step))]


def listed(
    namespace: str,
    pod: str,
    node: str,
    *,
    gpus: int,
    started: datetime,
    ended: datetime | None = None,
    resource: str = "nvidia_com_gpu",
    **labels: str,
) -> str:
    """What kube-state-metrics shows of a pod."""
    own = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}"}
    phase = "Succeeded" if ended else "Running"
    page = (
        gauge("kube_pod_info", 1, **own, node=node)
        + gauge("kube_pod_start_time", started.timestamp(), **own)
        + gauge("kube_pod_container_resource_requests", gpus, **own, container="c", resource=resource, node=node)
        + "".join(gauge("kube_pod_status_phase", int(p == phase), **own, phase=p) for p in ("Running", "Succeeded"))
        + gauge("kube_pod_labels", 1, **own, **labels)
    )
    return page + (gauge("kube_pod_completion_time", ended.timestamp(), **own) if ended else "")
