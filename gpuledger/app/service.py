"""What gpuledger can be asked to do, behind the HTTP routes and the jobs alike."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import structlog

from gpuledger.app import doctor, parameters
from gpuledger.app.analysing import Analysing
from gpuledger.app.assembling import Assembling
from gpuledger.app.dirt import Dirt
from gpuledger.app.findings import FindingBook, finding_record
from gpuledger.app.metrics import ServiceMetrics
from gpuledger.app.parameters import window as read_window
from gpuledger.app.pod_books import PodBooks
from gpuledger.app.policies import load_checked
from gpuledger.app.receiving import Receiver
from gpuledger.app.reviewing import Reviewing
from gpuledger.app.schedulers.feed import Feed
from gpuledger.attribution.rules import load as load_rules
from gpuledger.clock import Clock, SystemClock
from gpuledger.config import Settings
from gpuledger.errors import BadInput, GpuledgerError, RuleError
from gpuledger.model import Finding, QuotaChange, Recommendation, Window, to_table
from gpuledger.registry import REPORTS, RULES, resolve
from warehouse import IngestResult, Warehouse
from warehouse.ledger import LedgerBuild
from warehouse.samples import SampleStore
from warehouse.state import StateStore

log = structlog.get_logger("gpuledger.service")

TICK = timedelta(microseconds=1)

REMEMBERED = timedelta(days=7)
"""How far back a start looks for batches that no build has taken in."""


class Service:
    """The warehouse, the state store and the rules, as one object with verbs."""

    def __init__(self, warehouse: Warehouse, state: StateStore, settings: Settings, clock: Clock | None = None) -> None:
        self.warehouse = warehouse
        self.state = state
        self.settings = settings
        self.clock = clock or SystemClock()
        self.metrics = ServiceMetrics()
        self._building = threading.Lock()
        self.dirt = Dirt(timedelta(minutes=settings.lateness_minutes))
        self.samples = SampleStore(warehouse, settings, self.clock)
        self.assembling = Assembling(self.samples, self.dirt, self.clock)
        books = PodBooks(load_rules(settings.attribution_rules), self._write_records)
        self.receiver = Receiver(self.samples, books, settings, self.clock, self.metrics)
        self._remember_unbuilt()
        self._saving = threading.Lock()
        self.feeds: Sequence[Feed] = ()
        self.policy = load_checked(settings.policy_file)
        self.finding_book = FindingBook(self)
        self.reviewing = Reviewing(self)
        self.analysing = Analysing(warehouse, self, self.policy, self.clock)

    def _remember_unbuilt(self) -> None:
        """What came before this start and is in no ledger yet is dirty still."""
        since = self.clock.now() - REMEMBERED
        from_at = self.query("unbuilt_since", committed_after_at=since).to_pylist()[0]["from_at"]
        if from_at is not None:
            self.dirt.put_back(from_at)

    @classmethod
    def open(cls, settings: Settings, clock: Clock | None = None) -> Service:
        """Open both stores. Raises WarehouseBusy when another process holds the warehouse."""
        warehouse = Warehouse.open(settings.warehouse, settings, clock)
        return cls(warehouse, StateStore.open(settings.effective_state_url), settings, clock)

    def close(self) -> None:
        """Checkpoint and let go of both stores."""
        self.receiver.close()
        self.warehouse.close()
        self.state.close()

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """The rows of a named query."""
        return self.warehouse.query(name, **parameters)

    def ingest(self, record: str, table: pa.Table, batch_id: str, *, must_know_tenants: bool = True) -> IngestResult:
        """Take a batch in and count it."""
        result = self.warehouse.ingest(record, table, batch_id, must_know_tenants=must_know_tenants)
        outcome = "duplicate" if result.duplicate else "partial" if result.rejected_count else "accepted"
        self.metrics.batches.labels(record, outcome).inc()
        if not result.duplicate:
            self.metrics.rows.labels(record).inc(result.accepted)
            for field, count in result.rejected_by_field.items():
                self.metrics.rejected.labels(record, field).inc(count)
            if result.earliest_at is not None:
                self.dirt.add(result.earliest_at, self.clock.now())
        return result

    def assemble(self) -> int:
        """Make readings of the remote-write samples that wait, and write down what was wrong with others."""
        self.samples.note_events(self.receiver.events(self.clock.now()))
        return self.assembling.run()

    def _write_records(self, record: str, rows: Sequence[Any]) -> None:
        """Records that the service itself makes of what a sender wrote: like a batch, of which there is no second."""
        self.ingest(record, to_table(record, rows), f"remote_write/{uuid.uuid4()}")

    def evidence(self) -> Window | None:
        """The span of time that records speak of, up to now; None for an empty warehouse."""
        known = self._extent("evidence_extent")
        now = self.clock.now()
        return known if known is None or known.to_at <= now else Window(known.from_at, max(now, known.from_at + TICK))

    def _extent(self, name: str) -> Window | None:
        row = self.query(name).to_pylist()[0]
        if row["from_at"] is None or row["from_at"] >= row["to_at"]:
            return None
        return Window(row["from_at"], row["to_at"])

    def window(self, from_text: Any, to_text: Any) -> Window:
        """The window between two texts, by default all that records speak of, else (a trace) all that was asked for."""
        known = None if from_text and to_text else self.evidence() or self._extent("request_extent")
        return read_window(from_text, to_text, known)

    def ledger_window(self, from_text: Any, to_text: Any) -> Window:
        """The whole hours of the ledger that the asked window touches, by default all of them, up to the newest span.

        The ledger is kept by the hour, so what is answered is said: a window that begins at 13:45 answers from 13:00.
        """
        extent = self._extent("ledger_extent")
        known = None if from_text and to_text else extent or self.evidence() or self._extent("request_extent")
        hours = read_window(from_text, to_text, known).whole_hours()
        is_open = extent is not None and hours.from_at < extent.to_at < hours.to_at
        return Window(hours.from_at, extent.to_at) if extent is not None and is_open else hours

    def check_tenant(self, tenant: str | None) -> None:
        """Raise BadInput for a tenant that nobody has declared and no ledger row or finding names."""
        if tenant and tenant not in self.query("tenant_list").column("tenant").to_pylist():
            raise BadInput("tenant", f"unknown tenant {tenant[:80]!r}")

    def build_ledger(self, window: Window, until_at: datetime | None = None) -> LedgerBuild:
        """Rebuild the ledger over `window`, as far as anything is known of it, and note what the audits said.

        One build at a time; others wait.
        """
        self.assemble()
        since = self.query("known_since").to_pylist()[0]["from_at"]
        if since is None or since >= window.to_at:
            return LedgerBuild(window, 0, 0)
        window = Window(max(window.from_at, since), window.to_at)
        with self._building, self.metrics.ledger_seconds.time():
            self.dirt.settle(window.from_at)
            build = self.warehouse.build_ledger(window, until_at=until_at)
        self.metrics.violations.set(build.violations)
        if build.violations:
            log.error("ledger_does_not_close", violations=build.violations, window=str(window))
        return build

    @property
    def is_building(self) -> bool:
        """Whether a build is under way: until it ends, what the ledger holds says little of what is missing."""
        return self._building.locked()

    def ledger(self, by: str, window: Window | None) -> dict[str, Any]:
        """GPU-hours by `by` and state, their total, and the rates, over `window` (None: nothing recorded yet)."""
        if window is None:
            return {
                "by": by,
                "from": None,
                "to": None,
                "rows": [],
                "total_gpu_hours": 0.0,
                "inventory": {},
                "is_provisional": False,
                "active_unheld_gpu_hours": 0.0,
                "rates": {},
            }
        span = {"from_at": window.from_at, "to_at": window.to_at}
        rows = self.query("ledger_by", by=by, **span).to_pylist()
        rates = {row.pop("name"): row for row in self.query("ledger_rates", **span).to_pylist()}
        return {
            "by": by,
            "from": window.from_at,
            "to": window.to_at,
            "rows": [{by: row["key"], "state": row["state"], "gpu_hours": row["gpu_hours"]} for row in rows],
            "total_gpu_hours": sum(row["gpu_hours"] for row in rows),
            "inventory": {row["origin"]: row["gpu_count"] for row in self.query("inventory_origin").to_pylist()},
            "is_provisional": any(row["provisional_gpu_hours"] > 0 for row in rows),
            "active_unheld_gpu_hours": doctor.active_unheld_gpu_hours(self, window),
            "rates": rates,
        }

    def analyze(
        self, rule: str, window: Window, options: Mapping[str, Any], *, save: bool = False, anew: bool = True
    ) -> dict[str, Any]:
        """Run one rule. Its findings, its totals, and each finding's status.

        `save` makes this run the stored one; without `anew` only what is not analysed for good is analysed, and the
        findings are those that reach into it.

        Raises ConfigError for an unknown rule, BadInput for a wrong option, RuleError when it could not run.
        """
        since: datetime | None = None
        with _attempt(rule):
            judge = resolve("rules", rule)()
            if save:
                result, since = self.analysing.go_on(judge, window, options, anew=anew)
            else:
                result = self.analysing.look(judge, window, options)
        fresh = self._note_findings(rule, result.findings, since) if since else []
        statuses = self.state.finding_statuses(finding.finding_id for finding in result.findings)
        return {
            "rule": rule,
            "version": judge.version,
            "from": window.from_at,
            "to": window.to_at,
            "findings": [finding_record(f, statuses.get(f.finding_id, "new")) for f in result.findings],
            "new_finding_ids": [finding.finding_id for finding in fresh],
            **result.totals,
        }

    def rules(self) -> list[dict[str, Any]]:
        """Every rule: version, category, what it does, and how far it has analysed, for good and provisionally."""
        progress = {row["analyzer"]: row for row in self.query("rule_progress_list").to_pylist()}
        found = {row["analyzer"]: row for row in self.query("findings_by_rule").to_pylist()}
        told = []
        for name in RULES:
            rule = resolve("rules", name)
            told.append(
                {
                    "rule": name,
                    "version": rule.version,
                    "category": getattr(rule, "category", "waste"),
                    "says": (rule.__doc__ or "").partition("\n")[0],
                    "findings": found.get(name, {}).get("finding_count", 0),
                    "final_until_at": progress.get(name, {}).get("final_until_at"),
                    "provisional_hours": progress.get(name, {}).get("provisional_hours"),
                }
            )
        return told

    def _note_findings(self, rule: str, findings: Sequence[Finding], since: datetime) -> list[Finding]:
        """Carry the life cycle of a run's findings on, and count. Gives those that are new."""
        with self._saving:  # two runs of one rule at once would both call the same findings new
            fresh = self.state.sync_findings(rule, findings, self.clock.now(), since=since, policy=self.policy)
        for row in self.query("findings_by_rule").to_pylist():
            if row["analyzer"] == rule:
                self.metrics.findings.labels(rule).set(row["finding_count"])
                self.metrics.finding_hours.labels(rule).set(row["gpu_hours_wasted"])
        for row in self.query("rule_progress_list").to_pylist():
            if row["analyzer"] == rule:
                self.metrics.rule_final.labels(rule).set(row["final_until_at"].timestamp())
        return fresh

    def apply_policy(self) -> None:
        """Bring what was found before up to this service's policy, and count what it exempts."""
        self.metrics.exempted.set(self.state.apply_policy(self.policy, self.clock.now()))

    def findings(self, analyzer: str = "", tenant: str = "") -> list[dict[str, Any]]:
        """The stored findings with their status, the largest waste first."""
        return self.finding_book.listed(rule=analyzer, tenant=tenant)

    def recommend(self, kind: str, window: Window, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Make recommendations of `kind`, try each dry at the scheduler, and store them."""
        quotas = self.query("quota_current", at=window.to_at)
        with _attempt(kind):
            recommender = resolve("recommenders", kind)()
            scheduler = resolve("schedulers", self.settings.scheduler).from_quotas(quotas)
            proposed: Sequence[Recommendation] = recommender.recommend(self, window, options)
        made = []
        for recommendation in proposed:
            body = {**recommendation_record(recommendation), **_tried(scheduler, recommendation)}
            self.state.save_recommendation(
                recommendation.recommendation_id, kind, json.loads(_text(body)), self.clock.now()
            )
            made.append(body)
        return made

    def report(self, name: str, window: Window, *, tenant: str | None, timezone: str, language: str) -> str:
        """The report `name` as HTML."""
        if name not in REPORTS:
            raise BadInput("report", f"no report called {name[:40]!r}; known: {', '.join(REPORTS)}")
        with _attempt(name):
            report = resolve("reports", name)()
            return str(report.render(self, window, tenant=tenant, timezone=timezone, language=language))

    def doctor(self) -> list[dict[str, Any]]:
        """Checks a person would want: does the ledger close, is anything stale, do all rules load, is all mail out."""
        return doctor.checks(self)

    def quality(self, from_text: Any, to_text: Any, language: str) -> dict[str, Any]:
        """What lowers trust in the records, and what to do; by default in the ledger's last day, silent sources too."""
        extent = self._extent("ledger_extent")
        if extent is None and not (from_text and to_text):
            return {"from": None, "to": None, "summary": [], "problems": []}
        if extent is not None and not from_text:
            end = min(parameters.instant("to", to_text), extent.to_at) if to_text else extent.to_at
            from_text = max(extent.from_at, end - doctor.LOOKED_BACK)
        window = self.ledger_window(from_text, to_text)
        span = {"from_at": window.from_at, "to_at": window.to_at}
        return {
            "from": window.from_at,
            "to": window.to_at,
            "summary": self.query("quality_summary", **span).to_pylist(),
            "problems": doctor.problems(self, window, language, now=None if to_text else self.clock.now()),
        }


@contextlib.contextmanager
def _attempt(name: str) -> Iterator[None]:
    """Plug-in code: whatever it raises is a RuleError, so that a broken one never looks like one that found nothing."""
    try:
        yield
    except GpuledgerError:
        raise
    except Exception as error:  # anything at all may come from a plug-in
        log.exception("could_not_run", name=name)
        raise RuleError(f"{name} could not run: {error}") from error


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, default=str, ensure_ascii=False)


def _tried(scheduler: Any, recommendation: Recommendation) -> dict[str, Any]:
    """The plan in the scheduler's own terms and its answer to a dry run; the reason where it refuses to plan."""
    quotas = [change for change in recommendation.changes if isinstance(change, QuotaChange)]
    if len(quotas) < len(recommendation.changes):
        return {"plan": None, "dry_run": {"accepted": False, "messages": ["no scheduler adapter plans moves of pods"]}}
    try:
        plan = scheduler.plan(quotas)
    except GpuledgerError as error:
        return {"plan": None, "dry_run": {"accepted": False, "messages": [str(error)]}}
    dry = scheduler.dry_run(plan)
    steps = [{"target": step.target, "body": step.body, "undo": step.undo} for step in plan.steps]
    return {
        "plan": {"scheduler": plan.scheduler, "version": plan.version, "steps": steps},
        "dry_run": {"accepted": dry.accepted, "messages": list(dry.messages)},
    }


def recommendation_record(recommendation: Recommendation) -> dict[str, Any]:
    """A recommendation as the API gives it."""
    return dataclasses.asdict(recommendation)
