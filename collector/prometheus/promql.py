"""PromQL text. Values from outside enter it only through `quote`, so that no label value can end its own string."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.errors import BadInput

_MATCHER = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)(.*)", re.DOTALL)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    """`text` as a string literal of PromQL and MetricsQL. What cannot be UTF-8 (a lone surrogate) is replaced."""
    readable = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(_escaped(character) for character in readable) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else character


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label: `operator` is =, !=, =~ or !~; `value` is as the label has it, not escaped."""

    label: str
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Matcher:
        """From `label=value` (or !=, =~, !~), the value without quotes. Raises BadInput for anything else."""
        match = _MATCHER.fullmatch(text)
        if match is None:
            raise BadInput("match", f"{text[:60]!r} is not label=value (or !=, =~, !~)")
        return cls(match[1], match[2], match[3])

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quote(self.value)}"


def is_label(name: str) -> bool:
    """Whether `name` can be written in a selector as it is."""
    return _LABEL.fullmatch(name) is not None


def selector(name: str, matchers: Sequence[Matcher] = ()) -> str:
    """The series called `name` that fulfil all `matchers`; an empty name leaves the name to them."""
    if name and not _NAME.fullmatch(name):
        raise BadInput("metric", f"{name[:60]!r} is not a metric's name")
    conditions = ",".join(str(matcher) for matcher in matchers)
    return f"{name}{{{conditions}}}" if conditions or not name else name


def duration(milliseconds: int) -> str:
    """A span of time as PromQL writes it."""
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
