"""A `[[source]]` table is checked before anything is made of it, and what is wrong is said where it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from collector.building import build_sources
from collector.options import taken_by
from collector.settings import load
from gpuledger import registry
from gpuledger.errors import ConfigError

URL = 'url = "http://h:8082/metrics"\n'


def built(tmp_path, *tables: str):
    path = tmp_path / "collector.toml"
    path.write_text("".join(f"[[source]]\n{table}\n" for table in tables), encoding="utf-8")
    with httpx.Client() as client:
        return build_sources(load(path), client)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("npu_exporter", URL + 'interval_seconds = "15"', "interval_seconds: Input should be a valid number"),
        ("npu_exporter", URL + "interval_seconds = 0", "interval_seconds: Input should be greater than or equal to 1"),
        ("npu_exporter", URL + "interval_seconds = -5", "interval_seconds: Input should be greater than or equal to 1"),
        ("npu_exporter", URL + "interval_seconds = nan", "interval_seconds: Input should be a finite number"),
        ("npu_exporter", URL + "interval_seconds = true", "interval_seconds: Input should be a valid number"),
        ("npu_exporter", URL + 'timeout_seconds = "a"', "timeout_seconds: Input should be a valid number"),
        ("npu_exporter", URL + 'drop_labels = "pod"', "drop_labels: Input should be a valid array"),
        ("npu_exporter", URL + 'drop_labels = ["a", 2]', "drop_labels.1: Input should be a valid string"),
        ("npu_exporter", "url = 7", "url: Input should be a valid string"),
        ("npu_exporter", 'url = "h:8082/metrics"', "url: must be http:// or https:// and a host"),
        ("npu_exporter", 'url = "ftp://h/metrics"', "url: must be http:// or https:// and a host"),
        ("npu_exporter", 'url = "http:///metrics"', "url: must be http:// or https:// and a host"),
        ("npu_exporter", 'url = "http://h:port/metrics"', "url: not an address: Invalid port: 'port'"),
        ("npu_exporter", URL + 'node = ""', "node: String should have at least 1 character"),
        ("npu_exporter", "", "url: must be given"),
        ("exposition", URL, "mapping: must be given"),
        ("ray", URL + 'mapping = "amd"', "mapping: no such option; known: drop_labels, interval_seconds, node, "),
        ("ray", URL + 'client = "x"', "client: no such option"),
        ("hami", URL + "interval_second = 15", "interval_second: no such option; did you mean interval_seconds?"),
        ("vllm", URL + "pod = 3", "pod: Input should be a valid string"),
        ("vllm", URL + "pod = 2026-01-01", "pod: Input should be a valid string"),
        ("vllm", URL + 'role = "router"', "role: must be one of "),
        ("training_log", 'path = "/l/{workload}.log"\ngpus = "x"', "gpus: Input should be a valid integer"),
        ("training_log", 'path = "/l/{workload}.log"\nmodel = 7', "model: Input should be an object"),
        ("kube_state_metrics", URL + "rules = 7", "rules: Input should be a valid string"),
        ("no_such", URL, "no source called 'no_such'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_with_its_table(tmp_path, kind, options, said):
    with pytest.raises(ConfigError) as error:
        built(tmp_path, 'kind = "infiniband"', f'kind = "{kind}"\n{options}')
    assert str(error.value).startswith(f"source.1 ({kind}): {said}")


def test_good_options_arrive(tmp_path):
    more = 'node = "n"\ninterval_seconds = 5\ntimeout_seconds = 2.5\ndrop_labels = ["pod"]'
    tables = [f'kind = "{kind}"\n{URL}{more}' for kind in ("npu_exporter", "amd_exporter", "ray", "hami")]
    tables.append(f'kind = "kube_state_metrics"\n{URL}cluster = "c"')
    sources = built(tmp_path, *tables)
    assert [source.interval_seconds for source in sources] == [5, 5, 5, 5, 30]


def test_every_source_of_our_own_says_what_it_takes():
    for kind in registry.SOURCES:
        taken = taken_by(registry.resolve("sources", kind))
        assert not taken.takes_others, kind
        assert Any not in taken.types.values(), kind
        assert "interval_seconds" in taken.types, kind


def test_one_page_twice_is_refused_and_two_queries_are_two_pages(tmp_path):
    table = f'kind = "npu_exporter"\n{URL}'
    with pytest.raises(ConfigError, match=r"^sources: given more than once: npu_exporter:h:8082/metrics$"):
        built(tmp_path, table, table)
    one, two = built(tmp_path, *(table.replace("metrics", f"metrics?token={secret}") for secret in ("s3cret", "b")))
    assert one.name != two.name
    assert "s3cret" not in one.name


class Plugin:
    """A source of another package: its address is no page, and it takes what it likes."""

    name = "plugin"

    def __init__(self, url, *, every: timedelta = timedelta(seconds=9), interval_seconds=0.5, **options) -> None:
        self.given = (url, every, options)
        self.interval_seconds = interval_seconds


def test_a_source_of_another_package_takes_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr("collector.building.resolve", lambda *_: Plugin)
    (source,) = built(tmp_path, 'kind = "plugin"\nurl = "redis://h"\ncolour = "red"\nnode = "n"')
    assert source.given == ("redis://h", timedelta(seconds=9), {"colour": "red", "node": "n"})
    for wrong in ("nan", "0", "-1", '"x"'):
        with pytest.raises(ConfigError, match=r"^source\.0 \(plugin\): "):
            built(tmp_path, f'kind = "plugin"\nurl = "redis://h"\ninterval_seconds = {wrong}')
