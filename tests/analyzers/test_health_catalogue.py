"""Codes mean what a dated catalogue says; what follows a fault is told with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.health.catalogue import CLASSES, latest, meaning, read
from analyzers.health.incidents import RANKS, incidents
from gpuledger.errors import ConfigError
from gpuledger.model.vocabulary import FAULT_KINDS, VENDORS
from gpuledger.presentation.texts import keys

AT = datetime(2026, 3, 2, 2, tzinfo=UTC)


def _fault(code: str = "", *, kind: str = "xid", seconds: float = 0, gpu: str = "g0", **more: Any) -> dict[str, Any]:
    ts = AT + timedelta(seconds=seconds)
    row = {"ts": ts, "last_at": ts, "node": "n0", "gpu_uuid": gpu, "vendor": "nvidia", "kind": kind, "code": code}
    return {**row, "detail": None, "is_planned": False, "ineffective_reboots": 0, "sources": ["kernel"], **more}


@pytest.mark.parametrize(
    ("codes", "fault_class", "bucket"),
    [
        ((13, 31, 94), "user_app", "RESTART_APP"),
        ((62, 64, 95, 140, 143, 158), "hw_fatal", "RESET_GPU"),
        ((79,), "hw_fatal", "RESTART_BM"),
        ((48,), "hw_fatal", "WORKFLOW_XID_48"),
        ((74,), "link", "WORKFLOW_NVLINK_ERR"),
        (tuple(range(144, 151)), "link", "WORKFLOW_NVLINK5_ERR"),
        ((109, 119, 120), "driver", "RESET_GPU"),
        ((43, 63, 92), "info", "IGNORE"),
        ((45,), "info", "WORKFLOW_XID_45"),
    ],
)
def test_the_key_codes_are_those_of_the_specification(codes: tuple[int, ...], fault_class: str, bucket: str) -> None:
    for code in codes:
        known = meaning("nvidia", "xid", str(code))
        assert (known.fault_class, known.bucket) == (fault_class, bucket), code
        assert known.catalogue == "nvidia 2025-10-29"


def test_what_no_table_holds_is_unknown() -> None:
    assert meaning("nvidia", "xid", "999").fault_class == "unknown"
    assert meaning("ascend", "npu_fault", "8C1FA0FF").action == "ask_vendor"
    assert meaning("amd", "xid", "79").fault_class == "unknown"
    assert meaning("ascend", "npu_fault", "0x80e18402").fault_class == "hw_fatal"


@pytest.mark.parametrize(
    ("code", "fault_class", "action", "bucket"),
    [
        ("80818203", "info", "ignore", "NotHandleFault"),
        ("80CB8002", "user_app", "restart_application", "RestartRequest"),
        ("80E01801", "user_app", "restart_application", "RestartBusiness"),
        ("8C464E00", "hw_fatal", "reset_gpu", "FreeRestartNPU"),
        ("8c1fa006", "hw_fatal", "reset_gpu", "RestartNPU"),
        ("80DF8402", "hw_fatal", "inspect_hardware", "SeparateNPU"),
        ("80E18405", "info", "inspect_hardware", "SubHealthFault"),
    ],
)
def test_codes_of_npus_follow_the_vendors_levels(code: str, fault_class: str, action: str, bucket: str) -> None:
    found = meaning("ascend", "npu_fault", code)
    assert (found.fault_class, found.action, found.bucket, found.catalogue) == (
        fault_class,
        action,
        bucket,
        "ascend 2026",
    )


def test_every_kind_that_nvidia_can_tell_has_a_meaning() -> None:
    for kind in FAULT_KINDS:
        code = "79" if kind == "xid" else ""
        assert (meaning("nvidia", kind, code).fault_class == "unknown") is (kind == "npu_fault")


def test_every_action_and_class_has_words() -> None:
    assert set(RANKS) == set(CLASSES)
    for catalogue in latest().values():
        assert catalogue.vendor in VENDORS
        actions = {known.action for known in catalogue.meanings.values()} | set(catalogue.recovery.values())
        for action in actions - {"ignore"}:
            assert f"action.{action}" in keys(), action


@pytest.mark.parametrize(
    ("detail", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset_gpu"),
        ("GPU recovery action changed from 0x1 to 0x3 (Drain P2P)", "drain_node"),
        ("GPU recovery action changed from 0x1 to 0x4 (Drain and Reset)", "drain_and_reset"),
        ("GPU recovery action changed from 0x2 to 0x0 (None)", "ignore"),
        ("GPU recovery action changed from 0x0 to 0x63", None),
        ("something else", None),
        (None, None),
    ],
)
def test_the_drivers_recommendation_is_read(detail: str | None, action: str | None) -> None:
    assert latest()["nvidia"].recommended(detail) == action


def test_a_broken_catalogue_names_its_entry(tmp_path: Path) -> None:
    head = 'vendor = "nvidia"\nversion = "1"\nsource = "here"\n'
    path = tmp_path / "broken.toml"
    path.write_text(head + '[[xid]]\ncodes = [1, 1]\nclass = "info"\naction = "ignore"\n')
    with pytest.raises(ConfigError, match=r"broken\.toml.*xid 1 stands in it twice"):
        read(path)
    path.write_text(head + '[[xid]]\ncodes = [1]\nclass = "bad"\naction = "ignore"\n')
    with pytest.raises(ConfigError, match="no class 'bad'"):
        read(path)


def _told(*rows: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, tuple(row["code"] or row["kind"] for row in one.followers)) for one in incidents(rows)]


def test_what_follows_a_fault_is_told_with_it() -> None:
    assert _told(_fault("48"), _fault("94", seconds=1), _fault("45", seconds=2)) == [("xid-48", ("94", "45"))]
    assert _told(_fault("45"), _fault("79", seconds=1)) == [("xid-79", ("45",))]
    assert _told(_fault("79"), _fault(kind="gpu_lost", seconds=60)) == [("xid-79", ("gpu_lost",))]


def test_a_follower_stands_alone_without_its_fault_or_on_another_card() -> None:
    assert _told(_fault("94")) == [("xid-94", ())]
    assert _told(_fault("48"), _fault("94", gpu="g1")) == [("xid-48", ()), ("xid-94", ())]


@pytest.mark.parametrize(("seconds", "count"), [(300, 1), (301, 2)])
def test_five_minutes_are_together(seconds: int, count: int) -> None:
    assert len(_told(_fault("48"), _fault("95", seconds=seconds))) == count


def test_a_fatal_follower_never_hides_behind_the_works_own_error() -> None:
    assert _told(_fault("13"), _fault("95", seconds=1)) == [("xid-13", ()), ("xid-95", ())]


def test_a_counter_goes_with_the_code_of_its_error() -> None:
    assert _told(_fault("94"), _fault(kind="ecc_uncorrected", seconds=5)) == [("xid-94", ("ecc_uncorrected",))]
    assert _told(_fault(kind="ecc_uncorrected")) == [("ecc_uncorrected", ())]


def test_two_faults_of_their_own_are_two() -> None:
    assert _told(_fault("74"), _fault("79", seconds=10)) == [("xid-74", ()), ("xid-79", ())]


@pytest.mark.parametrize(("reboots", "action"), [(1, "reboot_node"), (2, "inspect_hardware")])
def test_two_reboots_that_did_not_help_escalate(reboots: int, action: str) -> None:
    (one,) = incidents([_fault("79", ineffective_reboots=reboots)])
    assert one.action == action
    (contained,) = incidents([_fault("94", ineffective_reboots=reboots)])
    assert contained.action == "restart_application"


def test_a_lone_recommendation_is_as_serious_as_what_it_asks_for() -> None:
    (one,) = incidents([_fault("154", detail="GPU recovery action changed from 0x0 to 0x2 (Node Reboot)")])
    assert (one.fault_class, one.action, one.action_by) == ("hw_fatal", "reboot_node", "driver")
    (silent,) = incidents([_fault("154")])
    assert (silent.fault_class, silent.action) == ("info", "ask_driver")
