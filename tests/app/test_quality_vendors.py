"""What the doctor misses and advises follows the vendor of the cards, not NVIDIA's exporter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuledger.app import doctor
from gpuledger.model import Window
from gpuledger.presentation import texts
from tests.app.conftest import NOW, Api, a_reading, a_table

MINUTE = timedelta(minutes=1)
START = NOW - timedelta(hours=2)
REST: dict[str, Any] = {"interval_seconds": 60.0, "gpu_util_ratio": 0.0, "power_watts": 100.0, "fb_used_bytes": 2**30}
NPU: dict[str, Any] = {"source": "npu_exporter", "model": "Ascend 910B"}
AMD: dict[str, Any] = {"source": "amd_exporter", "model": "MI300X"}
MADE_UP: dict[str, Any] = {"source": "made_up_exporter", "model": "Made Up 9"}
NVIDIA_WORDS = ("DCGM", "dcgm", "SM_ACTIVE", "XID", "csv")


def told(api: Api, language: str = "en", **values: Any) -> dict[tuple[str, str], str]:
    """The advice on two hours of one card that is read every minute, by kind and detail."""
    rows = [a_reading(at=START + i * MINUTE, **REST | values) for i in range(120)]
    assert api.put("reading", a_table("reading", *rows), "readings").status_code == 200
    api.service.build_ledger(Window(START, NOW))
    problems = api.http.get("/v1/quality", params={"language": language}).json()["problems"]
    return {(problem["kind"], problem["detail"]): problem["advice"] for problem in problems}


def test_an_npu_that_tells_its_core_activity_misses_nothing(api: Api) -> None:
    assert told(api, **NPU, core_active_ratio=0.0) == {}


def test_an_npu_without_core_activity_misses_that(api: Api) -> None:
    assert told(api, **NPU) == {
        ("missing_metric", "core_active_ratio"): (
            "CORE_ACTIVE is missing from npu_exporter on n0: look for npu_chip_info_utilization (AI Core) on "
            "npu-exporter's page; where it is absent, upgrade npu-exporter and the driver. "
            "Without it work is ungraded: active, but nothing says how well."
        )
    }


def test_sm_activity_does_not_stand_for_the_core_activity_of_an_npu(api: Api) -> None:
    assert list(told(api, **NPU, sm_active_ratio=0.0)) == [("missing_metric", "core_active_ratio")]


def test_core_activity_that_an_npu_had_is_gone(api: Api) -> None:
    rows = [a_reading(at=START + i * MINUTE, **REST | NPU, core_active_ratio=0.0) for i in range(60)]
    assert api.put("reading", a_table("reading", *rows), "before").status_code == 200
    later = [a_reading(at=START + i * MINUTE, **REST | NPU) for i in range(60, 120)]
    assert api.put("reading", a_table("reading", *later), "after").status_code == 200
    api.service.build_ledger(Window(START, NOW))
    (problem,) = api.http.get("/v1/quality").json()["problems"]
    assert (problem["kind"], problem["detail"], problem["vendor"]) == ("vanished_metric", "core_active_ratio", "ascend")


@pytest.mark.parametrize("source", ["amd_exporter", "remote_write/a"])
def test_an_amd_card_is_advised_in_the_words_of_amd_s_exporter(api: Api, source: str) -> None:
    assert told(api, **AMD | {"source": source}) == {
        ("missing_metric", "sm_active_ratio"): (
            f"SM_ACTIVE is missing from {source} on n0: switch on GPU_PROF_SM_ACTIVE, GPU_PROF_TENSOR_ACTIVE_PERCENT "
            "among the fields of the AMD exporter's configuration, on cards that have them. "
            "Without it work is ungraded: active, but nothing says how well."
        )
    }


def test_a_card_of_no_known_vendor_is_graded_by_whichever_counter_it_has(api: Api) -> None:
    assert told(api, **MADE_UP, core_active_ratio=0.0) == {}


def test_a_card_of_no_known_vendor_without_either_is_told_in_neutral_words(api: Api) -> None:
    (text,) = told(api, **MADE_UP).values()
    assert text.startswith("SM_ACTIVE is missing from made_up_exporter on n0: look for it in the settings")
    assert "DCGM" not in text


@pytest.mark.parametrize("source", ["ray_agent", "hami"])
def test_a_source_that_cannot_tell_it_sends_to_the_vendor_s_exporter(source: str) -> None:
    text = advised("missing_metric", source, "nvidia", "en", detail="sm_active_ratio")
    assert text.startswith("SM_ACTIVE is missing on n1: ")
    assert "Read the exporter of the cards' vendor there as well. Without it work is ungraded" in text


@pytest.mark.parametrize("language", texts.LANGUAGES)
@pytest.mark.parametrize(
    ("source", "vendor"),
    [("npu_exporter", ""), ("remote_write/a", "ascend"), ("amdsmi", ""), ("ledger", "amd"), ("ray_agent", "")],
)
@pytest.mark.parametrize("kind", ["rejected_value", "active_unheld", "contradiction", "missing_pod_labels"])
def test_advice_for_other_vendors_names_nothing_of_nvidia_s(kind: str, source: str, vendor: str, language: str) -> None:
    text = advised(kind, source, vendor, language)
    assert not [word for word in NVIDIA_WORDS if word in text]
    assert "n1" in text


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("rejected_value", "DCGM"),
        ("active_unheld", "DCGM_EXPORTER_KUBERNETES=true"),
        ("contradiction", "XID 31"),
        ("missing_pod_labels", "DCGM_EXPORTER_KUBERNETES=true"),
    ],
)
def test_advice_for_nvidia_cards_names_its_tools(kind: str, word: str) -> None:
    assert word in advised(kind, "dcgm", "", "en")
    assert word in advised(kind, "remote_write/a", "nvidia", "zh")


def advised(kind: str, source: str, vendor: str, language: str, *, detail: str = "") -> str:
    row = {
        "source": source, "kind": kind, "detail": detail, "subject_kind": "node", "subject_count": 1,
        "subjects": ["n1"], "event_count": 3, "worst_value": None, "vendor": vendor,
    }  # fmt: skip
    text: str = doctor._problem(row, texts.Texts(language))["advice"]
    return text
