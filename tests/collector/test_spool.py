"""Batches on disk: whole or absent, bounded, oldest dropped first, and there after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from collector.spool import Batch, Spool, encode
from gpuledger.errors import ConfigError
from gpuledger.model import SourceRead, to_table

ROOT = Path(__file__).resolve().parents[2]


def table(rows: int = 3) -> pa.Table:
    start = datetime(2026, 3, 2, tzinfo=UTC)
    reads = [
        SourceRead(ts=start + timedelta(seconds=n), node="n", source="s", scope="device", ok=True, interval_seconds=15)
        for n in range(rows)
    ]
    return to_table("source_read", reads)


def oldest(spool: Spool) -> Batch:
    found = spool.oldest()
    assert found is not None
    return found[0]


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool", 10**6)
    yield spool
    spool.close()


def test_batches_leave_in_the_order_they_came(spool):
    for rows in (1, 2, 3):
        assert spool.put("source_read", table(rows))
    seen = []
    while (found := spool.oldest()) is not None:
        batch, content = found
        seen.append((batch.record, batch.rows, pa.ipc.open_stream(content).read_all().num_rows))
        spool.done(batch)
    assert seen == [("source_read", 1, 1), ("source_read", 2, 2), ("source_read", 3, 3)]
    assert (spool.batch_count, spool.size_bytes) == (0, 0)


def test_what_was_put_is_there_for_the_next_process(tmp_path):
    first = Spool(tmp_path, 10**6)
    first.put("source_read", table(1))
    first.put("source_read", table(2))
    batch_id = oldest(first).batch_id
    first.close()
    second = Spool(tmp_path, 10**6)
    second.put("source_read", table(3))
    assert oldest(second).batch_id == batch_id
    assert [batch.rows for batch in second._batches.values()] == [1, 2, 3]
    second.close()


def test_the_oldest_make_room_and_are_counted(tmp_path):
    size = len(encode(table(3)))
    spool = Spool(tmp_path, 3 * size + 10)
    for _ in range(5):
        assert spool.put("source_read", table(3))
    assert (spool.batch_count, spool.counts.dropped_batches, spool.counts.dropped_rows) == (3, 2, 6)
    assert spool.size_bytes <= 3 * size + 10
    spool.close()


def test_a_batch_beyond_the_limit_is_dropped_itself(tmp_path):
    spool = Spool(tmp_path, 100)
    assert not spool.put("source_read", table(3))
    assert (spool.batch_count, spool.counts.dropped_batches, spool.counts.dropped_rows) == (0, 1, 3)
    spool.close()


def test_a_damaged_file_is_set_aside_and_counted(tmp_path):
    spool = Spool(tmp_path, 10**6)
    spool.put("source_read", table(1))
    spool.put("source_read", table(2))
    damaged = oldest(spool).path
    damaged.write_bytes(damaged.read_bytes()[:-5])
    batch = oldest(spool)
    assert (batch.rows, spool.counts.corrupt_batches, spool.batch_count) == (2, 1, 1)
    assert (tmp_path / "set-aside" / damaged.name).exists()
    spool.close()


def test_a_vanished_file_costs_itself(spool):
    spool.put("source_read", table(1))
    spool.put("source_read", table(2))
    oldest(spool).path.unlink()
    assert oldest(spool).rows == 2


def test_foreign_and_half_written_files_do_no_harm(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "what.arrow").write_bytes(b"?")
    (tmp_path / "000000000001-source_read-1.part").write_bytes(b"half")
    spool = Spool(tmp_path, 10**6)
    assert (spool.oldest(), spool.counts.corrupt_batches) == (None, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "notes.txt", "set-aside"]
    spool.close()


def test_only_the_last_batches_set_aside_are_kept(spool):
    for _ in range(25):
        spool.put("source_read", table(1))
        spool.set_aside(oldest(spool))
    assert spool.counts.set_aside_batches == 25
    assert len(list((spool._directory / "set-aside").iterdir())) == 20


def test_a_disk_that_cannot_be_written_costs_the_batch_and_says_so(spool, monkeypatch):
    spool.put("source_read", table(2))
    monkeypatch.setattr("collector.spool.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert not spool.put("source_read", table(3))
    assert (spool.counts.dropped_batches, spool.counts.dropped_rows) == (2, 5)
    assert list(spool._directory.glob("*.part")) == []


def test_one_process_at_a_time(tmp_path):
    spool = Spool(tmp_path, 10**6)
    with pytest.raises(ConfigError, match="spool_directory"):
        Spool(tmp_path, 10**6)
    spool.close()
    Spool(tmp_path, 10**6).close()


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="spool_directory"):
        Spool(tmp_path / "file" / "spool", 10**6)


def test_a_killed_process_leaves_whole_batches(tmp_path):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        import pyarrow as pa
        from collector.spool import Spool
        spool = Spool(Path(sys.argv[1]), 10**8)
        table = pa.table({"x": list(range(1000))})
        for count in range(1, 10**6):
            spool.put("source_read", table)
            print(count, flush=True)
    """)
    command = [sys.executable, "-c", script, str(tmp_path), str(ROOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 20:
                break
        os.kill(process.pid, 9)
        acknowledged = max([20, *map(int, process.stdout)])
    spool = Spool(tmp_path, 10**8)
    read = 0
    while (found := spool.oldest()) is not None:
        batch, content = found
        assert pa.ipc.open_stream(content).read_all().num_rows == 1000
        spool.done(batch)
        read += 1
    assert read >= acknowledged
    assert spool.counts.corrupt_batches == 0
    spool.close()
