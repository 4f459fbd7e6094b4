"""The one generated sentence that answers "where did the hours go", the same on the page and in the report."""

from __future__ import annotations

from gpuledger.model import State
from gpuledger.presentation import numbers
from gpuledger.presentation.balance import Balance
from gpuledger.presentation.texts import Texts


def answer(balance: Balance, texts: Texts, period: str, tenant: str = "", *, is_markdown: bool = False) -> str:
    """The sentence for the fleet, or for `tenant`. `balance` must not be empty."""

    def part(*states: State) -> str:
        hours = numbers.gpu_hours(balance.gpu_hours(*states), texts.language)
        return texts("hours.part", share=numbers.percent(balance.share(*states)), hours=hours)

    fill = texts.markdown if is_markdown else texts
    total = numbers.gpu_hours(balance.total_gpu_hours, texts.language)
    if tenant:
        return fill(
            "hours.answer_tenant",
            held=total,
            tenant=texts.tenant(tenant),
            period=period,
            productive=part(State.ALLOC_PRODUCTIVE),
            idle=part(State.ALLOC_IDLE),
            low=part(State.ALLOC_LOW),
            unknown=part(State.ALLOC_UNKNOWN, State.ALLOC_UNGRADED),
        )
    return fill(
        "hours.answer",
        inventory=total,
        period=period,
        productive=part(State.ALLOC_PRODUCTIVE),
        idle=part(State.ALLOC_IDLE),
        stranded=part(State.FREE_STRANDED),
        unavailable=part(State.UNAVAILABLE),
    )
