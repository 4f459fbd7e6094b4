"""Which of Volcano's plugins shares out the queues: it decides what `deserved` and `weight` of a queue mean."""

from __future__ import annotations

import re
from enum import StrEnum

_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"""\bname\s*:\s*["']?([\w-]+)""")


class Sharing(StrEnum):
    """How queues share the cluster."""

    CAPACITY = "capacity"
    """A queue owns what it `deserved`s; `weight` means nothing."""
    PROPORTION = "proportion"
    """A queue's share follows from its `weight` and from what is asked for; `deserved` means nothing."""
    UNKNOWN = "unknown"
    """The scheduler's configuration was not read, or names neither."""


def sharing_of(configuration: str | None) -> Sharing:
    """The sharing that a scheduler's configuration (YAML with `tiers` of `plugins`) turns on; None: not read."""
    named = set(_NAME.findall(_COMMENT.sub("", configuration or "")))
    if "capacity" in named:
        return Sharing.CAPACITY
    return Sharing.PROPORTION if "proportion" in named else Sharing.UNKNOWN
