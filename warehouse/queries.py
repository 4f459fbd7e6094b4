"""Loads the named queries of `sql/` and refuses those whose header does not say what they are.

One file holds one statement, parsed by aiosql. Its comment states in one sentence what it gives, then, each on a line
of its own, `Grain:`, `Reads:`, `Units:`, `Ignores:` and, for a query, `Columns:` and `Order:`, for a statement that
writes, `Writes:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import aiosql

from gpuledger.errors import QueryRefused

SQL_ROOT = Path(__file__).resolve().parent.parent / "sql"
"""The folder of SQL text: beside the packages in a checkout and in an installed distribution alike."""

QUERY_FOLDERS = ("ledger", "rollup", "rules", "report", "audits", "samples", "quality", "snapshots", "analysis")

_HEADINGS = ("Grain", "Reads", "Units", "Ignores")


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One statement of `sql/`: what it gives, its `parameters`, its `columns` (name to DuckDB type) and its text."""

    name: str
    folder: str
    sentence: str
    headings: Mapping[str, str]
    parameters: tuple[str, ...]
    columns: Mapping[str, str]
    sql: str

    @property
    def is_read(self) -> bool:
        """Whether it gives rows (and writes nothing)."""
        return "Columns" in self.headings


def _headings(text: str) -> tuple[str, dict[str, str]]:
    """The sentence and the headings of a header; a line without a heading goes on with the one before."""
    sentence, found, current = [], {}, None
    for line in text.splitlines():
        match = re.match(r"([A-Z][a-z]+): (.*)", line.strip())
        if match:
            current = match[1]
            found[current] = match[2]
        elif current:
            found[current] += " " + line.strip()
        else:
            sentence.append(line.strip())
    return " ".join(sentence), found


def _columns(text: str) -> dict[str, str]:
    return dict(part.strip().split(" ", 1) for part in re.split(r",(?![^(]*\))", text)) if text else {}


def load_file(path: Path) -> NamedQuery:
    """The query in `path`. Raises QueryRefused naming the file and what is wrong."""
    try:
        queries = aiosql.from_path(path, "duckdb")
    except Exception as error:  # aiosql's errors have no common root
        raise QueryRefused(f"{path.name}: {error}") from error
    names = [name for name in queries.available_queries if not name.endswith("_cursor")]
    if names != [path.stem]:
        raise QueryRefused(f"{path.name}: expected one query called {path.stem!r}, found {names}")
    function = getattr(queries, path.stem)
    sentence, headings = _headings(function.__doc__ or "")
    wanted = [*_HEADINGS, *(() if "Writes" in headings else ("Columns", "Order"))]
    missing = [heading for heading in wanted if heading not in headings]
    if not sentence or missing:
        raise QueryRefused(f"{path.name}: the header lacks {missing or 'a sentence'}")
    used = set(re.findall(r"(?<![:\w$])\$([a-z_]+)", function.sql))
    declared = tuple(function.parameters or ())
    if used != set(declared):
        raise QueryRefused(f"{path.name}: declares {sorted(declared)} but uses {sorted(used)}")
    return NamedQuery(
        name=path.stem,
        folder=path.parent.name,
        sentence=sentence,
        headings=headings,
        parameters=declared,
        columns=_columns(headings.get("Columns", "")),
        sql=function.sql,
    )


@cache
def catalogue() -> Mapping[str, NamedQuery]:
    """All named queries by name. Raises QueryRefused for a bad header or a name used twice."""
    found: dict[str, NamedQuery] = {}
    for folder in QUERY_FOLDERS:
        for path in sorted((SQL_ROOT / folder).glob("*.sql")):
            query = load_file(path)
            if query.name in found:
                raise QueryRefused(f"{path.name}: {query.name!r} is also in sql/{found[query.name].folder}/")
            found[query.name] = query
    return found


def find(name: str) -> NamedQuery:
    """The query called `name`. Raises QueryRefused when there is none."""
    try:
        return catalogue()[name]
    except KeyError:
        raise QueryRefused(f"no query called {name!r}") from None
