"""Logs of training: what a line tells, when it was, and which part of a file was read."""

from __future__ import annotations

from collector.training_log.follow import Follower, Step
from collector.training_log.lines import FORMATS, Kind, LineReader, Told
from collector.training_log.places import Places
from collector.training_log.steps import Declared, Progress, Rows, Subject, progress_rows
from collector.training_log.tail import FileState, Piece, Tail

__all__ = [
    "FORMATS",
    "Declared",
    "FileState",
    "Follower",
    "Kind",
    "LineReader",
    "Piece",
    "Places",
    "Progress",
    "Rows",
    "Step",
    "Subject",
    "Tail",
    "Told",
    "progress_rows",
]
