"""How right the rules are, on fleets of which the truth is known: precision and recall by GPU-hours.

A fleet is laid out as a grid of cards and minutes. What a rule claims stands in the grid as GPU-minutes, what the
script planted as cells, so that both can be compared without either knowing the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from gpuledger.app.printing import progress
from gpuledger.errors import GpuledgerError
from gpuledger.model import Finding, Window
from gpuledger.registry import RULES, resolve
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.thinning import thin
from warehouse import Warehouse

MIXES = ("training", "serving", "notebooks", "ascend")
NODES, DAYS = 12, 3
MISSING_RATIO = 0.2
CURRENCY_OF_ITS_OWN = ("quota_balance",)
"""Rules that count quota, not cards: their own acceptance test compares them with the truth."""
BY_EVENT = ("hardware_fault", "lemon_node", "flapping_node")
"""Rules whose findings are compared one by one: a fault is right when its card showed one at that time."""
EVENT_TOLERANCE = timedelta(minutes=15)
LATEST_EVENT = timedelta(minutes=150)
"""With telemetry missing a fault is seen when its exporter answers again."""
CLAIMED_ONCE = ("idle_allocation", "gang_partial_idle", "stalled_allocation", "fragmentation", "low_activity")
"""No GPU-minute may be in two claims of these, or twice in one."""
ROUNDING_MINUTES = 1e-6


@dataclass(frozen=True, slots=True)
class Trial:
    """One fleet to judge: a scenario of the simulator, a seed, and the part of its telemetry that is missing."""

    mix: str
    seed: int
    missing_ratio: float = 0.0
    nodes: int = NODES
    days: int = DAYS


@dataclass(slots=True)
class Score:
    """What one rule did on one fleet, in GPU-hours; for rules of BY_EVENT in events.

    `claimed` and the `correct` part of it; `planted` and the `found` part of it; `accused` what was claimed of
    look-alikes or of nothing planted, by the script's word. `by_cause`: planted and found by the planted cause.
    """

    rule: str
    claimed: float = 0.0
    correct: float = 0.0
    planted: float = 0.0
    found: float = 0.0
    findings: int = 0
    accused: dict[str, float] = field(default_factory=dict)
    by_cause: dict[str, tuple[float, float]] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class Verdict:
    """A trial's scores, the ledger's GPU-hours by state, what was planted of each look-alike, double claims."""

    trial: Trial
    scores: list[Score]
    state_hours: dict[str, float]
    lookalike_hours: dict[str, float]
    double_claimed_hours: float
    audit_rows: int


class Grid:
    """Cards and minutes of a fleet's span; `late` is how long after it happened an event may be told."""

    def __init__(self, simulation: Simulation, late: timedelta = EVENT_TOLERANCE) -> None:
        self.late = late
        spec = simulation.spec
        self.start_us = int(spec.start_at.timestamp()) * 1_000_000
        self.shape = (len(simulation.fleet.cards), spec.end_minute)
        self.row = {card.gpu_uuid: card.index for card in simulation.fleet.cards}

    def cells(self, gpu_uuid: str, from_at: datetime, until_at: datetime) -> tuple[int, slice]:
        """The cells of a stretch of a card, cut to whole minutes and to the span."""
        begin, end = (round((at.timestamp() * 1_000_000 - self.start_us) / 6e7) for at in (from_at, until_at))
        return self.row[gpu_uuid], slice(max(0, begin), min(self.shape[1], end))

    def claimed(self, claims: pa.Table) -> np.ndarray:
        """GPU-minutes claimed in each cell."""
        grid = np.zeros(self.shape)
        columns = claims.select(["gpu_uuid", "from_at", "until_at", "gpu_hours"]).to_pylist()
        for claim in columns:
            place = self.cells(claim["gpu_uuid"], claim["from_at"], claim["until_at"])
            length = place[1].stop - place[1].start
            if length > 0:
                grid[place] += claim["gpu_hours"] * 60 / length
        return grid


def trials(mixes: Sequence[str], seeds: Sequence[int]) -> list[Trial]:
    """Each mix and seed with all telemetry and without some of it, and the clean fleet of each seed."""
    pairs = [(mix, seed) for mix in mixes for seed in seeds]
    clean = [Trial("clean", seed) for seed in seeds]
    return [*(Trial(*pair) for pair in pairs), *(Trial(*pair, MISSING_RATIO) for pair in pairs), *clean]


def judge_all(chosen: Sequence[Trial], workers: int) -> list[Verdict]:
    """The verdict of each trial, in their order; each worker is a process of its own."""
    verdicts = []
    with progress() as bar, ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        task = bar.add_task("fleets", total=len(chosen))
        for verdict in pool.map(judge, chosen):
            verdicts.append(verdict)
            bar.update(task, advance=1)
    return verdicts


def judge(trial: Trial) -> Verdict:
    """Simulate the trial's fleet, build its ledger, run every rule, and compare with the truth."""
    simulation = simulate(FleetSpec(nodes=trial.nodes, days=trial.days, seed=trial.seed, scenario=trial.mix))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    truth = pl.DataFrame(pl.from_arrow(simulation.truth()))
    records = thin(simulation, trial.missing_ratio, trial.seed) if trial.missing_ratio else simulation.records()
    with Warehouse.open(None) as house:
        _take_in(house, records)
        audit_rows = house.build_ledger(window).violations
        grid = Grid(simulation, LATEST_EVENT if trial.missing_ratio else EVENT_TOLERANCE)
        claimed: dict[str, np.ndarray] = {}
        names = [rule for rule in RULES if trial.mix == "clean" or rule not in CURRENCY_OF_ITS_OWN]
        scores = [_score(house, window, name, truth, grid, claimed) for name in names]
        states = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    total = sum((claimed[rule] for rule in CLAIMED_ONCE if rule in claimed), np.zeros(grid.shape))
    alike = truth.filter((pl.col("kind") == "lookalike") & (pl.col("rule") != "quota_balance"))
    return Verdict(
        trial,
        scores,
        {row["state"]: row["gpu_hours"] for row in states},
        dict(alike.group_by("cause").agg(pl.col("gpu_hours").sum()).sort("cause").iter_rows()),
        float(np.clip(total - 1 - ROUNDING_MINUTES, 0, None).sum() / 60),
        audit_rows,
    )


def _take_in(house: Warehouse, records: Iterable[tuple[str, pa.Table]]) -> None:
    for number, (record, table) in enumerate(records):
        house.ingest(record, table, f"batch-{number}")


def _score(
    house: Warehouse,
    window: Window,
    name: str,
    truth: pl.DataFrame,
    grid: Grid,
    claimed: dict[str, np.ndarray],
) -> Score:
    planted = truth.filter((pl.col("rule") == name) & (pl.col("kind") != "lookalike"))
    score = Score(name, planted=float(planted["gpu_hours"].sum()))
    try:
        result = resolve("rules", name)().run(house, window, {})
    except GpuledgerError as error:
        score.error = str(error)
        return score
    score.findings = len(result.findings)
    if name in CURRENCY_OF_ITS_OWN:
        return score
    if name in BY_EVENT:
        _by_event(score, planted, truth, result.findings, grid.late)
        return score
    claims = grid.claimed(_of_cards(result.findings) if result.claims is None else result.claims)
    claimed[name] = claims
    _by_hours(score, planted, truth, grid, claims)
    return score


def _of_cards(findings: Sequence[Finding]) -> pa.Table:
    """As claims: the whole windows of findings about cards, of a rule that claims no pieces of the ledger."""
    return pa.table(
        {
            "gpu_uuid": pa.array([finding.subject_id for finding in findings], pa.string()),
            "from_at": pa.array([finding.window_start for finding in findings], pa.timestamp("us", "UTC")),
            "until_at": pa.array([finding.window_end for finding in findings], pa.timestamp("us", "UTC")),
            "gpu_hours": pa.array([finding.gpu_hours_observed for finding in findings], pa.float64()),
        }
    )


def _by_hours(score: Score, planted: pl.DataFrame, truth: pl.DataFrame, grid: Grid, claims: np.ndarray) -> None:
    is_true = np.zeros(grid.shape, np.bool_)
    for row in planted.iter_rows(named=True):
        place = grid.cells(row["gpu_uuid"], row["from_at"], row["until_at"])
        is_true[place] = True
        found = min(float(claims[place].sum()) / 60, row["gpu_hours"])
        before = score.by_cause.get(row["cause"], (0.0, 0.0))
        score.by_cause[row["cause"]] = (before[0] + row["gpu_hours"], before[1] + found)
    score.found = sum(found for _, found in score.by_cause.values())
    score.claimed = float(claims.sum()) / 60
    score.correct = float(claims[is_true].sum()) / 60
    false = np.where(is_true, 0.0, claims)
    score.accused = _named(false, truth, grid)


def _named(false: np.ndarray, truth: pl.DataFrame, grid: Grid) -> dict[str, float]:
    """What was claimed wrongly, by what was there: a look-alike, something else that was planted, or plain work."""
    named: dict[str, float] = defaultdict(float)
    left = false.copy()
    on_cards = truth.filter(pl.col("gpu_uuid").is_not_null() & (pl.col("gpu_hours") > 0))
    order = on_cards.sort(pl.col("kind") != "lookalike", "gpu_hours", maintain_order=True)
    for row in order.iter_rows(named=True):
        place = grid.cells(row["gpu_uuid"], row["from_at"], row["until_at"])
        if there := float(left[place].sum()):
            word = row["cause"] if row["kind"] == "lookalike" else f"{row['rule']}: {row['cause']}"
            named[word] += there / 60
            left[place] = 0
    named["plain work"] += float(left.sum()) / 60
    return {word: hours for word, hours in named.items() if hours > ROUNDING_MINUTES}


def _by_event(
    score: Score, planted: pl.DataFrame, truth: pl.DataFrame, findings: Sequence[Finding], late: timedelta
) -> None:
    def told_of(row: Mapping[str, Any]) -> Iterator[Finding]:
        early, last = row["from_at"] - EVENT_TOLERANCE, row["from_at"] + late
        return (
            one for one in told if one.subject_id.startswith(row["subject_id"]) and early <= one.window_start <= last
        )

    told = [finding for finding in findings if finding.severity != "info"]
    left = {finding.finding_id for finding in told}
    score.planted, score.claimed = float(planted.height), float(len(told))
    for row in planted.iter_rows(named=True):
        about = {finding.finding_id for finding in told_of(row)}
        left -= about
        before = score.by_cause.get(row["cause"], (0.0, 0.0))
        score.by_cause[row["cause"]] = (before[0] + 1, before[1] + bool(about))
    score.found = sum(found for _, found in score.by_cause.values())
    score.correct = score.claimed - len(left)
    accused: dict[str, float] = defaultdict(float)
    for row in truth.filter((pl.col("rule") == score.rule) & (pl.col("kind") == "lookalike")).iter_rows(named=True):
        wrong = left & {finding.finding_id for finding in told_of(row)}
        left -= wrong
        accused[row["cause"]] += len(wrong)
    accused["nothing planted"] += len(left)
    score.accused = {word: count for word, count in accused.items() if count}
