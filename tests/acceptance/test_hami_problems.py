"""Faults that people reported of clusters that share cards with HAMi (014, 015, 017), from page or object to ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.sources.hami import PAGES
from gpuledger.model import Asset, Window
from tests.acceptance.house import AT, MINUTE, House, gauge, listed, problem
from tests.schedulers.kubernetes_objects import NOW, by, mapped, node, pod, quota

CARD_MIB = 24576
HOUR = timedelta(hours=1)


def registered(*cards: str) -> dict[str, str]:
    """The annotation of a node in which HAMi lists its cards, each for ten pods."""
    listed = [{"id": card, "count": 10, "devmem": CARD_MIB, "devcore": 100, "type": "NVIDIA A10"} for card in cards]
    return {"hami.io/node-nvidia-register": json.dumps(listed)}


def told(limits: dict[str, str]) -> tuple[int, int]:
    """(MiB, percent of cores) that HAMi gives of a card for `limits`."""
    percent = int(limits.get("nvidia.com/gpumem-percentage", 100))
    return CARD_MIB * percent // 100, int(limits.get("nvidia.com/gpucores", 0))


def scheduled(given: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods of problem 014 as HAMi placed them."""
    placed = []
    for one in given:
        memory, cores = told(one["limits"])
        placed.append(
            pod(
                one["name"],
                namespace=one["ns"],
                on="n1",
                requests=one["limits"],
                annotations={"hami.io/vgpu-devices-allocated": f"{one['device_uuid']},NVIDIA,{memory},{cores}:;"},
            )
        )
    return placed


def page_of(given: Iterable[dict[str, Any]]) -> str:
    """The scheduler's page of the same pods."""
    page = ""
    for one in given:
        memory, cores = told(one["limits"])
        card = {"device_uuid": one["device_uuid"], "node": "n1"}
        page += gauge("hami_gpu_memory_limit_bytes", CARD_MIB * 2**20, **card)
        labels = {**card, "namespace": one["ns"], "pod": one["name"], "container_index": "0"}
        page += gauge("hami_vgpu_memory_allocated_bytes", memory * 2**20, **labels)
        page += gauge("hami_vgpu_core_allocated_ratio", cores, **labels)
    return "".join(dict.fromkeys(page.splitlines(keepends=True)))


def read(house: House, page: str, kind: str, minutes: int = 60, node: str | None = None) -> None:
    """The same page, read every minute from AT on."""
    target = MappedTarget(load("hami").model_copy(update={"source": PAGES[kind]}), node=node)
    seen = [parse(page.encode(), AT + number * MINUTE, target) for number in range(minutes)]
    house.put("reading", [row for one in seen for row in one.readings])
    house.put("source_read", [row for one in seen for row in one.reads])
    house.put("holding", [row for one in seen for row in one.holdings])


def check_014(house: House, hours: dict[Any, float]) -> None:
    assert hours.pop(("team-a/share-0", "GPU-hami-0")) == pytest.approx(0.25)
    assert hours == {
        **{(f"team-a/share-{number}", "GPU-hami-0"): pytest.approx(0.25) for number in range(1, 4)},
        ("team-b/whole", "GPU-hami-1"): pytest.approx(1.0),
    }
    assert house.cards() == 2


def test_014_quarters_of_a_card_are_quarters_by_what_the_cluster_says(house: House) -> None:
    given = json.loads(problem("014-hami-quarter-pods.json"))["pods"]
    shared = node("n1", 20, annotations=registered("GPU-hami-0", "GPU-hami-1"))
    snapshot = mapped(nodes=[shared], pods=scheduled(given))
    for record in ("allocation", "workload"):
        assert not house.warehouse.ingest(record, snapshot.records[record], record).rejected
    check_014(house, house.hours("workload_id", "gpu_uuid", begin=NOW - HOUR))
    assert by(snapshot, "node", "node")["n1"]["gpu_count"] == 2


def test_014_quarters_of_a_card_are_quarters_by_hamis_own_page(house: House) -> None:
    given = json.loads(problem("014-hami-quarter-pods.json"))["pods"]
    read(house, page_of(given), "scheduler")
    check_014(house, house.hours("workload_id", "gpu_uuid"))
    by_tenant = house.hours("tenant")
    assert by_tenant == {"team-a": pytest.approx(1.0), "team-b": pytest.approx(1.0)}


def test_a_quarter_that_is_alone_on_its_card_leaves_three_quarters_free(house: House) -> None:
    """Beside the monitor's page, which sees the pod and not its part."""
    limits = {"nvidia.com/gpucores": "25", "nvidia.com/gpumem-percentage": "25"}
    one = {"ns": "a", "name": "p", "device_uuid": "G", "limits": limits}
    read(house, page_of([one]), "scheduler")
    busy = gauge("hami_host_gpu_utilization_ratio", 90, device_uuid="G", node="n1")
    monitor = busy + gauge("hami_vgpu_memory_limit_bytes", 6e9, device_uuid="G", namespace="a", pod="p", container="c")
    target = MappedTarget(load("hami"), node="n1")
    seen = [parse(monitor.encode(), AT + number * MINUTE + MINUTE / 2, target) for number in range(60)]
    house.put("reading", [row for one in seen for row in one.readings])
    house.put("holding", [row for one in seen for row in one.holdings])
    hours = house.hours("workload_id", "state")
    assert hours.pop(("a/p", "alloc_ungraded")) == pytest.approx(0.25, abs=0.01)
    assert sum(hours.values()) == pytest.approx(0.75, abs=0.01)
    assert house.rate("gpu_util_of_inventory") == pytest.approx(0.9 * 0.25, abs=0.01)


def test_015_what_is_asked_of_each_card_counts_for_each() -> None:
    given = json.loads(problem("015-hami-per-card-limits.json"))
    assert given["card_mib"] == CARD_MIB
    cards = registered("GPU-0", "GPU-1", "GPU-2")
    rows, problems, running = quotas_of_015(given, node("n1", 30, annotations=cards))
    assert rows == {"nvidia.com/gpucores": (25.0, 30.0), "nvidia.com/gpumem": (6000.0, 26576.0)}
    assert problems == [
        ("limit_not_enforced", "nvidia.com/gpucores: 30 of 25"),
        ("limit_not_enforced", "nvidia.com/gpumem: 26576 of 6000"),
    ]
    assert running == pytest.approx(1.2)


def test_015_a_card_of_unknown_size_is_a_whole_card_and_no_number() -> None:
    rows, problems, running = quotas_of_015(json.loads(problem("015-hami-per-card-limits.json")), node("n1", 30))
    assert rows == {"nvidia.com/gpucores": (25.0, 30.0), "nvidia.com/gpumem": (6000.0, None)}
    assert problems[1][0] == "unparsed_allocation"
    assert problems[1][1].startswith("nvidia.com/gpumem: 2000 MiB + 1 whole card of 6000")
    assert running == pytest.approx(1.2)


def quotas_of_015(given: dict[str, Any], on: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]], float]:
    """(limit and use of each part, what is told, GPU-equivalents that run) of problem 015's two pods on node `on`."""
    pods = [
        pod(one["name"], on="n1", requests={name: str(count) for name, count in one["limits"].items()})
        for one in given["pods"]
    ]
    quotas = [
        quota("parts", {name: str(count) for name, count in given["quota"].items()}),
        quota("gpus", {"requests.nvidia.com/gpu": "8"}),
    ]
    snapshot = mapped(nodes=[on], pods=pods, resourcequotas=quotas)
    rows = [row for row in snapshot.records["queue_resource"].to_pylist() if row["queue"] == "team-a/parts"]
    events = [row for row in snapshot.records["quality_event"].to_pylist() if row["subject"] == "team-a/parts"]
    return (
        {row["resource"]: (row["limit"], row["used"]) for row in rows},
        sorted((row["kind"], row["detail"]) for row in events),
        by(snapshot, "queue_state", "queue")["team-a/gpus"]["running_gpus"],
    )


def test_017_a_pod_that_owns_whole_cards_is_as_busy_as_they_are(house: House) -> None:
    read(house, problem("017-hami-exclusive-zero.prom"), "monitor", node="n1")
    cards = [f"GPU-h20-{number}" for number in range(8)]
    house.put(
        "asset", [Asset(gpu_uuid=card, node="n1", model="H20", status="in_service", from_at=AT) for card in cards]
    )
    pod_page = listed("serving", "llm-0", "n1", gpus=8, started=AT - HOUR)
    house.list_pods({AT + number * 10 * MINUTE: pod_page for number in range(7)})
    states = house.hours("workload_id", "state")
    assert {state for _, state in states} <= {"alloc_ungraded", "alloc_productive", "alloc_low"}
    assert sum(states.values()) == pytest.approx(8.0)
    window = Window(AT, AT + HOUR)
    (row,) = house.warehouse.query("job_utilization", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert (row["workload_id"], row["gpu_util_source"]) == ("serving/llm-0", "host (exclusive card)")
    assert round(100 * row["gpu_util_ratio"], 1) == 64.0


def test_017_of_a_shared_card_the_source_says_that_it_is_the_cards(house: House) -> None:
    labels = [{"device_uuid": "G", "namespace": "a", "pod": name, "container": "c"} for name in ("p", "q")]
    page = gauge("hami_host_gpu_utilization_ratio", 80, device_uuid="G", node="n1")
    page += "".join(gauge("hami_container_device_utilization_ratio", 0, **of) for of in labels)
    read(house, page, "monitor")
    assert set(house.hours("workload_id", "state")) == {("a/p", "alloc_ungraded"), ("a/q", "alloc_ungraded")}
    rows = house.warehouse.query("job_utilization", from_at=AT, to_at=AT + HOUR).to_pylist()
    assert {row["workload_id"]: row["gpu_util_source"] for row in rows} == {
        "a/p": "host (shared card)",
        "a/q": "host (shared card)",
    }
