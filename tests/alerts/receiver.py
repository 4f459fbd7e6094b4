"""A real HTTP server on loopback that answers as told and keeps what it received."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CANARY = "TOKEN-CANARY-1"


@dataclass
class Receiver:
    """`answers` are statuses to give in turn (the last one for ever); -1 waits for `hold` and gives none."""

    answers: list[int] = field(default_factory=lambda: [200])
    hold: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/{CANARY}?access_token={CANARY}"


@contextmanager
def listening(receiver: Receiver) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, content))
            status = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
            if status == -1:
                receiver.hold.wait(10)
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", f"http://127.0.0.1:{receiver.port}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hold.set()
        time.sleep(0.01)
        server.shutdown()
        server.server_close()
        thread.join()
