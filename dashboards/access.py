"""How pages ask the service: named queries only, answers kept for a minute by their parameters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import streamlit as st

from gpuledger.ports import QueryRunner

KEPT_FOR = timedelta(seconds=60)

Rows = list[dict[str, Any]]
Ask = Callable[..., Rows]


def connect(service_url: str) -> QueryRunner:
    """A client of the service at `service_url`; the one place where the dashboards get one."""
    from gpuledger.app.client import connect as open_client  # noqa: PLC0415 pages load without the service

    return open_client(service_url)


@st.cache_resource(show_spinner=False)
def _runner(service_url: str) -> QueryRunner:
    return connect(service_url)


@st.cache_data(ttl=KEPT_FOR, max_entries=256, show_spinner=False)
def _answer(service_url: str, name: str, parameters: tuple[tuple[str, Any], ...]) -> Rows:
    rows: Rows = _runner(service_url).query(name, **dict(parameters)).to_pylist()
    return rows


def asking(service_url: str) -> Ask:
    """A function `ask(name, **parameters)` -> rows. Values travel as parameters only, never inside a query's text."""

    def ask(name: str, /, **parameters: Any) -> Rows:
        return _answer(service_url, name, tuple(sorted(parameters.items())))

    return ask
