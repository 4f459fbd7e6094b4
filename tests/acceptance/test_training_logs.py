"""Jobs known by their logs: a hung collective that reads 100 % is stalled; simulated logs say what records say."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.sources.training_log import TrainingLogSource
from gpuledger.model import to_table
from gpuledger.simulate import FleetSpec, simulate
from gpuledger.simulate.training_logs import write_training_logs
from tests.warehouse.judged import AT, Judged

PROBLEM_101 = Path(__file__).parents[3] / "shared" / "problems" / "101-hang-at-100.csv"
LINE = "[{:%Y-%m-%d %H:%M:%S}] iteration {:8}/ 1000 | elapsed time per iteration (ms): 120000.0 |\n"
SHOWN = ("ts", "workload_id", "step", "step_seconds")


@pytest.fixture(scope="module")
def hang() -> list[dict[str, Any]]:
    if not PROBLEM_101.exists():
        pytest.skip("../shared is absent: this checkout has no public recordings beside it")
    with PROBLEM_101.open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("until", ["2026-03-02T22:44:00+00:00", "2026-03-02T23:06:00+00:00"])
def test_a_hang_at_100_percent_is_seen_by_the_log_that_falls_silent(hang, tmp_path, until):
    """Problem 101. The log has a line for each step that ended; the file's counter stays at 183 from 22:34 on."""
    ended = datetime.fromisoformat(until)
    samples = [row | {"ts": datetime.fromisoformat(row["ts"])} for row in hang]
    samples = [row for row in samples if row["ts"] <= ended]
    seen = {int(row["step"]): row["ts"] for row in reversed(samples)}
    log = tmp_path / "w.log"
    log.write_text("".join(LINE.format(seen[step], step) for step in sorted(seen)))
    source = TrainingLogSource(f"{tmp_path}/{{workload}}.log", state_directory=tmp_path / "state")
    observation = source.read(ended)
    judged = Judged()
    judged.house.ingest("job_step", to_table("job_step", observation.others["job_step"]), "log")
    common = {"node": "n", "source": "s", "interval_seconds": 120.0, "model": "NVIDIA B200"}
    judged.put(
        "reading",
        *(
            {**common, "ts": row["ts"], "gpu_uuid": f"g{row['rank']}", "gpu_util_ratio": int(row["gpu_util"]) / 100}
            for row in samples
        ),
    )
    minutes = (ended - AT) / timedelta(minutes=1)
    begin = samples[0]["ts"]
    judged.hold("g0", "g1", "g2", "g3", minutes=minutes, started_at=begin, ready_at=begin - timedelta(hours=1))
    spans = judged.spans(minutes=minutes)
    judged.house.close()
    stalled = [span for span in spans if span[3] == "alloc_stalled"]
    assert sum(span[2] - span[1] for span in stalled) / 60 == pytest.approx(
        4 * (ended - datetime.fromisoformat("2026-03-02T22:34:00+00:00")) / timedelta(hours=1)
    )
    if until.startswith("2026-03-02T23:06"):
        assert sum(span[2] - span[1] for span in stalled) / 60 == pytest.approx(2.13, abs=0.005)


def test_simulated_logs_say_the_steps_and_checkpoints_of_the_records(tmp_path):
    """Every step of every job, a frozen one's silence included, as its first rank tells it."""
    simulation = simulate(FleetSpec(nodes=6, days=1, scenario="training"))
    tables = {name: pl.DataFrame(pl.from_arrow(table)) for name, table in simulation.records()}
    wanted = tables["job_step"].filter(pl.col("rank") == 0).select(SHOWN).sort("workload_id", "ts")
    assert write_training_logs(simulation.script, tmp_path / "logs") == wanted["workload_id"].n_unique()
    source = TrainingLogSource(
        f"{tmp_path}/logs/{{workload}}.log", state_directory=tmp_path / "state", first_bytes=2**30, max_bytes=2**30
    )
    others = source.read(simulation.spec.end_at).others
    told = pl.DataFrame(pl.from_arrow(to_table("job_step", others["job_step"]))).select(SHOWN).sort("workload_id", "ts")
    assert told.drop("step_seconds").equals(wanted.drop("step_seconds"))
    assert told["step_seconds"].to_list() == pytest.approx(wanted["step_seconds"].to_list(), abs=5e-5)
    saved = pl.DataFrame(pl.from_arrow(to_table("checkpoint", others["checkpoint"]))).select("workload_id", "ts")
    planted = tables["checkpoint"].filter(pl.col("workload_id").is_in(wanted["workload_id"].unique().implode()))
    assert saved.sort("workload_id", "ts").equals(planted.select("workload_id", "ts").sort("workload_id", "ts"))
