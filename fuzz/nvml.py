"""Mutated snapshots of the NVML process through the source that reads them, and mutated texts of control groups.

    python fuzz/nvml.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record: unique by its key, values in their bounds, known words. A failed read
has no row but what was noticed, and after any nonsense a sound snapshot is read as ever.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.nvml.owners import parse_cgroup
from collector.nvml.pods import parse_folder
from collector.sources.nvml import NvmlSource
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, to_table
from gpuledger.ports import Observation

RECORDING = Path(__file__).resolve().parents[1] / "tests" / "collector" / "recordings" / "nvml_snapshots.json"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
POD = "12345678-1234-1234-1234-123456789abc"
NASTY: tuple[Any, ...] = (
    *(None, True, False, "", "x", "\x00", "é" * 300, "GPU-00000000-0000-0000-0000-000000000000", POD, "nan"),
    *(0, -1, 1, 7, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 10**400, -0.0, 1e-320, 1e308, math.nan, math.inf, -math.inf),
    *([], {}, [None], [[]], {"": 1}, ["a", 1]),
)
GROUPS = (
    f"0::/kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope\n",
    f"4:memory:/kubepods/burstable/pod{POD}/{'ab' * 32}\n0::/system.slice/slurmstepd.scope/job_4711/step_0\n",
    f"ml_train-0_{POD}",
)
TOKENS = (b"/", b":", b"_", b"-", b"\n", b"pod", b"job_", b"slurm", b".slice", b"\x00", b"\xff", b"f" * 64, b"9" * 400)


@cache
def corpus() -> tuple[str, ...]:
    """Snapshots to begin with."""
    return tuple(json.dumps(one) for one in json.loads(RECORDING.read_text()))


def make(rng: random.Random) -> bytes:
    """One snapshot with a few places replaced, and a mutated text, as JSON."""
    snapshot = json.loads(rng.choice(corpus()))
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        put, value = rng.choice(list(_places(snapshot)) or [(snapshot.update, {})])
        scalar = value if not isinstance(value, dict | list) else len(value)
        put(rng.choice((copy.deepcopy(rng.choice(NASTY)), [scalar], rng.random() * 10.0 ** rng.randrange(-5, 30))))
    text = mutated(rng, rng.choice(GROUPS).encode(), TOKENS)[:5000]
    return json.dumps([snapshot, text.decode(errors="replace")]).encode()


def _places(value: Any) -> Any:
    """(what replaces it, the value) of everything inside `value`."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield _put(value, key), inner
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _put(inside: Any, key: Any) -> Callable[[Any], None]:
    return lambda value: inside.__setitem__(key, value)


class _Child:
    """Answers with the snapshots it was given, one after the other."""

    def __init__(self, snapshots: list[Any]) -> None:
        self._snapshots = snapshots

    def ask(self, *_: Any) -> Any:
        return self._snapshots.pop(0)

    def kill(self) -> bool:
        return True


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    snapshot, text = json.loads(content)
    for parsed in (parse_cgroup(text), parse_folder(text)):
        assert "/" not in repr(parsed)
    sound = json.loads(corpus()[0])
    given = [sound, snapshot, snapshot, sound]
    child = _Child(list(given))
    with mock.patch("collector.sources.nvml.ChildProcess", return_value=child):
        source = NvmlSource(node="n1", pods_directory="/nowhere")
        read = [source.read(NOW + timedelta(minutes=turn)) for turn in range(len(given))]
    for snapshot, observation in zip(given, read, strict=True):
        _check(observation)
        if snapshot is sound:
            assert observation.reads[0].device_count == len(sound["devices"]), "a sound snapshot is not read"


def _check(seen: Observation) -> None:
    (read,) = seen.reads
    rows: dict[str, Any] = {"source_read": seen.reads, "reading": seen.readings, "holding": seen.holdings}
    for record, of_record in (rows | dict(seen.others)).items():
        keys = [tuple(getattr(row, name) for name in RECORDS[record].key) for row in of_record]
        assert len(set(keys)) == len(keys), f"{record}: a row twice"
        assert to_table(record, of_record).num_rows == len(keys)
        assert read.ok or record in ("source_read", "quality_event", "fault_event", "condition") or not keys
        for column in dataclasses.fields(RECORDS[record].cls):
            low, high = column.metadata.get("low"), column.metadata.get("high")
            choices = column.metadata.get("choices")
            for value in (getattr(row, column.name) for row in of_record):
                assert choices is None or value in choices, f"{column.name} is {value}"
                assert low is None or value is None or (math.isfinite(value) and low <= value), column.name
                assert high is None or value is None or value <= high, column.name


if __name__ == "__main__":
    main("nvml", make, check)
