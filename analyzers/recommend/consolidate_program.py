"""The program that opens nodes with the fewest moves (algorithms.md, section B), solved by HiGHS in stages.

Variables: x[j, n], resident j moves to node n; y[n], node n has room for the need afterwards. Stages, each optimum an
equality of the next: most nodes opened, fewest pods moved, least cost, and of what is left the smallest list of (job,
target). Stages instead of one sum with large weights: those lose digits, and like nodes take longer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from analyzers.recommend.consolidate_fleet import Host, Problem, Step, closed, greedy, in_order, openable, opened

Floats = npt.NDArray[np.float64]

HAIR = 1e-6
"""By how much a cost may exceed the stage before: costs are no whole numbers."""

_STDOUT = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """The moves of a block in the order in which each has room, and the nodes that they open.

    `method` is `program` or `greedy`. `gap_nodes`: how many more nodes could be opened for all that was proven within
    the time; 0 is an optimum. `is_settled`: of equal plans it is the one with the smallest list of (job, target).
    """

    steps: tuple[Step, ...]
    opened: tuple[str, ...]
    method: str
    gap_nodes: int = 0
    is_settled: bool = True

    @property
    def tuple(self) -> tuple[int, int, float]:
        """(nodes opened, pods moved, cost)."""
        pods = sum(len(step.resident.pods) for step in self.steps)
        return len(self.opened), pods, sum(step.resident.cost for step in self.steps)


@contextlib.contextmanager
def _nothing_on_stdout() -> Iterator[None]:
    """HiGHS writes progress to the process's stdout whatever it is told; for the time of a call that is stderr."""
    libc = ctypes.CDLL(None)
    with _STDOUT:
        sys.stdout.flush()
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)


def _free(host: Host) -> list[int]:
    """What is known to be free on `host`; below 0 where more is held than it has."""
    known = (host.free_cards, host.cpu_free_milli, host.memory_free_mib)
    return [one for one in known if one is not None]


class _Program:
    """One block's constraints; each stage adds a row, each solve keeps the best point."""

    def __init__(self, problem: Problem, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.problem = problem
        self.targets = sorted(host.node for host in closed(problem))
        self.opening = sorted(host.node for host in openable(problem))
        self.residents = sorted(problem.residents, key=lambda one: one.name)
        models = {host.node: host.model for host in problem.hosts}
        over = {host.node for host in problem.hosts if min(_free(host), default=0) < 0}
        self.arcs = [
            (j, node)
            for j, one in enumerate(self.residents)
            for node in self.targets
            if node not in {one.node, *over} and (not one.models or models[node] in one.models)
        ]
        self.width = len(self.arcs) + len(self.opening)
        self.upper: Floats = np.ones(self.width)
        self._rows: list[tuple[Floats, float, float]] = []
        self._state()

    def _row(self, weights: Floats, low: float, high: float) -> None:
        self._rows.append((weights, low, high))

    def arc_weights(self, values: Sequence[float]) -> Floats:
        """A row with values[j] for each arc of resident j."""
        row = np.zeros(self.width)
        row[: len(self.arcs)] = [values[j] for j, _ in self.arcs]
        return row

    def opened_row(self) -> Floats:
        """A row that counts opened nodes."""
        row = np.zeros(self.width)
        row[len(self.arcs) :] = 1
        return row

    def _state(self) -> None:
        """At most one move each; room on every node; the need on each opened one; the bounds on moves."""
        problem = self.problem
        for j in range(len(self.residents)):
            row = np.zeros(self.width)
            row[[i for i, arc in enumerate(self.arcs) if arc[0] == j]] = 1
            self._row(row, 0, 1)
        for host in problem.hosts:
            asked = (problem.need.cards_of(host), problem.need.cpu_milli, problem.need.memory_mib)
            free = (host.free_cards, host.cpu_free_milli, host.memory_free_mib)
            for kind, (one, left) in enumerate(zip(asked, free, strict=True)):
                # What a node holds beyond what it has may stay, but has to go before the node counts as opened.
                if left is not None:
                    self._row(self._load(host.node, kind, one - min(left, 0)), -np.inf, max(left, 0))
        self._tighten()
        self._row(self.arc_weights([len(one.pods) for one in self.residents]), 0, problem.max_moves)
        for tenant, cards in problem.tenant_cards.items():
            weights = self.arc_weights([one.cards if one.tenant == tenant else 0 for one in self.residents])
            self._row(weights, 0, cards)
        if problem.max_opened is not None:
            self._row(self.opened_row(), 0, problem.max_opened)

    def _load(self, node: str, kind: int, need: float) -> Floats:
        """What comes to `node` less what leaves it, and the need if it is opened: of cards, CPU or memory."""
        row = np.zeros(self.width)
        for i, (j, target) in enumerate(self.arcs):
            one = self.residents[j]
            amount = (one.cards, one.cpu_milli, one.memory_mib)[kind]
            if target == node:
                row[i] += amount
            elif one.node == node:
                row[i] -= amount
        if node in self.opening:
            row[len(self.arcs) + self.opening.index(node)] = need
        return row

    def _tighten(self) -> None:
        """A node whose need takes all its residents' cards is only opened if each of them leaves: a sharper bound."""
        free = {host.node: host for host in self.problem.hosts}
        for position, node in enumerate(self.opening):
            own = [j for j, one in enumerate(self.residents) if one.node == node]
            all_cards = free[node].free_cards + sum(self.residents[j].cards for j in own)
            if self.problem.need.cards_of(free[node]) < all_cards:
                continue
            for j in own:
                row = np.zeros(self.width)
                row[len(self.arcs) + position] = 1
                row[[i for i, arc in enumerate(self.arcs) if arc[0] == j]] = -1
                self._row(row, -np.inf, 0)

    def solve(self, objective: Floats) -> Any:
        """The least of `objective`, or None where time ran out with nothing found."""
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        matrix = csr_array(np.array([row for row, _, _ in self._rows]))
        with _nothing_on_stdout():
            answer = milp(
                objective,
                constraints=LinearConstraint(
                    matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows]
                ),
                integrality=np.ones(self.width),
                bounds=Bounds(np.zeros(self.width), self.upper),
                options={"time_limit": left, "mip_rel_gap": 0.0},
            )
        return answer if answer.x is not None else None

    def fix(self, weights: Floats, most: float) -> None:
        """Keep what a stage found: `weights` at most `most` from now on."""
        self._row(weights, -np.inf, most)

    def chosen(self, point: Floats) -> dict[str, str]:
        """The moves of `point`: target by resident."""
        return {self.residents[j].name: node for i, (j, node) in enumerate(self.arcs) if point[i] > 0.5}

    def fix_home(self, j: int, node: str | None) -> None:
        """Resident `j` goes to `node`, or stays."""
        for i, (k, target) in enumerate(self.arcs):
            if k == j and target != node:
                self.upper[i] = 0


def _stages(program: _Program) -> tuple[dict[str, str], int, bool] | None:
    """Target by resident, how many more nodes might have been opened, and whether all stages were solved to the end."""
    first = program.solve(-program.opened_row())
    if first is None:
        return None
    best = round(-first.fun)
    bound = first.mip_dual_bound
    gap = max(0, int(np.floor(-bound + HAIR)) - best) if first.status != 0 and bound is not None else 0
    point, is_done = first.x, first.status == 0
    program.fix(-program.opened_row(), -best)
    for weights, slack in (
        (program.arc_weights([len(one.pods) for one in program.residents]), 0.0),
        (program.arc_weights([one.cost for one in program.residents]), HAIR),
    ):
        answer = program.solve(weights)
        if answer is None:
            return program.chosen(point), gap, False
        point, is_done = answer.x, is_done and answer.status == 0
        program.fix(weights, float(weights @ np.round(point)) + slack)
    return _smallest(program, point, gap, is_done)


def _smallest(program: _Program, point: Floats, gap: int, is_done: bool) -> tuple[dict[str, str], int, bool]:
    """Of equal plans the smallest list of (job, target): job by job, rather moved than not, to the first node."""
    chosen = program.chosen(point)
    pods = sum(len(one.pods) for one in program.residents if one.name in chosen)
    for j, one in enumerate(program.residents):
        if pods <= 0:
            break
        arcs = [(i, node) for i, (k, node) in enumerate(program.arcs) if k == j]
        if arcs and chosen.get(one.name) != arcs[0][1]:
            weights = np.zeros(program.width)
            weights[[i for i, _ in arcs]] = np.arange(len(arcs)) - len(arcs)
            answer = program.solve(weights)
            if answer is None or answer.status != 0:
                return chosen, gap, False
            chosen = program.chosen(answer.x)
        program.fix_home(j, chosen.get(one.name))
        pods -= len(one.pods) * (one.name in chosen)
    return chosen, gap, is_done


def consolidate(problem: Problem, *, seconds: float = 10.0) -> Moves:
    """The best moves of a block within its bounds, in an order in which each step has room.

    Where the program finds nothing in `seconds`, or its moves cannot be brought in order, the greedy ones stand in.
    """
    steps = greedy(problem)
    stand_in = Moves(
        steps=tuple(steps), opened=tuple(opened(problem, steps)), method="greedy", gap_nodes=0, is_settled=False
    )
    if problem.max_moves <= 0 or problem.max_opened == 0 or not openable(problem):
        return Moves(steps=(), opened=(), method="program")
    found = _stages(_Program(problem, seconds))
    if found is None:
        most = len(openable(problem)) if problem.max_opened is None else problem.max_opened
        return Moves(
            steps=stand_in.steps,
            opened=stand_in.opened,
            method="greedy",
            gap_nodes=max(0, min(most, len(openable(problem))) - len(stand_in.opened)),
            is_settled=False,
        )
    targets, gap, is_settled = found
    ordered = in_order(problem, targets)
    if ordered is None:
        return stand_in
    made = Moves(
        steps=tuple(ordered),
        opened=tuple(opened(problem, ordered)),
        method="program",
        gap_nodes=gap,
        is_settled=is_settled,
    )
    return made if len(made.opened) >= len(stand_in.opened) else stand_in
