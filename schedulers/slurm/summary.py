"""What jobs' summaries (jobstats, in AdminComment) say of their GPUs: idle, at work, or nobody can judge.

A summary that is missing or broken is an answer of its own: its job is listed, and never taken for one without fault.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_MARK = "JS1:"
_MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Summaries:
    """Of so many jobs `asked`: those whose GPUs were at 0 % throughout, and those nobody can judge (job, why)."""

    asked: int
    idle: tuple[str, ...]
    unjudged: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """As "checked 1 of 3"."""
        return f"checked {self.asked - len(self.unjudged)} of {self.asked}"


def check(summaries: Iterable[tuple[str, str | None]]) -> Summaries:
    """Judge the summaries of (job, text)."""
    asked, idle, unjudged = 0, [], []
    for job, text in summaries:
        asked += 1
        try:
            used = _used(text)
        except ValueError as error:
            unjudged.append((job, str(error)))
            continue
        if not any(used):
            idle.append(job)
    return Summaries(asked, tuple(idle), tuple(unjudged))


def fault(text: str | None) -> str:
    """Why nothing can be judged from `text`; "" where it can be."""
    try:
        _used(text)
    except ValueError as error:
        return str(error)
    return ""


def _used(text: str | None) -> list[float]:
    """The utilization of each GPU. Raises ValueError saying why nobody can judge."""
    told = (text or "").strip()
    if told.removeprefix(_MARK) in ("", "None", "Short"):
        raise ValueError("could not judge: no summary")
    try:
        given: Any = json.loads(_unpacked(told) if told.startswith(_MARK) else told)
    except (ValueError, OSError, EOFError, zlib.error, binascii.Error):
        raise ValueError("could not judge: the summary is malformed") from None
    try:
        nodes = given["gpu_utilization"] if "gpu_utilization" in given else _of_nodes(given["nodes"])
        used = [float(value) for node in nodes.values() for value in node.values()]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ValueError("could not judge: the summary has no utilization of GPUs") from None
    if not used:
        raise ValueError("could not judge: the summary names no GPU")
    return used


def _of_nodes(nodes: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: node["gpu_utilization"] for name, node in nodes.items()}


def _unpacked(text: str) -> bytes:
    """The form of jobstats: base64 of gzip."""
    raw = base64.b64decode(text.removeprefix(_MARK), validate=True)
    unpacked = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(raw, _MOST_BYTES)
    if len(unpacked) >= _MOST_BYTES:
        raise ValueError("is larger than a summary")
    return unpacked
