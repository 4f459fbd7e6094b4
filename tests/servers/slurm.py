"""A real Slurm on loopback: nodes of eight GPUs that are empty files, accounting, slurmrestd; and ways to ask it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.clock import Clock, SystemClock
from schedulers.slurm import Slurm

HERE = Path(__file__).resolve().parent
NEEDED = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "sacctmgr", "mariadbd", "mariadb-install-db", "munged")
PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Cluster:
    """A running Slurm: `conf` and `rest` are where its commands and slurmrestd find it."""

    folder: Path
    conf: str
    rest: str
    token_file: Path

    @property
    def command_options(self) -> dict[str, Any]:
        return {"slurm_conf": self.conf}

    @property
    def rest_options(self) -> dict[str, Any]:
        topology = self.folder / "etc" / "topology.conf"
        return {
            "transport": "rest",
            "url": self.rest,
            "token_file": str(self.token_file),
            "topology_conf": str(topology),
        }

    def reader(self, options: Mapping[str, Any], *, cluster: str = "default", clock: Clock | None = None) -> Slurm:
        return Slurm.from_options(options, cluster=cluster, rules=Rules(), clock=clock or SystemClock())

    def run(self, *command: str, fails: bool = False) -> str:
        """What a Slurm command prints, times in UTC."""
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": self.conf, "TZ": "UTC", "LC_ALL": "C.UTF-8"},
            cwd=self.folder,
            capture_output=True,
            timeout=120,
            check=False,
        )
        text = done.stdout.decode("utf-8", "replace").strip()
        assert fails or done.returncode == 0, f"{command}: {done.stderr.decode('utf-8', 'replace')}{text}"
        return text

    def submit(self, name: str, *options: str, seconds: int = 900, account: str = "team-b") -> str:
        """Submit a job that sleeps; its number."""
        told = self.run(
            "sbatch", "--parsable", "-A", account, "--output=/dev/null", "-J", name, *options,
            "--wrap", f"sleep {seconds}",
        )  # fmt: skip
        return told.split(";")[0]

    def state(self, job: str) -> str:
        """ "STATE REASON" as squeue says it of the first record of the job."""
        lines = self.run("squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T %r", fails=True).splitlines()
        return lines[0] if lines else ""

    def until_state(self, job: str, wanted: str) -> str:
        """Wait until `state` begins with `wanted`."""
        return until(lambda: self.state(job), lambda told: told.startswith(wanted), f"job {job} {wanted}")


def until(ask: Callable[[], str], is_so: Callable[[str], bool], what: str) -> str:
    """Ask again until it is so: what a scheduler does takes the time that it takes."""
    end = time.monotonic() + PATIENCE_SECONDS
    told = ""
    while time.monotonic() < end:
        told = ask()
        if is_so(told):
            return told
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come; the last answer was {told!r}")


def _free_ports(count: int) -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@contextmanager
def running(*, nodes: int = 4) -> Iterator[Cluster]:
    """A Slurm of `nodes` nodes, stopped at the end; the test is skipped where Slurm, or root, is not there."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"optional: Slurm is not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("optional: a throw-away Slurm is started by root only")
    # Not a folder of pytest's: its daemons are users of their own, and every pytest that starts shuts others out there.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with _up(Path(folder) / "home", nodes) as cluster:
            yield cluster


@contextmanager
def _up(home: Path, nodes: int) -> Iterator[Cluster]:
    done = subprocess.run(
        [HERE / "slurm-up.sh", home, *_free_ports(4 + nodes)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    try:
        assert done.returncode == 0, done.stderr[-3000:]
        told = dict(line.split("=", 1) for line in (home / "env").read_text(encoding="utf-8").splitlines())
        token_file = home / "token"
        token_file.write_text(told["SLURM_JWT"], encoding="utf-8")
        yield Cluster(home, told["SLURM_CONF"], told["SLURM_REST"], token_file)
    finally:
        subprocess.run([HERE / "slurm-down.sh", home], capture_output=True, timeout=300, check=False)


def accounts(cluster: Cluster) -> None:
    """dept over team-a (10 GPUs at most) and team-b; qos high (12 GPUs a user) may preempt low."""
    for command in (
        "add account dept description=d organization=o",
        "add account team-a parent=dept fairshare=60 grptres=gres/gpu=10",
        "add account team-b parent=dept fairshare=40",
        "add qos low priority=1",
        "add qos high priority=100 preempt=low maxtresperuser=gres/gpu=12",
        "add user root account=team-a,team-b qos=normal,low,high",
    ):
        cluster.run("sacctmgr", "-i", *command.split())
