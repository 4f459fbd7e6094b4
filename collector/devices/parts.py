"""What was given to each holder of a card, where the exporter says it: HAMi's scheduler gives cores and memory.

A holder's share is the larger of both parts: what it leaves of the other, nobody else can use with it. Containers of
a pod add up; of copies of one container's value the largest counts.
"""

from __future__ import annotations

import numpy as np

from collector.devices.codes import Flags, Floats, Numbers, dense
from collector.devices.fields import FIELDS, HELD_MEMORY
from collector.devices.measure import measure
from collector.devices.sighted import Sighted


def stated_shares(seen: Sighted, sample_values: Floats, holding: Numbers, container: Numbers, memory: Floats) -> Floats:
    """The share of its card that each holding was given, NaN where nothing says it.

    `holding` is of each sighting the number of its holding (negative: nobody holds it), `container` that of its
    container, from 0; `memory` is what the card of each holding has, in bytes, NaN where that is not known.
    """
    table = FIELDS.table
    samples = np.flatnonzero(table.is_of_holder[seen.sample_field])
    samples = samples[holding[seen.sample_sighting[samples]] >= 0]
    shares = np.full(len(memory), np.nan)
    if not len(samples):
        return shares
    fields, sightings = seen.sample_field[samples], seen.sample_sighting[samples]
    no_slice = np.zeros(len(samples), np.bool_)
    measured = measure(sample_values[samples], fields, seen.sample_meaning[samples], no_slice, table)
    is_memory = (table.column == table.columns.index(HELD_MEMORY))[fields] if HELD_MEMORY in table.columns else no_slice
    for is_part, whole in ((is_memory, memory), (~is_memory, np.ones(len(memory)))):
        good = np.flatnonzero(is_part & measured.is_good & (measured.values > 0))
        parts = _added(holding[sightings[good]], container[sightings[good]], measured.values[good], len(memory))
        np.fmax(shares, parts / whole, out=shares)
    np.minimum(shares, 1.0, out=shares)
    return shares


def _added(holding: Numbers, container: Numbers, values: Floats, count: int) -> Floats:
    """Of each holding the sum over its containers; NaN where there is none."""
    several = int(container.max(initial=0)) + 1
    keys, positions = dense(holding * several + container, count * several)
    largest = np.zeros(len(keys))
    np.maximum.at(largest, positions, values)
    owners = keys // several
    sums = np.bincount(owners, weights=largest, minlength=count)
    is_told: Flags = np.bincount(owners, minlength=count) > 0
    return np.where(is_told, sums, np.nan)
