"""Runs the service: one process that owns the warehouse file, until it is told to stop."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import uvicorn

from gpuledger.app.client import reach, sidecar
from gpuledger.app.http import create_app
from gpuledger.app.jobs import Jobs
from gpuledger.app.schedulers.running import Schedulers
from gpuledger.app.service import Service
from gpuledger.config import Settings
from gpuledger.errors import ConfigError, GpuledgerError, WarehouseBusy
from gpuledger.registry import resolve

log = structlog.get_logger("gpuledger.serve")


def split_listen(listen: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT". Raises ConfigError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"listen: {listen!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _check_exposure(host: str, settings: Settings) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback and settings.token is None:
        raise ConfigError(f"listen: {host} can be reached from elsewhere, so a token must be set")


@contextmanager
def _announced(settings: Settings, host: str, port: int) -> Iterator[None]:
    """Say beside the warehouse file how to reach the service, for as long as it runs."""
    place = sidecar(settings.warehouse)
    reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 a comparison, not a bind
    with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as draft:
        json.dump({"url": f"http://{reachable}:{port}", "pid": os.getpid()}, draft)
    Path(draft.name).replace(place)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


def _run(server: uvicorn.Server) -> None:
    try:
        server.run()
    except SystemExit:
        if not server.started:  # uvicorn has said why, and ends with a status of its own
            raise GpuledgerError(f"cannot listen on {server.config.host}:{server.config.port}") from None
        raise


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C, then end jobs, checkpoint, and let go of the file."""
    host, port = split_listen(settings.listen)
    _check_exposure(host, settings)
    resolve("schedulers", settings.scheduler)  # a slip in its name shows now, not at the first recommendation
    service = reach(settings, lambda: Service.open(settings))
    if isinstance(service, str):
        raise WarehouseBusy(f"{settings.warehouse} is served already, at {service}")
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn ends in good order, then raises the signal once more
        signal.signal(number, lambda *_: sys.exit(0))
    jobs = Jobs(service)
    try:
        schedulers = Schedulers.of(service)
    except ConfigError:
        service.close()
        raise
    config = uvicorn.Config(
        create_app(service), host=host, port=port, log_level="warning", timeout_graceful_shutdown=10
    )
    try:
        with _announced(settings, host, port):
            jobs.start()
            schedulers.start()
            log.info("serving", url=f"http://{host}:{port}", warehouse=str(settings.warehouse))
            _run(uvicorn.Server(config))
    finally:
        schedulers.stop()
        jobs.stop()
        service.close()
