"""The fragmentation rule around its cases: topology B3, openb's empty cluster, stretches over hours, options."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.rules.fragmentation import Fragmentation
from collector.importers import openb
from gpuledger.errors import BadInput
from gpuledger.model import Window
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)


def _topology(house: Warehouse, gang_nodes: int) -> dict[str, Any]:
    rows = house.query("fragmentation_topology", at=AT, gang_nodes=gang_nodes).to_pylist()
    return {row["level"]: row for row in rows}


def test_b3_gangs_of_whole_nodes(house: Warehouse, put_node: Callable[..., None]) -> None:
    for leaf, count in enumerate([3, 1, 2, 2], start=1):
        for i in range(count):
            put_node(f"l{leaf}n{i}", [1000] * 8, at=AT, leaf=f"l{leaf}", spine="s1" if leaf < 3 else "s2")
    put_node("busy", [1000] * 7 + [999], at=AT, leaf="l2", spine="s1")
    pairs, fours = _topology(house, 2), _topology(house, 4)
    assert (pairs["leaf"]["slot_count"], pairs["leaf"]["frag_ratio"]) == (3, 0.25)
    assert (fours["leaf"]["slot_count"], fours["leaf"]["frag_ratio"]) == (0, 1.0)
    assert (fours["spine"]["slot_count"], fours["spine"]["frag_ratio"]) == (2, 0.0)
    assert (fours["cluster"]["slot_count"], fours["cluster"]["biggest_gang_nodes"]) == (2, 8)
    assert pairs["leaf"]["biggest_gang_nodes"] == 3
    assert "nvl_domain" not in pairs, "a domain that nobody named is not a domain"


def test_b3_leaves_out_nodes_that_are_set_aside(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None]
) -> None:
    for name in ("a", "b", "c"):
        put_node(name, [1000], at=AT, leaf="l1")
    put("condition", {"subject_kind": "node", "subject": "a", "condition": "spare", "from_at": AT - timedelta(hours=1)})
    put("condition", {"subject_kind": "gpu", "subject": "b/gpu0", "condition": "fatal_xid", "from_at": AT})
    assert _topology(house, 1)["leaf"]["free_node_count"] == 1


def test_a_stretch_goes_on_over_hours_and_a_pause_ends_it(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000, 1000], at=AT)
    put_classes([(0, 1000, 2, None, 1)], at=AT)
    times = [(AT, 90), (AT + timedelta(minutes=91), 150)]
    put(
        "allocation",
        *(
            {
                "allocation_id": f"a{i}",
                "workload_id": "w",
                "pod": "p",
                "node": "n",
                "gpu_uuid": "n/gpu0",
                "share": 1.0,
                "started_at": begin,
                "ended_at": begin + timedelta(minutes=length),
            }
            for i, (begin, length) in enumerate(times)
        ),
    )
    window = Window(AT, AT + timedelta(hours=6))
    house.build_ledger(window, until_at=window.to_at)
    found = Fragmentation().run(house, window, {})
    assert [finding.gpu_hours_wasted for finding in found.findings] == pytest.approx([2.5, 1.5])
    assert [finding.window_start for finding in found.findings] == [AT + timedelta(minutes=91), AT]
    stranded = {"gpu_hours": pytest.approx(4.0), "gpus_at_end": 0.0}
    assert found.totals["stranded_by_cause"] == {"insufficient_whole": stranded}
    halves = [Window(AT, AT + timedelta(hours=2)), Window(AT + timedelta(hours=2), window.to_at)]
    parts = [Fragmentation().run(house, half, {}).totals["stranded_by_cause"] for half in halves]
    assert sum(part["insufficient_whole"]["gpu_hours"] for part in parts) == pytest.approx(4.0)


def test_options_are_named_when_wrong(house: Warehouse) -> None:
    window = Window(AT, AT + timedelta(hours=1))
    with pytest.raises(BadInput, match="weighting: 'loud' is not one of demand, pods, all, published"):
        Fragmentation().run(house, window, {"weighting": "loud"})
    with pytest.raises(BadInput, match="colour: no such option"):
        Fragmentation().run(house, window, {"colour": "red"})


OPENB = {"pods": (81, 39.1971), "all": (91, 863.0451), "published": (35, 866.2326), "demand": (81, 146.9292)}


def test_openb_empty_cluster(shared: Path, house: Warehouse) -> None:
    files = shared / "data" / "openb"
    tables = openb.read(nodes=files / "openb_node_list_gpu_node.csv", pods=files / "openb_pod_list_default.csv")
    for record, table in tables:
        assert not house.ingest(record, table, f"openb-{record}").rejected
    end = openb.TRACE_START + timedelta(days=150)
    window = Window(end - timedelta(hours=1), end)
    for weighting, (class_count, fragmented) in OPENB.items():
        totals = Fragmentation().run(house, window, {"weighting": weighting}).totals
        assert totals["fragmented_gpus"] == pytest.approx(fragmented, abs=0.001), weighting
        assert (totals["class_count"], totals["total_gpus"], totals["free_gpus"]) == (class_count, 6212, 6212.0)
    totals = Fragmentation().run(house, window, {}).totals
    assert totals["weighting"] == "demand"
    assert totals["fragmented_gpus_by_weighting"] == pytest.approx({k: v for k, (_, v) in OPENB.items()}, abs=0.001)
    assert totals["frag_rate"] == pytest.approx(146.9292 / 6212, abs=1e-6)


def test_a_weighting_without_classes_measures_nothing(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000], at=AT)
    put_classes([(1000, 0, 0, None, 3)], at=AT)
    window = Window(AT - timedelta(hours=1), AT)
    totals = Fragmentation().run(house, window, {}).totals
    assert (totals["fragmented_gpus"], totals["class_count"]) == (None, 0)
    assert totals["fragmented_gpus_by_weighting"] == {"demand": None, "pods": None, "all": 1.0, "published": 1.0}


def test_racks_of_one_name_in_two_rows_are_two(house: Warehouse, put_node: Callable[..., None]) -> None:
    for place, (leaf, spine) in enumerate([("r1", "A"), ("r1", "B"), ("r2", "A"), ("r2", None)]):
        put_node(f"n{place}", [1000], at=AT, leaf=leaf, spine=spine)
    rows = {row["level"]: row for row in house.query("fragmentation_topology", at=AT, gang_nodes=2).to_pylist()}
    assert (rows["leaf"]["slot_count"], rows["leaf"]["domain_count"]) == (1, 3)
    assert rows["spine"]["slot_count"] == 1
