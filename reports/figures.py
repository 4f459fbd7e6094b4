"""What the weekly report says, read from named queries, before it becomes HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuledger.model import Window
from gpuledger.ports import QueryRunner
from gpuledger.presentation import numbers
from gpuledger.presentation.balance import Balance
from gpuledger.presentation.findings import FindingView, ranked
from gpuledger.presentation.texts import Texts

Rows = list[dict[str, Any]]

LARGEST_FINDINGS = 3
PRICE_BASIS = "amortised"
ASIDE = ("quota", "health", "advice")
"""Categories that are no waste of GPU-hours in the ledger: they have a list of their own."""
QUERIES = (
    "ledger_by",
    "ledger_series",
    "ledger_tenants",
    "ledger_rates",
    "ledger_extent",
    "finding_list",
    "findings_by_category",
    "money_currencies",
    "money_by_finding",
    "inventory_differences",
    "coverage_by_node",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for: a window, for all or one tenant, shown in a zone and a language."""

    window: Window
    tenant: str
    timezone: str
    texts: Texts

    @property
    def previous(self) -> Window:
        """The window of the same length just before."""
        return Window(self.window.from_at - (self.window.to_at - self.window.from_at), self.window.from_at)

    @property
    def period(self) -> str:
        """The window as text."""
        return numbers.period(self.window.from_at, self.window.to_at, self.timezone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that the report shows; `money` has what findings cost, by currency, and is empty without prices."""

    extent: Mapping[str, Any]
    balance: Balance
    previous: Balance
    days: Rows
    tenants: Rows
    rates: Rows
    findings: list[FindingView]
    categories: Rows
    money: dict[str, Rows]
    differences: Rows
    nodes: Rows

    @property
    def coverage_ratio(self) -> float | None:
        """The fleet's coverage, as its rate says."""
        return next((rate["value"] for rate in self.rates if rate["name"] == "coverage"), None)


def _balance(client: QueryRunner, window: Window, tenant: str) -> Balance:
    by = "tenant" if tenant else "state"
    rows = client.query("ledger_by", by=by, from_at=window.from_at, to_at=window.to_at).to_pylist()
    return Balance.of_tenant(rows, tenant) if tenant else Balance.of_fleet(rows)


def collect(client: QueryRunner, asked: Asked) -> Figures:
    """Ask the queries. An empty warehouse gives empty figures, not an error."""
    window, tenant = asked.window, asked.tenant
    bounds = {"from_at": window.from_at, "to_at": window.to_at}
    priced = {"price_basis": PRICE_BASIS, **bounds}

    def rows(name: str, **parameters: Any) -> Rows:
        found: Rows = client.query(name, **parameters).to_pylist()
        return found

    findings = [
        row
        for row in rows("finding_list", analyzer="", tenant=tenant)
        if row["window_start"] < window.to_at and row["window_end"] > window.from_at
    ]
    return Figures(
        extent=next(iter(rows("ledger_extent")), {}),
        balance=_balance(client, window, tenant),
        previous=_balance(client, asked.previous, tenant),
        days=rows("ledger_series", bucket="day", timezone=asked.timezone, tenant=tenant, **bounds),
        tenants=[row for row in rows("ledger_tenants", **bounds) if tenant in {"", row["tenant"]}],
        rates=rows("ledger_rates", **bounds),
        findings=ranked(findings, asked.texts),
        categories=rows("findings_by_category", tenant=tenant, **bounds),
        money={
            currency["currency"]: [
                row
                for row in rows("money_by_finding", currency=currency["currency"], **priced)
                if tenant in {"", row["tenant"]}
            ]
            for currency in rows("money_currencies", **priced)
        },
        differences=rows("inventory_differences"),
        nodes=[] if tenant else rows("coverage_by_node", **bounds),
    )
