"""How large a gang fits: worked example B3, exactly, and its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.fragmentation.cluster import Cluster, read_cluster
from analyzers.fragmentation.slots import GANG_GPUS, placeable
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)


def _cluster(nodes: Sequence[tuple[list[float], Mapping[str, str | None]]], pools: list[str] | None = None) -> Cluster:
    """Nodes as (free share of each card, domains)."""
    count, cards = len(nodes), [share for free, _ in nodes for share in free]
    unknown = np.full(count, np.nan)
    names = np.array([f"n{place:03}" for place in range(count)], dtype=object)
    return Cluster(
        node=names,
        pool=np.array(pools or ["p"] * count, dtype=object),
        model=np.array([None] * count, dtype=object),
        gpu_count=np.array([len(free) for free, _ in nodes]),
        cpu_milli=unknown,
        memory_mib=unknown,
        cpu_free_milli=unknown,
        memory_free_mib=unknown,
        domains={
            level: np.array([where.get(level) for _, where in nodes], dtype=object)
            for level in ("nvl_domain", "leaf", "spine", "cluster")
        },
        card=np.array([f"g{place}" for place in range(len(cards))], dtype=object),
        card_node=np.repeat(np.arange(count), [len(free) for free, _ in nodes]),
        card_model=np.array([None] * len(cards), dtype=object),
        is_set_aside=np.zeros(len(cards), dtype=bool),
        free_gpus=np.array(cards, dtype=float),
        ledger_cause=np.array([None] * len(cards), dtype=object),
    )


def _rows(cluster: Cluster, *sizes: int) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["level"], row["gang_gpus"]): row for row in placeable(cluster, sizes or GANG_GPUS).to_dicts()}


def _b3() -> list[tuple[list[float], dict[str, str | None]]]:
    where = [("l1", "s1")] * 3 + [("l2", "s1")] + [("l3", "s2")] * 2 + [("l4", "s2")] * 2
    return [([1.0] * 8, {"leaf": leaf, "spine": spine, "cluster": "c"}) for leaf, spine in where]


def test_b3_exactly() -> None:
    found = _rows(_cluster(_b3()), 16, 32)
    assert (found["leaf", 16]["slot_count"], found["leaf", 16]["frag_ratio"]) == (3, 0.25)
    assert (found["leaf", 32]["slot_count"], found["leaf", 32]["frag_ratio"]) == (0, 1.0)
    assert (found["spine", 32]["slot_count"], found["spine", 32]["frag_ratio"]) == (2, 0.0)
    assert found["leaf", 16]["largest_gang_gpus"] == 24
    assert found["spine", 16]["largest_gang_gpus"] == 32
    assert found["cluster", 16]["largest_gang_gpus"] == 64
    assert ("nvl_domain", 16) not in found, "a level that nobody named is no level"


def test_b3_with_one_node_more_or_less() -> None:
    one_more: list[tuple[list[float], Mapping[str, str | None]]] = [
        *_b3(),
        ([1.0] * 8, {"leaf": "l2", "spine": "s1", "cluster": "c"}),
    ]
    found = _rows(_cluster(one_more), 16, 32)
    assert (found["leaf", 16]["slot_count"], found["leaf", 16]["frag_ratio"]) == (4, pytest.approx(1 / 9))
    assert (found["spine", 32]["slot_count"], found["spine", 32]["frag_ratio"]) == (2, pytest.approx(1 / 9))
    one_less = _rows(_cluster(_b3()[:-1]), 16, 32)
    assert one_less["leaf", 16]["slot_count"] == 2
    assert one_less["spine", 32]["slot_count"] == 1


@pytest.mark.parametrize("share", [0.999, 0.0])
def test_a_node_with_one_card_in_use_takes_no_part_in_a_larger_gang(share: float) -> None:
    nodes = _b3()
    nodes[-1] = ([*[1.0] * 7, share], nodes[-1][1])
    found = _rows(_cluster(nodes), 1, 4, 16)
    assert found["leaf", 16]["slot_count"] == 2
    assert found["leaf", 16]["free_gpus"] == 63
    assert found["leaf", 1]["slot_count"] == 63
    assert found["node", 4]["slot_count"] == 15
    assert found["node", 16]["slot_count"] == 0


def test_gangs_in_a_node_need_its_own_cards() -> None:
    found = _rows(_cluster([([1.0, 1.0, 1.0, 0.5], {}), ([1.0, 0.0, 1.0, 1.0], {})]), 1, 2, 3, 4, 6)
    assert [found["node", size]["slot_count"] for size in (1, 2, 3, 4, 6)] == [6, 2, 2, 0, 0]
    assert found["node", 3]["largest_gang_gpus"] == 3
    assert found["node", 4]["frag_ratio"] == 1.0


def test_nodes_of_several_sizes_are_not_mixed_in_one_gang() -> None:
    nodes = [([1.0] * 8, {"leaf": "a"}), ([1.0] * 8, {"leaf": "a"}), ([1.0] * 4, {"leaf": "a"})]
    found = _rows(_cluster(nodes), 8, 12, 16, 20)
    assert [found["leaf", size]["slot_count"] for size in (8, 12, 16, 20)] == [2, 1, 1, 0]
    assert found["leaf", 8]["largest_gang_gpus"] == 16


def test_nothing_free_has_no_ratio() -> None:
    found = _rows(_cluster([([0.0] * 4, {"leaf": "a"})]), 1)
    assert (found["leaf", 1]["slot_count"], found["leaf", 1]["frag_ratio"], found["leaf", 1]["largest_gang_gpus"]) == (
        0,
        None,
        0,
    )


def test_pools_are_apart() -> None:
    rows = placeable(_cluster(_b3(), ["a"] * 4 + ["b"] * 4), (16,)).to_dicts()
    assert {(row["pool"], row["level"]): row["slot_count"] for row in rows if row["level"] == "leaf"} == {
        ("a", "leaf"): 1,
        ("b", "leaf"): 2,
    }


FREE = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=4)
WHERE = st.fixed_dictionaries({"leaf": st.sampled_from([None, "a", "b"]), "cluster": st.just("c")})


@given(nodes=st.lists(st.tuples(FREE, WHERE), min_size=1, max_size=8), size=st.integers(1, 12))
def test_slots_never_need_more_than_is_free_and_grow_with_the_level(nodes: list[Any], size: int) -> None:
    found = _rows(_cluster(nodes), size)
    for row in found.values():
        assert 0 <= row["slot_count"] * size <= row["free_gpus"]
        assert row["largest_gang_gpus"] <= row["free_gpus"]
        assert (row["slot_count"] > 0) == (row["largest_gang_gpus"] >= size)
        assert row["frag_ratio"] is None or 0 <= row["frag_ratio"] <= 1
    assert found["node", size]["slot_count"] <= found["cluster", size]["slot_count"]
    if ("leaf", size) in found:
        assert found["leaf", size]["slot_count"] <= found["cluster", size]["slot_count"]


def test_set_aside_nodes_and_further_levels(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None]
) -> None:
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r1"), ("d", "r2")):
        put_node(name, [1000, 1000], at=AT, leaf="l1")
        state = {
            "scheduler": "kai",
            "node": name,
            "resource": "nvidia_com_gpu",
            "capacity": 2,
            "allocated": 0,
            "free": 2,
        }
        put("node_state", {**state, "topology": f'{{"racks/rack": "{rack}"}}', "from_at": AT - timedelta(hours=1)})
    put("condition", {"subject_kind": "gpu", "subject": "a/gpu0", "condition": "fatal_xid", "from_at": AT})
    found = _rows(read_cluster(house, AT, {"rack": "racks/rack"}), 1, 4)
    assert (found["leaf", 1]["slot_count"], found["leaf", 4]["slot_count"]) == (7, 1)
    assert (found["rack", 1]["slot_count"], found["rack", 4]["slot_count"]) == (7, 1)
    assert found["rack", 4]["largest_gang_gpus"] == 4


def test_racks_of_one_name_in_two_rows_are_two(house: Warehouse, put: Callable[..., None]) -> None:
    where = [("r1", "A"), ("r1", "B"), ("r2", "A"), ("r2", None), (None, "B")]
    before = AT - timedelta(days=1)
    for place, (leaf, spine) in enumerate(where):
        node = f"n{place}"
        put("node", {"node": node, "gpu_count": 8, "leaf": leaf, "spine": spine, "from_at": before})
        put(
            "asset",
            *(
                {"gpu_uuid": f"{node}/{slot}", "node": node, "status": "in_service", "from_at": before}
                for slot in range(8)
            ),
        )
    found = _rows(read_cluster(house, AT), 16)
    assert found["leaf", 16]["slot_count"] == 1, "r1 of A and r1 of B are not one; r2 is, though a label is missing"
    assert found["leaf", 16]["domain_count"] == 3
    assert found["spine", 16]["slot_count"] == 2
