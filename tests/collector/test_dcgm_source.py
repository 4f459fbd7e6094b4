"""Scraping: deadlines, refusals, and what a target that is down is called."""

from __future__ import annotations

import socket
import time

import pytest

from collector import fetch
from collector.sources.dcgm import DcgmSource

PAGE = b'DCGM_FI_DEV_GPU_UTIL{UUID="G",Hostname="n1"} 50\n'


def failed(source: DcgmSource, now) -> tuple[str, str]:
    (read,) = source.read(now).reads
    assert not read.ok
    assert read.error is not None
    return read.node, read.error


def test_a_page_is_asked_for_as_plain_text_without_compression(target, now):
    target.page = PAGE
    assert DcgmSource(target.url).read(now).readings[0].gpu_util_ratio == 0.5
    assert target.requests[0]["Accept"] == "text/plain;version=0.0.4"
    assert target.requests[0]["Accept-Encoding"] == "identity"


def test_a_target_that_never_answered_is_its_address(now):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{free.getsockname()[1]}/metrics"
        source = DcgmSource(url, timeout_seconds=1)
        assert failed(source, now) == ("127.0.0.1", "not reachable: connection refused")
    assert "secret" not in source.name


def test_a_target_that_fell_silent_is_the_node_it_spoke_for(target, now):
    target.page = PAGE
    source = DcgmSource(target.url)
    source.read(now)
    target.status = 503
    assert failed(source, now) == ("n1", "HTTP 503")


def test_a_configured_node_is_the_node(target, now):
    target.status = 404
    assert failed(DcgmSource(target.url, node="n9"), now) == ("n9", "HTTP 404")


def test_a_slow_target_costs_its_deadline(target, now):
    target.page, target.delay = PAGE, 3.0
    started = time.monotonic()
    assert failed(DcgmSource(target.url, node="n", timeout_seconds=0.2), now) == ("n", "no answer within 0.2 s")
    assert time.monotonic() - started < 2


def test_a_dripping_target_costs_its_deadline_too(target, now):
    target.page, target.drip = PAGE * 50, 0.05
    started = time.monotonic()
    _, error = failed(DcgmSource(target.url, node="n", timeout_seconds=0.3), now)
    assert error == "no whole page within 0.3 s"
    assert time.monotonic() - started < 3


def test_a_page_cut_off_on_the_way_is_a_failed_read(target, now):
    target.page, target.cut_at = PAGE, 20
    _, error = failed(DcgmSource(target.url, timeout_seconds=1), now)
    assert error.startswith(("not reachable", "no answer"))


def test_a_page_beyond_the_limit_is_refused(target, now, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_PAGE_BYTES", 100)
    target.page = PAGE * 10
    assert failed(DcgmSource(target.url, node="n"), now) == ("n", "page larger than 100 bytes")


def test_a_redirect_is_not_followed(target, now):
    target.status = 302
    assert failed(DcgmSource(target.url, node="n"), now) == ("n", "HTTP 302")


def test_what_the_labels_cost_is_counted(target, now):
    target.page = b'DCGM_FI_DEV_GPU_UTIL{UUID="G",a="1",b="2"} 50\n'
    source = DcgmSource(target.url)
    source.read(now)
    source.read(now)
    assert source.counts == {"dropped_labels": 2, "uncached_series": 0}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://10.0.0.5:9400/metrics", "dcgm:10.0.0.5:9400/metrics"),
        ("https://exporter.example/m", "dcgm:exporter.example:443/m"),
    ],
)
def test_a_source_is_named_by_its_address(url, name):
    assert DcgmSource(url).name == name
