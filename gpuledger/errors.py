"""Every error that gpuledger raises on purpose.

GpuledgerError
+-- ConfigError            a setting is missing or wrong; names it
+-- BadInput               what somebody sent is not usable; names the field
|   +-- BadRecord          one or more records of a batch; the rest was kept
|   +-- TooLarge           more bytes than may be taken in, as sent or as unpacked
+-- SourceError            a source of readings did not answer or answered nonsense
|   +-- SourceTimeout      it did not answer within its deadline
+-- Overloaded             too many requests wait; the same one may be sent again
+-- ServiceUnavailable     the service could not be reached or said "try again"
+-- WarehouseError
|   +-- WarehouseBusy      another process holds the warehouse file
|   +-- QueryRefused       a named query's text, parameters or columns are not as declared
+-- SchedulerError
|   +-- SchedulerUnreachable  it did not answer, or not within its deadline
|   +-- NotPermitted       it lets us read nothing of what we asked for
|   +-- InconsistentSnapshot  what it told is not of one moment
|   +-- StaleSnapshot      what a plan was made from has changed since
|   +-- ApplyFailed        a change could not be applied; says what was compensated
+-- RuleError              a rule could not run, which is not "found nothing"
+-- DeliveryError          a message was not accepted by its channel
"""

from __future__ import annotations

from collections.abc import Sequence


class GpuledgerError(Exception):
    """The root: catch this at a surface and print its text."""


class ConfigError(GpuledgerError):
    """A setting is missing or wrong."""


class BadInput(GpuledgerError):
    """Something sent to us is not usable. `field` is the place that is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class BadRecord(BadInput):
    """Some records of a batch were refused; the others were kept.

    `rejected` holds one (row, field, reason) for each refused row, at most as many as the answer may list.
    """

    def __init__(self, rejected: Sequence[tuple[int, str, str]]) -> None:
        _, field, reason = rejected[0]
        super().__init__(field, reason)
        self.rejected = tuple(rejected)


class TooLarge(BadInput):
    """Something sent to us has, or unpacks to, more than `limit` bytes."""

    def __init__(self, field: str, limit: int) -> None:
        super().__init__(field, f"is larger than {limit} bytes")
        self.limit = limit


class SourceError(GpuledgerError):
    """A source of readings did not answer or answered nonsense."""


class SourceTimeout(SourceError):
    """A source did not answer within its deadline."""


class Overloaded(GpuledgerError):
    """Too many requests wait already; nothing of this one was kept, and it may be sent again.

    Told as 503: a Prometheus drops what was answered with 429, unless it was configured not to.
    """


class ServiceUnavailable(GpuledgerError):
    """The service could not be reached, or asked to be tried again later."""


class WarehouseError(GpuledgerError):
    """The warehouse could not do what was asked."""


class WarehouseBusy(WarehouseError):
    """Another process holds the warehouse file; talk to its service instead."""


class QueryRefused(WarehouseError):
    """A named query's text, parameters or columns are not as declared."""


class SchedulerError(GpuledgerError):
    """A scheduler could not be read or changed."""


class SchedulerUnreachable(SchedulerError):
    """A scheduler did not answer, or not within its deadline; the same read may succeed later."""


class NotPermitted(SchedulerError):
    """A scheduler lets us read nothing of what was asked for. What it holds is unknown, not none."""


class InconsistentSnapshot(SchedulerError):
    """What a scheduler told is not of one moment, again and again; nothing of it is kept."""


class StaleSnapshot(SchedulerError):
    """What a plan was made from has changed since; nothing was written."""


class ApplyFailed(SchedulerError):
    """A change could not be applied. `compensated` names what was put back."""

    def __init__(self, message: str, *, compensated: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.compensated = tuple(compensated)


class RuleError(GpuledgerError):
    """A rule could not run. That is not the same as a rule that found nothing."""


class DeliveryError(GpuledgerError):
    """A message was not accepted. `retryable` says whether trying again can help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
