"""What the service says about itself on `/metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpuledger.model import arrow_schema


class ServiceMetrics:
    """The service's own series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add = {"registry": self.registry}
        self.batches = Counter("gpuledger_ingest_batches", "Batches by record and outcome", ["record", "outcome"], **add)
        self.rows = Counter("gpuledger_ingest_rows", "Rows committed", ["record"], **add)
        self.rejected = Counter("gpuledger_ingest_rejected_rows", "Rows refused", ["record", "field"], **add)
        self.bad_requests = Counter("gpuledger_bad_requests", "Requests refused", ["endpoint", "field"], **add)
        self.ledger_seconds = Histogram("gpuledger_ledger_build_seconds", "Time to rebuild open hours", **add)
        self.violations = Gauge("gpuledger_ledger_violations", "Rows that the closing audits returned last", **add)
        self.job_failures = Counter("gpuledger_job_failures", "Jobs that ended in an error", ["job"], **add)
        self.job_success = Gauge("gpuledger_job_last_success_timestamp_seconds", "Last good end", ["job"], **add)
        self.heartbeat = Gauge("gpuledger_heartbeat_timestamp_seconds", "Alert when this stops moving", **add)
        self.outbox = Gauge("gpuledger_alert_outbox", "Messages by status", ["status"], **add)
        self.findings = Gauge("gpuledger_findings", "Findings of the last run", ["analyzer"], **add)
        self.finding_hours = Gauge("gpuledger_findings_gpu_hours", "GPU-hours of the last run", ["analyzer"], **add)

    def refuse(self, endpoint: str, field: str) -> None:
        """Count a refused request. Fields that we do not know ourselves share one label: they are the sender's text."""
        known = {"body", "record", "batch_id", "from", "to", "tenant", "options", *_FIELDS}
        self.bad_requests.labels(endpoint, field if field in known else "other").inc()


_FIELDS = frozenset(column for record in ("reading", "workload", "allocation") for column in arrow_schema(record).names)
