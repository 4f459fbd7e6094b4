"""The agent's process loads the agent, and not the warehouse and the rules: it runs beside other people's work."""

from __future__ import annotations

import subprocess
import sys

from tests.app.conftest import environment

LOADED = """
import sys
from gpuledger.app import start
agent = start._commands(["collect", "--nvml"])
import gpuledger.app.collecting
from gpuledger.registry import resolve
from gpuledger.model import to_table
resolve("sources", "nvml")
gpuledger.app.collecting.arrow_without_pandas()
to_table("reading", [])
print(*sys.modules)
import pandas
"""


def test_the_agent_loads_neither_warehouse_nor_rules():
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, env=environment(), timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.decode().split()}
    assert {"pyarrow", "collector"} <= loaded
    assert loaded.isdisjoint(
        {"warehouse", "analyzers", "schedulers", "duckdb", "sqlalchemy", "polars", "pandas", "scipy"}
    )


def test_the_agents_command_line_is_the_same_wherever_it_is_loaded_from():
    command = [sys.executable, "-m", "gpuledger.app", "collect", "--config", "absent.toml"]
    ran = subprocess.run(command, capture_output=True, env=environment(), timeout=60, check=False)
    assert (ran.returncode, ran.stderr.startswith(b"gpuledger: ")) == (2, True)
