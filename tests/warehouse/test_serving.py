"""Minutes in which a server of models answered requests are not idle, whatever its card says; whose server it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.warehouse.judged import AT, MINUTE, Judged

IDLE: dict[str, Any] = {"sm_active_ratio": 0.0, "gpu_util_ratio": 0.0, "power_watts": 80.0}
SERVICE: dict[str, Any] = {
    "workload_id": "w",
    "kind": "inference",
    "submitted_at": AT,
    "pod_count": 2,
    "num_gpu": 1,
    "gpu_milli": 1000,
    "cpu_milli": 0,
    "memory_mib": 0,
}


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def tell(ledger: Judged, told: Mapping[float, Mapping[str, Any]], **changed: Any) -> None:
    """What an engine of pod `p` told at minutes after AT."""
    common = {"source": "vllm", "target": "t", "pod": "p", "model_name": "m", "interval_seconds": 60.0, **changed}
    ledger.put("engine_reading", *({**common, "ts": AT + minute * MINUTE, **values} for minute, values in told.items()))


def count(*served: int, until: int = 120) -> dict[float, dict[str, Any]]:
    """Readings each minute whose tokens rose by 7 in the minutes `served`."""
    return {
        minute: {"generation_tokens": 7.0 * sum(1 for one in served if one < minute)} for minute in range(until + 1)
    }


def idle(ledger: Judged, *cards: str, minutes: int = 120, **changed: Any) -> None:
    ledger.hold(*cards, minutes=minutes, **changed)
    for card in cards:
        ledger.read(card, 0, minutes, **IDLE)


def test_an_idle_card_whose_server_answers_nothing_is_idle(ledger: Judged) -> None:
    idle(ledger, "g")
    tell(ledger, count())
    assert ledger.hours("state", "cause", minutes=120) == {("alloc_idle", ""): 2.0}


def test_a_minute_of_serving_is_low_and_ends_the_stretch(ledger: Judged) -> None:
    idle(ledger, "g")
    tell(ledger, count(50))
    spans = ledger.spans("cause", "activity", "basis", minutes=120)
    served = [span for span in spans if span[4] == "serving"]
    assert served == [("g", 50, 51, "alloc_low", "serving", "serving", "sm_active+power+serving")]
    assert ledger.hours("state", minutes=120) == {
        "alloc_idle": pytest.approx(119 / 60),
        "alloc_low": pytest.approx(1 / 60),
    }


@pytest.mark.parametrize(("served", "idle_minutes"), [((29, 59, 89), 0), ((30, 60, 90), 30)])
def test_requests_that_leave_no_half_hour_leave_nothing_idle(
    ledger: Judged, served: tuple[int, ...], idle_minutes: int
) -> None:
    """Of 119 minutes: around served minutes 29, 59 and 89 lie 29 idle ones each; before minute 30 lie 30."""
    idle(ledger, "g", minutes=119)
    tell(ledger, count(*served))
    assert ledger.hours("state", minutes=120).get("alloc_idle", 0) == pytest.approx(idle_minutes / 60)


def test_requests_every_minute_are_serving_all_the_time(ledger: Judged) -> None:
    idle(ledger, "g", minutes=90)
    tell(ledger, count(*range(90)))
    assert ledger.hours("state", "cause", minutes=120) == {("alloc_low", "serving"): 1.5}


@pytest.mark.parametrize(
    ("told", "served"),
    [
        # Where no counter is told, running requests speak for their interval.
        ({50: {"running_requests": 1.0}}, [(50, 51)]),
        ({50: {"running_requests": 0.0, "waiting_requests": 4.0}}, []),
        # A request that runs while nothing is counted is stuck.
        ({49: {"generation_tokens": 5.0}, 50: {"generation_tokens": 5.0, "running_requests": 1.0}}, []),
        # The server began anew and counted 2 since.
        ({49: {"generation_tokens": 500.0}, 50: {"generation_tokens": 2.0}}, [(49, 50)]),
        ({49: {"generation_tokens": 500.0}, 50: {"generation_tokens": 0.0}}, []),
        # One counter that rises is enough, whatever is not told.
        ({49: {"finished_requests": 5.0}, 50: {"finished_requests": 6.0, "generation_tokens": 1.0}}, [(49, 50)]),
        # Three intervals apart is near enough to know, more is not.
        ({47: {"generation_tokens": 5.0}, 50: {"generation_tokens": 6.0}}, [(47, 50)]),
        ({46: {"generation_tokens": 5.0}, 50: {"generation_tokens": 6.0}}, []),
        ({46: {"generation_tokens": 5.0}, 50: {"generation_tokens": 6.0, "running_requests": 1.0}}, [(50, 51)]),
        # What rose between two readings may have been served in any minute between them.
        ({49.5: {"generation_tokens": 5.0}, 50.5: {"generation_tokens": 6.0}}, [(49, 51)]),
    ],
)
def test_what_counts_as_serving(ledger: Judged, told: Mapping[float, Any], served: list[tuple[int, int]]) -> None:
    idle(ledger, "g")
    tell(ledger, told)
    spans = ledger.spans("cause", minutes=120)
    assert [(span[1], span[2]) for span in spans if span[4] == "serving"] == served


def test_a_replica_of_the_floor_stands_by_only_while_it_answers_nothing(ledger: Judged) -> None:
    ledger.put("workload", {**SERVICE, "min_replicas": 1})
    idle(ledger, "g")
    tell(ledger, count(*range(40, 100)))
    assert ledger.hours("state", "cause", minutes=120) == {("alloc_standby", ""): 1.0, ("alloc_low", "serving"): 1.0}


def test_serving_in_the_grace_is_no_start(ledger: Judged) -> None:
    """Of the ten minutes of grace the engine served five."""
    ledger.put("workload", SERVICE)
    idle(ledger, "g", ready_minute=0)
    tell(ledger, count(*range(5, 40)))
    assert ledger.hours("state", "cause", minutes=120) == {
        ("alloc_starting", ""): pytest.approx(5 / 60),
        ("alloc_low", "serving"): pytest.approx(35 / 60),
        ("alloc_idle", ""): pytest.approx(80 / 60),
    }


def test_a_working_card_is_graded_as_ever(ledger: Judged) -> None:
    ledger.hold("g", minutes=60)
    ledger.read("g", 0, 60, sm_active_ratio=0.7, gpu_util_ratio=0.9, power_watts=500.0)
    tell(ledger, count(*range(60), until=60))
    assert ledger.hours("state", "cause") == {("alloc_productive", ""): 1.0}


def test_a_card_that_was_not_read_stays_unknown(ledger: Judged) -> None:
    ledger.hold("g", minutes=60)
    tell(ledger, count(*range(60), until=60))
    assert ledger.hours() == {"alloc_unknown": 1.0}


def test_served_minutes_are_not_counted_as_idle_ones(ledger: Judged) -> None:
    idle(ledger, "g", minutes=60)
    tell(ledger, count(*range(10), until=60))
    ledger.build()
    with ledger.house.reading() as cursor:
        row = cursor.execute("select idle_minutes, active_minutes, observed_minutes from activity_hour").fetchone()
    assert row == (50, 0, 60)


class TestWhoseServer:
    """Two replicas, `p` on card g and `q` on card h, both idle, and one server that answers all the time."""

    @pytest.fixture
    def two(self, ledger: Judged) -> Judged:
        idle(ledger, "g")
        idle(ledger, "h", pod="q")
        return ledger

    @staticmethod
    def idle_cards(ledger: Judged) -> set[str]:
        return {span[0] for span in ledger.spans(minutes=120) if span[3] == "alloc_idle"}

    def test_a_server_excuses_its_own_pod_alone(self, two: Judged) -> None:
        tell(two, count(*range(120)))
        assert self.idle_cards(two) == {"h"}

    def test_a_server_of_which_only_the_service_is_known_excuses_none_of_several(self, two: Judged) -> None:
        tell(two, count(*range(120)), pod="", workload_id="w")
        assert self.idle_cards(two) == {"g", "h"}

    def test_with_one_pod_the_service_is_enough(self, ledger: Judged) -> None:
        """A second replica comes for the last half hour: then it is not sure any more."""
        idle(ledger, "g", minutes=120)
        ledger.hold("h", pod="q", started_at=AT + 90 * MINUTE, minutes=120)
        ledger.read("h", 90, 120, **IDLE)
        tell(ledger, count(*range(120)), pod="", workload_id="w")
        spans = [span for span in ledger.spans("cause", minutes=120) if span[0] == "g"]
        assert spans == [
            ("g", 0, 60, "alloc_low", "serving"),
            ("g", 60, 90, "alloc_low", "serving"),
            ("g", 90, 120, "alloc_idle", ""),
        ]

    def test_a_gang_serves_together(self, two: Judged) -> None:
        two.put("workload", {**SERVICE, "is_gang": True})
        tell(two, count(*range(120)))
        assert self.idle_cards(two) == set()

    def test_a_pod_of_another_namespace_is_another_pod(self, two: Judged) -> None:
        for namespace, workload in (("a", "w"), ("b", "other")):
            two.put(
                "pod",
                {
                    "uid": f"{namespace}/p",
                    "namespace": namespace,
                    "pod": "p",
                    "workload_id": workload,
                    "seen_at": AT,
                },
            )
        tell(two, count(*range(120)), namespace="b")
        assert self.idle_cards(two) == {"g", "h"}

    def test_the_pod_says_whose_server_it_is(self, two: Judged) -> None:
        two.put("pod", {"uid": "a/p", "namespace": "a", "pod": "p", "workload_id": "w", "seen_at": AT})
        tell(two, count(*range(120)), namespace="a")
        assert self.idle_cards(two) == {"h"}

    def test_a_name_that_two_jobs_have_excuses_neither(self, ledger: Judged) -> None:
        idle(ledger, "g")
        idle(ledger, "h", workload_id="v")
        tell(ledger, count(*range(120)))
        assert self.idle_cards(ledger) == {"g", "h"}

    def test_a_declared_service_and_pod(self, ledger: Judged) -> None:
        idle(ledger, "g")
        idle(ledger, "h", workload_id="v")
        tell(ledger, count(*range(120)), workload_id="w")
        assert self.idle_cards(ledger) == {"h"}
