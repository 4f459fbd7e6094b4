"""Kueue's objects (v1beta2): a flavor for whole cards, one for shares in time, one for each kind of host under MIG.

Each team has a ClusterQueue of its name in one cohort, with its quota of whole cards; slices and shares belong to the
cohort, from which every team borrows them. A LocalQueue of the team's name is in each namespace where it works.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpuledger.app.simulated_cluster.core_objects import template
from gpuledger.app.simulated_cluster.facts import GPU, SHARED, Facts, Object, Work, namespace_of, owner_of
from gpuledger.simulate.pods import OWNER_KINDS
from gpuledger.simulate.script import Job
from gpuledger.simulate.teams import COHORT

API = "kueue.x-k8s.io/v1beta2"
WHOLE = "whole-cards"
COPIES = "time-shares"

Amounts = Mapping[tuple[str, str], int]
"""Units by (flavor, resource)."""


def workload_name(job: Job) -> str:
    """The name of a job's Workload object, with the owner's kind before it as Kueue does."""
    return f"{OWNER_KINDS.get(job.kind, 'Job').lower()}-{job.workload_id}"


class KueueObjects:
    """Makes Kueue's objects from the facts of a simulation."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.teams: Sequence[str] = sorted(facts.script.quotas.nominal)
        self.doors = sorted({(namespace_of(work.job), work.job.team) for work in facts.works})
        self._supply = self._supplies()

    def _supplies(self) -> dict[str, Counter[str]]:
        """Units of each resource, by flavor, over the whole cluster."""
        found: dict[str, Counter[str]] = {WHOLE: Counter({GPU: 0}), COPIES: Counter({SHARED: 0})}
        for host in self._facts.hosts:
            for card in host.cards:
                for resource, count in self._facts.offers(card).items():
                    flavor = {GPU: WHOLE, SHARED: COPIES}.get(resource, host.hardware.pool)
                    found.setdefault(flavor, Counter())[resource] += count
        return found

    def flavor_of(self, work: Work) -> str:
        """The flavor that a job is given."""
        if work.resource in (GPU, SHARED):
            return {GPU: WHOLE, SHARED: COPIES}[work.resource]
        return self._facts.script.fleet.hosts[work.runs[0].host].hardware.pool

    def usage(self, works: Iterable[Work]) -> Amounts:
        """What running jobs hold."""
        found: Counter[tuple[str, str]] = Counter()
        for work in works:
            found[self.flavor_of(work), work.resource] += work.amount
        return found

    def fixed(self) -> Iterable[Object]:
        """Flavors and the cohort, which do not change."""
        for flavor, supply in self._supply.items():
            product = {host.hardware.pool: host.hardware.product for host in self._facts.hosts}.get(flavor)
            labels = {"nvidia.com/gpu.product": product.replace(" ", "-")} if product else {}
            labels |= {"node.gpuledger.example/pool": flavor} if product else {}
            if supply:
                yield self._object("ResourceFlavor", flavor, {"nodeLabels": labels} if labels else {})
        shared = {flavor: supply for flavor, supply in self._supply.items() if flavor != WHOLE}
        yield self._object("Cohort", COHORT, {"resourceGroups": _groups(shared)})

    def cluster_queue(self, team: str, used: Amounts, waiting: int, admitted: int) -> Object:
        """A team's queue, with what it uses."""
        nominal = int(self._facts.script.quotas.nominal[team])
        quotas = {flavor: Counter(dict.fromkeys(supply, 0)) for flavor, supply in self._supply.items()}
        quotas[WHOLE][GPU] = nominal
        spec = {
            "cohortName": COHORT,
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": _groups(quotas),
        }
        usage = [
            {
                "name": flavor,
                "resources": [
                    {
                        "name": resource,
                        "total": str(used.get((flavor, resource), 0)),
                        "borrowed": str(max(0, used.get((flavor, resource), 0) - quotas[flavor][resource])),
                    }
                    for resource in sorted(quotas[flavor])
                ],
            }
            for flavor in quotas
        ]
        return self._object("ClusterQueue", team, spec) | {
            "status": {
                "flavorsReservation": usage,
                "flavorsUsage": usage,
                "pendingWorkloads": waiting,
                "reservingWorkloads": admitted,
                "admittedWorkloads": admitted,
                "conditions": [self._condition("Active", "Ready", "Can admit new workloads", 0)],
            }
        }

    def local_queue(self, door: tuple[str, str], used: Amounts, waiting: int, admitted: int) -> Object:
        """A team's queue in a namespace."""
        namespace, team = door
        by_flavor: dict[str, list[Object]] = defaultdict(list)
        for (flavor, resource), total in sorted(used.items()):
            by_flavor[flavor].append({"name": resource, "total": str(total)})
        usage = [{"name": flavor, "resources": resources} for flavor, resources in by_flavor.items()]
        item = self._object("LocalQueue", team, {"clusterQueue": team}, namespace)
        return item | {
            "status": {
                "flavorsReservation": usage,
                "flavorsUsage": usage,
                "pendingWorkloads": waiting,
                "reservingWorkloads": admitted,
                "admittedWorkloads": admitted,
            }
        }

    def workload(self, work: Work, stage: str) -> Object:
        """A job's Workload: "waiting", "running" or "over"."""
        job, facts = work.job, self._facts
        gpus = {work.resource: str(work.per_pod)}
        pod_set = {"name": "main", "count": work.pods, "template": template(job, gpus)}
        item = self._object(
            "Workload",
            workload_name(job),
            {"queueName": job.team, "priority": job.priority, "active": True, "podSets": [pod_set]},
            namespace_of(job),
        )
        item["metadata"] |= {
            "creationTimestamp": facts.text(job.submit),
            "ownerReferences": [owner_of(job, f"owner-{job.workload_id}")],
        }
        return item | {"status": self._status(work, stage)}

    def _status(self, work: Work, stage: str) -> Object:
        team = work.job.team
        if stage == "waiting":
            message = (
                f"couldn't assign flavors to pod set main: insufficient unused quota for {work.resource} in flavor "
                f"{WHOLE if work.resource == GPU else COPIES}, {work.amount} more needed"
            )
            return {"conditions": [self._condition("QuotaReserved", "Pending", message, work.submit, "False")]}
        flavors = {work.resource: self.flavor_of(work)}
        assignment = {
            "name": "main",
            "count": work.pods,
            "flavors": flavors,
            "resourceUsage": {work.resource: str(work.amount)},
        }
        reserved = f"Quota reserved in ClusterQueue {team}"
        conditions = [
            self._condition("QuotaReserved", "QuotaReserved", reserved, work.start),
            self._condition("Admitted", "Admitted", "The workload is admitted", work.start),
            self._condition("PodsReady", "Started", "All pods were ready or succeeded", work.start),
        ]
        if stage == "over":
            conditions.append(self._condition("Finished", "Succeeded", "Job finished successfully", work.end))
        return {"admission": {"clusterQueue": team, "podSetAssignments": [assignment]}, "conditions": conditions}

    def _condition(self, kind: str, reason: str, message: str, minute: int, status: str = "True") -> Object:
        at = self._facts.text(minute)
        return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}

    def _object(self, kind: str, name: str, spec: Object, namespace: str = "") -> Object:
        metadata = {"name": name, "creationTimestamp": self._facts.text(0)}
        metadata |= {"namespace": namespace} if namespace else {}
        return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def _groups(quotas: Mapping[str, Counter[str]]) -> list[Object]:
    """Resource groups: flavors that offer the same resources stand in one; a resource is in one group only."""
    sliced = [flavor for flavor in quotas if flavor not in (WHOLE, COPIES)]
    groups = [*([flavor] for flavor in (WHOLE, COPIES) if flavor in quotas), sliced]
    return [_group({flavor: quotas[flavor] for flavor in group}) for group in groups if group]


def _group(quotas: Mapping[str, Counter[str]]) -> Object:
    covered = sorted({resource for amounts in quotas.values() for resource in amounts})
    flavors = [
        {
            "name": flavor,
            "resources": [{"name": resource, "nominalQuota": str(amounts[resource])} for resource in covered],
        }
        for flavor, amounts in quotas.items()
    ]
    return {"coveredResources": covered, "flavors": flavors}
