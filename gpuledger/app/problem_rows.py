"""Puts rows of problems together that are one thing to a person: a pair's two servers, old names of many metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LISTED = 20
"""How many subjects of a problem are listed."""

NOTES = ("renamed_metric", "repeated_sample", "dropped_label")
"""Kinds that ask for nothing; they stand last."""

RATIOS = ("low_coverage",)
"""Kinds whose worst value is the lowest."""

_ONE_FOR_ALL = ("renamed_metric",)
"""Kinds told once for a source, with its details in one row."""

_DETAILS_SHOWN = 2


def family(source: str) -> str:
    """The source without the replica of a pair: "remote_write" of "remote_write/a"."""
    return source.partition("/")[0]


def merged(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each problem of a family of sources and a vendor, in the order in which they came, notes last.

    Counts are added, the worst value is kept, `source` names all sources.
    """
    together: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        detail = "" if row["kind"] in _ONE_FOR_ALL else row["detail"]
        one = (family(row["source"]), row["kind"], detail, row["subject_kind"], row["vendor"])
        together.setdefault(one, []).append(row)
    made = [_one(group) for group in together.values()]
    return sorted(made, key=lambda row: row["kind"] in NOTES)


def _one(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    subjects = sorted({subject for row in rows for subject in row["subjects"]})
    values = [row["worst_value"] for row in rows if row["worst_value"] is not None]
    worst = min if first["kind"] in RATIOS else max
    return {
        **first,
        "source": ", ".join(sorted({row["source"] for row in rows})),
        "detail": _detail(sorted({row["detail"] for row in rows})),
        "subject_count": max(len(subjects), *(row["subject_count"] for row in rows), 0),
        "subjects": subjects[:LISTED],
        "event_count": sum(row["event_count"] for row in rows),
        "worst_value": worst(values) if values else None,
    }


def _detail(details: Sequence[str]) -> str:
    if len(details) == 1:
        return details[0]
    more = len(details) - _DETAILS_SHOWN
    return ", ".join(details[:_DETAILS_SHOWN]) + (f", +{more}" if more > 0 else "")
