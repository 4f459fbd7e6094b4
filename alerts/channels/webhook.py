"""A generic JSON webhook: one POST a message, signed, never redirected. Its address is a credential."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from alerts import signature
from gpuledger.clock import Clock, SystemClock
from gpuledger.errors import ConfigError, DeliveryError
from gpuledger.ports import Delivery, Message

SCHEMA = "gpuledger.alert/1"
_RETRYABLE = (408, 425, 429)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def body(message: Message) -> bytes:
    """The message as the JSON object that is posted; `schema` names its version, `key` identifies it when repeated."""
    content = {
        "schema": SCHEMA,
        "key": message.key,
        "kind": message.kind,
        "severity": message.severity,
        "title": message.title,
        "text": message.text,
        "created_at": message.created_at.isoformat(),
        "fields": dict(message.fields),
    }
    return json.dumps(content, ensure_ascii=False, sort_keys=True, default=_plain).encode()


class WebhookChannel:
    """Posts messages to one address.

    2xx is accepted. A timeout, a broken connection, 408, 425, 429 and 5xx may be tried again; every other answer, a
    redirect included, is final. Proxies of the environment are not used. Logs and errors name the host, nothing else.
    """

    name = "webhook"

    def __init__(
        self,
        url: str | SecretStr,
        secret: str | SecretStr | None = None,
        *,
        timeout_seconds: float = 10.0,
        clock: Clock | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url if isinstance(url, SecretStr) else SecretStr(url)
        self._secret = SecretStr(secret) if isinstance(secret, str) else secret
        self.host = _host(self._url)
        self._timeouts = httpx.Timeout(timeout_seconds).as_dict()
        self._clock = clock or SystemClock()
        # The transport itself, not httpx.Client: that one logs whole addresses and reads proxies from the environment.
        self._transport = transport or httpx.HTTPTransport()

    def __repr__(self) -> str:
        return f"WebhookChannel(host={self.host!r})"

    def send(self, message: Message) -> Delivery:
        """Post once. Raises DeliveryError; `retryable` says whether trying again can help."""
        content = body(message)
        status, problem = self._post(content, self._headers(message, content))
        if status is None:
            raise DeliveryError(f"{self.host} {problem}", retryable=True)
        if 200 <= status < 300:
            return Delivery(channel=self.name, status="delivered", detail=f"{self.host}: HTTP {status}")
        is_retryable = status in _RETRYABLE or status >= 500
        raise DeliveryError(f"{self.host} answered HTTP {status}", retryable=is_retryable)

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def _headers(self, message: Message, content: bytes) -> dict[str, str]:
        headers = {
            "content-type": "application/json; charset=utf-8",
            "user-agent": "gpuledger",
            "idempotency-key": message.key.encode("ascii", "backslashreplace").decode(),
        }
        if self._secret is not None:
            headers[signature.HEADER] = signature.sign(self._secret.get_secret_value(), content, self._clock.now())
        return headers

    def _post(self, content: bytes, headers: Mapping[str, str]) -> tuple[int | None, str]:
        """The status, or None and what went wrong. Raises nothing: an error's frames would hold the address."""
        try:
            request = httpx.Request("POST", self._url.get_secret_value(), content=content, headers=headers)
            request.extensions["timeout"] = self._timeouts
            response = self._transport.handle_request(request)
            response.close()
        except httpx.TimeoutException:
            return None, "did not answer in time"
        except httpx.TransportError as error:
            return None, f"could not be reached ({type(error).__name__})"
        return response.status_code, ""


def _host(url: SecretStr) -> str:
    try:
        parts = urlsplit(url.get_secret_value())
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigError("webhook: the address must be http:// or https:// and name a host")
    return host
