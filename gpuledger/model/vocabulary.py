"""The closed sets of words that records, SQL and surfaces share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """The twelve states of a share of a GPU-minute, in the order in which the first match wins."""

    UNAVAILABLE = "unavailable"
    RESERVED_SPARE = "reserved_spare"
    FREE_STRANDED = "free_stranded"
    FREE_USABLE = "free_usable"
    ALLOC_STARTING = "alloc_starting"
    ALLOC_UNKNOWN = "alloc_unknown"
    ALLOC_STANDBY = "alloc_standby"
    ALLOC_IDLE = "alloc_idle"
    ALLOC_STALLED = "alloc_stalled"
    ALLOC_LOW = "alloc_low"
    ALLOC_PRODUCTIVE = "alloc_productive"
    ALLOC_UNGRADED = "alloc_ungraded"


WASTE_STATES = (State.FREE_STRANDED, State.ALLOC_IDLE, State.ALLOC_STALLED)
"""States that count as waste; `alloc_low` is advice and stays outside."""

ASSET_STATUSES = ("arrived", "racked", "in_service", "under_repair", "returned")
"""Life of a card. It counts in the inventory until `returned`; in every status but `in_service` it is `unavailable`."""

CONDITIONS = ("not_ready", "cordoned_fault", "drain", "gpu_lost", "fatal_xid", "under_repair", "spare")
"""Dated facts about a node or a GPU; `spare` makes `reserved_spare`, every other one `unavailable`."""

WORKLOAD_KINDS = ("training", "inference", "notebook", "batch", "unknown")

STAGES = ("pretraining", "posttraining", "evaluation", "inference", "notebook", "other")
"""What a workload is for: a dimension of the ledger, set by label rules."""

WORKLOAD_STATUSES = (
    "held",  # waits by its own will, or for another job
    "pending",  # waits for the scheduler
    "admitted",  # has its quota and waits for its nodes
    "running",
    "suspended",
    "finished",
    "failed",
    "cancelled",
    "preempted",  # was put off to make room; a later attempt may run
    "unknown",
)

WORKLOAD_EVENTS = (
    "submitted",
    "eligible",
    "admitted",
    "started",
    "ready",
    "preempted",
    "evicted",
    "requeued",
    "suspended",
    "resumed",
    "finished",
    "failed",
    "cancelled",
)

PHASES = (
    "initialization",
    "compile",
    "train",
    "checkpoint",
    "evaluation",
    "rollout",  # reinforcement learning: samples are generated, trainers wait
    "update",  # reinforcement learning: the policy is trained, generators wait
    "serve",
    "other",
)
"""What work says that it does."""

ENGINE_ROLES = ("unified", "prefill", "decode")
"""What an engine of a server of models does: whole requests, or only their prompts, or only what follows them."""

QUIET_PHASES = ("initialization", "compile", "checkpoint", "evaluation", "rollout", "update")
"""Phases in which a card may be quiet without being idle, for as long as the site's limit for a phase."""

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")

VENDORS = ("nvidia", "ascend", "amd", "other")

FAULT_KINDS = (
    "xid",  # NVIDIA's driver events
    "ecc_uncorrected",
    "row_remap_failure",
    "row_remap_pending",
    "gpu_lost",
    "link",  # NVLink, HCCS, XGMI
    "fabric",  # InfiniBand, RoCE
    "npu_fault",  # Ascend's fault codes
    "thermal",
    "power_brake",
    "node_not_ready",
)

LINK_LAYERS = ("infiniband", "ethernet", "omnipath", "unknown")
"""What a port of a network adapter speaks; `ethernet` is RoCE."""

LINK_STATES = ("down", "init", "armed", "active", "active_defer", "unknown")

PHYSICAL_STATES = (
    "sleep",
    "polling",
    "disabled",
    "training",
    "link_up",
    "error_recovery",
    "phy_test",
    "offline",  # Omni-Path
    "test",  # Omni-Path
    "unknown",
)

PRICE_BASES = ("amortised", "list")

CONVERSION_BASES = ("peak_bf16", "price", "owner")

FINDING_CATEGORIES = ("waste", "advice", "health", "quota")
"""`waste` claims GPU-hours of WASTE_STATES, each at most once. `advice` lies outside waste: `gpu_hours_wasted` is 0.
`health` counts `gpu_hours_lost`. `quota` counts quota, which is another currency."""

FINDING_SEVERITIES = ("critical", "warning", "info")

FINDING_STATUSES = ("new", "ongoing", "resolved", "acknowledged", "disputed", "exempted")

QUEUE_STATUSES = ("open", "held", "draining", "closed", "unknown")


class Blame(StrEnum):
    """Who can end a wait."""

    CAPACITY = "capacity"
    """More GPUs, or a better arrangement of those that are there."""
    QUOTA = "quota"
    """Whoever gives out quota."""
    PLATFORM = "platform"
    """Whoever runs the cluster."""
    USER = "user"
    """Whoever submitted it."""
    NOBODY = "nobody"


PENDING_CAUSES: Mapping[str, Blame] = MappingProxyType(
    {
        "held": Blame.USER,  # a hold, a begin time, a suspended or deactivated workload
        "dependency": Blame.USER,  # waits for another job
        "own_config": Blame.USER,  # what it refers to is not there: an image, a secret, a queue, a class
        "storage": Blame.USER,  # a volume that is missing or cannot be bound
        "exceeds_max": Blame.USER,  # asks for more than its queue, or any node, can ever give: will never start
        "placement": Blame.USER,  # a taint, an affinity or a flavor that no free node matches
        "health": Blame.PLATFORM,  # fits if broken nodes or cards were back
        "topology": Blame.CAPACITY,  # fits but for the topology that it asks for
        "fragmentation": Blame.CAPACITY,  # enough GPUs are free, but not together on a node
        "gpu_memory": Blame.CAPACITY,  # shares of cards are free, their memory is not
        "cpu_mem": Blame.CAPACITY,  # CPU or memory is short, GPUs are not
        "quota": Blame.QUOTA,  # over what its queue or user may hold now
        "preempt_wait": Blame.CAPACITY,  # waits for those that it preempts to leave
        "priority": Blame.CAPACITY,  # others are before it
        "reservation": Blame.CAPACITY,  # what it wants is set aside for somebody else
        "capacity": Blame.CAPACITY,  # too few GPUs are free
        "gang": Blame.CAPACITY,  # other members of its gang do not fit; says less than why they do not
        "startup": Blame.PLATFORM,  # has its node: images, volumes, containers
        "scheduler": Blame.PLATFORM,  # nothing is said to be in its way; the scheduler has not got to it
        "unknown": Blame.NOBODY,
    }
)
"""Why work waits, the most specific first: of several causes that are told, the first in this order is the root."""

BOTTLENECKS = frozenset(
    cause for cause, blame in PENDING_CAUSES.items() if blame is Blame.CAPACITY and cause != "cpu_mem"
)
"""The causes that say that GPUs are short, or badly arranged. Waits for anything else are no lack of GPUs."""

READ_SCOPES = ("device", "process")
"""What a source's page lists: every device (a missing row is a lost card) or only devices with a
process (a missing row means that no process ran)."""


QUALITY_SUBJECTS = ("target", "node", "gpu", "series", "queue", "workload")

QUALITY_KINDS = (
    "refused_line",  # a line or series that is not legal; `detail` is the reason
    "refused_sample",  # a sample that was not stored; `detail` is the reason
    "repeated_sample",
    "conflicting_sample",
    "dropped_label",
    "too_many_series",  # a target beyond its cap of series
    "clock_skew",  # a source's clock is apart from ours; `count` is seconds
    "renamed_metric",  # a deprecated name; `detail` is old -> new
    "missing_metric",  # a metric that would say more is absent; `detail` is its name
    "blank_metric",  # it has no value, and values of the card were refused: it is there and blank, or absent
    "vanished_metric",  # it was there before
    "partial_answer",  # a query answered with warnings
    "gap",  # a span that could not be read; `detail` is from/to
    "double_claim",  # two holders of one exclusive card
    "contradiction",  # counters say the opposite of utilization and power
    "low_coverage",
    "stale",
    "counter_reset",
    "rejected_value",  # a sentinel, not finite, or outside its physical range
    "impossible_increase",  # an energy counter rose by more than the card can draw; it is not counted
    "slow_interval",  # read less often than once a minute
    "never_seen",  # a node of the inventory, or of a scheduler's list, that no source has ever shown
    "active_unheld",  # cards worked that nobody was known to hold; `value` is cards
    "missing_pod_labels",  # pods with GPUs run there, and the source names none
    "unreadable_object",  # an object of a scheduler that lacks what its meaning needs, or contradicts itself
    "not_permitted",  # a scheduler did not let us read this; what it holds is unknown
    "quota_mismatch",  # a queue's own count differs from what its work really holds; `count` is GPUs
    "bad_quota",  # limits that contradict each other; `detail` says which
    "limit_not_enforced",  # a queue holds more of a resource than its limit; `count` is what it holds
    "over_promised",  # quotas add up to more GPUs than there are; `count` is their sum
    "unparsed_allocation",  # held GPUs that could not be counted from what the scheduler wrote
    "truncated_answer",  # a scheduler gave only the first of its rows
    "exporter_labels",  # pod labels are the exporter's own, the real ones were renamed (honor_labels is off)
)
"""What may be wrong with what a source says."""


class QualityFlag:
    """Bits of a reading's `quality_flags`."""

    VALUE_REJECTED = 1
    """At least one metric was a sentinel, not finite, or outside its physical range."""
    PROFILING_CONTRADICTED = 2
    """A profiling counter read exactly zero while utilization and power said the opposite."""
    DUPLICATE_COPIES = 4
    """The page gave one device several times (time-slicing, HPC jobs, replicas); one copy was kept."""
    PARTIAL = 8
    """Some metrics of the device could not be read in this pass."""
    RATIO_CLAMPED = 16
    """A slice's profiling ratio lay a little above 1 and was taken for 1."""
