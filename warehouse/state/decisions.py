"""Where a finding can stand, and what a person may say of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.errors import BadInput
from gpuledger.model.people import check_name

DECIDED = ("acknowledged", "disputed", "exempted")
"""Statuses that a person or the policy set; a new run never overwrites them."""

STATUSES = ("new", "ongoing", "resolved", *DECIDED)

REASONS = ("wrong_owner", "was_working", "planned", "bad_data", "wrong_threshold", "other")
"""Why a finding is disputed: a closed list, so that it can be counted."""

RUN, PERSON, POLICY = "run", "person", "policy"
"""Who set a status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's word on a finding.

    `status`: one of DECIDED, "ongoing" (a decision is taken back), or empty, where only the `owner` changes.
    A dispute has a `reason` of REASONS; an exemption ends at `expires_at`. An empty `owner` leaves it as it is.
    """

    status: str
    by: str
    note: str = ""
    reason: str = ""
    owner: str = ""
    expires_at: datetime | None = None

    def check(self, now: datetime) -> None:
        """Raise BadInput naming what is missing or wrong."""
        if self.status not in (*DECIDED, "ongoing", ""):
            raise BadInput("status", f"must be one of {', '.join((*DECIDED, 'ongoing'))}")
        check_name("by", self.by)
        if self.owner:
            check_name("owner", self.owner)
        if not self.status and not self.owner:
            raise BadInput("status", "must be given, or an owner")
        self._check_dispute()
        self._check_exemption(now)

    def _check_dispute(self) -> None:
        if self.status == "disputed" and self.reason not in REASONS:
            raise BadInput("reason", f"of a dispute must be one of {', '.join(REASONS)}")
        if self.status != "disputed" and self.reason:
            raise BadInput("reason", "belongs to a dispute")

    def _check_exemption(self, now: datetime) -> None:
        if self.status != "exempted" and self.expires_at is not None:
            raise BadInput("expires_at", "belongs to an exemption")
        if self.status == "exempted" and (self.expires_at is None or self.expires_at <= now):
            raise BadInput("expires_at", "of an exemption must be a time to come")
