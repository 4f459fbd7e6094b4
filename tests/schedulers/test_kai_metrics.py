"""KAI's metrics: what is used is what is allocated, and "usage" is history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from gpuledger.errors import BadInput
from schedulers.fakes.apiserver import serve
from schedulers.kai.metrics import figures_of
from tests.schedulers.kai_objects import GPU, queue, reader
from tests.schedulers.volcano_objects import SHARED, complaints
from tests.schedulers.worlds.kai import store

PAGE = """\
# TYPE kai_queue_allocated_gpus gauge
kai_queue_allocated_gpus{queue_name="team-a",queue_metadata_name="team-a"} 4
# TYPE kai_queue_deserved_gpus gauge
kai_queue_deserved_gpus{queue_name="team-a"} 16
kai_queue_deserved_gpus{queue_name="root"} -1
# TYPE kai_queue_fair_share_gpu gauge
kai_queue_fair_share_gpu{queue_name="team-a"} 10
# TYPE kai_queue_gpu_usage gauge
kai_queue_gpu_usage{queue_name="team-a"} 173.5
# TYPE up gauge
up 1
"""


def _page(source: str) -> str:
    if source == "ours":
        return PAGE
    file = SHARED / "problems" / source
    if not file.exists():
        pytest.skip("../shared/problems is not there")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("source", ["ours", "083-kai-usage-is-history.prom"])
def test_usage_is_history_and_use_is_what_is_allocated(source: str) -> None:
    team = figures_of(_page(source))["team-a"]
    assert (team.allocated_gpus, team.deserved_gpus, team.fair_share_gpus) == (4, 16, 10)
    assert team.use_ratio == 0.25
    assert team.used_over_time == 173.5


def test_unlimited_is_no_number() -> None:
    root = figures_of(PAGE)["root"]
    assert (root.deserved_gpus, root.allocated_gpus, root.use_ratio) == (None, None, None)


def test_what_is_no_page_is_refused() -> None:
    with pytest.raises(BadInput, match="metrics: no page"):
        figures_of('queue_allocated_gpus{queue_name="team-a"')


@contextmanager
def _answering(text: str, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def test_metrics_that_differ_from_a_status_are_said() -> None:
    made = store()
    made.put(queue("team-a", {"quota": 16, "limit": -1}, allocated={GPU: 6}))
    with serve(made) as api, _answering(PAGE) as url:
        snapshot = reader(url=api.url, metrics_url=url).snapshot()
    told = [words for subject, words, _ in complaints(snapshot, "quota_mismatch") if subject == "team-a"]
    assert "its metric says 4 GPUs allocated, its status 6" in told
    states = {row["queue"]: row for row in snapshot.records["queue_state"].to_pylist()}
    assert states["team-a"]["running_gpus"] == 0, "its pods count, and neither status nor metric"


def test_metrics_that_do_not_come_cost_nothing_else() -> None:
    with serve(store()) as api, _answering("", 503) as url:
        snapshot = reader(url=api.url, metrics_url=url).snapshot()
    subject, words, _ = complaints(snapshot, "missing_metric")[0]
    assert subject == url
    assert "503" in words
    assert snapshot.records["queue"].num_rows == 3
