"""How all but the service itself reach the warehouse: over HTTP, or through the same application in this process.

The CLI and the dashboards use one client, so that a page, a script and the API show the same number by construction.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pyarrow as pa

from gpuledger.app.encoding import ARROW_STREAM, plain, to_arrow_stream, to_json
from gpuledger.clock import SystemClock
from gpuledger.config import Settings
from gpuledger.errors import (
    BadInput,
    ConfigError,
    GpuledgerError,
    QueryRefused,
    RuleError,
    ServiceUnavailable,
    WarehouseBusy,
)

PATIENCE_SECONDS = 30.0
"""How long a command waits for another one that holds the warehouse file."""

Opened = TypeVar("Opened")


class InProcessTransport(httpx.BaseTransport):
    """Hands requests to an ASGI application in this process, for a warehouse that no service holds."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Run the application to its answer."""

        async def answer() -> httpx.Response:
            outgoing = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            incoming = await self._transport.handle_async_request(outgoing)
            return httpx.Response(incoming.status_code, headers=incoming.headers, content=await incoming.aread())

        return asyncio.run(answer())


class Client:
    """Talks to the API. Every method raises the error that the service raised."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """The rows of a named query."""
        response = self._send("GET", f"/v1/queries/{name}", parameters, headers={"accept": ARROW_STREAM})
        with pa.ipc.open_stream(response.content) as reader:
            return reader.read_all()

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON answer to a GET."""
        return self._send("GET", path, parameters).json()

    def post(self, path: str, **parameters: Any) -> Any:
        """The answer to a POST: JSON, or text where the service gives HTML."""
        response = self._send("POST", path, parameters)
        return response.json() if "json" in response.headers.get("content-type", "") else response.text

    def send(self, path: str, body: Any) -> Any:
        """The JSON answer to a POST of `body`: a text as it is, anything else as JSON."""
        content = body if isinstance(body, str) else to_json(body)
        response = self._answer("POST", path, content=content.encode())
        _raise_for(response)
        return response.json()

    def ingest(self, record: str, table: pa.Table, batch_id: str) -> dict[str, Any]:
        """Send one batch. The answer lists refused rows; the others are on disk."""
        headers = {"x-batch-id": batch_id}
        response = self._answer("POST", f"/v1/ingest/{record}", content=to_arrow_stream(table), headers=headers)
        if response.status_code != 422:
            _raise_for(response)
        answer: dict[str, Any] = response.json()
        return answer

    def _send(
        self, method: str, path: str, parameters: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        given = {key.rstrip("_"): plain(value) for key, value in parameters.items() if value is not None}
        response = self._answer(method, path, params=given, headers=headers)
        _raise_for(response)
        return response

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise ServiceUnavailable(f"the service at {self._http.base_url} does not answer: {error}") from error


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        problem = response.json()
        field, reason = str(problem["field"]), str(problem["reason"])
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ServiceUnavailable(f"HTTP {response.status_code}: {response.text[:200]}") from None
    if response.status_code == 404:
        raise QueryRefused(reason)
    if response.status_code == 401:
        raise ConfigError(f"token: {reason}")
    if response.status_code >= 500:
        raise RuleError(reason) if response.status_code == 500 else ServiceUnavailable(reason)
    raise BadInput(field, reason) if field != "request" else GpuledgerError(reason)


def sidecar(warehouse: Path) -> Path:
    """Where the service that holds `warehouse` says how to reach it."""
    return warehouse.with_suffix(".service.json")


def connect_url(url: str, settings: Settings) -> Client:
    """A client of the service at `url`."""
    headers = {"authorization": f"Bearer {settings.token.get_secret_value()}"} if settings.token else {}
    return Client(httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(600, connect=5)))


def connect(service_url: str, settings: Settings | None = None) -> Client:
    """A client of a running service: what the dashboards use."""
    return connect_url(service_url, settings or Settings())


def _serving(warehouse: Path) -> str | None:
    """The address of the service that holds `warehouse`; None where none answers (it may have been killed)."""
    try:
        url = str(json.loads(sidecar(warehouse).read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError):
        return None
    try:
        httpx.get(f"{url}/healthz", timeout=5, trust_env=False)
    except httpx.HTTPError:
        return None
    return url


def reach(
    settings: Settings, open_file: Callable[[], Opened], patience_seconds: float = PATIENCE_SECONDS
) -> Opened | str:
    """The file, opened here, or the address of the service that holds it."""
    clock = SystemClock()
    give_up_at = clock.now() + timedelta(seconds=patience_seconds)
    while True:
        try:
            return open_file()
        except WarehouseBusy as busy:
            if url := _serving(settings.warehouse):
                return url
            if clock.now() > give_up_at:
                raise ServiceUnavailable(f"{busy}; no service says that it serves it") from busy
            clock.sleep(0.1)


@contextlib.contextmanager
def open_warehouse(settings: Settings, *, must_exist: bool = False) -> Iterator[Client]:
    """A client of the warehouse file: in this process, or through the service that holds it.

    With `must_exist`, ConfigError where there is no such file: a slip in a path is not an empty fleet.
    Another command that holds the file is waited for. Raises ServiceUnavailable when it takes too long.
    """
    from gpuledger.app.http import create_app  # noqa: PLC0415 a client of a far service needs no server
    from gpuledger.app.service import Service  # noqa: PLC0415

    if must_exist and not settings.warehouse.is_file():
        raise ConfigError(f"warehouse: no file {settings.warehouse}")
    opened = reach(settings, lambda: Service.open(settings))
    if isinstance(opened, str):
        client = connect_url(opened, settings)
        try:
            yield client
        finally:
            client.close()
        return
    service = opened
    headers = {"authorization": f"Bearer {settings.token.get_secret_value()}"} if settings.token else {}
    http = httpx.Client(transport=InProcessTransport(create_app(service)), base_url="http://warehouse", headers=headers)
    try:
        yield Client(http)
    finally:
        http.close()
        service.close()
