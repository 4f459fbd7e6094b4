"""Whose a process is, from the text of /proc/PID/cgroup: the pod, the container or the Slurm job it runs in.

Understood are version 1 and 2 of control groups, with the systemd driver and with plain folders, as containerd,
CRI-O, Docker and Slurm name them. A pod is known here by its uid only; its name is not in these texts.

NVML gives process ids as the node's first process sees them. Inside a namespace of process ids the same number is
another process, or none, so that there nothing is said. A container that has the node's /proc mounted sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_READ_BYTES = 1 << 16
_KERNEL_THREADS = "kthreadd"
"""Process 2 of the first namespace of process ids is the parent of the kernel's threads, which no other one has."""

_MPS_SERVER = "nvidia-cuda-mps"
"""What /proc/PID/comm shows of nvidia-cuda-mps-server and -control: the kernel cuts names after 15 bytes."""

_HEX = "[0-9a-f]"
_POD = re.compile(
    rf"(?:[\w.]+-)*pod({_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}})(?:\.slice)?", re.ASCII
)
_CONTAINER = re.compile(rf"(?:[a-z]+(?:-[a-z]+)*-)?({_HEX}{{64}})(?:\.scope)?", re.ASCII)
_JOB = re.compile(r"job_([0-9]{1,10})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Owner:
    """What a process runs in; None where it is not said. `pod_uid` has dashes, or is a static pod's 32 digits."""

    pod_uid: str | None = None
    container_id: str | None = None
    slurm_job: str | None = None


def parse_cgroup(text: str) -> Owner:
    """The owner that a text of /proc/PID/cgroup names: the outermost pod and job, the innermost container."""
    pod = container = job = None
    for line in text.splitlines():
        _, _, path = line.partition(":")[2].partition(":")
        is_slurm = False
        for part in re.split("[/:]", path):
            is_slurm |= "slurm" in part
            pod = pod or _match(_POD, part)
            container = _match(_CONTAINER, part) or container
            job = job or (_match(_JOB, part) if is_slurm else None)
    return Owner(pod and pod.replace("_", "-"), container, job)


def _match(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.fullmatch(text)
    return found[1] if found else None


class Owners:
    """Looks processes up once; those that are no longer asked for are forgotten, since ids are used again."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[Owner, bool]] = {}
        self._is_first_namespace = _text(proc / "2" / "comm").strip() == _KERNEL_THREADS

    def keep(self, pids: Iterable[int]) -> None:
        """Forget all processes but `pids`."""
        wanted = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in wanted}

    def owner(self, pid: int) -> Owner:
        """Whose process `pid` is; an owner of Nones where that cannot be seen."""
        return self._look(pid)[0]

    def is_mps_server(self, pid: int) -> bool:
        """Whether `pid` is the server of CUDA's multi-process service, which computes only for its clients."""
        return self._look(pid)[1]

    def _look(self, pid: int) -> tuple[Owner, bool]:
        if not self._is_first_namespace:
            return Owner(), False
        known = self._known.get(pid)
        if known is None:
            folder = self._proc / str(pid)
            known = parse_cgroup(_text(folder / "cgroup")), _text(folder / "comm").strip() == _MPS_SERVER
            self._known[pid] = known
        return known


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
