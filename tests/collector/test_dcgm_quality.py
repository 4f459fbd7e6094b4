"""What a page of dcgm-exporter gives as quality events: what was wrong with it, and what its labels cost."""

from __future__ import annotations

from datetime import UTC, datetime

from collector.devices import page as pages
from collector.sources.dcgm import Target, parse
from gpuledger.ports import Observation

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def page(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def noticed(observation: Observation) -> list[tuple[str, str, str, int]]:
    events = observation.others.get("quality_event", ())
    assert all(event.source == "dcgm" and event.ts == NOW for event in events)
    return sorted((event.kind, event.subject, event.detail, event.count) for event in events)


def test_a_page_of_the_newest_names_gives_no_event():
    observation = parse(page('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="G",DCGM_FI_DRIVER_VERSION="550",job="j"} 1'), NOW)
    assert observation.others == {}


def test_a_deprecated_name_is_told_once_a_target():
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="G{n}"}} 1' for n in range(3)]
    lines.append('dcgm_power_usage{UUID="G0"} 1')
    target = Target(node="n1")
    assert noticed(parse(page(*lines), NOW, target)) == [
        ("renamed_metric", "n1", "DCGM_FI_DEV_GPU_UTIL -> DCGM_FI_DEV_GPU_UTIL_RATIO", 1),
        ("renamed_metric", "n1", "dcgm_power_usage -> DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
    ]
    assert noticed(parse(page(*lines, 'DCGM_FI_DEV_GPU_UTIL{UUID="G9"} 1'), NOW, target)) == []


def test_dropped_labels_are_told_once_a_series():
    line, target = 'DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="G",team="a",rack="b"} 1', Target(node="n1")
    assert noticed(parse(page(line), NOW, target)) == [("dropped_label", "n1", "", 2)]
    assert noticed(parse(page(line), NOW, target)) == []
    more = line.replace('"G"', '"H"')
    assert noticed(parse(page(line, more), NOW, target)) == [("dropped_label", "n1", "", 2)]


def test_a_target_beyond_its_cap_is_named_at_every_read():
    target = Target(max_series=4, node="n1")
    lines = [f'DCGM_FI_DEV_GPU_UTIL_RATIO{{UUID="G{n % 2}",exported_pod="p{n}"}} {n % 2}' for n in range(9)]
    for _ in range(2):
        observation = parse(page(*lines), NOW, target)
        assert ("too_many_series", "n1", "lines beyond the cap of remembered series", 5) in noticed(observation)
        assert [reading.gpu_util_ratio for reading in observation.readings] == [0.0, 0.01]


def test_a_target_that_makes_up_cards_is_cut_off_and_named(monkeypatch):
    monkeypatch.setattr(pages, "MAX_ROWS", 3)
    lines = [f'DCGM_FI_DEV_GPU_UTIL_RATIO{{UUID="G{n}",exported_pod="p"}} 1' for n in range(5)]
    observation = parse(page(*lines), NOW, Target(node="n1"))
    assert (len(observation.readings), len(observation.holdings), observation.reads[0].device_count) == (3, 3, 5)
    assert noticed(observation) == [("too_many_series", "n1", "cards and slices beyond what one page may show", 2)]


def test_refused_lines_are_told_by_reason_and_counted_with_the_first_node():
    line = 'DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="G",Hostname="n1"} 1'
    observation = parse(page(line, line.replace("} 1", "} one"), line.replace("} 1", "} two"), "bad line here"), NOW)
    told = [(subject, count) for kind, subject, _, count in noticed(observation) if kind == "refused_line"]
    assert (sum(count for _, count in told), {subject for subject, _ in told}) == (3, {"unknown"})
    assert [read.skipped_lines for read in observation.reads] == [3]


def test_a_contradiction_is_told_with_the_columns_it_cost():
    labels = '{UUID="G",modelName="NVIDIA H100"}'
    observation = parse(
        page(
            f"DCGM_FI_DEV_GPU_UTIL_RATIO{labels} 99",
            f"DCGM_FI_DEV_BOARD_POWER_WATTS{labels} 640",
            f"DCGM_FI_PROF_SM_UTIL_RATIO{labels} 0",
            f"DCGM_FI_PROF_SM_OCCUPANCY_RATIO{labels} 0",
            f"DCGM_FI_PROF_FP16_UTIL_RATIO{labels} 0",
            f"DCGM_FI_PROF_DRAM_UTIL_RATIO{labels} 0.2",
        ),
        NOW,
    )
    assert noticed(observation) == [("contradiction", "G", "profiling counters at zero under load", 3)]
    (reading,) = observation.readings
    assert (reading.sm_occupancy_ratio, reading.fp16_active_ratio, reading.dram_active_ratio) == (None, None, 0.2)
