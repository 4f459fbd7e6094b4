"""Every kind of host side by side: whole, cut and shared cards of three vendors, and servers of models."""

from __future__ import annotations

from itertools import cycle

from gpuledger.simulate import sharing
from gpuledger.simulate.script import Script
from gpuledger.simulate.services import Service, add_service
from gpuledger.simulate.teams import ASSISTANT, RANKING

SERVICES = (("concentrated", "vllm"), ("trickle", "vllm"), ("bright", "sglang"), ("trickle", "sglang"))
"""Styles and servers, one service of four replicas after the other; the second of a host begins at its fifth card."""


def one_of_each(script: Script) -> None:
    """Work on every host; those that serve hold two services of four replicas each, two of them a declared floor."""
    turns = cycle(SERVICES)
    for host in script.fleet.pool("l40s-serve"):
        for first, team in ((0, ASSISTANT), (4, RANKING)):
            style, server = next(turns)
            cards = host.cards[first : first + 4]
            add_service(
                script,
                Service(team, style, cards, 1, 2, 0, sm=0.7, fb=0.95, tide=0.05, is_graded=True, server=server),
                script.rng(95, host.index, first),
            )
    sharing.side_by_side(script, {card for host in script.fleet.pool("l40s-serve") for card in host.cards})
