"""The DaemonSets: legal objects, no right that is not needed, settings, paths and ports that are the agent's own."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from collector.building import build_sources
from collector.settings import CollectorSettings, load
from gpuledger.app.cli import app
from gpuledger.config import COLLECTOR_PREFIX, check_environment
from gpuledger.registry import SOURCES
from tests.deploy.rendered import (
    DEPLOY,
    OVERLAYS,
    Objects,
    bytes_of,
    exporter_objects,
    kustomized,
    of_kind,
    overlay,
    pod_of,
)

VERSIONS = ("1.26", "1.37")
NODE_FOLDERS = {"nvidia": {"/proc", "/var/log/pods"}, "amd": set(), "ascend": set()}
"""What of the node each pod may see: docs/deploy-agent.md says what for."""


@pytest.fixture(params=OVERLAYS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectorSettings:
    """What the agent on node gpu-7 makes of the overlay's settings file."""
    (text,) = of_kind(overlay(name), "ConfigMap")["data"].values()
    path = tmp_path / "agent.toml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    return load(path)


def container(name: str) -> dict[str, Any]:
    (only,) = pod_of(overlay(name))["containers"]
    assert isinstance(only, dict)
    return only


def mounted(name: str) -> dict[str, str]:
    """Where each volume stands in the container."""
    return {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_legal(name: str, version: str) -> None:
    for each in (*overlay(name), *exporter_objects(name)):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_check_sees_a_field_that_is_none() -> None:
    wrong = copy.deepcopy(of_kind(overlay("amd"), "DaemonSet"))
    wrong["spec"]["template"]["spec"]["hostPid"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_all_of_it_stands_in_a_namespace_of_its_own_and_no_role_is_given(name: str) -> None:
    objects = overlay(name)
    assert sorted(each["kind"] for each in objects) == ["ConfigMap", "DaemonSet", "Namespace", "ServiceAccount"]
    assert of_kind(objects, "Namespace")["metadata"]["name"] == f"gpuledger-{name}"
    spaces = {each["metadata"]["namespace"] for each in objects if each["kind"] != "Namespace"}
    assert spaces == {f"gpuledger-{name}"}
    assert of_kind(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_of(objects)["automountServiceAccountToken"] is False
    assert pod_of(objects)["serviceAccountName"] == of_kind(objects, "ServiceAccount")["metadata"]["name"]


def test_the_pod_has_no_right_that_it_does_not_need(name: str) -> None:
    pod, security = pod_of(overlay(name)), container(name)["securityContext"]
    assert not {"hostPID", "hostIPC", "hostNetwork", "shareProcessNamespace", "initContainers"} & set(pod)
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["runAsGroup"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPort" in port for port in container(name)["ports"])


def test_of_the_node_only_named_folders_are_seen_and_none_is_written(name: str) -> None:
    folders = {
        each["name"]: each["hostPath"]["path"] for each in pod_of(overlay(name))["volumes"] if "hostPath" in each
    }
    assert set(folders.values()) == NODE_FOLDERS[name]
    read_only = {mount["name"] for mount in container(name)["volumeMounts"] if mount.get("readOnly")}
    assert set(folders) | {"settings"} == read_only
    label = of_kind(overlay(name), "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert label == ("privileged" if folders else "restricted")


def test_what_it_may_take_is_bounded(name: str) -> None:
    resources = container(name)["resources"]
    assert set(resources["limits"]) == set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}
    assert bytes_of(resources["requests"]["memory"]) <= bytes_of(resources["limits"]["memory"]) <= 512 << 20


def test_the_spool_fits_its_volume_and_the_volume_fits_the_limit(name: str, settings: CollectorSettings) -> None:
    (spool,) = (each for each in pod_of(overlay(name))["volumes"] if each["name"] == "spool")
    size, limit = spool["emptyDir"]["sizeLimit"], container(name)["resources"]["limits"]["ephemeral-storage"]
    assert settings.spool_limit_bytes < bytes_of(size) < bytes_of(limit)
    assert settings.spool_directory.parent == Path(mounted(name)["spool"])


def test_the_container_runs_the_agent_with_the_mounted_file(name: str) -> None:
    command, option, path = container(name)["args"]
    assert option == "--config"
    assert command in {known.name or getattr(known.callback, "__name__", "") for known in app.registered_commands}
    (key,) = of_kind(overlay(name), "ConfigMap")["data"]
    assert Path(path) == Path(mounted(name)["settings"]) / key
    (volume,) = (each for each in pod_of(overlay(name))["volumes"] if each["name"] == "settings")
    assert volume["configMap"]["name"] == of_kind(overlay(name), "ConfigMap")["metadata"]["name"]


def test_the_sources_can_be_made_and_speak_for_the_pod_s_node(name: str, settings: CollectorSettings) -> None:
    assert {source.kind for source in settings.source} <= set(SOURCES)
    with httpx.Client() as client:
        assert len(build_sources(settings, client)) == 1
    named = [source.options["node"] for source in settings.source]
    assert (settings.nvml.node if name == "nvidia" else named[0]) == "gpu-7"


def test_what_an_agent_finds_by_itself_is_what_a_pod_can_see(settings: CollectorSettings) -> None:
    assert (settings.discover, settings.discover_dcgm_urls, settings.discover_pages) == (True, (), {})


def test_folders_of_the_node_are_where_the_settings_look(settings: CollectorSettings, name: str) -> None:
    if settings.nvml.enabled:
        looks = {settings.nvml.proc_directory, settings.nvml.pods_directory}
        assert looks == {Path(mounted(name)[volume]) for volume in ("proc", "pod-logs")}
    assert settings.nvml.enabled == bool(NODE_FOLDERS[name])


def test_metrics_are_on_the_port_that_the_pod_shows_and_is_asked_on(name: str, settings: CollectorSettings) -> None:
    (port,) = container(name)["ports"]
    assert settings.metrics_listen == f"0.0.0.0:{port['containerPort']}"
    assert container(name)["livenessProbe"]["httpGet"]["port"] == port["name"]


def test_variables_are_the_agent_s_settings(name: str) -> None:
    variables = {each["name"]: each.get("value", "x") for each in container(name)["env"]}
    assert {"NODE_NAME", f"{COLLECTOR_PREFIX}TOKEN"} <= set(variables)
    check_environment(CollectorSettings, variables)


@pytest.mark.parametrize("vendor", ["amd", "ascend"])
def test_the_exporter_s_address_leads_to_the_same_node(vendor: str) -> None:
    service = of_kind(exporter_objects(vendor), "Service")
    (text,) = of_kind(overlay(vendor), "ConfigMap")["data"].values()
    (port,) = service["spec"]["ports"]
    place = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{port['port']}"
    (url,) = (line.split('"')[1] for line in text.splitlines() if line.startswith("url"))
    assert urlsplit(url).netloc == place
    assert service["spec"]["internalTrafficPolicy"] == "Local"


def test_the_policy_admits_the_agents_and_nobody_else() -> None:
    objects = exporter_objects("ascend")
    policy, service = of_kind(objects, "NetworkPolicy"), of_kind(objects, "Service")
    assert policy["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]
    labels = of_kind(overlay("ascend"), "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"] == labels
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "gpuledger-ascend"}


def test_the_kustomization_of_the_documentation_gives_own_settings_and_image(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "deploy-agent.md").read_text(encoding="utf-8")
    (block,) = (part.split("```", 1)[0] for part in page.split("```yaml\n")[1:] if "kind: Kustomization" in part)
    mine = yaml.safe_load(block)
    assert mine["bases"] == ["gpuledger/deploy/kubernetes/overlays/nvidia"]
    mine["bases"] = [os.path.relpath(DEPLOY / "kubernetes" / "overlays" / "nvidia", tmp_path)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    (tmp_path / "agent.toml").write_text('service_url = "https://ledger.example"\n', encoding="utf-8")
    objects: Objects = kustomized(tmp_path)
    assert of_kind(objects, "ConfigMap")["data"] == {"agent.toml": 'service_url = "https://ledger.example"\n'}
    (image,) = mine["images"]
    (only,) = pod_of(objects)["containers"]
    assert only["image"] == f"{image['newName']}:{image['newTag']}"
