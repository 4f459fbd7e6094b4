"""Increases of ports' counters, worked by hand: resets, ends of range, gaps, two sources; nodes, gangs and faults."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from analyzers.rules.hardware_fault import HardwareFault
from gpuledger.model import Window
from tests.warehouse.judged import AT, MINUTE, Judged

GBIT_400 = 400e9
HOUR = Window(AT, AT + timedelta(hours=1))


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def port(ledger: Judged, *told: tuple[float, dict[str, Any]], **common: Any) -> None:
    """Readings of one port: (minute, columns)."""
    base = {"node": "n", "device": "mlx5_0", "port": "1", "source": "infiniband", "interval_seconds": 60.0}
    base |= {"state": "active", "rate_bits_per_second": GBIT_400, **common}
    ledger.put("link_reading", *({**base, "ts": AT + minute * MINUTE, **columns} for minute, columns in told))


def sent(*counts: int | None, every: float = 1, **more: Any) -> list[tuple[float, dict[str, Any]]]:
    return [(i * every, {"sent_bytes": count, **more}) for i, count in enumerate(counts)]


def steps(ledger: Judged, column: str = "sent_bytes", hours: float = 1) -> list[tuple[float, Any]]:
    """(minute, increase) of each step."""
    with ledger.house.reading() as cursor:
        rows = cursor.execute(
            "select ts, columns(?) as value from link_step(?::timestamptz, ?::timestamptz) order by ts",
            [f"^{column}$", AT, AT + timedelta(hours=hours)],
        ).fetchall()
    return [((ts - AT) / MINUTE, value) for ts, value in rows]


def by_node(ledger: Judged) -> dict[str, dict[str, Any]]:
    rows = ledger.house.query("fabric_by_node", from_at=HOUR.from_at, to_at=HOUR.to_at).to_pylist()
    return {row["node"]: row for row in rows}


def by_gang(ledger: Judged) -> dict[str, dict[str, Any]]:
    rows = ledger.house.query("fabric_by_gang", from_at=HOUR.from_at, to_at=HOUR.to_at).to_pylist()
    return {row["workload_id"]: row for row in rows}


def faults(ledger: Judged) -> list[tuple[str, str, float, int]]:
    ledger.house.recognise_faults(HOUR)
    rows = ledger.house.query("fault_list", from_at=HOUR.from_at, to_at=HOUR.to_at).to_pylist()
    assert all((row["kind"], row["gpu_uuid"]) == ("fabric", "") for row in rows)
    return [(row["node"], row["code"], (row["ts"] - AT) / MINUTE, row["event_count"]) for row in rows]


def test_a_counter_that_fell_began_anew_and_what_is_not_told_is_unknown(ledger: Judged) -> None:
    port(ledger, *sent(1000, 1600, 250, None, 900, 900))
    assert steps(ledger) == [(1, 600), (2, 250), (3, None), (4, None), (5, 0)]


@pytest.mark.parametrize(("minutes", "told"), [(3, [(3, 600)]), (3.02, [])])
def test_readings_further_apart_than_three_intervals_make_no_step(ledger: Judged, minutes: float, told: Any) -> None:
    port(ledger, *sent(1000, 1600, every=minutes))
    assert steps(ledger) == told


def test_a_counter_at_the_end_of_its_range_has_no_rate_and_the_others_keep_theirs(ledger: Judged) -> None:
    end = 2**32 - 1
    told = [(0, end - 7, 0), (1, end, 5), (2, end, 9), (3, 3, 9)]
    port(
        ledger,
        *(
            (minute, {"wait_ticks": wait, "sent_bytes": carried, "at_least": "wait_ticks" if wait == end else ""})
            for minute, wait, carried in told
        ),
    )
    assert steps(ledger, "wait_ticks") == [(1, None), (2, None), (3, None)]
    assert steps(ledger) == [(1, 5), (2, 4), (3, 0)]
    assert by_node(ledger)["n"]["wait_ticks_per_second"] is None


def test_no_increase_is_beyond_what_the_link_carries(ledger: Judged) -> None:
    # 400 Gbit/s are 50 GB/s, 3e12 bytes a minute; 5 % above are clocks, more is no measurement.
    most = 3_000_000_000_000
    port(ledger, *sent(0, most, 2 * most + 149_000_000_000, 3 * most + 300_000_000_000, 4 * most + 300_000_000_000))
    assert steps(ledger) == [(1, most), (2, most), (3, None), (4, most)]


def test_a_reset_to_more_than_the_link_carries_is_unknown(ledger: Judged) -> None:
    port(ledger, *sent(9_000_000_000_000, 8_000_000_000_000, 8_000_000_000_060))
    assert steps(ledger) == [(1, None), (2, 60)]


def test_a_rate_that_is_not_told_bounds_nothing(ledger: Judged) -> None:
    port(ledger, *sent(0, 9_000_000_000_000), rate_bits_per_second=None)
    assert steps(ledger) == [(1, 9_000_000_000_000)]


def test_two_sources_of_a_port_count_once_and_the_one_that_tells_more_counts(ledger: Judged) -> None:
    port(ledger, *sent(0, 600, 1200))
    port(ledger, *sent(0, 600, 1200, 1800), source="node_exporter")
    assert steps(ledger) == [(1, 600), (2, 600), (3, 600)]
    (row,) = by_node(ledger).values()
    assert (row["source"], row["sent_bytes_per_second"], row["observed_seconds"]) == ("node_exporter", 10, 180)


def test_a_node_is_the_sum_of_its_ports(ledger: Judged) -> None:
    port(ledger, *sent(0, 6_000_000_000, 12_000_000_000, received_bytes=0))
    port(ledger, *sent(0, 60, 120), device="mlx5_1", state="down")
    port(ledger, *sent(0, 120), node="m")
    port(ledger, *[(i, {"symbol_errors": 3 * i, "retransmits": i}) for i in range(3)], device="mlx5_2")
    row = by_node(ledger)["n"]
    assert (row["port_count"], row["active_port_count"], row["link_bytes_per_second"]) == (3, 2, 100e9)
    assert (row["sent_bytes_per_second"], row["received_bytes_per_second"]) == (100_000_001, 0)
    assert row["use_ratio"] == pytest.approx(100_000_001 / 100e9)
    assert (row["symbol_errors"], row["retransmits"], row["congestion_packets"]) == (6, 2, None)
    assert by_node(ledger)["m"]["sent_bytes_per_second"] == 2


def test_a_gang_is_the_sum_of_its_nodes_while_it_held_them(ledger: Judged) -> None:
    ledger.hold("g0", minutes=10)
    ledger.put(
        "allocation",
        *(
            {
                "allocation_id": f"b-{card}",
                "workload_id": workload,
                "pod": "q",
                "node": node,
                "gpu_uuid": card,
                "share": 1.0,
                "started_at": AT,
                "ended_at": AT + until * MINUTE,
            }
            for card, workload, node, until in (("g1", "w", "n2", 60), ("g2", "x", "n2", 60), ("g3", "y", "n3", 60))
        ),
    )
    for card, node in (("g0", "n"), ("g1", "n2"), ("g2", "n2"), ("g3", "n3")):
        ledger.read(card, 0, 60, gpu_util_ratio=0.5, node=node)
    # Node n: 10 B/s while w held it, 1000 B/s afterwards; n2: 5 B/s throughout, shared with x; n3 tells nothing.
    port(ledger, *((i, {"sent_bytes": 600 * i if i <= 10 else 60_000 * i, "received_bytes": 0}) for i in range(60)))
    port(ledger, *((i, {"sent_bytes": 0, "received_bytes": 300 * i}) for i in range(60)), node="n2")
    ledger.build()
    gangs = by_gang(ledger)
    told = ("node_count", "told_node_count", "shared_node_count", "sent_bytes_per_second", "received_bytes_per_second")
    assert {name: [row[column] for column in told] for name, row in gangs.items()} == {
        "w": [2, 2, 1, 10, 5],
        "x": [1, 1, 1, 0, 5],
        "y": [1, 0, 0, None, None],
    }
    assert gangs["w"]["link_bytes_per_second"] == 100e9


def test_a_port_that_goes_down_is_one_fault_by_its_edge(ledger: Judged) -> None:
    states = ["active", "active", "down", "down", "down", "active", "active"]
    told = [(5.0 * i, {"state": state, "link_downed_count": int(i >= 2)}) for i, state in enumerate(states)]
    port(ledger, *told)
    port(ledger, *((minute + 0.5, columns) for minute, columns in told), source="node_exporter")
    port(ledger, *((5.0 * i, {"state": "down"}) for i in range(7)), device="mlx5_9")
    assert [fault[:3] for fault in faults(ledger)] == [("n", "mlx5_0/1", 10)]
    assert ledger.house.recognise_faults(HOUR) == 0


def test_downs_between_two_readings_are_a_fault_and_a_reset_is_none(ledger: Judged) -> None:
    port(ledger, *((10 * i, {"link_downed_count": count}) for i, count in enumerate([7, 7, 9, None, 0, 0])))
    port(ledger, (0, {"link_downed_count": 3}), device="mlx5_1")
    assert faults(ledger) == [("n", "mlx5_0/1", 20, 2)]


@pytest.mark.parametrize("state", ["unknown", "active_defer", "active"])
def test_a_state_that_is_not_down_is_no_fault(ledger: Judged, state: str) -> None:
    port(ledger, (0, {}), (10, {"state": state}))
    assert faults(ledger) == []


def test_two_ports_of_a_node_are_two_faults_and_the_rule_tells_them(ledger: Judged) -> None:
    for device in ("mlx5_0", "mlx5_1"):
        port(ledger, (0, {}), (10, {"state": "down"}), device=device)
    assert [fault[:2] for fault in faults(ledger)] == [("n", "mlx5_0/1"), ("n", "mlx5_1/1")]
    found = HardwareFault().run(ledger.house, HOUR, {}).findings
    assert sorted((one.subject_id, one.cause_code, one.action_code) for one in found) == [
        ("n/fabric-mlx5_0/1", "link_fault", "check_link"),
        ("n/fabric-mlx5_1/1", "link_fault", "check_link"),
    ]
