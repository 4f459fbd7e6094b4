"""Keeps what was free at the start of each hour, and what it was worth (table `fragmentation_hour`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gpuledger.model import Window

if TYPE_CHECKING:
    from warehouse.store import Warehouse


def save_hours(warehouse: Warehouse, window: Window, rows: pa.Table) -> int:
    """Replace the stored hours that begin in [`from_at`, `to_at`) by `rows`, whole or not at all. Gives their number.

    `rows` has the columns of `fragmentation_hour`, as `analyzers.fragmentation.hours.snapshot_hours` gives them.
    """
    bounds = {"from_at": window.from_at, "to_at": window.to_at}
    with warehouse.writing() as cursor:
        cursor.register("staged", rows)
        cursor.execute("begin")
        try:
            cursor.execute("delete from fragmentation_hour where hour_at >= $from_at and hour_at < $to_at", bounds)
            cursor.execute("insert into fragmentation_hour by name select * from staged")
            cursor.execute("commit")
        except BaseException:
            cursor.execute("rollback")
            raise
        finally:
            cursor.unregister("staged")
    return int(rows.num_rows)
