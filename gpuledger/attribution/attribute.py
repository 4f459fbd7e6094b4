"""From what is known of one pod to whose work it is. Pure: the same pod at the same time gets the same answer.

Each field is answered by the first of: the operator's rules, the label of a framework, the owner. What nothing says
is said by the least that is certain: the pod is its own workload, the namespace its tenant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuledger.attribution.frameworks import (
    FRAMEWORKS,
    OWNERS,
    QUEUE_LABELS,
    RAY_KINDS,
    STAGE_LABELS,
    STAGES_OF_KINDS,
    TRAINJOB_STEP,
    USER_LABELS,
    Framework,
)
from gpuledger.attribution.labels import Labels
from gpuledger.attribution.rules import Rules
from gpuledger.model.vocabulary import STAGES

SLURM_NAMESPACE = "slurm"
_SLURM = re.compile(r"(\d+)(?:_(\d+))?(?:\+\d+)?(?:\.\w+)?")
_TEMPLATE_HASH = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}$")
"""The hash that a Deployment appends to its ReplicaSets' names is written in this alphabet only."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who controls a pod, as its owner reference says."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod to attribute: `pod` may be a Slurm job ("123", "123_4", "123.0") in namespace "slurm"."""

    namespace: str
    pod: str
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Attribution:
    """Whose a pod is. `framework` says which rule named the workload; pods of a gang start together."""

    workload_id: str
    name: str
    framework: str
    kind: str
    stage: str
    tenant: str
    user: str | None
    queue: str
    is_gang: bool


def attribute(subject: Subject, labels: Mapping[str, str], at: datetime, rules: Rules | None = None) -> Attribution:
    """Who `subject` belongs to at `at`. `labels` may be Kubernetes' or kube-state-metrics' spelling."""
    read, chosen = Labels(labels), rules or Rules()

    def ruled(name: str) -> str | None:
        return chosen.answer(name, subject.namespace, subject.pod, read, at)

    own = ruled("workload")
    name, framework = (own, Framework("rule", "")) if own else _workload(subject, read)
    kind = ruled("kind") or _kind(framework, read)
    return Attribution(
        workload_id=f"{subject.namespace}/{name}",
        name=name,
        framework=framework.name,
        kind=kind,
        stage=ruled("stage") or _stage(kind, read),
        tenant=ruled("tenant") or subject.namespace,
        user=ruled("user") or read.get(*USER_LABELS),
        queue=ruled("queue") or read.get(*QUEUE_LABELS) or "",
        is_gang=framework.is_gang,
    )


def _workload(subject: Subject, labels: Labels) -> tuple[str, Framework]:
    if subject.namespace == SLURM_NAMESPACE and (job := _SLURM.fullmatch(subject.pod)):
        return (f"{job[1]}_{job[2]}" if job[2] else job[1]), Framework("slurm", "", "batch")
    for framework in FRAMEWORKS:
        if name := labels.get(framework.label):
            is_trainer = framework.name == "jobset" and labels.get(TRAINJOB_STEP) is not None
            return name, Framework("trainer", "", "training", is_gang=True) if is_trainer else framework
    if subject.owner is None:
        return subject.pod, Framework("pod", "")
    return _owned(subject.owner, labels)


def _owned(owner: Owner, labels: Labels) -> tuple[str, Framework]:
    name, kind, is_gang = OWNERS.get(owner.kind, (owner.kind.lower(), "unknown", False))
    framework = Framework(name, "", kind, is_gang=is_gang)
    if owner.kind != "ReplicaSet":
        return owner.name, framework
    known_hash = labels.get("pod-template-hash")
    if known_hash:
        return owner.name.removesuffix(f"-{known_hash}"), framework
    return _TEMPLATE_HASH.sub("", owner.name), framework


def _kind(framework: Framework, labels: Labels) -> str:
    if framework.name == "ray":
        return RAY_KINDS.get(labels.get("ray.io/originated-from-crd") or "", "unknown")
    if labels.get("hub.jupyter.org/username"):
        return "notebook"
    return framework.kind


def _stage(kind: str, labels: Labels) -> str:
    said = next((value for name in STAGE_LABELS for value in labels.all(name) if value in STAGES), None)
    return said or STAGES_OF_KINDS.get(kind, "other")
