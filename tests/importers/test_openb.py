from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from collector.importers import openb
from gpuledger.errors import BadInput, BadRecord
from gpuledger.model import arrow_schema

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "openb"

NODES = """sn,cpu_milli,memory_mib,gpu,model
n-0,64000,262144,2,P100
n-1,32000,131072,0,
n-2,96000,786432,8,V100M32
"""

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p-cpu,4000,8192,0,0,,LS,Running,0,100,0
p-part,6000,12288,1,460,,BE,Running,10,120,12
p-whole,12000,16384,1,1000,V100M16|V100M32,LS,Running,20,,25
p-many,96000,65536,8,1000,,Burstable,Pending,30,,
"""


def _read(folder: Path, nodes: str = NODES, pods: str = PODS) -> dict[str, pl.DataFrame]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return {
        name: pl.DataFrame(table) for name, table in openb.read(nodes=folder / "nodes.csv", pods=folder / "pods.csv")
    }


def test_tables_have_the_records_schema(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    for name, table in openb.read(nodes=tmp_path / "nodes.csv", pods=tmp_path / "pods.csv"):
        assert table.schema == arrow_schema(name)


def test_nodes_and_cards(tmp_path: Path) -> None:
    read = _read(tmp_path)
    assert read["node"]["gpu_count"].to_list() == [2, 0, 8]
    assert read["asset"].height == 10
    card = read["asset"].row(0, named=True)
    assert (card["gpu_uuid"], card["node"], card["slot"], card["model"]) == ("n-0/gpu0", "n-0", 0, "P100")
    assert (card["status"], card["origin"], card["until_at"]) == ("in_service", "imported", None)
    assert read["asset"]["gpu_uuid"].n_unique() == 10


def test_pods_are_request_shapes_without_a_place(tmp_path: Path) -> None:
    read = _read(tmp_path)
    assert set(read) == {"node", "asset", "workload"}
    part, whole, many = (read["workload"].row(i, named=True) for i in (1, 2, 3))
    assert (part["num_gpu"], part["gpu_milli"], part["cpu_milli"], part["model_set"]) == (1, 460, 6000, None)
    assert part["submitted_at"] == openb.TRACE_START + timedelta(seconds=10)
    assert part["started_at"] == openb.TRACE_START + timedelta(seconds=12)
    assert part["ended_at"] == openb.TRACE_START + timedelta(seconds=120)
    assert (whole["model_set"], whole["ended_at"]) == ("V100M16|V100M32", None)
    assert (many["started_at"], many["ended_at"]) == (None, None)


def test_a_bad_row_costs_only_itself(tmp_path: Path) -> None:
    nodes = NODES + "n-3,many,1,1,T4\n,1,1,1,T4\n"
    pods = PODS + "p-over,1,1,1,1001,,,,0,,\np-short,1,1\np-late,1,1,1,1000,,,,x,,\np-long,1,1,1,1000,,,,0,,,,,\n\n"
    pods += "p-good,1,1,1,1000,,,,0,,\n"
    kept: dict[str, int] = {}
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv").write_text(pods)
    with pytest.raises(BadRecord) as caught:
        kept.update(
            (name, t.num_rows) for name, t in openb.read(nodes=tmp_path / "nodes.csv", pods=tmp_path / "pods.csv")
        )
    assert [(row, field) for row, field, _ in caught.value.rejected] == [
        (5, "cpu_milli"),
        (6, "gpu_milli"),
        (6, "sn"),
        (7, "pods.csv"),
        (8, "creation_time"),
        (9, "pods.csv"),
    ]


def test_the_good_rows_come_before_the_bad_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES + "n-3,many,1,1,T4\n")
    (tmp_path / "pods.csv").write_bytes(PODS.encode() + b"p-\xff\xfe,1,1,1,1000,,,,0,,\n")
    tables = openb.read(nodes=tmp_path / "nodes.csv", pods=tmp_path / "pods.csv")
    kept = [(name, table.num_rows) for name, table in (next(tables) for _ in range(3))]
    assert kept == [("node", 3), ("asset", 10), ("workload", 4)]
    with pytest.raises(BadRecord) as caught:
        next(tables)
    assert [field for _, field, _ in caught.value.rejected] == ["cpu_milli", "name"]


def test_a_missing_column_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gpu: column is missing in nodes\.csv"):
        _read(tmp_path, nodes=NODES.replace(",gpu,", ",gpus,"))
    with pytest.raises(BadInput, match=r"absent\.csv: cannot be read"):
        next(openb.read(nodes=tmp_path / "absent.csv", pods=tmp_path / "pods.csv"))


def test_the_trace_itself() -> None:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no public traces beside it")
    tables = openb.read(nodes=SHARED / "openb_node_list_gpu_node.csv", pods=SHARED / "openb_pod_list_default.csv")
    read = {name: pl.DataFrame(table) for name, table in tables}
    assert (read["node"].height, read["node"]["gpu_count"].sum(), read["asset"].height) == (1213, 6212, 6212)
    pods = read["workload"]
    counts = {
        "cpu": pods.filter(pl.col("num_gpu") == 0).height,
        "part": pods.filter((pl.col("num_gpu") == 1) & (pl.col("gpu_milli") < 1000)).height,
        "one": pods.filter((pl.col("num_gpu") == 1) & (pl.col("gpu_milli") == 1000)).height,
        "many": pods.filter(pl.col("num_gpu") > 1).height,
    }
    assert counts == {"cpu": 1088, "part": 3078, "one": 3911, "many": 75}


def test_the_trace_with_model_constraints() -> None:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no public traces beside it")
    tables = openb.read(nodes=SHARED / "openb_node_list_all_node.csv", pods=SHARED / "openb_pod_list_gpuspec33.csv")
    read = {name: pl.DataFrame(table) for name, table in tables}
    assert read["node"].filter(pl.col("gpu_count") > 0).height == 1213
    assert read["workload"]["model_set"].drop_nulls().str.contains("|", literal=True).any()
