"""Imports the assets list: one dated line a card and status, as CSV.

Columns: gpu_uuid, node, slot, model, pool, status, from_at, until_at. `slot`, `model`, `pool` and `until_at` may be
empty or absent. Times are ISO 8601 with a zone; a plain date is its midnight in UTC. A byte-order mark is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from collector.importers.lines import instant, rows, text_of
from collector.importers.tabular import Rejections
from gpuledger.errors import BadInput
from gpuledger.model import Asset, canonical_model, to_table
from gpuledger.model.vocabulary import ASSET_STATUSES

REQUIRED = ("gpu_uuid", "node", "status", "from_at")


def read(file: Path) -> Iterator[tuple[str, pa.Table]]:
    """("asset", table) with every good line, then BadRecord naming the line, column and reason of each bad one.

    Whoever takes the table before going on has kept the good lines. Raises BadInput, and yields nothing, when the
    file cannot be read or has no usable header.
    """
    rejections = Rejections()
    assets: dict[tuple[str, datetime], Asset] = {}
    for line, row in rows(text_of(file), REQUIRED, rejections):
        try:
            _add(assets, _asset(row))
        except BadInput as error:
            rejections.add(line, f"line {line}, {error.field}", error.reason)
    if assets:
        yield "asset", to_table("asset", assets.values())
    rejections.raise_if_any()


def _add(assets: dict[tuple[str, datetime], Asset], asset: Asset) -> None:
    key = (asset.gpu_uuid, asset.from_at)
    if key in assets:
        raise BadInput("from_at", f"a second line for {asset.gpu_uuid} from {asset.from_at.isoformat()}")
    assets[key] = asset


def _asset(row: Mapping[str, str]) -> Asset:
    for column in REQUIRED:
        if not row[column]:
            raise BadInput(column, "empty")
    if row["status"] not in ASSET_STATUSES:
        raise BadInput("status", f"{row['status']!r} is none of {', '.join(ASSET_STATUSES)}")
    from_at = instant("from_at", row["from_at"])
    until_at = instant("until_at", row["until_at"]) if row.get("until_at") else None
    if until_at is not None and until_at <= from_at:
        raise BadInput("until_at", "not after from_at")
    return Asset(
        gpu_uuid=row["gpu_uuid"],
        node=row["node"],
        slot=_slot(row.get("slot", "")),
        model=canonical_model(row.get("model")),
        pool=row.get("pool") or "default",
        status=row["status"],
        from_at=from_at,
        until_at=until_at,
    )


def _slot(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal():
        raise BadInput("slot", f"{text!r} is no whole number")
    return int(text)
