"""What dcgm-exporter's pages say: names, units, copies, slices, pods, and values that are none."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dcgm.fields import _FIELDS, RENAMED
from collector.devices.fields import FB_FREE, NVLINK_RX, NVLINK_TX
from collector.sources.dcgm import Target, parse
from gpuledger.model import QualityFlag, Reading

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
COMMON = {"ts", "seen_at", "source", "interval_seconds"}


def shown(reading: Reading) -> dict[str, object]:
    """The reading without what every reading has and what it does not say."""
    rest = {name: value for name, value in dataclasses.asdict(reading).items() if name not in COMMON}
    return {k: v for k, v in rest.items() if v is not None and (v != 0 or k.endswith("_ratio"))} | {
        "slice_id": reading.slice_id
    }


def page(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def only(*lines: str, target: Target | None = None) -> Reading:
    (reading,) = parse(page(*lines), NOW, target).readings
    return reading


@pytest.mark.parametrize("name", ["h100_node", "mig_and_sharing"])
def test_a_recording_gives_the_rows_worked_out_by_hand(recordings, name):
    expected = json.loads((recordings / f"{name}.expected.json").read_text())
    observation = parse((recordings / f"{name}.prom").read_bytes(), NOW)
    reads = [
        {key: getattr(read, key) for key in ("node", "device_count", "skipped_lines")} for read in observation.reads
    ]
    assert reads == expected["reads"]
    readings = sorted(observation.readings, key=lambda reading: (reading.gpu_uuid, reading.slice_id))
    assert [shown(reading) for reading in readings] == expected["readings"]
    holdings = [
        {key: getattr(holding, key) for key in ("gpu_uuid", "slice_id", "namespace", "pod", "container", "share")}
        for holding in sorted(observation.holdings, key=lambda holding: (holding.gpu_uuid, holding.slice_id))
    ]
    assert holdings == expected["holdings"]


def test_every_field_fills_a_column_that_exists():
    columns = {column.name for column in dataclasses.fields(Reading)} | {FB_FREE, NVLINK_RX, NVLINK_TX}
    assert {field.column for field in _FIELDS.values()} <= columns
    assert all(field.low < field.high for field in _FIELDS.values())


@pytest.mark.parametrize(
    ("metric", "raw", "column", "value"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "57", "gpu_util_ratio", 0.57),
        ("DCGM_FI_DEV_GPU_UTIL", "0.5", "gpu_util_ratio", 0.005),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "97", "gpu_util_ratio", 0.97),
        ("dcgm_gpu_utilization", "12", "gpu_util_ratio", 0.12),
        ("dcgm_fi_dev_gpu_util", "12", "gpu_util_ratio", 0.12),
        ("DCGM_FI_DEV_ENC_UTIL", "3", "enc_util_ratio", 0.03),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.45", "gr_engine_active_ratio", 0.45),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", "0.632500", "sm_active_ratio", 0.6325),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "0.412", "tensor_active_ratio", 0.412),
        ("DCGM_FI_PROF_DRAM_UTIL_RATIO", "1", "dram_active_ratio", 1.0),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", "512.345", "power_watts", 512.345),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "55491669881", "energy_joules", 55491669.881),
        ("DCGM_FI_DEV_MEM_CLOCK", "2619", "mem_clock_hertz", 2.619e9),
        ("DCGM_FI_DEV_FB_USED", "1", "fb_used_bytes", 1048576),
        ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "80", "memory_temp_celsius", 80.0),
        ("DCGM_FI_DEV_XID_ERROR", "79", "xid_code", 79),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "68", "throttle_reasons", 68),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "67358889", "pcie_rx_bytes_per_second", 67358889.0),
    ],
)
def test_units_go_by_name(metric, raw, column, value):
    assert getattr(only(f'{metric}{{UUID="GPU-1"}} {raw}'), column) == value


def test_the_renamed_utilization_is_a_ratio_where_the_target_says_so():
    line = 'DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="GPU-1"} 0.97'
    assert only(line, target=Target(gpu_util_ratio_unit="ratio")).gpu_util_ratio == 0.97
    assert only(line).gpu_util_ratio == 0.0097


@pytest.mark.parametrize(
    ("metric", "raw"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "101"),
        ("DCGM_FI_DEV_GPU_UTIL", "-1"),
        ("DCGM_FI_DEV_GPU_UTIL", "NaN"),
        ("DCGM_FI_DEV_GPU_UTIL", "4294967295"),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.000001"),
        ("DCGM_FI_PROF_SM_ACTIVE", "+Inf"),
        ("DCGM_FI_PROF_SM_ACTIVE", "140737488355331.0"),
        ("DCGM_FI_DEV_FB_USED", "2147483632"),
        ("DCGM_FI_DEV_SM_CLOCK", "2147483633"),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355328.0"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9223372036854775793"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "140737488355328"),
        ("DCGM_FI_DEV_MEMORY_TEMP", "2147483635"),
        ("DCGM_FI_DEV_GPU_TEMP", "-275"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "9223372036854775792"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "9.223372036854775792e+18"),
    ],
)
def test_what_is_no_measurement_becomes_none_and_is_counted(metric, raw):
    reading = only(f'{metric}{{UUID="GPU-1"}} {raw}')
    assert shown(reading) == {
        "node": "unknown",
        "gpu_uuid": "GPU-1",
        "slice_id": "",
        "invalid_count": 1,
        "quality_flags": QualityFlag.VALUE_REJECTED,
    }


def test_a_blank_code_is_not_the_counter_beside_it():
    assert only('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-1"} 2147483636').energy_joules == 2147483.636


def test_the_enforced_limit_wins_over_the_requested_one():
    lines = ['DCGM_FI_DEV_POWER_MGMT_LIMIT{UUID="G"} 700', 'DCGM_FI_DEV_ENFORCED_POWER_LIMIT{UUID="G"} 400']
    assert only(*lines).power_limit_watts == 400
    assert only(*reversed(lines)).power_limit_watts == 400


def test_one_link_says_nothing_about_the_device():
    reading = only('DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu_uuid="GPU-1",model_name="NVIDIA H100",nvlink="3"} 500')
    assert (reading.nvlink_bytes_per_second, reading.model) == (None, "H100")


def test_a_byte_counter_is_not_taken_for_a_rate():
    reading = only('DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{UUID="GPU-1"} 5208010000')
    assert (reading.nvlink_bytes_per_second, reading.invalid_count) == (None, 1)


def test_a_mig_parent_keeps_what_is_its_own_and_has_no_utilization():
    observation = parse(
        page(
            'DCGM_FI_DEV_GPU_UTIL{UUID="G",modelName="A100"} 0',
            'DCGM_FI_DEV_MEM_COPY_UTIL{UUID="G",modelName="A100"} 0',
            'DCGM_FI_DEV_POWER_USAGE{UUID="G",modelName="A100"} 300',
            'DCGM_FI_DEV_POWER_USAGE{UUID="G",modelName="A100",GPU_I_ID="1",GPU_I_PROFILE="3g.20gb"} 310',
            'DCGM_FI_DEV_FB_USED{UUID="G",modelName="A100",GPU_I_ID="1",GPU_I_PROFILE="3g.20gb"} 5',
        ),
        NOW,
    )
    parent, part = sorted(observation.readings, key=lambda reading: reading.slice_id)
    assert (parent.gpu_util_ratio, parent.mem_copy_util_ratio, parent.power_watts) == (None, None, 300)
    assert (part.power_watts, part.fb_used_bytes, part.slice_profile) == (None, 5 * 2**20, "3g.20gb")
    assert observation.reads[0].device_count == 1


def test_a_parents_pod_labels_hold_nothing_beside_slices():
    observation = parse(
        page(
            'DCGM_FI_DEV_GPU_UTIL{UUID="G",modelName="A100",namespace="n",pod="whole"} 0',
            'DCGM_FI_PROF_SM_ACTIVE{UUID="G",modelName="A100",GPU_I_ID="1",GPU_I_PROFILE="3g.20gb",pod="p"} 1',
        ),
        NOW,
    )
    assert [(holding.pod, holding.share) for holding in observation.holdings] == [("p", 3 / 7)]


def test_a_slice_of_unknown_size_is_read_and_not_held():
    line = 'DCGM_FI_PROF_SM_ACTIVE{UUID="G",GPU_I_ID="1",GPU_I_PROFILE="3g.20gb",namespace="n",pod="p"} 1'
    observation = parse(page(line), NOW)
    assert (len(observation.readings), observation.holdings) == (1, ())


def test_the_first_drivers_mig_uuid_names_parent_and_instance():
    reading = only('DCGM_FI_PROF_SM_ACTIVE{UUID="MIG-GPU-12ab/4/0"} 0.5')
    assert (reading.gpu_uuid, reading.slice_id) == ("GPU-12ab", "4")


PROF = ("gr_engine_active_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")


def profiled(
    util: int, power: float, *, gr: float, sm: float, tensor: float = 0.0, model: str = "NVIDIA H100"
) -> Reading:
    labels = f'{{UUID="G",modelName="{model}"}}'
    return only(
        f"DCGM_FI_DEV_GPU_UTIL{labels} {util}",
        f"DCGM_FI_DEV_POWER_USAGE{labels} {power}",
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} {gr}",
        f"DCGM_FI_PROF_SM_ACTIVE{labels} {sm}",
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{labels} {tensor}",
    )


@pytest.mark.parametrize(
    ("util", "power", "gr", "sm", "contradicted"),
    [
        (90, 322, 0, 0, True),  # H100: 70 W idle, 700 W full, so that 322 W is 40 % of the band
        (89, 322, 0, 0, False),
        (90, 321.9, 0, 0, False),
        (99, 640, 0.9, 0, True),
        (99, 640, 0.9, 0.01, False),
    ],
)
def test_profiling_counters_that_stand_still_under_load_are_dropped(util, power, gr, sm, contradicted):
    reading = profiled(util, power, gr=gr, sm=sm)
    assert bool(reading.quality_flags & QualityFlag.PROFILING_CONTRADICTED) is contradicted
    assert (reading.sm_active_ratio is None) is contradicted
    assert (reading.tensor_active_ratio is None) is contradicted
    assert reading.gpu_util_ratio == util / 100


def test_no_tensor_work_alone_is_no_contradiction():
    assert profiled(100, 640, gr=1, sm=0.7, tensor=0).tensor_active_ratio == 0


def test_an_unknown_models_power_is_high_above_40_percent_of_its_limit_or_250_watts():
    assert profiled(99, 250, gr=0, sm=0, model="").sm_active_ratio is None
    assert profiled(99, 249, gr=0, sm=0, model="").sm_active_ratio == 0
    labels = '{UUID="G"}'
    lines = [
        f"DCGM_FI_DEV_GPU_UTIL{labels} 99",
        f"DCGM_FI_DEV_POWER_USAGE{labels} 40",
        f"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{labels} 100",
        f"DCGM_FI_PROF_SM_ACTIVE{labels} 0",
    ]
    assert only(*lines).sm_active_ratio is None


def test_the_configured_node_wins_and_localhost_is_no_node():
    line = 'DCGM_FI_DEV_GPU_UTIL{UUID="G",Hostname="exporter-pod"} 1'
    assert only(line, target=Target(node="n1")).node == "n1"
    assert only(line).node == "exporter-pod"
    assert only(line.replace("exporter-pod", "localhost"), target=Target(fallback_node="n2")).node == "n2"
    assert only('DCGM_FI_DEV_GPU_UTIL{UUID="G",instance="10.0.0.5:9400"} 1').node == "10.0.0.5"


def test_a_page_without_devices_is_a_read_of_the_node_seen_before():
    target = Target(fallback_node="address")
    parse(page('DCGM_FI_DEV_GPU_UTIL{UUID="G",Hostname="n1"} 1'), NOW, target)
    (read,) = parse(page("# nothing", "up 1"), NOW, target).reads
    assert (read.ok, read.node, read.device_count) == (True, "n1", 0)


def test_text_that_is_no_page_is_a_failed_read():
    (read,) = parse(b"<html>\n<body>please log in</body>\n", NOW).reads
    assert (read.ok, read.device_count) == (False, None)
    assert read.error is not None
    assert "2 lines" in read.error


def test_a_page_of_two_nodes_reads_both_and_counts_bad_lines_once():
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="G{n}",Hostname="n{n % 2}"}} 1' for n in range(3)]
    reads = parse(page(*lines, "bad line here"), NOW).reads
    assert [(read.node, read.device_count, read.skipped_lines) for read in reads] == [("n0", 2, 1), ("n1", 1, 0)]


def test_a_timestamp_counts_within_the_skew():
    def at(when: datetime, **options: Any) -> datetime:
        stamp = int(when.timestamp() * 1000)
        return only(f'DCGM_FI_DEV_GPU_UTIL{{UUID="G"}} 1 {stamp}', target=Target(**options)).ts

    assert at(NOW - timedelta(minutes=5)) == NOW - timedelta(minutes=5)
    assert at(NOW - timedelta(minutes=11)) == NOW
    assert at(NOW - timedelta(days=1), max_skew_seconds=None) == NOW - timedelta(days=1)
    assert only('DCGM_FI_DEV_GPU_UTIL{UUID="G"} 1 999999999999999999').ts == NOW


def test_a_target_of_churning_pods_is_bounded_and_every_card_keeps_a_value():
    target = Target(max_series=100)
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="G{n % 8}",exported_pod="p{n}"}} {n % 8}' for n in range(1000)]
    for _ in range(2):
        observation = parse(page(*lines), NOW, target)
        assert [reading.gpu_util_ratio for reading in observation.readings] == [n / 100 for n in range(8)]
        assert target.uncached_series == 900
        assert sum(holding.share for holding in observation.holdings) == pytest.approx(8)


def test_the_exporters_own_pod_holds_nothing():
    known = 'DCGM_FI_DEV_GPU_UTIL{UUID="A",namespace="m",pod="exp",exported_namespace="n",exported_pod="p"} 1'
    same = 'DCGM_FI_DEV_GPU_UTIL{UUID="B",namespace="m",pod="exp"} 1'
    named = 'DCGM_FI_DEV_GPU_UTIL{UUID="C",namespace="m",pod="my-dcgm-exporter-x"} 1'
    own = 'DCGM_FI_DEV_GPU_UTIL{UUID="D",pod_namespace="n",pod_name="q",container_name="c"} 1'
    # The order on the page must not matter.
    holdings = parse(page(same, known, named, own), NOW).holdings
    assert [(holding.gpu_uuid, holding.namespace, holding.pod) for holding in holdings] == [
        ("A", "n", "p"),
        ("D", "n", "q"),
    ]


@given(st.binary(max_size=300))
def test_no_page_raises(content):
    observation = parse(content, NOW)
    assert observation.reads
    assert parse(b'DCGM_FI_DEV_GPU_UTIL{UUID="G"} ' + content, NOW).reads


@pytest.mark.parametrize(
    ("metric", "raw", "column", "value"),
    [
        ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "0.25", "fp64_active_ratio", 0.25),
        ("DCGM_FI_PROF_FP32_UTIL_RATIO", "0.5", "fp32_active_ratio", 0.5),
        ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "0.75", "fp16_active_ratio", 0.75),
        ("DCGM_FI_PROF_SM_OCCUPANCY", "0.1", "sm_occupancy_ratio", 0.1),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "7", "pcie_replay_count", 7),
        ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "7", "pcie_replay_count", 7),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "2", "row_remap_uncorrectable_count", 2),
        ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "3", "row_remap_correctable_count", 3),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", "1", "row_remap_failure", 1),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "300", "power_watts", 300.0),
        ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "2", "pcie_tx_bytes_per_second", 2000.0),
        ("dcgm_ecc_dbe_volatile_total", "1", "ecc_uncorrected_count", 1),
        ("dcgm_fi_dev_clocks_event_reasons", "4", "throttle_reasons", 4),
    ],
)
def test_the_further_columns_have_their_names_and_units(metric, raw, column, value):
    assert getattr(only(f'{metric}{{UUID="GPU-1"}} {raw}'), column) == value


def test_a_field_has_one_name_that_is_not_deprecated():
    assert not set(RENAMED) & set(RENAMED.values())
    assert {**RENAMED, **dict.fromkeys(RENAMED.values())}.keys() <= set(_FIELDS)
    assert all(_FIELDS[old].column == _FIELDS[new].column for old, new in RENAMED.items())


def test_two_exporters_and_two_scrapers_show_each_card_once():
    def seen(uuid: str, util: int, **labels: str) -> str:
        text = "".join(f',{name}="{value}"' for name, value in labels.items())
        return f'DCGM_FI_DEV_GPU_UTIL{{UUID="{uuid}"{text}}} {util}'

    paths = [
        {"job": "a", "prometheus_replica": "0", "exported_namespace": "n", "exported_pod": "p"},
        {"job": "b", "prometheus_replica": "0"},
        {"job": "a", "prometheus_replica": "1", "exported_namespace": "n", "exported_pod": "p"},
    ]
    lines = [seen(uuid, util, **path) for uuid, util in (("G", 60), ("H", 30)) for path in paths]
    for order in (lines, lines[::-1]):
        observation = parse(page(*order), NOW)
        assert [reading.gpu_util_ratio for reading in observation.readings] == [0.6, 0.3]
        assert [(held.gpu_uuid, held.pod, held.share) for held in observation.holdings] == [
            ("G", "p", 1),
            ("H", "p", 1),
        ]


def test_a_nodes_label_may_change_its_case_between_two_instants():
    stamp = int(NOW.timestamp() * 1000)
    observation = parse(
        page(
            f'DCGM_FI_DEV_GPU_UTIL{{UUID="G",Hostname="n1"}} 40 {stamp - 60_000}',
            f'DCGM_FI_DEV_GPU_UTIL{{UUID="G",hostname="n1"}} 42 {stamp}',
        ),
        NOW,
    )
    assert [(reading.node, reading.gpu_util_ratio) for reading in observation.readings] == [("n1", 0.4), ("n1", 0.42)]
    assert [(read.node, read.device_count) for read in observation.reads] == [("n1", 1), ("n1", 1)]


@pytest.mark.parametrize(
    ("memory", "used", "reserved", "total"),
    [
        ({"USED": 30, "FREE": 60, "RESERVED": 10}, 30, 10, 100),
        ({"USED": 40, "FREE": 60}, 40, None, 100),
        ({"USED": 40, "FREE": 60, "TOTAL": 101}, 40, None, 101),
        ({"USED": 40}, 40, None, None),
        ({"FREE": 60}, None, None, None),
    ],
)
def test_total_memory_is_its_parts_where_nobody_states_it(memory, used, reserved, total):
    reading = only(*(f'DCGM_FI_DEV_FB_{name}{{UUID="G"}} {mib}' for name, mib in memory.items()))
    seen = (reading.fb_used_bytes, reading.fb_reserved_bytes, reading.fb_total_bytes)
    assert seen == tuple(None if mib is None else mib * 2**20 for mib in (used, reserved, total))


@pytest.mark.parametrize("namespace", ["'; DROP TABLE reading; --", "%_", 'x\\"} or up{a=\\"', "a' OR '1'='1"])
def test_hostile_names_are_names(namespace):
    written = namespace.replace('\\"', '"')
    (held,) = parse(
        page(f'DCGM_FI_DEV_GPU_UTIL{{UUID="G",exported_namespace="{namespace}",exported_pod="p"}} 1'), NOW
    ).holdings
    assert held.namespace == written
