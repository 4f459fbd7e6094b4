"""Pages of the public record and the known problems' inputs, with the values that their description gives."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from collector.nvml.records import occupied_memory
from collector.sources.dcgm import Target, parse
from gpuledger.model import QualityFlag, Reading
from gpuledger.ports import Observation

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)

DEVICES = {
    "dcgm_1x_compat_names.prom": (1, 0),
    "dcgm_4.6_renamed_fields.prom": (1, 0),
    "dcgm_8gpu_h100_generated.prom": (8, 0),
    "dcgm_bad_unescaped_label.prom": (2, 2),
    "dcgm_blank_sentinels.prom": (4, 0),
    "dcgm_hpc_job_4.8.prom": (4, 0),
    "dcgm_k8s_empty_pod_labels_v100.prom": (1, 0),
    "dcgm_k8s_mixed_mig_4.x.prom": (2, 0),
    "dcgm_k8s_pod_attributed_a10g.prom": (2, 0),
    "dcgm_mig_a30_3.x.prom": (3, 0),
    "dcgm_mig_old_namespace.prom": (2, 0),
    "dcgm_plain_t4_2.x.prom": (2, 0),
    "dcgm_vgpu_timeslice_4.x.prom": (1, 0),
    "dcgm_xid_and_clock_events_exp.prom": (1, 0),
}


@pytest.fixture
def problem(shared):
    def read(name: str, target: Target | None = None) -> Observation:
        return parse((shared / "problems" / name).read_bytes(), NOW, target)

    return read


def test_every_dcgm_page_is_known_here(shared):
    assert {path.name for path in (shared / "fixtures/exposition").glob("dcgm_*.prom")} == set(DEVICES)


@pytest.mark.parametrize("name", DEVICES)
def test_a_published_page_is_read(shared, name):
    observation = parse((shared / "fixtures/exposition" / name).read_bytes(), NOW)
    assert all(read.ok and read.device_count is not None for read in observation.reads)
    counted = (
        sum(read.device_count or 0 for read in observation.reads),
        sum(read.skipped_lines for read in observation.reads),
    )
    assert counted == DEVICES[name]
    keys = Counter((reading.gpu_uuid, reading.slice_id, reading.ts, reading.source) for reading in observation.readings)
    assert max(keys.values()) == 1


@pytest.mark.parametrize("pattern", ["amd_*", "hami_*", "kueue_*", "npu_*", "ray_*", "sglang_*", "vllm_*", "node_*"])
def test_other_exporters_pages_show_no_nvidia_card(shared, pattern):
    for path in (shared / "fixtures/exposition").glob(f"{pattern}.prom"):
        assert parse(path.read_bytes(), NOW).readings == (), path.name


def test_a_mig_cards_energy_is_the_largest_copy_once(shared):
    observation = parse((shared / "fixtures/exposition/dcgm_mig_a30_3.x.prom").read_bytes(), NOW)
    energies = {r.gpu_uuid: r.energy_joules for r in observation.readings if r.energy_joules is not None}
    assert energies == {
        "GPU-265c9814-6156-355b-e589-ff2064894f16": 126272106.318,
        "GPU-2d20791a-b4a6-ba59-97f1-e95b99fe5b49": 134473486.744,
    }
    assert all(reading.slice_id == "" for reading in observation.readings if reading.energy_joules is not None)


def test_001_rare_outliers_are_dropped_not_clamped(shared):
    target = Target(max_skew_seconds=None, node="n")
    readings: list[Reading] = []
    with (shared / "problems/001-util-outliers.csv").open() as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["ts"])
            line = f'{row["metric"]}{{UUID="{row["uuid"]}"}} {row["value"]}\n'
            readings += parse(line.encode(), at, target).readings
    valid = [reading.gpu_util_ratio for reading in readings if reading.gpu_util_ratio is not None]
    assert (len(valid), len(readings), sum(reading.invalid_count for reading in readings)) == (57, 60, 3)
    assert (sum(valid) / len(valid), max(valid)) == (0.5, 0.5)


def test_002_blank_codes_are_null(problem):
    observation = problem("002-dcgm-blanks.prom")
    by_uuid = {reading.gpu_uuid: reading for reading in observation.readings}
    good = by_uuid.pop("GPU-aaaa0002")
    assert (good.gpu_util_ratio, good.sm_active_ratio, good.pcie_tx_bytes_per_second) == (0.37, 0.41, 67358889)
    for reading in by_uuid.values():
        assert (reading.gpu_util_ratio, reading.sm_active_ratio, reading.pcie_tx_bytes_per_second) == (None,) * 3
        assert (reading.invalid_count, reading.quality_flags) == (3, QualityFlag.VALUE_REJECTED)
    assert observation.reads[0].device_count == 3  # the re-exported blank names no device


def test_006_profiling_zeros_are_contradicted(problem):
    observation = problem("006-prof-silent-zero.prom")
    readings = observation.readings
    assert len(readings) == 8
    assert sum(reading.gpu_util_ratio for reading in readings) / 8 == pytest.approx(0.995)
    assert all(reading.gr_engine_active_ratio is None for reading in readings)
    assert all(reading.quality_flags == QualityFlag.PROFILING_CONTRADICTED for reading in readings)
    told = [event for event in observation.others["quality_event"] if event.kind == "contradiction"]
    assert sorted(event.subject for event in told) == [f"GPU-dddd000{number}" for number in range(8)]
    assert {(event.subject_kind, event.count) for event in told} == {("gpu", 1)}


def test_010_a_mig_card_counts_once(problem):
    observation = problem("010-mig-parent-and-slices.prom")
    assert observation.reads[0].device_count == 1
    by_slice = {reading.slice_id: reading for reading in observation.readings}
    assert by_slice[""].gpu_util_ratio is None
    assert by_slice[""].gr_engine_active_ratio == 0.457143
    assert {holding.pod: holding.share for holding in observation.holdings} == {"train-a": 3 / 7, "infer-b": 4 / 7}
    hours = {holding.namespace: 2 * holding.share for holding in observation.holdings}
    assert (round(hours["team-a"], 3), round(hours["team-b"], 3), sum(hours.values())) == (0.857, 1.143, 2.0)
    activity = sum(by_slice[h.slice_id].gr_engine_active_ratio * h.share for h in observation.holdings)
    assert round(activity, 3) == 0.457


def test_012_time_sliced_copies_are_one_card(problem):
    observation = problem("012-timeslicing-copies.prom")
    (reading,) = observation.readings
    assert (reading.power_watts, reading.gpu_util_ratio, observation.reads[0].device_count) == (68, 0.9, 1)
    assert reading.quality_flags == QualityFlag.DUPLICATE_COPIES
    assert [holding.share for holding in observation.holdings] == [0.25] * 4


def test_023_exported_labels_win(problem):
    observation = problem("023-exported-labels.prom")
    held = {holding.gpu_uuid: (holding.namespace, holding.pod) for holding in observation.holdings}
    assert held == {"GPU-hl-0": ("ml-train", "bert-0"), "GPU-hl-2": ("ml-infer", "qa-0")}


def test_024_three_paths_are_two_cards(problem):
    observation = problem("024-three-paths-two-gpus.prom")
    assert [reading.gpu_util_ratio for reading in observation.readings] == [0.8, 0.2]
    assert [(h.namespace, h.pod, h.share) for h in observation.holdings] == [
        ("team-a", "job-0", 1),
        ("team-a", "job-1", 1),
    ]


def test_051_one_node_whatever_the_labels_case(problem):
    observation = problem("051-hostname-case.prom", Target(max_skew_seconds=None))
    assert {(r.node, r.gpu_uuid) for r in observation.readings} == {("gpu-node-10", "GPU-case-0")}
    assert [(r.ts.minute, r.gpu_util_ratio) for r in observation.readings] == [(0, 0.5), (1, 0.52)]


def test_053_label_text_survives(problem):
    observation = problem("053-label-escapes.prom")
    assert [round(100 * reading.gpu_util_ratio) for reading in observation.readings] == [1, 2, 3, 4, 5, 6]
    pods = ["{plpgsql}", "a,b=c", 'say "hi"', "C:\\jobs\\x", "line1\nline2", "训练任务-🚀"]
    assert [holding.pod for holding in observation.holdings] == pods
    assert observation.reads[0].skipped_lines == 0


def test_060_percent_and_ratio_are_45_percent_each(problem):
    observation = problem("060-percent-vs-ratio.prom")
    busy = [r.gr_engine_active_ratio if r.gpu_util_ratio is None else r.gpu_util_ratio for r in observation.readings]
    assert busy == [0.45, 0.45, 0.45]
    assert observation.reads[0].device_count == 2
    assert [reading.slice_id for reading in observation.readings] == ["", "", "MIG-u-1"]


def test_064_reserved_memory_is_not_the_workloads(shared):
    given = json.loads((shared / "problems/064-reserved-memory.json").read_text())
    lines = [f'DCGM_FI_DEV_{name}{{UUID="G"}} {value}' for name, value in given["dcgm_mib"].items()]
    (reading,) = parse("\n".join(lines).encode(), NOW).readings
    memory = given["nvml_v1_bytes"]
    from_nvml = occupied_memory(
        {"total": memory["total"], "used": memory["used"], "reserved": None}, len(given["processes"])
    )
    expected = {"fb_used_bytes": 0, "fb_reserved_bytes": 308 * 2**20, "fb_total_bytes": 11811160064}
    assert {column: getattr(reading, column) for column in expected} == expected
    assert from_nvml == expected


def test_065_copy_activity_is_not_occupancy(problem):
    (reading,) = problem("065-copy-util-vs-occupancy.prom").readings
    assert round(100 * reading.fb_used_bytes / reading.fb_total_bytes, 1) == 96.3
    assert reading.mem_copy_util_ratio == 0.02


def test_182_forty_labels_are_one_series_and_34_dropped_labels(problem):
    target = Target()
    for _ in range(2):
        observation = problem("182-forty-labels.prom", target)
        assert [reading.gpu_util_ratio for reading in observation.readings] == [0.55]
        assert target.series.dropped_labels == 34
    events = [*problem("182-forty-labels.prom").others["quality_event"]]
    assert [event.count for event in events if event.kind == "dropped_label"] == [34]


def test_183_churning_pods_cap_their_target_and_leave_every_card():
    """The 305,000 series, generated as described; the healthy target has a cache of its own."""
    target, healthy = Target(node="churning"), Target(node="healthy")
    page = "".join(f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{n % 8}",exported_pod="p{n}"}} {n % 8}\n' for n in range(305_000))
    observation = parse(page.encode(), NOW, target)
    assert [reading.gpu_util_ratio for reading in observation.readings] == [n / 100 for n in range(8)]
    told = [event for event in observation.others["quality_event"] if event.kind == "too_many_series"]
    assert [(event.subject, event.count) for event in told] == [("churning", 255_000)]
    assert parse(b'DCGM_FI_DEV_GPU_UTIL{UUID="G"} 5\n', NOW, healthy).readings[0].gpu_util_ratio == 0.05
    assert healthy.uncached_series == 0
