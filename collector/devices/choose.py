"""Which of several values of one column counts, for every row at once.

Of values of one series at one instant the first (none, where different series of one set of labels differ and no rule
joins them); of metrics the lowest rank; of copies the device's own, else the
largest (the exporter reads a card's copies one after the other, and counters only grow). Under MIG the exporter
repeats what it knows only of the card (power, energy, clocks, temperatures, XID, link traffic) for every slice: such
values are kept once, on the card's own row, where the card's own value wins over the slices'. Neither a sum over
slices nor one over cards then counts anything twice.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from collector.devices.codes import Flags, Floats, Numbers, dense, has_twins
from collector.devices.fields import FIELDS, Table
from collector.devices.measure import Measured, measure
from collector.devices.sighted import Sighted

_LAST = np.iinfo(np.int8).max


@dataclass(frozen=True, slots=True)
class Chosen:
    """For each row: `values` by column (NaN where there is none), columns with a rejected value, and what was seen.

    `contested_count` are the columns rejected because series of one set of labels differ.
    """

    values: dict[str, Floats]
    rejected_count: Numbers
    has_copies: Flags
    is_clamped: Flags
    contested_count: Numbers


def choose(seen: Sighted, sample_values: Floats) -> Chosen:
    """The values that count."""
    table = FIELDS.table
    used, is_contested = _used(seen, sample_values, table)
    fields, sightings, rows = seen.sample_field[used], seen.sample_sighting[used], seen.sample_row[used]
    row_count = len(seen.row_gpu)
    is_slice = (seen.row_slice != 0)[seen.sighting_row][sightings]
    measured = measure(sample_values[used], fields, seen.sample_meaning[used], is_slice, table)
    if is_contested.any():
        measured = dataclasses.replace(
            measured, is_good=measured.is_good & ~is_contested, is_bad=measured.is_bad | is_contested
        )
    is_copy = np.array([subject.is_copy for subject in seen.subjects])[seen.sighting_subject][sightings]
    is_lent = table.is_device_wide[fields] & is_slice
    order = (table.rank[fields] * 2 + (is_copy | is_lent)).astype(np.int8)
    cells = table.column[fields] * row_count + rows
    return Chosen(
        values=_best(_Cells(cells, order, fields, seen.sample_meaning[used]), measured, row_count, table),
        rejected_count=_distinct_columns(cells[measured.is_bad], row_count),
        has_copies=_copies(seen, fields, sightings, table),
        is_clamped=np.bincount(rows[measured.is_clamped], minlength=row_count) > 0,
        contested_count=_distinct_columns(cells[is_contested], row_count),
    )


def _used(seen: Sighted, sample_values: Floats, table: Table) -> tuple[Numbers, Flags]:
    """The samples that measure something, once for each set of labels and instant, and which of them others contest.

    Parts of a sum are samples of their own.
    """
    used = np.flatnonzero((seen.sample_field != 0) & ~table.is_of_holder[seen.sample_field])
    keys = seen.sample_sighting[used] * len(table) + seen.sample_field[used]
    parts = np.flatnonzero(table.is_summed[seen.sample_field[used]])
    if len(parts):
        distinct, codes = np.unique(seen.sample_meaning[used][parts], return_inverse=True)
        keys *= len(distinct) + 1
        keys[parts] += codes + 1
    if not has_twins(keys):
        return used, np.zeros(len(used), np.bool_)
    _, first, positions = np.unique(keys, return_index=True, return_inverse=True)
    values = sample_values[used]
    differs = table.is_single[seen.sample_field[used]] & (values != values[first][positions])
    is_contested = np.bincount(positions[differs], minlength=len(first)) > 0
    in_order = np.argsort(first)
    return used[first[in_order]], is_contested[in_order]


@dataclass(frozen=True, slots=True)
class _Cells:
    """For each sample that measures something: its cell (column and row), how late it comes, its field and part."""

    cell: Numbers
    order: np.typing.NDArray[np.int8]
    field: Numbers
    part: Floats


def _best(of: _Cells, measured: Measured, row_count: int, table: Table) -> dict[str, Floats]:
    good = np.flatnonzero(measured.is_good)
    cells, order, fields, values = of.cell[good], of.order[good], of.field[good], measured.values[good]
    best_order = np.full(len(table.columns) * row_count, _LAST, np.int8)
    np.minimum.at(best_order, cells, order)
    is_best = order == best_order[cells]
    cells, fields, values = cells[is_best], fields[is_best], values[is_best]
    best = np.full(len(table.columns) * row_count, -np.inf)
    np.maximum.at(best, cells, values)
    bits = np.flatnonzero(table.is_mask[fields])
    if len(bits):
        where, positions = dense(cells[bits], len(best))
        masks = np.zeros(len(where), np.int64)
        np.bitwise_or.at(masks, positions, values[bits].astype(np.int64))
        best[where] = masks
    parts = np.flatnonzero(table.is_summed[fields])
    if len(parts):
        _add_up(best, cells[parts], of.part[good][is_best][parts], values[parts], table.is_averaged[fields[parts]])
        best[of.cell[table.is_summed[of.field] & measured.is_bad]] = -np.inf  # a sum without a part is none
    failed = np.flatnonzero(table.is_final[of.field] & measured.is_bad)
    best[of.cell[failed[of.order[failed] | 1 < best_order[of.cell[failed]]]]] = -np.inf  # none stands in for it
    best[np.isneginf(best)] = np.nan
    present = np.unique(table.column[np.unique(fields)])
    columns = best.reshape(len(table.columns), row_count)
    return {table.columns[column]: columns[column] for column in present.tolist()}


def _add_up(best: Floats, cells: Numbers, parts: Floats, values: Floats, is_averaged: Flags) -> None:
    """The sum, or the mean, over the parts of each cell; of copies of one part the largest counts."""
    keys = np.stack([cells.astype(np.float64), parts], axis=1)
    distinct, positions = np.unique(keys, axis=0, return_inverse=True)
    largest = np.full(len(distinct), -np.inf)
    np.maximum.at(largest, positions.reshape(-1), values)
    where, of_part = np.unique(distinct[:, 0].astype(np.int64), return_inverse=True)
    averaged = np.zeros(len(distinct), np.bool_)
    averaged[positions.reshape(-1)] = is_averaged
    sums, counts = np.bincount(of_part, weights=largest), np.bincount(of_part)
    best[where] = np.where(np.bincount(of_part, weights=averaged) > 0, sums / counts, sums)


def _distinct_columns(cells: Numbers, row_count: int) -> Numbers:
    return np.bincount(np.unique(cells) % row_count, minlength=row_count)


def _copies(seen: Sighted, fields: Numbers, sightings: Numbers, table: Table) -> Flags:
    """Rows for which one metric of one device came under several sets of labels."""
    row_count = len(seen.row_gpu)
    has_copies = np.zeros(row_count, np.bool_)
    is_shared = np.bincount(seen.sighting_row, minlength=row_count)[seen.sighting_row] > 1
    is_one = ~table.is_count[fields] & ~table.is_summed[fields]
    candidates = np.flatnonzero(is_shared[sightings] & is_one)
    if not len(candidates):
        return has_copies
    fields, sightings = fields[candidates], sightings[candidates]
    keys = seen.sighting_row[sightings] * len(table) + fields
    _, positions, counts = np.unique(keys, return_inverse=True, return_counts=True)
    twice = counts[positions] > 1
    sightings, fields = sightings[twice], fields[twice]
    card_rows = seen.sighting_card_row[sightings]
    is_lent = table.is_device_wide[fields] & (seen.row_slice[seen.sighting_row[sightings]] != 0)
    has_copies[np.where(is_lent, card_rows, seen.sighting_row[sightings])] = True
    return has_copies
