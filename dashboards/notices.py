"""Five states that a page can be in besides full, each with its own look and its own way on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from gpuledger.errors import ConfigError, GpuledgerError
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.texts import Texts

STALE_AFTER = timedelta(hours=3)


def _titled(title: str, body: str) -> str:
    return f"**{title}**  \n{body}"


def empty(texts: Texts, body: str) -> None:
    """Nothing is recorded for what was asked; `body` (Markdown) says what is missing."""
    st.info(_titled(texts("notice.empty_title"), body), icon=":material/inbox:")


def empty_period(texts: Texts, extent: Mapping[str, Any], timezone: str, tenant: str = "") -> None:
    """The same for a period: an empty warehouse, a period outside of the ledger, or a filter that matches nothing."""
    if not extent.get("gpu_count") or extent.get("from_at") is None:
        empty(texts, texts("notice.empty_fleet"))
    elif tenant:
        empty(texts, texts.markdown("notice.empty_filter", tenant=tenant))
    else:
        covered = numbers.period(extent["from_at"], extent["to_at"], timezone)
        empty(texts, texts.markdown("notice.empty_period", period=covered))


def partial(texts: Texts, body: str) -> None:
    """Some of what should be there is missing; `body` (Markdown) says how much."""
    st.warning(_titled(texts("notice.partial_title"), body), icon=":material/incomplete_circle:")


def stale(texts: Texts, newest: datetime | None, now: datetime, timezone: str) -> None:
    """Shown when the ledger's newest hour lies further back than `STALE_AFTER`."""
    if newest is None or now - newest < STALE_AFTER:
        return
    age = numbers.duration((now - newest).total_seconds() / 3600, texts.language)
    until = f"{numbers.instant(newest, timezone)} ({timezone})"
    title = texts("notice.stale_title", age=age)
    st.warning(_titled(title, texts.markdown("notice.stale_body", until=until)), icon=":material/history:")


def is_forbidden(error: Exception) -> bool:
    """Whether the service answered and refused: the client raises ConfigError about the token, not a failure."""
    return isinstance(error, ConfigError) and str(error).startswith("token")


def refused_or_failed(texts: Texts, error: GpuledgerError | OSError) -> None:
    """The service said no, or did not answer."""
    if is_forbidden(error):
        st.error(_titled(texts("notice.forbidden_title"), texts("notice.forbidden_body")), icon=":material/lock:")
        return
    reason = escaping.one_line(error).rstrip(".")
    body = texts.markdown("notice.failed_body", reason=reason)
    st.error(_titled(texts("notice.failed_title"), body), icon=":material/cloud_off:")


def finality(texts: Texts, provisional_gpu_hours: float, final_until: datetime | None, timezone: str) -> None:
    """One line: may the figures of this period still change?"""
    if provisional_gpu_hours > 0:
        hours = numbers.gpu_hours(provisional_gpu_hours, texts.language)
        until = numbers.instant(final_until, timezone)
        st.caption(":material/edit_note: " + texts.markdown("notice.provisional", hours=hours, until=until))
    else:
        st.caption(":material/task_alt: " + texts("notice.final"))
