"""When what a log tells was, and the records of it. Pure: a piece of a log, what was known before it, and an instant.

A line's own time counts. Lines without one are dated backwards from the instant at which the piece ended, by the
seconds that each step says it took, so that a backlog does not all happen now. Two steps of a rank never share an
instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from collector.training_log.lines import STAMP, Kind, Told
from gpuledger.model import Checkpoint, JobStep, WorkloadPhase

SECOND_US = 1_000_000
APART_US = 1_000
"""How far apart steps are put that a log shows in one second."""
MAX_AHEAD_US = 600 * SECOND_US
"""A line dated further in the future is of a clock or a time zone that is not the one that was declared."""
MAX_BEHIND_US = 50 * 60 * SECOND_US
"""What was appended since the last read was written since then. Where its last time is older than that, the declared
clock is not the log's: zones are apart by an hour mostly, and what a trainer buffers ends with a line of now."""
MAX_FILLED = 1_000
"""So many steps may lie between two lines of a log that prints every n-th."""
MAX_STEP_SECONDS = 7 * 86_400.0
WARM_UP_FACTOR = 2.0
"""A first step that took so much longer than the second one compiled or warmed up in it."""
_FIRST_US = 946_684_800 * SECOND_US
"""Nothing that is read here was written before 2000: a clock that says so was not set."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose log it is: the job, and the rank where the path tells it."""

    workload_id: str
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the operator says of the logs: the clock they are written by, and what turns samples into tokens."""

    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    time_format: str = ""
    gpus: int | None = None
    samples: float | None = None
    sequence_tokens: int | None = None


@dataclass(slots=True)
class Progress:
    """What is known of a file when its next piece is read. Instants in microseconds since 1970."""

    last_us: int | None = None
    last_step: int | None = None
    last_seconds: float | None = None
    gpus: int | None = None
    first_us: int | None = None
    first_seconds: float | None = None
    mark_us: int | None = None
    loading_us: int | None = None
    ended_us: int | None = None
    is_aside: bool = False


@dataclass(slots=True)
class Rows:
    """What a piece gives. `skewed` counts lines of another clock, `refused` values that are no measurement."""

    steps: list[JobStep] = field(default_factory=list)
    phases: list[WorkloadPhase] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    skewed: int = 0
    refused: int = 0

    def records(self) -> dict[str, list[Any]]:
        """By the name of the record."""
        return {"job_step": self.steps, "workload_phase": self.phases, "checkpoint": self.checkpoints}


def instant(us: int) -> datetime:
    """Microseconds since 1970 as an instant."""
    return _EPOCH + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    """An instant as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


@dataclass(slots=True)
class _Dated:
    told: Told
    at: int
    is_printed: bool

    @property
    def lasted(self) -> int | None:
        seconds = self.told.seconds
        return None if seconds is None else round(seconds * SECOND_US)


def progress_rows(
    told: Iterable[Told],
    subject: Subject,
    declared: Declared,
    known: Progress,
    *,
    ended_at: datetime,
    read_at: datetime | None = None,
) -> Rows:
    """The records of a piece that was written until `ended_at` and read at `read_at`; `known` is moved on.

    A piece that is read again with the same arguments gives the same rows.
    """
    rows = Rows()
    ended = microseconds(ended_at)
    latest = max(ended, microseconds(read_at or ended_at)) + MAX_AHEAD_US
    for one in _dated(_merged(told, rows), declared, known, (ended, latest), rows):
        rows.refused += one.told.refused
        if one.told.gpus:
            known.gpus = one.told.gpus
        match one.told.kind:
            case Kind.STEP:
                _step(one, subject, declared, known, rows)
            case Kind.SAVING | Kind.SAVING_ASIDE:
                known.is_aside = one.told.kind is Kind.SAVING_ASIDE
                known.mark_us = one.at if one.is_printed and not known.is_aside else known.mark_us
            case Kind.LOADING | Kind.BEGINS:
                _set_up(one, subject, known, rows)
            case Kind.CHECKPOINT | Kind.EVALUATION:
                _mark(one, subject, known, rows)
    known.ended_us = ended
    return rows


def _set_up(one: _Dated, subject: Subject, known: Progress, rows: Rows) -> None:
    """From the first line about setting up to the beginning of the first step, the work loads."""
    if one.told.kind is Kind.LOADING:
        known.loading_us = one.at if known.loading_us is None else known.loading_us
        return
    _phase(rows, subject, "initialization", known.loading_us, one.at)
    known.loading_us = None


def _merged(told: Iterable[Told], rows: Rows) -> list[Told]:
    """Lines about one step, one after the other, are one line."""
    merged: list[Told] = []
    for one in told:
        if one.seconds is not None and one.seconds > MAX_STEP_SECONDS:
            one.seconds, rows.refused = None, rows.refused + 1
        before = merged[-1] if merged else None
        if before and one.kind is before.kind is Kind.STEP and (one.step, one.rank) == (before.step, before.rank):
            before.fill(one)
        else:
            merged.append(one)
    return merged


def _dated(told: list[Told], declared: Declared, known: Progress, bounds: tuple[int, int], rows: Rows) -> list[_Dated]:
    """Every line with its instant. `bounds`: when the piece ended, and the latest time that a line is believed."""
    ended, latest_printed = bounds
    printed = _believed([_printed(one, declared) for one in told], known, rows)
    blind = sum(
        at is None and one.kind is Kind.STEP and one.seconds is None for one, at in zip(told, printed, strict=True)
    )
    gap = ended - known.last_us if known.last_us is not None else 0
    usual = max(APART_US, gap // blind) if blind and gap > 0 else SECOND_US
    dated: list[_Dated] = []
    upper, after = ended, None
    for one, at in zip(reversed(told), reversed(printed), strict=True):
        if at is not None and not _FIRST_US <= at <= latest_printed:
            rows.skewed += 1
            at = None  # noqa: PLW2901 such a line is dated like one without a time
        latest = upper
        if at is None and after is not None and one.step is not None and one.kind is not Kind.STEP:
            latest = min(upper, after.at - _between(one.step, after) * (after.lasted or 0))
        this = _Dated(one, max(0, latest) if at is None else at, at is not None)
        dated.append(this)
        upper = this.at
        if one.kind is Kind.STEP:
            upper, after = this.at - (usual if this.lasted is None else this.lasted), this
    return dated[::-1]


def _believed(printed: list[int | None], known: Progress, rows: Rows) -> list[int | None]:
    """`printed`, or none of it where it is of a clock that is behind."""
    times = [at for at in printed if at is not None]
    if not times or known.ended_us is None or times[-1] >= known.ended_us - MAX_BEHIND_US:
        return printed
    rows.skewed += len(times)
    return [None] * len(printed)


def _between(step: int, after: _Dated) -> int:
    count = (after.told.step or 0) - step
    return count if 1 <= count <= MAX_FILLED else 1


def _printed(one: Told, declared: Declared) -> int | None:
    """The time that a line prints; None where it has none that is one. Of an hour that the clocks repeat, the first."""
    if one.stamp is None:
        return None
    try:
        if declared.time_format and one.kind is Kind.STEP:
            at = datetime.strptime(one.stamp, declared.time_format)  # noqa: DTZ007 the zone comes below
        else:
            at = _parsed(one.stamp)
        return microseconds((at if at.tzinfo else at.replace(tzinfo=declared.zone)).astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def _parsed(stamp: str) -> datetime:
    found = STAMP.search(stamp)
    if found is None:
        raise ValueError(stamp)
    *parts, fraction, zone = found.groups()
    text = "{}-{}-{}T{}:{}:{}".format(*parts)
    return datetime.fromisoformat(f"{text}.{(fraction or '0')[:6]:0<6}{zone or ''}")


def _step(one: _Dated, subject: Subject, declared: Declared, known: Progress, rows: Rows) -> None:
    told, at, last = one.told, one.at, known.last_us
    if told.step is None or told.step == known.last_step:
        return
    gpus = known.gpus or declared.gpus
    if last is not None and at <= last and (not one.is_printed or at + SECOND_US > last):
        at = last + APART_US  # told in the same second, or read before its time
    seconds = told.seconds if told.seconds is not None else _by_rate(told, declared, gpus)
    _warm_up(at, seconds, subject, known, rows)
    for step, ts in _ended(told, at, seconds, known):
        rows.steps.append(
            JobStep(
                ts=instant(ts),
                workload_id=subject.workload_id,
                rank=next((rank for rank in (subject.rank, told.rank) if rank is not None), 0),
                step=step,
                tokens=_tokens(told, declared, gpus, seconds),
                step_seconds=seconds,
                model_flops_per_gpu_second=told.flops_per_gpu_second,
            )
        )
    _parts(told, at, seconds, subject, rows)
    known.last_us, known.last_step, known.last_seconds, known.mark_us = at, told.step, seconds, None


def _ended(told: Told, at: int, seconds: float | None, known: Progress) -> Iterator[tuple[int, int]]:
    """The steps that one line tells, with their ends: a log that prints every n-th step tells n of them."""
    step, last, last_step = told.step or 0, known.last_us, known.last_step
    count = step - last_step if last_step is not None else 1
    if told.is_interval and last is not None and 1 < count <= MAX_FILLED and at > last:
        room = (at - last) / count
        each = room if seconds is None else seconds * SECOND_US
        # Stamps are of whole seconds, and means are rounded; what does not fit at all is another run's line.
        if each >= 1 and each <= room + SECOND_US / count + each / 100:
            each = min(each, room)
            yield from ((step - k, at - round(k * each)) for k in range(count - 1, 0, -1))
    yield step, at


def _by_rate(told: Told, declared: Declared, gpus: int | None) -> float | None:
    """Seconds of a step from a rate and what a step holds, where both are known."""
    samples = told.samples or declared.samples
    if samples and told.samples_per_second:
        return samples / told.samples_per_second
    total = told.tokens or (samples * declared.sequence_tokens if samples and declared.sequence_tokens else None)
    rate = told.tokens_per_second or ((told.tokens_per_gpu_second or 0.0) * (gpus or 0))
    return total / rate if total and rate else None


def _tokens(told: Told, declared: Declared, gpus: int | None, seconds: float | None) -> float | None:
    """The job's tokens in a step: as printed, else batch x sequence, else rate x seconds."""
    samples = told.samples or declared.samples
    if told.tokens is not None:
        return told.tokens
    if samples and declared.sequence_tokens:
        return samples * declared.sequence_tokens
    if told.tokens_per_second is not None and seconds is not None:
        return told.tokens_per_second * seconds
    if told.tokens_per_gpu_second is not None and gpus and seconds is not None:
        return told.tokens_per_gpu_second * gpus * seconds
    return None


def _warm_up(at: int, seconds: float | None, subject: Subject, known: Progress, rows: Rows) -> None:
    """A first step that took far longer than the second is a phase: it compiled."""
    if known.last_us is None:
        known.first_us, known.first_seconds = at, seconds
    elif known.first_us is not None:
        first, lasted, known.first_us = known.first_us, known.first_seconds, None
        is_next = seconds is not None and 0 < at - first - round(seconds * SECOND_US) + SECOND_US < 60 * SECOND_US
        if lasted and seconds and is_next and lasted >= WARM_UP_FACTOR * seconds:
            _phase(rows, subject, "compile", first - round(lasted * SECOND_US), first)


def _parts(told: Told, at: int, seconds: float | None, subject: Subject, rows: Rows) -> None:
    """The parts of a step of reinforcement learning: samples first; update, evaluation and checkpoint at its end."""
    spent = {phase: round(value * SECOND_US) for phase, value in told.phases.items()}
    if not spent or seconds is None or sum(spent.values()) > round(seconds * SECOND_US * 1.001):
        return
    begin = at - round(seconds * SECOND_US)
    if rollout := spent.get("rollout"):
        _phase(rows, subject, "rollout", begin, begin + rollout)
    saved, tested = spent.get("checkpoint", 0), spent.get("evaluation", 0)
    updated = spent.get("update_actor", 0) + spent.get("update_critic", 0)
    _phase(rows, subject, "update", at - saved - tested - updated, at - saved - tested)
    _phase(rows, subject, "evaluation", at - saved - tested, at - saved)
    if saved:
        _phase(rows, subject, "checkpoint", at - saved, at)
        _checkpoint(rows, subject, at, told.step, saved)


def _mark(one: _Dated, subject: Subject, known: Progress, rows: Rows) -> None:
    """A checkpoint or an evaluation is over: since the last step, or since the one before it, nothing was trained."""
    since = known.mark_us
    if since is None and known.last_us is not None:
        since = known.last_us
        if known.last_step is not None and one.told.step is not None and known.last_seconds:
            # A log that prints every n-th step: between its last line and this there were steps.
            count = min(max(one.told.step - known.last_step, 0), MAX_FILLED)
            since += round(count * known.last_seconds * SECOND_US)
    is_aside = known.is_aside and one.told.kind is Kind.CHECKPOINT
    lasted = None if since is None or is_aside else max(0, one.at - since)
    if one.told.kind is Kind.CHECKPOINT:
        _checkpoint(rows, subject, one.at, one.told.step, lasted)
    if not is_aside:
        _phase(rows, subject, one.told.kind.value, since, one.at)
        known.mark_us = one.at
    known.is_aside = known.is_aside and not is_aside


def _checkpoint(rows: Rows, subject: Subject, at: int, step: int | None, lasted: int | None) -> None:
    blocking = lasted / SECOND_US if lasted else None
    rows.checkpoints.append(
        Checkpoint(ts=instant(at), workload_id=subject.workload_id, step=step, blocking_seconds=blocking)
    )


def _phase(rows: Rows, subject: Subject, phase: str, from_us: int | None, until_us: int) -> None:
    if from_us is not None and from_us < until_us:
        rows.phases.append(
            WorkloadPhase(
                workload_id=subject.workload_id, phase=phase, from_at=instant(from_us), until_at=instant(until_us)
            )
        )
