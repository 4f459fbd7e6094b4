"""`gpuledger findings`, `explain`, `review` and `policy`: what was found, why, whether it is right, what is exempt."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app import parameters, policies
from gpuledger.app.client import open_warehouse
from gpuledger.app.finding_printing import print_explanation, print_precision
from gpuledger.app.printing import Format, emit
from gpuledger.app.reviewing import COLUMNS
from gpuledger.config import Settings
from gpuledger.errors import BadInput

findings_app = typer.Typer(help="Findings: list, show, decide, history.", no_args_is_help=True)
policy_app = typer.Typer(help="The site's policy: thresholds and exemptions.", no_args_is_help=True)

Warehouse = Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")]
Config = Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")]
Form = Annotated[Format, typer.Option("--format", help="text for people, json for scripts")]
Language = Annotated[str, typer.Option(help="en or zh")]
Finding = Annotated[str, typer.Argument(help="the finding's identity")]

LISTED = ("finding_id", "status", "analyzer", "subject_id", "owner", "cause_code", "window_start", "window_end")
HOURS = ("gpu_hours_wasted", "gpu_hours_lost", "confidence")
CHANGED = ("at", "actor", "before", "after", "reason", "owner", "expires_at", "note")


@findings_app.callback()
def _findings() -> None:
    """Findings: list, show, decide, history."""


@policy_app.callback()
def _policy() -> None:
    """The site's policy: thresholds and exemptions."""


def _settings(config: Path | None, warehouse: Path | None) -> Settings:
    return settings_file.load(config, warehouse=warehouse)


@findings_app.command("list")
def list_findings(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    status: Annotated[
        str | None, typer.Option(help="new, ongoing, resolved, acknowledged, disputed or exempted")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="rule")] = None,
    tenant: Annotated[str | None, typer.Option(help="tenant")] = None,
    owner: Annotated[str | None, typer.Option(help="who was named, else user, else tenant")] = None,
    category: Annotated[str | None, typer.Option(help="waste, advice, health or quota")] = None,
    vendor: Annotated[str | None, typer.Option(help="vendor of the card")] = None,
    kind: Annotated[str | None, typer.Option(help="kind of workload")] = None,
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """The stored findings, the largest waste first."""
    wanted = {"status": status, "rule": rule, "tenant": tenant, "owner": owner}
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.get("/v1/findings", **wanted, category=category, vendor=vendor, kind=kind)
    emit({"count": len(answer["findings"]), **answer}, form, columns={"findings": (*LISTED, *HOURS)})


@findings_app.command()
def show(finding: Finding, warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT) -> None:
    """One finding: its record, where it stands, and why nobody is told of it, where that is so."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.get(f"/v1/findings/{finding}")
    emit(answer, form, columns={"evidence": ("metric", "value", "threshold", "n_samples", "coverage", "query")})


@findings_app.command()
def history(finding: Finding, warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT) -> None:
    """Every change of a finding: when, who, from, to, why."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.get(f"/v1/findings/{finding}/history")
    emit(answer, form, columns={"changes": CHANGED})


@findings_app.command()
def decide(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    finding: Finding,
    by: Annotated[str, typer.Option(help="who decides")],
    status: Annotated[
        str, typer.Option(help="acknowledged, disputed, exempted, or ongoing to take a decision back")
    ] = "",
    reason: Annotated[
        str,
        typer.Option(help="of a dispute: wrong_owner, was_working, planned, bad_data, wrong_threshold or other"),
    ] = "",
    note: Annotated[str, typer.Option(help="in your words")] = "",
    owner: Annotated[str, typer.Option(help="whose it is from now on")] = "",
    until: Annotated[str | None, typer.Option(help="when an exemption ends, ISO 8601")] = None,
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Acknowledge, dispute or exempt a finding, or name its owner."""
    said: dict[str, Any] = {"status": status, "by": by, "note": note, "reason": reason, "owner": owner}
    if until is not None:
        said["expires_at"] = parameters.instant("until", until)
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        emit(client.send(f"/v1/findings/{finding}/status", said), form)


def explain(
    finding: Finding,
    language: Language = "en",
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Why a finding says what it says, with the rows of the ledger that prove it."""
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        answer = client.get(f"/v1/findings/{finding}/explanation", language=language)
    if form is Format.JSON:
        emit(answer, form)
    else:
        print_explanation(answer)


def review(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    sample: Annotated[int | None, typer.Option(min=1, help="draw a sample of so many findings")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write the sample to")] = None,
    judged: Annotated[Path | None, typer.Option(help="CSV file of a sample with verdicts filled in")] = None,
    seed: Annotated[int, typer.Option(min=1, help="same seed, same findings, same sample")] = 1,
    language: Language = "en",
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Draw a sample of findings for owners to judge, take their verdicts in, and print how often each rule is right.

    Ends with 1 where a line of the judged file was refused.
    """
    if (sample is None) != (out is None):
        raise typer.BadParameter("--sample and --out belong together")
    lines = _judged(judged) if judged is not None else None
    with open_warehouse(_settings(config, warehouse), must_exist=True) as client:
        if sample is not None and out is not None:
            drawn = client.post("/v1/reviews/sample", size=sample, seed=seed, language=language)
            _write(out, drawn.pop("rows"))
            emit({**drawn, "path": str(out)}, form)
            return
        taken = client.send("/v1/reviews/verdicts", {"lines": lines}) if lines is not None else None
        found = client.get("/v1/precision")
    if form is Format.JSON:
        emit({**found, "verdicts": taken}, form)
    else:
        if taken is not None:
            emit(taken, form)
        print_precision(found)
    if taken is not None and taken["rejected_count"]:
        sys.exit(1)


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """The sample as CSV, with a mark of its encoding, which spreadsheets need for Chinese."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({name: _cell(row[name]) for name in COLUMNS} for row in rows)


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it: names are others' texts."""
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value


def _judged(path: Path) -> list[dict[str, Any]]:
    """The lines of a judged sample, numbered as in the file. Raises BadInput where it is no such file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [
                name for name in ("sample", "finding_id", *COLUMNS[-3:]) if name not in (reader.fieldnames or ())
            ]
            if missing:
                raise BadInput("judged", f"{path}: no column {missing[0]!r}")
            return [
                {"line": reader.line_num, **{name: row[name] or "" for name in ("sample", "finding_id", *COLUMNS[-3:])}}
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("judged", f"{path}: {error}") from error


@policy_app.command()
def check(
    file: Annotated[Path, typer.Argument(help="the policy file (TOML)")],
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Check a policy file, and say what it sets and what it would exempt of the stored findings. Nothing is changed."""
    policy = policies.load_checked(file)
    settings = _settings(config, warehouse)
    answer: dict[str, Any] = {
        "thresholds": [row for one in policy.threshold for row in policies.changes(one)],
        "exemptions": [policies.exemption(one, policy, (), datetime.now(UTC)) for one in policy.exemption],
    }
    if settings.warehouse.is_file():
        with open_warehouse(settings) as client:
            answer = client.send("/v1/policy/check", file.read_text(encoding="utf-8"))
    emit({"policy": "can be used", **answer}, form)
