"""What is wrong with an adapter's options, tokens and certificates is named, and no secret is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import ConfigError, SchedulerUnreachable
from gpuledger.ports import SchedulerReader
from gpuledger.registry import SCHEDULERS, resolve
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Store, serve
from tests.schedulers.kubernetes_objects import NOW, node

NOWHERE = "http://127.0.0.1:1"
FAMILY = ("kubernetes", "kueue", "volcano", "kai", "koordinator", "kuberay")
BY_HTTP: dict[str, dict[str, Any]] = {
    **{adapter: {} for adapter in FAMILY},
    "yarn": {},
    "ray": {},
    "airflow": {"gpus_per_slot": {"gpu": 1}},
    "slurm": {"transport": "rest"},
}


def _reader(adapter: str, options: Mapping[str, Any]) -> SchedulerReader:
    found: SchedulerReader = resolve("schedulers", adapter).from_options(
        options, cluster="default", rules=Rules(), clock=FakeClock(NOW)
    )
    return found


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a-token", encoding="utf-8")
    return path


def test_every_adapter_that_reads_is_tried_here() -> None:
    assert set(BY_HTTP) == set(SCHEDULERS) - {"fake"}


@pytest.mark.parametrize("adapter", BY_HTTP)
def test_a_misspelt_option_is_answered_with_those_that_there_are(adapter: str) -> None:
    with pytest.raises(
        ConfigError, match=f"scheduler {adapter}: .*tokenfile: there is no such key; known: .*token_file"
    ):
        _reader(adapter, {"tokenfile": "hidden"})


@pytest.mark.parametrize("adapter", BY_HTTP)
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:6443", "url: is no address that begins with http"),
        ("ftp://cluster", "url: is no address that begins with http"),
        ("https://somebody:hidden@cluster", "url: holds a user, a password or a query"),
        ("https://cluster?token=hidden", "url: holds a user, a password or a query"),
    ],
)
def test_an_address_is_http_and_holds_no_secret(adapter: str, url: str, words: str, token: Path) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        _reader(adapter, {**BY_HTTP[adapter], "url": url, "token_file": str(token)})
    assert "hidden" not in str(error.value)
    assert "Value error" not in str(error.value)


def test_a_list_and_a_table_are_said_to_be_written_as_such() -> None:
    with pytest.raises(ConfigError, match="namespaces: must be a list"):
        _reader("kueue", {"namespaces": "train"})
    with pytest.raises(ConfigError, match="gpus_per_slot: must be a table"):
        _reader("airflow", {"url": NOWHERE, "gpus_per_slot": "1"})
    with pytest.raises(ConfigError, match="url: is not given and must be"):
        _reader("yarn", {})


@pytest.mark.parametrize("adapter", BY_HTTP)
@pytest.mark.parametrize("secret", [b"", b"hidden-a\nhidden-b", b"hidden\xe4"])
def test_a_token_that_cannot_be_sent_is_told_by_its_place_alone(adapter: str, secret: bytes, token: Path) -> None:
    token.write_bytes(secret)
    with serve(Store(clock=FakeClock(NOW))) as api:
        reader = _reader(adapter, {**BY_HTTP[adapter], "url": api.url, "token_file": str(token)})
        with pytest.raises(ConfigError) as error:
            reader.snapshot()
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("adapter", BY_HTTP)
def test_who_is_not_there_is_told_in_the_systems_words(adapter: str, token: Path) -> None:
    reader = _reader(adapter, {**BY_HTTP[adapter], "url": NOWHERE, "token_file": str(token)})
    with pytest.raises(SchedulerUnreachable, match=r"127\.0\.0\.1:1/.*[Rr]efused"):
        reader.snapshot()


@pytest.mark.parametrize("adapter", BY_HTTP)
def test_certificates_that_are_not_there_are_named(adapter: str, token: Path, tmp_path: Path) -> None:
    options = {"url": "https://127.0.0.1:1", "token_file": str(token), "ca_file": str(tmp_path / "ca.pem")}
    reader = _reader(adapter, {**BY_HTTP[adapter], **options})
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        reader.snapshot()


@pytest.mark.parametrize("adapter", BY_HTTP)
def test_proxies_of_the_environment_are_not_used(adapter: str, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Store(clock=FakeClock(NOW))) as api:
        monkeypatch.setenv("HTTP_PROXY", api.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        reader = _reader(adapter, {**BY_HTTP[adapter], "url": NOWHERE, "token_file": str(token)})
        with pytest.raises(SchedulerUnreachable):
            reader.snapshot()
        assert api.asked == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: [", "is no YAML"),
        ("users: [{name: reader, user: {token: hidden}}]", "has no 'clusters'"),
    ],
)
def test_a_kubeconfig_that_is_none_says_what_it_lacks(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"kubeconfig: {words}") as error:
        _reader("kubernetes", {"kubeconfig": str(path)}).snapshot()
    assert "hidden" not in str(error.value)


def test_a_token_is_read_anew_when_it_was_mended(token: Path) -> None:
    store = Store(clock=FakeClock(NOW))
    store.put(node("n1"))
    token.write_text("", encoding="utf-8")
    with serve(store) as api:
        reader = _reader("kubernetes", {"url": api.url, "token_file": str(token)})
        with pytest.raises(ConfigError):
            reader.snapshot()
        token.write_text("mended", encoding="utf-8")
        assert reader.snapshot().scope.is_complete
