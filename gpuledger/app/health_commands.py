"""`gpuledger health`: how often hardware fails, and how much of the time training made progress."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app.client import open_warehouse
from gpuledger.app.printing import Format, emit


def health(
    gpus: Annotated[str | None, typer.Option(help="sizes of jobs to model, GPUs, as 1024,2048")] = None,
    warehouse: Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="start of the window, ISO 8601; default: all")] = None,
    to: Annotated[str | None, typer.Option("--to", help="end of the window, ISO 8601; default: all")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")] = None,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for scripts")] = Format.TEXT,
) -> None:
    """Failure rate and MTTF, effective training time (ETTR) observed and expected, goodput.

    What is expected is modelled from the observed rate; it is never an observation. A dash is unknown, not zero.
    """
    with open_warehouse(settings_file.load(config, warehouse=warehouse), must_exist=True) as client:
        answer = client.get("/v1/health-figures", from_=from_, to=to, gpus=gpus)
    emit(answer if form is Format.JSON else _for_people(answer), form)


def _for_people(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The same figures as tables."""
    mttf, ettr, goodput = answer["mttf"], answer["ettr"], answer["goodput"]
    shown = ("failure_count", "node_days", "failures_per_1000_node_days", "low_per_1000_node_days")
    return {
        "from": answer["from"],
        "to": answer["to"],
        "failures": [{name: mttf[name] for name in (*shown, "high_per_1000_node_days")}],
        "mttf_modelled": mttf["modelled"],
        "ettr_observed": [
            {
                name: ettr["observed"][name]
                for name in ("run_count", "ratio", "ratio_without_queue", "low", "high", "bounded_run_count")
            }
        ],
        "ettr_expected": ettr["expected"],
        "goodput": [{"factor": name, **goodput[name]} for name in ("scheduling", "runtime", "program")],
    }
