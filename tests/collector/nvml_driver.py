"""Runs passes over the stub's cards in one process, each case a new session, and prints what each pass gave.

    python -m tests.collector.nvml_driver CASES

CASES is a JSON list of (name, scenarios): before each pass the stub's scenario is replaced. A line of the answer is
`{"name": ..., "passes": [{"snapshot": ...} or {"error": ...}, ...]}`. The stub's log, where there is one, gets a line
"at PLACE" for each place that is announced.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from collector.nvml import activity
from collector.nvml.owners import Owners
from collector.nvml.session import Session


def _announce(place: str) -> None:
    log = os.environ.get("NVML_STUB_LOG")
    if log:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"at {place}\n")


def _passes(scenarios: list[list[str]], place: Path) -> list[dict[str, Any]]:
    session = None
    passes: list[dict[str, Any]] = []
    for lines in scenarios:
        part = place.with_name("part")
        part.write_text("\n".join(lines) + "\n")
        part.rename(place)
        try:
            session = session or Session(Owners(Path("/nowhere")), (), _announce)
            passes.append({"snapshot": session.read((), _announce)})
        except Exception as error:  # the child would end, and its parent start another one
            session = None
            passes.append({"error": type(error).__name__})
    return passes


def main() -> None:
    """Run all cases."""
    activity.MINIMUM_SECONDS = 0.0
    for name, scenarios in json.loads(Path(sys.argv[1]).read_text()):
        answer = {"name": name, "passes": _passes(scenarios, Path(os.environ["NVML_STUB_SCENARIO"]))}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
