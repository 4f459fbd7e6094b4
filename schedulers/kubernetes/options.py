"""How to reach a cluster, and what to read of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedulers.options import Address

TOPOLOGY_LABELS: Mapping[str, tuple[str, ...]] = {
    "leaf": (
        "network.topology.nvidia.com/leaf",
        "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/tier-1",
        "topology.k8s.aws/network-node-layer-3",
        "cloud.google.com/gce-topology-subblock",
        "cloud.provider.com/topology-rack",
    ),
    "spine": (
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/tier-2",
        "topology.k8s.aws/network-node-layer-2",
        "cloud.google.com/gce-topology-block",
        "cloud.provider.com/topology-block",
    ),
    "core": (
        "network.topology.nvidia.com/core",
        "network.topology.nvidia.com/datacenter",
        "network.topology.nvidia.com/tier-3",
        "topology.k8s.aws/network-node-layer-1",
    ),
    "nvl_domain": ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"),
    "zone": ("topology.kubernetes.io/zone",),
}
"""The labels that say a level, the first that is set counts. Their names changed over time: they can be configured."""


class KubernetesOptions(BaseModel):
    """Options of every adapter that reads Kubernetes.

    Where neither `url` nor `kubeconfig` is given: the service account of the pod that this runs in, else
    $KUBECONFIG, else ~/.kube/config.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Address | None = Field(None, description="Address of the API server; with it `token_file` and `ca_file`.")
    token_file: Path | None = Field(None, description="File that holds a bearer token; it may change at any time.")
    ca_file: Path | None = Field(None, description="Certificates that the API server's must be signed by (PEM).")
    kubeconfig: Path | None = Field(None, description="File with clusters and users, as kubectl has it.")
    context: str | None = Field(None, description="Which context of the kubeconfig; none: its current one.")
    namespaces: tuple[str, ...] = Field((), description="Read only these; none: the whole cluster where allowed.")
    timeout_seconds: float = Field(20.0, gt=0, le=600, description="How long one answer may take.")
    page_objects: int = Field(500, ge=10, le=10_000, description="Objects asked for at once.")
    topology_labels: Mapping[str, tuple[str, ...]] = Field(
        default=TOPOLOGY_LABELS, description="Labels of nodes that say where it stands, by level."
    )
    gpu_resources: tuple[str, ...] = Field((), description="Further resources that count GPUs, as the cluster spells.")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.url and (self.kubeconfig or self.context):
            raise ValueError("url and kubeconfig exclude each other")
        if not self.url and (self.token_file or self.ca_file):
            raise ValueError("token_file and ca_file need url")
        return self
