"""Queues, workloads, pods, events and problems, as one snapshot after another lists them."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from gpuledger.app.schedulers.look import Look
from gpuledger.app.schedulers.rows import changed, empty, frame, gone
from gpuledger.model import QualityEvent, to_table

Step = tuple[pl.DataFrame, pl.DataFrame]
"""The rows to store, and what is known after that."""

REFRESH = timedelta(minutes=5)
"""How often a pod that does not change is stored again: one that nobody lists for 15 minutes counts as gone."""

WAITING = ("held", "pending", "admitted", "suspended", "preempted")
OVER = ("finished", "failed", "cancelled")
ENDED_PHASES = ("Succeeded", "Failed")


def next_queues(known: pl.DataFrame, look: Look) -> Step:
    """Queues that changed; one that is listed no more is closed."""
    listed = look.of("queue")
    left = gone(listed, known, ["queue"])
    closed = look.visible_queues(left).filter(pl.col("status") != "closed").with_columns(status=pl.lit("closed"))
    if not look.is_whole("queue"):
        closed = closed.clear()
    kept = gone(closed, left, ["queue"])
    return pl.concat([changed(listed, known, ["queue"]), closed]), pl.concat([kept, listed])


def next_workloads(known: pl.DataFrame, look: Look) -> Step:
    """Workloads that changed; one that is listed no more has ended, how is not known unless it never ran."""
    listed = look.of("workload").unique("workload_id", keep="last", maintain_order=True)
    left = gone(listed, known, ["workload_id"]).filter(pl.col("ended_at").is_null() & ~pl.col("status").is_in(OVER))
    vanished = look.visible(left) if look.is_whole("workload") else left.clear()
    never_ran = pl.col("started_at").is_null() & pl.col("status").is_in(WAITING)
    ended = vanished.with_columns(
        ended_at=pl.max_horizontal(pl.lit(look.ended_at), "submitted_at", "started_at"),
        status=pl.when(never_ran).then(pl.lit("cancelled")).otherwise(pl.lit("unknown")),
        pending_cause=pl.lit(None, pl.String),
        pending_reason=pl.lit(None, pl.String),
    )
    kept = gone(vanished, left, ["workload_id"])
    return pl.concat([changed(listed, known, ["workload_id"]), ended]), pl.concat([kept, listed])


def next_pods(known: pl.DataFrame, look: Look) -> Step:
    """Pods that changed or were not stored for a while; one that is listed no more has ended."""
    listed = look.of("pod").unique("uid", keep="last", maintain_order=True)
    is_over = pl.col("ended_at").is_not_null() | pl.col("phase").is_in(ENDED_PHASES).fill_null(value=False)
    seen_at = pl.when(is_over).then("seen_at").otherwise(pl.lit(look.taken_at))
    listed = listed.with_columns(seen_at=seen_at)
    fresh = changed(listed, known, ["uid"], but=["seen_at"])
    same = listed.join(fresh.select("uid"), on="uid", how="anti")
    before = same.select("uid").join(known.select("uid", stored_at="seen_at"), on="uid", maintain_order="left")
    stale = before.filter(pl.col("stored_at") <= look.taken_at - REFRESH).select("uid")
    again = same.filter(~is_over).join(stale, on="uid", how="semi")
    left = gone(listed, known, ["uid"]).filter(~is_over)
    vanished = look.visible(left) if look.is_whole("pod") else left.clear()
    ended_at = pl.max_horizontal(pl.lit(look.ended_at), "created_at", "started_at", "seen_at")
    ended = vanished.with_columns(ended_at=ended_at, seen_at=ended_at)
    stored = pl.concat([fresh, again])
    unchanged = known.join(stored.select("uid"), on="uid", how="anti").join(listed.select("uid"), on="uid", how="semi")
    kept = gone(vanished, left, ["uid"])
    return pl.concat([stored, ended]), pl.concat([stored, unchanged, kept])


def next_allocations(known: pl.DataFrame, look: Look, places: pl.DataFrame) -> Step:
    """Allocations that changed; one that is listed no more has ended. `places` are namespaces of workloads."""
    key = ["allocation_id"]
    listed = look.of("allocation")
    left = gone(listed, known, key).filter(pl.col("ended_at").is_null())
    vanished = look.visible_work(left, places) if look.is_whole("allocation") else left.clear()
    ended = vanished.with_columns(ended_at=pl.max_horizontal(pl.lit(look.ended_at), "started_at"))
    return pl.concat([changed(listed, known, key), ended]), pl.concat([gone(vanished, left, key), listed])


def next_events(known: pl.DataFrame, look: Look) -> Step:
    """Events that the last snapshot did not list: schedulers tell the same ones for a while."""
    listed = look.of("workload_event")
    return changed(listed, known, ["workload_id", "ts", "kind", "pod"]), listed


def next_problems(known: pl.DataFrame, look: Look, scheduler: str) -> Step:
    """What was wrong with the snapshot and what it could not see: each once an hour, dated with the hour's begin.

    So the sum of an hour is what was wrong, not how often somebody looked.
    """
    told = look.of("quality_event")
    silent = [
        QualityEvent(
            ts=look.taken_at,
            source=scheduler,
            subject_kind="target",
            subject=what,
            kind="not_permitted",
            detail=answer,
            count=1,
        )
        for what, answer in look.scope.denied
    ]
    denied = frame(to_table("quality_event", silent)) if silent else empty("quality_event")
    unsaid = denied.join(told.filter(pl.col("kind") == "not_permitted"), on=["source", "subject"], how="anti")
    hour = pl.lit(look.taken_at).dt.truncate("1h")
    key = ["ts", "source", "subject", "kind", "detail"]
    now = pl.concat([told, unsaid]).with_columns(ts=hour).unique(key, keep="first", maintain_order=True)
    before = known.filter(pl.col("ts") == hour)
    fresh = gone(before, now, key)
    return fresh, pl.concat([before, fresh])
