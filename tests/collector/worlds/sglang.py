"""An SGLang server for prompts, with two engines."""

from __future__ import annotations

import pytest

from collector.sources.sglang import SglangSource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    target.page = (request.getfixturevalue("recordings") / "sglang_prefill_ranks.prom").read_bytes()
    source = SglangSource(target.url, workload_id="serve/chat", interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500), lists_devices=False)
