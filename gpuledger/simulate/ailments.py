"""What ails cards while they work, and what only looks like it: XIDs, ECC errors, throttling, echoes of old faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from gpuledger.simulate.faults import XID_DOUBLE_BIT_ECC, XID_FALLEN_OFF_BUS
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.script import Ailment, Hold, Mark, Outage, Phase, Script

XID_USER_CODE = (13, 31)
HW_THERMAL = 0x40
OFF_BUS = Mark("health", "hardware_fault", "fallen_off_bus", "the card is gone from the bus")
FATAL = Mark("health", "hardware_fault", "double_bit_ecc", "the card must be reset")
ECC = Mark("health", "hardware_fault", "ecc_uncorrected", "uncorrected memory errors while work goes on")
USER_CODE = Mark("lookalike", "hardware_fault", "user_code", "an error of a program, which is no fault of the card")
STICKY = Mark("lookalike", "hardware_fault", "sticky_xid", "the gauge shows an old code after the repair")
HOT = Mark("health", "throttling", "hw_thermal", "the card is too hot and slows down")


def lose(script: Script, host: Host, slot: int, at: int, lasting: int) -> None:
    """XID 79 in the driver's log, then the card is off the bus."""
    card = host.cards[slot]
    script.ailments.append(Ailment(card, at, at + 1, "xid", XID_FALLEN_OFF_BUS, OFF_BUS))
    reason = f"XID {XID_FALLEN_OFF_BUS}"
    script.outages.append(Outage("gpu_lost", host.index, (card,), at, at + lasting, reason))


def poison(script: Script, host: Host, slot: int, at: int, lasting: int) -> None:
    """XID 48 on the gauge until the card is reset; after that the gauge still shows it, which is no new fault."""
    card, reset = host.cards[slot], at + lasting
    reason = f"XID {XID_DOUBLE_BIT_ECC}"
    script.ailments += [
        Ailment(card, at, reset, "xid", XID_DOUBLE_BIT_ECC, FATAL, is_told=False),
        Ailment(card, reset + 40, script.spec.last_minute, "xid", XID_DOUBLE_BIT_ECC, STICKY, is_told=False),
    ]
    script.outages += [
        Outage("fatal_xid", host.index, (card,), at, reset, reason),
        Outage("under_repair", host.index, (card,), reset, reset + 40, "reset by operations"),
    ]


def corrupt(script: Script, host: Host, slot: int, at: int) -> None:
    """The count of uncorrected ECC errors rises by two and stays."""
    script.ailments.append(
        Ailment(host.cards[slot], at, script.spec.last_minute, "ecc_uncorrected", 2, ECC, is_told=False)
    )


def blame_user(script: Script, host: Host, slot: int, at: int, rng: np.random.Generator) -> None:
    """XID 13 or 31: the driver's log tells it, and the gauge keeps it for the rest of the span."""
    code = int(rng.choice(XID_USER_CODE))
    script.ailments.append(Ailment(host.cards[slot], at, script.spec.last_minute, "xid", code, USER_CODE))


def heat(script: Script, card: int, span: tuple[int, int]) -> None:
    """`card` throttles by heat during `span`: 30 % of the clock is gone. Whatever is on it works on, more slowly.

    Only where the phases of its holds have no mark yet.
    """
    for number, job in enumerate(script.jobs):
        if any(hold.card == card and hold.start < span[1] and hold.end > span[0] for hold in job.holds):
            holds = tuple(_heated(hold, span) if hold.card == card else hold for hold in job.holds)
            script.jobs[number] = replace(job, holds=holds)


def _heated(hold: Hold, span: tuple[int, int]) -> Hold:
    begin, end = span
    phases: list[Phase] = []
    for phase in hold.phases:
        cuts = sorted({phase.start, phase.end, *(cut for cut in span if phase.start < cut < phase.end)})
        for left, right in pairwise(cuts):
            part = replace(phase, start=left, end=right)
            if left >= begin and right <= end and phase.shape.util > 0:
                hot = replace(phase.shape, clock=0.7, throttle=HW_THERMAL)
                part = replace(part, shape=hot, also=(*phase.also, HOT))
            phases.append(part)
    return replace(hold, phases=tuple(phases))
