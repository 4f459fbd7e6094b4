"""Stores what a rule's run gave: claims, findings and progress, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from gpuledger.model import Finding
from warehouse import queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A run of one rule over the hours from `since` on; what lies before stays as it is stored.

    `claims` are those of these hours; None for a rule that claims nothing of single hours and keeps no progress.
    `choices` tells two sets of options and policies apart. Hours from `from_at` to `final_until_at` are analysed for
    good.
    """

    analyzer: str
    rule_version: int
    choices: str
    from_at: datetime
    since: datetime
    final_until_at: datetime
    analysed_until_at: datetime
    findings: Sequence[Finding]
    claims: pa.Table | None = None


def store(cursor: duckdb.DuckDBPyConnection, analysis: Analysis, now: datetime) -> None:
    """Replace what the analysis covers. All of it is stored, or nothing."""
    cursor.register("staged_finding", _finding_table(analysis.findings, now, cursor))
    cursor.execute("begin")
    try:
        _run(cursor, "forget_findings", analyzer=analysis.analyzer, from_at=analysis.since)
        cursor.execute("insert into finding by name from staged_finding")
        if analysis.claims is not None:
            _run(cursor, "forget_claims", analyzer=analysis.analyzer, from_at=analysis.since)
            named = pa.array([analysis.analyzer], pa.string()).take(pa.array([0] * analysis.claims.num_rows, pa.int8()))
            cursor.register("staged", analysis.claims.append_column("analyzer", named))
            cursor.execute("insert into claim by name from staged")
            cursor.unregister("staged")
            _run(cursor, "forget_rule_progress", analyzer=analysis.analyzer)
            cursor.execute(
                "insert into rule_progress values "
                "($analyzer, $version, $choices, $from_at, $final_until_at, $analysed_until_at, $now)",
                {
                    "analyzer": analysis.analyzer,
                    "version": analysis.rule_version,
                    "choices": analysis.choices,
                    "from_at": analysis.from_at,
                    "final_until_at": analysis.final_until_at,
                    "analysed_until_at": analysis.analysed_until_at,
                    "now": now,
                },
            )
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    finally:
        cursor.unregister("staged_finding")


def _finding_table(findings: Sequence[Finding], now: datetime, cursor: duckdb.DuckDBPyConnection) -> pa.Table:
    schema = cursor.sql("from finding limit 0").to_arrow_table().schema
    rows = [
        {
            **{name: getattr(one, name) for name in _PLAIN},
            **{name: _json(getattr(one, name)) for name in _JSON},
            "finding_id": one.finding_id,
            "found_at": now,
        }
        for one in findings
    ]
    plain = [pa.field(field.name, pa.string()) if field.name in _JSON else field for field in schema]
    return pa.Table.from_pylist(rows, schema=pa.schema(plain))


_JSON = ("evidence", "action_params", "guardrails", "expected_gain", "data_quality")
_PLAIN = tuple(field.name for field in fields(Finding) if field.name not in _JSON)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _run(cursor: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> None:
    cursor.execute(queries.find(name).sql, parameters)
