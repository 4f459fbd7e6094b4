"""Volcano's picture of the network: which nodes stand below which hyper nodes, tier by tier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.rows import SnapshotRows

_NODE = "Node"


@dataclass(frozen=True, slots=True)
class HyperNode:
    """One of them: its tier (1 is nearest to the nodes) and the names of the nodes and hyper nodes in it."""

    name: str
    tier: int
    nodes: frozenset[str]
    below: frozenset[str]


def hyper_nodes(given: Iterable[Object], nodes: Mapping[str, Object], rows: SnapshotRows) -> dict[str, HyperNode]:
    """The hyper nodes that can be understood, with their members worked out; the others become problems."""
    objects = {str(meta(one).get("name")): one for one in given}
    found = {}
    for name, one in objects.items():
        with rows.sparing(f"hypernode/{name}", "node"):
            found[name] = _hyper_node(name, one, nodes, objects)
    return found


def tiers_of_nodes(hypers: Mapping[str, HyperNode]) -> dict[str, dict[int, str]]:
    """For each node the hyper node above it, by tier; of several of one tier the first by name."""
    found: dict[str, dict[int, str]] = {}
    for name in sorted(hypers):
        for node in _all_nodes(name, hypers):
            found.setdefault(node, {}).setdefault(hypers[name].tier, name)
    return found


def place(rows: SnapshotRows, tiers: Mapping[str, Mapping[int, str]]) -> None:
    """Into the rows of nodes: tiers 1 and 2 as leaf and spine where no label said them, all of them as topology."""
    nodes, states = rows.of("node"), rows.of("node_state")
    for at, row in enumerate(nodes):
        above = tiers.get(row.node, {})
        nodes[at] = replace(row, leaf=row.leaf or above.get(1), spine=row.spine or above.get(2))
    for at, row in enumerate(states):
        above = tiers.get(row.node, {})
        if above:
            levels = json.loads(row.topology) if row.topology else {}
            levels |= {f"tier-{tier}": name for tier, name in above.items()}
            states[at] = replace(row, topology=json.dumps(levels, ensure_ascii=False, sort_keys=True))


def _hyper_node(name: str, one: Object, nodes: Mapping[str, Object], others: Mapping[str, Object]) -> HyperNode:
    spec = one["spec"]
    members: dict[bool, set[str]] = {True: set(), False: set()}
    for member in spec.get("members") or ():
        is_node = member["type"] == _NODE
        members[is_node] |= _chosen(member.get("selector") or {}, nodes if is_node else others)
    return HyperNode(name, int(spec["tier"]), frozenset(members[True]), frozenset(members[False] - {name}))


def _chosen(selector: Object, candidates: Mapping[str, Object]) -> set[str]:
    if exact := selector.get("exactMatch"):
        return {exact["name"]} & candidates.keys()
    if pattern := selector.get("regexMatch"):
        try:
            wanted = re.compile(pattern["pattern"])
        except re.error as error:
            raise BadInput("selector.regexMatch.pattern", str(error)) from error
        return {name for name in candidates if wanted.search(name)}
    labels = selector.get("labelMatch")
    return {name_of(one) for one in candidates.values() if _matches(one, labels)} if labels else set()


def _matches(one: Object, wanted: Object) -> bool:
    labels: Mapping[str, str] = meta(one).get("labels") or {}
    equal = all(labels.get(name) == value for name, value in (wanted.get("matchLabels") or {}).items())
    return equal and all(_holds(labels, term) for term in wanted.get("matchExpressions") or ())


def _holds(labels: Mapping[str, str], term: Object) -> bool:
    value, values = labels.get(term["key"]), term.get("values") or ()
    match term["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise BadInput("selector.labelMatch.operator", f"{other!r} is no operator")


def _all_nodes(name: str, hypers: Mapping[str, HyperNode]) -> set[str]:
    nodes: set[str] = set()
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in hypers and one not in seen:
            seen.add(one)
            nodes |= hypers[one].nodes
            waiting += hypers[one].below
    return nodes
