"""Who was seen on each card and slice, and with which share of the card.

A pod holds what the exporter says that it was given (`parts`). Where nothing is said it holds 1/n of what it sits on, n
being the pods seen there (time-slicing divides a card, and the exporter does not say how); of those beside pods that
were given parts, what is left. A slice weighs its compute slices. A slice whose profile or model is unknown is held by
nobody, because nothing says how much of the card it is. A card in slices is held through them.

Two pods on one card whose labels do not say that they share it are a double claim. They get half each, so that no
GPU-hour is counted twice, and it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collector.devices.codes import NONE, Flags, Floats, Numbers, factor, number, smallest
from collector.devices.parts import stated_shares
from collector.devices.sighted import Sighted
from collector.devices.subject import Pod, Subject

_NAMED_CLAIMANTS = 4


@dataclass(frozen=True, slots=True)
class Held:
    """One entry a pod on a row: the row, which of `pods`, which of `containers` (or NONE), and the share.

    `is_stated` where the exporter said the share.
    """

    pods: list[tuple[str, str]]
    containers: list[str]
    row: Numbers
    pod: Numbers
    container: Numbers
    share: Floats
    is_stated: Flags


def held(
    seen: Sighted,
    sample_values: Floats,
    holder: Callable[[Subject], Pod | None],
    row_weight: Floats,
    row_memory: Floats,
) -> Held:
    """The pods on each row; `row_weight` is the share of the card that the row is, NaN where nobody knows.

    `row_memory` is the memory of the row in bytes, NaN where that is not known.
    """
    holders = [holder(subject) for subject in seen.subjects]
    pods, subject_pod = number([pod and (pod.namespace, pod.name) for pod in holders])
    containers, subject_container = factor([(pod and pod.container) or None for pod in holders])
    is_whole_card = (seen.row_slice == 0) & seen.is_group_sliced[seen.row_group]
    can_be_held = ~is_whole_card & ~np.isnan(row_weight)
    sightings = np.flatnonzero((subject_pod != NONE)[seen.sighting_subject] & can_be_held[seen.sighting_row])
    subjects, rows = seen.sighting_subject[sightings], seen.sighting_row[sightings]
    keys, positions = np.unique(rows * max(1, len(pods)) + subject_pod[subjects], return_inverse=True)
    row, pod = np.divmod(keys, max(1, len(pods)))
    holding = np.full(len(seen.sighting_subject), -1)
    holding[sightings] = positions
    container = np.minimum(subject_container, len(containers))[seen.sighting_subject]
    stated = stated_shares(seen, sample_values, holding, container, row_memory[row])
    is_stated = ~np.isnan(stated)
    return Held(
        pods=pods,
        containers=containers,
        row=row,
        pod=pod,
        container=smallest(positions, subject_container[subjects], len(keys)),
        share=np.where(is_stated, stated, _left(row, np.nan_to_num(stated), ~is_stated, row_weight)),
        is_stated=is_stated,
    )


def _left(row: Numbers, stated: Floats, is_open: Flags, row_weight: Floats) -> Floats:
    """What each holder of an open share has: an equal part of what the stated shares leave of its row."""
    count = len(row_weight)
    left = np.maximum(row_weight - np.bincount(row, weights=stated, minlength=count), 0.0)
    return (left / np.maximum(np.bincount(row, weights=is_open, minlength=count), 1))[row]


def double_claims(seen: Sighted, holder: Callable[[Subject], Pod | None]) -> list[tuple[int, str, int]]:
    """(row, who claims it, how many) for each row that several pods claim for themselves alone."""
    several = np.bincount(seen.sighting_row, minlength=len(seen.row_gpu)) > 1
    sightings = np.flatnonzero(several[seen.sighting_row])
    subjects, positions = np.unique(seen.sighting_subject[sightings], return_inverse=True)
    candidates = [seen.subjects[subject] for subject in subjects.tolist()]
    names, subject_claim = factor([_claim(subject, holder(subject)) for subject in candidates])
    claimed = subject_claim[positions]
    is_claim = claimed != NONE
    keys = np.unique(seen.sighting_row[sightings[is_claim]] * max(1, len(names)) + claimed[is_claim])
    row, claim = np.divmod(keys, max(1, len(names)))
    is_contested = _is_contested(seen, row)
    found: dict[int, list[str]] = {}
    for at, name in zip(row[is_contested].tolist(), claim[is_contested].tolist(), strict=True):
        found.setdefault(at, []).append(names[name])
    return [(at, _list(claimants), len(claimants)) for at, claimants in found.items()]


def _claim(subject: Subject, pod: Pod | None) -> str | None:
    """What claims the device for itself; None where the labels say that it is shared."""
    if pod is None or subject.is_shared:
        return None
    return f"claim {subject.claim}" if subject.claim else f"{pod.namespace}/{pod.name}"


def _is_contested(seen: Sighted, row: Numbers) -> Flags:
    is_whole_card = (seen.row_slice == 0) & seen.is_group_sliced[seen.row_group]
    claimants = np.bincount(row, minlength=len(seen.row_gpu))
    is_contested: Flags = (claimants[row] > 1) & ~is_whole_card[row]
    return is_contested


def _list(names: list[str]) -> str:
    rest = len(names) - _NAMED_CLAIMANTS
    return ", ".join(names[:_NAMED_CLAIMANTS]) + (f" and {rest} more" if rest > 0 else "")
