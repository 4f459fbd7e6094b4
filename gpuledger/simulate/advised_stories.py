"""Stories of poor work: cards that are busy and give little, ranks that hold others up, requests that are too large."""

from __future__ import annotations

from dataclasses import replace

from gpuledger.simulate import shapes
from gpuledger.simulate.progress import Progress
from gpuledger.simulate.script import Mark, Phase
from gpuledger.simulate.shapes import Shape
from gpuledger.simulate.stories import PARAMETERS, Play, Scene, plain, stepping, usual, warm_up


def _low(cause: str, note: str) -> Mark:
    return Mark("advice", "low_activity", cause, note, work_only=True)


UTIL_LIES = _low("util_lies", "utilization near 100 % with less than half of the SMs at work")
INPUT_BOUND = _low("input_bound", "waits for input in a third of the minutes, the bus is busy")
NON_TENSOR = _low("non_tensor", "a training on tensor-capable cards that never uses them")
MEMORY_BOUND = _low("memory_bound", "the memory's bandwidth is the limit")
LOW_SM = _low("low_sm", "less than half of the SMs at work")
ROOM_LEFT = Mark("advice", "oversized_request", "memory", "less than half of the memory ever used, and SMs to spare")
SLOW_STEPS = Mark("advice", "gang_straggler", "slow_rank", "one rank computes a third longer than the others")
SLOW_CLOCK = Mark("advice", "gang_straggler", "slow_clock", "one rank's clock is a quarter below the others'")
LOW_MFU = Mark("advice", "low_mfu", "low_mfu", "busy SMs, few tokens for the model's size")


def _steadily(scene: Scene, shape: Shape, mark: Mark) -> Play:
    warm = warm_up(scene)
    return Play([warm, Phase(warm.end, scene.end, shape, mark)])


def util_lies(scene: Scene) -> Play:
    """Utilization 99 %, a third of the SMs."""
    return _steadily(scene, shapes.training(float(scene.rng.uniform(0.2, 0.42)), scene.fb), UTIL_LIES)


def low_sm(scene: Scene) -> Play:
    """A small load on every card."""
    sm = float(scene.rng.uniform(0.15, 0.4))
    return _steadily(scene, Shape(sm=sm, util=0.6, tensor=0.3, dram=0.2, fb=scene.fb), LOW_SM)


def input_bound(scene: Scene) -> Play:
    """Zeros in a third of the minutes, and a busy bus."""
    shape = replace(shapes.training(0.42, scene.fb), pcie=0.5).with_dips(9, 3, scene.pick(0, 8))
    return _steadily(scene, shape, INPUT_BOUND)


def non_tensor(scene: Scene) -> Play:
    """Many SMs, no tensor cores."""
    return _steadily(scene, Shape(sm=0.74, util=0.99, tensor=0.008, dram=0.35, fb=scene.fb), NON_TENSOR)


def memory_bound(scene: Scene) -> Play:
    """The memory's bandwidth is used up by less than half of the SMs."""
    return _steadily(scene, Shape(sm=0.4, util=0.9, tensor=0.1, dram=0.72, fb=scene.fb), MEMORY_BOUND)


def small_memory(scene: Scene) -> Play:
    """A job that would fit a quarter of the card."""
    shape = Shape(sm=0.3, util=0.95, tensor=0.4, dram=0.2, fb=0.2)
    return replace(_steadily(scene, shape, UTIL_LIES), marks=(ROOM_LEFT,) if scene.is_over else ())


def slow_rank(scene: Scene) -> Play:
    """One rank computes longer; the wall time of a step is everybody's."""
    warm, rank = warm_up(scene), scene.any_rank
    shape, steps = usual(scene), stepping(scene, warm.end, scene.end)
    steps = replace(steps, slow_rank=rank, slow_factor=float(scene.rng.uniform(1.2, 1.5)))
    slow = [warm, Phase(warm.end, scene.end, shape, SLOW_STEPS)]
    return Play([warm, Phase(warm.end, scene.end, shape)], {rank: slow}, Progress((steps,), PARAMETERS))


def slow_clock(scene: Scene) -> Play:
    """One rank's clock is low, whatever the reason; nobody logs steps."""
    warm, shape = warm_up(scene), usual(scene)
    slow = [warm, Phase(warm.end, scene.end, replace(shape, clock=0.75), SLOW_CLOCK)]
    return Play([warm, Phase(warm.end, scene.end, shape)], {scene.any_rank: slow})


def low_mfu(scene: Scene) -> Play:
    """The counters look well, the tokens do not."""
    play = plain(scene)
    warm = play.common[0]
    steps = stepping(scene, warm.end, scene.end, float(scene.rng.uniform(0.1, 0.2)))
    phases = [warm, Phase(warm.end, scene.end, usual(scene), LOW_MFU)]
    return replace(play, common=phases, progress=Progress((steps,), PARAMETERS))
