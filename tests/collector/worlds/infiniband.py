"""A folder of the kernel's with two ports."""

from __future__ import annotations

import shutil

import pytest

from collector.sources.infiniband import InfinibandSource
from tests.collector.sysfs_tree import plant
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    root = request.getfixturevalue("tmp_path") / "infiniband"
    recordings = request.getfixturevalue("recordings")
    plant(root, (recordings / "infiniband_two_adapters.txt").read_text())
    source = InfinibandSource(node="n1", root=root, interval_seconds=15)
    return Case(source=source, break_it=lambda: shutil.rmtree(root, ignore_errors=True), lists_devices=False)
