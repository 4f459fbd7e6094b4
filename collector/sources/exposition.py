"""Any exporter of cards, read as a mapping file says: a card nobody thought of needs no code."""

from __future__ import annotations

from collector.mapping.source import MappedSource


class ExpositionSource(MappedSource):
    """Reads one endpoint.

    `mapping` is a shipped mapping's name, or a file; the other options are those of every page.
    """
