"""A finding's explanation is its proof: thresholds and where they come from, and claims that add up to its hours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.app.explaining import explain
from gpuledger.errors import BadInput
from tests.app.conftest import NOW, Api, Ran
from tests.app.finding_fleet import HELD, a_finding, idle_cards, plant, save

MINUTE = timedelta(minutes=1)
POLICY = """
[[threshold]]
rule = "idle_allocation"
min_gpu_hours = 0.5

[[threshold]]
rule = "idle_allocation"
kind = "train*"
min_idle_minutes = 40
"""


@pytest.fixture
def idle(make_api: Callable[..., Api], tmp_path: Path) -> tuple[Api, str]:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    api = make_api(policy_file=file)
    idle_cards(api)
    result = api.service.analyze("idle_allocation", HELD, {}, save=True)
    (found,) = result["findings"]
    return api, found["finding_id"]


def test_claims_add_up_to_the_hours_and_lie_in_their_spans(idle: tuple[Api, str]) -> None:
    api, finding_id = idle
    told = api.http.get(f"/v1/findings/{finding_id}/explanation").json()
    assert told["counted_gpu_hours"] == pytest.approx(2 * 75 / 60)
    assert told["claimed_gpu_hours"] == pytest.approx(2.5)
    assert told["is_proven"] is True
    assert [(card["gpu_uuid"], card["gpu_hours"]) for card in told["cards"]] == [
        ("GPU-0", pytest.approx(1.25)),
        ("GPU-1", pytest.approx(1.25)),
    ]
    assert {claim["state"] for claim in told["claims"]} == {"alloc_idle"}
    assert told["spans_gone_count"] == 0
    for claim in told["claims"]:
        assert claim["span_from_at"] <= claim["from_at"] < claim["until_at"] <= claim["span_until_at"]
        assert claim["gpu_hours"] <= claim["span_gpu_hours"] + 1e-9
    begins = (HELD.from_at + 30 * MINUTE).isoformat().replace("+00:00", "Z")
    assert min(claim["from_at"] for claim in told["claims"]) == begins


def test_thresholds_name_what_set_them(idle: tuple[Api, str]) -> None:
    api, finding_id = idle
    told = explain(api.service, finding_id, "en")
    rows = {row["option"]: (row["value"], row["default"], row["source"]) for row in told["thresholds"]}
    assert rows["min_idle_minutes"] == (40.0, 30.0, "policy line 6: kind train*")
    assert rows["min_gpu_hours"] == (0.5, 0.0, "policy line 2: the whole site")
    assert rows["memory_held_ratio"] == (0.2, 0.2, "default")


def test_the_query_gives_the_claims_again(idle: tuple[Api, str]) -> None:
    api, finding_id = idle
    told = explain(api.service, finding_id, "en")
    query = told["query"]
    assert (query["name"], "state_span" in query["sql"]) == ("idle_allocation", True)
    assert query["parameters"]["from_at"] == HELD.from_at
    assert query["parameters"]["to_at"] == HELD.to_at
    again = api.service.query(query["name"], **query["parameters"]).to_pylist()
    assert sum(row["gpu_hours"] for row in again) == pytest.approx(told["counted_gpu_hours"])


def test_confidence_is_the_product_of_its_parts_and_the_history_is_told(idle: tuple[Api, str]) -> None:
    api, finding_id = idle
    api.service.finding_book.decide(finding_id, "exempted", by="ann", note="a test", expires_at=NOW + timedelta(days=1))
    told = explain(api.service, finding_id, "zh")
    product = 1.0
    for part in told["confidence"]["parts"].values():
        product *= part
    assert told["confidence"]["value"] == pytest.approx(product)
    assert told["exemption"] == {
        "by": "ann",
        "reason": "a test",
        "expires_at": NOW + timedelta(days=1),
        "where": "a person's decision",
    }
    assert told["silent_because"] == "exempted"
    assert [change["after"] for change in told["history"]] == ["new", "exempted"]
    assert told["would_change"]


def test_claims_that_do_not_add_up_are_said_not_to(idle: tuple[Api, str]) -> None:
    api, finding_id = idle
    with api.service.warehouse.writing() as cursor:
        cursor.execute("delete from claim where gpu_uuid = 'GPU-1'")
    told = explain(api.service, finding_id, "en")
    assert (told["is_proven"], told["claimed_gpu_hours"]) == (False, pytest.approx(1.25))


def test_a_rule_without_claims_and_a_finding_that_is_gone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, a_finding())
    save(api)
    told = explain(api.service, a_finding().finding_id, "en")
    assert (told["claims"], told["is_proven"], told["thresholds"]) == ([], None, [])
    plant(monkeypatch)
    save(api)
    told = explain(api.service, a_finding().finding_id, "en")
    assert (told["finding"]["is_stored"], told["finding"]["status"]) == (False, "resolved")
    with pytest.raises(BadInput, match="no finding"):
        explain(api.service, "f0", "en")


def test_explain_on_the_command_line(idle: tuple[Api, str], cli: Callable[..., Ran], tmp_path: Path) -> None:
    api, finding_id = idle
    api.service.close()
    file = tmp_path / "app.duckdb"
    ran = cli("explain", finding_id, "--warehouse", file)
    assert ran.code == 0, ran.err
    for text in ("GPU-h: equal", "min_idle_minutes", "what would change the verdict", "from state_span"):
        assert text in ran.out
    told: Any = cli("explain", finding_id, "--warehouse", file, "--format", "json").json
    assert told["is_proven"] is True
    wrong = cli("explain", "f0", "--warehouse", file)
    assert (wrong.code, wrong.out) == (2, "")
    assert "no finding 'f0'" in wrong.err
