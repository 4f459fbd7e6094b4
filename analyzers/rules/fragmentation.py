"""Free GPUs that no wanted shape can use: the ledger's stranded stretches, and the state of the fleet beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from analyzers.claim_rule import ClaimRule
from analyzers.claims import SCHEMA
from analyzers.confidence import Confidence, confidence
from analyzers.fragmentation.cluster import LEVELS
from analyzers.fragmentation.shapes import WEIGHTINGS, class_counts
from analyzers.fragmentation.snapshot import BASES, take_snapshot
from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

ACTIONS: Mapping[str, str] = {
    "fractional": "defragment",
    "insufficient_whole": "defragment",
    "cpu": "adjust_shape",
    "memory": "adjust_shape",
    "model": "review",
    "node_too_small": "review",
}
"""What helps against each cause of the ledger. Moving work cannot change a node's model or size: nothing to recover."""

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentationOptions:
    """Options of the rule; docs/rules/fragmentation.md says where each default comes from."""

    weighting: str = option("demand", unit="name", choices=WEIGHTINGS)
    at: datetime | None = option(None, unit="instant")  # noqa: RUF009 a field, as the others
    history_days: float | None = option(None, unit="days", low=0.0)
    min_stranded_hours: float = option(1.0, unit="hours", low=0.0)
    gang_nodes: int = option(2, unit="nodes", low=1)
    gang_level: str | None = option(None, unit="name", choices=LEVELS)


class Fragmentation(ClaimRule):
    """Free GPUs that nobody can use as they are.

    **Finds** stretches of at least one hour in which free shares of a node were stranded: no shape that is pending
    (or, when nothing is pending, no usual shape of the last 28 days) fits on the node with those shares in use.
    One finding for each node, cause and stretch without a gap.

    **Ignores** GPUs that are free and usable, cards under a condition, spare nodes, stretches shorter than
    `min_stranded_hours` (they are in the totals), and cards that are held but idle (rule idle_allocation).

    **Evidence** the ledger's `free_stranded` spans with their cause; beside them, as an index and never as a state, the
    FGD expectation of how many free GPUs the requested shapes could not use, under four weightings, against all
    shapes and against those that wait.

    **GPU-hours counted** the stranded share-hours of the stretch, once. Recoverable are those that moving or reshaping
    work can free; none where the card's model or the node's size is the cause.

    **Acts on it** repack shared cards and move small jobs together (`defragment`), or ask for less CPU or memory per
    GPU (`adjust_shape`).
    """

    name = "fragmentation"
    version = 2
    options_class: ClassVar[type[Any]] = FragmentationOptions
    by_cause: ClassVar[bool] = True

    def claims(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> pa.Table:
        """The stranded spans of the whole hours of `window`; those of stretches that are short, too."""
        read_options(FragmentationOptions, options)
        hours = window.whole_hours()
        rows = runner.query("fragmentation_claims", from_at=hours.from_at, to_at=hours.to_at)
        return rows.select(SCHEMA.names).cast(SCHEMA)

    def judge(
        self,
        runner: QueryRunner,
        claims: pa.Table,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,
    ) -> RuleResult:
        """Findings from `claims`; totals are of the fleet at option `at`, by default the window's end."""
        result = super().judge(runner, claims, window, options, policy)
        findings = sorted(result.findings, key=lambda one: (-one.gpu_hours_wasted, one.subject_id, one.window_start))
        chosen = read_options(FragmentationOptions, options)
        totals = {
            **_state(runner, chosen.at or window.to_at, chosen),
            "stranded_by_cause": _by_cause(claims, window, _known_until(runner, window)),
        }
        return dataclasses.replace(result, findings=findings, totals=totals, claims=_found(claims, findings))

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[tuple[str, str, str], Mapping[str, Any]]:
        """The pool of each node, and all its GPU-hours as they grew."""
        hours = pl.DataFrame(
            pl.from_arrow(runner.query("fragmentation_node_hours", from_at=window.from_at, to_at=window.to_at))
        )
        nodes = {str(name): _Growth.of(part) for (name,), part in hours.group_by("node", maintain_order=True)}
        return {
            (row["subject_kind"], row["subject_id"], row["workload_id"]): {"node": nodes[row["node"]]}
            for row in rows
            if row["node"] in nodes
        }

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: FragmentationOptions
    ) -> Mapping[str, Any] | None:
        """A stretch that is long enough."""
        length = row["window_end"] - row["window_start"]
        if length < timedelta(hours=chosen.min_stranded_hours) or row["gpu_hours"] <= 0:
            return None
        hours, action = length / _HOUR, ACTIONS.get(row["cause"], "review")
        growth: _Growth | None = facts.get("node")
        observed = growth.between(row["window_start"], row["window_end"]) if growth else row["gpu_hours"]
        wasted = min(row["gpu_hours"], max(observed, 0.0))
        measured = {"stranded_hours": hours, "mean_stranded_gpus": row["gpu_hours"] / hours}
        thresholds = {"stranded_hours": chosen.min_stranded_hours, "mean_stranded_gpus": 0}
        return {
            "cause_code": row["cause"],
            "action_code": action,
            "gpu_hours_observed": observed,
            "gpu_hours_wasted": wasted,
            "gpu_hours_recoverable": 0.0 if action == "review" else wasted,
            "basis": "allocations and request shapes",
            "action_params": {"node": row["node"], "pool": growth.pool if growth else ""},
            "evidence": tuple(
                {
                    "metric": metric,
                    "value": value,
                    "threshold": thresholds[metric],
                    "n_samples": None,
                    "coverage": None,
                    "query": "fragmentation_claims",
                }
                for metric, value in measured.items()
            ),
        }

    def sureness(self, row: Mapping[str, Any]) -> Confidence:  # noqa: ARG002 no reading is needed
        """Certain: the finding rests on allocations and request shapes, not on readings."""
        return confidence(coverage_ratio=1.0, is_shared=False, basis="")


@dataclass(frozen=True, slots=True)
class _Growth:
    """GPU-hours of a node as they add up: `gpu_hours` until each of `instants` (seconds since 1970)."""

    pool: str
    instants: np.ndarray[Any, np.dtype[np.float64]]
    gpu_hours: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(cls, hours: pl.DataFrame) -> _Growth:
        """From one row an hour, in order."""
        begin, end = (hours[name].dt.epoch("us").to_numpy() / 1e6 for name in ("from_at", "until_at"))
        total = np.cumsum(hours["gpu_hours"].to_numpy())
        before = np.concatenate([[0.0], total[:-1]])
        instants, sums = np.stack([begin, end]).T.ravel(), np.stack([before, total]).T.ravel()
        return cls(str(hours["pool"][0]), instants, sums)

    def between(self, from_at: datetime, until_at: datetime) -> float:
        """The node's GPU-hours in a time; within an hour its cards count evenly."""
        begin, end = np.interp([from_at.timestamp(), until_at.timestamp()], self.instants, self.gpu_hours)
        return float(end - begin)


def _known_until(runner: QueryRunner, window: Window) -> datetime:
    """Until when the ledger tells of `window`."""
    end: datetime | None = runner.query("ledger_extent").to_pylist()[0]["to_at"]
    return min(window.to_at, end) if end else window.to_at


def _by_cause(claims: pa.Table, window: Window, known_until_at: datetime) -> dict[str, dict[str, float]]:
    """Of each cause the stranded GPU-hours of `window`, and the GPUs that are stranded at the end of what is known."""
    rows = pl.DataFrame(pl.from_arrow(claims)).filter(
        pl.col("hour_at") >= window.from_at, pl.col("hour_at") < window.to_at
    )
    length = (pl.col("until_at") - pl.col("from_at")).dt.total_microseconds() / 3.6e9
    sums = rows.group_by("cause").agg(
        pl.col("gpu_hours").sum(),
        gpus_at_end=(pl.col("gpu_hours") / length).filter(pl.col("until_at") == known_until_at).sum(),
    )
    return {
        row["cause"]: {"gpu_hours": row["gpu_hours"], "gpus_at_end": row["gpus_at_end"]}
        for row in sums.sort("cause").iter_rows(named=True)
    }


def _found(claims: pa.Table, findings: Sequence[Finding]) -> pa.Table:
    """The claims that a finding speaks of."""
    spans = pl.DataFrame(
        {
            "subject_id": [one.subject_id for one in findings],
            "window_start": [one.window_start for one in findings],
            "window_end": [one.window_end for one in findings],
        },
        schema={
            "subject_id": pl.String(),
            "window_start": pl.Datetime("us", "UTC"),
            "window_end": pl.Datetime("us", "UTC"),
        },
    )
    rows = pl.DataFrame(pl.from_arrow(claims)).with_row_index("place").join(spans, on="subject_id")
    kept = rows.filter(pl.col("from_at") >= pl.col("window_start"), pl.col("until_at") <= pl.col("window_end")).sort(
        "place"
    )
    return claims.take(pa.array(kept["place"].to_list(), pa.int64()))


def _state(runner: QueryRunner, at: datetime, chosen: FragmentationOptions) -> dict[str, Any]:
    """The fleet at `at`; fragments are None where no request shape is known, for then there is nothing to measure."""
    taken = take_snapshot(runner, at, history_days=chosen.history_days, gang_level=chosen.gang_level)
    cluster, typical = taken.cluster, taken.indexes["typical"]
    fragments = {basis: {name: taken.indexes[basis].total(name) for name in WEIGHTINGS} for basis in BASES}
    fragmented, free, total = fragments["typical"][chosen.weighting], float(cluster.free_gpus.sum()), len(cluster.card)
    blocks = taken.free_gpus_by_block().group_by("name").agg(pl.col("gpus").sum()).sort("name")
    largest = taken.placeable().unique(["pool", "level"], keep="first", maintain_order=True)
    return {
        "at": at,
        "weighting": chosen.weighting,
        "fragmented_gpus": fragmented,
        "total_gpus": total,
        "excluded_gpus": int(cluster.is_set_aside.sum()),
        "free_gpus": free,
        "frag_ratio": fragmented / free if fragmented is not None and free else None,
        "frag_rate": fragmented / total if fragmented is not None and total else None,
        "class_count": class_counts(typical.classes)[chosen.weighting],
        "fragmented_gpus_by_weighting": fragments["typical"],
        "fragmented_gpus_of_pending_by_weighting": fragments["pending"],
        "fragmented_gpus_by_cut": typical.by_cut and {f"{cut:.0%}": gpus for cut, gpus in typical.by_cut.items()},
        "free_gpus_by_block": dict(blocks.iter_rows()),
        "topology": runner.query("fragmentation_topology", at=at, gang_nodes=chosen.gang_nodes).to_pylist(),
        "largest_gang": largest.select("pool", "level", "largest_gang_gpus").to_dicts(),
    }
