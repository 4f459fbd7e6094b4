"""One file, many who want it: a service that writes, commands and readers beside it, in either order."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuledger.app.client import reach
from gpuledger.app.encoding import to_arrow_stream
from gpuledger.app.service import Service
from gpuledger.config import Settings
from gpuledger.errors import ServiceUnavailable
from tests.app.conftest import ROOT, Ran, Served, a_reading, a_table, environment, run_cli
from warehouse import Warehouse

LEAST = {"written": 20, "read": 20, "commands": 4}
"""What must have been done side by side, however long a busy machine takes for it."""

PATIENCE_SECONDS = 240.0
OLDEST = timedelta(seconds=60)
"""How old the ledger's end may be: two seconds between two builds, the rest to start a process on a busy machine."""


def _write(url: str, stop: threading.Event, failures: list[str], written: list[datetime]) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        while not stop.is_set():
            number, now = len(written), datetime.now(UTC)
            rows = [a_reading(card, at=now, interval_seconds=1.0) for card in range(8)]
            content, headers = to_arrow_stream(a_table("reading", *rows)), {"x-batch-id": f"w{number}"}
            answer = http.post("/v1/ingest/reading", content=content, headers=headers)
            if answer.status_code != 200:
                failures.append(answer.text)
            written.append(now)
            time.sleep(0.05)


def _read(url: str, stop: threading.Event, failures: list[str], answers: list[int], written: list[datetime]) -> None:
    """What was acknowledged before it was asked is in the answer."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        while not stop.is_set():
            acknowledged = written[-1]
            answer = http.get("/v1/queries/evidence_extent")
            newest = datetime.fromisoformat(answer.json()["rows"][0]["to_at"]) if answer.is_success else None
            if newest is None or newest < acknowledged:
                failures.append(f"{answer.status_code} {answer.text} acknowledged {acknowledged}")
            answers.append(1)
            time.sleep(0.02)


def _command(file: Path, stop: threading.Event, failures: list[str], answers: list[int]) -> None:
    while not stop.is_set():
        asked = datetime.now(UTC)
        ran = run_cli("ledger", "--format", "json", "--warehouse", file)
        if ran.code != 0 or asked - datetime.fromisoformat(ran.json["to"]) > OLDEST:
            failures.append(f"{ran.code} {ran.out[:200]} {ran.err[-400:]} asked {asked}")
        answers.append(1)


def _share(served: Served) -> dict[str, list[Any]]:
    stop, failures, limit = threading.Event(), list[str](), time.monotonic() + PATIENCE_SECONDS
    done: dict[str, list[Any]] = {name: [] for name in LEAST}
    writer = threading.Thread(target=_write, args=(served.url, stop, failures, done["written"]))
    writer.start()
    while not done["written"] and time.monotonic() < limit:  # until there is something to read
        time.sleep(0.05)
    reading = (served.url, stop, failures, done["read"], done["written"])
    commanding = (served.warehouse, stop, failures, done["commands"])
    others = [
        *(threading.Thread(target=_read, args=reading) for _ in range(3)),
        *(threading.Thread(target=_command, args=commanding) for _ in range(2)),
    ]
    for thread in others:
        thread.start()
    while any(len(done[name]) < least for name, least in LEAST.items()) and time.monotonic() < limit:
        time.sleep(0.1)
    stop.set()
    for thread in (writer, *others):
        thread.join()
    assert failures == []
    assert "lock" not in served.log
    return done


QUICK = {"GPULEDGER_LEDGER_EVERY_SECONDS": "2", "GPULEDGER_SETTLE_SECONDS": "0"}


@pytest.mark.slow
def test_problem_110_readers_beside_a_service_that_writes(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(tmp_path / "w.duckdb", **QUICK)
    done = _share(served)
    assert all(len(done[name]) >= least for name, least in LEAST.items()), {name: len(done[name]) for name in done}
    assert served.stop() == 0
    with Warehouse.open(served.warehouse) as warehouse, warehouse.writing() as cursor:
        assert cursor.execute("select count(*) from reading").fetchall() == [(8 * len(done["written"]),)]


@pytest.mark.slow
def test_problem_110_in_the_other_order(serve: Callable[..., Served], tmp_path: Path) -> None:
    file = tmp_path / "w.duckdb"
    Warehouse.open(file).close()
    command = [sys.executable, "-m", "gpuledger.app", "ledger", "--format", "json", "--warehouse", str(file)]
    readers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT)
        for _ in range(5)
    ]
    served = serve(file, **QUICK)
    ended = [(*reader.communicate(timeout=60), reader.returncode) for reader in readers]
    assert [code for _, _, code in ended] == [0] * 5, ended
    stop, failures, written = threading.Event(), list[str](), list[datetime]()
    writer = threading.Thread(target=_write, args=(served.url, stop, failures, written))
    writer.start()
    limit = time.monotonic() + PATIENCE_SECONDS
    while len(written) < 5 and time.monotonic() < limit:
        time.sleep(0.05)
    stop.set()
    writer.join()
    assert failures == []
    assert len(written) >= 5


def test_a_second_service_is_refused_at_once(
    serve: Callable[..., Served], cli: Callable[..., Ran], tmp_path: Path
) -> None:
    served = serve(tmp_path / "w.duckdb")
    began = time.monotonic()
    ran = cli("serve", "--warehouse", served.warehouse, "--listen", "127.0.0.1:1")
    assert ran.code == 1
    assert "served already" in ran.err
    assert time.monotonic() - began < 20


def test_a_taken_port_ends_the_service(serve: Callable[..., Served], cli: Callable[..., Ran], tmp_path: Path) -> None:
    served = serve(tmp_path / "w.duckdb")
    ran = cli("serve", "--warehouse", tmp_path / "other.duckdb", "--listen", f"127.0.0.1:{served.port}")
    assert ran.code == 1
    assert ran.out == ""
    assert not (tmp_path / "other.service.json").exists()


def test_whoever_holds_the_file_for_good_is_named(cli: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "w.duckdb"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(file)!r}); print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    (tmp_path / "w.service.json").write_text('{"url": "http://127.0.0.1:1"}')  # left by a service that was killed
    settings = Settings(warehouse=file)
    with pytest.raises(ServiceUnavailable, match="held by another process"):
        reach(settings, lambda: Service.open(settings), patience_seconds=0.3)
    holder.communicate(b"\n")
    assert cli("ledger", "--warehouse", file, "--format", "json").code == 0


def test_a_command_answers_alike_with_and_without_a_service(
    simulated: tuple[Path, Ran], serve: Callable[..., Served], cli: Callable[..., Ran]
) -> None:
    file, _ = simulated
    options = ("--warehouse", file, "--by", "tenant", "--format", "json")
    alone = cli("ledger", *options)
    served = serve(file)
    through = cli("ledger", *options)
    assert (alone.code, through.code) == (0, 0)
    assert through.out == alone.out
    assert served.stop() == 0


def _insert(warehouse: Warehouse, begin: datetime, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        rows = [a_reading(card, at=begin + timedelta(seconds=number)) for card in range(4)]
        warehouse.ingest("reading", a_table("reading", *rows), f"b{number}")
        number += 1


def _watch(warehouse: Warehouse, begin: datetime, counts: list[int]) -> None:
    span = {"from_at": begin, "to_at": begin + timedelta(days=1)}
    for _ in range(50):
        found = warehouse.query("gpu_readings", gpu_uuid="GPU-0", bucket_seconds=1, **span)
        counts.append(found.num_rows)


def test_problem_113_threads_read_while_one_inserts(tmp_path: Path) -> None:
    begin, stop = datetime.now(UTC) - timedelta(hours=1), threading.Event()
    with Warehouse.open(tmp_path / "w.duckdb") as warehouse, ThreadPoolExecutor(21) as pool:
        writer = pool.submit(_insert, warehouse, begin, stop)
        counts: list[list[int]] = [[] for _ in range(20)]
        readers = [pool.submit(_watch, warehouse, begin, seen) for seen in counts]
        for reader in readers:
            reader.result()
        stop.set()
        writer.result()
    assert [len(seen) for seen in counts] == [50] * 20
    assert all(seen == sorted(seen) for seen in counts)
    assert max(map(max, counts)) > 1
