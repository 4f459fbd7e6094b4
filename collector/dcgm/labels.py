"""Who a series is about: device, slice, node, and the pod or job that holds it. Label names differ by version."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from collector.dcgm.fields import CLOCK_EVENTS, RENAMED, field_named, is_device_metric
from collector.devices.fields import Field
from collector.devices.subject import DeviceSeries, Pod, Subject
from collector.exposition import Series
from gpuledger.model import QualityEvent, canonical_model

_UUID = ("UUID", "uuid", "gpu_uuid", "deviceuuid", "device_uuid")
_NODE = ("Hostname", "hostname", "node", "nodename", "kubernetes_node")
_ADDRESS = ("instance",)
_MODEL = ("modelName", "model_name")
_POD = ("pod", "pod_name", "podname")
_NAMESPACE = ("namespace", "pod_namespace", "podnamespace")
_CONTAINER = ("container", "container_name", "ctrname")
_EXPORTED = ("exported_pod", "exported_namespace", "exported_container")
_SHARED = ("vgpu", "hpc_job")
_CLAIM = (
    "dra_claim_name",
    "dra_claim_namespace",
    "dra_driver_name",
    "dra_pool_name",
    "dra_device_name",
    "dra_mig_profile",
    "dra_mig_device_uuid",
)
_OF_THE_EXPORTER = (
    "gpu",
    "device",
    "pci_bus_id",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "nvlink",
    "pod_uid",
    "err_code",
    "err_msg",
)
_OF_A_COUNTER = ("xid", "clock_event", "window_size_in_ms")
_OF_THE_SCRAPER = (
    "job",
    "endpoint",
    "service",
    "prometheus",
    "prometheus_replica",
    "__replica__",
    "replica",
    "cluster",
)
_KNOWN = frozenset(
    {*_UUID, *_NODE, *_ADDRESS, *_MODEL, *_POD, *_NAMESPACE, *_CONTAINER, *_EXPORTED, *_SHARED, *_CLAIM}.union(
        _OF_THE_EXPORTER, _OF_A_COUNTER, _OF_THE_SCRAPER
    )
)
HOLDER_LABELS = frozenset({*_POD, *_NAMESPACE, *_CONTAINER, *_EXPORTED, *_SHARED, *_CLAIM, "pod_uid"})
"""Labels that say who holds a device: they multiply its series, and nothing else is measured by them."""

_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/\d+")
_PORT = re.compile(r":\d+$")
_CODE = re.compile(r"\d{1,6}")
_EXPORTER_LABELS = "exporter_labels"
_MAX_SUBJECTS = 100_000
_NO_NODE = frozenset({"", "localhost", "127.0.0.1"})
_JOB_NAMESPACE = "slurm"


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _identity(uuid: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """(GPU UUID, slice).

    The first MIG drivers wrote parent and instance into a slice's UUID; later ones hide the parent, and the slice
    then stands for itself under a UUID that says what it is. A claim's own UUID of a slice only serves where nothing
    else names the slice: it changes whenever the slice is made anew.
    """
    old = _OLD_MIG_UUID.fullmatch(uuid)
    if old is not None:
        return old[1], old[2]
    if uuid.startswith("MIG-"):
        return uuid, uuid
    return uuid, labels.get("GPU_I_ID") or labels.get("dra_mig_device_uuid", "")


def _pod(labels: Mapping[str, str], names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]) -> Pod | None:
    namespace, pod, container = (_first(labels, aliases) for aliases in names)
    return Pod(namespace, pod, container) if pod else None


def _node(labels: Mapping[str, str]) -> tuple[str | None, bool]:
    """(node, whether it is only an address)."""
    for names in (_NODE, _ADDRESS):
        node = _PORT.sub("", _first(labels, names))
        if node not in _NO_NODE:
            return node, names is _ADDRESS
    return None, False


def _meaning(metric: Field, labels: Mapping[str, str]) -> float:
    """What the label of a counting metric stands for; NaN where it is none that we know."""
    text = labels.get(metric.label, "")
    if metric.is_mask:
        return float(CLOCK_EVENTS.get(text, math.nan))
    return float(text) if _CODE.fullmatch(text) else math.nan


class SeriesReader:
    """Turns the series of one target into what they are about.

    Learns which pod is the exporter itself: the plain (namespace, pod) of any series that also has `exported_*`
    labels. `dropped_labels` counts labels outside the known ones, once for each series.
    """

    def __init__(self, *, gpu_util_ratio_unit: str = "percent") -> None:
        self._gpu_util_ratio_unit = gpu_util_ratio_unit
        self._exporters: set[tuple[str, str]] = set()
        self._subjects: dict[tuple[tuple[str, str], ...], Subject | None] = {}
        self._told: set[str] = set()
        self._untold: Counter[tuple[str, str]] = Counter()
        self.dropped_labels = 0

    def read(self, series: Series) -> DeviceSeries | None:
        """What `series` is about, or None when it names no device."""
        if not is_device_metric(series.name):
            return None
        subject = self._subject(series.labels)
        if subject is None:
            return None
        if subject.dropped_labels:
            self.dropped_labels += subject.dropped_labels
            self._untold["dropped_label", ""] += subject.dropped_labels
        if "nvlink" in series.labels:
            return DeviceSeries(None, subject)  # one link of a device says nothing about the device as a whole
        self._note_name(series.name)
        metric = field_named(series.name, gpu_util_ratio_unit=self._gpu_util_ratio_unit)
        if metric is None or not metric.label:
            return DeviceSeries(metric, subject)
        meaning = _meaning(metric, series.labels)
        return DeviceSeries(None if math.isnan(meaning) else metric, subject, meaning)

    def _note_name(self, name: str) -> None:
        newest = RENAMED.get(name.upper())
        if newest is None:
            return
        if name.upper() not in self._told:
            self._told.add(name.upper())
            self._untold["renamed_metric", f"{name} -> {newest}"] = 1

    def take_events(self, now: datetime, source: str, target: str) -> list[QualityEvent]:
        """What was noticed about the labels and names of `target` since the last call: each name is told once."""
        noticed, self._untold = self._untold, Counter()
        return [
            QualityEvent(
                ts=now, source=source, subject_kind="target", subject=target, kind=kind, detail=detail, count=count
            )
            for (kind, detail), count in sorted(noticed.items())
        ]

    def _subject(self, labels: Mapping[str, str]) -> Subject | None:
        key = tuple(labels.items())
        if key not in self._subjects:
            if len(self._subjects) >= _MAX_SUBJECTS:
                self._subjects.clear()
            self._subjects[key] = self._read_labels(labels)
        return self._subjects[key]

    def _read_labels(self, labels: Mapping[str, str]) -> Subject | None:
        uuid = _first(labels, _UUID)
        if not uuid:
            return None
        is_relabelled = any(label in labels for label in _EXPORTED)
        job = labels.get("hpc_job", "")
        gpu_uuid, slice_id = _identity(uuid, labels)
        node, is_address = _node(labels)
        claim = labels.get("dra_claim_name", "")
        return Subject(
            gpu_uuid=gpu_uuid,
            slice_id=slice_id,
            slice_profile=labels.get("GPU_I_PROFILE") or labels.get("dra_mig_profile") or None,
            model=canonical_model(_first(labels, _MODEL)),
            node=node,
            pod=Pod(_JOB_NAMESPACE, job, "") if job else self._pod(labels, is_relabelled=is_relabelled),
            is_copy=any(labels.get(label) for label in (*_SHARED, *_EXPORTED, *_POD)),
            is_plain_pod=not is_relabelled and not job,
            dropped_labels=sum(label not in _KNOWN and not label.startswith("DCGM_FI_") for label in labels),
            is_shared=any(labels.get(label) for label in _SHARED),
            claim=f"{labels.get('dra_claim_namespace', '')}/{claim}" if claim else "",
            is_address=is_address,
        )

    def _pod(self, labels: Mapping[str, str], *, is_relabelled: bool) -> Pod | None:
        plain = _pod(labels, (_NAMESPACE, _POD, _CONTAINER))
        if not is_relabelled:
            return plain
        if plain is not None:
            self._exporters.add((plain.namespace, plain.name))
            self._note_exporter_labels()
        return _pod(labels, (("exported_namespace",), ("exported_pod",), ("exported_container",)))

    def _note_exporter_labels(self) -> None:
        if _EXPORTER_LABELS not in self._told:
            self._told.add(_EXPORTER_LABELS)
            self._untold[_EXPORTER_LABELS, "pods are named by exported_pod"] = 1

    def holder(self, subject: Subject) -> Pod | None:
        """The pod that holds the device, or None: an exporter's own pod holds nothing."""
        pod = subject.pod
        if pod is None or not subject.is_plain_pod:
            return pod
        is_exporter = (pod.namespace, pod.name) in self._exporters or "dcgm-exporter" in pod.name
        return None if is_exporter else pod
