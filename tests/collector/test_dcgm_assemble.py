"""Assembling by columns: what holds for any set of samples, and rules that a page alone does not show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.dcgm.labels import SeriesReader
from collector.devices.assemble import Assembled, Options, assemble
from collector.devices.roster import Roster
from collector.devices.subject import DeviceSeries
from collector.exposition import Series
from collector.samples import Samples
from gpuledger.model import QualityFlag, arrow_schema

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)

Sample = tuple[DeviceSeries, float, int | None]


def series(reader: SeriesReader, name: str, **labels: str) -> DeviceSeries:
    found = reader.read(Series(name, {"UUID": "G", **labels}))
    assert found is not None
    return found


def made(samples: Iterable[Sample], reader: SeriesReader, **options: Any) -> Assembled:
    return assemble(Samples.of(samples), Options(now=NOW, source="test", holder=reader.holder, **options))


def rows(of: Assembled) -> dict[str, list[dict[str, Any]]]:
    tables = {"reading": of.readings, "holding": of.holdings, "source_read": of.reads, "quality_event": of.events}
    for name, table in tables.items():
        assert table.schema == arrow_schema(name)
    return {name: sorted(table.to_pylist(), key=repr) for name, table in tables.items()}


METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "DCGM_EXP_XID_ERRORS_COUNT",
    "DCGM_EXP_CLOCK_EVENTS_COUNT",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
)
WHERE: tuple[dict[str, str], ...] = (
    {"UUID": "A", "modelName": "NVIDIA A30", "Hostname": "n1"},
    {"UUID": "A", "modelName": "NVIDIA A30", "GPU_I_ID": "1", "GPU_I_PROFILE": "1g.6gb"},
    {"UUID": "A", "GPU_I_ID": "2", "GPU_I_PROFILE": "2g.12gb", "instance": "10.0.0.1:9400"},
    {"UUID": "B", "Hostname": "n2"},
    {"UUID": "MIG-C"},
)
WHO: tuple[dict[str, str], ...] = (
    {},
    {"exported_namespace": "n", "exported_pod": "p", "exported_container": "c"},
    {"exported_namespace": "n", "exported_pod": "q"},
    {"exported_namespace": "n", "exported_pod": "q", "vgpu": "1"},
    {"hpc_job": "42_7.0"},
)
WHAT: tuple[dict[str, str], ...] = (
    {"xid": "79", "clock_event": "gpu_idle"},
    {"xid": "13", "clock_event": "hw_thermal"},
)
VALUES = st.sampled_from([0.0, 0.5, 1.0, 1.01, 1.3, 95.0, 160.0, 4000.0, 2.0**31 - 16, 2.0**63, float("nan")])
KEYS = st.tuples(
    st.sampled_from(METRICS),
    st.sampled_from(WHERE),
    st.sampled_from(WHO),
    st.sampled_from(WHAT),
    st.sampled_from([None, NOW_MS, NOW_MS - 15_000, NOW_MS + 10**9]),
)


@st.composite
def known(draw: st.DrawFn) -> tuple[SeriesReader, list[Sample]]:
    """Some samples; each series has one value at each instant."""
    reader = SeriesReader()
    told: dict[tuple[int, int | None], Sample] = {}
    written: dict[str, DeviceSeries] = {}
    for name, where, who, what, at in draw(st.lists(KEYS, max_size=25)):
        labels = where | who | what
        one = written.setdefault(f"{name}{sorted(labels.items())}", series(reader, name, **labels))
        # What has no time, or one that is not believed, has the instant of the read.
        instant = NOW_MS if at is None or at > NOW_MS else at
        told.setdefault((id(one), instant), (one, draw(VALUES), at))
    return reader, list(told.values())


@settings(deadline=None)
@given(known(), st.data())
def test_order_and_repetition_change_nothing(samples: tuple[SeriesReader, list[Sample]], data: st.DataObject):
    reader, told = samples
    again = data.draw(st.lists(st.sampled_from(told), max_size=10)) if told else []
    shuffled = data.draw(st.permutations([*told, *again]))
    assert rows(made(shuffled, reader, max_skew_seconds=600)) == rows(made(told, reader, max_skew_seconds=600))


@settings(deadline=None)
@given(known())
def test_an_instants_rows_are_those_of_its_own_samples(samples: tuple[SeriesReader, list[Sample]]):
    reader, told = samples
    whole = rows(made(told, reader, max_skew_seconds=600))
    parts: dict[str, list[dict[str, Any]]] = {"reading": [], "holding": [], "source_read": []}
    for instants in ((None, NOW_MS, NOW_MS + 10**9), (NOW_MS - 15_000,)):
        part = rows(made([sample for sample in told if sample[2] in instants], reader, max_skew_seconds=600))
        parts = {name: of + part[name] for name, of in parts.items()}
    for name, of in parts.items():
        assert sorted(of, key=repr) == whole[name]


@settings(deadline=None)
@given(known())
def test_a_roster_gives_what_a_list_gives(samples: tuple[SeriesReader, list[Sample]]):
    reader, told = samples
    plain, roster = Samples.of(told), Roster()
    spare = series(reader, "DCGM_FI_DEV_GPU_UTIL", UUID="not in the batch")
    numbers = np.array([roster.append(one) for one in [spare, *plain.meanings]], np.int64)[1:]
    kept = Samples(roster, numbers[plain.series], plain.values, plain.times_ms)
    options = Options(now=NOW, source="test", holder=reader.holder)
    assert rows(assemble(kept, options)) == rows(assemble(plain, options))


@settings(deadline=None)
@given(known())
def test_no_card_is_held_more_than_once(samples: tuple[SeriesReader, list[Sample]]):
    reader, told = samples
    shares: dict[tuple[Any, ...], float] = {}
    for holding in made(told, reader, max_skew_seconds=600).holdings.to_pylist():
        key = (holding["gpu_uuid"], holding["ts"])
        shares[key] = shares.get(key, 0.0) + holding["share"]
    assert all(share <= 1 + 1e-12 for share in shares.values())


def test_of_two_values_of_one_series_at_one_instant_the_first_counts():
    reader = SeriesReader()
    one = series(reader, "DCGM_FI_DEV_GPU_UTIL")
    (row,) = made([(one, 41, NOW_MS), (one, 97, NOW_MS)], reader).readings.to_pylist()
    assert (row["gpu_util_ratio"], row["quality_flags"]) == (0.41, 0)
    (row,) = made([(one, 400, NOW_MS), (one, 97, NOW_MS)], reader).readings.to_pylist()
    assert (row["gpu_util_ratio"], row["invalid_count"]) == (None, 1)


def test_nothing_gives_nothing():
    of = assemble(Samples.of([]), Options(now=NOW, source="test"))
    assert rows(of) == {"reading": [], "holding": [], "source_read": [], "quality_event": []}


def test_a_source_that_does_not_say_how_often_it_reads_has_no_interval():
    reader = SeriesReader()
    one = series(reader, "DCGM_FI_DEV_GPU_UTIL", Hostname="n1", exported_pod="p")
    of = made([(one, 41, NOW_MS - 60_000)], reader)
    assert of.readings["interval_seconds"].to_pylist() == [None]
    assert of.holdings["interval_seconds"].to_pylist() == [None]
    (read,) = of.reads.to_pylist()
    assert (read["ts"], read["node"], read["interval_seconds"]) == (NOW - timedelta(minutes=1), "n1", None)
    assert of.readings["seen_at"].to_pylist() == [NOW]


def test_a_nodes_name_is_better_than_its_address():
    reader = SeriesReader()
    named = series(reader, "DCGM_FI_DEV_GPU_UTIL", Hostname="worker", instance="10.0.0.1:9400")
    address = series(reader, "DCGM_FI_DEV_POWER_USAGE", instance="10.0.0.1:9400")
    for samples in ([(named, 1.0, None), (address, 1.0, None)], [(address, 1.0, None), (named, 1.0, None)]):
        assert made(samples, reader).readings["node"].to_pylist() == ["worker"]


def test_clocks_that_are_apart_are_told_once_a_node_in_seconds():
    reader = SeriesReader()
    late = [series(reader, "DCGM_FI_DEV_GPU_UTIL", UUID=uuid, Hostname="n1") for uuid in ("A", "B")]
    fine = series(reader, "DCGM_FI_DEV_GPU_UTIL", UUID="C", Hostname="n2")
    samples = [(late[0], 1.0, NOW_MS - 700_000), (late[1], 1.0, NOW_MS - 900_000), (fine, 1.0, NOW_MS - 60_000)]
    of = made(samples, reader, max_skew_seconds=600)
    (event,) = of.events.to_pylist()
    assert (event["kind"], event["subject_kind"], event["subject"], event["count"]) == ("clock_skew", "node", "n1", 900)
    assert of.readings["ts"].to_pylist() == [NOW, NOW, NOW - timedelta(minutes=1)]
    assert made(samples, reader).events.num_rows == 0


@pytest.mark.parametrize(
    ("first", "second", "claimants"),
    [
        ({"exported_pod": "p"}, {"exported_pod": "q"}, "n/p, n/q"),
        ({"exported_pod": "p"}, {"exported_pod": "p", "exported_container": "c"}, None),
        ({"exported_pod": "p", "vgpu": "0"}, {"exported_pod": "q", "vgpu": "1"}, None),
        ({"hpc_job": "42"}, {"hpc_job": "43"}, None),
        ({"exported_pod": "p", "dra_claim_name": "c"}, {"exported_pod": "q", "dra_claim_name": "c"}, None),
        (
            {"exported_pod": "p", "dra_claim_name": "c"},
            {"exported_pod": "q", "dra_claim_name": "d"},
            "claim n/c, claim n/d",
        ),
        ({"exported_pod": "p"}, {}, None),
    ],
)
def test_two_claims_on_one_card_are_told(first: dict[str, str], second: dict[str, str], claimants: str | None):
    reader = SeriesReader()
    where = {"exported_namespace": "n", "dra_claim_namespace": "n"}
    samples: Sequence[Sample] = [
        (series(reader, "DCGM_FI_DEV_GPU_UTIL", **where, **first), 1.0, None),
        (series(reader, "DCGM_FI_DEV_POWER_USAGE", **where, **second), 1.0, None),
    ]
    of = made(samples, reader)
    told = [event["detail"] for event in of.events.to_pylist() if event["kind"] == "double_claim"]
    assert told == ([claimants] if claimants else [])
    assert sum(of.holdings["share"].to_pylist()) == 1


def test_two_claims_on_one_slice_are_told_and_on_two_slices_not():
    reader = SeriesReader()
    where = {"modelName": "A100", "GPU_I_PROFILE": "3g.20gb", "exported_namespace": "n"}

    def held(slice_id: str, pod: str) -> Sample:
        return series(reader, "DCGM_FI_PROF_SM_ACTIVE", GPU_I_ID=slice_id, exported_pod=pod, **where), 1.0, None

    apart = made([held("1", "p"), held("2", "q")], reader)
    assert (apart.events.num_rows, apart.holdings["share"].to_pylist()) == (0, [3 / 7, 3 / 7])
    same = made([held("1", "p"), held("1", "q")], reader)
    (event,) = same.events.to_pylist()
    assert (event["detail"], event["count"], event["subject"]) == ("slice 1: n/p, n/q", 2, "G")
    assert same.holdings["share"].to_pylist() == [3 / 14, 3 / 14]


@pytest.mark.parametrize(
    ("written", "slice_id", "value", "flags"),
    [
        (1.05, "1", 1.0, QualityFlag.RATIO_CLAMPED),
        (1.0501, "1", None, QualityFlag.VALUE_REJECTED),
        (1.294, "1", None, QualityFlag.VALUE_REJECTED),  # as seen on slices of unequal size
        (1.05, "", None, QualityFlag.VALUE_REJECTED),
        (1.0, "1", 1.0, 0),
    ],
)
def test_a_slice_a_little_above_one_is_one(written: float, slice_id: str, value: float | None, flags: int):
    reader = SeriesReader()
    one = series(reader, "DCGM_FI_PROF_SM_ACTIVE", GPU_I_ID=slice_id)
    (row,) = made([(one, written, None)], reader).readings.to_pylist()
    assert (row["sm_active_ratio"], row["quality_flags"]) == (value, flags)


def test_a_slices_percentage_above_a_hundred_is_none():
    reader = SeriesReader()
    one = series(reader, "DCGM_FI_DEV_ENC_UTIL", GPU_I_ID="1")
    (row,) = made([(one, 101, None)], reader).readings.to_pylist()
    assert (row["enc_util_ratio"], row["invalid_count"]) == (None, 1)


@pytest.mark.parametrize("blank", [2.0**31 - 16, 2.0**31 - 13, 2.0**47, 2.0**47 + 3, 2.0**63])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e3, 1e6])
@pytest.mark.parametrize(
    "name",
    [
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_PROF_SM_OCCUPANCY",
    ],
)
def test_a_scaled_blank_is_no_value_of_any_metric(blank: float, scale: float, name: str):
    reader = SeriesReader()
    (row,) = made([(series(reader, name), blank * scale, None)], reader).readings.to_pylist()
    assert (row["invalid_count"], row["quality_flags"]) == (1, QualityFlag.VALUE_REJECTED)


def counted(*samples: tuple[str, dict[str, str], float]) -> dict[str, Any]:
    reader = SeriesReader()
    told: list[Sample] = [(series(reader, name, **labels), value, None) for name, labels, value in samples]
    (row,) = made(told, reader).readings.to_pylist()
    return {name: of for name, of in row.items() if of and name in {"xid_code", "throttle_reasons", "quality_flags"}}


XID, CLOCK = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT"


def test_an_error_that_was_counted_lately_beats_the_last_one_ever():
    assert counted((XID, {"xid": "42"}, 1), ("DCGM_FI_DEV_XID_ERRORS", {}, 45)) == {"xid_code": 42}
    assert counted((XID, {"xid": "42"}, 0), ("DCGM_FI_DEV_XID_ERRORS", {}, 45)) == {"xid_code": 45}
    assert counted((XID, {"xid": "42"}, 2), (XID, {"xid": "79"}, 1)) == {"xid_code": 79}
    assert counted((XID, {"xid": "a sentence"}, 2)) == {}
    assert counted((XID, {"xid": "42"}, 2.0**31 - 16)) == {"quality_flags": QualityFlag.VALUE_REJECTED}


def test_counted_clock_events_are_bits_and_the_drivers_mask_beats_them():
    events = [(CLOCK, {"clock_event": "power_cap"}, 3.0), (CLOCK, {"clock_event": "hw_thermal"}, 1.0)]
    assert counted(*events) == {"throttle_reasons": 0x44}
    assert counted(*events, (CLOCK, {"clock_event": "sync_boost"}, 0)) == {"throttle_reasons": 0x44}
    assert counted(*events, ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", {}, 8)) == {"throttle_reasons": 8}
    assert counted((CLOCK, {"clock_event": "of a later version"}, 1)) == {}


def test_a_claims_slice_is_the_instance_where_that_is_named():
    reader = SeriesReader()
    claim = {"dra_mig_device_uuid": "MIG-77", "dra_mig_profile": "1g.5gb", "modelName": "A100", "exported_pod": "p"}
    named = series(reader, "DCGM_FI_PROF_SM_ACTIVE", GPU_I_ID="3", **claim)
    unnamed = series(reader, "DCGM_FI_PROF_SM_ACTIVE", UUID="H", **claim)
    of = made([(named, 0.5, None), (unnamed, 0.5, None)], reader)
    told = [(row["gpu_uuid"], row["slice_id"], row["slice_profile"]) for row in of.readings.to_pylist()]
    assert told == [("G", "3", "1g.5gb"), ("H", "MIG-77", "1g.5gb")]
    assert of.holdings["share"].to_pylist() == [1 / 7, 1 / 7]


def test_a_job_holds_its_card_by_its_id_as_written():
    reader = SeriesReader()
    ids = ("1234_7", "1234_8.batch")
    samples: list[Sample] = [(series(reader, "DCGM_FI_DEV_GPU_UTIL", hpc_job=job), 50.0, None) for job in ids]
    told = [
        (row["namespace"], row["pod"], row["container"], row["share"])
        for row in made(samples, reader).holdings.to_pylist()
    ]
    assert sorted(told) == [("slurm", "1234_7", None, 0.5), ("slurm", "1234_8.batch", None, 0.5)]


def test_a_profile_without_an_instance_makes_no_slice_of_a_card():
    reader = SeriesReader()
    one = series(reader, "DCGM_FI_DEV_GPU_UTIL", modelName="A100", GPU_I_PROFILE="3g.20gb", exported_pod="p")
    of = made([(one, 50, None)], reader)
    assert (of.readings["slice_id"].to_pylist(), of.readings["slice_profile"].to_pylist()) == ([""], [None])
    assert of.holdings["share"].to_pylist() == [1.0]
