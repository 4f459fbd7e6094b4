"""HAMi shares cards among pods: the monitor of each node says what its cards do, the scheduler what pods were given.

Both pages are read as the mapping `hami` says. The two speak of the same cards; each has a name of its own as a source,
so that neither's rows take the place of the other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Unpack

from collector.mapping.file import load
from collector.mapping.source import MappedSource, PageOptions

NUMBERS_IN_LABELS = ("context", "module", "data", "offset", "context_size", "module_size", "buffer_size")
"""Labels that hold values, in the older names: with them every change of a value were another series."""

PAGES: Mapping[str, str] = MappingProxyType({"monitor": "hami", "scheduler": "hami_scheduler"})
"""The name of each page as a source."""


class HamiSource(MappedSource):
    """Reads one page: `monitor`, of a node (port 9394), or `scheduler`, of the whole cluster (port 31993).

    The other options are those of every page. Raises ValueError for a `page` that is neither.
    """

    def __init__(self, url: str, *, page: str = "monitor", **options: Unpack[PageOptions]) -> None:
        if page not in PAGES:
            raise ValueError(f"page: {page!r} is none of {', '.join(PAGES)}")
        mapping = load("hami").model_copy(update={"source": PAGES[page]})
        options["drop_labels"] = (*options.get("drop_labels", ()), *NUMBERS_IN_LABELS)
        super().__init__(url, mapping=mapping, **options)
