"""Which schedulers the service reads: a TOML file of `[[scheduler]]` tables, and readers made of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.errors import ConfigError
from gpuledger.ports import SchedulerReader, WatchingReader
from gpuledger.registry import resolve
from schedulers.options import wrong_in


class Entry(BaseModel):
    """One `[[scheduler]]` table: an adapter, where it reads, and how often."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    adapter: str = Field(min_length=1, max_length=40)
    cluster: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    interval_seconds: float = Field(60.0, ge=1, le=3600)
    watch: bool | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """How records name the scheduler: "<adapter>", or "<adapter>/<cluster>" where the cluster has a name."""
        return self.adapter if self.cluster == "default" else f"{self.adapter}/{self.cluster}"


@dataclass(frozen=True, slots=True)
class Listed:
    """A scheduler of the list and its reader."""

    entry: Entry
    reader: SchedulerReader

    @property
    def is_watched(self) -> bool:
        """Whether its changes are told, instead of asked for."""
        return self.entry.watch is not False and isinstance(self.reader, WatchingReader)


def entries(path: Path) -> list[Entry]:
    """The tables of the file at `path`. Raises ConfigError naming the file, the table and what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"schedulers_file: {path}: {error}") from error
    tables = found.pop("scheduler", [])
    if found or not isinstance(tables, list):
        raise ConfigError(f"schedulers_file: {path}: {next(iter(found), 'scheduler')}: only [[scheduler]] tables")
    listed = [_entry(f"schedulers_file: {path}: scheduler {number}", one) for number, one in enumerate(tables, 1)]
    names = [one.name for one in listed]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"schedulers_file: {path}: {twice} is there twice; give each cluster a name of its own")
    clusters = [one.cluster for one in listed]
    if twice := next((name for name in clusters if clusters.count(name) > 1), None):
        both = " and ".join(one.adapter for one in listed if one.cluster == twice)
        raise ConfigError(
            f"schedulers_file: {path}: {both} have the cluster {twice!r} twice: queues of one name would be one queue; "
            "give each a cluster of its own"
        )
    return listed


def _entry(place: str, table: Any) -> Entry:
    try:
        return Entry.model_validate(table)
    except ValidationError as error:
        raise ConfigError(f"{place}: {wrong_in(Entry, error)}") from None


def reader_of(entry: Entry, rules: Rules, clock: Clock) -> SchedulerReader:
    """The reader that `entry` describes. Raises ConfigError naming the adapter or the option that is wrong."""
    kind = resolve("schedulers", entry.adapter)
    if not hasattr(kind, "from_options"):
        raise ConfigError(f"adapter {entry.adapter!r} is for trials: it cannot be read from")
    return cast("SchedulerReader", kind.from_options(entry.options, cluster=entry.cluster, rules=rules, clock=clock))


def readers(path: Path | None, rules: Rules, clock: Clock) -> Sequence[Listed]:
    """Readers of all schedulers in the file at `path`; none without a file. Raises ConfigError."""
    made = []
    for number, entry in enumerate(entries(path) if path is not None else (), 1):
        try:
            listed = Listed(entry, reader_of(entry, rules, clock))
        except ConfigError as error:
            raise ConfigError(f"schedulers_file: {path}: scheduler {number} ({entry.name}): {error}") from error
        if entry.watch and not listed.is_watched:
            raise ConfigError(
                f"schedulers_file: {path}: scheduler {number} ({entry.name}): watch: {entry.adapter} cannot be watched"
            )
        made.append(listed)
    return made
