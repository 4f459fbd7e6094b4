"""How Slurm writes sets of hosts and of array tasks."""

from __future__ import annotations

import re

from gpuledger.errors import BadInput
from schedulers.slurm.tres import numbers

MOST_HOSTS = 200_000

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NO_HOSTS = frozenset({"", "(null)", "None assigned", "N/A", "None"})


def hosts(text: str | None) -> tuple[str, ...]:
    """The hosts of "gpu[1-3,07],login": ranges keep leading zeros. Raises BadInput for what is no list of hosts."""
    given = (text or "").strip()
    if given in _NO_HOSTS:
        return ()
    if given.count("[") != given.count("]"):
        raise BadInput("nodes", f"{given!r} is no list of hosts")
    found: list[str] = []
    for part in _PART.findall(given):
        found += _expand(part)
        if len(found) > MOST_HOSTS:
            raise BadInput("nodes", f"more than {MOST_HOSTS} hosts")
    return tuple(found)


def _expand(part: str) -> list[str]:
    match = _RANGE.search(part)
    if match is None:
        if "[" in part or "]" in part:
            raise BadInput("nodes", f"{part!r} is no list of hosts")
        return [part]
    front, rest = part[: match.start()], _expand(part[match.end() :]) if match.end() < len(part) else [""]
    return [f"{front}{number}{tail}" for one in match[1].split(",") for number in _padded(one) for tail in rest]


def _padded(text: str) -> list[str]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None or int(match[2] or match[1]) - int(match[1]) > MOST_HOSTS:
        raise BadInput("nodes", f"{text!r} is no range of hosts")
    width = len(match[1]) if match[1].startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(match[1]), int(match[2] or match[1]) + 1)]


def array_size(text: str) -> tuple[int, bool]:
    """How many tasks "2-9%2" or "[0,3-9:2]" stands for, and whether the text was cut ("1,3,...")."""
    inner = text.strip("[]").split("%")[0]
    is_cut = inner.endswith("...")
    return len(numbers(inner.removesuffix("...").rstrip(",-"))), is_cut
