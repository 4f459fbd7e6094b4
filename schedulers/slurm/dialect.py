"""What the versions of slurmrestd's data differ in, as one table and three ways to read a value.

v0.0.38 writes plain numbers and one word for a state; later ones {"set", "infinite", "number"} and lists of words, and
some things elsewhere. A place is a dotted path; of several the first that is there counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuledger.errors import BadInput

VERSIONS = tuple(f"v0.0.{number}" for number in range(46, 37, -1))
"""Versions of the data that we understand, best first: Slurm 26.11 to 22.05."""

EVERY_ATTEMPT: Mapping[str, Mapping[str, str]] = {
    "v0.0.38": {"skip_steps": "true"},
    "v0.0.39": {},
    "": {"skip_steps": "true", "show_duplicates": "true", "disable_truncate_usage_time": "true"},
}
"""How the accounting is asked for every attempt with its own times, without steps; "" is any later version.

Asked for anything special, later versions tell one attempt of each job, and cut its times at the ends of the window.
39 was of both kinds, and has no names for the rest: nothing special is asked.
"""

PLACES: Mapping[str, tuple[str, ...]] = {
    "job.state": ("job_state",),
    "job.nodes": ("nodes", "job_resources.nodes.list", "job_resources.nodes"),
    "partition.state": ("partition.state", "state"),
    "partition.nodes": ("nodes.configured", "nodes"),
    "reservation.holders": ("accounts", "users"),
    "qos.list": ("qos", "QOS"),
    "tres.list": ("tres", "TRES"),
    "qos.priority": ("priority",),
    "past.task": ("array.task_id",),
    "past.state": ("state.current",),
    "past.restarts": ("restart_cnt",),
    "past.summary": ("comment.administrator",),
    "past.nodes": ("nodes",),
}

_NO_NUMBER = frozenset({-1, 0xFFFE, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
"""Slurm's own NO_VAL and INFINITE in 16, 32 and 64 bits."""


def find(given: Mapping[str, Any], place: str) -> Any:
    """What is at the first of `PLACES[place]`, or at the path `place`; None where nothing is."""
    for path in PLACES.get(place, (place,)):
        value: Any = given
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def number(value: Any) -> float | None:
    """A number in either form; None where it is not set or infinite. Raises BadInput for what is none."""
    if isinstance(value, Mapping):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number")
    if value is None or value in _NO_NUMBER:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput("number", f"{value!r} is none")
    return float(value)


def whole(value: Any, default: int) -> int:
    """As `number`, without its fraction; `default` where none is set."""
    found = number(value)
    return default if found is None else int(found)


def at(value: Any) -> datetime | None:
    """A time in seconds since 1970; None for 0 and what is not set."""
    found = number(value)
    return datetime.fromtimestamp(found, UTC) if found else None


def needed_at(value: Any, field: str) -> datetime:
    """As `at`. Raises BadInput where it is not set."""
    found = at(value)
    if found is None:
        raise BadInput(field, "is not told")
    return found


def words(value: Any) -> frozenset[str]:
    """A state or flags, one word or a list, in capitals."""
    given = value if isinstance(value, list) else str(value or "").replace("+", ",").split(",")
    return frozenset(str(word).strip().upper() for word in given if str(word).strip())


def text(value: Any) -> str:
    """A text; "" for what is not set."""
    if value is None or value in ("N/A", "(null)"):
        return ""
    if isinstance(value, Mapping):
        raise BadInput("text", "is an object")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def tres(value: Any) -> str:
    """A list of {"type", "name", "count"} as Slurm's text ("gres/gpu=4"); a text stays. No limit is left out."""
    if not isinstance(value, list):
        return text(value)
    found = []
    for one in value:
        amount = number(one.get("count"))
        if amount is not None:
            name = "/".join(filter(None, (one.get("type"), one.get("name"))))
            found.append(f"{name}={int(amount)}{'M' if name == 'mem' else ''}")
    return ",".join(found)
