"""Sends spooled batches to the service, oldest first, each until it is answered for.

A batch keeps its id over retries and restarts, so that the service can tell a repetition. What an answer means is
docs/contracts.md's table: committed, committed but for named rows, never (set aside), or later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import structlog
import tenacity

from collector.fetch import unreachable
from collector.spool import Batch, Spool
from gpuledger.errors import BadInput, ServiceUnavailable

_NEVER = frozenset({400, 413, 415})
_TOKEN_REFUSED = frozenset({401, 403})
_TIMEOUT_SECONDS = 30.0
_IDLE_SECONDS = 1.0
_SHOWN_REJECTIONS = 3

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ShipCounts:
    """What happened since the process started. `rejected_rows` were refused one by one, their batch kept."""

    shipped_batches: int = 0
    shipped_rows: int = 0
    rejected_rows: int = 0
    retries: int = 0


class Shipper:
    """Empties `spool` into the service at `service_url`. Runs in one thread; `stop` ends it between two tries."""

    def __init__(
        self,
        spool: Spool,
        service_url: str,
        *,
        token: str | None,
        stop: threading.Event,
        client: httpx.Client | None = None,
        longest_wait_seconds: float = 60.0,
    ) -> None:
        self._spool = spool
        self._url = service_url.rstrip("/")
        self._headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._client = client or httpx.Client()
        self._stop = stop
        self.counts = ShipCounts()
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ServiceUnavailable),
            wait=tenacity.wait_exponential_jitter(
                multiplier=min(1.0, longest_wait_seconds),
                max=longest_wait_seconds,
                jitter=min(1.0, longest_wait_seconds),
            ),
            stop=tenacity.stop_when_event_set(stop),
            sleep=tenacity.sleep_using_event(stop),
            before_sleep=self._note_retry,
            reraise=True,
        )

    def run(self) -> None:
        """Ship until stopped."""
        while not self._stop.is_set():
            try:
                if not self.ship_one(self._retrying):
                    self._stop.wait(_IDLE_SECONDS)
            except ServiceUnavailable:
                return  # stopped while the service was away; the batch stays
            except Exception:  # a thread that dies in silence would fill the spool unseen
                _log.exception("shipping failed")
                self._stop.wait(_IDLE_SECONDS)

    def drain(self) -> None:
        """Send what is there, each batch tried once; stops at the first that cannot be sent now."""
        try:
            while self.ship_one(lambda send, batch, content: send(batch, content)):
                pass
        except ServiceUnavailable as error:
            _log.warning("batches stay in the spool", count=self._spool.batch_count, reason=str(error))

    def ship_one(self, attempt: Callable[[Callable[[Batch, bytes], int], Batch, bytes], int]) -> bool:
        """Send the oldest batch, tried as `attempt` says. False when there is none. Raises ServiceUnavailable."""
        found = self._spool.oldest()
        if found is None:
            return False
        batch, content = found
        try:
            rejected = attempt(self._send, batch, content)
        except BadInput as error:
            _log.error("the service refuses a batch", record=batch.record, rows=batch.rows, reason=error.reason)
            self._spool.set_aside(batch)
            return True
        self.counts.shipped_batches += 1
        self.counts.shipped_rows += batch.rows - rejected
        self.counts.rejected_rows += rejected
        self._spool.done(batch)
        return True

    def _send(self, batch: Batch, content: bytes) -> int:
        """How many rows the service refused for good. Raises ServiceUnavailable for "later", BadInput for "never"."""
        try:
            answer = self._client.post(
                f"{self._url}/v1/ingest/{batch.record}",
                content=content,
                headers=self._headers | {"X-Batch-Id": batch.batch_id},
                timeout=_TIMEOUT_SECONDS,
            )
        except httpx.HTTPError as error:
            raise ServiceUnavailable(f"not reachable: {unreachable(error)}") from error
        if answer.status_code in _NEVER:
            raise BadInput(batch.record, f"HTTP {answer.status_code}: {answer.text[:200]}")
        if answer.status_code in _TOKEN_REFUSED:
            raise ServiceUnavailable(f"HTTP {answer.status_code}: {self._token_trouble()}")
        if answer.status_code not in (200, 422):
            raise ServiceUnavailable(f"HTTP {answer.status_code}")
        body = _json(answer)
        if body.get("batch_id") != batch.batch_id:
            if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
                raise BadInput(batch.record, f"HTTP 422: {answer.text[:200]}")
            # Something between us and the service (a proxy's login page) said 200 without having the batch.
            raise ServiceUnavailable("HTTP 200, but not for this batch")
        if answer.status_code == httpx.codes.OK:
            return 0
        listed, accepted = body.get("rejected") or [], body.get("accepted")
        # The list may be cut short; the count of accepted rows is not.
        rejected = batch.rows - accepted if isinstance(accepted, int) else len(listed)
        _log.warning("rows rejected", record=batch.record, count=rejected, first=listed[:_SHOWN_REJECTIONS])
        return rejected

    def _token_trouble(self) -> str:
        said = "the service does not take this agent's token" if "Authorization" in self._headers else "no token is set"
        return f"{said}; it is `token` in the settings, or GPULEDGER_COLLECTOR_TOKEN"

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        self.counts.retries += 1
        error = state.outcome.exception() if state.outcome is not None else None
        _log.warning("service not available, batch kept", attempt=state.attempt_number, reason=str(error))


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
