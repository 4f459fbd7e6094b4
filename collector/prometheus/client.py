"""Asks the query API over HTTP: paced, patient with a busy server, silent about credentials."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from collector.fetch import unreachable
from collector.prometheus.answer import Answer, parse, parse_document
from collector.prometheus.plan import MAX_POINTS
from gpuledger.clock import Clock
from gpuledger.errors import ConfigError, SourceError, SourceTimeout

MAX_ANSWER_BYTES = 512 * 2**20
LONGEST_PAUSE_SECONDS = 60.0
_EXTERNAL_LABELS = re.compile(r"^global:\n(?:  .*\n)*?  external_labels:\n((?:    .*\n?)+)", re.MULTILINE)
"""As Prometheus writes its configuration: two blanks a level."""
_AGAIN = frozenset({429, 500, 502, 503, 504})


class _TryAgain(SourceError):
    """The server may answer the same request later. `after_seconds` is what it asked for."""

    def __init__(self, message: str, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class _Turns:
    """Lets requests of all threads through one after the other, `per_second` of them at most."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._gap = timedelta(seconds=1 / per_second)
        self._clock = clock
        self._next_at = clock.now()
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = self._clock.now()
            turn = max(now, self._next_at)
            self._next_at = turn + self._gap
        if turn > now:
            self._clock.sleep((turn - now).total_seconds())


def public_url(url: str) -> str:
    """`url` without user, password and query: what may be shown, stored and compared."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    is_usual = parts.port in {None, {"http": 80, "https": 443}.get(parts.scheme)}
    netloc = host if is_usual else f"{host}:{parts.port}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))


class QueryClient:
    """One server. Safe for threads. `headers` and `auth` are sent and never shown; `params` go with every request.

    `last_seconds` is how long the newest answer took, from when its turn came to its last byte.
    """

    def __init__(  # noqa: PLR0913 each is one thing that an operator sets
        self,
        url: str,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        requests_per_second: float = 20.0,
        timeout_seconds: float = 120.0,
        attempts: int = 5,
        ca_file: str | None = None,
    ) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigError("url: must be the http:// or https:// address of a metrics server")
        self.name = public_url(url)
        self.last_seconds = 0.0
        self._base = url.rstrip("/")
        self._params = {"nocache": "1", **(params or {})}  # VictoriaMetrics widens a range that it may cache
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        self._clock = clock
        self._turns = _Turns(requests_per_second, clock)
        try:
            verify: Any = httpx.create_ssl_context(verify=ca_file) if ca_file else True
            self._http = httpx.Client(headers=dict(headers or {}), auth=auth, timeout=timeout_seconds, verify=verify)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"prometheus: {type(error).__name__} in the certificate file or a header") from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def query_range(self, query: str, first_ms: int, last_ms: int, step_ms: int) -> Answer:
        """`query` at each step from `first_ms` to `last_ms`. Raises SourceError, SourceTimeout."""
        if (last_ms - first_ms) // step_ms + 1 > MAX_POINTS:
            raise ValueError("more points than a server answers")
        window = {"start": _seconds(first_ms), "end": _seconds(last_ms), "step": _seconds(step_ms)}
        return parse(self._get("query_range", {"query": query, **window}))

    def query(self, query: str, at_ms: int) -> Answer:
        """`query` at one instant. Raises SourceError, SourceTimeout."""
        return parse(self._get("query", {"query": query, "time": _seconds(at_ms)}))

    def names(self, match: str, first_ms: int, last_ms: int) -> Sequence[str]:
        """The metrics of the series that `match` selects, between two instants. Raises SourceError, SourceTimeout."""
        window = {"match[]": match, "start": _seconds(first_ms), "end": _seconds(last_ms)}
        found = parse_document(self._get("label/__name__/values", window)).get("data")
        if not isinstance(found, list):
            raise SourceError("the list of names is no list")
        return [str(name) for name in found]

    def external_labels(self) -> Mapping[str, str]:
        """The labels that the server adds to what it sends to others, and not to its answers; empty where unknown."""
        try:
            said = parse_document(self._once(f"{self._base}/api/v1/status/config", self._params)).get("data")
        except SourceError:
            return {}  # only Prometheus itself shows its configuration
        text = str(said.get("yaml", "")) if isinstance(said, Mapping) else ""
        block = _EXTERNAL_LABELS.search(text)
        pairs = (line.strip().partition(": ") for line in (block[1] if block else "").splitlines())
        return {name.strip("'\""): value.strip().strip("'\"") for name, _, value in pairs if value}

    def _get(self, path: str, params: Mapping[str, str]) -> bytes:
        retrying = Retrying(
            stop=stop_after_attempt(self._attempts),
            wait=_pause,
            retry=retry_if_exception_type((_TryAgain, SourceTimeout)),
            sleep=self._clock.sleep,
            reraise=True,
        )
        return retrying(self._once, f"{self._base}/api/v1/{path}", {**params, **self._params})

    def _once(self, url: str, params: Mapping[str, str]) -> bytes:
        self._turns.wait()
        begun = time.monotonic()
        deadline = begun + 2 * self._timeout_seconds
        body = bytearray()
        try:
            with self._http.stream("GET", url, params=params) as answer:
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise SourceError(f"{self.name}: an answer of more than {MAX_ANSWER_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise SourceTimeout(f"{self.name}: no whole answer in {2 * self._timeout_seconds:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._failure(error) from error
        self.last_seconds = time.monotonic() - begun
        if answer.status_code != httpx.codes.OK:
            self._refuse(answer, bytes(body))
        return bytes(body)

    def _failure(self, error: Exception) -> SourceError:
        """What it means that no answer came: only what may get better is tried again."""
        if isinstance(error, httpx.TimeoutException):
            return SourceTimeout(f"{self.name}: no answer in {self._timeout_seconds:g} s")
        is_ours = isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL)
        if isinstance(error, httpx.TransportError) and not is_ours:
            return _TryAgain(f"{self.name}: not reachable: {unreachable(error)}")
        return SourceError(f"{self.name}: {'not asked: ' if is_ours else ''}{unreachable(error)}")

    def _refuse(self, answer: httpx.Response, body: bytes) -> None:
        try:
            parse_document(body)
            reason = ""
        except SourceError as error:
            reason = f" {error}" if "not of the query API" not in str(error) and "no JSON" not in str(error) else ""
        message = f"{self.name}: HTTP {answer.status_code}{reason}"
        if answer.status_code in _AGAIN:
            asked = answer.headers.get("retry-after", "")
            raise _TryAgain(message, float(asked) if asked.isdigit() else 0.0)
        raise SourceError(message)


_backoff = wait_random_exponential(multiplier=0.5, max=LONGEST_PAUSE_SECONDS)


def _pause(state: RetryCallState) -> float:
    """What the server asked for, else twice as long as before."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.after_seconds if isinstance(error, _TryAgain) else 0.0
    return max(min(asked, LONGEST_PAUSE_SECONDS), float(_backoff(state)))


def _seconds(milliseconds: int) -> str:
    return str(milliseconds // 1000) if milliseconds % 1000 == 0 else f"{milliseconds / 1000:.3f}"
