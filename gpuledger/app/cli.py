"""The command line. Answers go to standard output, logs to standard error; exit 0 fine, 1 failed, 2 wrong arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app.accuracy_commands import accuracy
from gpuledger.app.client import Client, open_warehouse
from gpuledger.app.collector_commands import collect, collector_app
from gpuledger.app.fabric_commands import fabric
from gpuledger.app.finding_commands import explain, findings_app, policy_app, review
from gpuledger.app.fragmentation_commands import placeable
from gpuledger.app.health_commands import health
from gpuledger.app.imports import import_app
from gpuledger.app.money_commands import money
from gpuledger.app.printing import Format, emit, ledger_for_people, print_problems
from gpuledger.app.scheduler_commands import scheduler_app
from gpuledger.config import Settings
from gpuledger.errors import GpuledgerError
from gpuledger.registry import REPORTS

app = typer.Typer(
    name="gpuledger",
    help="Where a GPU fleet's hours went, and how to get them back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(import_app, name="import")
app.add_typer(collector_app, name="collector")
app.add_typer(scheduler_app, name="scheduler")
app.add_typer(findings_app, name="findings")
app.add_typer(policy_app, name="policy")
app.command()(explain)
app.command()(review)
app.command()(money)
app.command()(accuracy)
app.command()(placeable)
app.command()(health)
app.command()(fabric)

Warehouse = Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")]
Config = Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")]
Form = Annotated[Format, typer.Option("--format", help="text for people, json for scripts")]
From = Annotated[str | None, typer.Option("--from", help="start of the window, ISO 8601; default: all")]
To = Annotated[str | None, typer.Option("--to", help="end of the window, ISO 8601; default: all")]

FINDING_COLUMNS = (
    "analyzer",
    "subject_id",
    "tenant",
    "cause_code",
    "window_start",
    "window_end",
    "gpu_hours_wasted",
    "confidence",
)

RULE_COLUMNS = ("rule", "version", "category", "findings", "final_until_at", "provisional_hours")


def _settings(config: Path | None, warehouse: Path | None, **more: Any) -> Settings:
    return settings_file.load(config, warehouse=warehouse, **more)


def _options(rest: list[str]) -> dict[str, str]:
    """`--name value` and `--name=value` pairs that a rule takes; names with hyphens are fine."""
    options: dict[str, str] = {}
    waiting = list(rest)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            raise typer.BadParameter(f"unexpected argument {word!r}")
        name, is_joined, value = word[2:].partition("=")
        if not is_joined:
            if not waiting:
                raise typer.BadParameter(f"--{name} needs a value")
            value = waiting.pop(0)
        options[name.replace("-", "_")] = value
    return options


@app.command()
def serve(
    warehouse: Warehouse = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT")] = None,
    config: Config = None,
) -> None:
    """Run the service: ingest, queries, and the jobs that keep the ledger."""
    from gpuledger.app.serve import serve as run  # noqa: PLC0415 only this command needs a server

    run(_settings(config, warehouse, listen=listen))


@app.command()
def dashboard(
    service_url: Annotated[str | None, typer.Option(help="where the service is")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT")] = "127.0.0.1:8501",
    config: Config = None,
) -> None:
    """Serve the dashboards."""
    from gpuledger.app.processes import dashboard_command  # noqa: PLC0415

    dashboard_command(settings_file.load(config, service_url=service_url), listen).replace_this_process()


app.command()(collect)


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="nodes of 8 GPUs")],
    days: Annotated[int, typer.Option(min=1, max=400, help="days of history")],
    out: Annotated[Path, typer.Option(help="folder for telemetry, training logs and truth.parquet")],
    seed: Annotated[int, typer.Option(help="same seed, same fleet")] = 1,
    scenario: Annotated[str, typer.Option(help="mixed, busy, mig or timeslice")] = "mixed",
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Simulate a fleet with planted waste and look-alikes, and write what is true of it."""
    from gpuledger.app.simulating import simulate_into  # noqa: PLC0415

    settings = _settings(config, warehouse) if warehouse or config else None
    emit(simulate_into(out, settings, nodes=nodes, days=days, seed=seed, scenario=scenario), form)


@app.command()
def ledger(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    by: Annotated[str, typer.Option(help="tenant, node, model, state, pool, stage, kind or workload")] = "state",
    build: Annotated[bool, typer.Option("--build", help="rebuild the window first")] = False,
    warehouse: Warehouse = None,
    from_: From = None,
    to: To = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Where the GPU-hours went."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        if build:
            client.post("/v1/ledger/build", from_=from_, to=to)
        answer = client.get("/v1/ledger", by=by, from_=from_, to=to)
        if form is Format.TEXT:
            answer = ledger_for_people(answer, is_whole=not (from_ or to))
        emit(
            answer, form, columns={"rates": ("rate", "value", "numerator_gpu_hours", "denominator_gpu_hours", "basis")}
        )


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def analyze(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    context: typer.Context,
    rules: Annotated[list[str] | None, typer.Argument(help="rules to run; default: all")] = None,
    save: Annotated[bool, typer.Option("--save", help="make this run the stored one")] = False,
    warehouse: Warehouse = None,
    from_: From = None,
    to: To = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Run rules and print what they found. Options of a rule (`--weighting pods`) may follow its name."""
    words = [*(rules or []), *context.args]
    first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    named, options = words[:first], _options(words[first:])
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        results = _analyze(client, named, options, {"from_": from_, "to": to, "save": str(save).lower()})
    if len(named) == 1:
        emit(results[named[0]], form, columns={"findings": FINDING_COLUMNS})
        return
    found = [finding for result in results.values() for finding in result["findings"]]
    found.sort(key=lambda finding: -finding["gpu_hours_wasted"])
    failed = {rule: result["error"] for rule, result in results.items() if "error" in result}
    emit(
        {"rules": results if form is Format.JSON else list(results), "findings": found, "failed": failed},
        form,
        columns={"findings": FINDING_COLUMNS},
    )
    if failed:
        sys.exit(1)


@app.command()
def rules(warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT) -> None:
    """The rules, and until when each has analysed for good: later hours are provisional."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        emit(client.get("/v1/rules"), form, columns={"rules": RULE_COLUMNS})


def _analyze(client: Client, named: list[str], options: dict[str, str], common: dict[str, Any]) -> dict[str, Any]:
    if len(named) == 1:
        return {named[0]: client.post(f"/v1/analyze/{named[0]}", **common, **options)}
    if options:
        raise typer.BadParameter("options of a rule need exactly one rule")
    results = {}
    for rule in named or client.post("/v1/check")["rules"]:
        try:
            results[rule] = client.post(f"/v1/analyze/{rule}", **common)
        except GpuledgerError as error:  # one rule that cannot run must not hide what the others found
            results[rule] = {"findings": [], "error": str(error)}
    return results


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def recommend(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help="kind of recommendation")] = "move_quota",
    warehouse: Warehouse = None,
    from_: From = None,
    to: To = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Propose changes and try each dry at the scheduler. Nothing is written to it."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.post(f"/v1/recommend/{kind}", from_=from_, to=to, **_options(context.args))
    emit(
        answer,
        form,
        columns={"recommendations": ("recommendation_id", "title", "expected_gpu_hours", "confidence", "dry_run")},
    )


@app.command()
def report(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    name: Annotated[str, typer.Argument(help=f"one of {', '.join(REPORTS)}")] = "weekly",
    out: Annotated[Path | None, typer.Option(help="file to write; default: standard output")] = None,
    tenant: Annotated[str | None, typer.Option(help="one tenant's report; default: the fleet's")] = None,
    language: Annotated[str, typer.Option(help="en or zh")] = "en",
    timezone: Annotated[str | None, typer.Option(help="IANA zone")] = None,
    warehouse: Warehouse = None,
    from_: From = None,
    to: To = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Write a report as HTML."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        html = client.post(
            f"/v1/reports/{name}", from_=from_, to=to, tenant=tenant, language=language, timezone=timezone
        )
    if out is None:
        sys.stdout.write(html)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")
    emit({"report": name, "path": str(out), "bytes": len(html.encode())}, form)


@app.command()
def doctor(
    warehouse: Warehouse = None,
    language: Annotated[str, typer.Option(help="language of the advice, en or zh")] = "en",
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Check that the service works, and say what would make its numbers better.

    Ends with 1 when a check fails; problems of the readings' quality are advice.
    """
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.post("/v1/check")
        problems = client.get("/v1/quality", language=language)["problems"]
    if form is Format.JSON:
        emit({"checks": answer["checks"], "problems": problems}, form)
    else:
        emit({"checks": answer["checks"]}, form)
        print_problems(problems)
    if not all(check["ok"] for check in answer["checks"]):
        sys.exit(1)


@app.command()
def demo(
    nodes: Annotated[int, typer.Option(min=2, max=512, help="simulated nodes of 8 GPUs")] = 64,
    days: Annotated[int, typer.Option(min=1, max=60, help="days of simulated history")] = 14,
    seed: Annotated[int, typer.Option(help="same seed, same fleet")] = 1,
    directory: Annotated[Path, typer.Option(help="where everything is kept")] = Path("var/demo"),
    once: Annotated[bool, typer.Option("--once", help="stop when all is up and checked")] = False,
) -> None:
    """Simulate a fleet and run everything on it, on this machine only."""
    from gpuledger.app.demo import Demo  # noqa: PLC0415

    Demo(directory, nodes=nodes, days=days, seed=seed).run(is_once=once)
