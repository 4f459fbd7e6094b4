"""Accounts and QOS as queues: what they may hold, what they hold, what waits in them.

An account is a queue, with the account above it as parent. A limit of one user of an account, or of each user, account
or job of a QOS, is a queue of its own below it ("team-a/user/ann", "qos/high/per-user"): limits of different reach are
never one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuledger.model import Queue, QueueResource, QueueState, Quota, canonical_model
from schedulers.rows import INSTANT_SECONDS, SnapshotRows
from schedulers.slurm.facts import Association, Facts, Qos
from schedulers.slurm.jobs import NAMESPACE, JobRows, Reading
from schedulers.slurm.tres import GPU, share_of, tres

_WAITS_FOR_OTHERS = frozenset({"held", "dependency"})


@dataclass(slots=True)
class _Account:
    """What the jobs of one account hold and wait for; `used` with those of the accounts below it."""

    running: float = 0.0
    pending: float = 0.0
    used: dict[str, float] = field(default_factory=dict)
    is_known: bool = True
    is_moving: bool = False

    def hold(self, reading: Reading) -> None:
        """Count what a job holds; once one could not be counted, the whole is not known."""
        self.is_moving = self.is_moving or bool(reading.job.states - {"RUNNING"})
        if reading.held.total is None:
            self.is_known = False
            return
        for resource, amount in tres(reading.job.tres_alloc).items():
            self.used[resource] = self.used.get(resource, 0.0) + amount


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRows:
    """Makes the rows of queues from what the accounting says and what jobs hold."""

    facts: Facts
    rows: SnapshotRows
    jobs: JobRows

    def add(self, readings: Sequence[Reading]) -> None:
        """The rows of accounts, their users and QOS. Without the accounting, only the accounts that jobs name."""
        self.rows.listed("queue", "quota", "queue_resource", "queue_state")
        accounts = {one.account: one for one in self.facts.associations if not one.user and not one.partition}
        parents = {name: one.parent for name, one in accounts.items()}
        counts, by_qos = _count(readings, parents), _count_qos(readings)
        for name in sorted({*accounts, *counts} - {""}):
            with self.rows.sparing(self.rows.named(name), "queue"):
                self._account(name, accounts.get(name), counts.get(name, _Account()))
        if not self.facts.is_accounting_read:
            return
        by_user = _count_users(readings)
        for one in self.facts.associations:
            limits = _own_limits(one, accounts.get(one.account))
            if (one.user or one.partition) and limits:
                with self.rows.sparing(f"{one.account}/{one.user}", "queue"):
                    self._user(one, limits, by_user.get((one.account, one.user), _Account()))
        for qos in self.facts.qos:
            with self.rows.sparing(f"qos/{qos.name}", "queue"):
                self._qos(qos, by_qos.get(qos.name, _Account()))

    def _account(self, name: str, account: Association | None, count: _Account) -> None:
        queue, now = self.rows.named(name), self.rows.taken_at
        tenant = self.jobs.tenant(name, {"account": name}, now)
        parent = account.parent if account else ""
        self.rows.add(Queue(queue=queue, tenant=tenant, scheduler=self.rows.scheduler, parent=self._parent(parent)))
        limits = tres(account.limits.tres.get("group")) if account else {}
        told = self.facts.used.get((name, ""))
        used = told if told is not None else (count.used if count.is_known else None)
        if account is not None and self.facts.is_accounting_read:
            self._limits(queue, tenant, limits, used, weight=account.share)
            self._each(queue, tenant, account.limits.tres)
            self._judge(queue, limits, told, count)
        if count.is_known:
            self.rows.add(
                QueueState(
                    ts=now,
                    queue=queue,
                    tenant=tenant,
                    duration_seconds=INSTANT_SECONDS,
                    nominal_gpus=limits.get(GPU),
                    running_gpus=count.running,
                    pending_gpus=count.pending,
                )
            )

    def _parent(self, parent: str) -> str | None:
        return self.rows.named(parent) if parent else None

    def _judge(
        self, queue: str, limits: Mapping[str, float], told: Mapping[str, float] | None, count: _Account
    ) -> None:
        """Where Slurm's own count is not what its jobs hold, and where a limit was lowered below what is held."""
        held = count.used.get(GPU, 0.0)
        # Slurm stops to count what completes before its nodes let go of it.
        is_settled = count.is_known and not count.is_moving
        if told is not None and GPU in told and is_settled and told[GPU] != held:
            self.rows.problem(
                "quota_mismatch",
                queue,
                f"Slurm counts {told[GPU]:g} GPUs, its jobs hold {held:g}",
                subject_kind="queue",
                count=round(abs(told[GPU] - held)),
            )
        for resource, limit in limits.items():
            if count.used.get(resource, 0.0) > limit and resource.startswith(GPU):
                self.rows.problem(
                    "limit_not_enforced", queue, f"{resource}: limit {limit:g}", subject_kind="queue",
                    count=round(count.used[resource]),
                )  # fmt: skip

    def _limits(
        self,
        queue: str,
        tenant: str,
        limits: Mapping[str, float],
        used: Mapping[str, float] | None,
        *,
        weight: float | None = None,
        is_own: bool = True,
    ) -> None:
        """What a queue may hold, of GPUs as a quota, of everything as Slurm says it.

        A limit of one type lies within that of all GPUs: beside it, it is no second quota.
        """
        now = self.rows.taken_at
        by_model = {} if GPU in limits else _by_model(limits)
        for flavor, limit in {"": limits.get(GPU), **by_model}.items():
            self.rows.add(
                Quota(
                    queue=queue,
                    tenant=tenant,
                    flavor=flavor,
                    nominal_gpus=limit if is_own else None,
                    limit_gpus=limit,
                    weight=1.0 if weight is None else weight,
                    from_at=now,
                )
            )
        seen = {name for name, amount in (used or {}).items() if name.startswith(GPU) and amount}
        for resource in sorted({GPU, *limits, *seen}):
            amount = limits.get(resource)
            self.rows.add(
                QueueResource(
                    queue=queue,
                    resource=resource,
                    nominal=amount if is_own else None,
                    limit=amount,
                    used=None if used is None else used.get(resource, 0.0),
                    from_at=now,
                )
            )

    def _each(self, queue: str, tenant: str, limits: Mapping[str, str]) -> None:
        """Limits of each user, account or job, which nobody holds together."""
        for scope, text in sorted(limits.items()):
            amounts = tres(text)
            if scope == "group" or not any(name.startswith(GPU) for name in amounts):
                continue
            below = f"{queue}/per-{scope}"
            self.rows.add(Queue(queue=below, tenant=tenant, scheduler=self.rows.scheduler, parent=queue))
            self._limits(below, tenant, amounts, None, is_own=False)

    def _user(self, one: Association, limits: Mapping[str, str], count: _Account) -> None:
        parts = ("user", one.user) if one.user else ("partition", one.partition)
        where = (*parts, one.partition) if one.user and one.partition else parts
        queue = self.rows.named("/".join((one.account, *where)))
        tenant = self.jobs.tenant(one.account, {"account": one.account, "user": one.user}, self.rows.taken_at)
        self.rows.add(
            Queue(queue=queue, tenant=tenant, scheduler=self.rows.scheduler, parent=self.rows.named(one.account))
        )
        told = self.facts.used.get((one.account, one.user), count.used if count.is_known else None)
        used = None if one.partition else told
        self._limits(queue, tenant, tres(limits.get("group")), used, weight=one.share, is_own=False)
        self._each(queue, tenant, limits)

    def _qos(self, qos: Qos, count: _Account) -> None:
        queue = self.rows.named(f"qos/{qos.name}")
        self.rows.add(Queue(queue=queue, tenant=NAMESPACE, scheduler=self.rows.scheduler))
        limits = tres(qos.limits.tres.get("group"))
        told = self.facts.used.get((f"qos/{qos.name}", ""))
        used = told if told is not None else (count.used if count.is_known else None)
        self._limits(queue, NAMESPACE, limits, used, is_own=False)
        self._each(queue, NAMESPACE, qos.limits.tres)


def _by_model(limits: Mapping[str, float]) -> dict[str, float]:
    """Limits of one type of GPU in whole cards, by model; types whose part of a card is not known are left out."""
    found: dict[str, float] = {}
    for resource, limit in limits.items():
        kind = resource.removeprefix(f"{GPU}:")
        share = share_of(kind) if kind != resource else None
        if share is not None:
            model = canonical_model(kind.replace("_", " ")) or kind
            found[model] = found.get(model, 0.0) + limit * share
    return found


def _count(readings: Iterable[Reading], parents: Mapping[str, str]) -> dict[str, _Account]:
    """What jobs of each account hold and wait for; what they hold counts in the accounts above it too."""
    counts: dict[str, _Account] = {}
    for reading in readings:
        own = counts.setdefault(reading.job.account, _Account())
        if reading.why is not None and reading.job.is_waiting and reading.why.cause not in _WAITS_FOR_OTHERS:
            own.pending += reading.waiting_gpus
        if not reading.job.is_holding:
            continue
        if reading.held.total is not None:
            own.running += reading.held.total
        for name in _above(reading.job.account, parents):
            counts.setdefault(name, _Account()).hold(reading)
    return counts


def _count_qos(readings: Iterable[Reading]) -> dict[str, _Account]:
    """What the jobs of each QOS hold."""
    counts: dict[str, _Account] = {}
    for reading in readings:
        if reading.job.is_holding:
            counts.setdefault(reading.job.qos, _Account()).hold(reading)
    return counts


def _count_users(readings: Iterable[Reading]) -> dict[tuple[str, str], _Account]:
    """What the jobs of each user of an account hold."""
    counts: dict[tuple[str, str], _Account] = {}
    for reading in readings:
        if reading.job.is_holding:
            counts.setdefault((reading.job.account, reading.job.user), _Account()).hold(reading)
    return counts


def _own_limits(one: Association, account: Association | None) -> Mapping[str, str]:
    """The limits of a user without those that Slurm shows at each user of the account: they are the account's."""
    above = account.limits.tres if account else {}
    return {scope: text for scope, text in one.limits.tres.items() if scope == "group" or text != above.get(scope)}


def _above(account: str, parents: Mapping[str, str]) -> Iterable[str]:
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = parents.get(account, "")
