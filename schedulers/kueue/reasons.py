"""Kueue's words for why a workload waits, as causes.

Since 0.19 the condition QuotaReserved may have a reason for each cause; before, and where that is switched off, the
reason is "Pending" or "Inadmissible" and only the message tells. Of the flavors that a pod set could take one is
enough: the one that got furthest counts. Of several pod sets all are needed: the most specific cause counts.
"""

from __future__ import annotations

import re

from schedulers.reasons import Reasons, Told, root

REASONS = Reasons.of(
    (
        (r"^(Deactivated|OnHold|AdmissionGated|Suspended|\w+QueueStopped|\w+Exceeded):", "held"),
        (r"^Misconfigured:", "own_config"),
        (r"^NoMatchingFlavor:", "placement"),
        (r"^ExceedsMaxQuota:", "exceeds_max"),
        (r"^TopologyPlacementFailed:", "topology"),
        (r"^WaitingForPreemptedWorkloads:", "preempt_wait"),
        (r"^WaitingForQuota:", "quota"),
        (r"^WaitingForPodsReady:", "startup"),
        (r"^PendingDelayedTopologyRequests:", "topology"),
        (r"^PendingEvaluation:", "scheduler"),
        # From here on messages, the flavor that got furthest first: victims chosen, quota there, quota taken, too much.
        (r"pending the (preemption|migration) of", "preempt_wait"),
        (r"topology .* to fit", "topology"),
        (r"insufficient unused quota|borrowing limit for .* exceeded", "quota"),
        (r"maximum capacity|insufficient quota", "exceeds_max"),
        (r"untolerated taint|match node affinity|flavor \S+ not found|unavailable in ClusterQueue", "placement"),
        (r"TopologyAwareScheduling|skipping flavor", "placement"),
        (r"Queue .*(doesn't exist|is terminating|missing)|namespace doesn't match|ClusterQueue selector", "own_config"),
        (r"(is|are) (stopped|deactivated)|on hold", "held"),
        (r"node failure|NodeFailures", "health"),
        (r"PodsReady", "startup"),
        (r"no longer fits|another workload|overlapping preemption|preempted to accommodate", "priority"),
        (r"is inactive|^Inadmissible: $|^Pending: $", "scheduler"),
    )
)
"""(pattern over "reason: message", cause)."""

_POD_SET = re.compile(r"couldn't assign flavors to pod set ")
_VICTIMS = re.compile(r"pending the (preemption|migration) of", re.IGNORECASE)


def told_by(reason: str, message: str, subject: str = "") -> Told:
    """What a condition's reason and message mean; its words stay as Kueue wrote them."""
    parts = [message] if _VICTIMS.search(message) else [part for part in _POD_SET.split(message) if part.strip("; ")]
    found = root(REASONS.tell(reason, part) for part in parts or [""])
    return Told(found.cause if found else "unknown", reason, message, subject)
