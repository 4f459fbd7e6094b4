"""Recordings of the kernel's files of adapters: lines of path, tab, content."""

from __future__ import annotations

from pathlib import Path

PREFIX = "sys/class/infiniband/"


def files_of(recording: str) -> dict[str, str]:
    """Text by path below the folder of adapters."""
    lines = (line.partition("\t") for line in recording.splitlines() if line)
    return {path.removeprefix(PREFIX): text for path, _, text in lines}


def plant(root: Path, recording: str) -> None:
    """Write the recording as files."""
    for path, text in files_of(recording).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
