"""The arrows between the packages hold, and each contract is seen to refuse a planted violation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS = [contract["name"] for contract in PROJECT["contracts"]]

# Contract: the file that gets a forbidden import, and the import.
PLANTED = {
    "Layers point one way": ("gpuledger/model/window.py", "import warehouse.queries"),
    "Only the warehouse knows DuckDB": ("reports/weekly.py", "import duckdb"),
    "Only warehouse.state knows SQLAlchemy": ("alerts/dispatch.py", "import sqlalchemy"),
    "Judgement and surfaces know no HTTP server and no HTTP client of their own": ("analyzers/fgd.py", "import httpx"),
    "Core does no I/O": ("gpuledger/ports.py", "import polars"),
    "Sources do not know each other": ("collector/sources/nvml.py", "import collector.sources.dcgm"),
}


def _lint(root: Path) -> tuple[int, str]:
    """Exit status and output of import-linter over the packages in `root`."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' Python files and the contracts, to break at will."""
    target = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", target)
    for package in PROJECT["root_packages"]:
        shutil.copytree(
            ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__", "*.css", "*.toml")
        )
    return target


@pytest.fixture
def planted(copy: Path, contract: str) -> Iterator[Path]:
    name, line = PLANTED[contract]
    path = copy / name
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n{line}\n", encoding="utf-8")
    yield copy
    path.write_text(before, encoding="utf-8")


def test_every_contract_is_kept() -> None:
    status, output = _lint(ROOT)
    assert status == 0, output
    for contract in CONTRACTS:
        assert f"{contract} KEPT" in output


def test_every_contract_has_its_planted_violation() -> None:
    assert set(PLANTED) == set(CONTRACTS)


@pytest.mark.parametrize("contract", PLANTED)
def test_a_violation_is_refused(planted: Path, contract: str) -> None:
    status, output = _lint(planted)
    assert status == 1, output
    assert f"{contract} BROKEN" in output
