"""A target with far too many series costs itself, is named, and loses no card; scrape cycles of large targets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from collector.sources.dcgm import Target, parse
from gpuledger.ports import Observation

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
LINE = (
    'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
    'Hostname="n1",exported_namespace="ml",exported_pod="train-{pod}",exported_container="main"}} {value}\n'
)


def churned(pods: int) -> bytes:
    """`pods` pods, the first of them all on GPU 0 and the last ones all on GPU 7."""
    return "".join(
        LINE.format(gpu=pod * 8 // pods, pod=pod, value=10 * (pod * 8 // pods)) for pod in range(pods)
    ).encode()


def healthy() -> tuple[bytes, Target]:
    return "".join(LINE.format(gpu=gpu, pod=gpu, value=50) for gpu in range(8)).replace("n1", "n2").encode(), Target()


def events(seen: Observation) -> dict[tuple[str, str], int]:
    """What was wrong with the lines of a page."""
    told = seen.others.get("quality_event", ())
    return {(row.kind, row.detail): row.count for row in told if row.kind in {"refused_line", "too_many_series"}}


def check_capped(pods: int, cap: int) -> None:
    """Pod labels kept."""
    target = Target(max_series=cap)
    for _ in ("cold", "warm"):
        seen = parse(churned(pods), NOW, target)
        assert [(row.gpu_uuid, row.gpu_util_ratio) for row in seen.readings] == [
            (f"GPU-{gpu}", gpu / 10) for gpu in range(8)
        ]
        assert target.uncached_series == pods - cap
        assert events(seen)["too_many_series", "lines beyond the cap of remembered series"] == pods - cap
        assert target.parser.remembered == cap
        assert len(seen.holdings) <= cap
        assert sum(row.share for row in seen.holdings) <= 8 + 1e-9


def check_dropped(pods: int, cap: int) -> None:
    """Pod labels dropped at ingest."""
    target = Target(max_series=cap, drop_labels=["exported_pod", "exported_namespace", "exported_container"])
    for minute in range(2):
        at = NOW + timedelta(minutes=minute)
        seen = parse(churned(pods), at, target)
        assert [(row.gpu_uuid, row.ts, row.gpu_util_ratio) for row in seen.readings] == [
            (f"GPU-{gpu}", at, gpu / 10) for gpu in range(8)
        ]
        assert not [row for row in seen.readings if row.quality_flags]
        assert seen.holdings == ()
        assert events(seen)["too_many_series", "lines beyond the cap of remembered series"] == pods - cap


def check_unaffected(pods: int, cap: int) -> None:
    """A healthy target reads the same before and after another's bomb."""
    page, target = healthy()
    before = parse(page, NOW, target)
    parse(churned(pods), NOW, Target(max_series=cap))
    after = parse(page, NOW, target)
    assert (after.reads, after.readings, after.holdings) == (before.reads, before.readings, before.holdings)
    assert events(before) == events(after) == {}
    assert len(before.readings) == len(before.holdings) == 8


@pytest.mark.parametrize("check", [check_capped, check_dropped, check_unaffected])
def test_183_pod_churn_in_small(check):
    check(3050, 500)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_capped, check_dropped, check_unaffected])
def test_183_as_reported(check):
    check(305_000, 50_000)


def large(target: int, cards: int) -> bytes:
    names = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE")
    return "".join(
        f'{name}{{UUID="GPU-{target}-{card}",modelName="NVIDIA H100 80GB HBM3",Hostname="n{target}"}} {number / 10}\n'
        for number, name in enumerate(names, 1)
        for card in range(cards)
    ).encode()


def check_cycle(targets: int, cards: int) -> None:
    """Every card of every target has its row, cold and warm."""
    kept = [Target() for _ in range(targets)]
    for minute in range(2):
        for number, target in enumerate(kept):
            seen = parse(large(number, cards), NOW + timedelta(minutes=minute), target)
            assert len(seen.readings) == cards
            assert {row.gpu_util_ratio for row in seen.readings} == {0.001}
            assert {row.fb_used_bytes for row in seen.readings} == {int(0.2 * 2**20)}
            assert {row.sm_active_ratio for row in seen.readings} == {0.3}
            assert {row.power_watts for row in seen.readings} == {0.4}
            assert (target.uncached_series, events(seen)) == (0, {})


def test_180_a_cycle_in_small():
    check_cycle(5, 20)


@pytest.mark.slow
def test_180_fifty_targets_of_8000_lines():
    """How long it takes is what `benchmarks/scrape_cycle.py` prints."""
    check_cycle(50, 2000)
