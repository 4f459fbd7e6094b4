"""What the script leaves free: which shares of which cards, and whether anything that waits could use them.

A share is stranded by the script's own facts, not by any rule's threshold: while only whole-node pods wait, free cards
of a partly held host are; and while CPU-only pods hold a host's CPUs, all its free cards are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gpuledger.simulate.fleet import Host
from gpuledger.simulate.script import Hold, Script, Span

SLIVER = 1e-9


@dataclass(frozen=True, slots=True)
class FreeSpan:
    """`share` of a card was free during [`start`, `end`); `cause` is None when something could use it."""

    card: int
    start: int
    end: int
    share: float
    cause: str | None


def free_spans(script: Script, begin: int, end: int) -> Iterator[FreeSpan]:
    """The free shares of every card in [`begin`, `end`), merged where nothing changes."""
    holds: dict[int, list[Hold]] = {host.index: [] for host in script.fleet.hosts}
    for job in script.jobs:
        for hold in job.holds:
            if hold.card is not None and hold.start < end and hold.end > begin:
                holds[hold.host].append(hold)
    for host in script.fleet.hosts:
        yield from _merged(_pieces(script, host, holds[host.index], (begin, end)))


def _pieces(script: Script, host: Host, holds: list[Hold], span: tuple[int, int]) -> Iterator[FreeSpan]:
    outages = [outage for outage in script.outages if outage.host == host.index]
    full = [window for window in script.cpu_full if window.host == host.index]
    edges = [edge for outage in outages for edge in (outage.start, outage.end)]
    edges += [edge for window in full for edge in (window.start, window.end)]
    edges += [edge for window in script.big_only for edge in window]
    changes = _changes(holds, edges, span)
    left = dict.fromkeys(host.cards, 1.0)
    moments = sorted(changes)
    for now, after in pairwise(moments):
        for card, amount in changes[now]:
            left[card] += amount
        out = {card for outage in outages if outage.start <= now < outage.end for card in outage.cards}
        cause = _cause(script, full, now, is_empty=not out and min(left.values()) > 1 - SLIVER)
        for card, share in left.items():
            if share > SLIVER and card not in out:
                yield FreeSpan(card, now, after, round(share, 9), cause)


def _changes(holds: list[Hold], edges: list[int], span: tuple[int, int]) -> dict[int, list[tuple[int, float]]]:
    """By minute: how the free share of which card changes; `edges` are minutes at which only the cause may change."""
    begin, end = span
    changes: dict[int, list[tuple[int, float]]] = {begin: [], end: []}
    for hold in holds:
        for at, amount in ((hold.start, -hold.share), (hold.end, hold.share)):
            changes.setdefault(min(max(at, begin), end), []).append((hold.card or 0, amount))
    for edge in edges:
        if begin < edge < end:
            changes.setdefault(edge, [])
    return changes


def _cause(script: Script, full: list[Span], now: int, *, is_empty: bool) -> str | None:
    if any(window.start <= now < window.end for window in full):
        return "cpu"
    if not is_empty and any(begin <= now < end for begin, end in script.big_only):
        return "insufficient_whole"
    return None


def _merged(spans: Iterator[FreeSpan]) -> Iterator[FreeSpan]:
    last: dict[int, FreeSpan] = {}
    for span in spans:
        before = last.get(span.card)
        if before and (before.end, before.share, before.cause) == (span.start, span.share, span.cause):
            last[span.card] = FreeSpan(span.card, before.start, span.end, span.share, span.cause)
            continue
        if before:
            yield before
        last[span.card] = span
    yield from last.values()
