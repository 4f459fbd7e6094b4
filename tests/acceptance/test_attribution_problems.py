"""Who held the card, in faults that people reported: pages of dcgm-exporter and kube-state-metrics to the ledger.

Each input is written here in our own words; where the public recordings lie beside the checkout, they are read too.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.acceptance.house import AT, MINUTE, House, gauge, listed, minutes, problem

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
