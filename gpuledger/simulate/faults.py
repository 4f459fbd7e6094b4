"""Outages: hosts that are not ready or under repair, lost cards, fatal XIDs, and the spare pool."""

from __future__ import annotations

import numpy as np

from gpuledger.simulate.fleet import Host
from gpuledger.simulate.script import Outage, Script, Span

XID_FALLEN_OFF_BUS = 79
XID_DOUBLE_BIT_ECC = 48
SPARE_SINCE = -100_000


def _window(script: Script, rng: np.random.Generator, at: float, hours: tuple[float, float]) -> tuple[int, int]:
    """A stretch that starts near `at` (part of the span) and lasts `hours`, less on a short span."""
    end = script.spec.end_minute
    begin = int(end * at + rng.integers(0, 50))
    return begin, begin + int(min(60 * rng.uniform(*hours), end * 0.3))


def not_ready(script: Script, host: Host, rng: np.random.Generator, at: float) -> None:
    """The host drops out; what runs on it ends."""
    begin, end = _window(script, rng, at, (5, 14))
    reason = "kubelet stopped posting node status"
    script.outages.append(Outage("not_ready", host.index, host.cards, begin, end, reason, is_whole_host=True))


def repair(script: Script, host: Host, cards: tuple[int, ...], rng: np.random.Generator) -> None:
    """The assets list says under repair, for a good part of the span."""
    begin, end = _window(script, rng, 0.3, (48, 120))
    script.outages.append(Outage("under_repair", host.index, cards, begin, end, "returned to the vendor"))


def lose_card(script: Script, host: Host, slot: int, rng: np.random.Generator, at: float) -> None:
    """One card falls off the bus: its rows vanish from the page, the others stay."""
    begin, end = _window(script, rng, at, (8, 30))
    reason = f"XID {XID_FALLEN_OFF_BUS}"
    script.outages.append(Outage("gpu_lost", host.index, (host.cards[slot],), begin, end, reason))


def poison_card(script: Script, host: Host, slot: int, rng: np.random.Generator, at: float) -> None:
    """One card reports a fatal XID until it is reset."""
    begin, end = _window(script, rng, at, (4, 16))
    card, reason = (host.cards[slot],), f"XID {XID_DOUBLE_BIT_ECC}"
    script.outages.append(
        Outage("fatal_xid", host.index, card, begin, end, reason, xid=XID_DOUBLE_BIT_ECC),
    )


def set_aside(script: Script, host: Host, cards: tuple[int, ...]) -> None:
    """Spare cards, for the whole of the script."""
    whole = cards == host.cards
    last = script.spec.last_minute + 1440
    script.outages.append(Outage("spare", host.index, cards, SPARE_SINCE, last, "spare pool", is_whole_host=whole))


def mute_exporter(script: Script, host: Host, rng: np.random.Generator) -> None:
    """The exporter of a healthy host does not answer for a while: nothing is known, and nobody may be accused."""
    begin, end = _window(script, rng, 0.55, (2, 4))
    script.silent_exporters.append(Span(host.index, begin, end, "exporter_silent"))
