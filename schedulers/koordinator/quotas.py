"""ElasticQuotas: a tree of queues with what each is sure of (min), may hold at most (max), holds and lends."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuledger.attribution import Rules, Subject, attribute
from gpuledger.errors import BadInput
from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.cards import Cards
from schedulers.koordinator.kinds import QUOTA, ROOT_QUOTA, amounts, annotation, labels_of
from schedulers.koordinator.worth import worth
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.rows import INSTANT_SECONDS, SnapshotRows

Amounts = Mapping[str, float]
Measure = Callable[[Amounts | None], float | None]
"""One number out of a list of resources: the GPUs in it, or one resource; None where it does not say."""

EPSILON = 1e-6
_BOOKS = ("runtime", "request", "guaranteed", "allocated", "shared-weight", "non-preemptible-used")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """One ElasticQuota.

    `told` are the lists of resources in its annotations by name, without those that are not there or cannot be read.
    """

    name: str
    namespace: str
    parent: str
    tree: str
    labels: Mapping[str, str]
    least: Amounts
    most: Amounts
    used: Amounts | None
    told: Mapping[str, Amounts]

    @property
    def lends(self) -> bool:
        """Whether others may use what it does not ask for."""
        return self.labels.get(f"{QUOTA}/allow-lent-resource") != "false"

    @property
    def is_parent(self) -> bool:
        """Whether it holds quotas and no pods of its own."""
        return self.labels.get(f"{QUOTA}/is-parent") == "true"

    def borrowed(self, measure: Measure) -> float | None:
        """What it holds beyond what it is sure of."""
        used, least = measure(self.used), self.sure(measure)
        return None if used is None or least is None else max(0.0, used - least)

    def sure(self, measure: Measure) -> float | None:
        """What it is sure of: nothing of a resource that only its most names, as Koordinator has it."""
        least = measure(self.least)
        return 0.0 if least is None and measure(self.most) is not None else least

    def given_up(self, measure: Measure) -> float | None:
        """What of its own others are entitled to now: what its runtime, or its request, leaves of its least."""
        least = self.sure(measure)
        if not self.lends:
            return 0.0
        wanted = measure(self.told.get("runtime"))
        wanted = measure(self.told.get("request")) if wanted is None else wanted
        return None if least is None or wanted is None else max(0.0, least - wanted)


def elastic_quotas(objects: Iterable[Object], rows: SnapshotRows) -> list[Elastic]:
    """The quotas that can be understood, and of each the annotations that can."""
    found: dict[str, Elastic] = {}
    for one in objects:
        with rows.sparing(rows.named(str(meta(one).get("name"))), "queue"):
            quota = _elastic(one, rows)
            if quota.name in found:
                raise BadInput(
                    name_of(one), f"is also in namespace {found[quota.name].namespace}; names are the cluster's"
                )
            found[quota.name] = quota
    return list(found.values())


def _elastic(one: Object, rows: SnapshotRows) -> Elastic:
    spec, status, labels = one.get("spec") or {}, one.get("status") or {}, labels_of(one)
    name = meta(one)["name"]
    told = {}
    for book in _BOOKS:
        with rows.sparing(rows.named(name), "queue"):
            given = annotation(one, f"{QUOTA}/{book}")
            if given is not None:
                told[book] = amounts(given, book)
    parent = labels.get(f"{QUOTA}/parent") or ("" if name == ROOT_QUOTA else ROOT_QUOTA)
    return Elastic(
        name=name,
        namespace=meta(one)["namespace"],
        parent=parent,
        tree=labels.get(f"{QUOTA}/tree-id") or ROOT_QUOTA,
        labels=labels,
        least=amounts(spec.get("min") or {}, "spec.min"),
        most=amounts(spec.get("max") or {}, "spec.max"),
        used=amounts(status["used"], "status.used") if status.get("used") is not None else None,
        told=told,
    )


@dataclass(slots=True)
class QuotaRows:
    """Adds the rows of all quotas. `held` and `waiting` are GPUs of their pods, None where not all pods were shown."""

    quotas: Sequence[Elastic]
    rows: SnapshotRows
    rules: Rules
    cards: Cards
    held: Mapping[str, float] | None
    waiting: Mapping[str, float] | None
    reserved: Mapping[str, float] | None
    _below: dict[str, list[Elastic]] = field(default_factory=lambda: defaultdict(list))

    def add(self) -> None:
        """Everything."""
        names = {quota.name for quota in self.quotas}
        for quota in self.quotas:
            self._below[quota.parent].append(quota)
        for quota in self.quotas:
            with self.rows.sparing(self.rows.named(quota.name), "queue"):
                self._add_one(quota, names)
                self._problems(quota, names)

    def gpus(self, given: Amounts | None) -> float | None:
        """A measure: the GPUs in a list."""
        return None if given is None else worth(given, self.cards)

    def least_gpus(self, given: Amounts | None) -> float | None:
        """A measure: the GPUs that a limit allows."""
        return None if given is None else worth(given, self.cards, is_limit=True)

    def _add_one(self, quota: Elastic, names: set[str]) -> None:
        at, name, tenant = self.rows.taken_at, self.rows.named(quota.name), self._tenant(quota)
        has_parent = quota.parent in names or quota.parent == quota.tree
        self.rows.add(
            Queue(
                queue=name,
                tenant=tenant,
                cohort=self.rows.named(quota.tree),
                scheduler=self.rows.scheduler,
                parent=self.rows.named(quota.parent) if has_parent and quota.parent else None,
            ),
            Quota(
                queue=name,
                tenant=tenant,
                nominal_gpus=quota.sure(self.least_gpus),
                limit_gpus=self.least_gpus(quota.most),
                guarantee_gpus=self.gpus(quota.told.get("non-preemptible-used")) or 0.0,
                weight=self._weight(quota),
                not_reported=self._not_reported(quota),
                from_at=at,
            ),
        )
        used = self.gpus(quota.used)
        running = self._of_pods(quota, self.held) if used is None else used
        is_leaf = all(one is quota for one in self._below.get(quota.name, ()))
        if running is not None and is_leaf:
            self.rows.add(self._state(quota, name, tenant, running))
        for resource in sorted({*quota.least, *quota.most, *(quota.used or {})}):
            self.rows.add(self._resource(quota, name, resource))

    def _weight(self, quota: Elastic) -> float:
        """Its part of what is shared out beyond leasts: what is written, else its most."""
        written = self.gpus(quota.told.get("shared-weight"))
        most = self.gpus(quota.most)
        return written or (most if most is not None else 1.0)

    def _not_reported(self, quota: Elastic) -> str:
        """Slices whose part of a card is not known leave a number that is too small."""
        partial = (("nominal_gpus", quota.least), ("limit_gpus", quota.most))
        return "|".join(column for column, given in partial if self.cards.count(given).is_partial)

    def _tenant(self, quota: Elastic) -> str:
        """As ruled by name and labels, else its own name: quotas of all teams may be in one namespace."""
        found = attribute(Subject("", quota.name), quota.labels, self.rows.taken_at, self.rules)
        return found.tenant or quota.name

    def _state(self, quota: Elastic, name: str, tenant: str, running: float) -> QueueState:
        used, request = self.gpus(quota.used), self.gpus(quota.told.get("request"))
        pending = self._of_pods(quota, self.waiting)
        if used is not None and request is not None:
            pending = max(0.0, request - used)
        return QueueState(
            ts=self.rows.taken_at,
            queue=name,
            tenant=tenant,
            duration_seconds=INSTANT_SECONDS,
            nominal_gpus=quota.sure(self.least_gpus),
            running_gpus=running,
            pending_gpus=pending,
            borrowed_gpus=quota.borrowed(self.gpus),
            lent_gpus=self.lent(quota, self.gpus),
            reserved_gpus=self._of_pods(quota, self.reserved),
        )

    def _of_pods(self, quota: Elastic, book: Mapping[str, float] | None) -> float | None:
        """What the book has for a quota and those below it."""
        if book is None:
            return None
        below = [self._of_pods(one, book) or 0.0 for one in self._below.get(quota.name, ()) if one.name != quota.name]
        return book.get(quota.name, 0.0) + sum(below)

    def _resource(self, quota: Elastic, name: str, resource: str) -> QueueResource:
        def measure(given: Amounts | None) -> float | None:
            return None if given is None else given.get(resource)

        used, request = measure(quota.used), measure(quota.told.get("request"))
        return QueueResource(
            queue=name,
            resource=resource,
            nominal=quota.sure(measure),
            limit=measure(quota.most),
            used=used,
            borrowed=quota.borrowed(measure),
            lent=self.lent(quota, measure),
            pending=None if used is None or request is None else max(0.0, request - used),
            from_at=self.rows.taken_at,
        )

    def lent(self, quota: Elastic, measure: Measure) -> float | None:
        """What others hold of its own: its part of what its siblings of one tree borrow, by what each of them gave up.

        None where it is not told what a quota, or a sibling, asks for or holds.
        """
        siblings = [one for one in self._below[quota.parent] if one.tree == quota.tree]
        mine = quota.given_up(measure)
        if not mine:
            return mine
        offered = [one.given_up(measure) for one in siblings]
        borrowed = [one.borrowed(measure) for one in siblings if measure(one.used) is not None]
        total = sum(part for part in offered if part is not None)
        taken = sum(part for part in borrowed if part is not None)
        return round(mine * min(1.0, taken / total), 6)

    def _problems(self, quota: Elastic, names: set[str]) -> None:
        name = self.rows.named(quota.name)
        least, most, used = self.least_gpus(quota.least), self.least_gpus(quota.most), self.gpus(quota.used)
        below = [self.least_gpus(one.least) or 0.0 for one in self._below.get(quota.name, ()) if one is not quota]
        if quota.parent and quota.parent not in names and quota.parent != ROOT_QUOTA:
            self._problem("bad_quota", name, f"its parent {quota.parent} is not there", 1)
        if least is not None and most is not None and least > most + EPSILON:
            self._problem("bad_quota", name, f"min is {least:g} GPUs, max {most:g}", least)
        if least is not None and sum(below) > least + EPSILON:
            self._problem(
                "bad_quota", name, f"min is {least:g} GPUs, those below it are sure of {sum(below):g}", sum(below)
            )
        if most is not None and used is not None and used > most + EPSILON:
            self._problem("limit_not_enforced", name, f"max is {most:g} GPUs, it holds {used:g}", used)
        self._compare(quota, name, used)

    def _compare(self, quota: Elastic, name: str, used: float | None) -> None:
        """Its own count beside what its pods hold."""
        held = self._of_pods(quota, self.held)
        if quota.name == ROOT_QUOTA:
            return  # it counts pods of quotas that are no objects, too
        if used is not None and held is not None and abs(used - held) > EPSILON:
            gap = abs(used - held)
            self._problem("quota_mismatch", name, f"it counts {used:g} GPUs, its pods hold {held:g}", gap)

    def _problem(self, kind: str, name: str, detail: str, count: float) -> None:
        self.rows.problem(kind, name, detail, subject_kind="queue", count=math.ceil(count - EPSILON))
