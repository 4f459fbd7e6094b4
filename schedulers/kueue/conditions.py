"""Conditions of Kueue's objects: what is so, why, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.times import instant


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `since` is when it last became what it is: a change of its reason alone does not move it."""

    kind: str
    is_true: bool
    reason: str
    message: str
    since: datetime | None


def conditions_of(thing: Object) -> Mapping[str, Condition]:
    """By type. Raises BadInput for a time that is none."""
    found = ((thing.get("status") or {}).get("conditions")) or ()
    return {
        one["type"]: Condition(
            one["type"],
            one.get("status") == "True",
            one.get("reason") or "",
            one.get("message") or "",
            instant(one.get("lastTransitionTime"), "lastTransitionTime"),
        )
        for one in found
    }
