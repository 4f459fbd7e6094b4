"""Starts gpuledger's other processes: the dashboards' server, and for the demo the service and the agent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from gpuledger.app.serve import split_listen
from gpuledger.config import Settings

ROOT = Path(__file__).resolve().parent.parent.parent


def start(arguments: list[str], *, log: IO[bytes] | None = None, extra: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `python -m ...` in a process group of its own, so that Ctrl-C reaches it only through us."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(extra or {})}
    return subprocess.Popen(  # noqa: S603 our own modules, arguments without a shell
        [sys.executable, *arguments], stdout=log, stderr=log, env=environment, start_new_session=log is not None
    )


def dashboard_process(settings: Settings, listen: str, *, log: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
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
    flags = [f"--{name}={value}" for name, value in options.items()]
    token = settings.token.get_secret_value() if settings.token else None
    extra = {"GPULEDGER_SERVICE_URL": settings.service_url, "GPULEDGER_TIMEZONE": settings.timezone}
    if token:
        extra["GPULEDGER_TOKEN"] = token
    return start(["-m", "streamlit", "run", str(ROOT / "dashboards" / "app.py"), *flags], log=log, extra=extra)
