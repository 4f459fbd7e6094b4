"""What every reader says is taken in whole: no row of its snapshot is refused, and reading it again adds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gpuledger.app.schedulers.feed import Feed
from gpuledger.app.service import Service
from gpuledger.config import Settings
from tests.schedulers.reading import World
from tests.schedulers.test_reading_conformance import WORLDS

UNCHANGED = ("node", "node_state", "queue", "quota", "queue_resource", "workload", "pod", "wait", "workload_event")


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    module, _, function = WORLDS[request.param].partition(":")
    with getattr(import_module(module), function)(tmp_path, "eu") as found:
        yield found


def test_no_row_is_refused_and_the_same_again_adds_nothing(world: World, tmp_path: Path) -> None:
    service = Service.open(Settings(warehouse=tmp_path / "w.duckdb"), world.clock)
    try:
        feed = Feed(world.reader, service, world.clock, interval_seconds=60.0)
        counts = []
        for _ in range(2):
            feed.read()
            with service.warehouse.reading() as cursor:
                refused = cursor.execute("select record, rejected_count from batch where rejected_count > 0").fetchall()
                counts.append(
                    {name: cursor.execute(f"select count(*) from {name}").fetchall()[0][0] for name in UNCHANGED}
                )
            assert refused == []
            world.clock.advance(60)
        assert counts[0] == counts[1]
        assert counts[0]["workload"] > 0
    finally:
        service.close()
