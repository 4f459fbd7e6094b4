"""The process that calls NVML, as `collector.child_process` has it; a place is a card's UUID, or one of `places`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from collector.nvml.calls import text_of
from collector.nvml.owners import Owners
from collector.nvml.session import Session


def main(proc: Path) -> int:
    """Serve requests until the input ends or the library fails. `proc` is where the node's processes are shown."""
    # The library may print; what it prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def announce(place: str) -> None:
        say({"at": place})

    session: Session | None = None
    try:
        for line in sys.stdin:
            skip = frozenset(json.loads(line)["skip"])
            session = session or Session(Owners(proc), skip, announce)
            say({"snapshot": session.read(skip, announce)})
    except Exception as error:  # whatever it is, the parent starts anew
        say({"fatal": text_of(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
