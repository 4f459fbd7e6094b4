"""Ray's nodes, where no other exporter is: their agents' metrics pages, which the mapping file `ray` describes."""

from __future__ import annotations

from typing import Unpack

from collector.mapping.source import MappedSource, PageOptions


class RaySource(MappedSource):
    """Reads one node's agent; `options` are those of every mapped page, without `mapping`.

    Beside a source that names cards by UUID each card would be counted twice: read a node through one of them only.
    """

    def __init__(self, url: str, **options: Unpack[PageOptions]) -> None:
        super().__init__(url, mapping="ray", **options)
