"""What a node has to read: each thing is tried, what works becomes a settings file or is read at once."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from collector.building import build_sources
from collector.discovery import Places, Probe, completed, discover, is_nameless, to_toml
from collector.settings import CollectorSettings, load
from gpuledger.errors import ConfigError
from tests.collector.sysfs_tree import plant

STUB = Path(__file__).resolve().parents[1] / "stubs" / "nvidia_smi" / "nvidia-smi"
PAGE = b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",Hostname="n1"} 50\n'
PODS = b'kube_pod_info{namespace="a",pod="p",uid="u",node="n1"} 1\n'
SMI = "uuid, utilization.gpu [%]\nGPU-1, 40 %\nGPU-2, 50 %\n"


@pytest.fixture
def client():
    with httpx.Client(trust_env=False) as opened:
        yield opened


@pytest.fixture
def smi(tmp_path, monkeypatch) -> str:
    (tmp_path / "answer").write_text(SMI)
    monkeypatch.setenv("NVIDIA_SMI_STUB", str(tmp_path))
    return str(STUB)


@pytest.fixture
def named_gpu_7(monkeypatch) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-7")


def works(probes: list[Probe]) -> dict[str, tuple[bool, str]]:
    return {probe.kind: (probe.works, probe.detail) for probe in probes}


def test_everything_that_is_there_is_found(client, target, smi, nvml_stub, now):
    target.page = PAGE + PODS
    environment = nvml_stub.environment | {"NVIDIA_SMI_STUB": os.environ["NVIDIA_SMI_STUB"], "NODE_NAME": "gpu-7"}
    places = Places(
        dcgm_urls=(target.url,), pages={}, kube_state_metrics_urls=(target.url,), nvidia_smi=smi, timeout_seconds=10,
        environment=environment, infiniband="/nonexistent",
    )  # fmt: skip
    assert places.node == "gpu-7"
    assert works(discover(places, client, now)) == {
        "nvml": (True, "2 cards"),
        "dcgm": (True, "1 cards"),
        "infiniband": (False, "/nonexistent: no such file or directory"),
        "nvidia_smi": (True, "2 cards"),
        "kube_state_metrics": (True, "pods and nodes of a cluster"),
    }


def test_what_is_not_there_says_why(client, target, free_port, now):
    target.page = b"<html>login</html>\n"
    places = Places(
        dcgm_urls=(target.url, f"http://127.0.0.1:{free_port}/metrics"), pages={}, nvidia_smi="/nonexistent/nvidia-smi",
        environment={"PATH": os.environ["PATH"]}, infiniband="/nonexistent/infiniband",
    )  # fmt: skip
    probes = discover(places, client, now)
    assert [probe.works for probe in probes] == [False] * 5
    details = [probe.detail for probe in probes]
    assert details[0].startswith("NVML: ")
    assert details[1].startswith("no device on the page")
    assert details[2] == "not reachable: connection refused"
    assert details[3] == "/nonexistent/infiniband: no such file or directory"
    assert details[4] == "/nonexistent/nvidia-smi cannot be run: No such file or directory"


def test_the_file_it_prints_is_one_that_the_agent_takes(tmp_path):
    probes = [
        Probe("nvml", "libnvidia-ml", works=True, detail="8 cards"),
        Probe("dcgm", "http://localhost:9400/metrics", works=True, detail="8 cards", is_of_this_node=True),
        Probe("dcgm", "http://node-2:9400/metrics", works=True, detail="8 cards"),
        Probe("nvidia_smi", "nvidia-smi", works=True, detail="8 cards"),
        Probe("kube_state_metrics", "http://ksm:8080/metrics", works=True, detail="pods\nand [nodes]"),
    ]
    path = tmp_path / "collector.toml"
    path.write_text(to_toml(probes, service_url="http://ledger:8420", node='gpu "7"'), encoding="utf-8")
    settings = load(path)
    assert settings.service_url == "http://ledger:8420"
    assert [(endpoint.url, endpoint.node) for endpoint in settings.dcgm] == [
        ("http://localhost:9400/metrics", 'gpu "7"'),
        ("http://node-2:9400/metrics", None),
    ]
    assert (settings.nvml.enabled, settings.nvml.node, settings.nvidia_smi.enabled) == (True, 'gpu "7"', False)
    assert settings.kube_state_metrics == ()
    assert '# url = "http://ksm:8080/metrics"' in path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("named_gpu_7")
@pytest.mark.parametrize(
    ("page", "nodes"),
    [
        (PAGE, ["n1"]),
        (PAGE + b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-2",Hostname="n2"} 60\n', ["n1", "n2"]),
        (b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} 50\n', ["gpu-7"]),
        (b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",Hostname="localhost"} 50\n', ["gpu-7"]),
    ],
)
def test_a_page_names_its_nodes_itself_and_this_node_only_where_it_does_not(client, target, now, tmp_path, page, nodes):
    target.page = page
    places = Places(dcgm_urls=(target.url,), nvidia_smi="/nonexistent")
    path = tmp_path / "collector.toml"
    path.write_text(to_toml(discover(places, client, now), service_url="http://ledger:8420", node=places.node))
    discovers = CollectorSettings(
        discover=True, discover_dcgm_urls=(target.url,), nvidia_smi={"command": "/nonexistent"}
    )
    for settings in (load(path), completed(discovers, client, now)):
        (source,) = build_sources(settings.model_copy(update={"nvml": CollectorSettings().nvml}), client)
        assert [reading.node for reading in source.read(now).readings] == nodes


def test_an_address_of_another_machine_is_not_this_node():
    assert not is_nameless("http://192.0.2.1:9400/metrics", {"192.0.2.1"})
    assert not is_nameless("http://no.such.host.invalid:9400/metrics", {"no.such.host.invalid"})
    assert not is_nameless("http://127.0.0.1:9400/metrics", {"node-1"})
    assert is_nameless("http://127.0.0.1:9400/metrics", {"127.0.0.1"})


def test_nvidia_smi_counts_only_where_nothing_else_is(tmp_path):
    path = tmp_path / "collector.toml"
    probes = [
        Probe("nvml", "libnvidia-ml", works=False, detail="not found"),
        Probe("nvidia_smi", "nvidia-smi", works=True, detail="8 cards"),
    ]
    path.write_text(to_toml(probes, service_url="http://ledger:8420", node="n1"), encoding="utf-8")
    assert load(path).nvidia_smi.enabled


def test_an_agent_that_discovers_reads_what_is_there(client, target, free_port, smi, now, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    target.page = PAGE
    own = CollectorSettings(
        discover=True, discover_dcgm_urls=(target.url, f"http://127.0.0.1:{free_port}/metrics"),
        nvidia_smi={"command": smi, "interval_seconds": 60},
    )  # fmt: skip
    found = completed(own, client, now)
    assert [endpoint.url for endpoint in found.dcgm] == [target.url]
    assert (found.nvml.enabled, found.nvidia_smi.enabled) == (False, False)
    alone = completed(own.model_copy(update={"discover_dcgm_urls": ()}), client, now)
    assert (alone.dcgm, alone.nvidia_smi.enabled, alone.nvidia_smi.interval_seconds) == ((), True, 60)
    (source,) = build_sources(alone, client)
    assert [reading.gpu_util_ratio for reading in source.read(now).readings] == [0.4, 0.5]
    assert completed(own.model_copy(update={"discover": False}), client, now).dcgm == ()


def test_what_is_named_already_is_not_added_again(client, target, now):
    target.page = PAGE
    own = CollectorSettings(
        discover=True, discover_dcgm_urls=(target.url,), dcgm=({"url": target.url, "node": "mine"},),
        nvidia_smi={"command": "/nonexistent"},
    )  # fmt: skip
    assert [endpoint.node for endpoint in completed(own, client, now).dcgm] == ["mine"]


def test_a_source_by_its_name_takes_its_options(client, smi, now, tmp_path):
    path = tmp_path / "collector.toml"
    path.write_text(f'[[source]]\nkind = "nvidia_smi"\ncommand = "{smi}"\nnode = "n9"\n')
    (source,) = build_sources(load(path), client)
    assert [reading.node for reading in source.read(now).readings] == ["n9", "n9"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[source]]\nkind = "no_such"\n', "no source called 'no_such'"),
        ('[[source]]\nkind = "nvidia_smi"\ncolour = "red"\n', r"source\.0 \(nvidia_smi\): colour: no such option"),
        ('[[source]]\ncommand = "x"\n', "source.0.kind"),
    ],
)
def test_a_source_that_cannot_be_made_is_named(client, tmp_path, text, said):
    path = tmp_path / "collector.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        build_sources(load(path), client)


AMD = b'gpu_gfx_activity{gpu_uuid="u-0",hostname="a0",card_model="MI300X"} 83\n'


def test_exporters_of_other_vendors_are_found_and_read(client, target, free_port, now, tmp_path):
    target.page = AMD
    pages = {"amd_exporter": target.url, "node_exporter": f"http://127.0.0.1:{free_port}/metrics"}
    places = Places(dcgm_urls=(), pages=pages, nvidia_smi="/nonexistent", environment={"PATH": os.environ["PATH"]})
    probes = discover(places, client, now)
    assert works(probes)["amd_exporter"] == (True, "1 cards")
    assert works(probes)["node_exporter"] == (False, "not reachable: connection refused")
    path = tmp_path / "agent.toml"
    path.write_text(to_toml(probes, service_url="http://127.0.0.1:8420", node="n1"))
    (source,) = load(path).source
    assert (source.kind, source.options) == ("amd_exporter", {"url": target.url, "interval_seconds": 15})


def test_the_nodes_own_adapters_are_found_and_read(client, recordings, tmp_path, now):
    root = tmp_path / "infiniband"
    plant(root, (recordings / "infiniband_two_adapters.txt").read_text())
    places = Places(
        dcgm_urls=(), pages={}, nvidia_smi="/nonexistent", infiniband=str(root),
        environment={"PATH": os.environ["PATH"], "NODE_NAME": "n1"},
    )  # fmt: skip
    probes = discover(places, client, now)
    assert works(probes)["infiniband"] == (True, "answers")
    path = tmp_path / "agent.toml"
    path.write_text(to_toml(probes, service_url="http://127.0.0.1:8420", node="n1"))
    (source,) = build_sources(load(path), client)
    assert {row.device for row in source.read(now).others["link_reading"]} == {"mlx5_0", "mlx5_bond_0", "hfi1_0"}


def test_what_the_settings_name_already_is_not_read_twice(client, target, now):
    target.page = AMD
    given = {"kind": "amd_exporter", "url": target.url}
    settings = CollectorSettings.model_validate(
        {"discover": True, "discover_dcgm_urls": [], "discover_pages": {"amd_exporter": target.url}, "source": [given]}
    )
    assert [source.options for source in completed(settings, client, now).source] == [{"url": target.url}]
    found = completed(settings.model_copy(update={"source": ()}), client, now)
    assert [(source.kind, source.options["url"]) for source in found.source] == [("amd_exporter", target.url)]
    assert [source.name.partition(":")[0] for source in build_sources(found, client)][-1] == "amd_exporter"
