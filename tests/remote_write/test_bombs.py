"""Requests that want memory: what is declared and not sent, what unpacks to much, and labels without end."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.app.conftest import NOW, Api, Served
from tests.remote_write.writing import card, pack, post, post_block, request_1, rows

MIB = 2**20
MS = int(NOW.timestamp() * 1000)


def _peak(served: Served) -> int:
    """The most memory that the service has held, bytes."""
    status = Path(f"/proc/{served.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _post_all(served: Served, blocks: list[bytes], **headers: str) -> list[int]:
    def one(block: bytes) -> int:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as http:
            return post_block(http, block, **headers).status_code

    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(one, blocks))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="optional: needs Linux's account of memory")
def test_bombs_are_refused_before_they_cost_memory(serve: Callable[..., Served], tmp_path: Path) -> None:
    five = bytes.fromhex("8080808001")
    served = serve(tmp_path / "w.duckdb")
    # The first of each kind loads what all others use.
    assert _post_all(served, [five, pack(b""), pack(b"\x0a\x00")]) == [413, 204, 400]
    honest = pack(os.urandom(33 * MIB))
    assert _post_all(served, [honest]) == [413]
    _post_all(served, [five] * 100)
    before = _peak(served)
    assert set(_post_all(served, [five] * 100)) == {413}
    assert _peak(served) - before < 10 * MIB
    zeros = gzip.compress(bytes(64 * MIB))
    assert set(_post_all(served, [zeros] * 20, **{"content-encoding": "gzip"})) == {415}
    assert _peak(served) - before < 20 * MIB
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        told = http.get("/metrics").text
    assert 'gpuledger_rejected_too_large_total{endpoint="/api/v1/write"} 202.0' in told


@pytest.mark.slow
def test_a_million_series_of_one_target_leave_the_others_alone(make_api: Callable[..., Api]) -> None:
    api, distinct, healthy = make_api(), 1_000_000, 0
    for begin in range(0, distinct, 20_000):
        flood = [
            ({"UUID": "GPU-0", "__name__": "up", "instance": "bad:9400", "pod": f"p{number}"}, [(MS, 1.0)])
            for number in range(begin, begin + 20_000)
        ]
        good = [(card(number, instance="good:9400"), [(MS - begin, 1.0)]) for number in range(8)]
        healthy += len(good)
        raw = request_1([*flood, *good])
        assert post(api.http, raw).status_code == (204 if begin + 20_000 <= 50_000 else 400)
        del raw
    cache = api.service.receiver._decoder.cache
    assert len(cache.slots) == 50_000 + 8
    api.service.assemble()
    assert api.count("reading") == healthy
    assert api.count("series") == 50_000 + 8
    events = [row for row in rows(api, "quality_event") if row["kind"] == "too_many_series"]
    assert [(row["subject"], row["count"]) for row in events] == [("bad:9400", distinct - 50_000)]
