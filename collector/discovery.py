"""Finds out what a node has to read: NVML, exporters, network adapters, nvidia-smi, and kube-state-metrics.

Each is tried by reading it once, with a deadline, by the source that would read it later: what is found works.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from collector.settings import CollectorSettings, DcgmEndpoint, OtherSource
from gpuledger.registry import resolve

DCGM_URLS = CollectorSettings.model_fields["discover_dcgm_urls"].default
PAGE_URLS: Mapping[str, str] = CollectorSettings.model_fields["discover_pages"].default
KUBE_STATE_METRICS_URLS = (
    "http://kube-state-metrics.kube-system:8080/metrics",
    "http://kube-state-metrics.monitoring:8080/metrics",
    "http://prometheus-kube-state-metrics.monitoring:8080/metrics",
    "http://kube-prometheus-stack-kube-state-metrics.monitoring:8080/metrics",
)
"""Where charts put it, as names inside a cluster."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried: its kind, where, whether it works, and what was seen or what went wrong.

    `is_of_this_node`: it is this node's own and does not name the node, so that this node's name belongs to it.
    """

    kind: str
    place: str
    works: bool
    detail: str
    is_of_this_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look, and for how long. `environment` is that of the processes that are started."""

    dcgm_urls: tuple[str, ...] = DCGM_URLS
    pages: Mapping[str, str] = field(default_factory=lambda: PAGE_URLS)
    kube_state_metrics_urls: tuple[str, ...] = ()
    infiniband: str = "/sys/class/infiniband"
    nvidia_smi: str = "nvidia-smi"
    timeout_seconds: float = 5.0
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def node(self) -> str:
        """The name of this node: NODE_NAME, which a Kubernetes manifest sets, else the host name."""
        return self.environment.get("NODE_NAME") or socket.gethostname()


def discover(places: Places, client: httpx.Client, now: datetime) -> list[Probe]:
    """Try everything once, one after the other. What does not work says why."""
    timeout = {"timeout_seconds": places.timeout_seconds}
    inside = timeout | {"environment": places.environment}
    found = [_try("nvml", "libnvidia-ml", now, **inside)]
    found += [_try("dcgm", url, now, url=url, client=client, **timeout) for url in places.dcgm_urls]
    found += [_try(kind, url, now, url=url, client=client, **timeout) for kind, url in places.pages.items()]
    found.append(_try("infiniband", places.infiniband, now, root=places.infiniband))
    found.append(_try("nvidia_smi", places.nvidia_smi, now, command=places.nvidia_smi, **inside))
    urls = places.kube_state_metrics_urls
    return found + [_try("kube_state_metrics", url, now, url=url, client=client, **timeout) for url in urls]


def _try(kind: str, place: str, now: datetime, **options: Any) -> Probe:
    source = resolve("sources", kind)(**options)
    try:
        reads = source.read(now).reads
    finally:
        getattr(source, "close", lambda: None)()
    failed = next((read.error for read in reads if not read.ok), None)
    if failed is not None or not reads:
        return Probe(kind, place, works=False, detail=failed or "nothing was read")
    if kind == "kube_state_metrics":
        return Probe(kind, place, works=True, detail="pods and nodes of a cluster")
    is_own = "url" not in options or is_nameless(place, {read.node for read in reads})
    counts = [read.device_count for read in reads if read.device_count is not None]
    if not counts:
        return Probe(kind, place, works=True, detail="answers", is_of_this_node=is_own)
    return Probe(kind, place, works=sum(counts) > 0, detail=f"{sum(counts)} cards", is_of_this_node=is_own)


def is_nameless(url: str, nodes: set[str]) -> bool:
    """Whether `url` is an address of this machine, and its page speaks for no node but that address."""
    host = urlsplit(url).hostname or ""
    return nodes <= {host, *_LOOPBACK} and _is_own(host)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _is_own(host: str) -> bool:
    """Whether this machine has the address `host`: only then can a port of it be opened here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as own:
            try:
                own.bind(address)
            except OSError:
                continue
            return True
    return False


def completed(settings: CollectorSettings, client: httpx.Client, now: datetime) -> CollectorSettings:
    """`settings` with what this node has, where they ask for it. nvidia-smi counts only where nothing else works."""
    if not settings.discover:
        return settings
    places = Places(
        dcgm_urls=settings.discover_dcgm_urls, pages=settings.discover_pages, nvidia_smi=settings.nvidia_smi.command
    )
    works = [probe for probe in discover(places, client, now) if probe.works]
    kinds = {probe.kind for probe in works}
    named = {endpoint.url for endpoint in settings.dcgm}
    more = [
        DcgmEndpoint(url=probe.place, node=places.node if probe.is_of_this_node else None)
        for probe in works
        if probe.kind == "dcgm" and probe.place not in named
    ]
    found = [_other(probe, places.node) for probe in works if probe.kind not in _KINDS]
    known = {(other.kind, other.options.get("url")) for other in settings.source}
    others = [OtherSource.model_validate(one) for one in found if (one["kind"], one.get("url")) not in known]
    has_other = bool(named or kinds & {"nvml", "dcgm"})
    own = {
        "nvml": settings.nvml.enabled or "nvml" in kinds,
        "nvidia_smi": settings.nvidia_smi.enabled or ("nvidia_smi" in kinds and not has_other),
    }
    return settings.model_copy(
        update={
            "dcgm": (*settings.dcgm, *more),
            "source": (*settings.source, *others),
            "nvml": settings.nvml.model_copy(update=_own(settings.nvml.node, places, enabled=own["nvml"])),
            "nvidia_smi": settings.nvidia_smi.model_copy(
                update=_own(settings.nvidia_smi.node, places, enabled=own["nvidia_smi"])
            ),
        }
    )


def _other(probe: Probe, node: str) -> dict[str, str]:
    """The settings of a source by its name."""
    place = {"root" if probe.kind == "infiniband" else "url": probe.place}
    return {"kind": probe.kind} | place | ({"node": node} if probe.is_of_this_node else {})


def _own(node: str | None, places: Places, *, enabled: bool) -> dict[str, Any]:
    return {"enabled": enabled, "node": node or (places.node if enabled else None)}


def to_toml(probes: Iterable[Probe], *, service_url: str, node: str) -> str:
    """A settings file for the agent: what works, and as comments what was tried and what one agent is enough for.

    `node` is this node's name; it goes to what is this node's own and does not name it.
    """
    probes = list(probes)
    works = {kind: [probe for probe in probes if probe.kind == kind and probe.works] for kind in _KINDS}
    others = [probe for probe in probes if probe.kind not in _KINDS and probe.works]
    lines = ["# What was tried on this node:"]
    lines += [f"#   {'yes' if p.works else 'no '}  {p.kind} {p.place}: {_one_line(p.detail)}" for p in probes]
    lines += ["", f"service_url = {_quoted(service_url)}", ""]
    for probe in works["dcgm"]:
        own = [f"node = {_quoted(node)}"] if probe.is_of_this_node else []
        lines += ["[[dcgm]]", f"url = {_quoted(probe.place)}", *own, "interval_seconds = 15", ""]
    for probe in others:
        settings = [f"{name} = {_quoted(value)}" for name, value in _other(probe, node).items()]
        lines += ["[[source]]", *settings, "interval_seconds = 15", ""]
    is_alone = bool(works["nvidia_smi"]) and not (works["nvml"] or works["dcgm"])
    for kind, wanted in (("nvml", bool(works["nvml"])), ("nvidia_smi", is_alone)):
        if wanted:
            lines += [f"[{kind}]", "enabled = true", f"node = {_quoted(node)}", ""]
    for probe in works["kube_state_metrics"]:
        lines += [
            "# One agent of the cluster is enough to read this; take the marks away there.",
            "# [[kube_state_metrics]]",
        ]
        lines += [f"# url = {_quoted(probe.place)}", ""]
    return "\n".join(lines)


_KINDS = ("nvml", "dcgm", "nvidia_smi", "kube_state_metrics")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
