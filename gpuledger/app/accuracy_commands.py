"""`gpuledger accuracy`: how right the rules are on fleets of which the truth is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path | None, typer.Option("--out", help="write the page here (Markdown)")]
Raw = Annotated[Path | None, typer.Option("--raw", help="write the figures behind the page here (JSON)")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="how many seeds of each mix")]
Mix = Annotated[list[str] | None, typer.Option("--mix", help="only this mix; may be repeated")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="fleets judged side by side")]


def accuracy(out: Out = None, raw: Raw = None, seeds: Seeds = 5, mix: Mix = None, workers: Workers = 2) -> None:
    """Judge simulated fleets whose truth is known; ends with 1 where the rules fall short of what is wanted."""
    from gpuledger.app.accuracy import MIXES, judge_all, trials  # noqa: PLC0415 only this command needs a warehouse
    from gpuledger.app.accuracy_page import page, shortfalls, sorted_out  # noqa: PLC0415

    verdicts = judge_all(trials(mix or MIXES, range(1, seeds + 1)), workers)
    if raw is not None:
        raw.write_text(json.dumps([asdict(one) for one in verdicts], indent=1), encoding="utf-8")
    if out is not None:
        out.write_text(page(verdicts), encoding="utf-8")
    short = list(shortfalls(*sorted_out(verdicts)))
    for line in short or ["Nothing falls short."]:
        typer.echo(line)
    if short:
        raise typer.Exit(1)
