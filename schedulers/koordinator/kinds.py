"""Koordinator's objects: what is read, and how its labels and annotations are named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuledger.errors import BadInput
from schedulers.kubernetes.moment import Kind
from schedulers.kubernetes.pods import Object, meta
from schedulers.kubernetes.quantities import quantity

ELASTIC_QUOTAS = Kind("scheduling.sigs.k8s.io", "elasticquotas", ("v1alpha1",))
POD_GROUPS = Kind("scheduling.sigs.k8s.io", "podgroups", ("v1alpha1",))
DEVICES = Kind("scheduling.koordinator.sh", "devices", ("v1alpha1",), is_namespaced=False)
RESERVATIONS = Kind("scheduling.koordinator.sh", "reservations", ("v1alpha1",), is_namespaced=False)
MIGRATIONS = Kind("scheduling.koordinator.sh", "podmigrationjobs", ("v1alpha1",), is_namespaced=False)
TOPOLOGIES = Kind("scheduling.koordinator.sh", "clusternetworktopologies", ("v1alpha1",), is_namespaced=False)

QUOTA = "quota.scheduling.koordinator.sh"
ROOT_QUOTA = "koordinator-root-quota"
DEFAULT_QUOTA = "koordinator-default-quota"

CARD = "nvidia.com/gpu"
"""What parts of cards are counted as: Koordinator gives whole cards and parts out of the same ones."""
PERCENT, CORE, RATIO, SHARED = (
    f"koordinator.sh/{name}" for name in ("gpu", "gpu-core", "gpu-memory-ratio", "gpu.shared")
)


def labels_of(thing: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return meta(thing).get("labels") or {}


def annotation(thing: Object, name: str) -> Any:
    """The JSON in an annotation; None where it is not set. Raises BadInput naming it for what is no JSON."""
    text = (meta(thing).get("annotations") or {}).get(name)
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(name, f"no JSON: {error}") from None


def amounts(given: Any, field: str) -> dict[str, float]:
    """A list of resources as numbers. Raises BadInput naming `field`."""
    if not isinstance(given, Mapping):
        raise BadInput(field, "is no list of resources")
    return {str(name): quantity(amount, f"{field}[{name}]") for name, amount in given.items()}
