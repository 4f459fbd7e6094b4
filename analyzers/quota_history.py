"""What queues wanted, hour by hour, with outages found and left out: the quota rule and the recommender stand on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import polars as pl

from gpuledger.model import Window
from gpuledger.ports import QueryRunner

MIN_COVERED_HOURS = 0.5
"""An hour of which less was recorded is not judged (algorithms.md, section 0, coverage)."""

MIN_HOURS_OF_A_DAY = 12
"""A day with fewer judged hours does not count as a day of history."""


@dataclass(frozen=True, slots=True)
class Outages:
    """When the fleet as a whole did not work: disjoint windows in order, detected or declared."""

    windows: tuple[Window, ...] = ()

    @property
    def minutes(self) -> float:
        """Length of all of them, minutes."""
        return sum((window.to_at - window.from_at).total_seconds() for window in self.windows) / 60

    def outside_hours(self, window: Window) -> float:
        """Hours of `window` outside the outages."""
        inside = (
            (min(o.to_at, window.to_at) - max(o.from_at, window.from_at)).total_seconds() / 3600 for o in self.windows
        )
        return window.hours - sum(max(0.0, hours) for hours in inside)


def merged(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The union of `windows` as disjoint windows in order."""
    united: list[Window] = []
    for window in sorted(windows, key=lambda one: one.from_at):
        if united and window.from_at <= united[-1].to_at:
            united[-1] = Window(united[-1].from_at, max(united[-1].to_at, window.to_at))
        else:
            united.append(window)
    return tuple(united)


def find_outages(runner: QueryRunner, window: Window, *, normal_ratio: float, min_minutes: float) -> Outages:
    """Outages of `window`: the fleet ran nothing though it normally does, or every node was declared out of use."""
    span = {"from_at": window.from_at, "to_at": window.to_at}
    detected = runner.query("quota_outage_detected", **span, normal_ratio=normal_ratio, min_minutes=min_minutes)
    declared = runner.query("quota_outage_declared", **span)
    rows = [*detected.to_pylist(), *declared.to_pylist()]
    return Outages(merged(Window(row["from_at"], row["until_at"]) for row in rows))


def hourly(runner: QueryRunner, window: Window, outages: Outages) -> pl.DataFrame:
    """The rows of query `quota_hourly` over `window`."""
    table = runner.query(
        "quota_hourly",
        from_at=window.from_at,
        to_at=window.to_at,
        outage_from_ats=[outage.from_at for outage in outages.windows],
        outage_until_ats=[outage.to_at for outage in outages.windows],
    )
    return cast("pl.DataFrame", pl.from_arrow(table))


def judged_hours(hours: pl.DataFrame, outages: Outages) -> pl.DataFrame:
    """Hours fit to judge, with `demand_gpus` (mean), `nominal_gpus` (mean) and `day`.

    Left out are hours of which less than half was recorded, whose nominal quota is unknown or unlimited, or in which
    nobody said what waits, and whole UTC days that an outage touched: what ran just before and after one is not what
    the queues normally want.
    """
    touched = [day.from_at.date() for outage in outages.windows for day in outage.days()]
    known = ("nominal_known_hours", "demand_known_hours")
    fit = pl.all_horizontal(pl.col(column) >= MIN_COVERED_HOURS for column in known)
    return (
        hours.with_columns(day=pl.col("hour_at").dt.convert_time_zone("UTC").dt.date())
        .filter(fit & ~pl.col("day").is_in(pl.Series(touched, dtype=pl.Date).implode()))
        .with_columns(
            demand_gpus=pl.col("demand_gpu_hours") / pl.col("demand_known_hours"),
            nominal_gpus=pl.col("nominal_gpu_hours") / pl.col("nominal_known_hours"),
        )
        .sort("queue", "hour_at")
    )


def valid_days(judged: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """`valid_days` of each `by`: days with at least `MIN_HOURS_OF_A_DAY` judged hours."""
    days = judged.group_by(*by, "day").agg(pl.col("hour_at").n_unique().alias("hour_count"))
    enough = (pl.col("hour_count") >= MIN_HOURS_OF_A_DAY).sum().cast(pl.Int64).alias("valid_days")
    return days.group_by(*by).agg(enough).sort(*by)
