"""What was acknowledged is on disk: kill -9 at any point, send again, and every reading is there exactly once."""

from __future__ import annotations

import csv
import random
import shutil
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from gpuledger.app.client import sidecar
from gpuledger.app.encoding import to_arrow_stream
from tests.app.conftest import Api, Served, a_reading, a_table
from warehouse import Warehouse

KILLS = 20
SENDERS = 4
ROWS = 5
BEGIN = datetime.fromisoformat("2026-03-02T00:00:00+00:00")


def _batch(sender: int, number: int) -> pa.Table:
    rows = [
        a_reading(100 * sender + row, at=BEGIN + timedelta(seconds=number), node=f"n{sender}") for row in range(ROWS)
    ]
    return a_table("reading", *rows)


def _post(http: httpx.Client, sender: int, number: int) -> httpx.Response:
    headers = {"x-batch-id": f"{sender}-{number}"}
    return http.post("/v1/ingest/reading", content=to_arrow_stream(_batch(sender, number)), headers=headers)


class Sender(threading.Thread):
    """Sends one batch after the other, each with the same id until it is acknowledged."""

    def __init__(self, served: Served, sender: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.sender, self._served, self._stop_asked = sender, served, stop
        self.acknowledged: list[int] = []
        self.surprises: list[str] = []
        self.next = 0

    def run(self) -> None:
        with httpx.Client(base_url=self._served.url, trust_env=False, timeout=10) as http:
            while not self._stop_asked.is_set():
                try:
                    answer = _post(http, self.sender, self.next)
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                if answer.status_code != 200 or answer.json()["accepted"] != ROWS:
                    self.surprises.append(answer.text)
                self.acknowledged.append(self.next)
                self.next += 1


def _keys(file: Path) -> list[tuple[str, datetime]]:
    with Warehouse.open(file) as warehouse, warehouse.writing() as cursor:
        return cursor.execute("select gpu_uuid, ts from reading").fetchall()


def _sent(senders: list[Sender]) -> set[tuple[str, datetime]]:
    return {
        (f"GPU-{100 * sender.sender + row}", BEGIN + timedelta(seconds=number))
        for sender in senders
        for number in sender.acknowledged
        for row in range(ROWS)
    }


def _wait_for_acknowledgements(senders: list[Sender], count: int) -> None:
    """Each kill falls into sending, however slow the machine is."""
    deadline = time.monotonic() + 60
    while min(len(sender.acknowledged) for sender in senders) < count:
        assert time.monotonic() < deadline, [len(sender.acknowledged) for sender in senders]
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_at_twenty_points_loses_and_doubles_nothing(serve: Callable[..., Served], tmp_path: Path) -> None:
    dice, stop = random.Random(114), threading.Event()
    served = serve(tmp_path / "w.duckdb")
    senders = [Sender(served, number, stop) for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    for kill in range(1, KILLS + 1):
        _wait_for_acknowledgements(senders, kill)
        time.sleep(dice.uniform(0.02, 0.4))
        served.kill()
        served.restart()
    _wait_for_acknowledgements(senders, KILLS + 1)
    served.kill()
    stop.set()
    for sender in senders:
        sender.join(20)
    assert [sender.surprises for sender in senders] == [[]] * SENDERS
    assert min(len(sender.acknowledged) for sender in senders) > KILLS

    for suffix in (".duckdb", ".duckdb.wal"):  # as the last kill left it, before anything is sent again
        if (source := tmp_path / f"w{suffix}").exists():
            shutil.copy(source, tmp_path / f"copy{suffix}")
    kept = _keys(tmp_path / "copy.duckdb")
    assert len(kept) == len(set(kept))
    assert _sent(senders) - set(kept) == set()

    served.restart()
    with httpx.Client(base_url=served.url, trust_env=False, timeout=30) as http:
        for sender in senders:
            sender.acknowledged = list(range(sender.next + 1))
            for number in sender.acknowledged:
                assert _post(http, sender.sender, number).json()["accepted"] == ROWS
    assert served.stop() == 0
    kept = _keys(served.warehouse)
    assert len(kept) == len(set(kept))
    assert set(kept) == _sent(senders)


def test_sigterm_ends_in_good_order(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(tmp_path / "w.duckdb")
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        assert _post(http, 0, 0).status_code == 200
    assert sidecar(served.warehouse).is_file()
    assert served.stop() == 0, served.log
    assert not sidecar(served.warehouse).exists()
    assert not served.warehouse.with_suffix(".duckdb.wal").exists()  # folded into the file
    assert "Traceback" not in served.log
    assert len(_keys(served.warehouse)) == ROWS


def test_a_resent_batch_changes_nothing(api: Api) -> None:
    table = a_table("reading", a_reading(0), a_reading(1))
    first = api.put("reading", table, "b").json()
    again = api.put("reading", table, "b").json()
    other = api.put("reading", a_table("reading", a_reading(7)), "b").json()
    assert (first["duplicate"], again["duplicate"], other["duplicate"]) == (False, True, True)
    assert again["accepted"] == first["accepted"] == 2
    assert api.count("reading") == 2
    assert api.count("batch") == 1
    assert api.metric("gpuledger_ingest_rows_total", record="reading") == 2


def _values(api: Api) -> list[float]:
    with api.service.warehouse.writing() as cursor:
        return [row[0] for row in cursor.execute("select gpu_util_ratio from reading order by ts").fetchall()]


def _seen(value: float, seen_at: datetime | None) -> dict[str, Any]:
    return a_reading(0, gpu_util_ratio=value, seen_at=seen_at)


def test_the_twin_that_was_seen_later_stays(api: Api) -> None:
    early, late = BEGIN + timedelta(seconds=5), BEGIN + timedelta(seconds=35)
    for number, (value, seen_at, stays) in enumerate(
        (
            (0.40, early, 0.40),
            (0.41, late, 0.41),
            (0.42, early, 0.41),
            (0.43, late, 0.41),
            (0.44, None, 0.41),
        )
    ):
        assert api.put("reading", a_table("reading", _seen(value, seen_at)), f"b{number}").status_code == 200
        assert _values(api) == [stays]


@pytest.mark.parametrize("is_turned", [False, True])
def test_twins_in_one_batch(api: Api, *, is_turned: bool) -> None:
    rows = [_seen(0.40, BEGIN + timedelta(seconds=5)), _seen(0.41, BEGIN + timedelta(seconds=35))]
    answer = api.put("reading", a_table("reading", *(rows[::-1] if is_turned else rows)), "b").json()
    assert answer["accepted"] == 2
    assert _values(api) == [0.41]


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("is_turned", [False, True])
def test_problem_114_twin_keys(api: Api, shared: Path, *, is_one_batch: bool, is_turned: bool) -> None:
    with (shared / "problems" / "114-twin-keys.csv").open(encoding="utf-8") as file:
        rows = [
            a_reading(
                at=datetime.fromisoformat(line["ts"]),
                gpu_uuid=line["uuid"],
                gpu_util_ratio=float(line["value"]) / 100,
                seen_at=datetime.fromisoformat(line["seen_at"]),
            )
            for line in csv.DictReader(file)
        ]
    ordered = rows[::-1] if is_turned else rows
    for number, part in enumerate([ordered] if is_one_batch else [[row] for row in ordered]):
        assert api.put("reading", a_table("reading", *part), f"b{number}").status_code == 200
    assert _values(api) == [0.41]
