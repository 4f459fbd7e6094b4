"""Money as a view on GPU-hours: what the ledger's hours and the findings cost by the price book. Nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response

from gpuledger.app import parameters
from gpuledger.app.encoding import to_json
from gpuledger.errors import BadInput
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

REFERENCE = "A100"
"""The model of which a card-hour is one converted card-hour, where nobody names another."""

_SUMMED = (
    "gpu_hours",
    "priced_gpu_hours",
    "unpriced_gpu_hours",
    "overlapping_gpu_hours",
    "other_currency_gpu_hours",
    "amount",
)

Rows = list[dict[str, Any]]


def money(runner: QueryRunner, window: Window, asked: Mapping[str, str]) -> dict[str, Any]:
    """What the hours of `window` cost, in one currency: by `by` and state, by finding, a step, requests and tokens.

    `asked` may name `by`, `price_basis` (amortised or list), `currency`, `conversion_basis` and `reference`. Beside
    each amount stand the hours it covers and those that it does not, by reason. Raises BadInput where the book speaks
    of several currencies and none is chosen: amounts of different currencies are never added.
    """
    span = {"from_at": window.from_at, "to_at": window.to_at}
    by, basis = _read(asked, "by", "state"), _read(asked, "price_basis", "amortised")
    known = _rows(runner, "money_currencies", price_basis=basis, **span)
    currency = _currency(asked.get("currency", ""), [row["currency"] for row in known])
    priced = {"price_basis": basis, "currency": currency, **span}
    rows = _rows(runner, "money_by", by=by, **priced)
    findings = _rows(runner, "money_by_finding", **priced)
    return {
        "from": window.from_at,
        "to": window.to_at,
        "by": by,
        "price_basis": basis,
        "currency": currency or None,
        "currencies": [row["currency"] for row in known],
        "rows": rows,
        "total": _total(rows),
        "findings": findings,
        "finding_totals": {
            category: _total([row for row in findings if row["category"] == category])
            for category in sorted({row["category"] for row in findings})
        },
        "unpriced": _rows(runner, "money_unpriced", **priced),
        "unit_costs": _rows(runner, "unit_cost", **priced),
        "serving_costs": _rows(runner, "serving_cost", **priced),
        "converted": _converted(runner, span, by, basis, asked),
        "book_problems": [row for row in _rows(runner, "money_book") if row["problem"] and row["basis"] == basis],
    }


def _converted(
    runner: QueryRunner, span: Mapping[str, Any], by: str, basis: str, asked: Mapping[str, str]
) -> dict[str, Any]:
    conversion, reference = _read(asked, "conversion_basis", "peak_bf16"), asked.get("reference") or REFERENCE
    rows = _rows(
        runner,
        "converted_hours",
        by=by,
        conversion_basis=conversion,
        price_basis=basis,
        reference=parameters.read("reference", reference),
        **span,
    )
    return {
        "conversion_basis": conversion,
        "reference": reference,
        "rows": rows,
        "gpu_hours": _sum(rows, "gpu_hours") or 0.0,
        "converted_gpu_hours": _sum(rows, "converted_gpu_hours"),
        "unconverted_gpu_hours": _sum(rows, "unconverted_gpu_hours") or 0.0,
    }


def _read(asked: Mapping[str, str], name: str, default: str) -> str:
    return str(parameters.read(name, asked.get(name) or default))


def _rows(runner: QueryRunner, name: str, **given: Any) -> Rows:
    rows: Rows = runner.query(name, **given).to_pylist()
    return rows


def _currency(wanted: str, known: list[str]) -> str:
    """The one currency of the answer; empty where the book has no price."""
    if not wanted and len(known) > 1:
        reason = f"the price book has {', '.join(known)}: choose one, amounts of two currencies are never added"
        raise BadInput("currency", reason)
    if wanted and wanted not in known:
        raise BadInput("currency", f"{wanted[:40]!r} has no price in this period; known: {', '.join(known) or 'none'}")
    return wanted or next(iter(known), "")


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Their sum; None where none is known."""
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _total(rows: Rows) -> dict[str, float | None]:
    total = {name: _sum(rows, name) for name in _SUMMED}
    return {name: value if name == "amount" else value or 0.0 for name, value in total.items()}


def register(app: FastAPI) -> None:
    """The route of money."""

    @app.get("/v1/money")
    def read_money(request: Request) -> Response:
        """What the ledger's hours and the findings cost, by the price book."""
        service, given = request.app.state.service, dict(request.query_params)
        window = service.ledger_window(given.pop("from", None), given.pop("to", None))
        parameters.only(given, "by", "price_basis", "currency", "conversion_basis", "reference")
        return Response(to_json(money(service, window, given)), media_type="application/json")
