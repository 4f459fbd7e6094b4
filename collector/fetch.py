"""Fetches one page over HTTP, bounded in bytes and in time."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import time
from urllib.parse import urlsplit

import httpx

from gpuledger.errors import SourceError, SourceTimeout

MAX_PAGE_BYTES = 96 * 2**20
_ACCEPT = "text/plain;version=0.0.4"


def target_name(kind: str, url: str) -> str:
    """What a source that reads `url` is called: its kind, host, port and path, never its user or password.

    A query may hold a secret too: a mark that is made from it tells pages apart that differ in nothing else.
    """
    parts = urlsplit(url)
    mark = f"?{hashlib.blake2b(parts.query.encode(), digest_size=4).hexdigest()}" if parts.query else ""
    return f"{kind}:{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}{parts.path}{mark}"


def unreachable(error: BaseException) -> str:
    """Why there was no answer, in words. Never the error's own text: it may hold the address or a header."""
    causes: list[BaseException] = [error]
    while (further := causes[-1].__cause__ or causes[-1].__context__) is not None and further not in causes:
        causes.append(further)
    for cause in reversed(causes):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "no TLS connection came about"
        if isinstance(cause, socket.gaierror):
            return "name not known"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
    return next((text for kind, text in _REASONS if isinstance(error, kind)), "the connection failed")


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.TimeoutException, "timed out"),
    (httpx.LocalProtocolError, "a header cannot be sent as it is given"),
    (httpx.RemoteProtocolError, "what listens there gave no HTTP answer"),
    (httpx.ProxyError, "the proxy refused"),
    (httpx.UnsupportedProtocol, "the address is not http:// or https://"),
    (httpx.InvalidURL, "the address is none"),
    (httpx.TooManyRedirects, "it redirects without an end"),
    (httpx.DecodingError, "the answer cannot be unpacked"),
)


class Fetcher:
    """Fetches the page of one target.

    `timeout_seconds` bounds connecting, each wait for data and, checked between chunks, the whole page, so that a
    read ends within twice that time. `client` may be shared by many.
    """

    def __init__(self, url: str, client: httpx.Client, *, timeout_seconds: float) -> None:
        self._url = url
        self._client = client
        self._timeout_seconds = timeout_seconds

    def page(self) -> bytes:
        """The page. Raises SourceError without the address, which may carry a password."""
        deadline = time.monotonic() + self._timeout_seconds
        # No compression: a page is bounded in bytes, and small bodies can unpack to large ones.
        headers = {"Accept": _ACCEPT, "Accept-Encoding": "identity"}
        page = bytearray()
        try:
            with self._client.stream("GET", self._url, headers=headers, timeout=self._timeout_seconds) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise SourceError(f"HTTP {answer.status_code}")
                for chunk in answer.iter_raw():
                    page += chunk
                    if len(page) > MAX_PAGE_BYTES:
                        raise SourceError(f"page larger than {MAX_PAGE_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise SourceTimeout(f"no whole page within {self._timeout_seconds:g} s")
        except httpx.TimeoutException as error:
            raise SourceTimeout(f"no answer within {self._timeout_seconds:g} s") from error
        except httpx.HTTPError as error:
            raise SourceError(f"not reachable: {unreachable(error)}") from error
        return bytes(page)
