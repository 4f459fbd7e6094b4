"""Nodes, partitions, reservations, accounts and live counts as `scontrol` and `sacctmgr` list them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from gpuledger.errors import BadInput
from schedulers.slurm.columns import at, field, plain, whole, words
from schedulers.slurm.facts import Association, Host, Limits, Partition, Qos, Reservation
from schedulers.slurm.transport import Broken

ASSOCIATION_COLUMNS = (
    "Account", "User", "Partition", "ParentName", "Fairshare", "GrpTRES", "MaxTRESPerJob",
)  # fmt: skip
QOS_COLUMNS = ("Name", "Priority", "Preempt", "GrpTRES", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxTRESPerJob")

_REASON = re.compile(r" Reason=(.*?) \[[^\[\]]*@([0-9T:-]+)\]")
_LIVE_ENTRY = re.compile(r"([^,=]+)=(?:N|\d+)\((\d+)\)")

Fact = TypeVar("Fact")
Used = dict[tuple[str, str], dict[str, float]]


def _each(lines: Iterable[str], key: str, make: Callable[[str], Fact], broken: Broken) -> tuple[Fact, ...]:
    found = []
    for line in lines:
        if not line.startswith(f"{key}="):
            continue
        try:
            found.append(make(line))
        except BadInput as error:
            broken.append((field(line, key), str(error)))
    return tuple(found)


def shown_hosts(lines: Iterable[str], broken: Broken) -> tuple[Host, ...]:
    """Nodes, of `scontrol -d -o show node`."""
    return _each(lines, "NodeName", _host, broken)


def _host(line: str) -> Host:
    reason, reason_at = _reason(line)
    memory = field(line, "RealMemory")
    return Host(
        name=field(line, "NodeName"),
        states=words(field(line, "State")),
        gres=field(line, "Gres"),
        gres_used=field(line, "GresUsed"),
        gres_drained=field(line, "GresDrain"),
        reason=reason,
        reason_at=reason_at,
        busy_at=at(field(line, "LastBusyTime")),
        partitions=tuple(filter(None, field(line, "Partitions").split(","))),
        cpus=whole(field(line, "CPUTot"), None),
        memory_mib=whole(memory, None),
    )


def _reason(line: str) -> tuple[str, datetime | None]:
    match = _REASON.search(line)
    return ("", None) if match is None else (match[1], at(match[2]))


def shown_partitions(lines: Iterable[str], broken: Broken) -> tuple[Partition, ...]:
    """Partitions, of `scontrol -o show partition`."""
    return _each(lines, "PartitionName", _partition, broken)


def _partition(line: str) -> Partition:
    return Partition(name=field(line, "PartitionName"), states=words(field(line, "State")), nodes=field(line, "Nodes"))


def shown_reservations(lines: Iterable[str], broken: Broken) -> tuple[Reservation, ...]:
    """Reservations, of `scontrol -o show reservation`."""
    return _each(lines, "ReservationName", _reservation, broken)


def _reservation(line: str) -> Reservation:
    held_by = (field(line, "Accounts"), field(line, "Users"))
    return Reservation(
        name=field(line, "ReservationName"),
        nodes=field(line, "Nodes"),
        start_at=at(field(line, "StartTime")),
        end_at=at(field(line, "EndTime")),
        flags=frozenset(filter(None, field(line, "Flags").split(","))),
        holders=",".join(filter(None, held_by)),
    )


def shown_associations(lines: Iterable[bytes], broken: Broken) -> tuple[Association, ...]:
    """Accounts and their users, of `sacctmgr -nP show assoc`."""
    found = []
    for row in _rows(lines, ASSOCIATION_COLUMNS, broken):
        limits = {"group": row["GrpTRES"], "job": row["MaxTRESPerJob"]}
        share = row["Fairshare"]
        found.append(
            Association(
                account=row["Account"],
                user=row["User"],
                partition=row["Partition"],
                parent=row["ParentName"],
                share=float(share) if share.isdecimal() else None,
                limits=Limits(tres=_set(limits)),
            )
        )
    return tuple(found)


def shown_qos(lines: Iterable[bytes], broken: Broken) -> tuple[Qos, ...]:
    """QOS, of `sacctmgr -nP show qos`."""
    found = []
    for row in _rows(lines, QOS_COLUMNS, broken):
        limits = {
            "group": row["GrpTRES"],
            "user": row["MaxTRESPerUser"],
            "account": row["MaxTRESPerAccount"],
            "job": row["MaxTRESPerJob"],
        }
        found.append(
            Qos(
                name=row["Name"],
                priority=int(row["Priority"]) if row["Priority"].isdecimal() else 0,
                preempts=tuple(filter(None, row["Preempt"].split(","))),
                limits=Limits(tres=_set(limits)),
            )
        )
    return tuple(found)


def _rows(lines: Iterable[bytes], columns: Sequence[str], broken: Broken) -> Iterable[dict[str, str]]:
    for line in filter(bytes.strip, lines):
        try:
            yield dict(plain(line, columns))
        except BadInput as error:
            broken.append((line.split(b"|")[0].decode("utf-8", "replace"), str(error)))


def _set(limits: dict[str, str]) -> dict[str, str]:
    return {scope: text for scope, text in limits.items() if text}


def live_counts(lines: Iterable[str]) -> Used:
    """What Slurm counts now, of `scontrol -o show assoc_mgr flags=assoc,qos`: by (account, user) and ("qos/...", user).

    Its text is "GrpTRES=gres/gpu=10(6)": limit and what is held; "N" is no limit. An account's count is with those
    below it. Users under a QOS are told by number there.
    """
    found: Used = {}
    for line in lines:
        if qos := re.match(r"QOS=([^\s(]+)\(", line):
            found[f"qos/{qos[1]}", ""] = _counts(field(line, "GrpTRES"))
        elif " Account=" in f" {line}" and not field(line, "Partition"):
            user = field(line, "UserName").split("(")[0]
            found[field(line, "Account"), user] = _counts(field(line, "GrpTRES"))
    return found


def _counts(text: str) -> dict[str, float]:
    return {name: float(count) for name, count in _LIVE_ENTRY.findall(text)}
