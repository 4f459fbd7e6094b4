"""A vLLM server with two engines."""

from __future__ import annotations

import pytest

from collector.sources.vllm import VllmSource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    target.page = (request.getfixturevalue("recordings") / "vllm_two_engines.prom").read_bytes()
    source = VllmSource(target.url, namespace="serve", pod="chat-0", interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500), lists_devices=False)
