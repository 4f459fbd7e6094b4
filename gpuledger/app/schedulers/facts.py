"""Facts with a begin and an end, as one snapshot after another lists them: what begins, what ends, what goes on."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from gpuledger.app.schedulers.rows import EPISODES, SUBJECTS, beside, changed, differs, gone


def next_facts(
    record: str, known: pl.DataFrame, told: pl.DataFrame, listed: pl.DataFrame, taken_at: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that say what changed, and the facts that hold now, from those `known` so far and those `listed`.

    Those that were `told` have ended.

    A fact that says the same as before goes on from its own begin. One that says something else begins when the
    scheduler dates it, else at `taken_at`, and ends the one before it; what it dates before the end of the one before
    begins at `taken_at`, too. Facts that are not listed are left alone: `ended` ends them.
    """
    subject, columns = SUBJECTS[record], listed.columns
    listed = listed.filter(pl.col("until_at").is_null()).sort("from_at").unique(subject, keep="last")
    others = [name for name in columns if name not in {*subject, "from_at", "until_at"}]
    is_other = differs(EPISODES.get(record, others))
    is_later = (pl.col("from_at") > pl.col("from_at_old")).fill_null(value=True)
    is_again = ~is_other & is_later & (pl.col("from_at") < taken_at)
    ends = told.group_by(subject).agg(last_end=pl.max("until_at"))
    is_dated = is_later & (pl.col("from_at") >= pl.col("last_end")).fill_null(value=True)
    judged = (
        beside(listed, known, subject)
        .join(ends, on=list(subject), how="left", nulls_equal=True)
        .with_columns(begins=~pl.col("is_known") | is_other | is_again)
        .with_columns(
            from_at=pl.when(pl.col("begins") & is_dated)
            .then("from_at")
            .when("begins")
            .then(pl.max_horizontal(pl.lit(taken_at), "from_at_old"))
            .otherwise("from_at_old")
        )
    )
    fresh = judged.filter(pl.col("begins") | differs(others)).select(columns)
    ends = judged.filter(pl.col("is_known") & (pl.col("from_at") > pl.col("from_at_old")))
    over = known.join(ends.select(*subject, ends_at="from_at"), on=list(subject), nulls_equal=True)
    over = over.with_columns(until_at="ends_at").select(columns)
    unlisted = gone(listed, known, subject).select(columns)
    return pl.concat([over, fresh]), pl.concat([unlisted, judged.select(columns)])


def missing(record: str, known: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """The facts of `known` that are not listed any more."""
    return gone(listed.filter(pl.col("until_at").is_null()), known, SUBJECTS[record])


def ended(facts: pl.DataFrame, until_at: datetime) -> pl.DataFrame:
    """`facts`, ended at `until_at`."""
    return facts.with_columns(until_at=pl.max_horizontal(pl.lit(until_at), "from_at"))


def past(record: str, listed: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Facts that ended already when they were listed, apart from those that were `told` before."""
    return changed(over(listed), told, (*SUBJECTS[record], "from_at"))


def over(listed: pl.DataFrame) -> pl.DataFrame:
    """Facts that have an end."""
    return listed.filter(pl.col("until_at").is_not_null())


def last(record: str, told: pl.DataFrame) -> pl.DataFrame:
    """Of facts that ended the last of each subject."""
    return told.sort("until_at", "from_at").unique(SUBJECTS[record], keep="last", maintain_order=True)
