"""Charts as inline SVG: no script, no network, the same bytes for the same chart."""

from __future__ import annotations

import re

import vl_convert
from markupsafe import Markup

from gpuledger.presentation.charts.frame import Spec

_NUMBERED = re.compile(r"\b(gradient|clip)_?(\d+)\b")


def draw(chart: Spec, name: str, width: int = 720) -> Markup:
    """A chart of `gpuledger.presentation.charts` as SVG markup of `width` pixels; texts in it arrive escaped.

    `name` is unique in the document: the renderer numbers its gradients through the life of the process, and these
    numbers are replaced by the chart's name and the order of appearance.
    """
    svg: str = vl_convert.vegalite_to_svg({**chart, "width": width}, allowed_base_urls=[])
    known: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return known.setdefault(match[0], f"{name}-{match[1]}-{len(known)}")

    head, *rest = re.split(r"(<text[^>]*>[^<]*</text>)", svg)
    parts = [part if part.startswith("<text") else _NUMBERED.sub(renamed, part) for part in (head, *rest)]
    return Markup("".join(parts))  # noqa: S704 the renderer escapes every text it draws; a test feeds it hostile names
