"""Pages of servers of models: every published one and ours against rows written by reading it, and bad pages."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from collector.building import build_sources
from collector.serving import Target, parse
from collector.settings import load
from collector.sources.sglang import DIALECT as SGLANG
from collector.sources.vllm import DIALECT as VLLM
from collector.sources.vllm import VllmSource
from gpuledger.errors import ConfigError
from gpuledger.model import EngineReading, QualityEvent
from gpuledger.ports import Observation

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EXPECTED = Path(__file__).resolve().parents[1] / "expected"
DIALECTS = {"vllm": VLLM, "sglang": SGLANG}
NAMES = [(server, path.stem) for server in DIALECTS for path in sorted((EXPECTED / server).glob("*.yaml"))]
IDENTITY = {
    *("ts", "source", "target", "cluster", "namespace", "pod", "workload_id"),
    *("model_name", "role", "engine", "interval_seconds"),
}
LABELS = 'engine="0",model_name="m"'


def page_of(name: str) -> bytes:
    ours = Path(__file__).parent / "recordings" / f"{name}.prom"
    theirs = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "exposition" / f"{name}.prom"
    if not ours.exists() and not theirs.exists():
        pytest.skip("../shared is absent: this checkout has no public recordings beside it")
    return (ours if ours.exists() else theirs).read_bytes()


def read(server: str, page: bytes | str, target: Target | None = None, at: datetime = NOW) -> Observation:
    content = page if isinstance(page, bytes) else page.encode()
    return parse(content, at, target or Target(DIALECTS[server]))


def engines(observation: Observation) -> list[EngineReading]:
    return list(observation.others.get("engine_reading", ()))


def events(observation: Observation, kind: str) -> dict[str, int]:
    told: list[QualityEvent] = list(observation.others.get("quality_event", ()))
    return {event.detail: event.count for event in told if event.kind == kind}


def row_of(reading: EngineReading) -> dict[str, Any]:
    values = {name: of for name, of in dataclasses.asdict(reading).items() if name not in IDENTITY and of is not None}
    return {"model": reading.model_name, "role": reading.role, "engine": reading.engine, "values": values}


@pytest.mark.parametrize("server", DIALECTS)
def test_every_published_page_has_an_expected_file(shared, server):
    published = {path.stem for path in (shared / "fixtures/exposition").glob(f"{server}_*.prom")}
    assert published <= {name for known, name in NAMES if known == server}


@pytest.mark.parametrize(("server", "name"), NAMES)
def test_a_page_gives_exactly_the_expected_rows(server, name):
    told = yaml.safe_load((EXPECTED / server / f"{name}.yaml").read_text())
    observation = read(server, page_of(name))
    assert [row_of(reading) for reading in engines(observation)] == [
        {"role": "unified", "engine": "0", **row} for row in told["rows"]
    ]
    assert {reading.ts for reading in engines(observation)} == {NOW}
    (seen,) = observation.reads
    assert (seen.ok, seen.skipped_lines) == (True, told["skipped"])
    assert sorted(detail.partition(" -> ")[0] for detail in events(observation, "renamed_metric")) == told["renamed"]
    assert events(observation, "rejected_value") == told.get("rejected", {})


# 028: two engines of one server.
def test_every_engine_has_a_row():
    page = "".join(
        f'vllm:num_requests_running{{engine="{i}",model_name="a"}} {count}\n' for i, count in enumerate((3, 5))
    )
    assert [(one.engine, one.running_requests) for one in engines(read("vllm", page))] == [("0", 3.0), ("1", 5.0)]


# 050: a metric that was renamed while it was read.
def test_a_renamed_gauge_is_one_series_and_told_once():
    target = Target(VLLM)
    pages = [
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.62\n',
        f'vllm:gpu_cache_usage_perc{{model_name="m"}} 0.63\nvllm:kv_cache_usage_perc{{{LABELS}}} 0.63\n',
        f"vllm:kv_cache_usage_perc{{{LABELS}}} 0.64\n",
    ]
    seen = [read("vllm", page, target, NOW + i * MINUTE) for i, page in enumerate(pages)]
    rows = [one for observation in seen for one in engines(observation)]
    assert [(one.ts, one.engine, one.kv_cache_used_ratio) for one in rows] == [
        (NOW, "0", 0.62),
        (NOW + MINUTE, "0", 0.63),
        (NOW + 2 * MINUTE, "0", 0.64),
    ]
    assert [events(one, "renamed_metric") for one in seen] == [
        {"gpu_cache_usage_perc -> kv_cache_usage_perc": 1},
        {},
        {},
    ]


def test_the_published_rename_is_one_series_at_the_times_it_names(shared):
    page = (shared / "problems/050-vllm-rename.prom").read_bytes()
    begin = datetime.fromtimestamp(1772442000, UTC)
    rows = engines(read("vllm", page, at=begin + 2 * MINUTE))
    assert [(one.ts, one.model_name, one.engine, one.kv_cache_used_ratio) for one in rows] == [
        (begin, "llm-a", "0", 0.62),
        (begin + MINUTE, "llm-a", "0", 0.63),
        (begin + 2 * MINUTE, "llm-a", "0", 0.64),
    ]


@pytest.mark.parametrize(("seconds", "is_kept"), [(-600, True), (-601, False), (600, True), (601, False)])
def test_a_time_far_from_the_read_is_not_believed(seconds, is_kept):
    at = NOW + timedelta(seconds=seconds)
    page = f"vllm:num_requests_running{{{LABELS}}} 1 {int(at.timestamp() * 1000)}\n"
    (row,) = engines(read("vllm", page))
    assert row.ts == (at if is_kept else NOW)


# 061: a name that says percent, and a ratio.
def test_ratios_are_ratios_whatever_their_names_say():
    (vllm,) = engines(read("vllm", 'vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.62\n'))
    sglang_page = 'sglang:token_usage{model_name="b"} 0.31\nsglang:cache_hit_rate{model_name="b"} 0.8758777633289988\n'
    (sglang,) = engines(read("sglang", sglang_page))
    assert (vllm.kv_cache_used_ratio, sglang.kv_cache_used_ratio) == (0.62, 0.31)
    assert sglang.prefix_cache_hit_ratio == 0.8758777633289988


def test_the_published_names_of_percent(shared):
    page = (shared / "problems/061-llm-percent-names.prom").read_bytes()
    assert [one.kv_cache_used_ratio for one in engines(read("vllm", page))] == [0.62]
    (sglang,) = engines(read("sglang", page))
    assert (sglang.kv_cache_used_ratio, sglang.prefix_cache_hit_ratio) == (0.31, 0.8758777633289988)


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("ratio", "1", 1.0),
        ("ratio", "1.0000001", None),
        ("ratio", "87.58", None),
        ("percent", "87.58", 0.8758),
        ("percent", "100", 1.0),
        ("percent", "100.1", None),
        ("ratio", "-0.1", None),
        ("ratio", "NaN", None),
        ("ratio", "+Inf", None),
    ],
)
def test_what_is_no_ratio_is_not_known_and_counted(unit, text, value):
    observation = read("sglang", f'sglang:cache_hit_rate{{model_name="b"}} {text}\n', Target(SGLANG, ratio_unit=unit))
    (row,) = engines(observation)
    assert row.prefix_cache_hit_ratio == (None if value is None else pytest.approx(value))
    assert sum(events(observation, "rejected_value").values()) == (value is None)


def test_ranks_that_compute_one_engine_together_are_not_added():
    """Two data-parallel engines on two tensor ranks each: 3 + 4 requests, not 14."""
    page = "".join(
        f'sglang:num_running_reqs{{model_name="m",dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {count}\n'
        for dp, count in ((0, 3), (1, 4))
        for tp in (1, 0)
    )
    assert [one.running_requests for one in engines(read("sglang", page))] == [3.0, 4.0]


def test_parts_that_add_up_to_more_than_a_counter_may_be_are_not_known():
    page = "".join(f'vllm:request_success_total{{{LABELS},finished_reason="{why}"}} 6e17\n' for why in "ab")
    assert [one.finished_requests for one in engines(read("vllm", page))] == [None]


def test_prefill_and_decode_are_apart():
    page = (
        'sglang:num_running_reqs{model_name="m",engine_type="prefill"} 2\n'
        'sglang:num_running_reqs{model_name="m",engine_type="decode"} 9\n'
        'sglang:num_running_reqs{model_name="m",engine_type="unified"} 1\n'
    )
    rows = engines(read("sglang", page))
    assert [(one.role, one.running_requests) for one in rows] == [("prefill", 2.0), ("decode", 9.0), ("unified", 1.0)]


def test_a_role_that_the_server_does_not_tell_may_be_set():
    page = f"vllm:num_requests_running{{{LABELS}}} 2\n"
    assert [one.role for one in engines(read("vllm", page, Target(VLLM, role="decode")))] == ["decode"]


def test_a_page_of_several_pods_keeps_them_apart():
    """As a metrics server shows them, with the exporter's own labels renamed."""
    page = "".join(
        f'vllm_num_requests_running{{{LABELS},exported_namespace="serve",exported_pod="chat-{i}",pod="scraper"}} {i}\n'
        for i in range(2)
    )
    rows = engines(read("vllm", page))
    assert [(one.namespace, one.pod, one.running_requests) for one in rows] == [
        ("serve", "chat-0", 0.0),
        ("serve", "chat-1", 1.0),
    ]


@pytest.mark.parametrize("page", [b"", b"<html>login</html>\n", b"python_info 1\n", b"\n\n# nothing\n"])
def test_a_page_without_an_engine_is_a_failed_read_not_zero_requests(page):
    observation = read("vllm", page)
    (seen,) = observation.reads
    assert (seen.ok, engines(observation)) == (False, [])
    assert "no engine" in (seen.error or "")


def test_a_page_that_makes_up_engines_is_cut_off_and_told():
    page = "".join(f'vllm:num_requests_running{{engine="{i}",model_name="m"}} 1\n' for i in range(2003))
    observation = read("vllm", page)
    assert len(engines(observation)) == 2000
    assert events(observation, "too_many_series") == {"engines beyond what one page may show": 3}


def test_identity_comes_from_the_settings():
    settings: dict[str, Any] = {"cluster": "east", "namespace": "serve", "pod": "chat-0", "workload_id": "serve/chat"}
    (row,) = engines(read("vllm", f"vllm:num_requests_running{{{LABELS}}} 2\n", Target(VLLM, name="t", **settings)))
    assert (row.target, row.source) == ("t", "vllm")
    assert {name: getattr(row, name) for name in settings} == settings


def test_the_agent_is_told_of_a_server_by_its_kind(target, tmp_path, now):
    target.page = page_of("vllm_two_engines")
    config = tmp_path / "collector.toml"
    config.write_text(f'[[source]]\nkind = "vllm"\nurl = "{target.url}"\nnamespace = "serve"\npod = "chat-0"\n')
    (source,) = build_sources(load(config), client=httpx.Client())
    (read_now,) = source.read(now).reads
    assert source.name.startswith("vllm:127.0.0.1:")
    assert (read_now.ok, read_now.source, read_now.node) == (True, "vllm", source.name.split(":", 1)[1].split("/")[0])


@pytest.mark.parametrize("wrong", ['role = "router"', 'ratio_unit = "permille"', "colour = 1"])
def test_a_wrong_option_is_named(tmp_path, wrong):
    config = tmp_path / "collector.toml"
    config.write_text(f'[[source]]\nkind = "vllm"\nurl = "http://127.0.0.1:1/metrics"\n{wrong}\n')
    with pytest.raises(ConfigError, match=wrong.split(" ", maxsplit=1)[0]):
        build_sources(load(config), client=httpx.Client())


def test_a_failed_read_says_why(target, now):
    target.status = 503
    (seen,) = VllmSource(target.url, timeout_seconds=2).read(now).reads
    assert (seen.ok, seen.error) == (False, "HTTP 503")
