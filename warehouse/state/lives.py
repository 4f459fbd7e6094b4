"""The life of findings: what runs, people and the policy make of where each stands, and every change of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from gpuledger.errors import BadInput
from gpuledger.model import Finding
from gpuledger.policy import Exemption, Policy
from warehouse.state.decisions import DECIDED, PERSON, POLICY, RUN, Decision
from warehouse.state.models import AuditEntry, FindingChange, FindingState

SERVICE = "gpuledger"
"""The actor of changes that nobody asked for."""

CHUNK = 500
"""Identities in one question: SQLite takes no more than so many parameters."""

_Item = TypeVar("_Item")


class FindingLives:
    """The part of the state store that knows where findings stand."""

    engine: Engine

    def sync_findings(
        self,
        analyzer: str,
        findings: Sequence[Finding],
        now: datetime,
        *,
        since: datetime | None = None,
        policy: Policy | None = None,
        is_whole: bool = True,
    ) -> list[Finding]:
        """Carry the life cycle on after a run of `analyzer`; gives the findings that were not known before.

        `findings` are all that the run could have found: those that reach into the hours from `since` on, or all.
        A finding that a run could have found and did not, and one that has ended, is resolved. One whose start moved
        (late readings, a window that begins later) is the one that was there before, with what was decided of it.
        Without `is_whole` the run looked at some subjects only, and absence means nothing.
        """
        current = {finding.finding_id: finding for finding in findings}
        with Session(self.engine) as session, session.begin():
            _expire(session, now)
            known = _load(session, current)
            absent = {
                row.finding_id: row
                for row in session.scalars(
                    select(FindingState).where(FindingState.analyzer == analyzer, FindingState.resolved_at.is_(None))
                )
                if row.finding_id not in current
            }
            absent = absent if is_whole else {}
            gone = [row for row in absent.values() if since is None or _end(row) > since]
            before = _predecessors(gone)
            fresh, moved = [], {}
            for finding_id, finding in current.items():
                row = known.get(finding_id)
                if row is None:
                    row = _begin(session, finding, now, before)
                    if row.continues:
                        moved[row.continues] = finding_id
                    else:
                        fresh.append(finding)
                    _describe(row, finding, now)
                else:
                    _describe(row, finding, now)
                    _see(session, row, now)
                _exempt(session, row, policy or Policy(), now)
            for row in absent.values():
                row.is_open = False
                vanished = f"goes on as {moved[row.finding_id]}" if row.finding_id in moved else "found no longer"
                _close(session, row, now, vanished if row in gone else "ended")
        return fresh

    def add_findings(
        self, analyzer: str, findings: Sequence[Finding], now: datetime, *, policy: Policy | None = None
    ) -> list[Finding]:
        """As `sync_findings`, of findings that came one by one: nothing is resolved because it is not among them."""
        return self.sync_findings(analyzer, findings, now, policy=policy, is_whole=False)

    def apply_policy(self, policy: Policy, now: datetime) -> int:
        """Exempt what `policy` exempts now, and end what it exempts no longer. Gives how many are exempted by it."""
        with Session(self.engine) as session, session.begin():
            _expire(session, now)
            rows = session.scalars(select(FindingState).where(FindingState.status.not_in(("acknowledged", "disputed"))))
            return sum(_exempt(session, row, policy, now) for row in rows)

    def expire_exemptions(self, now: datetime) -> int:
        """Let exemptions that have ended end. Gives how many did."""
        with Session(self.engine) as session, session.begin():
            return _expire(session, now)

    def finding_statuses(self, finding_ids: Iterable[str]) -> dict[str, str]:
        """The status of each known finding of `finding_ids`."""
        return {finding_id: row["status"] for finding_id, row in self.finding_states(finding_ids).items()}

    def finding_states(self, finding_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Status, owner, times, and who decided what and why, of each known finding of `finding_ids`."""
        with Session(self.engine) as session:
            return {finding_id: _as_dict(row) for finding_id, row in _load(session, finding_ids).items()}

    def all_finding_states(self) -> list[dict[str, Any]]:
        """Where every finding stands that was ever known, by identity."""
        with Session(self.engine) as session:
            return [_as_dict(row) for row in session.scalars(select(FindingState).order_by(FindingState.finding_id))]

    def finding_history(self, finding_id: str) -> list[dict[str, Any]]:
        """Every change of the finding, also under the identities that it had before, oldest first."""
        with Session(self.engine) as session:
            wanted, row = [finding_id], session.get(FindingState, finding_id)
            while row is not None and row.continues and row.continues not in wanted:
                wanted.append(row.continues)
                row = session.get(FindingState, row.continues)
            changes = session.scalars(
                select(FindingChange).where(FindingChange.finding_id.in_(wanted)).order_by(FindingChange.entry_id)
            )
            return [_as_dict(change) for change in changes]

    def newest_identity(self, finding_id: str) -> str:
        """The identity that the finding has now, where its start has moved since."""
        with Session(self.engine) as session:
            seen = {finding_id}
            while True:
                after = session.scalars(
                    select(FindingState.finding_id)
                    .where(FindingState.continues == finding_id)
                    .order_by(FindingState.first_seen_at.desc())
                ).first()
                if after is None or after in seen:
                    return finding_id
                seen.add(finding_id := after)

    def decide_finding(  # noqa: PLR0913 one argument for each thing that can be said
        self,
        finding_id: str,
        status: str,
        *,
        by: str,
        note: str = "",
        now: datetime,
        reason: str = "",
        owner: str = "",
        expires_at: datetime | None = None,
    ) -> str:
        """A person's decision on a finding, written to its history and to the audit log. Gives the status it has then.

        Raises BadInput for a finding that is not known, and as `Decision.check`.
        """
        given = Decision(status=status, by=by, note=note, reason=reason, owner=owner, expires_at=expires_at)
        given.check(now)
        with Session(self.engine) as session, session.begin():
            row = session.get(FindingState, finding_id)
            if row is None:
                raise BadInput("finding_id", f"no finding {finding_id}")
            before = row.status
            row.owner = given.owner or row.owner
            if given.status:
                row.changed_by, row.note, row.reason, row.expires_at = by, note, reason, expires_at
                row.source = PERSON
                row.status = given.status if given.status in DECIDED or row.is_open else "resolved"
            _note(session, row, before, now, by, note)
            detail = {key: value for key, value in asdict(given).items() if value and key not in {"status", "by"}}
            detail = {"before": before, "after": row.status, **detail, "note": note}
            if expires_at is not None:
                detail["expires_at"] = expires_at.isoformat()
            session.add(AuditEntry(at=now, actor=by, action="decide_finding", subject=finding_id, detail=detail))
            return row.status


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def _load(session: Session, finding_ids: Iterable[str]) -> dict[str, FindingState]:
    found = {}
    for chunk in _chunks(sorted(set(finding_ids))):
        for row in session.scalars(select(FindingState).where(FindingState.finding_id.in_(chunk))):
            found[row.finding_id] = row
    return found


def _as_dict(row: FindingState | FindingChange) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}


def _end(row: FindingState) -> datetime:
    """Until when the finding was seen to last; one of an older release says only when it was last found."""
    return row.window_end or row.last_seen_at


def _subject(row: FindingState | Finding) -> tuple[str, str, str]:
    workload = row.workload_id if isinstance(row, FindingState) else _workload(row)
    return row.subject_kind, row.subject_id, workload


def _workload(finding: Finding) -> str:
    own = finding.subject_id if finding.subject_kind in {"job", "workload"} else ""
    return str(finding.action_params.get("workload_id") or own)


def _node(finding: Finding) -> str:
    own = finding.subject_id.partition("/")[0] if finding.subject_kind == "node" else ""
    return str(finding.action_params.get("node") or own)


def _predecessors(gone: Sequence[FindingState]) -> Mapping[tuple[str, str, str], list[FindingState]]:
    found: dict[tuple[str, str, str], list[FindingState]] = {}
    for row in gone:
        if row.window_start is not None and row.window_end is not None:
            found.setdefault(_subject(row), []).append(row)
    return found


def _begin(
    session: Session, finding: Finding, now: datetime, before: Mapping[tuple[str, str, str], list[FindingState]]
) -> FindingState:
    """A row for a finding that has none: new, or what was decided of the one it continues."""
    row = FindingState(
        finding_id=finding.finding_id, analyzer=finding.analyzer, status="new", first_seen_at=now, source=RUN, owner=""
    )
    row.reason, row.continues = "", ""
    overlapping = [
        (min(finding.window_end, _end(old)) - max(finding.window_start, old.window_start), old)
        for old in before.get(_subject(finding), ())
        if old.window_start is not None and old.window_start < finding.window_end and finding.window_start < _end(old)
    ]
    if overlapping:
        _, old = max(overlapping, key=lambda pair: (pair[0], pair[1].finding_id))
        row.status = "ongoing" if old.status in {"new", "resolved"} else old.status
        row.continues, row.first_seen_at = old.finding_id, old.first_seen_at
        for name in ("owner", "source", "reason", "note", "changed_by", "expires_at"):
            setattr(row, name, getattr(old, name))
    session.add(row)
    note = f"continues {row.continues}" if row.continues else ""
    _note(session, row, "", now, SERVICE, note)
    return row


def _describe(row: FindingState, finding: Finding, now: datetime) -> None:
    """What the finding is about, as it was found last."""
    row.last_seen_at = now
    row.rule_version, row.is_open, row.category = finding.rule_version, finding.is_open, finding.category
    row.subject_kind, row.subject_id, row.workload_id = _subject(finding)
    row.node, row.tenant, row.queue, row.kind = _node(finding), finding.tenant, finding.queue, finding.kind
    row.vendor, row.window_start, row.window_end = finding.vendor, finding.window_start, finding.window_end


def _see(session: Session, row: FindingState, now: datetime) -> None:
    """A known finding was found again."""
    if not row.is_open:
        _close(session, row, now, "ended")
        return
    row.resolved_at = None
    if row.status not in {*DECIDED, "ongoing"}:
        _turn(session, row, "ongoing", now, "found again")


def _close(session: Session, row: FindingState, now: datetime, note: str) -> None:
    row.resolved_at = row.resolved_at or now
    if row.status not in {*DECIDED, "resolved"}:
        _turn(session, row, "resolved", now, note)


def _turn(session: Session, row: FindingState, status: str, now: datetime, note: str) -> None:
    before, row.status = row.status, status
    _note(session, row, before, now, SERVICE, note)


def _note(session: Session, row: FindingState, before: str, now: datetime, actor: str, note: str) -> None:
    session.add(
        FindingChange(
            finding_id=row.finding_id,
            at=now,
            actor=actor,
            before=before,
            after=row.status,
            reason=row.reason,
            note=note,
            owner=row.owner,
            expires_at=row.expires_at,
        )
    )


def _expire(session: Session, now: datetime) -> int:
    rows = session.scalars(
        select(FindingState).where(FindingState.status == "exempted", FindingState.expires_at <= now)
    ).all()
    for row in rows:
        _release(session, row, now, "the exemption has ended")
    return len(rows)


def _release(session: Session, row: FindingState, now: datetime, note: str) -> None:
    row.expires_at, row.source, row.changed_by, row.note = None, RUN, None, None
    _turn(session, row, "ongoing" if row.is_open else "resolved", now, note)
    row.resolved_at = None if row.is_open else row.resolved_at or now


def _exempt(session: Session, row: FindingState, policy: Policy, now: datetime) -> bool:
    """Bring the row up to the policy, unless a person has decided. Gives whether the policy exempts it."""
    if row.source == PERSON and row.status in DECIDED:
        return False
    found: Exemption | None = policy.exemption_of(row.analyzer, _as_dict(row), now)
    if found is None:
        if row.status == "exempted":
            _release(session, row, now, "the policy exempts it no longer")
        return False
    is_same = (row.status, row.note, row.expires_at) == ("exempted", found.reason, found.expires_at)
    if not is_same or row.changed_by != found.owner:
        row.source, row.changed_by, row.note, row.expires_at = POLICY, found.owner, found.reason, found.expires_at
        before, row.status = row.status, "exempted"
        _note(session, row, before, now, found.owner, f"policy: {found.reason}")
    return True
