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
NPU_ISOLATED, NPU_SCRUBBED = 0x80E18402, 0x80E01809
OFF_BUS = Mark("health", "hardware_fault", "fallen_off_bus", "the card is gone from the bus")
FATAL = Mark("health", "hardware_fault", "double_bit_ecc", "the card must be reset")
ECC = Mark("health", "hardware_fault", "ecc_uncorrected", "uncorrected memory errors while work goes on")
USER_CODE = Mark("lookalike", "hardware_fault", "user_code", "an error of a program, which is no fault of the card")
STICKY = Mark("lookalike", "hardware_fault", "sticky_xid", "the gauge shows an old code after the repair")
ISOLATED = Mark("health", "hardware_fault", "npu_isolated", "a code for which the vendor isolates the chip")
SCRUBBED = Mark("lookalike", "hardware_fault", "npu_scrubbed", "a code that asks for nothing")
SEVERAL_WAYS = Mark("health", "flapping_node", "several_faults", "different fatal faults within a month")
COMES_AND_GOES = Mark("health", "flapping_node", "comes_and_goes", "not ready three times within a day")
LEMON = Mark("health", "lemon_node", "fails_too_often", "more failures than chance would give any host of the fleet")
HOT_RANK = Mark("advice", "gang_straggler", "hot_rank", "one rank's card is too hot and slow")
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


def ail_npus(script: Script, host: Host, at: int, noted: int) -> None:
    """A chip tells for hours that it should be isolated, another one a note."""
    script.ailments += [
        Ailment(host.cards[3], at, at + 400, "npu_fault", NPU_ISOLATED, ISOLATED),
        Ailment(host.cards[5], noted, noted + 30, "npu_fault", NPU_SCRUBBED, SCRUBBED),
    ]


def wear_out(script: Script, host: Host, at: int) -> None:
    """Three different faults of one host within a day and a half."""
    lose(script, host, 3, at, 400)
    poison(script, host, 4, at + 700, 200)
    corrupt(script, host, 7, at + 1400)
    mark_worn_out(script, host, at, at + 1401)


def mark_worn_out(script: Script, host: Host, begin: int, end: int) -> None:
    """`host` broke in several ways during [`begin`, `end`), more often than chance would give any host."""
    script.host_marks += [(host.index, begin, end, mark) for mark in (SEVERAL_WAYS, LEMON)]


def flap(script: Script, host: Host, at: int) -> None:
    """A host is not ready for 20 minutes, three times within a day."""
    for number in range(3):
        begin = at + 300 * number
        reason = "kubelet stopped posting node status"
        outage = Outage("not_ready", host.index, host.cards, begin, begin + 20, reason, is_whole_host=True)
        script.outages.append(outage)
    script.host_marks.append((host.index, at, at + 620, COMES_AND_GOES))


def heat(script: Script, card: int, span: tuple[int, int]) -> None:
    """`card` throttles by heat during whole hours: 30 % of the clock is gone, and what runs on it works more slowly.

    In a gang its rank holds up the others.
    """
    for number, job in enumerate(script.jobs):
        if any(hold.card == card and hold.start < span[1] and hold.end > span[0] for hold in job.holds):
            also = (HOT, HOT_RANK) if len(job.holds) > 1 else (HOT,)
            holds = tuple(_heated(hold, span, also) if hold.card == card else hold for hold in job.holds)
            script.jobs[number] = replace(job, holds=holds)


def _heated(hold: Hold, span: tuple[int, int], also: tuple[Mark, ...]) -> Hold:
    begin, end = span
    phases: list[Phase] = []
    for phase in hold.phases:
        cuts = sorted({phase.start, phase.end, *(cut for cut in span if phase.start < cut < phase.end)})
        for left, right in pairwise(cuts):
            part = replace(phase, start=left, end=right)
            if left >= begin and right <= end:
                is_busy = phase.shape.util > 0
                slow = replace(phase.shape, clock=0.7, throttle=HW_THERMAL) if is_busy else phase.shape
                part = replace(part, shape=slow, also=(*phase.also, *(also if is_busy else also[:1])))
            phases.append(part)
    return replace(hold, phases=tuple(phases))
