"""The placer: ties, scores and places worked out by hand, the definition of the index, and openb's published curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.fgd import NodeState, TaskClass, best_placement, fragment_milli
from analyzers.replay.fleet import Fleet, FleetNode, PodShape
from analyzers.replay.gradient import Gradient, scores
from analyzers.replay.inflation import by_arrival, inflate, typical_classes
from analyzers.replay.placer import BestFit, FragmentDescent, Placed, Policy, RandomFit, Run, gpu_milli, place
from benchmarks import placer as benchmark

HALF, WHOLE, PAIR = (
    PodShape(cpu_milli=2000, gpu_milli=500, num_gpu=1),
    PodShape(cpu_milli=0, gpu_milli=1000, num_gpu=1),
    PodShape(cpu_milli=0, gpu_milli=1000, num_gpu=2),
)
B1_CLASSES = [
    TaskClass(cpu_milli=4000, gpu_milli=1000, num_gpu=1, weight=0.4),
    TaskClass(cpu_milli=2000, gpu_milli=500, num_gpu=1, weight=0.3),
    TaskClass(cpu_milli=16000, gpu_milli=1000, num_gpu=4, weight=0.2),
    TaskClass(cpu_milli=8000, gpu_milli=0, num_gpu=0, weight=0.1),
]


def node(name: str, *free: int, cpu: int = 64_000, memory: int = 2**30, model: str | None = None) -> FleetNode:
    state = NodeState(node=name, cpu_free_milli=cpu, gpu_free_milli=free, model=model)
    return FleetNode(state=state, memory_free_mib=memory)


B1 = [
    node("n1", 1000, 500, 300, 0, cpu=8000),
    node("n2", 1000, 1000, 1000, 1000, cpu=2000),
    node("n3", 1000, 1000, 1000, 1000, cpu=32000),
    node("n4", 0, 0, 0, 0, cpu=64000),
]


def test_b1_by_the_kept_scores() -> None:
    gradient = Gradient(B1_CLASSES, [HALF])
    cards = [tuple(sorted(one.state.gpu_free_milli)) for one in B1]
    found = [gradient.fragment_milli(None, one.state.cpu_free_milli, c) for one, c in zip(B1, cards, strict=True)]
    assert found == pytest.approx([950, 2800, 400, 0])
    columns = [gradient.column(None, one.state.cpu_free_milli, c)[0] for one, c in zip(B1, cards, strict=True)]
    assert columns == [58, 33, 29, -1]
    fleet = Fleet(B1)
    run = place(fleet, [HALF], [0], FragmentDescent(fleet, [HALF], B1_CLASSES), B1_CLASSES)
    assert run.places == [Placed(node="n1", slots=(1,))]
    assert [run.empty_fragment_milli, *run.fragment_milli.tolist()] == pytest.approx([4150, 3800])


def test_a_change_of_nothing_scores_50_whatever_the_last_bit_says() -> None:
    assert scores(np.array([0.0, 1e-9, -1e-9, 1e6, -1e6])).tolist() == [50, 50, 50, 0, 100]
    assert scores(np.array([0.002, -0.002])).tolist() == [49, 50]


def test_best_fit_leaves_the_least_and_ties_go_to_the_smallest_name() -> None:
    fleet = Fleet([node("b", 1000, 1000), node("a", 1000, 1000), node("c", 1000, 1000, 1000, 1000)])
    shapes = [WHOLE, PAIR]
    run = place(fleet, shapes, [0, 1, 0, 1, 1], BestFit(fleet, shapes), B1_CLASSES)
    # The one GPU opens a (equal to b, smaller name), the pair needs b, the next fills a, the last pair but one c; then
    # two cards of c are left and take the last pair.
    assert [one.node for one in run.places] == ["a", "b", "a", "c", "c"]
    assert [one.slots for one in run.places] == [(0,), (0, 1), (1,), (0, 1), (2, 3)]


def test_what_does_not_fit_stays_out_and_changes_nothing() -> None:
    fleet = Fleet([node("a", 1000, model="T4", cpu=2000, memory=10)])
    refused = [
        PodShape(cpu_milli=0, gpu_milli=1000, num_gpu=1, models=frozenset({"A10"})),
        PodShape(cpu_milli=2001, gpu_milli=1000, num_gpu=1),
        PodShape(cpu_milli=0, memory_mib=11, gpu_milli=1000, num_gpu=1),
        PAIR,
        PodShape(cpu_milli=2000, memory_mib=10, gpu_milli=1000, num_gpu=1, models=frozenset({"T4", "A10"})),
    ]
    for policy in (
        FragmentDescent(fleet, refused, B1_CLASSES),
        BestFit(fleet, refused),
        RandomFit(refused, np.random.default_rng(1)),
    ):
        assert [policy.node(fleet, i) for i in range(5)] == [None, None, None, None, 0]
    run = place(fleet, refused, range(5), BestFit(fleet, refused), B1_CLASSES)
    assert run.arrived_milli.tolist() == [1000, 2000, 3000, 5000, 6000]
    assert run.allocated_milli.tolist() == [0, 0, 0, 0, 1000]
    with pytest.raises(ValueError, match="no room"):
        fleet.take(0, (0,), WHOLE)


def test_pods_of_cpu_alone_are_placed_and_move_the_index() -> None:
    bare = PodShape(cpu_milli=3000)
    classes = [TaskClass(cpu_milli=2000, gpu_milli=1000, num_gpu=1)]
    fleet = Fleet([node("a", 1000, cpu=4000), node("b", 0, cpu=3000)])
    run = place(fleet, [bare], [0, 0], FragmentDescent(fleet, [bare], classes), classes)
    # On a it would leave 1000 m, too little for the class: the whole free card a fragment. On b nothing is lost.
    assert [one.node for one in run.places] == ["b", "a"]
    assert run.fragment_milli.tolist() == [0, 1000]


def test_random_takes_any_node_and_card_and_a_seed_repeats_it() -> None:
    def run(seed: int) -> Sequence[Placed]:
        fleet = Fleet([node(name, *[1000] * 8) for name in "abcdefgh"])
        return place(fleet, [HALF], [0] * 40, RandomFit([HALF], np.random.default_rng(seed)), B1_CLASSES).places

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert {one.node for one in run(1)} == set("abcdefgh")
    assert len({one.slots for one in run(1)}) == 8


NODES = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 250, 500, 750, 1000]), min_size=1, max_size=4),
        st.sampled_from([0, 1000, 4000, 64_000]),
        st.sampled_from([None, "T4", "A10"]),
    ),
    min_size=1,
    max_size=4,
)
SHAPES = st.builds(
    PodShape,
    cpu_milli=st.sampled_from([0, 1000, 4000]),
    gpu_milli=st.sampled_from([250, 500, 1000]),
    num_gpu=st.sampled_from([1, 1, 2, 4]),
    models=st.sampled_from([frozenset[str](), frozenset({"T4"})]),
)


@settings(max_examples=150, deadline=None)
@given(nodes=NODES, shapes=st.lists(SHAPES, min_size=1, max_size=4), arrivals=st.lists(st.integers(0, 3), max_size=8))
def test_kept_scores_choose_what_the_definition_chooses(
    nodes: list[tuple[list[int], int, str | None]], shapes: list[PodShape], arrivals: list[int]
) -> None:
    """Weights are powers of two, so that both ways of summing are exact and no tie is decided by rounding."""
    classes = [shape.as_class(0.5 ** (i + 1)) for i, shape in enumerate(shapes)]
    fleet = Fleet([node(f"n{i}", *free, cpu=cpu, model=model) for i, (free, cpu, model) in enumerate(nodes)])
    policy = FragmentDescent(fleet, shapes, classes)
    for i in (arrival % len(shapes) for arrival in arrivals):
        states = [
            NodeState(
                node=name,
                cpu_free_milli=int(fleet.cpu_free_milli[n]),
                gpu_free_milli=fleet.free_slots(n),
                model=fleet.models[n],
            )
            for n, name in enumerate(fleet.names)
        ]
        expected = best_placement(states, classes, shapes[i].as_class())
        run = place(fleet, shapes, [i], policy, classes)
        found = run.places[0]
        assert (found.node, found.slots) == ((expected.node, expected.gpus) if expected else (None, ()))
        before = sum(fragment_milli(state, classes) for state in states)
        assert run.empty_fragment_milli == pytest.approx(before)


def test_inflation_reaches_its_target_with_the_last_clone() -> None:
    shapes = [HALF, PAIR, PodShape(cpu_milli=1000)]
    pods = [0, 1, 2]
    heavy = inflate(shapes, pods, 20_000, np.random.default_rng(3))
    asked = sum(shapes[i].requested_milli for i in heavy.tolist())
    assert 20_000 <= asked < 20_000 + 2000
    assert np.bincount(heavy).min() >= 1
    assert sorted(inflate(shapes, pods, 2500, np.random.default_rng(3)).tolist()) == pods
    assert inflate(shapes, pods, 2500.5, np.random.default_rng(3)).size > 3
    with pytest.raises(ValueError, match="no pod asks"):
        inflate(shapes, [2, 2], 1000, np.random.default_rng(3))


def test_typical_classes_stop_once_the_cut_is_reached() -> None:
    pods = [HALF] * 95 + [WHOLE] * 4 + [PAIR]
    assert [one.weight for one in typical_classes(pods)] == [1]
    assert [one.weight for one in typical_classes(pods, 0.951)] == pytest.approx([95 / 99, 4 / 99])
    bigger = PodShape(cpu_milli=2000, memory_mib=7, gpu_milli=500, num_gpu=1)
    assert len(typical_classes([HALF, bigger], 1)) == 1


def test_curves_are_means_over_arrivals_that_round_to_a_step() -> None:
    run = Run(
        places=[],
        arrived_milli=np.array([4, 5, 14, 15]),
        allocated_milli=np.zeros(4, dtype=np.int64),
        fragment_milli=np.zeros(4),
        empty_fragment_milli=0.0,
    )
    assert by_arrival(run, [1, 2, 4, 8], 1000) == {0: 1.0, 1: 3.0, 2: 8.0}


def test_a_small_trace_by_hand() -> None:
    """Two halves, a whole and a pair on two nodes of two cards, with the index over halves and pairs alike.

    Empty: F = 0. The first half costs a its pairs, 1500 free unusable for them: F 750; b is equal, a has the smaller
    name. The second joins it on its card: a has 0 + 1000, F 500, against 1500 on b. The whole goes to a's other card
    (F 0) and not to b (F 1000). The pair takes b.
    """
    pair_class = [HALF.as_class(0.5), PAIR.as_class(0.5)]
    fleet, shapes = Fleet([node("b", 1000, 1000), node("a", 1000, 1000)]), [HALF, WHOLE, PAIR]
    run = place(fleet, shapes, [0, 0, 1, 2], FragmentDescent(fleet, shapes, pair_class), pair_class)
    assert [(one.node, one.slots) for one in run.places] == [("a", (0,)), ("a", (0,)), ("a", (1,)), ("b", (0, 1))]
    assert run.fragment_milli.tolist() == [750, 500, 0, 0]
    assert run.allocated_milli.tolist() == [500, 1000, 2000, 4000]


@pytest.mark.parametrize(
    ("policy", "tolerance", "seeds"), [("fgd", 0.5, [42]), ("best_fit", 0.6, [42, 43]), ("random", 1.5, [42, 43])]
)
def test_openb_follows_the_published_curves(policy: str, tolerance: float, seeds: list[int], shared: Path) -> None:
    """A few seeds; `benchmarks/placer.py` takes all ten."""
    folder = shared / "data" / "openb"
    nodes = benchmark.nodes_of(folder / "openb_node_list_gpu_node.csv")
    pods = benchmark.pods_of(folder / "openb_pod_list_default.csv")
    classes, total = typical_classes(pods), gpu_milli(Fleet(nodes))
    assert (len(nodes), total, len(classes)) == (1213, 6_212_000, 35)
    runs = [benchmark.one_run(policy, nodes, pods, classes, seed) for seed in seeds]
    assert statistics.mean(run.empty_fragment_milli for run in runs) == pytest.approx(866_232.6, abs=0.1)
    allocated, fragments = benchmark.medians(runs, total)
    assert allocated == pytest.approx(benchmark.published(folder, "allo", policy), abs=tolerance)
    assert fragments == pytest.approx(benchmark.published(folder, "frag", policy), abs=tolerance)


def test_policies_are_policies() -> None:
    fleet = Fleet([])
    policies: list[Policy] = [
        FragmentDescent(fleet, [HALF], B1_CLASSES),
        BestFit(fleet, [HALF]),
        RandomFit([HALF], np.random.default_rng(1)),
    ]
    assert [policy.node(fleet, 0) for policy in policies] == [None, None, None]
