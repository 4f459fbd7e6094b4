"""Planted fragmentation against an independent look at the tables: what waits, and what would fit."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest


def _at(frame: pl.DataFrame, begin: str, end: str, at: datetime) -> pl.DataFrame:
    return frame.filter((pl.col(begin) <= at) & (pl.col(end).is_null() | (pl.col(end) > at)))


def _waiting(told, at: datetime) -> pl.DataFrame:
    workloads = told.tables["workload"].filter((pl.col("submitted_at") <= at) & (pl.col("num_gpu") > 0))
    begun = pl.col("started_at").is_not_null() & (pl.col("started_at") <= at)
    gone = pl.col("ended_at").is_not_null() & (pl.col("ended_at") <= at)
    return workloads.filter(~begun & ~gone)


def _free(told, at: datetime) -> tuple[dict[str, float], dict[str, float]]:
    """Free share of every card, and free CPUs (milli) of every node."""
    held = _at(told.tables["allocation"], "started_at", "ended_at", at)
    shares = dict(held.drop_nulls("gpu_uuid").group_by("gpu_uuid").agg(pl.col("share").sum()).iter_rows())
    cpus = dict(held.group_by("node").agg(pl.col("cpu_milli").sum()).iter_rows())
    free = {uuid: 1 - shares.get(uuid, 0.0) for uuid in told.tables["asset"]["gpu_uuid"].unique()}
    nodes = told.tables["node"]
    return free, {node: cpu - cpus.get(node, 0) for node, cpu in zip(nodes["node"], nodes["cpu_milli"], strict=True)}


def _out(told, at: datetime) -> set[str]:
    """Cards that are not in service, or set aside."""
    assets = _at(told.tables["asset"], "from_at", "until_at", at)
    out = set(assets.filter(pl.col("status") != "in_service")["gpu_uuid"])
    conditions = _at(told.tables["condition"], "from_at", "until_at", at)
    out |= set(conditions["subject"])
    return out | set(assets.filter(pl.col("node").is_in(conditions["subject"].implode()))["gpu_uuid"])


def _fits(shape: dict[str, object], cards: dict[str, float], cpu_milli: float, model: str) -> bool:
    if shape["model_set"] is not None and model not in str(shape["model_set"]).split("|"):
        return False
    enough = sum(share * 1000 + 1e-6 >= float(str(shape["gpu_milli"])) for share in cards.values())
    return enough >= int(str(shape["num_gpu"])) and float(str(shape["cpu_milli"])) <= cpu_milli


@pytest.mark.parametrize("seed", [1, 2])
def test_a_free_share_is_called_stranded_exactly_when_nothing_that_waits_could_use_it(tell, seed: int) -> None:
    told = tell(8, 3, seed)
    truth = told.truth.filter(pl.col("rule") == "fragmentation")
    slots = dict(told.tables["asset"].select("gpu_uuid", "node").unique().iter_rows())
    models = dict(told.tables["node"].select("node", "model").iter_rows())
    verdicts = 0
    for number in range(1, 60):
        at = told.simulation.spec.start_at + timedelta(minutes=71 * number)
        said = _at(truth, "from_at", "until_at", at)
        free, cpus = _free(told, at)
        out = _out(told, at)
        shapes = _waiting(told, at).to_dicts()
        assert shapes
        usable = {uuid: share for uuid, share in free.items() if share > 1e-6 and uuid not in out}
        assert set(said["gpu_uuid"]) == set(usable)
        for row in said.iter_rows(named=True):
            node = slots[row["gpu_uuid"]]
            cards = {uuid: share for uuid, share in usable.items() if slots[uuid] == node}
            own = [shape for shape in shapes if shape["gpu_milli"] <= usable[row["gpu_uuid"]] * 1000 + 1e-6]
            fits = any(_fits(shape, cards, cpus[node], models[node]) for shape in own)
            assert fits == (row["kind"] == "lookalike"), (at, row)
            verdicts += 1
    assert verdicts > 200
