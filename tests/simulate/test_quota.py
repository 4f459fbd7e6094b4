from __future__ import annotations

import polars as pl
import pytest

from gpuledger.simulate.teams import BLOCKED, UNDERUSED


def _hourly(told) -> pl.DataFrame:
    """Mean demand of each tenant and hour, and its nominal quota."""
    states = told.tables["queue_state"].with_columns(demand=pl.col("running_gpus") + pl.col("pending_gpus"))
    weight = pl.col("duration_seconds")
    return states.group_by("tenant", pl.col("ts").dt.truncate("1h").alias("hour")).agg(
        demand=(pl.col("demand") * weight).sum() / weight.sum(),
        seconds=weight.sum(),
        nominal=pl.col("nominal_gpus").first(),
    )


@pytest.mark.parametrize(("nodes", "days", "seed"), [(8, 3, 1), (16, 2, 1), (16, 4, 9)])
def test_one_team_is_clearly_underused_one_clearly_blocked_and_the_others_neither(
    tell, nodes: int, days: int, seed: int
) -> None:
    hourly = _hourly(tell(nodes, days, seed))
    assert hourly["seconds"].min() == hourly["seconds"].max() == 3600
    shares = hourly.group_by("tenant").agg(
        p99=(pl.col("demand") / pl.col("nominal")).quantile(0.99, "linear"),
        above=(pl.col("demand") > pl.col("nominal") + 1e-9).mean(),
        mean=(pl.col("demand") / pl.col("nominal")).mean(),
    )
    by_tenant = {row["tenant"]: row for row in shares.iter_rows(named=True)}
    assert by_tenant.pop(UNDERUSED)["p99"] <= 0.6
    assert by_tenant.pop(BLOCKED)["above"] >= 0.5
    for tenant, row in by_tenant.items():
        assert row["p99"] > 0.7, tenant
        assert row["above"] < 0.1, tenant


def test_quotas_add_up_to_about_the_fleet(tell) -> None:
    quota = tell(16, 4, 9).tables["quota"]
    assert quota["nominal_gpus"].sum() == pytest.approx(128, rel=0.15)
    blocked = quota.filter(pl.col("queue") == BLOCKED)
    assert blocked["borrowing_limit_gpus"].to_list() == [0.0]


def test_the_truth_s_quota_hours_are_those_of_the_queue_states(small) -> None:
    states = small.tables["queue_state"].with_columns(
        demand=pl.col("running_gpus") + pl.col("pending_gpus"), hours=pl.col("duration_seconds") / 3600
    )
    spare = states.filter(pl.col("tenant") == UNDERUSED).select(
        ((pl.col("nominal_gpus") - pl.col("demand")).clip(0) * pl.col("hours")).sum()
    )
    unmet = states.filter(pl.col("tenant") == BLOCKED).select(
        ((pl.col("demand") - pl.col("nominal_gpus")).clip(0) * pl.col("hours")).sum()
    )
    told = dict(small.truth.filter(pl.col("rule") == "quota_balance").select("cause", "gpu_hours").iter_rows())
    assert spare.item() == pytest.approx(told["underused"])
    assert unmet.item() == pytest.approx(told["blocked"])


def test_running_gpus_are_those_that_allocations_hold(small) -> None:
    spec = small.simulation.spec
    allocations = small.tables["allocation"].join(
        small.tables["workload"].select("workload_id", "tenant"), on="workload_id"
    )
    begin = pl.max_horizontal(pl.col("started_at"), pl.lit(spec.start_at))
    end = pl.min_horizontal(pl.col("ended_at").fill_null(spec.end_at), pl.lit(spec.end_at))
    held = allocations.with_columns(hours=((end - begin).dt.total_seconds() / 3600).clip(0) * pl.col("share"))
    states = (
        small.tables["queue_state"]
        .group_by("tenant")
        .agg(hours=(pl.col("running_gpus") * pl.col("duration_seconds") / 3600).sum())
    )
    for tenant, hours in held.group_by("tenant").agg(pl.col("hours").sum()).iter_rows():
        assert states.filter(pl.col("tenant") == tenant)["hours"].item() == pytest.approx(hours, rel=1e-6)
