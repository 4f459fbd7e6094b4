"""Volcano's words for why something waits, as causes."""

from __future__ import annotations

import re
from functools import lru_cache

from schedulers.fitting import cause_of_nodes
from schedulers.kubernetes.words import WORDS
from schedulers.reasons import Reasons, Told

REASONS = Reasons.of(
    (
        (r"queue resource quota insufficient|queue .*(overused|exceed)", "quota"),
        (r"HyperNode|highestTierAllowed|network topology", "topology"),
        (r"tasks in gang unschedulable|pod group is not ready", "gang"),
        (r"NotEnoughTasks|NotEnoughPodsOfTask|Not enough valid", "gang"),
        (r"^NotEnoughResources:", "capacity"),
    )
)
"""(pattern over "reason: message", cause); asked where a message does not count nodes, before Kubernetes' words."""

_FITS = re.compile(r"can possibly be ass\w+ to ", re.IGNORECASE)
_ORIGIN = re.compile(r"Origin reason is [^:]*:\s*(.*)", re.DOTALL)


def says_it_fits(reason: str, message: str) -> bool:
    """Whether this is said of a pod of a gang that could be placed: others are in its way, nothing of its own."""
    return reason == "Schedulable" or _FITS.search(message) is not None


def tell(reason: str, message: str, subject: str = "") -> Told:
    """What `reason` and `message` mean. A gang's words that name the first pod's reason mean that reason."""
    return Told(_cause(reason, message), reason, message, subject)


@lru_cache(maxsize=4096)
def _cause(reason: str, message: str) -> str:
    origin = _ORIGIN.search(message)
    cause = cause_of_nodes(origin[1] if origin else message) or REASONS.tell(reason, message).cause
    return WORDS.tell(reason, message).cause if cause == "unknown" else cause
