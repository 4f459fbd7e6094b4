"""From samples of DCGM series to whole records: readings, holdings and reads, as Arrow tables.

Every way in ends here: a scraped page, a remote-write request, an answer of a metrics server. The result is a function
of the set of samples; their order only decides between two values of one series at one instant, of which the first
counts. There is no loop over samples: labels are looked at once for each set of them, all else is arithmetic on
columns, so that millions of samples take seconds. Who keeps series between batches keeps them in a `Roster`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from collector.bounds import WHOLE_COLUMNS
from collector.devices import quality
from collector.devices.choose import choose
from collector.devices.claims import Held, double_claims, held
from collector.devices.codes import NONE, Floats, Numbers, factor, smallest
from collector.devices.settle import add_sums, drop_contradicted, drop_unmeasured
from collector.devices.sighted import Sighted, instants, sight
from collector.devices.subject import DeviceSeries, Pod, Subject
from collector.samples import Samples
from gpuledger.model import QualityFlag, arrow_schema, slice_share, to_table

_INSTANT = pa.timestamp("us", tz="UTC")
_FEW = 1000  # rows up to which a list is cheaper than calling a kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How samples are to be understood.

    `now` is when they were read: the instant of samples without a time of their own, or with one further away than
    `max_skew_seconds` (None: every time is believed). `source` names the way in; `interval_seconds` is its own rhythm,
    None where it does not say. `node` is the node whatever labels say; `fallback_node` where no label says. `holder`
    answers which pod labels show on their device.
    """

    now: datetime
    source: str
    interval_seconds: float | None = None
    node: str | None = None
    fallback_node: str = "unknown"
    max_skew_seconds: float | None = None
    holder: Callable[[Subject], Pod | None] = lambda subject: subject.pod


@dataclass(frozen=True, slots=True)
class Assembled:
    """Tables in the schemas of `reading`, `holding`, `source_read` and `quality_event`.

    The first two are sorted by card, slice and instant.

    `reads` says for each node and instant that the node was read and how many cards showed themselves; a slice that
    hides its card is none. `events` holds contradictions, double claims and clocks that are apart.
    """

    readings: pa.Table
    holdings: pa.Table
    reads: pa.Table
    events: pa.Table


def assemble(samples: Samples[DeviceSeries], options: Options) -> Assembled:
    """The records that `samples` amount to. Never raises for what samples say."""
    if not len(samples):
        return Assembled(*(to_table(name, []) for name in ("reading", "holding", "source_read", "quality_event")))
    at_us, skew = instants(samples.times_ms, options.now, options.max_skew_seconds)
    seen = sight(samples, at_us)
    chosen = choose(seen, samples.values)
    columns = _Columns(seen, options)
    add_sums(chosen.values)
    row_model = columns.group_model[seen.row_group]
    drop_unmeasured(chosen.values, seen.is_group_sliced[seen.row_group], columns.models, row_model)
    lost = drop_contradicted(chosen.values, columns.models, row_model)
    flags = np.zeros(len(seen.row_gpu), np.int64)
    for flag, is_set in (
        (QualityFlag.VALUE_REJECTED, chosen.rejected_count > 0),
        (QualityFlag.PROFILING_CONTRADICTED, lost > 0),
        (QualityFlag.DUPLICATE_COPIES, chosen.has_copies),
        (QualityFlag.RATIO_CLAMPED, chosen.is_clamped),
    ):
        flags |= np.where(is_set, flag, 0)
    about = columns.of_rows(np.arange(len(seen.row_gpu))) | {
        "seen_at": options.now,
        "model": _texts(columns.models, columns.group_model[seen.row_group]),
        "slice_profile": _texts(columns.profiles, columns.row_profile),
        "invalid_count": pa.array(chosen.rejected_count),
        "quality_flags": pa.array(flags),
    }
    found = quality.Found(
        contested=[(row, int(chosen.contested_count[row])) for row in np.flatnonzero(chosen.contested_count).tolist()],
        contradicted=[(row, int(lost[row])) for row in np.flatnonzero(lost).tolist()],
        claims=double_claims(seen, options.holder),
        skew=skew,
    )
    return Assembled(
        readings=_table(
            "reading", len(flags), about | {name: _numbers(name, of) for name, of in chosen.values.items()}
        ),
        holdings=_holdings(
            held(
                seen,
                samples.values,
                options.holder,
                columns.row_weights(),
                chosen.values.get("fb_total_bytes", np.full(len(flags), np.nan)),
            ),
            columns,
        ),
        reads=columns.reads(),
        events=to_table("quality_event", quality.events(seen, found, columns.node_of, options.now, options.source)),
    )


class _Columns:
    """What labels say about the rows, and the columns that all records share."""

    def __init__(self, seen: Sighted, options: Options) -> None:
        self._seen = seen
        self._options = options
        subjects, groups = seen.subjects, len(seen.group_gpu)
        self.models, models = factor([subject.model for subject in subjects])
        self.profiles, profiles = factor([subject.slice_profile for subject in subjects])
        # A name is better than an address: it sorts before.
        nodes, codes = factor([subject.node and (subject.is_address, subject.node) for subject in subjects])
        self.nodes = [*(node for _, node in nodes), options.fallback_node]
        self.group_model = smallest(seen.sighting_group, models[seen.sighting_subject], groups)
        self.row_profile = smallest(seen.sighting_row, profiles[seen.sighting_subject], len(seen.row_gpu))
        self.row_profile[seen.row_slice == 0] = NONE
        self.group_node = np.minimum(
            smallest(seen.sighting_group, codes[seen.sighting_subject], groups), len(self.nodes) - 1
        )
        if options.node:
            self.nodes, self.group_node = [options.node], np.zeros(groups, np.int64)

    def node_of(self, row: int) -> str:
        """The node of a row."""
        return str(self.nodes[int(self.group_node[self._seen.row_group[row]])])

    def of_rows(self, rows: Numbers) -> dict[str, Any]:
        """The columns that a reading and a holding share, for `rows`."""
        seen = self._seen
        return {
            "ts": _times(seen.instants_us[seen.row_instant[rows]]),
            "node": _texts(self.nodes, self.group_node[seen.row_group[rows]]),
            "gpu_uuid": _texts(seen.gpus, seen.row_gpu[rows]),
            "slice_id": _texts(seen.slices, seen.row_slice[rows]),
            "source": self._options.source,
            "interval_seconds": self._options.interval_seconds,
        }

    def row_weights(self) -> Floats:
        """The share of its card that each row is; NaN where nobody knows."""
        seen = self._seen
        width = len(self.profiles) + 1
        model = np.minimum(self.group_model[seen.row_group], len(self.models))
        kinds, positions = np.unique(
            model * width + np.minimum(self.row_profile, len(self.profiles)), return_inverse=True
        )
        models, profiles = [*self.models, None], [*self.profiles, None]
        shares = (slice_share(models[kind // width], profiles[kind % width]) for kind in kinds.tolist())
        weights = np.array([np.nan if share is None else share for share in shares])[positions]
        return np.where(seen.row_slice == 0, 1.0, weights)

    def reads(self) -> pa.Table:
        """One row for each node and instant."""
        seen = self._seen
        keys, positions = np.unique(self.group_node * len(seen.instants_us) + seen.group_instant, return_inverse=True)
        node, instant = np.divmod(keys, len(seen.instants_us))
        is_card = np.array([not uuid.startswith("MIG-") for uuid in seen.gpus])[seen.group_gpu]
        return _table(
            "source_read",
            len(keys),
            {
                "ts": _times(seen.instants_us[instant]),
                "node": _texts(self.nodes, node),
                "source": self._options.source,
                "scope": "device",
                "ok": True,
                "interval_seconds": self._options.interval_seconds,
                "device_count": pa.array(np.bincount(positions[is_card], minlength=len(keys))),
                "skipped_lines": 0,
            },
        )


def _holdings(of: Held, columns: _Columns) -> pa.Table:
    about = columns.of_rows(of.row) | {
        "namespace": _texts([namespace for namespace, _ in of.pods], of.pod),
        "pod": _texts([pod for _, pod in of.pods], of.pod),
        "container": _texts(of.containers, of.container),
        "share": pa.array(of.share),
        "is_stated": pa.array(of.is_stated),
    }
    return _table("holding", len(of.row), about)


def _times(us: Numbers) -> pa.Array:
    return pa.Array.from_buffers(_INSTANT, len(us), [None, pa.py_buffer(np.ascontiguousarray(us))])


def _texts(texts: Sequence[str], codes: Numbers) -> pa.Array:
    """The text of each code; null for `NONE`."""
    if len(codes) <= _FEW:
        return pa.array([None if code == NONE else texts[code] for code in codes.tolist()], pa.string())
    return pa.array(texts, pa.string()).take(pa.array(codes, mask=codes == NONE))


def _numbers(name: str, values: Floats) -> pa.Array:
    is_absent = np.isnan(values)
    if name in WHOLE_COLUMNS:
        return pa.array(np.where(is_absent, 0.0, values).astype(np.int64), mask=is_absent)
    return pa.array(values, mask=is_absent)


def _table(name: str, count: int, columns: dict[str, Any]) -> pa.Table:
    """Record `name` from arrays and from single values, which hold for every row; what is not given is null."""
    return pa.table(
        [_column(field, columns.get(field.name), count) for field in arrow_schema(name)], arrow_schema(name)
    )


def _column(field: pa.Field, values: Any, count: int) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.nulls(count, field.type) if values is None else pa.repeat(pa.scalar(values, field.type), count)
