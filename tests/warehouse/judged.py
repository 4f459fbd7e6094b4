"""One hour, or a few, of a few cards in a ledger: what tests of the ledger's judgement put in, and what they ask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
H100 = "NVIDIA H100 80GB HBM3"


class Judged:
    """A warehouse in memory with one job, `w`, unless it is told otherwise. The ledger closes after every build."""

    def __init__(self) -> None:
        self.house = Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2)))
        self._batches = count()

    def put(self, record: str, *rows: Mapping[str, Any]) -> None:
        table = to_table(record, [RECORDS[record].cls(**row) for row in rows])
        assert not self.house.ingest(record, table, f"{record}-{next(self._batches)}").rejected

    def hold(self, *cards: str, minutes: float = 60, ready_minute: float = -60, **changed: Any) -> None:
        """Hold `cards` by the job from AT on, ready (grace over) long before unless told otherwise."""
        end = AT + minutes * MINUTE
        common = {"workload_id": "w", "pod": "p", "node": "n", "share": 1.0, "started_at": AT, "ended_at": end}
        common |= {"ready_at": AT + ready_minute * MINUTE, **changed}
        self.put("allocation", *({**common, "allocation_id": f"a-{card}", "gpu_uuid": card} for card in cards))

    def read(self, card: str, begin: int, end: int, *, step: int = 1, model: str = H100, **values: Any) -> None:
        """Readings of `card` at each `step`-th minute of [begin, end)."""
        common = {"node": "n", "gpu_uuid": card, "source": "s", "interval_seconds": step * 60.0, "model": model}
        self.put("reading", *({"ts": AT + i * MINUTE, **common, **values} for i in range(begin, end, step)))

    def build(self, minutes: float = 60) -> None:
        window = Window(AT, AT + minutes * MINUTE)
        assert self.house.build_ledger(window, until_at=window.to_at).violations == 0

    def spans(self, *columns: str, minutes: float = 60) -> list[tuple[Any, ...]]:
        """Build, then (card, from minute, until minute, state, *columns) of what is held, in order."""
        self.build(minutes)
        with self.house.reading() as cursor:
            rows = cursor.sql("from state_span where allocation_id <> '' order by gpu_uuid, from_at").to_arrow_table()
        return [
            (
                row["gpu_uuid"],
                (row["from_at"] - AT) / MINUTE,
                (row["until_at"] - AT) / MINUTE,
                row["state"],
                *(row[name] for name in columns),
            )
            for row in rows.to_pylist()
        ]

    def hours(self, *columns: str, minutes: float = 60) -> dict[Any, float]:
        """Build, then GPU-hours held by `columns` of the ledger (default: its state)."""
        self.build(minutes)
        names = columns or ("state",)
        with self.house.reading() as cursor:
            rows = cursor.sql("from state_span where allocation_id <> ''").to_arrow_table().to_pylist()
        found: dict[Any, float] = {}
        for row in rows:
            key = tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]
            found[key] = found.get(key, 0.0) + row["gpu_hours"]
        return {key: round(value, 9) for key, value in found.items()}
