"""A process that calls a vendor's library for us: start it, ask it with a deadline, kill it.

A call into a driver may hang in the kernel for ever, and a library may take its process with it. Requests and answers
are JSON, one a line: a request is `{"skip": [place, ...]}`. The answers to one are any number of `{"at": place}`, said
before the calls at a place so that the parent knows where a pass hangs, and then `{"snapshot": ...}`, or
`{"fatal": text}` from a process that is of no further use. It ends when its input ends, so that a parent that is killed
leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuledger.errors import SourceError, SourceTimeout

_IMPORT_ROOT = str(Path(__file__).resolve().parents[1])
_READ_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 16 * 2**20


class HungError(SourceTimeout):
    """The child did not answer in time. `place` is where it was, as far as it said so."""

    def __init__(self, seconds: float, place: str | None) -> None:
        super().__init__(f"no answer within {seconds:g} s" + (f", hung at {place}" if place else ""))
        self.place = place


class EndedError(SourceError):
    """The child ended, or is of no further use. `place` is where it was, as far as it said so."""

    def __init__(self, text: str, place: str | None = None) -> None:
        super().__init__(text)
        self.place = place


class ChildProcess:
    """One child, which runs `module` with `arguments` and is called `name` in errors.

    After any error it must be killed; a call that hangs in the kernel outlives even that.
    """

    def __init__(self, name: str, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._name = name
        inherited = dict(os.environ if environment is None else environment)
        paths = [_IMPORT_ROOT, *filter(None, [inherited.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603 a module of ours
            [sys.executable, "-m", module, *arguments],
            env=inherited | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, skip: Iterable[str], seconds: float) -> dict[str, Any]:
        """One snapshot without the places `skip`. Raises HungError after `seconds`, EndedError when it gave up."""
        deadline = time.monotonic() + seconds
        request = json.dumps({"skip": sorted(skip)}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise EndedError(f"the {self._name} process is gone") from error
        at: str | None = None
        while True:
            answer = self._answer(deadline, seconds, at)
            if "snapshot" in answer:
                snapshot: dict[str, Any] = answer["snapshot"]
                return snapshot
            if "fatal" in answer:
                raise EndedError(f"{self._name}: {answer['fatal']}", at)
            at = answer.get("at", at)

    def _answer(self, deadline: float, seconds: float, at: str | None) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
                raise HungError(seconds, at)
            received = os.read(descriptor, _READ_BYTES)
            if not received or len(self._buffer) > _MAX_ANSWER_BYTES:
                raise EndedError(f"the {self._name} process died", at)
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise EndedError(f"the {self._name} process answered nonsense", at) from error
        if not isinstance(answer, dict):
            raise EndedError(f"the {self._name} process answered nonsense", at)
        return answer

    def kill(self, seconds: float = 1.0) -> bool:
        """End it. False when the kernel still holds it after `seconds`; call again later to collect it."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue  # unsent bytes of a request to a dead child
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
