"""What one watch has told: objects as of a version, and changes that are newer than what was asked for yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from schedulers.kubernetes.discovery import Served
from schedulers.kubernetes.pods import Object, name_of

Change = tuple[int, str, str, Object | None]
"""(version, key, type, object as it is kept; None: it does not matter any more)."""


def number(version: Any) -> int:
    """A resource version as the number that it is in every server; 0 for what is none."""
    text = str(version or "")
    return int(text) if text.isdecimal() else 0


@dataclass(slots=True)
class Book:
    """The objects of a kind (in one namespace, or all) as of `version`.

    `reached` is the version up to which the watch has told everything. Changes up to it wait in `ahead` until the
    book is brought `forward`.
    """

    served: Served
    namespace: str | None
    version: int
    objects: dict[str, Object]
    reached: int = 0
    ahead: deque[Change] = field(default_factory=deque)
    gone: list[tuple[Object, datetime]] = field(default_factory=list)

    @classmethod
    def of(cls, served: Served, namespace: str | None, version: str, items: list[Object]) -> Book:
        """A book of what a list gave."""
        at = number(version)
        own = [item for item in items if namespace is None or item["metadata"].get("namespace") == namespace]
        return cls(served, namespace, at, {name_of(item): item for item in own}, reached=at)

    def note(self, version: int, key: str, kind: str, kept: Object | None) -> None:
        """A change that the watch told."""
        self.ahead.append((version, key, kind, kept))
        self.reached = max(self.reached, version)

    def forward(self, version: int, now: datetime) -> bool:
        """Bring the objects up to `version`; whether that changed any. Deleted ones are `gone` since `now`."""
        has_changed = False
        while self.ahead and self.ahead[0][0] <= version:
            _, key, kind, kept = self.ahead.popleft()
            has_changed |= self._apply(key, kind, kept, now)
        self.version = max(self.version, version)
        return has_changed

    def _apply(self, key: str, kind: str, kept: Object | None, now: datetime) -> bool:
        known = self.objects.get(key)
        if kind == "DELETED" or kept is None:
            self.objects.pop(key, None)
            if known is not None:
                self.gone.append((kept or known, now))
            return known is not None
        if known is not None and _uid(known) != _uid(kept):
            self.gone.append((known, now))
        self.objects[key] = kept
        return known != kept

    def taken(self) -> list[tuple[Object, datetime]]:
        """What went since this was last asked."""
        found, self.gone = self.gone, []
        return found


def _uid(item: Mapping[str, Any]) -> Any:
    return item["metadata"].get("uid")
