"""A kube-state-metrics page with one pod."""

from __future__ import annotations

import pytest

from collector.sources.kube_state_metrics import KubeStateMetricsSource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    pod = 'namespace="a",pod="p",uid="u1",node="n1"'
    target.page = (
        f"kube_pod_info{{{pod}}} 1\n"
        f'kube_pod_container_resource_requests{{{pod},container="c",resource="nvidia_com_gpu",unit="integer"}} 2\n'
        f'kube_pod_status_phase{{{pod},phase="Running"}} 1\n'
    ).encode()
    source = KubeStateMetricsSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500), lists_devices=False)
