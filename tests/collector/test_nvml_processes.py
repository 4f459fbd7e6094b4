"""Whose processes are on a card: lists of NVML, control groups, the kubelet's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collector.nvml.owners import Owner, Owners, parse_cgroup
from collector.nvml.pods import PodFolders, parse_folder

POD = "12345678-1234-1234-1234-123456789abc"
OTHER_POD = "87654321-1234-1234-1234-123456789abc"
STATIC_POD = "0123456789abcdef0123456789abcdef"
CONTAINER = "c0ffee" + "0" * 58
SYSTEMD_POD = f"pod{POD.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable-{SYSTEMD_POD}/cri-containerd-{CONTAINER}.scope",
            Owner(POD, CONTAINER),
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{CONTAINER}", Owner(POD, CONTAINER)),
        (f"0::/kubepods/pod{POD}/{CONTAINER}/nested", Owner(POD, CONTAINER)),
        (
            f"0::/kubelet.slice/kubelet-kubepods-pod{STATIC_POD}.slice/crio-{CONTAINER}.scope",
            Owner(STATIC_POD, CONTAINER),
        ),
        (
            f"12:pids:/kubepods/burstable/pod{POD}/{CONTAINER}\n11:devices:/kubepods/burstable/pod{POD}/{CONTAINER}\n1:name=systemd:/",
            Owner(POD, CONTAINER),
        ),
        (
            f"3:cpu:/system.slice/containerd.service/kubepods-{SYSTEMD_POD}:cri-containerd:{CONTAINER}",
            Owner(POD, CONTAINER),
        ),
        (f"0::/docker/{CONTAINER}", Owner(None, CONTAINER)),
        (f"0::/system.slice/docker-{CONTAINER}.scope", Owner(None, CONTAINER)),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", Owner(None, None, "4711")),
        ("9:memory:/slurm/uid_1000/job_4711/step_batch", Owner(None, None, "4711")),
        ("0::/user.slice/job_12/x", Owner()),
        ("0::/user.slice/user-1000.slice/session-3.scope", Owner()),
        (f"0::/podcasts/pod{POD}x/{CONTAINER[:-1]}", Owner()),
        ("", Owner()),
        ("no colons at all\n::::\n\x00\xff", Owner()),
    ],
)
def test_the_owner_that_a_control_group_names(text, owner):
    assert parse_cgroup(text) == owner


def test_ids_in_another_namespace_say_nothing(processes):
    proc = processes({4000: ("python", f"0::/kubepods/pod{POD}/{CONTAINER}")})
    assert Owners(proc).owner(4000) == Owner(POD, CONTAINER)
    (proc / "2" / "comm").write_text("python\n")
    assert Owners(proc).owner(4000) == Owner()


def test_a_process_that_has_gone_is_looked_up_again_when_its_number_comes_back(processes):
    owners = Owners(processes({}))
    assert owners.owner(4000) == Owner()
    processes({4000: ("python", "0::/slurm/job_1")})
    assert owners.owner(4000) == Owner()
    owners.keep([])
    assert owners.owner(4000) == Owner(slurm_job="1")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"ml_train-0_{POD}", (POD, "ml", "train-0")),
        (f"kube-system_proxy.x_{STATIC_POD}", (STATIC_POD, "kube-system", "proxy.x")),
        (f"ml_a_b_{POD}", None),
        ("lost+found", None),
        (f"_x_{POD}", None),
    ],
)
def test_the_pod_that_a_folder_stands_for(name, found):
    assert parse_folder(name) == found


def test_a_pod_that_is_new_is_found_at_the_next_pass(tmp_path):
    folders = PodFolders(tmp_path)
    assert folders.name(POD) is None
    (tmp_path / f"ml_train-0_{POD}").mkdir()
    assert folders.name(POD) is None
    folders.renew()
    assert folders.name(POD) == ("ml", "train-0")
    assert PodFolders(tmp_path / "absent").name(POD) is None


Processes = Callable[[dict[int, tuple[str, str]]], Path]


@pytest.fixture
def processes(tmp_path) -> Processes:
    """Makes a /proc in which each process has (its short name, its control groups)."""
    proc = tmp_path / "proc"

    def make(shown: dict[int, tuple[str, str]]) -> Path:
        for pid, (name, groups) in {2: ("kthreadd", "0::/"), **shown}.items():
            (proc / str(pid)).mkdir(parents=True, exist_ok=True)
            (proc / str(pid) / "comm").write_text(f"{name}\n")
            (proc / str(pid) / "cgroup").write_text(f"{groups}\n")
        return proc

    return make


@pytest.fixture
def pods(tmp_path) -> Path:
    for name in (f"ml_train-0_{POD}", f"ml_serve-0_{OTHER_POD}"):
        (tmp_path / "pods" / name).mkdir(parents=True)
    return tmp_path / "pods"


def _held(observation) -> list[tuple[str, str, str, float]]:
    return [(held.slice_id, held.namespace, held.pod, held.share) for held in observation.holdings]


def test_pods_and_jobs_are_seen_on_the_cards_on_which_their_processes_run(nvml_source, processes, pods, now):
    proc = processes(
        {
            4000: ("python", f"0::/kubepods/pod{POD}/{CONTAINER}"),
            4001: ("python", f"0::/kubepods/pod{POD}/{CONTAINER}"),
            4002: ("python", f"0::/kubepods/pod{OTHER_POD}/{CONTAINER}"),
            4003: ("python", "0::/system.slice/slurmstepd.scope/job_7/step_0"),
            4004: ("python", f"0::/kubepods/pod{STATIC_POD}/{CONTAINER}"),
            4005: ("bash", "0::/user.slice"),
        }
    )
    nvml = nvml_source("processes.0 2", "processes.1 6", proc_directory=proc, pods_directory=pods)
    observation = nvml.read(now)
    assert _held(observation) == [
        ("", "ml", "train-0", 1.0),
        ("", "ml", "serve-0", 0.25),
        ("", "ml", "train-0", 0.25),
        ("", "slurm", "7", 0.25),
    ]
    assert {held.node for held in observation.holdings} == {"n1"}


def test_a_slice_is_held_at_its_share_of_the_card(nvml_source, processes, pods, now):
    proc = processes({4000: ("python", f"0::/kubepods/pod{POD}/{CONTAINER}")})
    nvml = nvml_source("count 1", "mig.0 1", "processes.0 1", proc_directory=proc, pods_directory=pods)
    assert _held(nvml.read(now)) == [("1", "ml", "train-0", 3 / 7), ("2", "ml", "train-0", 4 / 7)]


def test_processes_are_counted_once_and_the_server_of_a_shared_card_is_none(nvml_source, processes, pods, now):
    proc = processes({4000: ("nvidia-cuda-mps", "0::/"), 5000: ("python", f"0::/kubepods/pod{POD}/{CONTAINER}")})
    shared = ("processes.0 1", "clients.0 2", "processes.1 0", "graphics.1 1")
    observation = nvml_source(*shared, proc_directory=proc, pods_directory=pods).read(now)
    assert [reading.process_count for reading in observation.readings] == [2, 1]
    assert _held(observation) == [("", "ml", "train-0", 1.0)]


def test_a_server_without_clients_leaves_the_card_without_processes(nvml_source, processes, now):
    proc = processes({4000: ("nvidia-cuda-mps", "0::/")})
    (reading,) = nvml_source("count 1", "processes.0 1", proc_directory=proc).read(now).readings
    assert reading.process_count == 0


def test_a_process_between_two_looks_is_counted_in_the_second(nvml_source, nvml_stub, now):
    idle = ("count 1", "processes.0 0")
    nvml = nvml_source(*idle, "sampled.0 100")
    seen = [nvml.read(now).readings[0].process_count]
    for lines in (["sampled.0 100"], ["sampled.0 200"], ["sampled.0 200"], ["sampled.0 50"]):
        nvml_stub.scenario(*idle, *lines)
        seen.append(nvml.read(now).readings[0].process_count)
    # What was there before the first look is old; of the three slots one is a sample.
    assert seen == [0, 0, 1, 0, 0]


def test_processes_of_which_the_driver_keeps_accounts_are_counted_once(nvml_source, nvml_stub, now):
    idle = ("count 1", "processes.0 0")
    nvml = nvml_source(*idle, "accounted.0 3")
    seen = [nvml.read(now).readings[0].process_count]
    for lines in (["accounted.0 5"], ["accounted.0 5"], [], ["accounted.0 6"], ["accounted.0 7"]):
        nvml_stub.scenario(*idle, *lines)
        seen.append(nvml.read(now).readings[0].process_count)
    assert seen == [0, 2, 0, 0, 0, 1]


def test_processes_are_unknown_where_the_driver_does_not_list_them(nvml_source, now):
    (reading,) = nvml_source("count 1", "rc.nvmlDeviceGetComputeRunningProcesses_v3 3").read(now).readings
    assert (reading.process_count, reading.quality_flags) == (None, 0)
