"""The states' one order and one colour, as look.md fixes them."""

from __future__ import annotations

from dataclasses import dataclass

from gpuledger.model import State


@dataclass(frozen=True, slots=True)
class StateLook:
    """How one state is drawn. `is_hatched` marks what was not graded: it is striped, never just another colour."""

    state: State
    colour: str
    is_hatched: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One subtotal of the waterfall and the states that are taken off after it."""

    name: str
    states: tuple[State, ...]


STEPS = (
    Step(
        "inventory",
        (State.UNAVAILABLE, State.RESERVED_SPARE, State.FREE_STRANDED, State.FREE_USABLE),
    ),
    Step(
        "held",
        (State.ALLOC_UNKNOWN, State.ALLOC_STARTING, State.ALLOC_IDLE, State.ALLOC_STANDBY, State.ALLOC_STALLED),
    ),
    Step("working", (State.ALLOC_LOW, State.ALLOC_UNGRADED, State.ALLOC_PRODUCTIVE)),
)
"""From everything that exists to productive work. Inside a step the order keeps neighbours apart in lightness."""

HELD_STEPS = STEPS[1:]
"""The same for what one tenant holds: it has no free and no broken GPUs."""

STATE_ORDER = tuple(state for step in STEPS for state in step.states)
"""The order of every stack, legend and table, from what is lost first to what works."""

_COLOURS = {
    State.ALLOC_PRODUCTIVE: "#00876C",
    State.ALLOC_LOW: "#8CCBB5",
    State.ALLOC_STANDBY: "#D9C36A",
    State.ALLOC_STARTING: "#6FB7E0",
    State.ALLOC_STALLED: "#B3589A",
    State.ALLOC_IDLE: "#D1495B",
    State.FREE_USABLE: "#A9C9E8",
    State.FREE_STRANDED: "#E69F00",
    State.RESERVED_SPARE: "#B9B4D6",
    State.ALLOC_UNKNOWN: "#9AA0A6",
    State.UNAVAILABLE: "#3F4650",
    State.ALLOC_UNGRADED: "#5BA69B",
}

HATCHED = (State.ALLOC_UNKNOWN, State.ALLOC_UNGRADED)

LOOKS = {state: StateLook(state, _COLOURS[state], state in HATCHED) for state in STATE_ORDER}
