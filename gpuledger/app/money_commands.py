"""`gpuledger money`: what the hours of the ledger cost, by the price book."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app.client import open_warehouse
from gpuledger.app.printing import Format, emit

COLUMNS = {
    "rows": ("key", "state", "gpu_hours", "priced_gpu_hours", "amount"),
    "findings": ("finding_id", "analyzer", "tenant", "gpu_hours", "priced_gpu_hours", "amount"),
    "unpriced": ("model", "tenant", "reason", "gpu_hours", "first_at", "last_at"),
    "unit_costs": ("model", "step_count", "gpu_hours_per_step", "amount_per_step", "amount_per_1000_tokens"),
    "serving_costs": (
        "model",
        "request_count",
        "generation_token_count",
        "amount_per_1000_requests",
        "gpu_hours_per_1000_tokens",
        "amount_per_1000_tokens",
    ),
    "converted": ("key", "state", "gpu_hours", "converted_gpu_hours", "unconverted_gpu_hours"),
    "book_problems": ("model", "tenant", "from_at", "until_at", "problem", "problem_until_at"),
}


def money(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    by: Annotated[str, typer.Option(help="tenant, node, model, state, pool, stage, kind or workload")] = "state",
    price_basis: Annotated[str, typer.Option(help="amortised or list")] = "amortised",
    currency: Annotated[str | None, typer.Option(help="ISO 4217 code; needed where the book has several")] = None,
    conversion_basis: Annotated[
        str, typer.Option(help="of converted card-hours: peak_bf16, price or owner")
    ] = "peak_bf16",
    reference: Annotated[
        str | None, typer.Option(help="model of which one card-hour is one converted card-hour; default: A100")
    ] = None,
    warehouse: Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="start of the window, ISO 8601; default: all")] = None,
    to: Annotated[str | None, typer.Option("--to", help="end of the window, ISO 8601; default: all")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")] = None,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for scripts")] = Format.TEXT,
) -> None:
    """What GPU-hours cost by the price book, beside what they are. Hours without a price are counted, never zero."""
    asked = {"by": by, "price_basis": price_basis, "currency": currency, "conversion_basis": conversion_basis}
    with open_warehouse(settings_file.load(config, warehouse=warehouse), must_exist=True) as client:
        answer = client.get("/v1/money", from_=from_, to=to, reference=reference, **asked)
    emit(answer if form is Format.JSON else _for_people(answer), form, columns=COLUMNS)


def _for_people(answer: dict[str, Any]) -> dict[str, Any]:
    """The total as plain values, the converted hours as a list like the others, lists without a row left out."""
    converted = answer["converted"]
    shown = {
        **{name: answer[name] for name in ("from", "to", "price_basis", "currency")},
        **answer["total"],
        "converted_to": f"{converted['reference']} by {converted['conversion_basis']}",
        **{name: converted[name] for name in ("converted_gpu_hours", "unconverted_gpu_hours")},
    }
    names = ("rows", "findings", "unpriced", "unit_costs", "serving_costs", "book_problems")
    lists = {name: answer[name] for name in names}
    return {**shown, **{name: rows for name, rows in {**lists, "converted": converted["rows"]}.items() if rows}}
