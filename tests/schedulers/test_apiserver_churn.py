from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event, Thread
from typing import Any

import httpx
import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from schedulers.fakes.apiserver import Serving, Store, serve
from schedulers.fakes.apiserver.churn import DEVICES, Churn, twice_held


def held(pods: Sequence[Mapping[str, Any]]) -> int:
    devices = [pod["metadata"].get("annotations", {}).get(DEVICES, "") for pod in pods]
    return sum(len(listed.split(",")) for listed in devices if listed)


@pytest.fixture
def churn() -> Churn:
    return Churn(Store(), nodes=6, pods=60, holes=2)


@pytest.fixture
def api(churn: Churn) -> Iterator[Serving]:
    with serve(churn.store) as serving:
        yield serving


def pages(http: httpx.Client, limit: int, **query: str) -> list[dict[str, Any]]:
    """All pods, page by page."""
    items: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    while True:
        answer = http.get("/api/v1/pods", params={"limit": limit, **query, **token}).raise_for_status().json()
        items += answer["items"]
        if "continue" not in answer["metadata"]:
            return items
        token = {"continue": answer["metadata"]["continue"]}


def test_begins_full_but_for_its_holes(churn: Churn) -> None:
    pods = list(churn.store.all("v1", "Pod"))
    assert len(pods) == 60
    assert churn.held_gpus == (40, 42)  # 6 nodes of 8 GPUs, less two holes of one GPU and two of two
    assert held(pods) == 42
    assert len(list(churn.store.all("v1", "Node"))) == 6


def test_its_objects_are_what_kubernetes_takes(churn: Churn) -> None:
    churn.change()
    for item in [*churn.store.all("v1", "Pod"), *churn.store.all("v1", "Node")]:
        kubernetes_validate.validate(item, "1.34", strict=True)


def test_no_gpu_is_held_twice_at_any_version(churn: Churn, api: Serving) -> None:
    first = churn.store.version
    for _ in range(60):
        churn.change()
    least, most = churn.held_gpus
    with httpx.Client(base_url=api.url) as http:
        for version in range(first, churn.store.version + 1):
            pods = pages(http, 500, resourceVersion=str(version), resourceVersionMatch="Exact")
            assert twice_held(pods) == {}
            assert least <= held(pods) <= most


def test_a_torn_read_shows(churn: Churn, api: Serving) -> None:
    with httpx.Client(base_url=api.url) as http:
        before = {pod["metadata"]["name"]: pod for pod in pages(http, 500)}
        for _ in range(60):
            churn.change()
        after = {pod["metadata"]["name"]: pod for pod in pages(http, 500)}
    least, most = churn.held_gpus
    half = sorted({*before, *after})[30]
    torn = [pod for name, pod in before.items() if name < half] + [pod for name, pod in after.items() if name >= half]
    assert twice_held(torn) or not least <= held(torn) <= most


def test_pages_that_are_read_while_it_changes_are_of_one_version(churn: Churn, api: Serving) -> None:
    stop = Event()
    thread = Thread(target=churn.run, args=(stop,), kwargs={"changes_per_second": 2_000})
    thread.start()
    least, most = churn.held_gpus
    try:
        with httpx.Client(base_url=api.url) as http:
            while churn.changes < 200:
                pods = pages(http, 7)
                assert twice_held(pods) == {}
                assert least <= held(pods) <= most
    finally:
        stop.set()
        thread.join()


def test_the_same_seed_gives_the_same_life() -> None:
    ends = []
    for _ in range(2):
        churn = Churn(Store(), nodes=3, pods=20, holes=1, seed=5)
        for _ in range(50):
            churn.change()
        ends.append([pod["metadata"]["name"] for pod in churn.store.all("v1", "Pod")])
    assert ends[0] == ends[1]
