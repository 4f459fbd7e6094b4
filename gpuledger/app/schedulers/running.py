"""Reads schedulers by themselves: each at its interval, or as it tells of changes. One that fails costs only itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, cast

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from gpuledger.app.schedulers.feed import Feed, Health
from gpuledger.app.schedulers.listing import Listed, readers
from gpuledger.attribution.rules import load as load_rules
from gpuledger.errors import GpuledgerError, SchedulerUnreachable
from gpuledger.ports import WatchingReader

if TYPE_CHECKING:
    from gpuledger.app.metrics import ServiceMetrics
    from gpuledger.app.service import Service

log = structlog.get_logger("gpuledger.schedulers")

LONGEST_PAUSE_SECONDS = 300.0
JOIN_SECONDS = 10.0
"""How long a stop waits for a thread that is in the middle of a read."""

STALE_INTERVALS = 5


class Watch:
    """A thread that stores what a scheduler tells, and begins again when the telling ends."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {feed.name}", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Say that it shall end; `join` waits for it."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has ended, but not for ever."""
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        pause = self._feed.interval_seconds
        while not self._stop.is_set():
            try:
                self._watch()
            except Exception as error:
                _failed(self._feed, error)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
            else:
                pause = self._feed.interval_seconds
            self._stop.wait(pause)

    def _watch(self) -> None:
        is_heard = False
        reader = cast("WatchingReader", self._feed.reader)
        for snapshot in reader.watch(self._stop, every_seconds=self._feed.interval_seconds):
            self._feed.store(snapshot)
            is_heard = True
        if not is_heard and not self._stop.is_set():
            raise SchedulerUnreachable(f"{self._feed.name}: the watch ended without a word")


def _failed(feed: Feed, error: Exception) -> None:
    feed.note(error)
    _tell(feed.name, error)


def _tell(name: str, error: Exception) -> None:
    if isinstance(error, GpuledgerError):
        log.warning("scheduler_not_read", scheduler=name, error=str(error))
    else:
        log.error("scheduler_not_read", scheduler=name, exc_info=error)


class Schedulers:
    """The schedulers that a service reads, by its setting `schedulers_file`."""

    def __init__(self, service: Service, listed: Sequence[Listed]) -> None:
        told = teller(service.metrics)
        self._service = service
        self._clockwork = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(max(1, len(listed)))},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self.feeds: list[Feed] = []
        self._watches: list[Watch] = []
        for one in listed:
            seconds = one.entry.interval_seconds
            feed = Feed(one.reader, service, service.clock, interval_seconds=seconds, told=told)
            self.feeds.append(feed)
            job = feed.repeat if one.is_watched else feed.read
            first_at = service.clock.now() + timedelta(seconds=seconds if one.is_watched else 0)
            self._clockwork.add_job(
                _guarded(feed.name, job), "interval", seconds=seconds, id=feed.name, next_run_time=first_at
            )
            if one.is_watched:
                self._watches.append(Watch(feed))
        service.feeds = tuple(self.feeds)

    @classmethod
    def of(cls, service: Service) -> Schedulers:
        """Those of the service's settings. Raises ConfigError naming what is wrong in the list."""
        settings = service.settings
        rules = load_rules(settings.attribution_rules)
        return cls(service, readers(settings.schedulers_file, rules, service.clock))

    def start(self) -> None:
        """Begin to read."""
        for watch in self._watches:
            watch.start()
        self._clockwork.start()

    def stop(self) -> None:
        """Let running reads end, as far as they end soon, and start no more."""
        for watch in self._watches:
            watch.stop()
        self._clockwork.shutdown(wait=False)
        for watch in self._watches:
            watch.join()
        for feed in self.feeds:
            feed.close()


def _guarded(name: str, job: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            job()
        except Exception as error:
            _tell(name, error)

    return run


def teller(metrics: ServiceMetrics) -> Callable[[str, Health], None]:
    """Puts how reading goes into the service's own metrics."""

    def tell(name: str, health: Health) -> None:
        metrics.scheduler_up.labels(name).set(health.error is None)
        if health.error is not None:
            metrics.scheduler_failures.labels(name, health.reason).inc()
            return
        metrics.scheduler_whole.labels(name).set(health.scope == "complete")
        if health.read_at is not None:
            metrics.scheduler_read_at.labels(name).set(health.read_at.timestamp())

    return tell


def checked(service: Service) -> str:
    """How reading schedulers goes, for the doctor. Raises GpuledgerError naming those that cannot be read."""
    if not service.feeds:
        return "no scheduler is read"
    bad, good = [], []
    for feed in service.feeds:
        health, now = feed.health, service.clock.now()
        late = timedelta(seconds=STALE_INTERVALS * feed.interval_seconds)
        if health.error is not None:
            bad.append(f"{feed.name}: {health.error}")
        elif health.read_at is not None and now - health.read_at > late:
            bad.append(f"{feed.name}: not read since {health.read_at.isoformat()}")
        else:
            good.append(f"{feed.name}: {health.scope if health.read_at else 'not read yet'}")
    if bad:
        raise GpuledgerError("; ".join([*bad, *good]))
    return "; ".join(good)
