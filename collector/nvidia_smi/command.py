"""Runs a command with a deadline that holds even where the command hangs in the kernel."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpuledger.errors import SourceError, SourceTimeout

_READ_BYTES = 1 << 16
_MAX_BYTES = 4 * 2**20


class Command:
    """One command, run again and again. One that could not be ended is waited for before the next is started."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._hung: subprocess.Popen[bytes] | None = None

    @property
    def is_hung(self) -> bool:
        """Whether the last one was killed and the kernel has not let it go."""
        return self._hung is not None and self._hung.poll() is None

    def run(self, arguments: Sequence[str], seconds: float) -> str:
        """What it prints, whatever its exit status.

        Raises SourceTimeout after `seconds`, SourceError when it cannot run.
        """
        if self.is_hung:
            raise SourceTimeout("the run before hangs still")
        try:
            process = subprocess.Popen(  # noqa: S603 the command is the operator's setting, no shell between
                list(arguments),
                env=None if self._environment is None else dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{arguments[0]} cannot be run: {error.strerror}") from error
        try:
            return _output(process, seconds).decode("utf-8", errors="replace")
        finally:
            self._end(process)

    def close(self) -> None:
        """Collect one that hung, where the kernel has let it go."""
        if self._hung is not None and self._hung.poll() is not None:
            self._hung = None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            self._hung = process


def _output(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    assert process.stdout is not None
    deadline, descriptor, text = time.monotonic() + seconds, process.stdout.fileno(), bytearray()
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
            raise SourceTimeout(f"no answer within {seconds:g} s")
        received = os.read(descriptor, _READ_BYTES)
        if not received:
            return bytes(text)
        text += received
        if len(text) > _MAX_BYTES:
            raise SourceError(f"answer larger than {_MAX_BYTES} bytes")
