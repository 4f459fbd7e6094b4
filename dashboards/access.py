"""How pages ask the service: named queries, and what the API says; answers kept for a minute by their parameters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import streamlit as st

from gpuledger.ports import QueryRunner

KEPT_FOR = timedelta(seconds=60)

Rows = list[dict[str, Any]]
Ask = Callable[..., Rows]
Fetch = Callable[..., dict[str, Any]]


class Reader(QueryRunner, Protocol):
    """What a page needs of a client."""

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON answer to a GET."""
        ...


def connect(service_url: str) -> Reader:
    """A client of the service at `service_url`; the one place where the dashboards get one."""
    from gpuledger.app.client import connect as open_client  # noqa: PLC0415 pages load without the service

    return open_client(service_url)


@st.cache_resource(show_spinner=False)
def _runner(service_url: str) -> Reader:
    return connect(service_url)


@st.cache_data(ttl=KEPT_FOR, max_entries=256, show_spinner=False)
def _answer(service_url: str, name: str, parameters: tuple[tuple[str, Any], ...]) -> Rows:
    rows: Rows = _runner(service_url).query(name, **dict(parameters)).to_pylist()
    return rows


@st.cache_data(ttl=KEPT_FOR, max_entries=64, show_spinner=False)
def _document(service_url: str, path: str, parameters: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    document: dict[str, Any] = _runner(service_url).get(path, **dict(parameters))
    return document


def fetching(service_url: str) -> Fetch:
    """A function `fetch(path, **parameters)` -> the API's JSON answer, for what no named query gives."""

    def fetch(path: str, /, **parameters: Any) -> dict[str, Any]:
        return _document(service_url, path, tuple(sorted(parameters.items())))

    return fetch


def asking(service_url: str) -> Ask:
    """A function `ask(name, **parameters)` -> rows. Values travel as parameters only, never inside a query's text."""

    def ask(name: str, /, **parameters: Any) -> Rows:
        return _answer(service_url, name, tuple(sorted(parameters.items())))

    return ask
