"""The process that calls amdsmi, as `collector.child_process` has it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from collector.amdsmi.session import Session

ABSENT = "the Python module amdsmi is not there; it comes with ROCm (package amd-smi-lib), for the system's Python"


def main() -> int:
    """Serve requests until the input ends or the library fails."""
    # The library may print; what it prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()

    def announce(place: str) -> None:
        say({"at": place})

    session: Session | None = None
    try:
        for line in sys.stdin:
            skip = frozenset(json.loads(line)["skip"])
            session = session or Session(importlib.import_module("amdsmi"), announce)
            say({"snapshot": session.read(skip, announce)})
    except ModuleNotFoundError:
        say({"fatal": ABSENT})
        return 1
    except Exception as error:  # whatever it is, the parent starts anew
        say({"fatal": f"{error} ({type(error).__name__})"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
