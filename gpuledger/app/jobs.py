"""What runs by itself: ledger, rules, recommendations, report, alerts, heartbeat.

The schedule is made anew from the settings at every start; what must happen exactly once (a report for a week, a
message) is remembered in the state store, not in the scheduler. A job that fails is logged, counted, and runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from gpuledger.app.faults import RULE as FAULT_RULE
from gpuledger.app.faults import FaultWatch
from gpuledger.app.fragmentation import keep_hours
from gpuledger.app.mail import mailer_for
from gpuledger.app.service import Service
from gpuledger.model import Window
from gpuledger.registry import RECOMMENDERS, RULES, resolve

log = structlog.get_logger("gpuledger.jobs")

BACKFILL_QUIET = timedelta(seconds=30)
"""Closed hours are rebuilt when no late reading came for this long: a back-fill is not rebuilt at each batch."""


PRUNE_SECONDS = 300
"""How often remote-write samples that are rows by now are forgotten."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Jobs:
    """The service's clockwork."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mailer = mailer_for(service)
        service.apply_policy()
        self._faults = FaultWatch(service, self._mailer.announce)
        self._ran_at: dict[str, datetime] = {}
        self._scheduler = BackgroundScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        settings = service.settings
        every: dict[str, tuple[Callable[[], None], float]] = {
            "assemble": (self.assemble, settings.assemble_every_seconds),
            "prune": (service.assembling.prune, PRUNE_SECONDS),
            "faults": (self.look_for_faults, settings.faults_every_seconds),
            "ledger": (self.build_open_hours, settings.ledger_every_seconds),
            "rules": (self.run_rules, settings.rules_every_seconds),
            "fragments": (self.keep_fragments, settings.rules_every_seconds),
            "report": (self.write_reports, 3600),
            "alerts": (self._mailer.deliver, 10),
            "heartbeat": (self.beat, settings.heartbeat_every_seconds),
        }
        for name, (job, seconds) in every.items():
            self._scheduler.add_job(self._guarded(name, job), "interval", seconds=seconds, id=name, name=name)

    def start(self) -> None:
        """Begin; beat at once, so that a watcher sees the start."""
        self._guarded("heartbeat", self.beat)()
        self._scheduler.start()

    def stop(self) -> None:
        """Let running jobs end and start no more."""
        self._scheduler.shutdown(wait=True)

    def _guarded(self, name: str, job: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                job()
            except Exception:  # one failing job must not end the others; it is counted and logged
                self._service.metrics.job_failures.labels(name).inc()
                log.exception("job_failed", job=name)
            else:
                self._service.metrics.job_success.labels(name).set(self._service.clock.now().timestamp())

        return run

    def beat(self) -> None:
        """Say "alive" where others listen: a series that moves, and a signed webhook where one is set."""
        self._service.metrics.heartbeat.set(self._service.clock.now().timestamp())
        self._mailer.beat()

    def assemble(self) -> None:
        """Make readings of what remote write left."""
        self._service.assemble()

    def look_for_faults(self) -> None:
        """Find what faults came since the last look, and tell of them."""
        self._faults.look()

    def build_open_hours(self) -> None:
        """Rebuild provisional hours up to now, and closed ones that late readings touched.

        While somebody else builds, this turn is left out.
        """
        service = self._service
        if service.is_building:
            return
        now = service.clock.now()
        horizon = now - timedelta(seconds=service.settings.settle_seconds)
        extent = service.query("ledger_extent").to_pylist()[0]
        open_from_at = extent["final_until_at"] or extent["from_at"]
        dirty_from_at = service.dirt.take(now, open_from_at, BACKFILL_QUIET)
        start = min((start for start in (open_from_at, dirty_from_at) if start is not None), default=None)
        is_built = False
        try:
            if start is not None and start < horizon:
                service.build_ledger(Window(start, horizon), until_at=horizon)
                is_built = True
        finally:
            if dirty_from_at is not None and not is_built:
                service.dirt.put_back(dirty_from_at)

    def run_rules(self) -> None:
        """Run every rule and recommender over the trailing window. One that fails costs only itself."""
        window = self._rules_window()
        if window is None:
            return
        for rule in RULES:
            self._run_rule(rule, window)
        doubled = self._service.query("assert_no_double_claims", from_at=window.from_at, to_at=window.to_at).num_rows
        self._service.metrics.double_claims.set(doubled)
        if doubled:
            log.error("gpu_hours_claimed_twice", rows=doubled)
        for kind in RECOMMENDERS:
            try:
                self._service.recommend(kind, window, {})
            except Exception:  # as above
                self._service.metrics.job_failures.labels(f"recommend_{kind}").inc()
                log.exception("recommender_could_not_run", kind=kind)

    def _run_rule(self, name: str, window: Window) -> None:
        """Run one rule and announce what it found. Faults have a job of their own."""
        if name == FAULT_RULE:
            return
        try:
            if self._ran_lately(name):
                return
            result = self._service.analyze(name, window, {}, save=True, anew=False)
        except Exception:  # a finding that cannot be stored costs its rule only, as a broken rule does
            self._service.metrics.job_failures.labels(f"rule_{name}").inc()
            log.exception("rule_could_not_run", rule=name)
        else:
            self._mailer.announce(result["findings"])

    def _ran_lately(self, rule: str) -> bool:
        """Whether a rule that reads its whole history each time ran a moment ago: it need not run with every pass."""
        every: timedelta | None = getattr(resolve("rules", rule), "every", None)
        now = self._service.clock.now()
        if every is None or now - self._ran_at.get(rule, EPOCH) >= every:
            self._ran_at[rule] = now
            return False
        return True

    def keep_fragments(self) -> None:
        """Keep what was free at the start of each hour."""
        keep_hours(self._service)

    def _rules_window(self) -> Window | None:
        """What rules look at: the trailing days, begun on a Monday.

        A finding about a whole window is known by its start, so a start that moved with every run would make it new,
        and told anew, each time; this way it is once a week.
        """
        evidence = self._service.evidence()
        if evidence is None:
            return None
        extent = self._service.query("ledger_extent").to_pylist()[0]
        end = extent["to_at"] or evidence.to_at
        back = end - timedelta(days=self._service.settings.rules_window_days)
        monday = (back - timedelta(days=back.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
        return Window(max(extent["from_at"] or evidence.from_at, monday), end)

    def write_reports(self) -> None:
        """Write the weekly report of the last whole local week, once, when its last hour is final."""
        service, zone = self._service, ZoneInfo(self._service.settings.timezone)
        lateness = timedelta(minutes=service.settings.lateness_minutes)
        week = last_whole_week(service.clock.now() - lateness, zone)
        period = week.from_at.astimezone(zone).strftime("%G-W%V")
        extent = service.query("ledger_extent").to_pylist()[0]
        if extent["from_at"] is None or extent["from_at"] >= week.to_at or service.state.report_made("weekly", period):
            return
        html = service.report("weekly", week, tenant=None, timezone=zone.key, language="en")
        path = service.settings.report_directory / f"weekly-{period}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8")
        service.state.record_report("weekly", period, path, service.clock.now())


def last_whole_week(now: datetime, zone: ZoneInfo) -> Window:
    """The last Monday-to-Monday week of `zone` that has ended, as UTC instants."""
    today = now.astimezone(zone).date()
    monday = today - timedelta(days=today.weekday())
    begin, end = (datetime(day.year, day.month, day.day, tzinfo=zone) for day in (monday - timedelta(days=7), monday))
    return Window(begin.astimezone(UTC), end.astimezone(UTC))
