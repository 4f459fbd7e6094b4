"""Where a period's GPU-hours stand, state by state: the ledger's rows arranged for a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuledger.model import State
from gpuledger.presentation.states import HELD_STEPS, STEPS, Step


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the waterfall: a subtotal (`state` is None) or a state, from `start_hours` down to `end_hours`."""

    name: str
    state: State | None
    start_hours: float
    end_hours: float

    @property
    def gpu_hours(self) -> float:
        """What the line stands for, GPU-hours."""
        return self.start_hours - self.end_hours


@dataclass(frozen=True, slots=True)
class Balance:
    """GPU-hours by state. `steps` says where the waterfall starts: the inventory, or what a tenant holds."""

    by_state: Mapping[State, float] = field(default_factory=dict)
    steps: tuple[Step, ...] = STEPS
    provisional_gpu_hours: float = 0.0

    @classmethod
    def of_fleet(cls, rows: Iterable[Mapping[str, Any]]) -> Balance:
        """From the rows of query `ledger_by` with by=state."""
        return cls._collect(rows, STEPS)

    @classmethod
    def of_tenant(cls, rows: Iterable[Mapping[str, Any]], tenant: str) -> Balance:
        """From the rows of query `ledger_by` with by=tenant: what `tenant` held."""
        return cls._collect((row for row in rows if row["key"] == tenant), HELD_STEPS)

    @classmethod
    def _collect(cls, rows: Iterable[Mapping[str, Any]], steps: tuple[Step, ...]) -> Balance:
        wanted = {state for step in steps for state in step.states}
        hours: dict[State, float] = {}
        provisional = 0.0
        for row in rows:
            state = State(row["state"])
            if state in wanted:
                hours[state] = hours.get(state, 0.0) + row["gpu_hours"]
                provisional += row["provisional_gpu_hours"] or 0.0
        return cls(hours, steps, provisional)

    @property
    def total_gpu_hours(self) -> float:
        """All GPU-hours of the picture: its 100 %."""
        return sum(self.by_state.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show, which is not the same as zero waste."""
        return not self.total_gpu_hours

    def gpu_hours(self, *states: State) -> float | None:
        """GPU-hours in `states`; None when the ledger has nothing for the period."""
        return None if self.is_empty else sum(self.by_state.get(state, 0.0) for state in states)

    def share(self, *states: State) -> float | None:
        """The part of the total that is in `states`, 0 to 1; None when the ledger has nothing for the period."""
        hours = self.gpu_hours(*states)
        return None if hours is None else hours / self.total_gpu_hours

    def step_states(self, name: str) -> tuple[State, ...]:
        """The states that are part of subtotal `name`: its own and those of every later step."""
        index = [step.name for step in self.steps].index(name)
        return tuple(state for step in self.steps[index:] for state in step.states)

    def bars(self) -> Iterator[Bar]:
        """The lines of the waterfall from the top."""
        level = self.total_gpu_hours
        for step in self.steps:
            yield Bar(step.name, None, level, 0.0)
            for state in step.states:
                hours = self.by_state.get(state, 0.0)
                yield Bar(state.value, state, level, level - hours)
                level -= hours
