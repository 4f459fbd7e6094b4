"""A log of one job, to which nothing was ever lost."""

from __future__ import annotations

import shutil

import pytest

from collector.sources.training_log import TrainingLogSource
from tests.collector.worlds.case import Case

LINE = " [2026-03-02 09:59:{:02}] iteration {:8}/ 1000 | elapsed time per iteration (ms): 10000.0 |\n"


def world(request: pytest.FixtureRequest) -> Case:
    folder = request.getfixturevalue("tmp_path") / "logs"
    folder.mkdir()
    (folder / "train-7.log").write_text("".join(LINE.format(10 * n, n) for n in range(1, 5)))
    source = TrainingLogSource(
        f"{folder}/{{workload}}.log", interval_seconds=15, state_directory=folder.parent / "state"
    )
    return Case(source=source, break_it=lambda: shutil.rmtree(folder), lists_devices=False)
