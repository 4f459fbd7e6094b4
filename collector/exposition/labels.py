"""The labels of one series, with one text that stands for them in whatever order and form they were written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from collector.exposition.lines import Refused, unescaped

_PLAIN_LABELS = re.compile(rb'(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^",\\\n][^"\\\n]*)?"(?:,(?=[a-zA-Z_])|\Z))*')
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class LabelSet:
    """Labels as pieces, each `name="value"` with escapes; the dictionary of them is made when it is asked for.

    `key` is the sorted pieces as one text. `spare` says whether one of the spare labels is among them.
    """

    __slots__ = ("_is_plain", "_labels", "_pieces", "key", "spare")

    def __init__(self, pieces: Mapping[bytes, bytes], spare: frozenset[bytes], *, is_plain: bool) -> None:
        self._pieces = pieces
        self._is_plain = is_plain
        self._labels: dict[str, str] | None = None
        self.spare = not spare.isdisjoint(pieces)
        self.key = b",".join(sorted(pieces.values()))

    def without(self, names: frozenset[bytes]) -> LabelSet:
        """The same without some labels."""
        kept = {name: piece for name, piece in self._pieces.items() if name not in names}
        return LabelSet(kept, frozenset(), is_plain=self._is_plain)

    @property
    def labels(self) -> dict[str, str]:
        """Names and values, escapes undone."""
        if self._labels is None:
            if self._is_plain and self.key:
                self._labels = dict(_halves(piece) for piece in self.key[:-1].decode().split('",'))
            else:
                self._labels = dict(_pair(name, piece) for name, piece in self._pieces.items())
        return self._labels


def _halves(piece: str) -> tuple[str, str]:
    name, _, value = piece.partition('="')
    return name, value


def plain_pieces(text: bytes) -> dict[bytes, bytes] | None:
    """The pieces of `text`, what stands between the braces, in the form that nearly all pages have; None otherwise.

    Raises ValueError for a label twice, and for what is not UTF-8.
    """
    if not is_plain(text):
        return None
    text.decode()
    # In this form, in which no value begins with a comma, a quote followed by a comma can only end a label.
    pieces = [piece + b'"' for piece in text[:-1].split(b'",')] if text else []
    by_name = {piece[: piece.index(b"=")]: piece for piece in pieces}
    if len(by_name) != len(pieces):
        raise Refused("a label twice")
    return by_name


def is_plain(text: bytes) -> bool:
    """Whether `text`, what stands between the braces, has the form that nearly all pages have."""
    return _PLAIN_LABELS.fullmatch(text) is not None


def pattern_of(labels: frozenset[bytes]) -> re.Pattern[bytes]:
    """What finds these labels in plain text."""
    return re.compile(rb'(?:(?<=\{)|,)(?:%s)="[^"]*"' % b"|".join(sorted(labels)))


def pieces_of(labels: Mapping[str, str]) -> dict[bytes, bytes]:
    """The same from names and values."""
    return {name.encode(): f'{_written(name)}="{_escaped(value)}"'.encode() for name, value in labels.items()}


def names_of(labels: Iterable[str]) -> frozenset[bytes]:
    """Label names as pieces have them."""
    return frozenset(name.encode() for name in labels)


def _written(name: str) -> str:
    return name if _LABEL_NAME.fullmatch(name) else f'"{_escaped(name)}"'


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _pair(name: bytes, piece: bytes) -> tuple[str, str]:
    shown = name.decode()
    begin = len(name) if piece.startswith(name + b"=") else len(_written(shown).encode())
    return shown, unescaped(piece[begin + 2 : -1])
