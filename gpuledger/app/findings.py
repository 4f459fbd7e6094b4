"""The stored findings with where they stand: listing, showing, deciding, their history, why nobody was told of one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuledger.app.reviewing import Gate
from gpuledger.errors import BadInput
from gpuledger.model import Finding
from warehouse.state import STATUSES

if TYPE_CHECKING:
    from gpuledger.app.service import Service

JSON_COLUMNS = ("evidence", "action_params", "guardrails", "expected_gain", "data_quality")

FILTERS = ("rule", "tenant", "status", "owner", "category", "vendor", "kind")
"""What a list of findings can be narrowed by. The owner is whoever was named, else the user, else the tenant."""

STATE_FIELDS = ("first_seen_at", "last_seen_at", "resolved_at", "changed_by", "reason", "note", "expires_at")


class FindingBook:
    """Findings of the warehouse joined to their life in the state store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def listed(self, **filters: str) -> list[dict[str, Any]]:
        """The stored findings that match every one of `filters`, the largest waste first. An empty text is any.

        Raises BadInput for a filter or a status that there is not.
        """
        wanted = {name: value for name, value in filters.items() if value}
        if unknown := sorted(set(wanted) - set(FILTERS)):
            raise BadInput(unknown[0], f"is no filter; known: {', '.join(FILTERS)}")
        if wanted.get("status", STATUSES[0]) not in STATUSES:
            raise BadInput("status", f"must be one of {', '.join(STATUSES)}")
        rows: list[dict[str, Any]] = self._service.query(
            "finding_list", analyzer=wanted.pop("rule", ""), tenant=wanted.pop("tenant", "")
        ).to_pylist()
        self._service.state.expire_exemptions(self._service.clock.now())
        states = self._service.state.finding_states(row["finding_id"] for row in rows)
        whole = [_joined(row, states.get(row["finding_id"])) for row in rows]
        return [row for row in whole if all(row[name] == value for name, value in wanted.items())]

    def shown(self, finding_id: str) -> dict[str, Any]:
        """One finding, under the identity that it has now: its record, where it stands, whether anybody may be told.

        One that no run finds any more has `is_stored` false, and only what the state store knows of it.
        Raises BadInput where nobody knows it.
        """
        self._service.state.expire_exemptions(self._service.clock.now())
        finding_id = self._service.state.newest_identity(finding_id)
        state = self._service.state.finding_states([finding_id]).get(finding_id)
        stored = self._service.query("finding_by_id", finding_id=finding_id).to_pylist()
        if state is None and not stored:
            raise BadInput("finding_id", f"no finding {finding_id[:40]!r}")
        if not stored:
            assert state is not None
            return {**state, "owner": _owner(state, state), "is_stored": False, "silent_because": "resolved"}
        row = _joined(stored[0], state)
        return {**row, "is_stored": True, "silent_because": Gate(self._service)(row)}

    def history(self, finding_id: str) -> list[dict[str, Any]]:
        """Every change of a finding, oldest first. Raises BadInput where nobody knows it."""
        found = self._service.state.finding_history(self._service.state.newest_identity(finding_id))
        if not found:
            raise BadInput("finding_id", f"no finding {finding_id[:40]!r}")
        return found

    def decide(  # noqa: PLR0913 one argument for each thing that can be said
        self,
        finding_id: str,
        status: str,
        *,
        by: str,
        note: str = "",
        reason: str = "",
        owner: str = "",
        expires_at: datetime | None = None,
    ) -> str:
        """A person's decision. Gives the status that the finding has then. Raises BadInput naming what is wrong."""
        state = self._service.state
        return state.decide_finding(
            state.newest_identity(finding_id),
            status,
            by=by,
            note=note,
            reason=reason,
            owner=owner,
            expires_at=expires_at,
            now=self._service.clock.now(),
        )


def _joined(row: Mapping[str, Any], state: Mapping[str, Any] | None) -> dict[str, Any]:
    known = state or {}
    return {
        **row,
        **{column: json.loads(row[column]) for column in JSON_COLUMNS},
        "status": known.get("status", "new"),
        "owner": _owner(known, row),
        **{name: known.get(name) for name in STATE_FIELDS},
    }


def _owner(state: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return str(state.get("owner") or row.get("user") or row.get("tenant") or "")


def finding_record(finding: Finding, status: str) -> dict[str, Any]:
    """A finding as the API gives it: its fields, its identity, its status."""
    fields = {field.name: getattr(finding, field.name) for field in dataclasses.fields(finding)}
    return {"finding_id": finding.finding_id, "status": status, **fields}
