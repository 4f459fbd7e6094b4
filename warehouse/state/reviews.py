"""What people said of findings: verdicts on samples that were drawn, and disputes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from gpuledger.errors import BadInput
from gpuledger.model.people import check_name
from warehouse.state.decisions import PERSON, RUN
from warehouse.state.models import FindingChange, FindingReview, FindingState

VERDICTS = ("right", "wrong", "cannot_tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A finding that was drawn: one of `drawn_count` of the `stratum_count` findings of its rule, kind and vendor."""

    finding_id: str
    analyzer: str
    kind: str
    vendor: str
    stratum_count: int
    drawn_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A person's verdict on a finding of a sample."""

    finding_id: str
    sample: str
    verdict: str
    judged_by: str
    note: str = ""


class FindingReviews:
    """The part of the state store that knows what people said of findings."""

    engine: Engine

    def save_sample(self, sample: str, drawn: Sequence[Drawn], now: datetime) -> None:
        """Keep what was drawn: a verdict counts only for that, so that nobody chooses what is judged."""
        with Session(self.engine) as session, session.begin():
            for one in drawn:
                session.merge(FindingReview(sample=sample, drawn_at=now, **asdict(one)))

    def save_verdict(self, one: Verdict, now: datetime) -> bool:
        """Keep a verdict, with a line in its finding's history. Gives whether it says something new.

        A second word replaces the first. Raises BadInput naming what is wrong: it was not drawn, says no verdict, or
        not by whom.
        """
        if one.verdict not in VERDICTS:
            raise BadInput("verdict", f"{one.verdict[:40]!r} is not one of {', '.join(VERDICTS)}")
        if not 1 <= len(one.judged_by) <= 128:
            raise BadInput("judged_by", "must have 1 to 128 characters")
        check_name("judged_by", one.judged_by)
        with Session(self.engine) as session, session.begin():
            row = session.get(FindingReview, (one.finding_id, one.sample))
            if row is None:
                raise BadInput("finding_id", f"{one.finding_id[:40]!r} was not drawn in sample {one.sample[:40]!r}")
            if (row.verdict, row.judged_by, row.note) == (one.verdict, one.judged_by, one.note):
                return False
            row.verdict, row.judged_by, row.note, row.judged_at = one.verdict, one.judged_by, one.note, now
            _note(session, one, now)
        return True

    def verdicts_now(self) -> list[dict[str, Any]]:
        """The last verdict on each finding that the rule's present version makes still.

        Columns: finding_id, analyzer, kind, vendor, stratum_count (of the last draw), verdict, judged_by, judged_at.
        A version that finds a judged finding again has its verdict; one that does not has lost it, right or wrong.
        """
        newest = (
            select(FindingState.analyzer, func.max(FindingState.rule_version).label("rule_version"))
            .group_by(FindingState.analyzer)
            .subquery()
        )
        asked = (
            select(FindingReview)
            .join(FindingState, FindingState.finding_id == FindingReview.finding_id)
            .join(
                newest,
                (newest.c.analyzer == FindingState.analyzer) & (newest.c.rule_version == FindingState.rule_version),
            )
            .where(FindingReview.verdict != "")
            .order_by(FindingReview.judged_at, FindingReview.drawn_at, FindingReview.finding_id)
        )
        names = ("finding_id", "analyzer", "kind", "vendor", "stratum_count", "verdict", "judged_by", "judged_at")
        with Session(self.engine) as session:
            last = {row.finding_id: row for row in session.scalars(asked)}
            return [{name: getattr(row, name) for name in names} for row in last.values()]

    def judged_finding_ids(self) -> set[str]:
        """Findings on which there is a verdict."""
        with Session(self.engine) as session:
            return set(session.scalars(select(FindingReview.finding_id).where(FindingReview.verdict != "").distinct()))

    def owner_decisions(self) -> list[dict[str, Any]]:
        """What owners said unasked: how many findings of each stratum were acknowledged and disputed, for which reason.

        Columns: analyzer, kind, vendor, status, reason, finding_count. A finding that goes on under another identity
        counts once.
        """
        continued = select(FindingState.continues).where(FindingState.continues != "")
        columns = (
            FindingState.analyzer,
            FindingState.kind,
            FindingState.vendor,
            FindingState.status,
            FindingState.reason,
        )
        asked = (
            select(*columns, func.count().label("finding_count"))
            .where(
                FindingState.status.in_(("acknowledged", "disputed")),
                FindingState.source.in_((PERSON, RUN, "")),
                FindingState.finding_id.not_in(continued),
            )
            .group_by(*columns)
            .order_by(*columns)
        )
        with Session(self.engine) as session:
            return [dict(row) for row in session.execute(asked).mappings()]


def _note(session: Session, one: Verdict, now: datetime) -> None:
    state = session.get(FindingState, one.finding_id)
    status = state.status if state is not None else ""
    session.add(
        FindingChange(
            finding_id=one.finding_id,
            at=now,
            actor=one.judged_by,
            before=status,
            after=status,
            reason=one.verdict,
            note=f"judged in sample {one.sample}" + (f": {one.note}" if one.note else ""),
            owner=state.owner if state is not None else "",
            expires_at=None,
        )
    )
