"""The fleet's exporters over HTTP: one port, one path a node, so that real collectors can scrape what never existed.

`/nodes/<node>/metrics` is the node's page at the clock's time (503 while its exporter does not answer, or after the
script has ended), `/nodes/<node>/network` node_exporter's page of its network adapters; `/hami/metrics` is HAMi's
scheduler's, `/ksm/metrics` that of kube-state-metrics, `/servers/<pod>/metrics` that of a server of models (503 while
none runs in that pod); `/` lists the pages of nodes, one a line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from gpuledger.clock import Clock
from gpuledger.errors import BadInput, ConfigError, SourceError
from gpuledger.simulate.simulation import Simulation

KUBE_STATE_PATH = "/ksm/metrics"
HAMI_PATH = "/hami/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class LiveServer:
    """Serves in threads of its own from construction until `close`; also a context manager."""

    def __init__(self, simulation: Simulation, listen: str, clock: Clock) -> None:
        self.simulation = simulation
        self.clock = clock
        self._one_at_a_time = threading.Lock()
        self._nodes = {host.name for host in simulation.fleet.hosts}
        self._server = ThreadingHTTPServer(_address(listen), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="simulated-exporters", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def node_urls(self) -> list[str]:
        """The page of every node."""
        return [f"{self.url}/nodes/{host.name}/metrics" for host in self.simulation.fleet.hosts]

    @property
    def network_urls(self) -> list[str]:
        """The page of every node's network adapters."""
        return [f"{self.url}/nodes/{host.name}/network" for host in self.simulation.fleet.hosts]

    @property
    def hami_scheduler_url(self) -> str:
        """The page of HAMi's scheduler."""
        return self.url + HAMI_PATH

    @property
    def kube_state_url(self) -> str:
        """The page of kube-state-metrics."""
        return self.url + KUBE_STATE_PATH

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """Status and body of `path`."""
        if path == "/":
            lines = [f"/nodes/{host.name}/metrics\n" for host in self.simulation.fleet.hosts]
            return HTTPStatus.OK, "".join(lines).encode()
        if path in (KUBE_STATE_PATH, HAMI_PATH):
            simulation = self.simulation
            return self._page(simulation.kube_state_page if path == KUBE_STATE_PATH else simulation.hami_scheduler_page)
        if path.startswith("/servers/") and path.endswith("/metrics"):
            return self._page(partial(self.simulation.server_page, path[len("/servers/") : -len("/metrics")]))
        node, _, what = path.removeprefix("/nodes/").rpartition("/")
        pages = {"metrics": self.simulation.node_page, "network": self.simulation.network_page}
        if not path.startswith("/nodes/") or node not in self._nodes or what not in pages:
            return HTTPStatus.NOT_FOUND, b"no such page\n"
        return self._page(partial(pages[what], node))

    def _page(self, make: Callable[[datetime], bytes]) -> tuple[HTTPStatus, bytes]:
        try:
            with self._one_at_a_time:
                return HTTPStatus.OK, make(self.clock.now())
        except (BadInput, SourceError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode()

    def wait(self) -> None:
        """Return when the server has been closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(simulation: Simulation, listen: str, clock: Clock) -> LiveServer:
    """Start serving `simulation` at `listen` ("host:port"; port 0 picks one). Raises ConfigError for another form."""
    return LiveServer(simulation, listen, clock)


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"listen: wants host:port, got {listen!r}")
    return host, int(port)


def _handler(live: LiveServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET from `live`."""

        def do_GET(self) -> None:
            status, body = live.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the parameter's name in http.server
            """Stay quiet: a scrape a second is no news."""

    return Handler
