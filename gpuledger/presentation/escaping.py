"""Names that others chose (tenants, namespaces, pods) are shown as text, whatever they contain."""

from __future__ import annotations

import re
import unicodedata

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&\"'@=/])")


def one_line(value: object, limit: int = 200) -> str:
    """`value` as one line without control or direction-changing characters, cut after `limit`."""
    text = "".join(" " if unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp"} else sign for sign in str(value))
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def markdown(value: object) -> str:
    """`value` as one line of Markdown that renders as exactly these characters: no HTML, link, formula or directive."""
    return _MARKDOWN.sub(r"\\\1", one_line(value))
