"""Schedulers that answer JSON over HTTP: options, one client whose errors name the place and no secret, one moment."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field

from gpuledger.clock import Clock
from gpuledger.errors import ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from schedulers.options import Address

MAX_BYTES = 512 * 1024 * 1024
"""An answer beyond this is no scheduler's."""
TRIES = 4
PAUSE_SECONDS = 0.5

Query = Mapping[str, str | int | list[str]]
Taken = TypeVar("Taken")


class RestOptions(BaseModel):
    """Options of every adapter that reads a REST interface."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Address = Field(description="Address of the interface, without a path of its version.")
    token_file: Path | None = Field(None, description="File that holds a bearer token; it may change at any time.")
    ca_file: Path | None = Field(None, description="Certificates that the server's must be signed by (PEM).")
    timeout_seconds: float = Field(20.0, gt=0, le=600, description="How long one answer may take.")


def secret(path: Path, adapter: str) -> str:
    """What the file of a secret holds, without the line's end. Raises ConfigError naming the file."""
    try:
        told = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"scheduler {adapter}: {path}: {type(error).__name__}") from None
    if not told:
        raise ConfigError(f"scheduler {adapter}: {path}: is empty")
    return told


def token_in(path: Path, adapter: str) -> str:
    """The token in a file, fit for a header. Raises ConfigError: the HTTP client's own would tell the token."""
    told = secret(path, adapter)
    if not (told.isascii() and told.isprintable()):
        raise ConfigError(f"scheduler {adapter}: {path}: holds what no header may have")
    return told


def told_of(error: httpx.HTTPError) -> str:
    """What went wrong; in the system's words where these are about the connection and not about what was sent."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, httpx.ConnectError) else kind


class Rest:
    """Reads JSON below `options.url`. `headers` and `query` are sent with every request and never told.

    A redirect is followed (a standby of YARN names the active one); to another host the token is not sent.
    """

    def __init__(self, options: RestOptions, adapter: str, *, query: Query | None = None) -> None:
        self._options = options
        self._adapter = adapter
        self._query = dict(query or {})
        self._http: httpx.Client | None = None
        self.auth: httpx.Auth | None = None
        self.bearer: str | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Requests may be sent in here, over connections that are kept until the end.

        Raises ConfigError where the certificates cannot be read.
        """
        try:
            verify = ssl.create_default_context(cafile=self._options.ca_file)
        except OSError as error:
            raise ConfigError(f"scheduler {self._adapter}: {self._options.ca_file}: {type(error).__name__}") from None
        timeout = self._options.timeout_seconds
        with httpx.Client(
            timeout=timeout, verify=verify, follow_redirects=True, params=self._query, trust_env=False
        ) as self._http:
            yield

    def where(self, path: str) -> str:
        """The address of `path`, as errors name it."""
        return f"{self._options.url}{path}"

    def get(self, path: str, query: Query | None = None) -> Any:
        """The JSON at `path`. Raises SchedulerUnreachable (also for what is no JSON) or NotPermitted."""
        answer = self.send("GET", path, query=query)
        if answer.status_code in (401, 403):
            raise NotPermitted(f"GET {self.where(path)}: {answer.status_code} {answer.reason_phrase}")
        return self.json(answer, path)

    def find(self, path: str, query: Query | None = None) -> Any | None:
        """As `get`; None where there is no such thing (404)."""
        answer = self.send("GET", path, query=query)
        if answer.status_code == 404:
            return None
        if answer.status_code in (401, 403):
            raise NotPermitted(f"GET {self.where(path)}: {answer.status_code} {answer.reason_phrase}")
        return self.json(answer, path)

    def send(self, verb: str, path: str, *, query: Query | None = None, body: Any = None) -> httpx.Response:
        """The answer, whatever its status. Raises SchedulerUnreachable."""
        if self._http is None:
            raise RuntimeError("requests are sent inside connected()")
        try:
            answer = self._http.request(
                verb, self.where(path), params=query, json=body, headers=self._headers(), auth=self.auth
            )
        except httpx.TimeoutException:
            raise SchedulerUnreachable(
                f"{verb} {self.where(path)}: no answer in {self._options.timeout_seconds:g} s"
            ) from None
        except httpx.HTTPError as error:
            raise SchedulerUnreachable(f"{verb} {self.where(path)}: {told_of(error)}") from None
        if len(answer.content) > MAX_BYTES:
            raise SchedulerUnreachable(f"{verb} {self.where(path)}: answers more than {MAX_BYTES} bytes")
        return answer

    def json(self, answer: httpx.Response, path: str) -> Any:
        """What a good answer holds. Raises SchedulerUnreachable for any other."""
        if answer.status_code >= 400:
            raise SchedulerUnreachable(f"{self.where(path)}: {answer.status_code} {answer.reason_phrase}")
        try:
            return answer.json()
        except ValueError:
            raise SchedulerUnreachable(f"{self.where(path)}: answers no JSON") from None

    def _headers(self) -> Mapping[str, str]:
        told = {"Accept": "application/json"}
        token = self._options.token_file and token_in(self._options.token_file, self._adapter)
        if token := token or self.bearer:
            told["Authorization"] = f"Bearer {token}"
        return told


def steady(
    read: Callable[[], Taken],
    doubt: Callable[[Taken], str],
    where: str,
    clock: Clock,
    *,
    pause_seconds: float = PAUSE_SECONDS,
) -> Taken:
    """What `read` gives, read again as long as `doubt` says why it is not of one moment ("": it is).

    `pause_seconds` lie between two tries. Raises InconsistentSnapshot naming `where` and the doubt after a few.
    """
    told = ""
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(pause_seconds)
        taken = read()
        told = doubt(taken)
        if not told:
            return taken
    raise InconsistentSnapshot(f"{where}: {told}, {TRIES} times")
