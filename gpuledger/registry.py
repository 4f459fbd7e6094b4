"""The tables of names. Adding an adapter is one file and one line here; nothing is imported before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from gpuledger.errors import ConfigError

SOURCES: Mapping[str, str] = {
    "nvml": "collector.sources.nvml:NvmlSource",
    "dcgm": "collector.sources.dcgm:DcgmSource",
    "kube_state_metrics": "collector.sources.kube_state_metrics:KubeStateMetricsSource",
    "nvidia_smi": "collector.sources.nvidia_smi:NvidiaSmiSource",
    "hami": "collector.sources.hami:HamiSource",
    "vllm": "collector.sources.vllm:VllmSource",
    "sglang": "collector.sources.sglang:SglangSource",
    "npu_exporter": "collector.sources.npu_exporter:NpuExporterSource",
    "amd_exporter": "collector.sources.amd_exporter:AmdExporterSource",
    "amdsmi": "collector.sources.amdsmi:AmdsmiSource",
    "exposition": "collector.sources.exposition:ExpositionSource",
    "ray": "collector.sources.ray:RaySource",
    "training_log": "collector.sources.training_log:TrainingLogSource",
    "infiniband": "collector.sources.infiniband:InfinibandSource",
    "node_exporter": "collector.sources.node_exporter:NodeExporterSource",
}

SCHEDULERS: Mapping[str, str] = {
    "fake": "schedulers.fake:FakeScheduler",
    "kubernetes": "schedulers.kubernetes.family:Kubernetes",
    "kueue": "schedulers.kueue:Kueue",
    "volcano": "schedulers.volcano:Volcano",
    "slurm": "schedulers.slurm:Slurm",
    "koordinator": "schedulers.koordinator:Koordinator",
    "kai": "schedulers.kai:Kai",
    "ray": "schedulers.ray:Ray",
    "kuberay": "schedulers.ray.kuberay:KubeRay",
    "yarn": "schedulers.yarn:Yarn",
    "airflow": "schedulers.airflow:Airflow",
}

RULES: Mapping[str, str] = {
    "idle_allocation": "analyzers.rules.idle_allocation:IdleAllocation",
    "gang_partial_idle": "analyzers.rules.gang_partial_idle:GangPartialIdle",
    "stalled_allocation": "analyzers.rules.stalled_allocation:StalledAllocation",
    "low_activity": "analyzers.rules.low_activity:LowActivity",
    "low_mfu": "analyzers.rules.low_mfu:LowMfu",
    "gang_straggler": "analyzers.rules.gang_straggler:GangStraggler",
    "oversized_request": "analyzers.rules.oversized_request:OversizedRequest",
    "fragmentation": "analyzers.rules.fragmentation:Fragmentation",
    "quota_balance": "analyzers.rules.quota_balance:QuotaBalance",
    "hardware_fault": "analyzers.rules.hardware_fault:HardwareFault",
    "throttling": "analyzers.rules.throttling:Throttling",
    "lemon_node": "analyzers.rules.lemon_node:LemonNode",
    "flapping_node": "analyzers.rules.flapping_node:FlappingNode",
}

RECOMMENDERS: Mapping[str, str] = {
    "move_quota": "analyzers.recommend.move_quota:MoveQuota",
    "consolidate": "analyzers.recommend.consolidate:Consolidate",
}

REPORTS: Mapping[str, str] = {
    "weekly": "reports.weekly:WeeklyReport",
}

MAILERS: Mapping[str, str] = {
    "outbox": "alerts.mailer:Mailer",
}

CHANNELS: Mapping[str, str] = {
    "webhook": "alerts.channels.webhook:WebhookChannel",
}

IMPORTERS: Mapping[str, str] = {
    "openb": "collector.importers.openb:read",
    "helios": "collector.importers.helios:read",
    "assets": "collector.importers.assets:read",
    "exposition": "collector.importers.exposition:read",
    "prometheus": "collector.prometheus.backfill:Backfill",
    "nvidia_smi": "collector.importers.nvidia_smi:read",
    "prices": "collector.importers.prices:read",
}

TABLES: Mapping[str, Mapping[str, str]] = {
    "sources": SOURCES,
    "schedulers": SCHEDULERS,
    "rules": RULES,
    "recommenders": RECOMMENDERS,
    "reports": REPORTS,
    "mailers": MAILERS,
    "channels": CHANNELS,
    "importers": IMPORTERS,
}


def resolve(table: str, name: str) -> Any:
    """The object that `name` stands for in `table`; outside plug-ins come from the entry points "gpuledger.<table>".

    Raises ConfigError naming what is known.
    """
    known = TABLES[table]
    if name in known:
        module, _, attribute = known[name].partition(":")
        return getattr(import_module(module), attribute)
    plugins = {entry.name: entry for entry in entry_points(group=f"gpuledger.{table}")}
    if name in plugins:
        return plugins[name].load()
    raise ConfigError(f"no {table.rstrip('s')} called {name!r}; known: {', '.join(sorted({*known, *plugins}))}")
