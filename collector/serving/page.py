"""A server's page into one `EngineReading` for each engine."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from collector.exposition import ExpositionParser, Page
from collector.serving.metrics import Dialect, EngineSeries, Shape
from gpuledger.model import EngineReading, QualityEvent, SourceRead
from gpuledger.ports import Observation

MAX_SKEW = timedelta(seconds=600)
"""How far a sample's own time may be from the time of the read; beyond it, it counts as read now."""
MAX_SERIES = 20_000
MAX_ENGINES = 2_000
"""Engines (and instants) that one page may give; a target that makes up more is told, and cut off."""
RATIO_UNITS: Mapping[str, float] = {"ratio": 1.0, "percent": 100.0}

_BOUNDS = {
    column.name: (column.metadata["low"], column.metadata["high"])
    for column in fields(EngineReading)
    if "low" in column.metadata
}


@dataclass(frozen=True, slots=True)
class Key:
    """What makes a row: where, what, and when."""

    namespace: str
    pod: str
    model_name: str
    role: str
    engine: str
    ts: datetime


class Target:
    """What is remembered between the pages of one server: its series, and which renamed metrics it was told for."""

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        dialect: Dialect,
        *,
        name: str = "unknown",
        node: str = "unknown",
        cluster: str = "default",
        namespace: str = "",
        pod: str = "",
        workload_id: str = "",
        role: str = "",
        ratio_unit: str = "ratio",
        interval_seconds: float = 15.0,
        max_series: int = MAX_SERIES,
    ) -> None:
        self.dialect = dialect
        self.name = name
        self.node = node
        self.cluster = cluster
        self.namespace = namespace
        self.pod = pod
        self.workload_id = workload_id
        self.role = role
        self.ratio_divisor = RATIO_UNITS[ratio_unit]
        self.interval_seconds = interval_seconds
        self.parser: ExpositionParser[EngineSeries] = ExpositionParser(dialect.reader(), max_series=max_series)
        self.told_renames: set[str] = set()

    def read(self, now: datetime, *, skipped_lines: int = 0, error: str | None = None) -> SourceRead:
        """The attempt to read the page; its `node` is where it was asked, host and port."""
        return SourceRead(
            ts=now,
            node=self.node,
            source=self.dialect.source,
            scope="device",
            ok=error is None,
            interval_seconds=self.interval_seconds,
            skipped_lines=skipped_lines,
            error=error,
        )

    def keys(self, page: Page[EngineSeries], now: datetime) -> list[Key]:
        """The row that each sample of `page` belongs to.

        What a series does not say (model, role) is what the others of its pod say, where they agree; the server's own
        totals stand beside its engines without their labels.
        """
        models: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        roles: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for series, _, _ in page.samples:
            place = series.namespace, series.pod
            models[place].add(series.model_name)
            roles[place].add(series.role)
        return [
            Key(
                namespace=self.namespace or series.namespace,
                pod=self.pod or series.pod,
                model_name=series.model_name or _only(models[series.namespace, series.pod], ""),
                role=self.role or series.role or _only(roles[series.namespace, series.pod], "unified"),
                engine=series.engine,
                ts=_instant(time_ms, now),
            )
            for series, _, time_ms in page.samples
        ]

    def renamed(self, page: Page[EngineSeries]) -> Counter[str]:
        """Old names on `page` that were not told before."""
        metrics = {series.metric for series, _, _ in page.samples if series.metric.replaced_by}
        found = {f"{_family(metric.name)} -> {_family(metric.replaced_by)}" for metric in metrics}
        fresh = found - self.told_renames
        self.told_renames |= fresh
        return Counter(fresh)


def _family(name: str) -> str:
    return name.removesuffix("_sum").removesuffix("_count")


def _only(told: Iterable[str], default: str) -> str:
    """The one text that was told beside the empty one; `default` where there is none, or more than one."""
    texts = [text for text in told if text]
    return texts[0] if len(texts) == 1 else default


def _instant(time_ms: int | None, now: datetime) -> datetime:
    if time_ms is None or abs(time_ms - now.timestamp() * 1000) > MAX_SKEW.total_seconds() * 1000:
        return now
    return datetime.fromtimestamp(time_ms // 1000, UTC) + timedelta(milliseconds=time_ms % 1000)


def parse(content: bytes, now: datetime, target: Target) -> Observation:
    """What the page `content`, read at `now`, says of the server's engines. Never raises.

    A page without any engine (an empty one, a login page, a server that still loads) is a failed read: its requests
    are unknown, not zero.
    """
    page = target.parser.parse(content)
    wrong: Counter[tuple[str, str]] = Counter({("refused_line", why): count for why, count in page.refused.items()})
    wrong.update({("renamed_metric", detail): count for detail, count in target.renamed(page).items()})
    wrong["too_many_series", "lines beyond the cap of remembered series"] += page.uncached_series
    rows = _rows(page, now, target, wrong)
    wrong["too_many_series", "engines beyond what one page may show"] += max(0, len(rows) - MAX_ENGINES)
    events = [
        QualityEvent(
            ts=now,
            source=target.dialect.source,
            subject_kind="target",
            subject=target.name,
            kind=kind,
            detail=detail,
            count=count,
        )
        for (kind, detail), count in sorted(wrong.items())
        if count
    ]
    others: dict[str, tuple[object, ...]] = {"quality_event": tuple(events)} if events else {}
    if not rows:
        error = f"no engine on the page; {page.skipped_lines} lines that are no samples"
        return Observation(reads=(target.read(now, error=error),), others=others)
    read = target.read(now, skipped_lines=page.skipped_lines)
    return Observation(reads=(read,), others={"engine_reading": tuple(rows[:MAX_ENGINES]), **others})


def _rows(
    page: Page[EngineSeries], now: datetime, target: Target, wrong: Counter[tuple[str, str]]
) -> list[EngineReading]:
    """One row for each engine and instant, in the order of the page."""
    told: dict[Key, dict[str, list[tuple[EngineSeries, float]]]] = {}
    for key, (series, value, _) in zip(target.keys(page, now), page.samples, strict=True):
        columns = told.setdefault(key, {})
        clean = _clean(series.metric.shape, series.metric.column, value, target)
        if clean is None:
            wrong["rejected_value", f"{series.metric.name} of an engine is no measurement"] += 1
        else:
            columns.setdefault(series.metric.column, []).append((series, clean))
    return [
        EngineReading(
            ts=key.ts,
            source=target.dialect.source,
            target=target.name,
            cluster=target.cluster,
            namespace=key.namespace,
            pod=key.pod,
            workload_id=target.workload_id,
            model_name=key.model_name,
            role=key.role,
            engine=key.engine,
            interval_seconds=target.interval_seconds,
            **{column: _value(parts) for column, parts in columns.items()},
        )
        for key, columns in told.items()
    ]


def _clean(shape: Shape, column: str, value: float, target: Target) -> float | None:
    """A value in our unit, or None for what is no measurement: not finite, negative, or a ratio above 1."""
    scaled = value / target.ratio_divisor if shape is Shape.RATIO else value
    low, high = _BOUNDS[column]
    return scaled + 0.0 if math.isfinite(scaled) and low <= scaled <= high else None


def _value(parts: list[tuple[EngineSeries, float]]) -> float | None:
    """One value of what the series of one column say: new names before old, the first rank, then by shape."""
    is_old = min(bool(series.metric.replaced_by) for series, _ in parts)
    named = [(series, value) for series, value in parts if bool(series.metric.replaced_by) == is_old]
    first = min(series.rank.order for series, _ in named)
    values = [value for series, value in named if series.rank.order == first]
    metric = named[0][0].metric
    total = math.fsum(values) if metric.shape is Shape.COUNTER else max(values)
    return total if total <= _BOUNDS[metric.column][1] else None
