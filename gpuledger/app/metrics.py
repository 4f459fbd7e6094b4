"""What the service says about itself on `/metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpuledger.app.parameters import READERS
from gpuledger.model import RECORDS, arrow_schema


class ServiceMetrics:
    """The service's own series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.batches = Counter(
            "gpuledger_ingest_batches", "Batches by record and outcome", ["record", "outcome"], registry=self.registry
        )
        self.rows = Counter("gpuledger_ingest_rows", "Rows committed", ["record"], registry=self.registry)
        self.rejected = Counter(
            "gpuledger_ingest_rejected_rows", "Rows refused", ["record", "field"], registry=self.registry
        )
        self.bad_requests = Counter(
            "gpuledger_bad_requests", "Requests refused", ["endpoint", "field"], registry=self.registry
        )
        self.rejected_too_large = Counter(
            "gpuledger_rejected_too_large", "Requests with too large a body", ["endpoint"], registry=self.registry
        )
        self.remote_samples = Counter(
            "gpuledger_remote_write_samples", "Remote-write samples", ["outcome", "reason"], registry=self.registry
        )
        self.ledger_seconds = Histogram(
            "gpuledger_ledger_build_seconds", "Time to rebuild open hours", registry=self.registry
        )
        self.violations = Gauge(
            "gpuledger_ledger_violations", "Rows that the closing audits returned last", registry=self.registry
        )
        self.job_failures = Counter(
            "gpuledger_job_failures", "Jobs that ended in an error", ["job"], registry=self.registry
        )
        self.job_success = Gauge(
            "gpuledger_job_last_success_timestamp_seconds", "Last good end", ["job"], registry=self.registry
        )
        self.heartbeat = Gauge(
            "gpuledger_heartbeat_timestamp_seconds", "Alert when this stops moving", registry=self.registry
        )
        self.scheduler_up = Gauge(
            "gpuledger_scheduler_up", "Whether the last read was good", ["scheduler"], registry=self.registry
        )
        self.scheduler_whole = Gauge(
            "gpuledger_scheduler_sees_all", "Whether nothing was denied to it", ["scheduler"], registry=self.registry
        )
        self.scheduler_read_at = Gauge(
            "gpuledger_scheduler_last_read_timestamp_seconds", "Last good read", ["scheduler"], registry=self.registry
        )
        self.scheduler_failures = Counter(
            "gpuledger_scheduler_failures", "Reads that failed", ["scheduler", "reason"], registry=self.registry
        )
        self.outbox = Gauge("gpuledger_alert_outbox", "Messages by status", ["status"], registry=self.registry)
        self.silenced = Counter(
            "gpuledger_alerts_silenced", "Findings nobody was told of", ["rule", "reason"], registry=self.registry
        )
        self.exempted = Gauge("gpuledger_findings_exempted_by_policy", "Findings it exempts", registry=self.registry)
        self.findings = Gauge("gpuledger_findings", "Findings of the last run", ["analyzer"], registry=self.registry)
        self.double_claims = Gauge(
            "gpuledger_double_claims", "Claims of GPU-hours that another finding counts", registry=self.registry
        )
        self.rule_final = Gauge(
            "gpuledger_rule_final_until_timestamp_seconds", "Analysed for good until", ["rule"], registry=self.registry
        )
        self.finding_hours = Gauge(
            "gpuledger_findings_gpu_hours", "GPU-hours of the last run", ["analyzer"], registry=self.registry
        )

    def refuse(self, endpoint: str, field: str) -> None:
        """Count a refused request. Fields that we do not know ourselves share one label: they are the sender's text."""
        self.bad_requests.labels(endpoint, field if field in _FIELDS else "other").inc()


_FIELDS = frozenset(
    (
        *(
            "Authorization",
            "Content-Encoding",
            "Content-Type",
            "body",
            "timeseries",
            "path",
            "method",
            "parameters",
            "batch_id",
        ),
        *("record", "name", "rule", "kind", "report", "finding_id", "status", "by", "note", "owner", "expires_at"),
        *("from", "to", "tenant", "language", *READERS),
        *(column for record in RECORDS for column in arrow_schema(record).names),
    )
)
