"""Pages of one target: a line of a known series costs one dictionary access, and its number is read with all others.

The label part of a series hardly changes between two scrapes. So it is parsed once, handed to a `resolve` function
that says what the series means to the caller, and remembered under its raw bytes. On a cold page the metrics of one
device share their labels, which are parsed once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from collector.exposition.cache import Identity, SeriesCache
from collector.exposition.labels import LabelSet, is_plain, names_of, pattern_of, pieces_of, plain_pieces
from collector.exposition.lines import (
    NOT_UTF8,
    Refused,
    Series,
    parse_rest,
    parse_series,
    parse_time,
    parse_value,
    plain_name,
)
from collector.samples import NO_TIMESTAMP, Samples

Meaning = TypeVar("Meaning")

MAX_LINE_BYTES = 256 * 1024
MAX_SERIES = 50_000
DUPLICATE = "duplicate series"
BEYOND_CAP = "series beyond the cap"

_PAGE_TIMES_CAP = 10
_MAX_TEXTS = 20_000
_HASH = ord("#")
_BLANKS = b" \t\r"


@dataclass(slots=True)
class Page(Generic[Meaning]):
    """What one page gave.

    `samples` holds (meaning, value, timestamp in milliseconds or None) for each line whose series means something.
    `refused` counts lines that gave nothing, by reason: not legal, or the same series (and time) once more.
    `uncached_series` counts lines that were read the slow way because the target has more series than its cache may
    hold.
    """

    samples: list[tuple[Meaning, float, int | None]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    uncached_series: int = 0

    @property
    def skipped_lines(self) -> int:
        """All refused lines."""
        return self.refused.total()


@dataclass(slots=True)
class ColumnPage(Generic[Meaning]):
    """The same as `Page`, its samples as columns. `samples.meanings` may be read, not changed.

    `ignored_lines` are samples of series that mean nothing to the reader.
    """

    samples: Samples[Meaning]
    refused: Counter[str]
    uncached_series: int
    ignored_lines: int = 0

    @property
    def skipped_lines(self) -> int:
        """All refused lines."""
        return self.refused.total()


@dataclass(slots=True)
class _Work(Generic[Meaning]):
    """What is known of the page being read: for each sample its entry and the value as written; times where written.

    Lines that cannot be remembered get entries after the last remembered one: `more_slots` are their slots, and
    `more` the meanings of slots after the last remembered one.
    """

    in_seconds: bool
    entries: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    uncached_series: int = 0
    more_slots: list[int] = field(default_factory=list)
    more: list[Meaning | None] = field(default_factory=list)
    more_identities: dict[Identity, int] = field(default_factory=dict)
    beyond: set[bytes] = field(default_factory=set)
    texts: dict[bytes, LabelSet] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def add(self, entry: int, value: bytes, time_ms: int | None) -> None:
        """One sample."""
        if time_ms is not None:
            self.times.append((len(self.values), time_ms))
        self.entries.append(entry)
        self.values.append(value)


class ExpositionParser(Generic[Meaning]):
    """Reads the pages of one target and remembers its series.

    `resolve` gets each new series once and answers what it means, or None to ignore it. Labels in `drop_labels` are
    left out before anything is compared or counted as a series.

    At most `max_series` series are remembered; the rest are resolved again on every page and lose their
    `spare_labels` (labels that multiply series without another thing being measured, such as the pod), so that each
    device keeps a value. A page gives at most ten times `max_series` series; a line above `max_line_bytes` is refused
    unread. So memory is bounded, whatever a target sends.
    """

    def __init__(
        self,
        resolve: Callable[[Series], Meaning | None],
        *,
        max_series: int = MAX_SERIES,
        max_line_bytes: int = MAX_LINE_BYTES,
        drop_labels: Iterable[str] = (),
        spare_labels: Iterable[str] = (),
    ) -> None:
        self._resolve = resolve
        self._max_line_bytes = max_line_bytes
        self._drop = names_of(drop_labels)
        self._spare = names_of(spare_labels)
        self._spare_text = pattern_of(self._spare)
        self._cache: SeriesCache[Meaning] = SeriesCache(max_series)

    @property
    def remembered(self) -> int:
        """How many series texts are remembered."""
        return len(self._cache.known)

    def forget(self) -> None:
        """Forget all series: each is resolved anew when it comes again."""
        self._cache = SeriesCache(self._cache.max_series)

    def parse(self, page: bytes, *, in_seconds: bool | None = None) -> Page[Meaning]:
        """Every legal line of `page`. Never raises, whatever the bytes. Timestamps as in `parse_columns`."""
        read = self.parse_columns(page, in_seconds=in_seconds)
        meanings, times = read.samples.meanings, read.samples.times_ms
        written: Iterable[int | None] = [None] * len(times)
        if (times != NO_TIMESTAMP).any():
            written = [None if time == NO_TIMESTAMP else time for time in times.tolist()]
        rows = zip(
            [meanings[slot] for slot in read.samples.series.tolist()],
            read.samples.values.tolist(),
            written,
            strict=True,
        )
        return Page(list(rows), read.refused, read.uncached_series)

    def parse_columns(self, page: bytes, *, in_seconds: bool | None = None) -> ColumnPage[Meaning]:
        """The same as columns.

        Timestamps are milliseconds, or with `in_seconds` seconds, as in OpenMetrics. None: seconds where the page
        ends with `# EOF`, which only OpenMetrics writes.
        """
        if in_seconds is None:
            in_seconds = page[-64:].rstrip().rpartition(b"\n")[2] == b"# EOF"
        self._cache.begin_page()
        work: _Work[Meaning] = _Work(in_seconds)
        self._read(page, work)
        try:
            values = _numbers(work.values)
        except ValueError:
            # A known series with a value that is none; which one is found by reading each value for itself.
            work = _Work(in_seconds)
            self._read(page, work, check=True)
            values = _numbers(work.values)
        return self._finish(work, values)

    def _read(self, page: bytes, work: _Work[Meaning], *, check: bool = False) -> None:
        known = self._cache.known.get
        add_entry, add_value = work.entries.append, work.values.append
        for line in page.split(b"\n"):
            head, _, tail = line.rpartition(b" ")
            entry = known(head)
            if entry is None or (check and not _is_number(tail)):
                if line and line[0] != _HASH:
                    self._read_timestamped(line, head, tail, work)
                continue
            add_entry(entry)
            add_value(tail)

    def _read_timestamped(self, line: bytes, head: bytes, tail: bytes, work: _Work[Meaning]) -> None:
        """The text before the last blank is no known series: perhaps the last word is a timestamp."""
        series, _, middle = head.rpartition(b" ")
        entry = self._cache.known.get(series) if middle else None
        try:
            if entry is not None and _is_number(middle):
                work.add(entry, middle, parse_time(tail, in_seconds=work.in_seconds))
                return
        except Refused:
            pass  # a known series whose rest is unusual: the whole grammar decides
        try:
            self._read_new(line, head, tail, work)
        except ValueError as error:
            work.refused[NOT_UTF8 if isinstance(error, UnicodeDecodeError) else str(error)] += 1

    def _read_new(self, line: bytes, head: bytes, tail: bytes, work: _Work[Meaning]) -> None:
        if not tail or line[0] in _BLANKS:
            stripped = line.strip(_BLANKS)
            if not stripped or stripped[0] == _HASH:
                return
        if len(line) > self._max_line_bytes:
            raise Refused("line too long")
        short = self._without_spare(head)
        if short in work.beyond and is_plain(head[head.find(b"{") + 1 : -1]) and _is_number(tail):
            work.uncached_series += 1
            raise Refused(BEYOND_CAP)
        found = self._plain(head, work)
        if found is None or not _is_number(tail):
            self._read_any(line, work)
            return
        if short and len(work.beyond) < _PAGE_TIMES_CAP * self._cache.max_series:
            work.beyond.add(short)
        work.add(self._entry(head, *found, work), tail, None)

    def _without_spare(self, head: bytes) -> bytes:
        """Beyond the cap: the series without its spare labels, or empty when it has none in the usual form."""
        if not self._spare or len(self._cache.known) < self._cache.max_series or head[-1:] != b"}":
            return b""
        short = self._spare_text.sub(b"", head)
        return b"" if len(short) == len(head) else short

    def _plain(self, head: bytes, work: _Work[Meaning]) -> tuple[str, LabelSet] | None:
        """Name and labels where `head` is a series in the form that nearly all pages have."""
        opening = head.find(b"{")
        if opening < 0 or head[-1:] != b"}":
            return None
        before, text = head[:opening], head[opening + 1 : -1]
        name, labels = work.names.get(before), work.texts.get(text)
        if name is None:
            name = plain_name(before)
            if name is None:
                return None
            work.names[before] = name
        if labels is None:
            pieces = plain_pieces(text)
            if pieces is None:
                return None
            labels = self._labels(pieces, is_plain=True)
            if len(work.texts) >= _MAX_TEXTS:
                work.texts.clear()
            work.texts[text] = labels
        return name, labels

    def _read_any(self, line: bytes, work: _Work[Meaning]) -> None:
        """Every legal form."""
        series, end = parse_series(line)
        value, time_ms, begin = parse_rest(line, end, in_seconds=work.in_seconds)
        # Keyed as the fast path will look it up: all that stands before the value's blank.
        text = line[: max(end, begin - 1)]
        entry = self._cache.known.get(text)
        if entry is None:
            entry = self._entry(text, series.name, self._labels(pieces_of(series.labels), is_plain=False), work)
        work.add(entry, value, time_ms)

    def _labels(self, pieces: dict[bytes, bytes], *, is_plain: bool) -> LabelSet:
        if self._drop:
            pieces = {name: piece for name, piece in pieces.items() if name not in self._drop}
        return LabelSet(pieces, self._spare, is_plain=is_plain)

    def _entry(self, text: bytes, name: str, labels: LabelSet, work: _Work[Meaning]) -> int:
        """Remember what `text` stands for, or, beyond the cap, for as long as the page lasts."""
        cache = self._cache
        if len(cache.known) >= cache.max_series:
            return self._beyond(name, labels, work)
        identity = (name, labels.key)
        slot = cache.identities.get(identity)
        if slot is None:
            slot = cache.add_slot(identity, self._resolve(Series(name, labels.labels)))
        return cache.add_entry(text, slot)

    def _beyond(self, name: str, labels: LabelSet, work: _Work[Meaning]) -> int:
        """An entry that lasts as long as the page. Raises Refused when the page holds too many of them."""
        work.uncached_series += 1
        kept = labels.without(self._spare) if labels.spare else labels
        identity = (name, kept.key)
        slot = work.more_identities.get(identity)
        if slot is None:
            slot = self._cache.identities.get(identity)
        if slot is None:
            slot = self._more(identity, kept, work)
        elif labels.spare:
            raise Refused(BEYOND_CAP)
        work.more_slots.append(slot)
        return len(self._cache.known) + len(work.more_slots) - 1

    def _more(self, identity: Identity, labels: LabelSet, work: _Work[Meaning]) -> int:
        if len(work.more) >= _PAGE_TIMES_CAP * self._cache.max_series:
            raise Refused(BEYOND_CAP)
        slot = work.more_identities[identity] = len(self._cache.meanings) + len(work.more)
        work.more.append(self._resolve(Series(identity[0], labels.labels)))
        return slot

    def _finish(self, work: _Work[Meaning], values: npt.NDArray[np.float64]) -> ColumnPage[Meaning]:
        """From entries to series, each once for each time; ignored ones left out."""
        cache = self._cache
        entries = np.array(work.entries, np.int64)
        meanings, slot_of = cache.meanings, cache.slot_of
        if work.more_slots:
            cache.note_seen(entries[entries < len(slot_of)])
            slot_of = np.concatenate([slot_of, np.array(work.more_slots, np.int64)])
            meanings = [*meanings, *work.more]
        else:
            cache.note_seen(entries)
        slots = slot_of[entries]
        times = np.full(len(slots), NO_TIMESTAMP, np.int64)
        if work.times:
            positions, written = zip(*work.times, strict=True)
            times[list(positions)] = written
        is_first = _firsts(slots, times if work.times else None, len(meanings))
        repeated = len(slots) - int(np.count_nonzero(is_first))
        if repeated:
            work.refused[DUPLICATE] += repeated
        if repeated or cache.has_ignored or work.more:
            is_first &= np.array([meaning is not None for meaning in meanings], np.bool_)[slots]
            slots, values, times = slots[is_first], values[is_first], times[is_first]
        samples = Samples(cast("list[Meaning]", meanings), slots, values, times)
        return ColumnPage(samples, work.refused, work.uncached_series, len(entries) - repeated - len(slots))


def _numbers(values: list[bytes]) -> npt.NDArray[np.float64]:
    if b"_" in b"".join(values):
        raise ValueError("underscore in a number")
    return np.array(list(map(float, values)), np.float64)


def _is_number(raw: bytes) -> bool:
    try:
        parse_value(raw)
    except ValueError:
        return False
    return True


def _firsts(slots: npt.NDArray[np.int64], times: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.bool_]:
    """Which samples are the first of their series (and time)."""
    order = np.arange(len(slots))
    if times is None:
        first = np.empty(count, np.int64)
        first[slots[::-1]] = order[::-1]
        return np.asarray(first[slots] == order)
    is_first = np.zeros(len(slots), np.bool_)
    is_first[np.unique(np.stack([slots, times]), axis=1, return_index=True)[1]] = True
    return is_first
