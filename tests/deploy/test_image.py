"""The image: all that the wheel packs goes in, and the user is the one that pods run as."""

from __future__ import annotations

import tomllib

from tests.deploy.rendered import DEPLOY, OVERLAYS, overlay, pod_of

ROOT = DEPLOY.parent
LINES = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKED = {*WHEEL["packages"], *WHEEL["force-include"]}


def test_what_the_wheel_packs_is_copied() -> None:
    copied = [line.split()[1:-1] for line in LINES if line.startswith("COPY ") and "--from" not in line]
    names = {name for names in copied for name in names}
    assert names == PACKED | {"requirements.lock", "pyproject.toml", PROJECT["project"]["readme"], "LICENSE"}
    admitted = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"
    }
    assert admitted == names


def test_the_image_runs_the_command_line_as_the_user_of_the_pods() -> None:
    (user,) = (line.split()[1] for line in LINES if line.startswith("USER "))
    for name in OVERLAYS:
        security = pod_of(overlay(name))["securityContext"]
        assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert 'ENTRYPOINT ["gpuledger"]' in LINES


def test_only_locked_files_are_installed_and_no_registry_is_named() -> None:
    installs = [line for line in LINES if "pip install" in line]
    assert installs
    assert all("--no-index" in line for line in installs)
    assert any("pip download --require-hashes" in line for line in LINES)
    (base,) = (line.partition("=")[2] for line in LINES if line.startswith("ARG BASE="))
    assert "/" not in base
    assert base.startswith("python:3.11")
