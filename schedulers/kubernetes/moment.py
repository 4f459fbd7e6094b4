"""The objects of a cluster as of one moment, whichever way they were read; mappings to records are made of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuledger.ports import SnapshotScope


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects to read: its group ("" is the core's), plural, and the versions that we understand, best first.

    `keep` thins an object out as soon as it was read: it gives the part that the mapping needs, or None for an object
    that does not matter; without it metadata lose what no mapping needs. An optional kind may be absent from the
    cluster. A loose kind (events) dates itself and is not read as of the moment but about then; `fields` is a field
    selector that the server is asked to apply.
    """

    group: str
    plural: str
    versions: tuple[str, ...]
    is_namespaced: bool = True
    is_optional: bool = True
    keep: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None
    is_loose: bool = False
    fields: str = ""

    @property
    def key(self) -> str:
        """Plural and group: "pods", "clusterqueues.kueue.x-k8s.io"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the API held at `taken_at`: objects by `Kind.key`, as the plain mappings that JSON gave.

    `version` is the resource version that everything was read at. `served` says the API version in which a kind came;
    a kind that the cluster does not have is in neither mapping. `gone` holds pods that were deleted since the moment
    before, as they were last seen, with the instant at which we heard of it (only where a watch told).
    """

    taken_at: datetime
    version: str
    objects: Mapping[str, Sequence[Mapping[str, Any]]]
    served: Mapping[str, str]
    scope: SnapshotScope = field(default_factory=SnapshotScope)
    gone: Sequence[tuple[Mapping[str, Any], datetime]] = ()

    def plus(self, more: Mapping[str, Sequence[Mapping[str, Any]]]) -> Moment:
        """The moment with what an adapter read beside it."""
        return replace(self, objects={**self.objects, **more}) if more else self

    def of(self, kind: Kind | str) -> Sequence[Mapping[str, Any]]:
        """The objects of a kind; none where the cluster does not have it, or did not show it."""
        return self.objects.get(kind if isinstance(kind, str) else kind.key, ())

    def has(self, kind: Kind | str) -> bool:
        """Whether the cluster has the kind and showed it."""
        return (kind if isinstance(kind, str) else kind.key) in self.objects
