"""The least that an adapter must be allowed to read, as Kubernetes writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

READ = ("list", "watch")
"""What one moment and its watch need of a kind."""


@dataclass(frozen=True, slots=True)
class Right:
    """`verbs` on `resources` of an API group ("" is the core's); `names` limits it to objects of these names."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...] = READ
    names: tuple[str, ...] = ()

    def rule(self) -> Mapping[str, Any]:
        """As a PolicyRule of a ClusterRole."""
        named = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": list(self.resources), **named, "verbs": list(self.verbs)}


def cluster_role(name: str, rights: Iterable[Right]) -> Mapping[str, Any]:
    """The ClusterRole that grants `rights` and nothing else."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [right.rule() for right in rights],
    }
