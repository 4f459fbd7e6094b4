"""What the series of a mapped exporter are about."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from collector.devices.fields import FIELDS, HOLDER_COLUMNS, Field, bounded
from collector.devices.subject import DeviceSeries, FaultSeries, Pod, Subject
from collector.exposition import Series
from collector.mapping.file import Fault, MappingFile, Metric
from collector.mapping.units import UNITS
from gpuledger.model import GPU_MODELS, QualityEvent, canonical_model

_NOTHING = re.compile(r"[0-]*|n/?a|null|none|unknown", re.IGNORECASE)
_BLANK_TEXT = frozenset({"", "na", "n/a", "null", "none", "unknown"})
_MODELS = frozenset(model.model for model in GPU_MODELS)
_PORT = re.compile(r":\d+$")
_NO_NODE = frozenset({"", "localhost", "127.0.0.1"})
_MAX_SUBJECTS = 100_000
_MAX_NAMES = 4
_JOB_NAMESPACE = "slurm"


@dataclass(frozen=True, slots=True)
class _Use:
    """One way in which a metric's name is used: under which label values, as which field, with parts of what label.

    Label values are in small letters: releases of one exporter write "CPX" and "cpx".
    """

    when: tuple[tuple[str, str], ...]
    unless: tuple[tuple[str, tuple[str, ...]], ...]
    field: Field | None
    parts: str
    fault: Fault | None = None

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` are those under which the metric counts; a label that is not there is an empty one."""
        return all(labels.get(name, "").lower() == value for name, value in self.when) and not any(
            labels.get(name, "").lower() in values for name, values in self.unless
        )


class MappedReader:
    """Turns the series of one target into what they are about, as its mapping says.

    `node` is the node where no label names it, and with `is_of_node` whatever labels say: cards that are known by an
    index alone are named after it. A series that names an index only is about the card of that index, where other
    series of the target name it. Without `sees_pages` series come one by one, in any order: a part that names its card
    by an index only is left out then, since it might become another card.
    """

    def __init__(self, mapping: MappingFile, *, node: str, is_of_node: bool = False, sees_pages: bool = True) -> None:
        self.mapping = mapping
        self.dropped_labels = 0
        self._node = node
        self._is_of_node = is_of_node
        self._sees_pages = sees_pages
        self._uses: dict[str, list[_Use]] = {}
        self._renamed: dict[str, str] = {}
        for metric in mapping.metric:
            for name, use in _uses(mapping, metric):
                self._uses.setdefault(name, []).append(use)
                if name != (newest := _spelt(mapping, name, metric)):
                    self._renamed[name] = newest
        for fault in mapping.fault:
            for name in (prefix + name for prefix in mapping.prefixes for name in fault.names):
                self._uses.setdefault(name, []).append(_Use((), (), None, "", fault))
        self._whole_profiles = _lower(mapping.whole_profiles)
        self._whole_slices = _lower(mapping.whole_slices)
        of = mapping.labels
        card = (of.uuid, of.serial, of.index, of.node, of.model, of.slice, of.slice_profile, ("instance",))
        self._about = (*(name for names in card for name in names), *self.holder_labels)
        self._subjects: dict[tuple[str, ...], Subject | None] = {}
        self._card_at: dict[str, str] = {}
        self._asked_at: set[str] = set()
        self._is_resolved_otherwise = False
        self._parts: dict[str, int] = {}
        self._told: set[str] = set()
        self._untold: Counter[tuple[str, str]] = Counter()

    @property
    def holder_labels(self) -> tuple[str, ...]:
        """Labels that say who holds a card."""
        of = self.mapping.labels
        return tuple(
            name for names in (of.namespace, of.pod, of.container, of.job) for one in names for name in _both(one)
        )

    @property
    def fields(self) -> dict[str, Field | None]:
        """The field of each metric, None where it only names holders; of several by label, the first."""
        return {name: next((use.field for use in uses if use.field), None) for name, uses in self._uses.items()}

    def is_known(self, name: str) -> bool:
        """Whether metric `name` is one of the mapping's."""
        return name in self._uses

    def read(self, series: Series) -> DeviceSeries | None:
        """What `series` is about, or None when it is not mapped or names no device."""
        uses = self._uses.get(series.name)
        if uses is None:
            return None
        subject = self.subject(series.labels)
        if subject is None:
            return None
        self._note_name(series.name)
        labels = series.labels
        use = next((use for use in uses if use.fits(labels)), None)
        if use is None:
            return DeviceSeries(None, subject)
        if use.fault is not None:
            return self._fault(series.name, use.fault, subject)
        if not use.parts:
            return DeviceSeries(use.field, subject)
        part = self._parts.setdefault(labels.get(use.parts, ""), len(self._parts))
        return DeviceSeries(use.field, subject, float(part))

    def subject(self, labels: Mapping[str, str]) -> Subject | None:
        """The card or slice that `labels` name, or None."""
        key = tuple(labels.get(name, "") for name in self._about)
        if key not in self._subjects:
            if len(self._subjects) >= _MAX_SUBJECTS:
                self._subjects.clear()
            self._subjects[key] = self._read_labels(labels)
        return self._subjects[key]

    def take_resolved_otherwise(self) -> bool:
        """Whether a place turned out to be another card than series were told before, which are to be read anew."""
        taken, self._is_resolved_otherwise = self._is_resolved_otherwise, False
        if taken:
            self._subjects.clear()
        return taken

    def holder(self, subject: Subject) -> Pod | None:
        """The pod that holds the device, or None: an exporter's own pod holds nothing."""
        pod = subject.pod
        if pod is None or not subject.is_plain_pod:
            return pod
        return None if any(word in pod.name for word in self.mapping.exporter_pods) else pod

    def take_events(self, now: datetime, source: str, target: str) -> list[QualityEvent]:
        """What was noticed about names since the last call: each is told once."""
        noticed, self._untold = self._untold, Counter()
        return [
            QualityEvent(
                ts=now, source=source, subject_kind="target", subject=target, kind=kind, detail=detail, count=count
            )
            for (kind, detail), count in sorted(noticed.items())
        ]

    def _fault(self, name: str, fault: Fault, subject: Subject) -> FaultSeries:
        blanks = (*self.mapping.blanks, *fault.blanks)
        return FaultSeries(
            None, subject, name=name, kind=fault.kind, vendor=self.mapping.vendor, state=fault.state, blanks=blanks
        )

    def _note_name(self, name: str) -> None:
        newest = self._renamed.get(name)
        if newest is not None and name not in self._told:
            self._told.add(name)
            self._untold["renamed_metric", f"{name} -> {newest}"] = 1

    def _read_labels(self, labels: Mapping[str, str]) -> Subject | None:
        of = self.mapping.labels
        named = _first(labels, of.node)
        node = named or _address(labels) or None
        card = self._card(labels, self._node if self._is_of_node else node or self._node)
        if not card or self._is_lost_part(card, labels):
            return None
        job = _first(labels, of.job)
        is_relabelled = any(f"exported_{name}" in labels for name in of.pod)
        profile = _first(labels, of.slice_profile)
        return Subject(
            gpu_uuid=card,
            slice_id=self._slice(labels, profile),
            slice_profile=None if profile.lower() in self._whole_profiles else profile or None,
            model=self._model(labels),
            node=node,
            pod=Pod(_JOB_NAMESPACE, job, "") if job else self._pod(labels, is_relabelled=is_relabelled),
            is_copy=False,
            is_plain_pod=not is_relabelled and not job,
            dropped_labels=0,
            is_shared=self.mapping.shares_cards,
            is_address=not named,
        )

    def _card(self, labels: Mapping[str, str], node: str) -> str:
        of = self.mapping.labels
        index = _first(labels, of.index)
        place = f"{node}/{self.mapping.source}/{index}" if index else ""
        for names in (of.uuid, of.serial):
            found = next((labels[name] for name in names if not _NOTHING.fullmatch(labels.get(name, ""))), "")
            if found and self.mapping.uuid_ends_at:
                found = found.partition(self.mapping.uuid_ends_at)[0]
            if found:
                self._note_place(place, found)
                return found
        return self._at(place)

    def _is_lost_part(self, card: str, labels: Mapping[str, str]) -> bool:
        of = self.mapping.labels
        if self._sees_pages or not of.uuid or not _first(labels, of.slice):
            return False
        return not any(labels.get(name, "").startswith(card) for name in (*of.uuid, *of.serial))

    def _note_place(self, place: str, card: str) -> None:
        """Remember which card is at `place`, for series that name only that."""
        known = self._card_at.get(place)
        if not place or known == card:
            return
        if len(self._card_at) >= _MAX_SUBJECTS:
            self._card_at.clear()
        self._card_at[place] = card
        self._is_resolved_otherwise |= place in self._asked_at

    def _at(self, place: str) -> str:
        """The card at `place`: the one that other series named there, else one of the place's own name."""
        if place and len(self._asked_at) < _MAX_SUBJECTS:
            self._asked_at.add(place)
        return self._card_at.get(place, place)

    def _slice(self, labels: Mapping[str, str], profile: str) -> str:
        if profile.lower() in self._whole_profiles:
            return ""
        found = _first(labels, self.mapping.labels.slice)
        return "" if found.lower() in self._whole_slices else found

    def _model(self, labels: Mapping[str, str]) -> str | None:
        """Of the labels that name the model the first whose model is known, else the first."""
        written = [canonical_model(labels[name]) for name in self.mapping.labels.model if labels.get(name)]
        return next((model for model in written if model in _MODELS), (*written, self.mapping.model)[0])

    def _pod(self, labels: Mapping[str, str], *, is_relabelled: bool) -> Pod | None:
        of = self.mapping.labels
        before = "exported_" if is_relabelled else ""
        namespace, pod, container = (
            next((labels[before + name] for name in names if labels.get(before + name)), "")
            for names in (of.namespace, of.pod, of.container)
        )
        return Pod(namespace, pod, container) if pod and pod not in self.mapping.nameless_holders else None


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name, "").lower() not in _BLANK_TEXT), "")


def _address(labels: Mapping[str, str]) -> str:
    """The host of the address that a scraper wrote, which is less than a node's name."""
    host = _PORT.sub("", labels.get("instance", ""))
    return "" if host in _NO_NODE else host


def _lower(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text.lower() for text in texts)


def _both(name: str) -> tuple[str, str]:
    return name, f"exported_{name}"


def _uses(mapping: MappingFile, metric: Metric) -> Iterator[tuple[str, _Use]]:
    when = tuple((name, value.lower()) for name, value in metric.when.items())
    unless = tuple((name, _lower(values)) for name, values in metric.unless.items())
    is_measured = metric.column and metric.column not in HOLDER_COLUMNS
    for number, name in enumerate(metric.names):
        age = min(number, _MAX_NAMES - 1) if is_measured else 0
        field = _field(mapping, metric, age) if metric.column else None
        for prefix in mapping.prefixes:
            yield prefix + name, _Use(when, unless, field, metric.sum_over or metric.mean_over)


def _field(mapping: MappingFile, metric: Metric, age: int) -> Field:
    """The field of `metric` under a name that has `age` newer ones: of several on a page the newest counts."""
    _, times, divided_by = UNITS[metric.unit]
    field = bounded(
        Field(
            metric.column,
            times,
            divided_by,
            rank=metric.rank * _MAX_NAMES + age,
            is_device_wide=metric.device_wide,
            is_summed=bool(metric.sum_over or metric.mean_over),
            is_averaged=bool(metric.mean_over),
            is_final=metric.final,
            is_single=not (metric.sum_over or metric.mean_over),
            blanks=tuple(sorted({*mapping.blanks, *metric.blanks})),
        )
    )
    low = field.low if metric.least is None else metric.least
    high = field.high if metric.most is None else metric.most
    return FIELDS.register(dataclasses.replace(field, low=low, high=high))


def _spelt(mapping: MappingFile, name: str, metric: Metric) -> str:
    """The newest name of `metric`, with the prefix that `name` has."""
    longest_first = sorted(mapping.prefixes, key=len, reverse=True)
    prefix = next(one for one in longest_first if name.startswith(one) and name[len(one) :] in metric.names)
    return prefix + metric.names[0]
