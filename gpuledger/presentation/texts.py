"""Every sentence a person reads, in English and Chinese, from one table: `texts.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gpuledger.presentation import escaping

LANGUAGES = {"en": "English", "zh": "中文"}


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    content = tomllib.loads(files("gpuledger.presentation").joinpath("texts.toml").read_text(encoding="utf-8"))
    found: dict[str, Mapping[str, str]] = {}

    def collect(prefix: str, node: Mapping[str, Any]) -> None:
        for name, value in node.items():
            key = f"{prefix}.{name}" if prefix else name
            if isinstance(value, dict) and not isinstance(value.get("en"), str):
                collect(key, value)
            else:
                found[key] = value

    collect("", content)
    return found


def keys() -> frozenset[str]:
    """Every key of the table."""
    return frozenset(_table())


@dataclass(frozen=True, slots=True)
class Texts:
    """The table in one language. A key that is missing is a programming error and raises KeyError."""

    language: str = "en"

    def __call__(self, key: str, /, **values: object) -> str:
        """The plain text of `key` with `values` filled in as they are."""
        return _table()[key][self.language].format(**values)

    def markdown(self, key: str, /, **values: object) -> str:
        """The same for a Markdown sink: `values` render as exactly their characters."""
        return self(key, **{name: escaping.markdown(value) for name, value in values.items()})

    def code(self, family: str, code: str) -> str:
        """The text of a code that an analyzer chose ("cause", "memory_held"); a code without a text reads as itself."""
        key = f"{family}.{code}"
        return self(key) if key in _table() else escaping.one_line(code.replace("_", " "))

    def tenant(self, tenant: str) -> str:
        """A tenant's name as one line; the empty one is named."""
        return escaping.one_line(tenant) or self("word.no_tenant")
