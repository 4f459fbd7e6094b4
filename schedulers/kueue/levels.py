"""Where nodes stand, by the levels that Kueue's Topology objects name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.moment import Moment
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.kueue.kinds import FLAVORS, TOPOLOGIES
from schedulers.rows import SnapshotRows


def tell_levels(moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
    """Say of nodes of flavors with a topology where they stand, unless labels that are known everywhere said it."""
    named = list(_topologies(moment, rows))
    states = rows.of("node_state")
    for number, state in enumerate(states):
        labels = meta(core.nodes.get(state.node) or {}).get("labels") or {}
        found = next((place for wanted, levels in named if (place := _place(labels, wanted, levels))), None)
        if found and state.topology is None:
            states[number] = replace(state, topology=json.dumps(found, ensure_ascii=False))


def _topologies(moment: Moment, rows: SnapshotRows) -> list[tuple[Mapping[str, str], Sequence[str]]]:
    """(labels of the flavor's nodes, labels that say the levels, the widest first)."""
    levels = {}
    for thing in moment.of(TOPOLOGIES):
        with rows.sparing(f"topology:{name_of(thing)}", "node"):
            levels[name_of(thing)] = [level["nodeLabel"] for level in thing["spec"]["levels"]]
    specs: list[Object] = [flavor.get("spec") or {} for flavor in moment.of(FLAVORS)]
    return [
        (spec.get("nodeLabels") or {}, levels[spec["topologyName"]])
        for spec in specs
        if spec.get("topologyName") in levels
    ]


def _place(labels: Mapping[str, str], wanted: Mapping[str, str], levels: Sequence[str]) -> Mapping[str, str] | None:
    """The node's value at each level; None where it is none of the flavor's, or lacks a level."""
    if not (wanted.items() <= labels.items() and all(level in labels for level in levels)):
        return None
    return {level: labels[level] for level in levels}
