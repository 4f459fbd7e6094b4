"""Who held the card, in faults that people reported: pages of dcgm-exporter and kube-state-metrics to the ledger.

Each input is written here in our own words; where the public recordings lie beside the checkout, they are read too.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collector.sources import dcgm, kube_state_metrics
from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
FIELDS = "workload_id", "tenant", "gpu_uuid", "state", "node", "model"


def problem(name: str) -> str:
    if not PROBLEMS.is_dir():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    return (PROBLEMS / name).read_text(encoding="utf-8")


def gauge(metric: str, value: object, **labels: object) -> str:
    inside = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{metric}{{{inside}}} {value}\n"


class House:
    """A warehouse, and the pages that are read into it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self._batches = count()
        self._pods = kube_state_metrics.Target("ksm")

    def put(self, record: str, rows: Sequence[Any]) -> None:
        if rows:
            assert not self.warehouse.ingest(record, to_table(record, rows), str(next(self._batches))).rejected

    def scrape(self, pages: Mapping[datetime, str], *, interval_seconds: float = 60) -> None:
        """Pages of dcgm-exporter."""
        target = dcgm.Target(interval_seconds=interval_seconds)
        seen = [dcgm.parse(page.encode(), at, target) for at, page in sorted(pages.items())]
        self.put("reading", [row for one in seen for row in one.readings])
        self.put("source_read", [row for one in seen for row in one.reads])
        self.put("holding", [row for one in seen for row in one.holdings])

    def list_pods(self, pages: Mapping[datetime, str]) -> None:
        """Pages of kube-state-metrics."""
        for at, page in sorted(pages.items()):
            for record, rows in kube_state_metrics.parse(page.encode(), at, self._pods).others.items():
                self.put(record, rows)

    def hours(self, *by: str, hours: float = 1, begin: datetime = AT) -> dict[Any, float]:
        """GPU-hours of the window by `by`; it closes."""
        window = Window(begin, begin + timedelta(hours=hours))
        assert self.warehouse.build_ledger(window, until_at=window.to_at).violations == 0
        found: dict[Any, float] = {}
        with self.warehouse.writing() as cursor:
            rows = cursor.execute(
                "select workload_id, tenant, gpu_uuid, state, node, model, gpu_hours from ledger_hour"
            ).fetchall()
        for row in rows:
            named = dict(zip(FIELDS, row[:-1], strict=True))
            key = tuple(named[name] for name in by) if len(by) > 1 else named[by[0]]
            found[key] = found.get(key, 0) + row[-1]
        return found

    def rate(self, name: str, *, hours: float = 1, begin: datetime = AT) -> float:
        rows = self.warehouse.query("ledger_rates", from_at=begin, to_at=begin + timedelta(hours=hours)).to_pylist()
        return float(next(row["value"] for row in rows if row["name"] == name))

    def cards(self) -> int:
        return int(self.warehouse.query("ledger_extent")["gpu_count"][0].as_py())


@pytest.fixture
def house() -> Iterator[House]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield House(opened)


def minutes(begin: datetime, end: datetime, step: timedelta = MINUTE) -> list[datetime]:
    return [begin + i * step for i in range(int((end - begin) / step))]


def listed(
    namespace: str,
    pod: str,
    node: str,
    *,
    gpus: int,
    started: datetime,
    ended: datetime | None = None,
    resource: str = "nvidia_com_gpu",
    **labels: str,
) -> str:
    """What kube-state-metrics shows of a pod."""
    own = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}"}
    phase = "Succeeded" if ended else "Running"
    page = (
        gauge("kube_pod_info", 1, **own, node=node)
        + gauge("kube_pod_start_time", started.timestamp(), **own)
        + gauge("kube_pod_container_resource_requests", gpus, **own, container="c", resource=resource, node=node)
        + "".join(gauge("kube_pod_status_phase", int(p == phase), **own, phase=p) for p in ("Running", "Succeeded"))
        + gauge("kube_pod_labels", 1, **own, **labels)
    )
    return page + (gauge("kube_pod_completion_time", ended.timestamp(), **own) if ended else "")


# 020: each new pod makes a new series of the same card.


def churn() -> list[dict[str, Any]]:
    return [
        {
            "metric": {
                "__name__": "DCGM_FI_DEV_GPU_UTIL",
                "UUID": "GPU-churn",
                "Hostname": "n7",
                "pod": "dcgm-exporter-1",
                "namespace": "monitoring",
                "exported_pod": f"pod{number + 1}",
                "exported_namespace": "default",
            },
            "values": [[1772442000 + 60 * i, str(40 + 20 * number)] for i in range(60 * number, 60 * (number + 1) + 1)],
        }
        for number in range(3)
    ]


def test_020_one_card_three_pods(house: House) -> None:
    check_churn(house, churn())


def test_020_as_reported(house: House) -> None:
    check_churn(house, json.loads(problem("020-one-gpu-three-pods.json"))["data"]["result"])


def check_churn(house: House, series: list[dict[str, Any]]) -> None:
    pages: dict[datetime, str] = {}
    for one in series:
        labels = {name: text for name, text in one["metric"].items() if name != "__name__"}
        for seconds, value in one["values"]:
            at = datetime.fromtimestamp(seconds, UTC)
            pages[at] = pages.get(at, "") + gauge(one["metric"]["__name__"], value, **labels)
    assert len(pages) == 181
    house.scrape(pages)
    begin = min(pages)
    by_pod = house.hours("workload_id", hours=3, begin=begin)
    assert sum(by_pod.values()) == pytest.approx(3.0, abs=0.02)
    assert {workload.partition("/")[2]: held for workload, held in by_pod.items()} == {
        f"pod{i}": pytest.approx(1.0, abs=0.017) for i in (1, 2, 3)
    }
    assert house.cards() == 1
    assert house.rate("gpu_util_of_held", hours=3, begin=begin) == pytest.approx(0.5995, abs=0.0007)


# 021: a completed pod is shown as long as its object exists.


def test_021_a_completed_pod_holds_nothing(house: House) -> None:
    times = {"started_at": "2026-03-02T10:05:00Z", "finished_at": "2026-03-02T11:05:00Z"}
    pod = {"ns": "team-b", "name": "job-0", **times, "limits": {"nvidia.com/gpu": 1}}
    check_completed(house, pod, "2026-03-02T12:00:00Z")


def test_021_as_reported(house: House) -> None:
    given = json.loads(problem("021-completed-pod-still-exported.json"))
    check_completed(house, given["pod"], given["series_last_seen"])


def check_completed(house: House, pod: dict[str, Any], last_seen: str) -> None:
    started, finished = (datetime.fromisoformat(pod[key]) for key in ("started_at", "finished_at"))
    shown = minutes(started, datetime.fromisoformat(last_seen))
    whose = {"namespace": pod["ns"], "pod": pod["name"]}
    (gpus,) = pod["limits"].values()
    card = {"UUID": "GPU-a", "Hostname": "n"}
    page = gauge("DCGM_FI_DEV_GPU_UTIL", 50, **card, **whose)
    house.scrape(
        {at: page if at in shown else gauge("DCGM_FI_DEV_GPU_UTIL", 0, **card) for at in minutes(AT, AT + 120 * MINUTE)}
    )
    house.list_pods(
        {
            at: listed(
                pod["ns"], pod["name"], "n", gpus=gpus, started=started, ended=finished if at >= finished else None
            )
            for at in shown
        }
    )
    assert house.hours("workload_id", hours=2) == {
        f"{pod['ns']}/{pod['name']}": pytest.approx(1.0),
        "": pytest.approx(1.0),
    }
    with house.warehouse.writing() as cursor:
        after = cursor.execute(
            "select distinct state from state_span where from_at >= $at", {"at": finished}
        ).fetchall()
    assert after == [("free_usable",)]


# 023: with honor_labels off, pod and namespace name the exporter.


def test_023_the_exporters_own_pod_holds_nothing(house: House) -> None:
    own = {"Hostname": "n", "namespace": "monitoring", "pod": "dcgm-exporter-x", "container": "exporter"}
    true = {"exported_namespace": "ml-train", "exported_pod": "bert-0", "exported_container": "main"}
    page = (
        gauge("DCGM_FI_DEV_GPU_UTIL", 71, UUID="GPU-hl-0", **own, **true)
        + gauge("DCGM_FI_DEV_GPU_UTIL", 0, UUID="GPU-hl-1", **own)
        + gauge("DCGM_FI_DEV_GPU_UTIL", 12, UUID="GPU-hl-2", Hostname="n", namespace="ml-infer", pod="qa-0")
    )
    check_exported(house, page)


def test_023_as_reported(house: House) -> None:
    check_exported(house, problem("023-exported-labels.prom"))


def check_exported(house: House, page: str) -> None:
    house.scrape(dict.fromkeys(minutes(AT, AT + 60 * MINUTE), page))
    assert house.hours("gpu_uuid", "tenant", "workload_id") == {
        ("GPU-hl-0", "ml-train", "ml-train/bert-0"): pytest.approx(1.0),
        ("GPU-hl-1", "", ""): pytest.approx(1.0),
        ("GPU-hl-2", "ml-infer", "ml-infer/qa-0"): pytest.approx(1.0),
    }


# 024: the same cards by three paths, one of them without labels of pods.


def test_024_three_paths_are_two_cards(house: House) -> None:
    paths = [{"job": "a", "replica": "0"}, {"job": "b"}, {"job": "a", "replica": "1"}]
    page = "".join(
        gauge(
            "DCGM_FI_DEV_GPU_UTIL",
            util,
            UUID=f"GPU-ha-{card}",
            Hostname="n",
            **path,
            **({"exported_namespace": "team-a", "exported_pod": f"job-{card}"} if path["job"] == "a" else {}),
        )
        for path in paths
        for card, util in ((0, 80), (1, 20))
    )
    check_paths(house, page)


def test_024_as_reported(house: House) -> None:
    check_paths(house, problem("024-three-paths-two-gpus.prom"))


def check_paths(house: House, page: str) -> None:
    house.scrape(dict.fromkeys(minutes(AT, AT + 60 * MINUTE), page))
    assert house.hours("tenant") == {"team-a": pytest.approx(2.0)}
    assert house.hours("workload_id") == {f"team-a/job-{card}": pytest.approx(1.0) for card in (0, 1)}
    assert house.cards() == 2
    assert house.rate("gpu_util_of_held") == pytest.approx(0.5)


# 026: labels of pods go blank for some reads although the pod goes on.


def blanks(gaps: Sequence[int]) -> str:
    times = [AT + 5 * i * MINUTE for i in range(12)]
    rows = [f"{at:%Y-%m-%dT%H:%M:%SZ},GPU-gap,2,{'' if i in gaps else 'train-m'},0.7" for i, at in enumerate(times)]
    return "\n".join(["ts,uuid,gpu_i_id,exported_pod,gr_engine_active", *rows])


@pytest.mark.parametrize("gaps", [(4, 5, 9), (1, 2, 3, 4, 5, 6, 7, 8), (0, 1, 2, 3), (8, 9, 10, 11)])
def test_026_blank_labels_do_not_let_go_of_the_card(house: House, gaps: Sequence[int]) -> None:
    check_blanks(house, blanks(gaps))


def test_026_as_reported(house: House) -> None:
    check_blanks(house, problem("026-blank-pod-label-gaps.csv"))


def check_blanks(house: House, text: str) -> None:
    rows = list(csv.DictReader(text.splitlines()))
    pages: dict[datetime, str] = {}
    for row in rows:
        slice_of = {"GPU_I_ID": row["gpu_i_id"], "GPU_I_PROFILE": "3g.20gb", "modelName": "NVIDIA A100-SXM4-40GB"}
        whose = {"exported_namespace": "team", "exported_pod": row["exported_pod"]} if row["exported_pod"] else {}
        pages[datetime.fromisoformat(row["ts"])] = gauge(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            row["gr_engine_active"],
            UUID=row["uuid"],
            Hostname="n",
            **slice_of,
            **whose,
        )
    house.scrape(pages, interval_seconds=300)
    running = listed("team", "train-m", "n", gpus=1, started=AT, resource="nvidia_com_mig_3g_20gb")
    house.list_pods(dict.fromkeys(minutes(AT, AT + 61 * MINUTE, 5 * MINUTE), running))
    held = house.hours("workload_id")
    slice_share = 3 / 7
    assert held["team/train-m"] / slice_share == pytest.approx(1.0)
    assert held[""] / (1 - slice_share) == pytest.approx(1.0)
    assert house.rate("coverage") == pytest.approx(1.0)
    with house.warehouse.writing() as cursor:
        seen = cursor.execute("select sum(observed_minutes) / 5 from state_span where workload_id <> ''").fetchone()
        mean = cursor.execute("select avg(gr_engine_active_ratio) from reading where slice_id = '2'").fetchone()
    assert (seen, mean) == ((pytest.approx(12),), (pytest.approx(0.7),))


# 027: the index that a job sees is its own; the card is known by its UUID.


def test_027_a_job_holds_the_card_of_its_uuid(house: House) -> None:
    devices = [
        {"index": 0, "uuid": "GPU-old", "model": "P100", "util": 64, "mem_gb": 12},
        {"index": 1, "uuid": "GPU-new", "model": "RTX A5000", "util": 98, "mem_gb": 24},
    ]
    jobs = [{"jobid": 501, "local_gpus": [{"local_index": 0, "uuid": "GPU-new"}]}]
    check_local_index(house, {"node": "mix", "devices": devices, "jobs": jobs})


def test_027_as_reported(house: House) -> None:
    check_local_index(house, json.loads(problem("027-job-local-index.json")))


def check_local_index(house: House, given: dict[str, Any]) -> None:
    (job,) = given["jobs"]
    held = {gpu["uuid"] for gpu in job["local_gpus"]}
    page = ""
    for device in given["devices"]:
        labels = {
            "gpu": device["index"],
            "UUID": device["uuid"],
            "modelName": device["model"],
            "Hostname": given["node"],
        }
        labels |= {"hpc_job": job["jobid"]} if device["uuid"] in held else {}
        page += gauge("DCGM_FI_DEV_GPU_UTIL", device["util"], **labels)
        page += gauge("DCGM_FI_DEV_FB_USED", device["mem_gb"] * 1024, **labels)
    house.scrape(dict.fromkeys(minutes(AT, AT + 60 * MINUTE), page))
    by_job = house.hours("workload_id", "model")
    assert by_job == {("slurm/501", "RTX A5000"): pytest.approx(1.0), ("", "P100"): pytest.approx(1.0)}
    with house.warehouse.writing() as cursor:
        util = cursor.execute("select avg(gpu_util_ratio) from state_span where workload_id = 'slurm/501'").fetchone()
        memory = cursor.execute(
            "select max(fb_used_bytes) from reading semi join state_span using (gpu_uuid) where model = 'RTX A5000'"
        ).fetchone()
    assert (util, memory) == ((pytest.approx(0.98),), (24 * 2**30,))


# 100 and 104: members of a job that run no process, when only Kubernetes says that they hold cards.


def answer(house: House, node: str, cards: Sequence[str], hours: int, *, ok: bool, util: float | None) -> None:
    """A source that shows cards with a process only; without `util` there is none. The cards are declared."""
    assets = [RECORDS["asset"].cls(gpu_uuid=card, node=node, status="in_service", from_at=AT) for card in cards]
    house.put("asset", assets)
    times = minutes(AT, AT + hours * 60 * MINUTE)
    read = {"node": node, "source": "jobs", "interval_seconds": 60.0}
    house.put("source_read", [RECORDS["source_read"].cls(ts=at, scope="process", ok=ok, **read) for at in times])
    if util is not None:
        rows = [
            RECORDS["reading"].cls(ts=at, gpu_uuid=card, gpu_util_ratio=util, **read) for at in times for card in cards
        ]
        house.put("reading", rows)


@pytest.mark.parametrize("ok", [True, False])
def test_100_held_without_process_and_without_allocations(house: House, *, ok: bool) -> None:
    idle, busy = [f"i{i}" for i in range(8)], [f"w{i}" for i in range(8)]
    answer(house, "a", idle, 3, ok=ok, util=None)
    answer(house, "b", busy, 3, ok=True, util=0.8)
    before = AT - timedelta(hours=1)
    page = listed("hpc", "job-800", "a", gpus=8, started=before) + listed("hpc", "job-801", "b", gpus=8, started=before)
    house.list_pods(dict.fromkeys(minutes(AT, AT + 181 * MINUTE, 5 * MINUTE), page))
    by_job = house.hours("workload_id", "state", hours=3)
    state = "alloc_idle" if ok else "alloc_unknown"
    assert by_job["hpc/job-800", state] == pytest.approx(24.0)
    assert sum(by_job.values()) == pytest.approx(48.0)
    assert house.rate("gpu_util_of_held", hours=3) == pytest.approx(0.4 if ok else 0.8)
    assert house.rate("coverage", hours=3) == pytest.approx(1.0 if ok else 0.5)


@pytest.mark.parametrize("ok", [True, False])
def test_104_a_member_without_rows(house: House, *, ok: bool) -> None:
    answer(house, "n1", ["n1-0", "n1-1"], 1, ok=True, util=1.0)
    answer(house, "n2", ["n2-0", "n2-1"], 1, ok=ok, util=None)
    before = AT - timedelta(hours=1)
    gang: dict[str, Any] = {"label_training_kubeflow_org_job_name": "mn-1"}
    page = "".join(listed("hpc", f"mn-1-worker-{n}", f"n{n + 1}", gpus=2, started=before, **gang) for n in (0, 1))
    house.list_pods(dict.fromkeys(minutes(AT, AT + 61 * MINUTE, 5 * MINUTE), page))
    assert house.hours("workload_id") == {"hpc/mn-1": pytest.approx(4.0)}
    assert house.hours("node", "state")["n2", "alloc_idle" if ok else "alloc_unknown"] == pytest.approx(2.0)
    assert house.rate("gpu_util_of_held") == pytest.approx(0.5 if ok else 1.0)
    assert house.rate("coverage") == pytest.approx(1.0 if ok else 0.5)
