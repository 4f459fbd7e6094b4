"""The agent's settings: defaults here, then its TOML file, then GPULEDGER_COLLECTOR_* variables, then arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from gpuledger.config import COLLECTOR_PREFIX, FileSettings, load_from

_NODE_NAME = "NODE_NAME"


def _told_by_environment(node: str) -> str:
    """`node`, or what the environment says: one settings file then serves all nodes of a cluster."""
    if node != f"${_NODE_NAME}":
        return node
    name = os.environ.get(_NODE_NAME, "")
    if not name:
        raise ValueError(f"{_NODE_NAME} is not set in the environment")
    return name


NodeName = Annotated[str, AfterValidator(_told_by_environment)]
"""A node's name; "$NODE_NAME" stands for the variable of that name."""


def _page_url(url: str) -> str:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ValueError("must be http:// or https:// and a host")
    return url


PageUrl = Annotated[str, AfterValidator(_page_url)]
"""The address of a page over HTTP or HTTPS."""


class DcgmEndpoint(BaseModel):
    """One dcgm-exporter page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: PageUrl = Field(description="address of the page")
    node: NodeName | None = Field(None, description="the node it speaks for; default: its Hostname label")
    interval_seconds: float = Field(15.0, ge=1, le=86_400, description="how often it is read")
    timeout_seconds: float = Field(10.0, gt=0, le=300, description="how long one read may take")
    gpu_util_ratio_unit: Literal["percent", "ratio"] = Field(
        "percent", description="what DCGM_FI_DEV_GPU_UTIL_RATIO holds: percent (DCGM 4.6) or a 0-1 ratio (4.7)"
    )
    drop_labels: list[str] = Field(
        default_factory=list, description="labels to leave out of its series, where one of them has too many values"
    )


class KubeStateMetricsEndpoint(BaseModel):
    """One kube-state-metrics page: a cluster's, or one shard's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: PageUrl = Field(description="address of the page")
    cluster: str = Field("default", min_length=1, description="the cluster's name; `default` is left out of names")
    interval_seconds: float = Field(30.0, ge=1, le=86_400, description="how often it is read")
    timeout_seconds: float = Field(20.0, gt=0, le=300, description="how long one read may take")


class Nvml(BaseModel):
    """The cards of the node that the agent runs on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(default=False, description="read this node through NVML")
    node: NodeName | None = Field(None, description="this node's name, or $NODE_NAME; default: the host name")
    interval_seconds: float = Field(15.0, ge=1, le=86_400, description="how often it is read")
    timeout_seconds: float = Field(10.0, gt=0, le=300, description="how long one read may take")
    pods_directory: Path = Field(Path("/var/log/pods"), description="where the kubelet keeps the logs of pods")
    proc_directory: Path = Field(Path("/proc"), description="where the node's own processes are shown")


class NvidiaSmi(BaseModel):
    """The cards of the node that the agent runs on, through the command nvidia-smi."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(default=False, description="read this node through nvidia-smi, where nothing else is there")
    command: str = Field("nvidia-smi", min_length=1, description="the program, by name or path")
    node: NodeName | None = Field(None, description="this node's name, or $NODE_NAME; default: the host name")
    interval_seconds: float = Field(30.0, ge=1, le=86_400, description="how often it is run")
    timeout_seconds: float = Field(20.0, gt=0, le=300, description="how long one run may take")


class OtherSource(BaseModel):
    """A source by its registered name, also one of another package; what else stands in its table are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(min_length=1, description="name of the source, registered under `gpuledger.sources`")
    node: NodeName | None = Field(None, description="the node it speaks for, or $NODE_NAME; default: the source's")

    @property
    def options(self) -> dict[str, Any]:
        """What the source is made with."""
        return ({} if self.node is None else {"node": self.node}) | (self.model_extra or {})


class CollectorSettings(FileSettings):
    """Everything that the operator of an agent may set, with its default and its unit in its name."""

    model_config = SettingsConfigDict(
        env_prefix=COLLECTOR_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    service_url: str = Field("http://127.0.0.1:8420", pattern=r"^https?://", description="where batches are sent")
    token: SecretStr | None = Field(None, description="bearer token of the service, where it wants one")
    spool_directory: Path = Field(Path("var/spool"), description="where batches wait")
    spool_limit_bytes: int = Field(512 * 2**20, ge=2**16, description="disk share of waiting batches, bytes")
    flush_seconds: float = Field(15.0, gt=0, le=3600, description="how often rows are put into batches")
    metrics_listen: str = Field("127.0.0.1:9410", description="HOST:PORT of the agent's own metrics; empty: none")
    dcgm: tuple[DcgmEndpoint, ...] = Field((), description="dcgm-exporter pages to read")
    nvml: Nvml = Field(Nvml(), description="this node's own cards")
    nvidia_smi: NvidiaSmi = Field(NvidiaSmi(), description="this node's own cards, where nothing else is there")
    source: tuple[OtherSource, ...] = Field((), description="further sources by name, with their options")
    discover: bool = Field(
        default=False,
        description="look at the start for what this node has, and read that too; NODE_NAME in the environment is the "
        "node's name, else the host name",
    )
    discover_dcgm_urls: tuple[str, ...] = Field(
        ("http://localhost:9400/metrics",), description="where discovery looks for dcgm-exporter"
    )
    discover_pages: dict[str, str] = Field(
        {
            "amd_exporter": "http://localhost:5000/metrics",
            "npu_exporter": "http://localhost:8082/metrics",
            "hami": "http://localhost:9394/metrics",
        },
        description="where discovery looks for other exporters: kind of source, address of its page",
    )
    kube_state_metrics: tuple[KubeStateMetricsEndpoint, ...] = Field(
        (), description="kube-state-metrics pages to read, each shard once"
    )
    attribution_rules: Path | None = Field(
        None, description="TOML file that says whose a pod is; default: the built-in rules alone"
    )


def load(config: Path | None = None, **overrides: Any) -> CollectorSettings:
    """The agent's settings from `config` (TOML), the environment and `overrides`; wrong ones raise ConfigError."""
    return load_from(CollectorSettings, config, overrides)
