"""How frameworks mark the pods of one workload: the label that names it, what kind of work it is, whether it is a gang.

The first row whose label is set names the workload. Frameworks that stand on others come before them: a TrainJob makes
a JobSet, a RayJob a cluster, and each of them plain jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: pods with label `label` belong to the workload that its value names."""

    name: str
    label: str
    kind: str = "unknown"
    is_gang: bool = False


FRAMEWORKS = (
    Framework("trainer", "trainer.kubeflow.org/trainjob-name", "training", is_gang=True),
    Framework("training-operator", "training.kubeflow.org/job-name", "training", is_gang=True),
    Framework("training-operator", "pytorch-job-name", "training", is_gang=True),
    Framework("training-operator", "tf-job-name", "training", is_gang=True),
    Framework("kserve", "serving.kserve.io/inferenceservice", "inference"),
    Framework("kubeflow-notebook", "notebook-name", "notebook"),
    Framework("ray", "ray.io/originated-from-cr-name"),
    Framework("ray", "ray.io/cluster"),
    Framework("jobset", "jobset.sigs.k8s.io/jobset-name", "batch", is_gang=True),
    Framework("leaderworkerset", "leaderworkerset.sigs.k8s.io/name", is_gang=True),
    Framework("volcano", "volcano.sh/job-name", "batch", is_gang=True),
    Framework("argo", "workflows.argoproj.io/workflow", "batch"),
    Framework("kueue-pod-group", "kueue.x-k8s.io/pod-group-name", "batch", is_gang=True),
    Framework("job", "batch.kubernetes.io/job-name", "batch"),
    Framework("job", "job-name", "batch"),
)

TRAINJOB_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Pods of a TrainJob carry it; the JobSet that they belong to has the TrainJob's name."""

RAY_KINDS: Mapping[str, str] = {"RayJob": "training", "RayService": "inference"}
"""What the object that a Ray cluster was made for says about it (label `ray.io/originated-from-crd`)."""

OWNERS: Mapping[str, tuple[str, str, bool]] = {
    "Job": ("job", "batch", False),
    "ReplicaSet": ("deployment", "unknown", False),
    "Deployment": ("deployment", "unknown", False),
    "StatefulSet": ("statefulset", "unknown", False),
    "DaemonSet": ("daemonset", "unknown", False),
    "PyTorchJob": ("training-operator", "training", True),
    "TFJob": ("training-operator", "training", True),
    "MPIJob": ("training-operator", "training", True),
    "XGBoostJob": ("training-operator", "training", True),
    "PaddleJob": ("training-operator", "training", True),
    "JAXJob": ("training-operator", "training", True),
    "TrainJob": ("trainer", "training", True),
    "JobSet": ("jobset", "batch", True),
    "LeaderWorkerSet": ("leaderworkerset", "unknown", True),
    "RayCluster": ("ray", "unknown", False),
    "Workflow": ("argo", "batch", False),
    "Notebook": ("kubeflow-notebook", "notebook", False),
}
"""What an owner's kind says where no label names the workload: framework, kind of work, gang."""

QUEUE_LABELS = (
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
)

USER_LABELS = ("hub.jupyter.org/username", "gpuledger.io/user", "user", "owner", "created-by")

STAGE_LABELS = ("gpuledger.io/stage", "stage", "workload-stage")
"""Labels whose value counts as a stage where it is one of the six."""

STAGES_OF_KINDS: Mapping[str, str] = {"inference": "inference", "notebook": "notebook"}
