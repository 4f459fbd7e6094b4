"""The source of pods: pages as rows, whole pages, failures, and what the agent is told."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml

from collector.building import build_sources
from collector.settings import CollectorSettings
from collector.sources.kube_state_metrics import KubeStateMetricsSource, Target, parse
from gpuledger.errors import ConfigError
from gpuledger.model import RECORDS, to_table

EXPECTED = Path(__file__).parents[1] / "expected" / "kube_state_metrics"
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)

OURS = b"""# TYPE kube_pod_info gauge
kube_pod_info{namespace="nlp",pod="llm-0",uid="u1",node="n1",created_by_kind="StatefulSet",created_by_name="llm"} 1
kube_pod_start_time{namespace="nlp",pod="llm-0",uid="u1"} 1.77244e+09
kube_pod_created{namespace="nlp",pod="llm-0",uid="u1"} 1.77243999e+09
kube_pod_status_phase{namespace="nlp",pod="llm-0",uid="u1",phase="Running"} 1
kube_pod_status_phase{namespace="nlp",pod="llm-0",uid="u1",phase="Pending"} 0
kube_pod_container_resource_requests{namespace="nlp",pod="llm-0",uid="u1",container="a",resource="nvidia_com_gpu"} 8
kube_pod_container_resource_requests{namespace="nlp",pod="llm-0",uid="u1",container="a",resource="cpu"} 96
this line is none
kube_node_status_capacity{node="n1",resource="nvidia_com_gpu",unit="integer"} 8
kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu",unit="integer"} 7
"""


def _rows(observation) -> dict[str, list[dict]]:
    return {record: [asdict(row) for row in rows] for record, rows in observation.others.items()}


def test_the_public_page_gives_the_rows_that_were_written_by_reading_it(shared: Path) -> None:
    page = (shared / "fixtures" / "exposition" / "kube_state_metrics_pods.prom").read_bytes()
    expected = yaml.safe_load((EXPECTED / "kube_state_metrics_pods.yaml").read_text(encoding="utf-8"))
    seen = parse(page, NOW)
    (read,) = seen.reads
    assert {name: getattr(read, name) for name in expected["read"]} == expected.pop("read")
    assert _rows(seen) == expected
    assert (seen.readings, seen.holdings) == ((), ())


def test_a_page_of_ours() -> None:
    seen = parse(OURS, NOW, Target("ksm", interval_seconds=30, cluster="east"))
    (read,) = seen.reads
    assert (read.ok, read.node, read.skipped_lines, read.interval_seconds) == (True, "ksm", 1, 30)
    (pod,) = seen.others["pod"]
    assert (pod.uid, pod.cluster, pod.node, pod.gpu_count, pod.phase) == ("u1", "east", "n1", 8.0, "Running")
    assert (pod.workload_id, pod.owner_kind, pod.owner_name) == ("east/nlp/llm", "StatefulSet", "llm")
    assert (pod.created_at, pod.started_at) == (
        datetime(2026, 3, 2, 8, 26, 30, tzinfo=UTC),
        datetime(2026, 3, 2, 8, 26, 40, tzinfo=UTC),
    )
    (workload,) = seen.others["workload"]
    assert (workload.num_gpu, workload.cpu_milli, workload.tenant) == (8, 96_000, "nlp")
    (node,), (offer,) = seen.others["node"], seen.others["scheduler_node"]
    assert (node.gpu_count, offer.gpu_count, offer.scheduler) == (8, 7, "kubernetes/east")


def test_rows_fit_their_schemas() -> None:
    for record, rows in parse(OURS, NOW).others.items():
        table = to_table(record, rows)
        assert table.num_rows == len(rows)
        assert len({tuple(row[key] for key in RECORDS[record].key) for row in table.to_pylist()}) == len(rows)


def test_the_same_page_again_changes_nothing() -> None:
    target = Target()
    assert parse(OURS, NOW, target).others
    assert parse(OURS, NOW + timedelta(seconds=30), target).others == {}


@pytest.mark.parametrize("page", [b"", b"<html>log in</html>", b"up 1\n"])
def test_a_page_about_nothing_is_a_failed_read_and_ends_no_pod(page: bytes) -> None:
    target = Target()
    parse(OURS, NOW, target)
    for turn in range(1, 4):
        seen = parse(page, NOW + turn * timedelta(seconds=30), target)
        assert [read.ok for read in seen.reads] == [False]
        assert seen.others == {}
    assert parse(OURS, NOW + timedelta(minutes=3), target).others == {}


def test_over_http(target) -> None:
    target.page = OURS
    source = KubeStateMetricsSource(target.url, timeout_seconds=2)
    assert source.name.startswith("kube_state_metrics:127.0.0.1:")
    assert [pod.uid for pod in source.read(NOW).others["pod"]] == ["u1"]
    target.status = 503
    (read,) = source.read(NOW).reads
    assert (read.ok, read.error) == (False, "HTTP 503")


def test_the_agent_reads_what_its_settings_name(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[tenant]]\nnamespace = "nlp"\nvalue = "language"\n', encoding="utf-8")
    settings = CollectorSettings(
        kube_state_metrics=[{"url": "http://ksm:8080/metrics", "cluster": "east"}], attribution_rules=rules
    )
    with httpx.Client() as client:
        (source,) = build_sources(settings, client)
    assert (source.name, source.interval_seconds) == ("kube_state_metrics:ksm:8080/metrics", 30.0)
    rules.write_text("[[team]]\n", encoding="utf-8")
    with httpx.Client() as client, pytest.raises(ConfigError, match="team"):
        build_sources(settings, client)
