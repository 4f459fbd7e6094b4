"""Stories of honest work that looks like waste to somebody who looks at one counter, or at one hour."""

from __future__ import annotations

from dataclasses import replace

from gpuledger.simulate import shapes
from gpuledger.simulate.plots import DATA_STALL, SHORT_PAUSE, SILENT, WARM_UP
from gpuledger.simulate.progress import Progress, Stepping, ToldPhase
from gpuledger.simulate.script import Mark, Phase
from gpuledger.simulate.shapes import Shape
from gpuledger.simulate.stories import Play, Scene, usual, warm_up, work

SW_POWER_CAP = 0x4


def _unlike(rule: str, cause: str, note: str) -> Mark:
    return Mark("lookalike", rule, cause, note)


TOLD_CHECKPOINT = _unlike("idle_allocation", "checkpoint_phase", "a declared checkpoint of more than half an hour")
TOLD_EVALUATION = _unlike("idle_allocation", "evaluation_phase", "a declared evaluation, on CPUs or with few SMs")
TOLD_COMPILE = _unlike("idle_allocation", "compile_phase", "a declared compilation after ready")
ROLLOUT = _unlike("gang_partial_idle", "rl_rollout", "trainers wait while samples are generated")
UPDATE = _unlike("gang_partial_idle", "rl_update", "generators wait while the policy is trained")
LONG_STEPS = _unlike("stalled_allocation", "long_steps", "a step of 12 minutes")
SHORT_SPIN = _unlike("stalled_allocation", "short_spin", "ranks spin for some minutes while a file system stalls")
MEMORY_BOUND = _unlike("low_activity", "memory_bound_kernels", "many SMs, few tensor instructions, memory is the limit")
POWER_CAPPED = _unlike("throttling", "power_capped", "a site's power cap lowers all clocks alike")
CORE_LOW = _unlike("low_activity", "ai_core_low", "AI Cores are no SMs: half of them at work is no sign of poor work")


def told_checkpoint(scene: Scene) -> Play:
    """Checkpoints of 35 to 50 minutes, declared."""
    return _interrupted(scene, "checkpoint", shapes.idle(scene.fb), TOLD_CHECKPOINT, (35, 50))


def told_evaluation(scene: Scene) -> Play:
    """Evaluations of 35 to 80 minutes, declared; the cards are quiet or do little."""
    quiet = shapes.idle(scene.fb) if scene.rng.random() < 0.5 else shapes.evaluation(0.15, scene.fb)
    return _interrupted(scene, "evaluation", quiet, TOLD_EVALUATION, (35, 80))


def _interrupted(scene: Scene, phase: str, quiet: Shape, mark: Mark, lasting: tuple[int, int]) -> Play:
    phases, told = [warm_up(scene)], []
    clock = phases[0].end
    while clock < scene.end:
        stop = min(scene.end, clock + scene.pick(120, 240))
        over = min(scene.end, stop + scene.pick(*lasting))
        phases.append(work(scene, clock, stop))
        if stop < over:
            phases.append(Phase(stop, over, quiet, mark))
            told.append(ToldPhase(phase, stop, over))
        clock = max(over, stop + 1)
    return Play(phases, progress=Progress(phases=tuple(told)))


def told_compile(scene: Scene) -> Play:
    """Graphs are compiled for 40 to 70 minutes after ready, declared."""
    done = min(scene.end, scene.ready + scene.pick(40, 70))
    told = Progress(phases=(ToldPhase("compile", scene.ready, done),))
    return Play([Phase(scene.ready, done, shapes.idle(0.1), TOLD_COMPILE), work(scene, done, scene.end)], progress=told)


def reinforced(scene: Scene) -> Play:
    """Trainers (first pod) and generators (second pod) take turns of 35 to 55 minutes, and say so."""
    warm = warm_up(scene)
    clock, is_rollout = warm.end, True
    trainers, generators, told = [warm], [warm], []
    busy, quiet = usual(scene), shapes.idle(scene.fb)
    while clock < scene.end:
        stop = min(scene.end, clock + scene.pick(35, 55))
        trainers.append(Phase(clock, stop, quiet if is_rollout else busy, ROLLOUT if is_rollout else None))
        generators.append(Phase(clock, stop, busy if is_rollout else quiet, None if is_rollout else UPDATE))
        told.append(ToldPhase("rollout" if is_rollout else "update", clock, stop, 0 if is_rollout else 1))
        clock, is_rollout = stop, not is_rollout
    odd = dict.fromkeys(range(scene.ranks // 2, scene.ranks), generators)
    return Play(trainers, odd, Progress(phases=tuple(told)), pods=2)


def long_steps(scene: Scene) -> Play:
    """Steps of 12 minutes."""
    warm = warm_up(scene)
    steps = Progress((Stepping(warm.end, scene.end, 720.0, 1e7),))
    return Play([warm, Phase(warm.end, scene.end, usual(scene), LONG_STEPS)], progress=steps)


def short_spins(scene: Scene) -> Play:
    """Ranks spin for 5 to 9 minutes now and then."""
    phases = [warm_up(scene)]
    clock = phases[0].end
    while clock < scene.end:
        stop = min(scene.end, clock + scene.pick(60, 120))
        over = min(scene.end, stop + scene.pick(5, 9))
        phases.append(Phase(clock, stop, usual(scene)))
        if stop < over:
            phases.append(Phase(stop, over, shapes.stalled(scene.fb), SHORT_SPIN))
        clock = max(over, stop + 1)
    return Play(phases)


def starved(scene: Scene) -> Play:
    """Steps that wait for input for some minutes in each quarter of an hour."""
    warm = warm_up(scene)
    shape = usual(scene).with_dips(scene.pick(16, 22), scene.pick(2, 4), scene.pick(0, 13))
    return Play([warm, Phase(warm.end, scene.end, shape, DATA_STALL)])


def paused(scene: Scene) -> Play:
    """Pauses of 15 to 29 minutes, which is not quite long enough to count."""
    phases = [warm_up(scene)]
    clock = phases[0].end
    while clock < scene.end:
        stop = min(scene.end, clock + scene.pick(80, 160))
        over = min(scene.end, stop + scene.pick(15, 29))
        phases.append(Phase(clock, stop, usual(scene)))
        if stop < over:
            phases.append(Phase(stop, over, shapes.idle(scene.fb), SHORT_PAUSE))
        clock = max(over, stop + 1)
    return Play(phases)


def memory_bound(scene: Scene) -> Play:
    """Kernels that the memory's bandwidth limits, on most SMs."""
    shape = Shape(sm=0.72, util=0.98, tensor=0.08, dram=0.75, fb=scene.fb)
    warm = warm_up(scene)
    return Play([warm, Phase(warm.end, scene.end, shape, MEMORY_BOUND)])


def power_capped(scene: Scene) -> Play:
    """All clocks are a fifth lower, because somebody wants them so."""
    warm = warm_up(scene)
    shape = replace(usual(scene), clock=0.8, throttle=SW_POWER_CAP)
    return Play([warm, Phase(warm.end, scene.end, shape, POWER_CAPPED)])


def silent(scene: Scene) -> Play:
    """The profiling counters fall silent for hours in the middle."""
    warm, first, second = warm_up(scene), scene.cut(0.15, 0.3), scene.cut(0.7, 0.9)
    mute = Shape(sm=scene.sm, util=0.995, tensor=0.55, dram=0.4, fb=scene.fb, is_silent=True)
    return Play(
        [warm, work(scene, warm.end, first), Phase(first, second, mute, SILENT), work(scene, second, scene.end)]
    )


def long_warm_up(scene: Scene) -> Play:
    """Exactly the grace of warm-up, and then work at once."""
    ready = min(scene.end, scene.ready + 15)
    return Play([Phase(scene.ready, ready, shapes.idle(0.3), WARM_UP), work(scene, ready, scene.end)])


def core_low(scene: Scene) -> Play:
    """AI Core activity of a fifth to two fifths."""
    warm = warm_up(scene)
    shape = Shape(sm=float(scene.rng.uniform(0.2, 0.4)), util=0.5, fb=scene.fb, util_power=0.5)
    return Play([warm, Phase(warm.end, scene.end, shape, CORE_LOW)])
