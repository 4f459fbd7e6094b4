from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.errors import BadInput
from gpuledger.simulate import FleetSpec, simulate
from gpuledger.simulate.fleet import HARDWARE, build_fleet, pool_sizes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", 0),
        ("days", 0),
        ("seed", -1),
        ("interval_seconds", 7),
        ("interval_seconds", 0),
        ("end_at", datetime(2026, 3, 2)),  # noqa: DTZ001 a naive time is what is refused
        ("end_at", datetime(2026, 3, 2, 0, 30, tzinfo=UTC)),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_with_its_field(field: str, value: Any) -> None:
    good: dict[str, Any] = {"nodes": 1, "days": 1}
    with pytest.raises(BadInput) as refused:
        FleetSpec(**{**good, field: value})
    assert refused.value.field == field


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(BadInput, match="busy"):
        simulate(FleetSpec(nodes=1, days=1, scenario="calm"))


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 8, 13, 64, 1250])
def test_pools_share_all_nodes_and_none_is_left_out_once_there_are_enough(nodes: int) -> None:
    sizes = pool_sizes(nodes)
    assert sum(sizes) == nodes
    assert min(sizes) >= (1 if nodes >= len(HARDWARE) else 0)


def test_a_host_has_eight_cards_and_its_devices_lie_side_by_side() -> None:
    fleet = build_fleet(FleetSpec(nodes=16, days=1))
    assert len({card.gpu_uuid for card in fleet.cards}) == 128
    covered = [device for host in fleet.hosts for device in fleet.devices_of(host)]
    assert covered == list(range(len(fleet.devices)))
    for host in fleet.hosts:
        assert len(host.cards) == 8
        assert {fleet.devices[device].card for device in fleet.devices_of(host)} == set(host.cards)
        assert 96 <= host.hardware.cpu_cores <= 192


def test_mig_slices_fill_their_card() -> None:
    fleet = build_fleet(FleetSpec(nodes=8, days=1))
    sliced = [card for card in fleet.cards if card.slices]
    assert len(sliced) == 8
    assert all(sum(part.share for part in card.slices) == pytest.approx(1.0) for card in sliced)
