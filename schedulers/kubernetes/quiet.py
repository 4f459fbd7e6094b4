"""Keeps the garbage collector away while many objects are made that all stay: it would walk them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_inside = 0


@contextmanager
def no_collecting() -> Iterator[None]:
    """Within the block nothing is collected; of several threads the last one out turns it on again.

    Of 20,000 pods a third of the time goes into looking for cycles that JSON cannot have.
    """
    global _inside  # noqa: PLW0603 the collector is the process's own
    with _lock:
        was_on = gc.isenabled() or _inside > 0
        _inside += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if was_on and not _inside:
                gc.enable()
