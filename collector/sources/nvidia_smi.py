"""nvidia-smi, for hosts that have nothing else: its CSV, read by a command with a deadline.

A card that could not be read whole is a reading with what is known; a lost one has no reading but a dated condition,
where it was seen before and so has a name. `parse` is pure.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from collector.bounds import WHOLE_COLUMNS
from collector.nvidia_smi.cards import Cards
from collector.nvidia_smi.command import Command
from collector.nvidia_smi.fields import ASKED
from collector.nvidia_smi.table import Device, Health, MigDevice, Output, read
from gpuledger.errors import SourceError
from gpuledger.model import Condition, QualityEvent, QualityFlag, Reading, SourceRead, canonical_model
from gpuledger.ports import Observation, failed_read

SOURCE = "nvidia_smi"
_TOLD = 200
_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_OLD_MIG_UUID = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/\d+")
_WORDS = {Health.LOST: "lost", Health.ERROR: "not readable"}


class Reader:
    """What stays the same from one text to the next: the node, the spacing, the zone of its times, and its cards.

    Without `zone` the times of the lines are not asked: everything was read `now`.
    """

    def __init__(
        self, node: str, *, interval_seconds: float | None, zone: tzinfo | None = None, cards: Cards | None = None
    ) -> None:
        self.node = node
        self.interval_seconds = interval_seconds
        self.zone = zone
        self.cards = cards or Cards()


def parse(text: str, now: datetime, reader: Reader) -> Observation:
    """The records that `text` stands for. Never raises: text without a device is a failed read that quotes it."""
    output = read(text)
    if not output.devices:
        return failure(reader, now, output.others[0][:_TOLD] if output.others else "no device in the answer")
    passes = list(_passes(output.devices, now, reader.zone))
    lasting = timedelta(seconds=3 * (reader.interval_seconds or 60))
    conditions: list[Condition] = []
    readings: list[Reading] = []
    for at, devices in passes:
        conditions += reader.cards.conditions(devices, at, lasting=lasting, source=SOURCE)
        seen = (device for device in devices if device.uuid and device.health is not Health.LOST)
        readings += (_reading(device, at, reader, output.slices) for device in seen)
    reads = tuple(_read(devices, at, reader) for at, devices in passes)
    return Observation(
        reads=(replace(reads[0], skipped_lines=len(output.others)), *reads[1:]),
        readings=tuple({(r.gpu_uuid, r.slice_id, r.ts): r for r in readings}.values()),
        others={"condition": conditions, "quality_event": list(_events(output, passes, reader))},
    )


def _passes(devices: Sequence[Device], now: datetime, zone: tzinfo | None) -> Iterator[tuple[datetime, list[Device]]]:
    """The devices of one pass after the other; a device that comes again begins a new one."""
    taken: list[Device] = []
    names: set[str] = set()
    for device in devices:
        name = device.uuid or device.pci or ""
        if zone is not None and name in names:
            yield _instant(taken, now, zone), taken
            taken, names = [], set()
        taken.append(device)
        names.add(name)
    yield _instant(taken, now, zone), taken


def _instant(devices: Sequence[Device], now: datetime, zone: tzinfo | None) -> datetime:
    told = next((device.at for device in devices if device.at is not None), None)
    return now if told is None or zone is None else told.replace(tzinfo=zone).astimezone(UTC)


def _read(devices: Sequence[Device], at: datetime, reader: Reader) -> SourceRead:
    counts = Counter(_WORDS[device.health] for device in devices if device.health in _WORDS)
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return SourceRead(
        ts=at,
        node=reader.node,
        source=SOURCE,
        scope="device",
        ok=True,
        interval_seconds=reader.interval_seconds,
        device_count=sum(not (device.uuid or "").startswith("MIG-") for device in devices),
        error=f"partial: {told}" if told else None,
    )


def _reading(device: Device, at: datetime, reader: Reader, slices: Mapping[str, MigDevice]) -> Reading:
    gpu_uuid, slice_id, profile = _place(device.uuid or "", slices)
    flags = QualityFlag.PARTIAL if device.failed else 0
    measured = {name: int(value) if name in WHOLE_COLUMNS else value for name, value in device.values.items()}
    return Reading(
        ts=at,
        node=reader.node,
        gpu_uuid=gpu_uuid,
        slice_id=slice_id,
        source=SOURCE,
        seen_at=at,
        interval_seconds=reader.interval_seconds,
        model=canonical_model(device.name),
        slice_profile=profile,
        invalid_count=len(device.rejected),
        quality_flags=flags | (QualityFlag.VALUE_REJECTED if device.rejected else 0),
        **measured,  # type: ignore[arg-type]  # columns come from the field table, which is checked against Reading
    )


def _place(uuid: str, slices: Mapping[str, MigDevice]) -> tuple[str, str, str | None]:
    """Card, slice and profile of a UUID. The older form of a MIG UUID names card and GPU instance itself."""
    if old := _OLD_MIG_UUID.fullmatch(uuid):
        return old[1], old[2], slices[uuid].profile if uuid in slices else None
    if uuid in slices:
        return slices[uuid].gpu_uuid, uuid, slices[uuid].profile
    return uuid, uuid if uuid.startswith("MIG-") else "", None


def _events(
    output: Output, passes: Sequence[tuple[datetime, Sequence[Device]]], reader: Reader
) -> Iterator[QualityEvent]:
    first_at = passes[0][0]
    for line, count in Counter(line[:_TOLD] for line in output.others).items():
        yield _event(reader, first_at, "refused_line", line, count)
    for at, devices in passes:
        for device in devices:
            if device.health in _WORDS and not reader.cards.uuid_of(device):
                yield _event(reader, at, "partial_answer", f"{device.pci}: {_WORDS[device.health]}", 1)


def _event(reader: Reader, at: datetime, kind: str, detail: str, count: int) -> QualityEvent:
    return QualityEvent(
        ts=at, source=SOURCE, subject_kind="node", subject=reader.node, kind=kind, detail=detail, count=count
    )


def failure(reader: Reader, now: datetime, error: str) -> Observation:
    """The observation of a read that gave nothing."""
    return failed_read(now, error, node=reader.node, source=SOURCE, interval_seconds=reader.interval_seconds)


class NvidiaSmiSource:
    """Runs `command` once for each read. A read ends within `timeout_seconds` (and a second to kill what hangs)."""

    name = SOURCE

    def __init__(
        self,
        *,
        node: str | None = None,
        interval_seconds: float = 30.0,
        timeout_seconds: float = 20.0,
        command: str = "nvidia-smi",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.node = node or socket.gethostname()
        self._timeout_seconds = timeout_seconds
        self._program = command
        self._command = Command(environment)
        self._fields: tuple[str, ...] = ASKED
        self._reader = Reader(self.node, interval_seconds=interval_seconds)

    @property
    def counts(self) -> dict[str, int]:
        """Fields that the installed version does not know, and a run that the kernel has not let go."""
        return {"unknown_fields": len(ASKED) - len(self._fields), "hung_processes": int(self._command.is_hung)}

    def read(self, now: datetime) -> Observation:
        """Run it once. Never raises and never hangs."""
        try:
            return parse(self._ask(), now, self._reader)
        except SourceError as error:
            return failure(self._reader, now, str(error))
        except Exception as error:  # the port promises an observation, whatever the command prints
            return failure(self._reader, now, f"{type(error).__name__} while reading")

    def close(self) -> None:
        """Let go of a run that hung."""
        self._command.close()

    def _ask(self) -> str:
        """The answer, asked again without each field that the installed version does not know."""
        while True:
            query = f"--query-gpu={','.join(self._fields)}"
            text = self._command.run([self._program, query, "--format=csv"], self._timeout_seconds)
            unknown = set(_UNKNOWN_FIELD.findall(text)) & set(self._fields)
            if not unknown:
                return text
            self._fields = tuple(name for name in self._fields if name not in unknown)
