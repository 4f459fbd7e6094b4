"""The objects of a cluster as of one moment, whichever way they were read; mappings to records are made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuledger.ports import SnapshotScope


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects to read: its group ("" is the core's), plural, and the versions that we understand, best first.

    `keep` thins an object out as soon as it was read: it gives the part that the mapping needs, or None for an object
    that does not matter. An optional kind may be absent from the cluster.
    """

    group: str
    plural: str
    versions: tuple[str, ...]
    is_namespaced: bool = True
    is_optional: bool = True
    keep: Any = None

    @property
    def key(self) -> str:
        """Plural and group: "pods", "clusterqueues.kueue.x-k8s.io"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the API held at `taken_at`: objects by `Kind.key`, as the plain mappings that JSON gave.

    `version` is the resource version that everything was read at. `served` says the API version in which a kind came;
    a kind that the cluster does not have is in neither mapping.
    """

    taken_at: datetime
    version: str
    objects: Mapping[str, Sequence[Mapping[str, Any]]]
    served: Mapping[str, str]
    scope: SnapshotScope = field(default_factory=SnapshotScope)

    def of(self, kind: Kind | str) -> Sequence[Mapping[str, Any]]:
        """The objects of a kind; none where the cluster does not have it, or did not show it."""
        return self.objects.get(kind if isinstance(kind, str) else kind.key, ())

    def has(self, kind: Kind | str) -> bool:
        """Whether the cluster has the kind and showed it."""
        return (kind if isinstance(kind, str) else kind.key) in self.objects
