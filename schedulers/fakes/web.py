"""A small web server on loopback for fakes: one function from requests to answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `query` holds every value of a parameter; `headers` have names in lower case."""

    verb: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any

    def one(self, name: str, default: str) -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [default])[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back: `body` as JSON unless it is a text."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Hung(Exception):
    """Raised by an answering function: close the connection without a word."""


def _handler(answering: Callable[[Request], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            told = urlsplit(self.path)
            held = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(
                verb=self.command,
                path=unquote(told.path),
                query=parse_qs(told.query, keep_blank_values=True),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=json.loads(held) if held else None,
            )
            try:
                answer = answering(request)
            except Hung:
                self.close_connection = True
                return
            is_text = isinstance(answer.body, str)
            sent = (answer.body if is_text else json.dumps(answer.body)).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/html" if is_text else "application/json")
            self.send_header("Content-Length", str(len(sent)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815 names that the base class calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Say nothing."""

    return Handler


@contextmanager
def serving(answering: Callable[[Request], Answer]) -> Iterator[str]:
    """Answers requests with `answering` until the end; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answering))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
