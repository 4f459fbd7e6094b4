"""The dashboards' entry point: `streamlit run dashboards/app.py`. The service is found by GPULEDGER_SERVICE_URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from dashboards import access, filters, notices
from dashboards.questions import basis, fragments, gpu, health, hours, money, quality, queues, waste
from dashboards.view import View
from gpuledger import config
from gpuledger.clock import Clock, SystemClock
from gpuledger.errors import GpuledgerError
from gpuledger.presentation.texts import Texts

Question = Callable[[View], None]

# Path in the URL: page, title, icon. (A string here would be drawn on the page: Streamlit shows bare expressions.)
QUESTIONS: dict[str, tuple[Question, str, str]] = {
    "hours": (hours.show, "hours.title", ":material/account_balance:"),
    "waste": (waste.show, "waste.menu", ":material/recycling:"),
    "fragments": (fragments.show, "fragments.menu", ":material/grid_view:"),
    "health": (health.show, "health.menu", ":material/monitor_heart:"),
    "money": (money.show, "money.menu", ":material/payments:"),
    "queues": (queues.show, "queues.menu", ":material/hourglass_top:"),
    "gpu": (gpu.show, "gpu.title", ":material/memory:"),
    "quality": (quality.show, "quality.menu", ":material/rule:"),
    "basis": (basis.show, "basis.menu", ":material/balance:"),
}
_ICON = str(Path(__file__).with_name("icon.svg"))


def _view(texts: Texts, pages: dict[str, Any], clock: Clock) -> View:
    """Draw the filters, which belong to all pages, and ask what the ledger covers."""
    settings = config.load()
    ask, fetch = access.asking(settings.service_url), access.fetching(settings.service_url)
    extent = next(iter(ask("ledger_extent")), {})
    with st.sidebar:
        window, timezone = filters.choose_window(texts, extent, settings.timezone, clock.now())
        tenants = [row["tenant"] for row in ask("ledger_tenants", from_at=window.from_at, to_at=window.to_at)]
        tenant = filters.choose_tenant(texts, tenants)
    notices.stale(texts, extent.get("to_at"), clock.now(), timezone)
    return View(texts, filters.Filters(window, timezone, tenant), ask, fetch, extent, clock.now(), pages)


def main(clock: Clock | None = None, first: str = "hours") -> None:
    """Draw the page that the URL names; `first` lies at the root."""
    st.set_page_config(page_title="gpuledger", page_icon=_ICON, layout="wide")
    texts = filters.language()
    views: list[View] = []
    pages: dict[str, Any] = {}

    def page(path: str, question: Question) -> Callable[[], None]:
        def draw() -> None:
            question(views[0])

        draw.__name__ = path
        return draw

    for path, (question, title, icon) in QUESTIONS.items():
        shown = page(path, question)
        pages[path] = st.Page(shown, title=texts(title), icon=icon, url_path=path, default=path == first)
    chosen = st.navigation(list(pages.values()))
    try:
        views.append(_view(texts, pages, clock or SystemClock()))
        chosen.run()
    except (GpuledgerError, OSError) as error:
        if not views:
            st.title(chosen.title)
        notices.refused_or_failed(texts, error)
    with st.sidebar:
        filters.choose_language(texts)


if __name__ == "__main__":
    main()
