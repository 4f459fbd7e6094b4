"""Reads Airflow as of one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from schedulers.airflow.api import AirflowApi, AirflowOptions, Heard
from schedulers.airflow.mapping import Mapped, Pool, pools_of, slots_by_state
from schedulers.options import parsed
from schedulers.rest import steady
from schedulers.rows import SnapshotRows

_OF_TASKS = frozenset({"workload", "wait", "workload_event"})


class Airflow:
    """A reader of Airflow's pools and of the tasks in them."""

    name = "airflow"

    def __init__(self, options: AirflowOptions, *, cluster: str, rules: Rules, clock: Clock) -> None:
        self.cluster = cluster
        self._options = options
        self._rules = rules
        self._clock = clock
        self._api = AirflowApi(options)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        """Make one from `options` (AirflowOptions). Raises ConfigError naming a wrong one."""
        return cls(parsed(AirflowOptions, cls.name, options), cluster=cluster, rules=rules, clock=clock)

    def snapshot(self) -> SchedulerSnapshot:
        """Pools and tasks as of one moment: nothing moved between two reads of the pools, or all counts agree."""
        heard = steady(self._api.hear, self._doubt, self._api.where, self._clock)
        whose = self.name if self.cluster == "default" else f"{self.name}/{self.cluster}"
        rows = SnapshotRows(whose, self.cluster, self._clock.now())
        Mapped(heard, self._options.gpus_per_slot, self._rules, rows).all()
        scope = SnapshotScope(denied=heard.denied, unlisted=_OF_TASKS if heard.tasks is None else frozenset())
        return rows.snapshot(_version(heard), scope, also=("queue", "quota", "queue_resource", "queue_state"))

    def _doubt(self, heard: Heard) -> str:
        """Why the round is not of one moment; "" where it is."""
        ids = [task.get("id") for task in heard.tasks or () if isinstance(task, dict) and task.get("id")]
        if len(set(ids)) < len(ids):
            return "tasks came and went between two pages"
        before, _ = pools_of(heard.before, self._options.gpus_per_slot)
        after, _ = pools_of(heard.after, self._options.gpus_per_slot)
        for told in heard.after:
            if isinstance(told, dict) and told.get("name") in after and (doubt := _contradiction(told)):
                return doubt
        if before == after or heard.tasks is None:
            return ""
        said = slots_by_state(heard.tasks)
        moved = [pool.name for pool in after.values() if not _agrees(pool, said)]
        return f"pool {moved[0]} changed while its tasks were read" if moved else ""


def _agrees(pool: Pool, said: Mapping[tuple[str, str], int]) -> bool:
    own = {"running": pool.running, "queued": pool.queued, "scheduled": pool.scheduled, "deferred": pool.deferred}
    return all(said.get((pool.name, state), 0) == count for state, count in own.items())


def _contradiction(told: Mapping[str, Any]) -> str:
    """A pool's counts come from several queries of Airflow's own: together they must make sense."""
    if told["slots"] == -1 or not isinstance(told.get("occupied_slots"), int):
        return ""
    slots, occupied, left = told["slots"], told["occupied_slots"], told.get("open_slots")
    if left != slots - occupied:
        return f"pool {told['name']} has {slots} slots, {occupied} occupied and {left} open"
    return ""


def _version(heard: Heard) -> str:
    """A text that changes when anything that was read does."""
    held = json.dumps([heard.after, heard.tasks], sort_keys=True, default=str)
    return hashlib.sha256(held.encode()).hexdigest()[:16]
