"""What every fuzzer here shares: `python fuzz/<name>.py --seconds 60 [--seed 1]`, deadlines, memory, and a kept input.

A fuzzer gives `make(rng) -> bytes` and `check(content)`; `check` raises for anything that must not happen. The first
input that fails is written to `var/fuzz/` and its seed is printed.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_SECONDS = 10.0
"""What one input may take. Generous: it is about hangs, on a machine that may be busy."""
MAX_GROWTH_MB = 600.0
FIRST_INPUTS = 200
"""After so many inputs the memory in use is the measure for the rest."""


class TookTooLong(BaseException):
    """One input ran into its deadline. No `Exception`, so that nobody who handles those hides it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the middle of whatever runs too long. Only in the main thread."""

    def stop(_signal: int, _frame: object) -> None:
        raise TookTooLong(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def megabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(name: str, make: Callable[[random.Random], bytes], check: Callable[[bytes], None], argv: list[str]) -> int:
    """Feed inputs to `check` until the time is over; gives the exit status."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    rng, began = random.Random(options.seed), time.monotonic()
    inputs, slowest, base = 0, 0.0, 0.0
    content = b""
    try:
        while time.monotonic() - began < options.seconds:
            content = make(rng)
            started = time.monotonic()
            with deadline(DEADLINE_SECONDS):
                check(content)
            slowest = max(slowest, time.monotonic() - started)
            inputs += 1
            if inputs == FIRST_INPUTS:
                base = megabytes()
            assert not base or megabytes() - base <= MAX_GROWTH_MB, f"{megabytes() - base:.0f} MB more than at first"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        kept = _keep(name, content)
        print(f"{name}: seed {options.seed}, input {inputs}: {type(error).__name__}: {error}; kept as {kept}")
        raise
    spent = time.monotonic() - began
    print(
        f"{name}: {inputs} inputs in {spent:.0f} s ({inputs / spent:.0f}/s), seed {options.seed}, "
        f"slowest {1e3 * slowest:.0f} ms, at most {megabytes():.0f} MB"
    )
    return 0


def _keep(name: str, content: bytes) -> Path:
    folder = Path(__file__).resolve().parents[1] / "var" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{name}.bin"
    kept.write_bytes(content)
    return kept


def mutated(rng: random.Random, content: bytes, tokens: tuple[bytes, ...]) -> bytes:
    """`content` after a few random edits, some of them with `tokens` that mean something to the reader."""
    work = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8, 20))):
        _edit(rng, work, tokens)
    return bytes(work)


def _edit(rng: random.Random, work: bytearray, tokens: tuple[bytes, ...]) -> None:
    position = rng.randrange(len(work) + 1)
    length = min(rng.choice((1, 1, 2, 4, 16, 200)), len(work) - position)
    span = slice(position, position + length)
    choice = rng.randrange(6)
    if choice == 0:
        work[span] = rng.randbytes(length)
    elif choice == 1:
        del work[span]
    elif choice == 2:
        work[position:position] = rng.choice(tokens)
    elif choice == 3:
        work[span] = rng.choice(tokens)
    elif choice == 4:
        start = rng.randrange(len(work) + 1)
        work[position:position] = work[start : start + rng.choice((1, 20, 300, 3000))]
    else:
        for offset in range(position, position + length):
            work[offset] ^= 1 << rng.randrange(8)


def main(name: str, make: Callable[[random.Random], bytes], check: Callable[[bytes], None]) -> None:
    """The command line of a fuzzer."""
    sys.exit(fuzz(name, make, check, sys.argv[1:]))
