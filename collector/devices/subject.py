"""What a series is about: a card or a slice of it, and what it measures there."""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
from dataclasses import dataclass

from collector.devices.fields import Field

_numbers = itertools.count()

PACKED = struct.Struct("<qqd")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as labelled. `container` may be empty. A job of an HPC scheduler is a pod of namespace `slurm`."""

    namespace: str
    name: str
    container: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What the labels of a series are about; a device's metrics share it.

    `slice_id` is the MIG GPU instance, or empty for the card. `node` is None where no label names it; `is_address`
    says that it is only the address that was scraped. `is_copy` marks labels that were written for one holder of the
    device (a pod, a time-slicing slot, an HPC job): their values repeat, or split, the device's own. `is_shared`
    marks those of a holder that shares the device by intent, `claim` names a resource claim that pods may share.
    `is_plain_pod` says that `pod` came from the plain labels, where the exporter's own pod may stand. `number` is one
    for each set of labels, and never used twice.
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
    is_shared: bool = False
    claim: str = ""
    is_address: bool = False
    number: int = dataclasses.field(default_factory=lambda: next(_numbers), compare=False)


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """One series: its subject, and the field it measures. None where it only proves that the device is there.

    `meaning` is what a field that counts gives to its column: the code or bit that its label names.
    `packed` holds (subject number, field index, meaning) as bytes, so that many series become columns at once.
    """

    field: Field | None
    subject: Subject
    meaning: float = math.nan
    packed: bytes = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = 0 if self.field is None else self.field.index
        object.__setattr__(self, "packed", PACKED.pack(self.subject.number, index, self.meaning))


@dataclass(frozen=True, slots=True)
class FaultSeries(DeviceSeries):
    """A series, called `name`, that tells of faults of `kind` (of FAULT_KINDS) by `vendor`, and measures nothing.

    Its value is the vendor's code, 0 and `blanks` being none; with `state` it is a state of that name instead, where
    1 is well and 0 is not.
    """

    name: str = ""
    kind: str = ""
    vendor: str = "other"
    state: str = ""
    blanks: tuple[float, ...] = ()
