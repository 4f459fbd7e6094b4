"""Who a series is about: device, slice, node, and the pod that holds it. Label names differ by exporter version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from collector.dcgm.fields import Field, field_named, is_device_metric
from collector.exposition import Series
from gpuledger.model import canonical_model

_UUID = ("UUID", "uuid", "gpu_uuid", "deviceuuid", "device_uuid")
_NODE = ("Hostname", "hostname", "node", "nodename", "kubernetes_node", "instance")
_MODEL = ("modelName", "model_name")
_POD = ("pod", "pod_name", "podname")
_NAMESPACE = ("namespace", "pod_namespace", "podnamespace")
_CONTAINER = ("container", "container_name", "ctrname")
_EXPORTED = ("exported_pod", "exported_namespace", "exported_container")
_COPY = ("vgpu", "hpc_job")
_KNOWN = frozenset(
    {"gpu", "device", "pci_bus_id", "GPU_I_ID", "GPU_I_PROFILE", "nvlink", "pod_uid"}.union(
        _UUID, _NODE, _MODEL, _POD, _NAMESPACE, _CONTAINER, _EXPORTED, _COPY
    )
)
_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/\d+")
_PORT = re.compile(r":\d+$")
_MAX_SUBJECTS = 10_000
_NO_NODE = frozenset({"", "localhost", "127.0.0.1"})


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as labelled. `container` may be empty."""

    namespace: str
    name: str
    container: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What the labels of a series are about; a device's metrics share it.

    `slice_id` is the MIG GPU instance, or empty for the card. `node` is None where no label names it. `is_copy` marks
    labels that were written for one holder of the device (a pod, a time-slicing slot, an HPC job): their values
    repeat, or split, the device's own. `is_plain_pod` says that `pod` came from the plain labels, where the
    exporter's own pod may stand.
    """

    gpu_uuid: str
    slice_id: str
    slice_profile: str | None
    model: str | None
    node: str | None
    pod: Pod | None
    is_copy: bool
    is_plain_pod: bool
    dropped_labels: int


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """One series: its subject, and the field it measures. None where it only proves that the device is there."""

    field: Field | None
    subject: Subject


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _identity(uuid: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """(GPU UUID, slice).

    The first MIG drivers wrote parent and instance into a slice's UUID; later ones hide the parent, and the slice
    then stands for itself under a UUID that says what it is.
    """
    old = _OLD_MIG_UUID.fullmatch(uuid)
    if old is not None:
        return old[1], old[2]
    return uuid, uuid if uuid.startswith("MIG-") else labels.get("GPU_I_ID", "")


def _pod(labels: Mapping[str, str], names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]) -> Pod | None:
    namespace, pod, container = (_first(labels, aliases) for aliases in names)
    return Pod(namespace, pod, container) if pod else None


class SeriesReader:
    """Turns the series of one target into what they are about.

    Learns which pod is the exporter itself: the plain (namespace, pod) of any series that also has `exported_*`
    labels. `dropped_labels` counts labels outside the known ones, once for each series.
    """

    def __init__(self, *, gpu_util_ratio_unit: str = "percent") -> None:
        self._gpu_util_ratio_unit = gpu_util_ratio_unit
        self._exporters: set[tuple[str, str]] = set()
        self._subjects: dict[tuple[tuple[str, str], ...], Subject | None] = {}
        self.dropped_labels = 0

    def read(self, series: Series) -> DeviceSeries | None:
        """What `series` is about, or None when it names no device."""
        if not is_device_metric(series.name):
            return None
        subject = self._subject(series.labels)
        if subject is None:
            return None
        self.dropped_labels += subject.dropped_labels
        if "nvlink" in series.labels:
            return DeviceSeries(None, subject)  # one link of a device says nothing about the device as a whole
        return DeviceSeries(field_named(series.name, gpu_util_ratio_unit=self._gpu_util_ratio_unit), subject)

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
        plain = _pod(labels, (_NAMESPACE, _POD, _CONTAINER))
        is_relabelled = any(label in labels for label in _EXPORTED)
        if is_relabelled and plain is not None:
            self._exporters.add((plain.namespace, plain.name))
        pod = _pod(labels, (("exported_namespace",), ("exported_pod",), ("exported_container",)))
        node = _PORT.sub("", _first(labels, _NODE))
        gpu_uuid, slice_id = _identity(uuid, labels)
        return Subject(
            gpu_uuid=gpu_uuid,
            slice_id=slice_id,
            slice_profile=labels.get("GPU_I_PROFILE") or None,
            model=canonical_model(_first(labels, _MODEL)),
            node=None if node in _NO_NODE else node,
            pod=pod if is_relabelled else plain,
            is_copy=any(labels.get(label) for label in (*_COPY, *_EXPORTED, *_POD)),
            is_plain_pod=not is_relabelled,
            dropped_labels=sum(label not in _KNOWN for label in labels),
        )

    def holder(self, subject: Subject) -> Pod | None:
        """The pod that holds the device, or None: an exporter's own pod holds nothing."""
        pod = subject.pod
        if pod is None or not subject.is_plain_pod:
            return pod
        is_exporter = (pod.namespace, pod.name) in self._exporters or "dcgm-exporter" in pod.name
        return None if is_exporter else pod
