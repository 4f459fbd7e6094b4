"""Runs the server in a thread, on a free port of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import uvicorn

from schedulers.fakes.apiserver.access import Access
from schedulers.fakes.apiserver.app import Faults, Handler, application
from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.store import Store

_SHUTDOWN_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server: where it is, what it holds, and what it was asked."""

    url: str
    store: Store
    _handler: Handler

    @property
    def asked(self) -> list[Asked]:
        """All requests so far, in order."""
        return self._handler.asked


@contextmanager
def serve(
    store: Store,
    *,
    access: Access | None = None,
    faults: Faults | None = None,
    bookmark_seconds: float = 60,
    port: int = 0,
) -> Iterator[Serving]:
    """Serve `store` on 127.0.0.1 until the block ends; watches end with it.

    Without `access` everybody may do everything. `faults` is asked about each request before it is answered.
    `bookmark_seconds` is how often a watch tells of the version; `port` 0 takes a free one.
    """
    handler = Handler(store=store, access=access, faults=faults, bookmark_seconds=bookmark_seconds)
    with _listener(port) as listener:
        config = uvicorn.Config(
            application(handler),
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        server = uvicorn.Server(config)
        loop = asyncio.new_event_loop()
        thread = Thread(target=_run, args=(loop, server, listener), name="fake-apiserver", daemon=True)
        thread.start()
        try:
            yield Serving(f"http://127.0.0.1:{listener.getsockname()[1]}", store, handler)
        finally:
            loop.call_soon_threadsafe(handler.closing.set)
            server.should_exit = True
            thread.join()
            loop.close()


def _listener(port: int) -> socket.socket:
    # Named as TCP, because the event loop sends small packets at once only on sockets that say so.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _run(loop: asyncio.AbstractEventLoop, server: uvicorn.Server, listener: socket.socket) -> None:
    asyncio.set_event_loop(loop)
    loop.run_until_complete(server.serve(sockets=[listener]))
