"""MIG: what profiles take of a card, and slices that report under UUIDs of their own are no cards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.model import Reading, Window, slice_share, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = Window(AT, AT + timedelta(hours=1))
A100, RTX = "NVIDIA A100-SXM4-40GB", "NVIDIA RTX PRO 6000 Blackwell Server Edition"


@pytest.mark.parametrize(
    ("model", "profile", "share"),
    [
        (A100, "1g.5gb", 1 / 7),
        (A100, "1g.5gb+me", 1 / 7),
        (A100, "1g.5gb.me", 1 / 7),
        (A100, "MIG 1c.3g.20gb+me", 1 / 7),
        ("NVIDIA H20", "2g.24gb", 2 / 7),
        ("NVIDIA B200", "1g.23gb-me", 1 / 7),
        ("NVIDIA GH200 480GB", "3g.48gb", 3 / 7),
        ("NVIDIA B300 SXM6 AC", "7g.269gb", 1.0),
        ("NVIDIA A30", "2g.12gb+me", 1 / 2),
        (RTX, "2g.48gb+gfx", 1 / 2),
        (RTX, "1g.24gb+me.all", 1 / 4),
        (RTX, "7g.96gb", None),  # it has four slices
        ("NVIDIA L40S", "1g.5gb", None),
        ("a model of tomorrow", "1g.5gb", None),
        (A100, "1g.5gb+", None),
    ],
)
def test_what_a_profile_takes(model: str, profile: str, share: float | None) -> None:
    assert slice_share(model, profile) == share


def _built(*cards: tuple[str, str]) -> tuple[list[Any], list[Any]]:
    """GPU-hours by card, and the differences, of an hour in which (node, UUID) report."""
    rows = [
        Reading(ts=AT + timedelta(minutes=m), node=n, gpu_uuid=g, source="s", interval_seconds=60.0, gpu_util_ratio=0.5)
        for m in range(60)
        for n, g in cards
    ]
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(hours=2))) as house:
        house.ingest("reading", to_table("reading", rows), "1")
        assert house.build_ledger(HOUR, until_at=HOUR.to_at).violations == 0
        with house.reading() as cursor:
            hours = "select gpu_uuid, round(sum(gpu_hours), 9) from state_span group by all order by all"
            return (
                cursor.execute(hours).fetchall(),
                cursor.execute("select kind, subject, gpu_count from inventory_difference order by all").fetchall(),
            )


def test_slices_under_uuids_of_their_own_are_no_cards() -> None:
    slices = [("n1", f"MIG-{number}") for number in range(3)]
    assert _built(("n1", "GPU-1"), *slices) == ([("GPU-1", 1.0)], [])


def test_a_node_that_shows_slices_only_is_named_and_not_counted() -> None:
    slices = [("n2", f"MIG-{number}") for number in range(3)]
    assert _built(("n1", "GPU-1"), *slices) == ([("GPU-1", 1.0)], [("not_in_assets", "n2", 1.0)])
