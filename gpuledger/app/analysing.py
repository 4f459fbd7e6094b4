"""Runs rules and stores what they find: hour by hour where a rule can, over the whole window where it cannot.

An hour stays provisional for a rule until the ledger is final up to the rule's `reach` after it; then it is analysed
for good. Hours that the ledger builds anew, and all hours after a change of the rule's version, its options or its
thresholds in the policy, are analysed again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from gpuledger.clock import Clock
from gpuledger.model import Window
from gpuledger.policy import Policy
from gpuledger.ports import ClaimingRule, QueryRunner, Rule, RuleResult
from warehouse import Warehouse
from warehouse.analysis import Analysis

LONGEST_BUILD = timedelta(hours=1)
"""A build of the ledger that had begun before the last analysis may have ended after it."""
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Analysing:
    """The engine between rules and the warehouse."""

    def __init__(self, warehouse: Warehouse, runner: QueryRunner, policy: Policy, clock: Clock) -> None:
        self._warehouse = warehouse
        self._runner = runner
        self._policy = policy
        self._clock = clock
        self._running = threading.Lock()

    def look(self, rule: Rule, window: Window, options: Mapping[str, Any]) -> RuleResult:
        """What `rule` finds in `window`; nothing is stored."""
        return rule.run(self._runner, window, options, policy=self._policy)

    def go_on(
        self, rule: Rule, window: Window, options: Mapping[str, Any], *, anew: bool = False
    ) -> tuple[RuleResult, datetime]:
        """Analyse what is not analysed for good, and store it; `anew` analyses the window and forgets all before.

        Gives the findings that reach into the hours that were analysed, and where those begin.
        """
        with self._running:  # two runs of one rule at once would store each other's claims twice
            if isinstance(rule, ClaimingRule):
                return self._by_hours(rule, window.whole_hours(), options, anew=anew)
            result = self.look(rule, window, options)
            told = {"since": BEGINNING, "final_until_at": window.to_at, "findings": result.findings}
            self._warehouse.save_analysis(self._analysis(rule, options, window, **told))
            return result, BEGINNING

    def _by_hours(
        self, rule: ClaimingRule, hours: Window, options: Mapping[str, Any], *, anew: bool
    ) -> tuple[RuleResult, datetime]:
        since = hours.from_at if anew else self._since(rule, hours, options)
        stored_since = BEGINNING if anew else since
        final = self._runner.query("ledger_end").to_pylist()[0]["final_until_at"] or hours.from_at
        fresh = rule.claims(self._runner, Window(since, hours.to_at), options)
        claims = fresh
        if not anew:
            carried = self._runner.query("claims_carried", analyzer=rule.name, from_at=since)
            claims = pa.concat_tables([carried.select(fresh.schema.names).cast(fresh.schema), fresh])
        result = rule.judge(self._runner, claims, hours, options, self._policy)
        final_until_at = min(hours.to_at, max(since, _hour(final - rule.reach)))
        told = {"since": stored_since, "final_until_at": final_until_at, "findings": result.findings, "claims": fresh}
        self._warehouse.save_analysis(self._analysis(rule, options, hours, **told))
        return result, stored_since

    def _since(self, rule: ClaimingRule, hours: Window, options: Mapping[str, Any]) -> datetime:
        """The first hour that must be analysed (again)."""
        stored = {row["analyzer"]: row for row in self._runner.query("rule_progress_list").to_pylist()}.get(rule.name)
        is_same = (
            stored is not None
            and stored["rule_version"] == rule.version
            and stored["choices"] == self._choices(rule, options)
            and stored["from_at"] <= hours.from_at
        )
        if stored is None or not is_same:
            return hours.from_at
        begun_after_at = stored["analysed_at"] - LONGEST_BUILD
        rebuilt: datetime | None = self._runner.query("rebuilt_since", begun_after_at=begun_after_at).to_pylist()[0][
            "from_at"
        ]
        since: datetime = min(stored["final_until_at"], hours.to_at - timedelta(hours=1))
        return max(hours.from_at, min(since, _hour(rebuilt - rule.reach)) if rebuilt else since)

    def _choices(self, rule: Rule, options: Mapping[str, Any]) -> str:
        thresholds = [one.model_dump(mode="json") for one in self._policy.threshold if one.rule == rule.name]
        said = {"options": dict(options), "thresholds": thresholds}
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def _analysis(self, rule: Rule, options: Mapping[str, Any], window: Window, **told: Any) -> Analysis:
        return Analysis(
            analyzer=rule.name,
            rule_version=rule.version,
            choices=self._choices(rule, options),
            from_at=window.from_at,
            analysed_until_at=window.to_at,
            **told,
        )


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
