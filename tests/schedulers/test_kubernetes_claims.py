"""Claims of devices: which are GPUs, how many, and who holds none though it claims."""

from __future__ import annotations

from typing import Any

from tests.schedulers.kubernetes_objects import EIGHT, Object, by, mapped, node, pod


def _claim(name: str, *given: tuple[str, str], **asked: Any) -> Object:
    """One request; `given` are (driver, device)."""
    request: Object = {"deviceClassName": "gpu.nvidia.com", "count": 1, **asked}
    results: list[Object] = [
        {"request": "r", "driver": driver, "pool": "n1", "device": device} for driver, device in given
    ]
    if request.get("adminAccess"):
        results = [{**one, "adminAccess": True} for one in results]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": EIGHT},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
        "status": status,
    }


def _pod(name: str, on: str | None = None, made: bool = True) -> Object:
    named = {"resourceClaimName": name} if made else {"resourceClaimTemplateName": name}
    return pod(name, 0, on=on, spec={"resourceClaims": [{"name": "device", **named}]})


def _counts(*claims: Object, pods: list[Object]) -> dict[str, float | None]:
    snapshot = mapped(nodes=[node("n1", 0)], pods=pods, resourceclaims_resource_k8s_io=list(claims))
    return {name: row["gpu_count"] for name, row in by(snapshot, "pod", "pod").items()}


def test_claims_of_other_devices_and_of_administrators_are_of_no_gpu() -> None:
    claims = [
        _claim("card", ("gpu.nvidia.com", "gpu-0")),
        _claim("nic", ("dra.net", "nic-0"), deviceClassName="rdma.example.com"),
        _claim("nic-waits", deviceClassName="rdma.example.com"),
        _claim("look", ("gpu.nvidia.com", "gpu-1"), adminAccess=True),
        _claim("look-waits", adminAccess=True),
    ]
    pods = [_pod("card", "n1"), _pod("nic", "n1"), _pod("nic-waits"), _pod("look", "n1"), _pod("look-waits")]
    assert _counts(*claims, pods=pods) == {"card": 1.0}


def test_what_a_claim_asks_for_is_told_where_it_can_be() -> None:
    liked_best = _claim("either")
    liked_best["spec"]["devices"]["requests"] = [
        {
            "name": "r",
            "firstAvailable": [
                {"name": "four", "deviceClassName": "gpu.nvidia.com", "count": 4},
                {"name": "two", "deviceClassName": "gpu.nvidia.com", "count": 2},
            ],
        }
    ]
    claims = [
        liked_best,
        _claim("all", allocationMode="All"),
        _claim("slices", deviceClassName="mig.nvidia.com", count=2),
        _claim("strange", deviceClassName="fast.example.com"),
    ]
    pods = [_pod("either"), _pod("all"), _pod("slices"), _pod("strange"), _pod("to-be-made", made=False)]
    told = _counts(*claims, pods=pods)
    assert told == {"either": 4.0, "all": None, "slices": 2.0, "strange": None, "to-be-made": None}


def test_a_class_is_what_its_driver_gives() -> None:
    claims = [
        _claim("one", ("gpu.nvidia.com", "gpu-0"), deviceClassName="fast.example.com"),
        _claim("two", deviceClassName="fast.example.com", count=2),
    ]
    assert _counts(*claims, pods=[_pod("one", "n1"), _pod("two")]) == {"one": 1.0, "two": 2.0}
