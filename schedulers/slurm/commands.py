"""Slurm by its commands. Times are asked in UTC, texts read as UTF-8, whatever this machine's settings are."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256

from gpuledger.errors import NotPermitted, SchedulerUnreachable
from schedulers.slurm import columns, command_facts, command_jobs
from schedulers.slurm.facts import Facts, Job
from schedulers.slurm.options import SlurmOptions
from schedulers.slurm.transport import Broken, check_counted, places, places_in

_OURS = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
_THEIRS = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SLURM_CLUSTERS")
"""What begins so would change the commands' output."""
_REFUSALS = ("permission denied", "not authorized", "access denied", "invalid credential", "authentication failure")


class Commands:
    """Runs `squeue`, `scontrol`, `sacctmgr` and `sacct`, each with its columns named."""

    def __init__(self, options: SlurmOptions) -> None:
        self._options = options
        self.where = f"squeue ({options.slurm_conf or 'its own configuration'})"
        self._sacct_columns: tuple[str, ...] = ()
        self._is_counted = False

    def facts(self) -> Facts:
        """Everything, once. What the accounting does not let us see is in `denied`."""
        broken: Broken = []
        denied: list[tuple[str, str]] = []
        # The shortest time lies between jobs and nodes: they are compared with each other.
        shown = command_jobs.shown_once(self._entries("JobId", "-d", "-a", "-o", "show", "job"))
        mark = _mark()
        queue = self._table(mark, "squeue", "-a", "-h", "-t", "all", "-O", command_jobs.squeue_format(mark))
        nodes = self._entries("NodeName", "-d", "-a", "-o", "show", "node")
        listed = command_jobs.queued(queue, command_jobs.placed(shown), broken, mark.encode())
        jobs = tuple(command_jobs.taken_apart(listed, shown))
        hosts = command_facts.shown_hosts(nodes, broken)
        partitions = command_facts.shown_partitions(self._lines("scontrol", "-a", "-o", "show", "partition"), broken)
        reservations = command_facts.shown_reservations(
            self._lines("scontrol", "-a", "-o", "show", "reservation"), broken
        )
        found: dict[str, list[bytes]] = {"assoc": [], "qos": [], "live": []}
        with self._allowed("accounts (sacctmgr show assoc)", denied):
            named = ",".join(command_facts.ASSOCIATION_COLUMNS)
            found["assoc"] = self._run("sacctmgr", "-nP", "show", "assoc", f"format={named}", *self._cluster())
        with self._allowed("qos (sacctmgr show qos)", denied):
            found["qos"] = self._run("sacctmgr", "-nP", "show", "qos", f"format={','.join(command_facts.QOS_COLUMNS)}")
        with self._allowed("live counts (scontrol show assoc_mgr)", denied):
            found["live"] = self._run("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos")
        return Facts(
            jobs=jobs,
            hosts=hosts,
            partitions=partitions,
            reservations=reservations,
            associations=command_facts.shown_associations(found["assoc"], broken),
            qos=command_facts.shown_qos(found["qos"], broken),
            used=command_facts.live_counts(_texts(found["live"])),
            places=self._places(),
            denied=tuple(denied),
            broken=tuple(broken),
            version=sha256(
                b"\n".join(
                    [
                        *(row.replace(mark.encode(), b"|") for row in queue),
                        *found["assoc"],
                        *found["qos"],
                        *"\n".join(nodes).encode().split(),
                    ]
                )
            ).hexdigest(),
        )

    def finished(self, begin: datetime, end: datetime) -> tuple[list[Job], Broken]:
        """The attempts of `sacct` that ran or waited in the time; earlier attempts are told by -D, steps left out."""
        known = self._columns()
        if not self._is_counted:
            told = self._lines("sacctmgr", "-nP", "show", "tres", "format=type,name")
            check_counted(
                "sacctmgr show tres", ((kind, name) for kind, _, name in (one.partition("|") for one in told))
            )
            self._is_counted = True
        broken: Broken = []
        mark = _mark()
        asked = ("-a", "-X", "-D", "-n", "-p", f"--delimiter={mark}", f"--format={','.join(known)}")
        lines = self._table(mark, "sacct", *asked, f"--starttime={_time(begin)}", f"--endtime={_time(end)}")
        return command_jobs.accounted(lines, known, broken, mark.encode()), broken

    def _columns(self) -> tuple[str, ...]:
        if not self._sacct_columns:
            known = {word.lower() for line in self._lines("sacct", "--helpformat") for word in line.split()}
            self._sacct_columns = tuple(name for name in command_jobs.SACCT_COLUMNS if name.lower() in known)
        return self._sacct_columns

    def _cluster(self) -> list[str]:
        name = next((line for line in self._lines("scontrol", "show", "config") if line.startswith("ClusterName")), "")
        return [f"cluster={name.partition('=')[2].strip()}"] if name else []

    def _places(self) -> dict[str, tuple[str | None, str | None]]:
        if self._options.topology_conf:
            return places_in(self._options.topology_conf)
        try:
            return places(self._lines("scontrol", "show", "topology"))
        except SchedulerUnreachable:  # it has none (topology/flat), and says so as an error
            return {}

    @contextmanager
    def _allowed(self, what: str, denied: list[tuple[str, str]]) -> Iterator[None]:
        try:
            yield
        except (NotPermitted, SchedulerUnreachable) as error:
            denied.append((what, str(error)))

    def _lines(self, command: str, *arguments: str) -> list[str]:
        return _texts(self._run(command, *arguments))

    def _entries(self, key: str, *arguments: str) -> list[str]:
        """What `scontrol -o` lists, one each: names and reasons may have a line's end in them."""
        found: list[str] = []
        for line in self._lines("scontrol", *arguments):
            if found and not line.startswith(f"{key}="):
                found[-1] += f" {line}"
            else:
                found.append(line)
        return found

    def _table(self, mark: str, command: str, *arguments: str) -> list[bytes]:
        return columns.told(self._said(command, *arguments), mark.encode())

    def _run(self, command: str, *arguments: str) -> list[bytes]:
        return self._said(command, *arguments).splitlines()

    def _said(self, command: str, *arguments: str) -> bytes:
        """What a command printed. Raises SchedulerUnreachable or NotPermitted naming it."""
        folder = self._options.commands_in
        place = f"{command} {' '.join(arguments[:4])}"
        try:
            done = subprocess.run(  # noqa: S603 no shell; the program is named by the options
                [str(folder / command) if folder else command, *arguments],
                capture_output=True,
                env=self._environment(),
                timeout=self._options.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SchedulerUnreachable(f"{place}: no answer in {self._options.timeout_seconds:g} s") from None
        except OSError as error:
            raise SchedulerUnreachable(f"{place}: {error.strerror or type(error).__name__}") from None
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if done.returncode or any("Invalid" in line and "specification" in line for line in told):
            _refuse(place, told or done.stdout.decode("utf-8", "replace").strip().splitlines())
        return done.stdout

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_THEIRS)}
        conf = {"SLURM_CONF": str(self._options.slurm_conf)} if self._options.slurm_conf else {}
        return {**kept, **_OURS, **conf}


def _refuse(place: str, told: Sequence[str]) -> None:
    text = "; ".join(told[:2]) or "failed and said nothing"
    if any(word in text.lower() for word in _REFUSALS):
        raise NotPermitted(f"{place}: {text}")
    raise SchedulerUnreachable(f"{place}: {text}")


def _mark() -> str:
    """What stands after each column: no name can have it in itself."""
    return f"|{secrets.token_hex(4)}|"


def _texts(lines: Sequence[bytes]) -> list[str]:
    return [line.decode("utf-8", "replace").rstrip() for line in lines]


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S")
