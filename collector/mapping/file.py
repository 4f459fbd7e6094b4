"""The mapping file: a TOML file that makes a source of an exporter nobody wrote code for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from collector.mapping.units import COLUMNS, UNITS
from gpuledger.errors import ConfigError
from gpuledger.model.vocabulary import FAULT_KINDS

_NAMESPACES = ("namespace", "pod_namespace", "podnamespace")
_PODS = ("pod", "pod_name", "podname")
_CONTAINERS = ("container", "container_name", "ctrname")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Labels(_Table):
    """Label names, each a list of aliases of which the first that is there and not blank counts.

    A card is known by its `uuid`; without one by its `serial`, which is as unique; without that by its `index` on its
    node. Where an exporter was scraped without honor_labels, `exported_` names come before those given here.
    """

    uuid: tuple[str, ...] = Field((), description="names the card, everywhere and for ever")
    serial: tuple[str, ...] = Field((), description="names the card where the UUID is missing or all zeros")
    index: tuple[str, ...] = Field((), description="names the card on its node, where nothing better is there")
    node: tuple[str, ...] = Field(("Hostname", "hostname", "node", "nodename"), description="names the node")
    model: tuple[str, ...] = Field(("modelName", "model_name", "model"), description="names the card's model")
    namespace: tuple[str, ...] = Field(_NAMESPACES, description="namespace of the pod that holds the card")
    pod: tuple[str, ...] = Field(_PODS, description="pod that holds the card")
    container: tuple[str, ...] = Field(_CONTAINERS, description="container that holds the card")
    job: tuple[str, ...] = Field((), description="job of an HPC scheduler that holds the card")
    slice: tuple[str, ...] = Field((), description="names a part of the card, where it is divided")
    slice_profile: tuple[str, ...] = Field((), description="says how large the part is")


class Metric(_Table):
    """One metric: its names, newest first, the column of a reading that it fills, and its unit.

    Without a column its labels only say that the card is there, and who holds it.
    """

    names: tuple[str, ...] = Field(min_length=1, description="names, the newest first; older ones are told once")
    column: str = Field(
        "",
        description="column of a reading, or fb_free_bytes, nvlink_tx_bytes_per_second, nvlink_rx_bytes_per_second; "
        "held_core_ratio, held_memory_bytes: what a holder was given of the card",
    )
    unit: str = Field("", description="unit as written")
    rank: int = Field(0, ge=0, le=9, description="of several metrics of a column the lowest counts")
    final: bool = Field(default=False, description="where it is there without a value no higher rank stands in for it")
    device_wide: bool = Field(default=False, description="of the whole card, even where repeated for each part")
    when: Mapping[str, str] = Field(default_factory=dict, description="counts only with these label values")
    unless: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="does not count with one of these label values"
    )
    sum_over: str = Field("", description="label that tells apart parts (links) of which the card is the sum")
    mean_over: str = Field("", description="label that tells apart parts (engines) of which the card is the mean")
    blanks: tuple[float, ...] = Field((), description="values as written that mean no value, beside those of the file")
    least: float | None = Field(None, description="what is less, in the column's unit, is refused: it has another unit")
    most: float | None = Field(None, description="what is more, in the column's unit, is refused: it has another unit")

    @model_validator(mode="after")
    def _fits(self) -> Metric:
        if self.sum_over and self.mean_over:
            raise ValueError("sum_over: a metric has a sum or a mean over parts, not both")
        if not self.column:
            if self.unit or self.least is not None or self.most is not None:
                raise ValueError("unit, least, most: nothing is measured where no column is named")
            return self
        if self.column not in COLUMNS:
            raise ValueError(f"column: a reading has no {self.column!r}")
        if self.unit not in UNITS:
            raise ValueError(f"unit: {self.unit!r} is none of {', '.join(UNITS)}")
        if UNITS[self.unit][0] != COLUMNS[self.column]:
            raise ValueError(f"unit: {self.unit} does not measure {self.column}, which is in {COLUMNS[self.column]}")
        return self


class Fault(_Table):
    """Metrics that tell of faults of a card: each becomes a `FaultEvent` when it appears, and no column of a reading.

    Values are the vendor's codes, told in hexadecimal; 0 and blanks are none. With `state` they are a state of that
    name, 1 being well, and its fall to 0 is told.
    """

    names: tuple[str, ...] = Field(min_length=1, description="names, which tell the same kind of fault side by side")
    kind: str = Field(description="kind of fault event")
    state: str = Field("", description="what the fault is called where values are 1 (well) and 0")
    blanks: tuple[float, ...] = Field((), description="values as written that mean no value, beside those of the file")

    @model_validator(mode="after")
    def _known(self) -> Fault:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"kind: {self.kind!r} is none of {', '.join(FAULT_KINDS)}")
        return self


class MappingFile(_Table):
    """What the pages of one exporter mean."""

    source: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="what its readings are called")
    tested: Literal["real_pages", "documents", "untested"] = Field("untested", description="on what it was tried")
    prefixes: tuple[str, ...] = Field(("",), min_length=1, description="what may stand before each name")
    model: str | None = Field(None, description="the cards' model, where no label names it")
    blanks: tuple[float, ...] = Field((), description="values as written that mean no value")
    uuid_ends_at: str = Field("", description="text from which on the uuid label no longer names the card")
    whole_slices: tuple[str, ...] = Field((), description="values of the slice label that mean the whole card")
    whole_profiles: tuple[str, ...] = Field((), description="profiles that mean that the card is not divided")
    shares_cards: bool = Field(default=False, description="several pods on a card are no contradiction")
    cards_optional: bool = Field(
        default=False, description="the exporter also runs where no card is: a page without one is no failed read"
    )
    exporter_pods: tuple[str, ...] = Field(
        (), description="the exporter's own pods, by words in their name, hold nothing"
    )
    nameless_holders: tuple[str, ...] = Field((), description="values of the pod's label that name nobody")
    stale_after_seconds: float | None = Field(
        None, gt=0, description="samples are dated by when they were measured: such older ones say nothing any more"
    )
    only_where_named: bool = Field(
        default=False,
        description="cards have no name that other exporters share: they are read by a source that names this mapping, "
        "not from remote write or a metrics server, where each would be one card more",
    )
    vendor: Literal["nvidia", "ascend", "amd", "other"] = Field("other", description="whose faults it tells")
    labels: Labels = Labels()
    fault: tuple[Fault, ...] = ()
    metric: tuple[Metric, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _identifies(self) -> MappingFile:
        if not (self.labels.uuid or self.labels.serial or self.labels.index):
            raise ValueError("labels: one of uuid, serial and index must name a label")
        return self


def shipped() -> list[str]:
    """The names of the mapping files that come with gpuledger."""
    return sorted(file.name.removesuffix(".toml") for file in _FILES.iterdir() if file.name.endswith(".toml"))


def understood() -> list[MappingFile]:
    """The shipped mappings whose series count wherever they come from."""
    return [mapping for mapping in map(load, shipped()) if not mapping.only_where_named]


_FILES = resources.files("collector.mapping") / "files"


def load(mapping: str | Path) -> MappingFile:
    """The mapping named (one of `shipped()`), or in the file `mapping`. Raises ConfigError that names the place."""
    place = f"mapping {mapping}"
    try:
        if str(mapping) in shipped():
            text = (_FILES / f"{mapping}.toml").read_text(encoding="utf-8")
        else:
            text = Path(mapping).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(shipped())
        raise ConfigError(f"{place}: not readable, and none of the shipped ones ({known}): {error}") from error
    try:
        return MappingFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{place}: {where}: {first['msg'].removeprefix('Value error, ')}") from error
