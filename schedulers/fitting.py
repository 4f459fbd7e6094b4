"""What the sum over nodes means that a scheduler of Kubernetes gives for a pod: "0/5 nodes are unavailable: ...".

Filters run in order: places and taints, then room, then volumes and spread. A node that lacks room was allowed, and one
whose volumes do not fit has room. So what came last on any node is what is in the way; taints of nodes that were never
meant say nothing beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from schedulers.kubernetes.names import parts_gpus
from schedulers.kubernetes.words import WORDS
from schedulers.reasons import Reasons

_HEAD = re.compile(r"(?:\b\d+/(\d+) |\ball )nodes are (?:un)?available|no nodes with enough resources were found")
_PIECE = re.compile(
    r"(\d+) ([A-Za-z(].*?)(?=[,.]\s*\d+ [A-Za-z(]|[.\s]*(?:preemption:|no new claims)|[.\s]*$)",
    re.DOTALL,
)
_LACKS = re.compile(r"Insufficient (\S+?)[.,]?$")

_OTHER_WORDS = Reasons.of(
    (
        (r"enough resources: GPU memory", "gpu_memory"),
        (r"enough resources: GPUs|enough of mig profile|resource fit failed", "capacity"),
        (r"enough resources: (CPU cores|memory)|pod number exceeded", "cpu_mem"),
        (r"hypernode", "topology"),
    )
)
"""What Volcano and KAI say of a node that Kubernetes' own scheduler does not."""

_LAST_FIRST = ("storage", "topology")


def _of_piece(text: str) -> str:
    lacks = _LACKS.search(text)
    if lacks and parts_gpus(lacks[1]):
        return "gpu_memory"
    found = _OTHER_WORDS.tell("", text).cause
    return WORDS.tell("", text).cause if found == "unknown" else found


@lru_cache(maxsize=4096)
def cause_of_nodes(message: str) -> str | None:
    """The cause that a message about all nodes means; None for a message that counts no nodes."""
    head = _HEAD.search(message)
    if head is None:
        return None
    counts: Counter[str] = Counter()
    for piece in _PIECE.finditer(message[head.end() :]):
        counts[_of_piece(piece[2])] += int(piece[1])
    counts.pop("unknown", None)
    if not counts:
        return None
    for cause in _LAST_FIRST:
        if counts[cause]:
            return cause
    total = int(head[1]) if head[1] else None
    return _room(total, counts) or ("health" if counts["health"] else "placement")


def _room(total: int | None, counts: Counter[str]) -> str | None:
    """What the nodes that may be used lack: GPUs where all of them lack these, else what the others lack."""
    gpus = "gpu_memory" if counts["gpu_memory"] > counts["capacity"] else "capacity"
    of_gpus = counts["gpu_memory"] + counts["capacity"]
    if not of_gpus:
        return "cpu_mem" if counts["cpu_mem"] else None
    usable = of_gpus if total is None else total - counts["health"] - counts["placement"]
    return "cpu_mem" if of_gpus < usable and counts["cpu_mem"] else gpus
