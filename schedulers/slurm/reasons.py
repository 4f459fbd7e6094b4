"""Slurm's words for why a job waits, as causes. Two of them say too little: nodes and what is free on them say more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schedulers.reasons import Reasons, Told
from schedulers.slurm.facts import Job
from schedulers.slurm.holding import Wish
from schedulers.slurm.nodes import HostGpus

REASONS = Reasons.of(
    (
        (r"requeued (in )?held", "held"),
        (r"^(JobHeld|JobHoldMaxRequeue|MaxRequeue|RequeueHold|SpecialExit|JobArrayTaskLimit|HeldInfo)", "held"),
        (r"^Max\w+PerAccount", "quota"),
        (r"^(BeginTime|Deadline)", "held"),
        (r"^Dependency", "dependency"),
        (
            r"^(InvalidAccount|InvalidQOS|QOSNotAllowed|QOSUsageThreshold|AccountNotAllowed|ReservationDeleted)",
            "own_config",
        ),
        (r"^BadConstraints", "placement"),
        (r"^(Assoc|QOS)(Max|Min)\w*(PerJob|PerNode|PJ|PN)\w*", "exceeds_max"),
        (
            r"^(Assoc|QOS)(Max(Wall|CpuMinutes|Cpu|Node|Nodes|Mem|GRES|TRES|Billing)\w*Minutes\w*|MinCpu|Min\w+)",
            "exceeds_max",
        ),
        (r"^(AssocMaxWall|QOSMaxWall|AssociationTimeLimit|QOSTimeLimit)", "exceeds_max"),
        (r"^(PartitionNodeLimit|PartitionConfig|PartitionTimeLimit|MaxMemPerLimit)", "exceeds_max"),
        (r"^(Assoc|QOS)\w*(Grp|Max|Limit)", "quota"),
        (r"^(AssociationJobLimit|AssociationResourceLimit|AccountingPolicy)", "quota"),
        (r"^ReqNodeNotAvail.*(reserved|maintenance)", "reservation"),
        (
            r"^(ReqNodeNotAvail|NodeDown|FrontEndDown|SystemFailure|Block|PowerNotAvail|PartitionDown|PartitionInactive)",
            "health",
        ),
        (r"^Nodes required for job are DOWN", "health"),
        (r"^(Reservation|PowerReserved|Reserved)", "reservation"),
        (r"^Nodes? (in|are) .*reserv", "reservation"),
        (r"^Licenses", "cpu_mem"),  # something that is no GPU is short
        (r"^BurstBuffer", "storage"),
        (r"^Resources", "capacity"),
        (r"^Priority", "priority"),
        (r"^(Prolog|Cleaning|JobLaunchFailure|RaisedSignal|CONFIGURING|WaitingForPower|Reboot)", "startup"),
        (r"^(None|: |SchedDefer|FedJobLock|WaitingForScheduling|Scheduler)", "scheduler"),
    )
)


def told(job: Job, wish: Wish, hosts: Sequence[HostGpus]) -> Told:
    """Why `job` waits, with `hosts` being those of its partitions."""
    said = REASONS.tell(job.reason or "None")
    if job.reason == "BeginTime" and job.restarts:
        # Slurm itself lets a requeued job wait a little, by a begin time of its own.
        return Told("scheduler", said.reason, "a pause after it was requeued")
    if said.reason.startswith("Nodes required"):
        is_broken = any(not host.is_ready or not host.is_schedulable for host in hosts)
        return Told("health" if is_broken else "reservation", said.reason)
    if said.cause == "capacity":
        return Told(_short_of(wish, hosts), said.reason)
    return said


def _short_of(wish: Wish, hosts: Collection[HostGpus]) -> str:
    """What "Resources" means: no GPUs, GPUs that are not together, or enough of them and no CPU or memory."""
    fitting = sum(host.free >= wish.per_node for host in hosts)
    if fitting >= wish.nodes:
        return "cpu_mem"
    if sum(host.free for host in hosts) >= wish.gpus:
        return "fragmentation"
    return "capacity"
