"""The objects of Volcano's and KAI's tests are such as the published definitions and Kubernetes allow."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest

from schedulers.fakes.apiserver import Schemas
from tests.schedulers import kai_objects as kai
from tests.schedulers.volcano_objects import SHARED, event, gpus, group, job, node, pod, queue, says
from tests.schedulers.worlds import kai as kai_world
from tests.schedulers.worlds import volcano as volcano_world

Object = dict[str, Any]
GPU = "nvidia.com/gpu"

VOLCANO: list[Object] = [
    *volcano_world.objects(),
    queue(
        "all",
        parent="root",
        weight=2,
        capability={GPU: 4, "cpu": "8"},
        deserved={GPU: "4"},
        guarantee={"resource": {GPU: "2"}},
        allocated={GPU: "3"},
        state="Closing",
    ),
    group("pg", phase="Pending", minMember=2, minResources={GPU: "2", "requests.nvidia.com/gpu": "2"}),
    job("train", 2, cpu="8", memory="64Gi", **gpus(4)),
    says(pod("p", "pg", **gpus(1)), "0/1 nodes are unavailable: 1 Insufficient cpu."),
    event(pod("p", "pg"), "no", at="2026-03-02T09:00:00Z"),
    node("n1", 8, {"nvidia.com/gpu.memory": "81559"}),
]

KAI: list[Object] = [
    *kai_world.objects(),
    kai.queue(
        "all",
        {"quota": 4, "limit": -1, "overQuotaWeight": 2},
        parent="dept",
        allocated={GPU: "2500m", "cpu": "3500m"},
        requested={GPU: 5},
        cpu={"quota": 2000, "limit": -1},
        memory={"quota": 4096, "limit": 8192},
    ),
    kai.group(
        conditions=[
            kai.unschedulable(
                {
                    "reason": "OverLimit",
                    "message": "Limit is 8 GPUs",
                    "details": {
                        "queueDetails": {
                            "name": "team",
                            "podGroupRequestedResources": {GPU: 4},
                            "queueResourceLimits": {GPU: "8"},
                            "podGroupRequestedNonPreemptibleResources": {GPU: 4},
                            "queueDeservedResources": {GPU: 0},
                        }
                    },
                }
            ),
            kai.unschedulable(message="PodSchedulingErrors: x"),
        ],
        minMember=3,
    ),
    kai.pod("p", annotations={"gpu-memory": "4096", "gpu-fraction-num-devices": "2"}),
]


def _is_custom(one: Object) -> bool:
    return "." in one["apiVersion"].partition("/")[0]


@pytest.mark.parametrize(("folder", "objects"), [("volcano", VOLCANO), ("kai-scheduler", KAI)], ids=["volcano", "kai"])
def test_custom_objects_are_valid(folder: str, objects: list[Object]) -> None:
    crds = SHARED / "crds" / folder
    if not crds.exists():
        pytest.skip("../shared is absent: this checkout has no published definitions beside it")
    schemas = Schemas.read(crds)
    custom = [one for one in objects if _is_custom(one)]
    faults = {f"{one['kind']}/{one['metadata']['name']}": schemas.check(one) for one in custom}
    assert len(custom) > 5
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("one", [one for one in (*VOLCANO, *KAI) if not _is_custom(one)], ids=lambda one: one["kind"])
def test_objects_of_the_core_are_valid(one: Object, recwarn: pytest.WarningsRecorder) -> None:
    kubernetes_validate.validate(json.loads(json.dumps(one)), "1.31", strict=True)
    assert not recwarn.list


def test_a_wrong_object_would_be_seen() -> None:
    wrong = {**pod("p", "pg"), "spec": {"containers": "none"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)
