"""A command nvidia-smi that answers from a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.sources.nvidia_smi import NvidiaSmiSource
from tests.collector.worlds.case import FIRST, SECOND, Case

STUB = Path(__file__).resolve().parents[2] / "stubs" / "nvidia_smi" / "nvidia-smi"


def world(request: pytest.FixtureRequest) -> Case:
    directory = request.getfixturevalue("tmp_path")
    lines = [
        "uuid, name, utilization.gpu [%], power.draw [W]",
        f"{FIRST}, NVIDIA H100 80GB HBM3, 97 %, 512.345 W",
        f"{SECOND}, NVIDIA H100 80GB HBM3, 97 %, [N/A]",
    ]
    answer = directory / "answer"
    answer.write_text("\n".join(lines))
    environment = os.environ | {"NVIDIA_SMI_STUB": str(directory)}
    source = NvidiaSmiSource(node="n1", interval_seconds=15, command=str(STUB), environment=environment)
    return Case(source=source, break_it=lambda: answer.write_text("NVIDIA-SMI has failed"))
