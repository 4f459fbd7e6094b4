"""The unit: lines that systemd takes, an agent that can run under them, and nothing that it may do beyond."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from collector.settings import load
from tests.deploy.rendered import DEPLOY

UNIT = DEPLOY / "systemd" / "gpuledger-agent.service"
STATE = Path("/var/lib")
"""Where systemd makes what StateDirectory names."""


@pytest.fixture
def unit() -> dict[str, dict[str, list[str]]]:
    """Sections of the unit; a key that stands more than once has all its values."""
    sections: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, separator, value = line.partition("=")
            assert separator, f"no setting: {line}"
            sections[section][key].append(value)
    return {name: dict(keys) for name, keys in sections.items()}


def test_it_runs_the_agent_with_its_settings_file_and_is_tried_again_for_ever(unit) -> None:
    service = unit["Service"]
    (command,) = service["ExecStart"]
    assert shlex.split(command) == ["/opt/gpuledger/bin/gpuledger", "collect", "--config", "/etc/gpuledger/agent.toml"]
    assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert unit["Install"]["WantedBy"] == ["multi-user.target"]


def test_the_settings_beside_it_load_and_write_only_where_the_unit_lets_them(unit) -> None:
    settings = load(DEPLOY / "systemd" / "agent.toml")
    (state,) = unit["Service"]["StateDirectory"]
    assert settings.spool_directory.parent == STATE / state
    assert settings.metrics_listen.startswith("127.0.0.1:")
    assert settings.discover
    assert unit["Service"]["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in unit["Service"]


@pytest.mark.parametrize(
    "line",
    [
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "DynamicUser=yes",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "DevicePolicy=closed",
        "DeviceAllow=char-nvidia* rw",
        "MemoryMax=512M",
        "CPUQuota=50%",
    ],
)
def test_what_it_may_do_and_take_is_bounded(unit, line: str) -> None:
    key, _, value = line.partition("=")
    assert unit["Service"][key] == [value]


def test_systemd_takes_every_line_and_calls_the_exposure_small(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("optional: systemd is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/gpuledger/bin/gpuledger", "/bin/true"))
    verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    # From 0 (nothing to attack) to 10, here in tenths; 2.0 is the least that systemd calls more than "OK".
    judge = [analyze, "security", "--offline=true", "--threshold=20", str(copy)]
    judged = subprocess.run(judge, capture_output=True, text=True, timeout=60, check=False)
    assert judged.returncode == 0, judged.stdout
