"""A person's way: the overview in a real browser shows the figures that the API and the CLI give."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, sync_playwright

from gpuledger.app.client import connect
from gpuledger.model import Wait, to_table

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason="no Chromium on this machine (set CHROMIUM)"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, seconds: float = 60) -> None:
    for _ in range(int(seconds * 4)):
        try:
            if httpx.get(url, timeout=5, trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"{url} did not answer")


def gpuledger(*arguments: str) -> Any:
    command = [sys.executable, "-m", "gpuledger.app", *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Site:
    service: str
    dashboards: str
    warehouse: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    warehouse = folder / "w.duckdb"
    gpuledger(
        "simulate",
        "--nodes",
        "4",
        "--days",
        "2",
        "--seed",
        "5",
        "--out",
        str(folder / "out"),
        "--warehouse",
        str(warehouse),
    )
    service, dashboards = free_port(), free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GPULEDGER_SERVICE_URL": f"http://127.0.0.1:{service}",
        "GPULEDGER_LEDGER_EVERY_SECONDS": "86400",
    }
    commands = (
        ["-m", "gpuledger.app", "serve", "--warehouse", str(warehouse), "--listen", f"127.0.0.1:{service}"],
        ["-m", "gpuledger.app", "dashboard", "--listen", f"127.0.0.1:{dashboards}"],
    )
    processes = [subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment) for command in commands]
    try:
        wait_for(f"http://127.0.0.1:{service}/readyz")
        httpx.post(f"http://127.0.0.1:{service}/v1/analyze/idle_allocation", params={"save": "true"}, timeout=60)
        wait_for(f"http://127.0.0.1:{dashboards}/_stcore/health")
        yield Site(f"http://127.0.0.1:{service}", f"http://127.0.0.1:{dashboards}", warehouse)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        yield browser.new_page(viewport={"width": 1440, "height": 1600})
        browser.close()


def figure(page: Page, label: str) -> float:
    """The number that the metric called `label` shows."""
    metric = page.locator("[data-testid=stMetric]").filter(has_text=label)
    text = metric.locator("[data-testid=stMetricValue]").first.inner_text(timeout=60_000)
    return float(re.sub(r"[^0-9.\-]", "", text.split(" ")[0]))


def hours(ledger: Any, state: str) -> float:
    return sum(row["gpu_hours"] for row in ledger["rows"] if row["state"] == state)


def test_overview_shows_what_api_and_cli_say(site: Site, page: Page) -> None:
    begin, end = datetime(2026, 2, 28, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    span = ("--from", begin.isoformat(), "--to", end.isoformat())
    cli = gpuledger("ledger", "--by", "state", "--warehouse", str(site.warehouse), *span)
    wanted = {"by": "state", "from": begin.isoformat(), "to": end.isoformat()}
    api = httpx.get(f"{site.service}/v1/ledger", params=wanted, timeout=60).json()
    assert cli["rows"] == api["rows"]
    assert cli["total_gpu_hours"] == pytest.approx(4 * 8 * 48)
    last = (end - timedelta(days=1)).date()
    page.goto(f"{site.dashboards}/?period=days&from={begin.date()}&to={last}&tz=UTC")
    page.wait_for_selector("h1", timeout=90_000)
    shown = {label: figure(page, label) for label in ("Inventory", "Productive", "Held, idle", "Free, stranded")}
    assert shown["Inventory"] == round(cli["total_gpu_hours"])
    assert shown["Productive"] == pytest.approx(hours(cli, "alloc_productive"), abs=0.5)
    assert shown["Held, idle"] == pytest.approx(hours(cli, "alloc_idle"), abs=0.5)
    assert shown["Free, stranded"] == pytest.approx(hours(cli, "free_stranded"), abs=0.5)


def cells(page: Page, table: int) -> list[list[str]]:
    """The body of a table: it is drawn on a canvas, which holds its words for those who cannot see it."""
    rows = page.locator("[data-testid=stDataFrame]").nth(table).locator("canvas [role=row]")
    rows.nth(1).locator("[role=gridcell]").first.wait_for(state="attached", timeout=60_000)
    return [row.locator("[role=gridcell]").all_text_contents() for row in rows.all()[1:]]


def test_queues_show_what_the_service_knows_of_them(site: Site, page: Page) -> None:
    begin, end = datetime(2026, 2, 28, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    known: dict[str, Any] = {"workload_id": "unlisted", "cause": "capacity", "reason": "FitError", "gpus": 8.0}
    wait = Wait(from_at=end - timedelta(hours=5), until_at=end - timedelta(hours=2), **known)
    with contextlib.closing(connect(site.service)) as client:
        assert client.ingest("wait", to_table("wait", [wait]), "a wait")["accepted"] == 1
        queues = client.query("queue_usage", at=end).to_pylist()
    page.goto(f"{site.dashboards}/queues?period=days&from={begin.date()}&to={(end - timedelta(days=1)).date()}&tz=UTC")
    page.wait_for_selector("h1", timeout=90_000)
    assert figure(page, "Queues") == len(queues) > 1
    assert figure(page, "Waited") == figure(page, "For lack of GPUs") == 24
    shown = {row[0]: row for row in cells(page, 0)}
    assert {queue["nominal_is"] for queue in queues} == {"set", "none"}
    for queue in queues:
        row = shown[queue["queue"]]
        if queue["nominal_is"] == "set":
            assert float(row[2]) == pytest.approx(queue["nominal_gpus"], abs=0.05)
        else:
            assert row[2] == "no quota"
        assert float(row[4]) == pytest.approx(queue["running_gpus"], abs=0.05)
        assert (queue["borrowed_gpus"], row[5]) == (None, ""), "drawn as words, and no zero"
    assert cells(page, 1)[0][:3] == ["too few GPUs free", "more GPUs, or a better arrangement", "(no queue)"]


def test_every_page_opens_without_an_exception(site: Site, page: Page) -> None:
    for path in ("/", "/waste", "/fragments", "/health", "/money", "/queues", "/gpu", "/quality", "/basis"):
        page.goto(f"{site.dashboards}{path}")
        page.wait_for_selector("h1", timeout=90_000)
        page.wait_for_timeout(1500)
        assert page.locator("[data-testid=stException]").count() == 0, path


def test_pages_in_chinese_have_chinese_titles(site: Site, page: Page) -> None:
    page.goto(f"{site.dashboards}/?lang=zh&tz=Asia/Shanghai")
    title = page.locator("h1").first.inner_text(timeout=90_000)
    assert re.search(r"[\u4e00-\u9fff]", title)
