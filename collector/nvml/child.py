"""The process that calls NVML: one JSON request a line on standard input, JSON answers a line on standard output.

A request is `{"skip": [uuid, ...]}`. The answers to one are any number of `{"at": uuid}`, said before the calls on a
device so that the parent knows where a pass hangs, and then `{"snapshot": ...}`. `{"fatal": text}` means that this
process is of no further use. It ends when its input ends, so a parent that is killed leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pynvml

from collector.nvml.calls import RestartNeededError
from collector.nvml.session import Session


def main() -> int:
    """Serve requests until the input ends or the library fails."""
    # The library may print; what it prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        session = Session()
        for line in sys.stdin:
            request = json.loads(line)
            say({"snapshot": session.read(frozenset(request["skip"]), lambda uuid: say({"at": uuid}))})
    except (RestartNeededError, pynvml.NVMLError) as error:
        say({"fatal": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
