"""From the spool to a real HTTP server: what each answer means, and that nothing is lost while it is away."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
import structlog

from collector.shipper import Shipper
from collector.spool import Spool
from gpuledger.errors import ServiceUnavailable
from gpuledger.model import SourceRead, to_table


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool", 10**7)
    yield spool
    spool.close()


@pytest.fixture
def put(spool, now):
    def put(rows: int) -> None:
        reads = [
            SourceRead(ts=now, node=f"n{n}", source="s", scope="device", ok=True, interval_seconds=15)
            for n in range(rows)
        ]
        spool.put("source_read", to_table("source_read", reads))

    return put


class OneTry(Shipper):
    def once(self) -> bool:
        """Ship one batch, tried once."""
        return self.ship_one(lambda send, batch, content: send(batch, content))


@pytest.fixture
def shipper(spool, service):
    def make(**options) -> OneTry:
        stop = options.pop("stop", threading.Event())
        options = {"token": None, "longest_wait_seconds": 0.05} | options
        url = options.pop("url", service.url)
        return OneTry(spool, url, stop=stop, client=client, **options)

    with httpx.Client(trust_env=False) as client:
        yield make


def test_a_batch_is_one_arrow_stream_with_its_id(shipper, put, service, spool):
    put(3)
    batch_id = spool.oldest()[0].batch_id
    ship = shipper(token="secret-1")
    assert ship.once()
    assert not ship.once()
    ((path, headers),) = service.posts
    assert path == "/v1/ingest/source_read"
    assert (headers["X-Batch-Id"], headers["Authorization"]) == (batch_id, "Bearer secret-1")
    assert headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    assert service.tables[batch_id][1].column("node").to_pylist() == ["n0", "n1", "n2"]
    assert (spool.batch_count, ship.counts.shipped_batches, ship.counts.shipped_rows) == (0, 1, 3)


def test_rejected_rows_are_counted_and_not_sent_again(shipper, put, service, spool):
    put(5)

    def some(batch_id: str, record: str) -> tuple[int, str]:
        rejected = [{"row": 1, "field": "ts", "reason": "in the future"}]
        return 422, json.dumps({"batch_id": batch_id, "accepted": 3, "rejected": rejected})

    service.answer = some
    ship = shipper()
    with structlog.testing.capture_logs() as logs:
        assert ship.once()
    assert (ship.counts.shipped_rows, ship.counts.rejected_rows, spool.batch_count) == (3, 2, 0)
    assert logs[0]["count"] == 2


@pytest.mark.parametrize("status", [400, 413, 415])
def test_what_will_never_be_taken_is_set_aside(shipper, put, service, spool, status):
    put(1)
    put(2)
    first = spool.oldest()[0].batch_id
    service.answer = lambda batch_id, _: (status, '{"field": "x"}') if batch_id == first else None
    ship = shipper()
    assert ship.once()
    assert ship.once()
    assert (spool.counts.set_aside_batches, ship.counts.shipped_rows, spool.batch_count) == (1, 2, 0)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503])
def test_for_now_means_keep(shipper, put, service, spool, status):
    put(1)
    service.answer = lambda *_: (status, "{}")
    with pytest.raises(ServiceUnavailable, match=str(status)):
        shipper().once()
    assert spool.batch_count == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_is_named(shipper, put, service, status):
    put(1)
    service.answer = lambda *_: (status, "{}")
    for token, said in ((None, "no token is set"), ("wrong", "the service does not take this agent's token")):
        with structlog.testing.capture_logs() as logs:
            shipper(token=token).drain()
        (line,) = logs
        assert (line["log_level"], line["event"], line["count"]) == ("warning", "batches stay in the spool", 1)
        assert line["reason"] == f"HTTP {status}: {said}; it is `token` in the settings, or GPULEDGER_COLLECTOR_TOKEN"


def test_ok_from_something_else_is_not_ok(shipper, put, service, spool):
    put(1)
    for text in ("<html>log in</html>", "[]", '{"batch_id": "another"}'):
        service.answer = lambda *_, text=text: (200, text)
        with pytest.raises(ServiceUnavailable, match="not for this batch"):
            shipper().once()
    assert spool.batch_count == 1


def test_a_lost_answer_is_a_duplicate_not_a_second_batch(shipper, put, service, spool):
    put(4)
    batch_id = spool.oldest()[0].batch_id
    tables = service.tables

    def lose_the_answer(*_: str) -> tuple[int, str] | None:
        if batch_id in tables:
            return None
        tables[batch_id] = ("source_read", None)  # committed, and then the answer breaks
        return 503, ""

    service.answer = lose_the_answer
    ship = shipper()
    with pytest.raises(ServiceUnavailable):
        ship.once()
    assert ship.once()
    assert list(tables) == [batch_id]
    assert ship.counts.shipped_rows == 4


def test_a_service_that_is_away_and_comes_back_gets_everything(shipper, put, spool, free_port):
    for rows in range(1, 6):
        put(rows)
    stop = threading.Event()
    ship = shipper(url=f"http://127.0.0.1:{free_port}", stop=stop)
    thread = threading.Thread(target=ship.run)
    thread.start()
    wait_until(lambda: ship.counts.retries >= 3)
    assert spool.batch_count == 5
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            received.append(self.headers["X-Batch-Id"])
            text = json.dumps({"batch_id": received[-1], "accepted": 0, "rejected": [], "duplicate": False}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", free_port), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    wait_until(lambda: spool.batch_count == 0)
    stop.set()
    thread.join(5)
    server.shutdown()
    server.server_close()
    serving.join()
    assert not thread.is_alive()
    assert len(set(received)) == 5
    assert (ship.counts.shipped_batches, ship.counts.shipped_rows) == (5, 15)


def test_stopping_while_the_service_is_away_keeps_the_batch(shipper, put, spool, free_port):
    put(1)
    stop = threading.Event()
    ship = shipper(url=f"http://127.0.0.1:{free_port}", stop=stop)
    thread = threading.Thread(target=ship.run)
    thread.start()
    wait_until(lambda: ship.counts.retries >= 1)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert spool.batch_count == 1


def test_draining_stops_at_the_first_that_cannot_be_sent(shipper, put, service, spool):
    put(1)
    put(2)
    first = spool.oldest()[0].batch_id
    service.answer = lambda batch_id, _: None if batch_id == first else (503, "")
    shipper().drain()
    assert spool.batch_count == 1


def test_the_token_is_not_logged(shipper, put, service):
    put(1)
    service.answer = lambda *_: (400, "bad")
    with structlog.testing.capture_logs() as logs:
        shipper(token="TOKEN-CANARY").once()
    assert "TOKEN-CANARY" not in repr(logs)


def wait_until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
