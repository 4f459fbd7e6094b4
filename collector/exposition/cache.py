"""What a parser remembers of a target's series, and what it forgets first.

Two levels: the raw text before a value (an *entry*, looked up for every line) leads to a series (a *slot*), whose
meaning was asked for once. Several entries lead to one slot where a series is written in more than one way, or where
labels are left out.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Meaning = TypeVar("Meaning")
Identity = tuple[str, bytes]
Ints = npt.NDArray[np.int64]

KEPT_PAGES = 240
"""For how many pages an entry that is not seen is remembered: an hour at 15 s."""
SWEEP_PAGES = 60
_ROOM = 4


class SeriesCache(Generic[Meaning]):
    """At most `max_series` entries. `begin_page` forgets what was not seen for `KEPT_PAGES` pages.

    When it is full it forgets what was not on the last page, oldest first, until a quarter is free. What was on the
    last page stays, so that a target with too many series does not lose all of them at every page.
    """

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        self.known: dict[bytes, int] = {}
        self.identities: dict[Identity, int] = {}
        self.meanings: list[Meaning | None] = []
        self.has_ignored = False
        self._slot_of: Ints = np.zeros(256, np.int64)
        self._seen: Ints = np.zeros(256, np.int64)
        self._page = 0

    def begin_page(self) -> None:
        """Make room where it is due."""
        self._page += 1
        if len(self.known) >= self.max_series:
            self._forget(self._oldest())
        elif self._page % SWEEP_PAGES == 0:
            self._forget(self._seen[: len(self.known)] < self._page - KEPT_PAGES)

    def note_seen(self, entries: Ints) -> None:
        """These entries were on the page."""
        self._seen[entries] = self._page

    @property
    def slot_of(self) -> Ints:
        """The slot of each entry."""
        return self._slot_of[: len(self.known)]

    def add_slot(self, identity: Identity, meaning: Meaning | None) -> int:
        """Remember what a new series means."""
        slot = self.identities[identity] = len(self.meanings)
        self.meanings.append(meaning)
        self.has_ignored = self.has_ignored or meaning is None
        return slot

    def add_entry(self, text: bytes, slot: int) -> int:
        """Remember that `text` is written for the series of `slot`. Only while it is not full."""
        entry = self.known[text] = len(self.known)
        if entry == len(self._slot_of):
            self._slot_of = np.concatenate([self._slot_of, np.zeros_like(self._slot_of)])
            self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)])
        self._slot_of[entry] = slot
        self._seen[entry] = self._page
        return entry

    def _oldest(self) -> npt.NDArray[np.bool_]:
        """Of the entries that were not on the last page, as many as make room for a quarter, oldest first."""
        seen = self._seen[: len(self.known)]
        is_gone = np.zeros(len(seen), np.bool_)
        absent = np.nonzero(seen < self._page - 1)[0]
        wanted = max(1, self.max_series // _ROOM)
        is_gone[absent[np.argsort(seen[absent], kind="stable")[:wanted]]] = True
        return is_gone

    def _forget(self, is_gone: npt.NDArray[np.bool_]) -> None:
        """Drop entries, and slots that no entry leads to. Lists are replaced: who holds the old ones keeps them."""
        if not is_gone.any():
            return
        kept = np.nonzero(~is_gone)[0]
        slots, numbers = np.unique(self._slot_of[kept], return_inverse=True)
        self.known = {text: number for number, text in enumerate(_at(list(self.known), kept))}
        identities = list(self.identities)
        self.identities = {identity: number for number, identity in enumerate(_at(identities, slots))}
        self.meanings = _at(self.meanings, slots)
        room = max(256, len(kept))
        self._seen = np.resize(self._seen[kept], room) if len(kept) else np.zeros(room, np.int64)
        self._slot_of = np.resize(numbers.astype(np.int64), room) if len(kept) else np.zeros(room, np.int64)


Item = TypeVar("Item")


def _at(items: list[Item], positions: Ints) -> list[Item]:
    return [items[position] for position in positions.tolist()]
