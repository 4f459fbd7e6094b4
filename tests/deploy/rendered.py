"""What `kubectl kustomize` makes of the overlays, and the other files of deploy/."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OVERLAYS = ("nvidia", "amd", "ascend")
Objects = tuple[dict[str, Any], ...]


def kustomized(folder: Path) -> Objects:
    """The objects of a kustomization."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed (Debian package kubernetes-client)")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


@cache
def overlay(name: str) -> Objects:
    """The objects of an overlay."""
    return kustomized(DEPLOY / "kubernetes" / "overlays" / name)


def exporter_objects(name: str) -> Objects:
    """What makes the exporter of a vendor reachable; nothing for NVIDIA, whose cards the agent reads itself."""
    path = DEPLOY / "kubernetes" / "exporters" / f"{name}.yaml"
    return tuple(yaml.safe_load_all(path.read_text(encoding="utf-8"))) if path.is_file() else ()


def of_kind(objects: Objects, kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def pod_of(objects: Objects) -> dict[str, Any]:
    """The pod that the DaemonSet makes on each node."""
    pod: dict[str, Any] = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    return pod


def bytes_of(quantity: str) -> int:
    """A quantity of bytes as Kubernetes writes it, in binary units."""
    units = {"Ki": 10, "Mi": 20, "Gi": 30}
    return int(quantity[:-2]) << units[quantity[-2:]]
