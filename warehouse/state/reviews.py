"""What people said of findings: verdicts on samples that were drawn, and disputes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from warehouse.state.decisions import PERSON, RUN
from warehouse.state.models import FindingChange, FindingReview, FindingState

VERDICTS = ("right", "wrong", "cannot_tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A person's verdict on a finding of a sample.

    `weight`: how many findings of its stratum each drawn one stands for. `sample` names the draw.
    """

    finding_id: str
    sample: str
    analyzer: str
    kind: str
    vendor: str
    weight: float
    verdict: str
    judged_by: str
    note: str = ""


class FindingReviews:
    """The part of the state store that knows what people said of findings."""

    engine: Engine

    def save_verdicts(self, verdicts: Sequence[Verdict], now: datetime) -> int:
        """Keep verdicts, each with a line in its finding's history. Gives how many say something new."""
        changed = 0
        with Session(self.engine) as session, session.begin():
            for one in verdicts:
                row = session.get(FindingReview, (one.finding_id, one.sample))
                said = (one.verdict, one.judged_by, one.note)
                if row is not None and (row.verdict, row.judged_by, row.note) == said:
                    continue
                changed += 1
                values = {name: getattr(one, name) for name in Verdict.__slots__}
                session.merge(FindingReview(**values, at=now))
                _note(session, one, now)
        return changed

    def verdicts_now(self) -> list[dict[str, Any]]:
        """The last verdict on each finding that the rule's present version makes still.

        Columns: finding_id, analyzer, kind, vendor, weight, verdict, judged_by. A rule's version that finds a judged
        finding again has its verdict; one that does not has lost it, right or wrong.
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
            .order_by(FindingReview.at, FindingReview.finding_id)
        )
        with Session(self.engine) as session:
            last = {row.finding_id: row for row in session.scalars(asked)}
            names = ("finding_id", "analyzer", "kind", "vendor", "weight", "verdict", "judged_by")
            return [{name: getattr(row, name) for name in names} for row in last.values()]

    def judged_finding_ids(self) -> set[str]:
        """Findings on which there is a verdict."""
        with Session(self.engine) as session:
            return set(session.scalars(select(FindingReview.finding_id).distinct()))

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
