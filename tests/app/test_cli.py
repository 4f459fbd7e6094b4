"""The command line: answers on standard output, logs on standard error; 0 is fine, 1 failed, 2 wrong arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gpuledger import registry
from gpuledger.model import Window
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Ran, a_reading, a_table, opened_api

Cli = Callable[..., Ran]

ASSETS = """gpu_uuid,node,slot,model,pool,status,from_at,until_at
GPU-a,n0,0,H100-SXM5-80GB,train,in_service,2026-03-01,
GPU-b,n0,1,H100-SXM5-80GB,train,in_service,2026-03-01,
GPU-c,n0,2,H100-SXM5-80GB,train,lost,2026-03-01,
"""
PAGE = """# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n0"} 40
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n0"} 0
"""


def test_simulate_loads_a_warehouse_whose_ledger_closes(simulated: tuple[Path, Ran]) -> None:
    file, ran = simulated
    assert ran.code == 0, ran.err
    assert file.is_file()
    assert (file.parent / "out" / "truth.parquet").is_file()
    assert ran.json["ledger"]["violations"] == 0
    assert ran.json["loaded_rows"] == sum(ran.json["rows"].values()) - ran.json["rows"]["truth"]


@pytest.mark.parametrize("by", ["tenant", "node", "model", "state", "pool"])
def test_ledger_by_every_dimension_gives_the_same_total(simulated: tuple[Path, Ran], cli: Cli, by: str) -> None:
    ran = cli("ledger", "--by", by, "--warehouse", simulated[0], "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["total_gpu_hours"] == pytest.approx(16 * 24)
    assert sum(row["gpu_hours"] for row in ran.json["rows"]) == pytest.approx(16 * 24)
    assert {by, "state", "gpu_hours"} == set(ran.json["rows"][0])


def test_ledger_for_people(simulated: tuple[Path, Ran], cli: Cli) -> None:
    ran = cli("ledger", "--warehouse", simulated[0])
    assert ran.code == 0
    assert "allocation_rate" in ran.out
    assert not ran.out.startswith("{")


def test_a_ledger_without_hours_says_when_it_begins(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "app.duckdb"
    with opened_api(tmp_path, FakeClock(NOW)) as api:
        assert api.put("reading", a_table("reading", a_reading()), "r").status_code == 200
    ran = cli("ledger", "--warehouse", file)
    assert ran.out == "ledger: no hours yet: the ledger begins about 3 minutes after the first reading\n"
    asked = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-01T01:00:00Z")
    assert cli("ledger", "--warehouse", file, *asked).out == "ledger: no hours in this window\n"


def test_free_hours_that_worked_are_noted_and_names_are_not_broken(cli: Cli, tmp_path: Path) -> None:
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    with opened_api(tmp_path, FakeClock(NOW)) as api:
        rows = [
            a_reading(
                at=NOW - timedelta(minutes=60 - i), gpu_uuid=uuid, interval_seconds=60.0, invalid_count=int(i == 0)
            )
            for i in range(60)
        ]
        assert api.put("reading", a_table("reading", *rows), "r").status_code == 200
        api.service.build_ledger(Window(NOW - timedelta(hours=1), NOW))
    file = tmp_path / "app.duckdb"
    shown = cli("ledger", "--warehouse", file).out
    assert "note: 1.0 GPU-hours of free cards were active: see gpuledger doctor\n" in shown
    assert cli("ledger", "--warehouse", file, "--format", "json").json["active_unheld_gpu_hours"] == 1
    doctor = cli("doctor", "--warehouse", file).out
    assert f"1 values of {uuid} are no measurements" in doctor
    assert "\nledger: works, held by nobody\n    Cards on n0 worked for 1.0 GPU-h while nobody" in doctor


def test_analyze_takes_a_rules_options(simulated: tuple[Path, Ran], cli: Cli) -> None:
    common = ("--warehouse", simulated[0], "--format", "json")
    for options in (("--weighting", "pods"), ("--weighting=pods",)):
        ran = cli("analyze", "fragmentation", *options, *common)
        assert (ran.code, ran.json["weighting"]) == (0, "pods"), ran.err
    strict = cli("analyze", "idle_allocation", *common, "--min-idle-minutes", "120")
    assert strict.code == 0
    loose = cli("analyze", "idle_allocation", *common)
    assert 0 < len(strict.json["findings"]) < len(loose.json["findings"])


def test_analyze_without_a_rule_runs_all(simulated: tuple[Path, Ran], cli: Cli) -> None:
    ran = cli("analyze", "--warehouse", simulated[0], "--format", "json")
    assert ran.code == 0, ran.err
    assert set(ran.json["rules"]) == set(registry.RULES)
    assert ran.json["failed"] == {}
    wasted = [finding["gpu_hours_wasted"] for finding in ran.json["findings"]]
    assert wasted == sorted(wasted, reverse=True)
    assert wasted


BROKEN = """
from gpuledger import registry
registry.RULES = {"broken": "nowhere:Nothing", "idle_allocation": registry.RULES["idle_allocation"]}
registry.TABLES = {**registry.TABLES, "rules": registry.RULES}
from gpuledger.app.start import main
main()
"""


def test_a_rule_that_fails_does_not_hide_the_others(simulated: tuple[Path, Ran], tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415 the one test that needs a changed registry in another process
    import sys  # noqa: PLC0415

    from tests.app.conftest import environment  # noqa: PLC0415

    script = tmp_path / "broken.py"
    script.write_text(BROKEN, encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, str(script), *arguments, "--warehouse", str(simulated[0]), "--format", "json"]
        return subprocess.run(command, capture_output=True, env=environment(), timeout=120, check=False)

    every = run("analyze")
    answer = json.loads(every.stdout)
    assert every.returncode == 1
    assert "nowhere" in answer["failed"]["broken"]
    assert answer["findings"]
    alone = run("analyze", "broken")
    assert (alone.returncode, alone.stdout) == (1, b"")
    assert b"broken could not run" in alone.stderr
    checks = json.loads(run("doctor").stdout)["checks"]
    assert {check["name"]: check["ok"] for check in checks}["rules_load"] is False


def test_report_and_recommend(simulated: tuple[Path, Ran], cli: Cli, tmp_path: Path) -> None:
    common = ("--warehouse", simulated[0], "--format", "json")
    out = tmp_path / "deep" / "weekly.html"
    ran = cli("report", "weekly", "--out", out, *common)
    assert (ran.code, ran.json["path"]) == (0, str(out)), ran.err
    assert out.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert cli("report", "--warehouse", simulated[0]).out.lstrip().lower().startswith("<!doctype html>")
    ran = cli("recommend", "move_quota", *common)
    assert ran.code == 0, ran.err
    assert isinstance(ran.json["recommendations"], list)


def test_doctor_fails_where_readings_are_old(simulated: tuple[Path, Ran], cli: Cli) -> None:
    ran = cli("doctor", "--warehouse", simulated[0], "--format", "json")
    checks = {check["name"]: check["ok"] for check in ran.json["checks"]}
    assert ran.code == 1
    assert checks.pop("readings_are_fresh") is False
    assert set(checks.values()) == {True}


def test_import_assets_and_a_page(cli: Cli, tmp_path: Path) -> None:
    file, page, list_ = tmp_path / "w.duckdb", tmp_path / "n0.prom", tmp_path / "assets.csv"
    page.write_text(PAGE, encoding="utf-8")
    list_.write_text(ASSETS, encoding="utf-8")
    common = ("--warehouse", file, "--format", "json")
    ran = cli("import", "assets", list_, *common)
    assert (ran.code, ran.json["imported"], ran.json["rejected_count"]) == (0, {"asset": 2}, 1), ran.err
    assert "status" in ran.json["rejected"][0]["field"]
    ran = cli("import", "exposition", page, "--node", "n0", "--at", "2026-03-02T10:00:00Z", *common)
    assert (ran.code, ran.json["imported"]["reading"]) == (0, 2), ran.err
    again = cli("import", "exposition", page, "--node", "n0", "--at", "2026-03-02T10:00:00Z", *common)
    assert again.json["imported"]["reading"] == 2
    assert again.json["ledger"] == ran.json["ledger"]
    assert cli("ledger", *common).json["total_gpu_hours"] == pytest.approx(2 / 60)
    broken = tmp_path / "broken.csv"
    broken.write_text("a,b\n1,2\n", encoding="utf-8")
    assert cli("import", "assets", broken, *common).code == 2


@pytest.mark.slow
def test_openb_by_the_command_line(cli: Cli, shared: Path, tmp_path: Path) -> None:
    data, file = shared / "data" / "openb", tmp_path / "w.duckdb"
    nodes, pods = data / "openb_node_list_gpu_node.csv", data / "openb_pod_list_default.csv"
    ran = cli("import", "openb", "--nodes", nodes, "--pods", pods, "--warehouse", file, "--format", "json")
    assert (ran.code, ran.json["imported"]["asset"]) == (0, 6212), ran.err
    expected = {"pods": 39.1971, "all": 863.0451, "published": 866.2326, "demand": 146.9292}
    for weighting, fragmented in expected.items():
        options = ("--weighting", weighting, "--warehouse", file, "--format", "json")
        answer = cli("analyze", "fragmentation", *options).json
        assert answer["fragmented_gpus"] == pytest.approx(fragmented, abs=5e-5), weighting


@pytest.mark.slow
def test_helios_by_the_command_line(cli: Cli, shared: Path, tmp_path: Path) -> None:
    trace, file = shared / "data" / "helios" / "earth_vc_minute.parquet", tmp_path / "w.duckdb"
    ran = cli("import", "helios", trace, "--warehouse", file, "--format", "json")
    assert ran.code == 0, ran.err
    ran = cli("analyze", "quota_balance", "--warehouse", file, "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.json["fleet"]["allocation_ratio"] == pytest.approx(0.7003, abs=5e-5)


WRONG = (
    ("no_such_command",),
    ("ledger", "--by", "colour"),
    ("ledger", "--from", "yesterday"),
    ("ledger", "--format", "xml"),
    ("ledger", "--config", "missing.toml"),
    ("analyze", "no_such_rule"),
    ("analyze", "idle_allocation", "--speed", "1"),
    ("analyze", "idle_allocation", "--min-idle-minutes"),
    ("analyze", "idle_allocation", "quota_balance", "--speed", "1"),
    ("recommend", "no_such_kind"),
    ("report", "no_such_report"),
    ("simulate", "--nodes", "0", "--days", "1", "--out", "out"),
    ("import", "assets", "missing.csv"),
    ("serve", "--listen", "0.0.0.0:8420"),
    ("serve", "--listen", "nowhere"),
    ("serve", "--listen", "127.0.0.1:99999"),
)


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_arguments_end_with_2_and_say_why(
    simulated: tuple[Path, Ran], cli: Cli, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    takes_file = arguments[:1] in {("ledger",), ("analyze",), ("recommend",), ("report",)}
    ran = cli(*arguments, *(("--warehouse", simulated[0]) if takes_file else ()), cwd=tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert ran.err.strip()
    assert "Traceback" not in ran.err


def test_a_file_that_is_no_warehouse_ends_with_1(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database\n" * 1000, encoding="utf-8")
    ran = cli("ledger", "--warehouse", file, "--format", "json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("gpuledger: ")


def test_a_token_lets_the_service_listen_elsewhere_only_when_set(cli: Cli, tmp_path: Path) -> None:
    ran = cli("serve", "--warehouse", tmp_path / "w.duckdb", "--listen", "0.0.0.0:8420")
    assert ran.code == 2
    assert "token" in ran.err
    assert not (tmp_path / "w.duckdb").exists()
