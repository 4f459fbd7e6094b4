"""KAI's words for why something waits, as causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from schedulers.fitting import cause_of_nodes
from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.quantities import quantity
from schedulers.kubernetes.times import instant
from schedulers.kubernetes.words import WORDS
from schedulers.reasons import Reasons, Told

REASONS = Reasons.of(
    (
        (r"QueueDoesNotExist|queue .*does not exist", "own_config"),
        (r"NonPreemptibleOverQuota|OverLimit", "quota"),
        (r"PreemptionDelayNotElapsed", "preempt_wait"),
        (r"No relevant domains|topology", "topology"),
        (r"GPU memory", "gpu_memory"),
        (r"node-group\(s\) didn't have enough (of mig|resources: GPUs)", "capacity"),
        (r"node-group\(s\) didn't have enough", "cpu_mem"),
        (r"required for gang scheduling|sub-group .* requires|minMember|minimum number of pods", "gang"),
        (r"Not enough resources", "capacity"),
    )
)
"""(pattern over "reason: message", cause); asked where a message does not count nodes, before Kubernetes' words."""

UNSCHEDULABLE = "UnschedulableOnNodePool"

_OWN_LIMITS = {
    "OverLimit": ("podGroupRequestedResources", "queueResourceLimits"),
    "NonPreemptibleOverQuota": ("podGroupRequestedNonPreemptibleResources", "queueDeservedResources"),
}
"""What a group wants, and what its queue can give at most, by the reason that tells both."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One thing that KAI says is in a group's way, and since when it says exactly that."""

    told: Told
    since: datetime | None


def tell(reason: str, message: str, subject: str = "") -> Told:
    """What `reason` and `message` mean; a gang's words that go on to count nodes mean what these lack."""
    return Told(_cause(reason, message), reason, message, subject)


@lru_cache(maxsize=4096)
def _cause(reason: str, message: str) -> str:
    cause = cause_of_nodes(message) or REASONS.tell(reason, message).cause
    return WORDS.tell(reason, message).cause if cause == "unknown" else cause


def standings(group: Object) -> Iterator[Standing]:
    """What the scheduler said last of a pod group, on each node pool.

    A condition is written anew only when its words change, so that its time is when they began.
    """
    for condition in (group.get("status") or {}).get("schedulingConditions") or ():
        if condition.get("type") != UNSCHEDULABLE or condition.get("status") != "True":
            continue
        since = instant(condition.get("lastTransitionTime"), "lastTransitionTime")
        reasons = condition.get("reasons") or [condition]
        for one in reasons:
            yield Standing(_told(one), since)


def _told(one: Object) -> Told:
    reason, message = one.get("reason") or "", one.get("message") or ""
    details = (one.get("details") or {}).get("queueDetails") or {}
    if reason in _OWN_LIMITS and _is_never(details, *_OWN_LIMITS[reason]):
        return Told("exceeds_max", reason, message)
    return tell(reason, message)


def _is_never(details: Object, wanted: str, most: str) -> bool:
    """Whether the group alone wants more than its queue can give at most: others leaving does not help."""
    asked: Mapping[str, object] = details.get(wanted) or {}
    limits: Mapping[str, object] = details.get(most) or {}
    pairs = [(quantity(amount, name), quantity(limits[name], name)) for name, amount in asked.items() if name in limits]
    return any(0 <= limit < amount for amount, limit in pairs)
