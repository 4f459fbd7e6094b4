"""What Kubernetes' scheduler, its kubelets and HAMi say when a pod does not start, and which cause that is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedulers.reasons import Reasons, Told

_ACCELERATOR = r"\S*([gnxptd]pu|mlu|[dg]cu|mig-|ascend|gaudi|neuron|i915|/xe\b|accelerator)"
"""In the names of resources that are GPUs or the like; any other device is one that a pod wants beside them."""

WORDS = Reasons.of(
    (
        (r"^SchedulingGated", "held"),
        (r"persistentvolumeclaim|persistent volumes?\b|volume node affinity|volume zone|max volume count", "storage"),
        (r"^(FailedMount|FailedAttachVolume|FailedBinding|ProvisioningFailed)", "storage"),
        (r"exceeded quota|quota exceeded", "quota"),
        (r"ErrImage|ImagePullBackOff|InvalidImageName|ImageInspectError", "own_config"),
        (r"CreateContainer\w*Error|RunContainerError|references non-?existent", "own_config"),
        (r"(secret|configmap|serviceaccount|priorityclass|runtimeclass) .*not found", "own_config"),
        (r"(resourceclaim\w*|deviceclass) .*not found", "own_config"),
        (r"NodeInsufficientDevice", "exceeds_max"),
        (r"CardTypeMismatch|CardUUIDMismatch", "placement"),
        (r"CardNotHealth", "health"),
        (r"CardInsufficientMemory", "gpu_memory"),
        (r"NumaNotFit|topology", "topology"),
        (r"taint \{node\.kubernetes\.io/|node\(s\) were (unschedulable|not ready)", "health"),
        (r"untolerated taint|affinity|didn't match|node selector|free ports|excluded", "placement"),
        (r"Insufficient (cpu|memory|ephemeral-storage|pods|hugepages\S*)($|[^\w/.])|Too many pods", "cpu_mem"),
        (rf"Insufficient (?!{_ACCELERATOR})\S+/\S+|Insufficient (rdma|fpga)\b", "cpu_mem"),
        (r"Insufficient \S+|cannot allocate all claims|CardInsufficientCore|CardTimeSlicingExhausted", "capacity"),
        (r"CardComputeUnitsExhausted|AllocatedCardsInsufficientRequest|ExclusiveDeviceAllocate", "capacity"),
        (r"waiting for preempt|nominated", "preempt_wait"),
        (r"gang|pod ?group|minMember|minAvailable|minCount", "gang"),
        (r"^(ContainerCreating|PodInitializing|ContainersNotReady)", "startup"),
        (r"^(SchedulerError|NotScheduled)", "scheduler"),
    )
)

_HEADER = re.compile(r"^\s*\d+/\d+ nodes are (?:un)?available:?\s*")
_PREEMPTION = re.compile(r"\.?\s*preemption:\s.*$", re.DOTALL)
_NEXT = re.compile(r",\s+(?=\d+\s)|\.\s+(?=\d+\s)")
_COUNT = re.compile(r"^(\d+)\s+(.*)$", re.DOTALL)

EXCLUSIONS = frozenset({"placement", "health", "topology", "storage"})
"""Causes that take a node out of the choice; they say why nothing fits only where no node lacks resources."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One part of what the scheduler said: `nodes` nodes were refused for `told` (0: the pod itself was)."""

    nodes: int
    told: Told


def verdicts(reason: str, message: str) -> list[Verdict]:
    """The parts of a message of the scheduler ("0/5 nodes are available: 3 Insufficient nvidia.com/gpu, ...").

    What it says of preemption is left out: that repeats the parts.
    """
    text = _PREEMPTION.sub("", message).strip()
    header = _HEADER.match(text)
    if header is None:
        return [Verdict(0, WORDS.tell(reason, message))]
    found = []
    for part in _NEXT.split(text[header.end() :].rstrip(". ")):
        counted = _COUNT.match(part)
        words = counted[2] if counted else part
        found.append(Verdict(int(counted[1]) if counted else 0, _told(reason, words, message)))
    return found


def _told(reason: str, words: str, message: str) -> Told:
    """The cause that one part means, with the whole message."""
    return Told(WORDS.tell("", words).cause, reason, message)
