"""Starts gpuledger's other processes: the dashboards' server, and for the demo the service and the agent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from gpuledger.app.serve import split_listen
from gpuledger.config import Settings

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Command:
    """An own module to run as a process, with its environment."""

    arguments: list[str]
    environment: Mapping[str, str]

    def replace_this_process(self) -> NoReturn:
        """Become the command: signals and exit status are its own."""
        os.execve(self.arguments[0], self.arguments, dict(self.environment))  # noqa: S606 our own modules


def start(command: Command, *, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command with its output in a file, in a session of its own, so that Ctrl-C reaches it only through us."""
    return subprocess.Popen(  # noqa: S603 our own modules, arguments without a shell
        command.arguments, stdout=log, stderr=log, env=command.environment, start_new_session=True
    )


def own_command(*arguments: str, **environment: str) -> Command:
    """`gpuledger` with `arguments`, and with more environment variables."""
    return _module("gpuledger.app", *arguments, **environment)


def dashboard_command(settings: Settings, listen: str) -> Command:
    """Streamlit's server with our pages, asking the service at `settings.service_url`."""
    host, port = split_listen(listen)
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",
        "client.toolbarMode": "minimal",
    }
    extra = {"GPULEDGER_SERVICE_URL": settings.service_url, "GPULEDGER_TIMEZONE": settings.timezone}
    if settings.token:
        extra["GPULEDGER_TOKEN"] = settings.token.get_secret_value()
    flags = [f"--{name}={value}" for name, value in options.items()]
    return _module("streamlit", "run", str(ROOT / "dashboards" / "app.py"), *flags, **extra)


def _module(name: str, *arguments: str, **environment: str) -> Command:
    return Command([sys.executable, "-m", name, *arguments], {**os.environ, "PYTHONPATH": str(ROOT), **environment})
