"""The agent's settings: file, environment and arguments, and errors that name the setting."""

from __future__ import annotations

import pytest
import typer

from collector.settings import load
from gpuledger import config
from gpuledger.app import cli
from gpuledger.errors import ConfigError

FILE = """
service_url = "https://ledger.example"
token = "TOKEN-CANARY"
flush_seconds = 5

[nvml]
enabled = true

[[dcgm]]
url = "http://10.0.0.5:9400/metrics"

[[dcgm]]
url = "http://10.0.0.6:9400/metrics"
node = "gpu-6"
interval_seconds = 60
gpu_util_ratio_unit = "ratio"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(FILE)
    return path


def test_defaults_read_nothing():
    settings = load()
    assert (settings.dcgm, settings.nvml.enabled, settings.flush_seconds) == ((), False, 15)


def test_a_file_over_the_defaults(file):
    settings = load(file)
    first, second = settings.dcgm
    assert (first.node, first.interval_seconds, first.timeout_seconds, first.gpu_util_ratio_unit) == (
        None, 15, 10, "percent",
    )  # fmt: skip
    assert (second.node, second.interval_seconds, second.gpu_util_ratio_unit) == ("gpu-6", 60, "ratio")
    assert (settings.nvml.enabled, settings.service_url) == (True, "https://ledger.example")


def test_one_file_serves_every_node_where_the_environment_names_it(tmp_path, monkeypatch):
    path = tmp_path / "agent.toml"
    path.write_text(
        '[nvml]\nnode = "$NODE_NAME"\n[[source]]\nkind = "x"\nnode = "$NODE_NAME"\nroot = "/"\n[[source]]\nkind = "x"\n'
    )
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    settings = load(path)
    assert settings.nvml.node == "gpu-7"
    assert [source.options for source in settings.source] == [{"node": "gpu-7", "root": "/"}, {}]
    monkeypatch.delenv("NODE_NAME")
    with pytest.raises(ConfigError, match=r"nvml.node: .*NODE_NAME is not set in the environment"):
        load(path)


def test_the_environment_over_the_file_and_arguments_over_both(file, monkeypatch):
    monkeypatch.setenv("GPULEDGER_COLLECTOR_FLUSH_SECONDS", "7")
    monkeypatch.setenv("GPULEDGER_COLLECTOR_NVML__NODE", "n1")
    settings = load(file)
    assert (settings.flush_seconds, settings.nvml.node, settings.nvml.enabled) == (7, "n1", True)
    assert load(file, flush_seconds=9, service_url=None).flush_seconds == 9


def test_the_token_does_not_show(file):
    settings = load(file)
    assert "TOKEN-CANARY" not in repr(settings)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "TOKEN-CANARY"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[dcgm]]\nurl = "ftp://x"', "dcgm.0.url"),
        ('[[dcgm]]\nurl = "http://x"\ninterval_seconds = 0', "dcgm.0.interval_seconds"),
        ('[[dcgm]]\nurl = "http://x"\nnodes = "y"', "dcgm.0.nodes"),
        ("flush = 1", "flush"),
        ("spool_limit_bytes = 1", "spool_limit_bytes"),
        ("this is not TOML", "agent.toml"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, text, named):
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("GPULEDGER_COLLECTOR_FLUSH_SECOND", "GPULEDGER_COLLECTOR_FLUSH_SECONDS"),
        ("GPULEDGER_COLLECTOR_NVML__NODES", ""),
        ("GPULEDGER_COLLECTOR_DCGM__URL", "GPULEDGER_COLLECTOR_DCGM"),
        ("gpuledger_collector_servce_url", "GPULEDGER_COLLECTOR_SERVICE_URL"),
        ("GPULEDGER_COLLECTOR_", ""),
    ],
)
def test_a_misspelt_variable_is_an_error_that_names_it(monkeypatch, name, near):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigError, match=name) as raised:
        load()
    assert near in str(raised.value)


def test_a_misspelt_variable_of_the_service_is_an_error_too(monkeypatch):
    monkeypatch.setenv("GPULEDGER_TIMEZON", "UTC")
    with pytest.raises(ConfigError, match=r"GPULEDGER_TIMEZON: .*GPULEDGER_TIMEZONE"):
        config.load()


def test_each_process_leaves_the_variables_of_the_other_alone(monkeypatch):
    monkeypatch.setenv("GPULEDGER_TIMEZONE", "Asia/Shanghai")
    monkeypatch.setenv("GPULEDGER_COLLECTOR_FLUSH_SECONDS", "7")
    monkeypatch.setenv("GPULEDGERISH", "1")
    monkeypatch.setenv("GPULEDGER_PROMETHEUS_TOKEN", "of one command's option")
    assert config.load().timezone == "Asia/Shanghai"
    assert load().flush_seconds == 7


def test_every_variable_of_an_option_is_known():
    app = typer.main.get_command(cli.app)
    waiting, found = [app], set()
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        found |= {str(parameter.envvar) for parameter in command.params if parameter.envvar}
    assert found == config.OPTION_VARIABLES
