"""Renders what each adapter of the Kubernetes family must be granted, from what its class declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.registry import SCHEDULERS, resolve
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.rights import cluster_role

HEADER = "# Written by `make docs`; changes here are lost. The least that gpuledger's {name} adapter needs."


def family() -> Iterator[type[KubernetesFamily]]:
    """The adapters of the Kubernetes family."""
    for name in SCHEDULERS:
        found = resolve("schedulers", name)
        if isinstance(found, type) and issubclass(found, KubernetesFamily):
            yield found


def role_of(adapter: type[KubernetesFamily]) -> Mapping[str, Any]:
    """The adapter's ClusterRole."""
    return cluster_role(f"gpuledger-{adapter.name}-reader", adapter.all_rights())


def manifests(adapter: type[KubernetesFamily]) -> str:
    """The adapter's ClusterRole as YAML.

    To read only some namespaces grant the same rules by a RoleBinding in each, and name them in the option
    `namespaces`.
    """
    role = role_of(adapter)
    lines = [
        HEADER.format(name=adapter.name),
        "# For some namespaces only: bind it there by a RoleBinding, and name them in the option `namespaces`.",
        f"apiVersion: {role['apiVersion']}",
        f"kind: {role['kind']}",
        "metadata:",
        f"  name: {role['metadata']['name']}",
        "rules:",
    ]
    for rule in role["rules"]:
        parts = [f"{key}: {json.dumps(value)}" for key, value in rule.items()]
        lines += [f"  - {parts[0]}", *(f"    {part}" for part in parts[1:])]
    return "\n".join(lines) + "\n"
