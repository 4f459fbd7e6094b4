"""Devices that are claimed (DRA): what slices list, what claims were given, and to which pods.

Only the newest generation of a pool counts. Access for administrators holds nothing. A device may be given out in
shares, each with the capacity that it consumes; a partition (MIG) belongs to a card by its `parentUUID`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuledger.errors import BadInput
from gpuledger.model import canonical_model, slice_share
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.kubernetes.quantities import quantity
from schedulers.rows import SnapshotRows

_GPU_DRIVER = re.compile(r"(^|[.-])gpu([.-]|$)")
"""Drivers of GPUs have the word in their name: gpu.nvidia.com, gpu.amd.com, gpu.intel.com."""

_GPU_CLASS = re.compile(r"(^|[.-])(gpu|mig)([.-]|$)")
"""So have classes of devices, until a claim of the class was given something: then its driver says it."""

DeviceKey = tuple[str, str, str]
"""(driver, pool, device)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a slice: a card, or a partition of the card `parent`."""

    key: DeviceKey
    node: str
    uuid: str | None
    parent: str | None
    model: str | None
    profile: str | None
    capacity: Mapping[str, float]
    is_tainted: bool

    @property
    def is_card(self) -> bool:
        """Whether it is a whole card."""
        return self.parent is None and self.profile is None

    @property
    def card(self) -> str | None:
        """The uuid of the physical card."""
        return self.uuid if self.is_card else self.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A share of a device that a claim was given. `share` is of the physical card; None: cannot be told."""

    key: DeviceKey
    device: Device | None
    share: float | None
    share_id: str
    since: str | None


@dataclass(slots=True)
class Devices:
    """All GPU devices, what each claim ("namespace/name") was given, and how many GPUs it still asks for.

    `asked` is None where that cannot be told; `others` are claims of which no GPU is held: of network cards, or for
    administrators. `by_node` has the devices by node and driver.
    """

    known: dict[DeviceKey, Device] = field(default_factory=dict)
    by_node: dict[str, dict[str, list[Device]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    given: dict[str, list[Given]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[str, int | None] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    pods: dict[str, list[str]] = field(default_factory=dict)

    def add(self, device: Device) -> None:
        """Take a device in."""
        self.known[device.key] = device
        self.by_node[device.node][device.key[0]].append(device)

    def cards_of(self, node: str) -> list[Device]:
        """The whole cards of a node, of all drivers."""
        return [device for listed in self.by_node.get(node, {}).values() for device in listed if device.is_card]

    def wanted(self, claims: Iterable[str]) -> int | None:
        """How many GPUs claims were given, or ask for together; None where that cannot be told."""
        counts = [len(self.given.get(one, ())) or self.asked.get(one) for one in claims if one not in self.others]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def held(self) -> dict[str, float]:
        """The share that is given away of each card, by uuid."""
        found: dict[str, float] = defaultdict(float)
        for parts in self.given.values():
            for part in parts:
                if part.device and part.device.card:
                    found[part.device.card] += 1.0 if part.share is None else part.share
        return found


def is_gpu_driver(driver: str, also: Iterable[str] = ()) -> bool:
    """Whether a driver gives out GPUs."""
    return _GPU_DRIVER.search(driver) is not None or driver in also


def devices_of(slices: Sequence[Object], claims: Sequence[Object], rows: SnapshotRows, also: Iterable[str]) -> Devices:
    """What slices and claims say; an object that cannot be understood becomes a problem."""
    found, newest = Devices(), _newest(slices)
    for given in slices:
        with rows.sparing(name_of(given), "node"):
            spec = given["spec"]
            pool = spec["pool"]
            is_current = int(pool.get("generation") or 0) == newest[spec["driver"], pool["name"]]
            if is_current and is_gpu_driver(spec["driver"], also):
                for device in spec.get("devices") or ():
                    found.add(_device(spec, device))
    classes = _classes(claims, rows, also)
    for claim in claims:
        with rows.sparing(name_of(claim)):
            _claim(found, claim, classes, also)
    return found


def _classes(claims: Iterable[Object], rows: SnapshotRows, also: Iterable[str]) -> dict[str, bool]:
    """Whether the devices of a class are GPUs, of the classes that any claim was given devices of."""
    found: dict[str, bool] = {}
    for claim in claims:
        with rows.sparing(name_of(claim)):
            asked = {one["name"]: one for one in _requests(claim)}
            for result in _results(claim):
                name, _, choice = str(result.get("request") or "").partition("/")
                request = asked.get(name) or {}
                options = {one.get("name"): one for one in request.get("firstAvailable") or ()}
                if kind := _exactly(options.get(choice) or request).get("deviceClassName"):
                    found[kind] = is_gpu_driver(result["driver"], also)
    return found


def _requests(claim: Object) -> Sequence[Object]:
    return ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()


def _results(claim: Object) -> Sequence[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _newest(slices: Iterable[Object]) -> dict[tuple[str, str], int]:
    newest: dict[tuple[str, str], int] = {}
    for given in slices:
        spec = given.get("spec") or {}
        pool = spec.get("pool") or {}
        key = (spec.get("driver") or "", pool.get("name") or "")
        newest[key] = max(newest.get(key, 0), int(pool.get("generation") or 0))
    return newest


def _device(spec: Object, given: Object) -> Device:
    body = given.get("basic") or given
    driver = spec["driver"]

    def word(name: str) -> str | None:
        attributes = body.get("attributes") or {}
        value = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
        return value.get("string") if isinstance(value, Mapping) else None

    return Device(
        key=(driver, spec["pool"]["name"], given["name"]),
        node=spec.get("nodeName") or given.get("nodeName") or body.get("nodeName") or "",
        uuid=word("uuid"),
        parent=word("parentUUID"),
        model=canonical_model(word("productName")),
        profile=word("profile"),
        capacity={name: _value(amount) for name, amount in (body.get("capacity") or {}).items()},
        is_tainted=any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in body.get("taints") or ()),
    )


def _value(amount: Any) -> float:
    return quantity(amount.get("value") if isinstance(amount, Mapping) else amount, "capacity")


def _claim(found: Devices, claim: Object, classes: Mapping[str, bool], also: Iterable[str]) -> None:
    name, status = name_of(claim), claim.get("status") or {}
    allocation = status.get("allocation") or {}
    found.pods[name] = [one["uid"] for one in status.get("reservedFor") or () if one.get("resource") == "pods"]
    for result in _results(claim):
        if result.get("adminAccess") or not is_gpu_driver(result["driver"], also):
            continue
        key = (result["driver"], result["pool"], result["device"])
        device = found.known.get(key)
        found.given[name].append(
            Given(
                key=key,
                device=device,
                share=_share(device, result),
                share_id=str(result.get("shareID") or ""),
                since=allocation.get("allocationTimestamp") or meta(claim).get("creationTimestamp"),
            )
        )
    found.asked[name] = None if allocation else _asked(claim, classes)
    if not found.given.get(name) and (allocation or found.asked[name] == 0):
        found.others.add(name)


def _exactly(request: Object) -> Object:
    """What a request asks for; of several that would do the one that it would like best."""
    choices = request.get("firstAvailable") or ()
    given: Object = request.get("exactly") or (choices[0] if choices else request)
    return given


def _asked(claim: Object, classes: Mapping[str, bool]) -> int | None:
    """How many GPUs it asks for; None where nobody can say: all that there are, or a class that nobody was given."""
    total, is_told = 0, True
    for request in _requests(claim):
        wanted = _exactly(request)
        kind = str(wanted.get("deviceClassName") or "")
        is_gpu = classes.get(kind, True if _GPU_CLASS.search(kind) else None)
        if wanted.get("adminAccess") or is_gpu is False:
            continue
        is_told = is_told and is_gpu is True and wanted.get("allocationMode") != "All"
        total += int(wanted.get("count") or 1)
    return total if is_told else None


def _share(device: Device | None, result: Object) -> float | None:
    """The part of the card: by what it consumes of the device's memory, by the partition's profile, or all of it."""
    if device is None:
        return None
    whole = 1.0 if device.is_card else slice_share(device.model, device.profile)
    consumed = {name: quantity(amount, name) for name, amount in (result.get("consumedCapacity") or {}).items()}
    ratios = [amount / device.capacity[name] for name, amount in consumed.items() if device.capacity.get(name)]
    if whole is None:
        return None
    if ratios and max(ratios) > 1.0:
        raise BadInput("consumedCapacity", f"{device.key[2]}: more than the device has")
    return whole * max(ratios, default=1.0)


def claims_of(pod: Object) -> list[str]:
    """The claims ("namespace/name") of a pod; of those that are yet to be made nothing is known."""
    made = {
        one.get("name"): one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    named = [
        one.get("resourceClaimName") or made.get(one.get("name"))
        for one in (pod.get("spec") or {}).get("resourceClaims") or ()
    ]
    return [f"{meta(pod)['namespace']}/{name}" for name in named if name]
