"""What the two ways of asking Slurm have in common."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpuledger.errors import BadInput, ConfigError, SchedulerUnreachable
from schedulers.slurm.facts import Facts, Job
from schedulers.slurm.names import hosts

Broken = list[tuple[str, str]]
"""(what, why) of things that made no sense."""

ACCOUNTING = frozenset({"queue", "quota", "queue_resource", "queue_state"})
"""Records that follow from the accounting."""


class Transport(Protocol):
    """A way to ask Slurm."""

    where: str

    def facts(self) -> Facts:
        """Everything, once, in several calls. Raises SchedulerUnreachable or NotPermitted."""
        ...

    def finished(self, begin: datetime, end: datetime) -> tuple[list[Job], Broken]:
        """Every attempt of jobs that ran or waited in [`begin`, `end`), from the accounting."""
        ...


def check_counted(where: str, kinds: Iterable[tuple[str, str]]) -> None:
    """Raises SchedulerUnreachable where (type, name) of what the accounting counts has no GPU: all would have had 0."""
    if not any(kind == "gres" and name.split(":")[0] == "gpu" for kind, name in kinds):
        raise SchedulerUnreachable(f"{where}: the accounting counts no GPUs: AccountingStorageTRES lacks gres/gpu")


def places(lines: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """(leaf, spine) by node, from topology.conf or `scontrol show topology`: the switch at it, and the one above that.

    A block of a block topology is a leaf without a spine. Lines that are no switch are left out.
    """
    leaf: dict[str, str] = {}
    above: dict[str, str] = {}
    for line in lines:
        told = dict(word.partition("=")[::2] for word in line.split("#")[0].split())
        name = told.get("SwitchName") or told.get("BlockName")
        if name is None:
            continue
        if under := told.get("Switches"):
            above.update(dict.fromkeys(hosts(under), name))
        elif nodes := told.get("Nodes"):
            leaf.update(dict.fromkeys(hosts(nodes), name))
    return {node: (name, above.get(name)) for node, name in leaf.items()}


def places_in(path: Path | None) -> dict[str, tuple[str | None, str | None]]:
    """`places` of a file; none for None. Raises ConfigError naming it."""
    if path is None:
        return {}
    try:
        return places(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError, BadInput) as error:
        raise ConfigError(f"scheduler slurm: topology_conf {path}: {error}") from None
