"""Stories of waste: GPU-hours held in which nothing was computed, each told by one rule."""

from __future__ import annotations

from dataclasses import replace

from gpuledger.simulate import shapes
from gpuledger.simulate.plots import FINISHED, MEMORY_HELD, NEVER_USED, NO_PROCESS
from gpuledger.simulate.progress import Progress
from gpuledger.simulate.script import Mark, Phase
from gpuledger.simulate.shapes import Shape
from gpuledger.simulate.stories import Play, Scene, plain, settle, stepping, usual, warm_up, work

HUNG = Mark("waste", "stalled_allocation", "hung_collective", "ranks spin in a collective that never completes")
FROZEN = Mark("waste", "stalled_allocation", "no_progress", "full utilization and much power, but no step ends")
DEAD_RANK = Mark("waste", "gang_partial_idle", "dead_rank", "one rank's process is gone, the others go on")
UNUSED = Mark("waste", "gang_partial_idle", "never_used", "cards of a pod that its program never opened")
TOO_MANY = Mark("advice", "oversized_request", "unused_gpus", "a pod asked for more cards than its program opens")


def never_used(scene: Scene) -> Play:
    """Nothing ever runs."""
    first = settle(scene)
    return Play([first, Phase(first.end, scene.end, shapes.idle(0.0), NEVER_USED)])


def finished(scene: Scene) -> Play:
    """The work ends, the pod does not."""
    warm, done = warm_up(scene), scene.cut(0.45, 0.6)
    return Play([warm, work(scene, warm.end, done), Phase(done, scene.end, shapes.idle(0.0), FINISHED)])


def memory_held(scene: Scene) -> Play:
    """All ranks wait for hours with their memory held, then work goes on."""
    warm, first, second = warm_up(scene), scene.cut(0.25, 0.35), scene.cut(0.65, 0.8)
    waiting = Phase(first, second, shapes.idle(max(scene.fb, 0.3)), MEMORY_HELD)
    return Play([warm, work(scene, warm.end, first), waiting, work(scene, second, scene.end)])


def no_process(scene: Scene) -> Play:
    """The process dies; it is started again hours later in the same pod."""
    warm, first, second = warm_up(scene), scene.cut(0.2, 0.35), scene.cut(0.6, 0.75)
    gone = Phase(first, second, shapes.idle(0.0), NO_PROCESS)
    return Play([warm, work(scene, warm.end, first), gone, work(scene, second, scene.end)])


def barely_idle(scene: Scene) -> Play:
    """Idle for 31 to 50 minutes at a time, which is just long enough to count."""
    phases = [warm_up(scene)]
    clock = phases[0].end
    while clock < scene.end:
        stop = min(scene.end, clock + scene.pick(90, 180))
        pause = min(scene.end, stop + scene.pick(31, 50))
        phases.append(work(scene, clock, stop))
        if pause - stop >= 31:
            phases.append(Phase(stop, pause, shapes.idle(scene.fb), MEMORY_HELD))
        clock = max(pause, stop + 1)
    return Play(phases)


def hung(scene: Scene) -> Play:
    """A collective hangs and spins until the job is killed; nobody logs steps, telemetry must do."""
    warm, hang = warm_up(scene), scene.cut(0.4, 0.6)
    return Play([warm, work(scene, warm.end, hang), Phase(hang, scene.end, shapes.stalled(scene.fb), HUNG)])


def frozen(scene: Scene) -> Play:
    """A hang at so much power that only the step log gives it away."""
    warm, hang = warm_up(scene), scene.cut(0.35, 0.55)
    spin = Shape(sm=0.62, util=1.0, tensor=0.09, dram=0.2, fb=scene.fb)
    steps = stepping(scene, warm.end, hang)
    return Play(
        [warm, work(scene, warm.end, hang), Phase(hang, scene.end, spin, FROZEN)],
        progress=Progress((steps,)),
    )


def dead_rank(scene: Scene) -> Play:
    """One rank's process is gone while the others go on."""
    play = plain(scene)
    warm, first, second = play.common[0], scene.cut(0.3, 0.4), scene.cut(0.7, 0.9)
    shape = play.common[1].shape
    gone = Phase(first, second, shapes.idle(0.0), DEAD_RANK)
    odd = [warm, replace(play.common[1], end=first), gone, Phase(second, scene.end, shape, play.common[1].mark)]
    return replace(play, odd={scene.any_rank: odd})


def unused_cards(scene: Scene) -> Play:
    """Half of a pod's cards are never opened."""
    play, first = plain(scene), settle(scene)
    also = (TOO_MANY,) if scene.is_over else ()
    unused = [first, Phase(first.end, scene.end, shapes.idle(0.0), UNUSED, also)]
    return replace(play, odd=dict.fromkeys(range(scene.ranks // 2, scene.ranks), unused))


def npu_hung(scene: Scene) -> Play:
    """On NPUs a collective hangs with all chips waiting in it; nobody logs steps, telemetry must do."""
    warm, hang = warm_up(scene), scene.cut(0.4, 0.6)
    return Play([warm, work(scene, warm.end, hang), Phase(hang, scene.end, shapes.npu_waiting(scene.fb), HUNG)])


def silent_hang(scene: Scene) -> Play:
    """On NPUs a collective whose waiting ranks sleep leaves everything quiet, with the memory held."""
    warm, hang = warm_up(scene), scene.cut(0.4, 0.6)
    steps = Progress((stepping(scene, warm.end, hang),))
    waiting = Phase(hang, scene.end, shapes.idle(scene.fb), replace(MEMORY_HELD, cause="hung_collective"))
    return Play([warm, Phase(warm.end, hang, usual(scene)), waiting], progress=steps)
