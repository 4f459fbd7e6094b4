"""Routes of fragmentation: how large a gang would fit, what blocks each free GPU, and the index, at an instant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fastapi import FastAPI, Request, Response

from analyzers.fragmentation.cluster import LEVELS, read_cluster
from analyzers.fragmentation.hours import snapshot_hours
from analyzers.fragmentation.shapes import WEIGHTINGS
from analyzers.fragmentation.slots import GANG_GPUS, placeable
from analyzers.fragmentation.snapshot import BASES, take_snapshot
from gpuledger.app import parameters
from gpuledger.app.encoding import to_json
from gpuledger.clock import Clock
from gpuledger.errors import BadInput
from gpuledger.model import Window
from gpuledger.ports import QueryRunner
from warehouse.fragmentation import save_hours

HOURS_AT_ONCE = timedelta(days=2)
PROVISIONAL = timedelta(hours=3)
"""Work that is told late changes what was free: hours that are no older than this are kept again."""
MAX_SIZES = 32
LARGEST_GANG_GPUS = 10**6


def placeable_gangs(runner: QueryRunner, clock: Clock, asked: Mapping[str, str]) -> dict[str, Any]:
    """Gangs that fit, by pool, level and size.

    `asked` may name `at` (default: the end of the ledger, else now), `pool` (default: all) and `gpus`, sizes of gangs
    separated by commas. Raises BadInput naming what is wrong.
    """
    parameters.only(asked, "at", "pool", "gpus")
    at, sizes = _instant(runner, clock, asked), _sizes(asked.get("gpus", ""))
    cluster = read_cluster(runner, at)
    pool = _pool(asked.get("pool", ""), sorted(set(cluster.pool)))
    rows = placeable(cluster, sizes).iter_rows(named=True)
    return {"at": at, "placeable": [row for row in rows if pool in ("", row["pool"])]}


def fragmentation(runner: QueryRunner, clock: Clock, asked: Mapping[str, str]) -> dict[str, Any]:
    """Free GPUs of each pool by what blocks them, and the index under every weighting, of all pools together.

    `asked` may name `at`, `pool` and `gang_level`, the level in one domain of which every gang has to stand.
    """
    parameters.only(asked, "at", "pool", "gang_level")
    level = asked.get("gang_level") or None
    if level is not None and level not in LEVELS:
        raise BadInput("gang_level", f"must be one of {', '.join(LEVELS)}")
    taken = take_snapshot(runner, _instant(runner, clock, asked), gang_level=level)
    pool = _pool(asked.get("pool", ""), sorted(set(taken.cluster.pool)))
    rows = taken.free_gpus_by_block().iter_rows(named=True)
    return {
        "at": taken.at,
        "free": [row for row in rows if pool in ("", row["pool"])],
        "index": [
            {"basis": basis, "weighting": weighting, "fragmented_gpus": taken.indexes[basis].total(weighting)}
            for basis in BASES
            for weighting in WEIGHTINGS
        ],
    }


def keep_hours(service: Any) -> int:
    """Keep what is free at the start of each hour of the ledger; gives the number of rows.

    Hours that were kept while the ledger was provisional are kept again; of a long history the newest come first, at
    most `HOURS_AT_ONCE` in one go.
    """
    ledger = service.query("ledger_extent").to_pylist()[0]
    if ledger["from_at"] is None:
        return 0
    kept = service.query("fragmentation_extent").to_pylist()[0]
    hours = Window(ledger["from_at"], ledger["to_at"]).whole_hours()
    begin, end = hours.from_at, hours.to_at
    is_first = kept["from_at"] is None
    spans = [(begin, end)] if is_first else [(kept["to_at"] - PROVISIONAL, end), (begin, kept["from_at"])]
    written = 0
    for from_at, to_at in spans:
        since = max(begin, from_at, to_at - HOURS_AT_ONCE)
        if since < to_at:
            span = Window(since, to_at)
            written += save_hours(service.warehouse, span, snapshot_hours(service, span))
    return written


def _instant(runner: QueryRunner, clock: Clock, asked: Mapping[str, str]) -> datetime:
    if asked.get("at"):
        return parameters.instant("at", asked["at"])
    end: datetime | None = runner.query("ledger_extent").to_pylist()[0]["to_at"]
    return end or clock.now()


def _pool(name: str, known: list[str]) -> str:
    if name and name not in known:
        raise BadInput("pool", f"no card in service in a pool called {name[:80]!r}; known: {', '.join(known)}")
    return name


def _sizes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MAX_SIZES:
        raise BadInput("gpus", f"at most {MAX_SIZES} sizes")
    if any(not word.isdecimal() or not 1 <= int(word[:9]) <= LARGEST_GANG_GPUS for word in words):
        raise BadInput("gpus", f"{text[:40]!r} is no list of whole numbers from 1 to {LARGEST_GANG_GPUS:,}")
    return tuple(sorted({int(word) for word in words})) or GANG_GPUS


def register(app: FastAPI) -> None:
    """Add the routes to `app`."""

    @app.get("/v1/placeable")
    def read_placeable(request: Request) -> Response:
        """How many gangs of each size would fit in one domain of each level of the network."""
        service = request.app.state.service
        found = placeable_gangs(service, service.clock, request.query_params)
        return Response(to_json(found), media_type="application/json")

    @app.get("/v1/fragmentation")
    def read_fragmentation(request: Request) -> Response:
        """Free GPUs by what blocks them, and the FGD index, at an instant."""
        service = request.app.state.service
        found = fragmentation(service, service.clock, request.query_params)
        return Response(to_json(found), media_type="application/json")
