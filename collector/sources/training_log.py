"""Logs of training: files that grow are one source of steps, phases and checkpoints, and of the model that is declared.

Which job a file belongs to stands in its path, or is set. Logs list no device: their reads count for no coverage.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from collector.training_log import Declared, Follower, LineReader, Places, Rows, Step, progress_rows
from gpuledger.model import JobModel, QualityEvent, SourceRead
from gpuledger.model.vocabulary import PRECISIONS
from gpuledger.ports import Observation

SOURCE = "training_log"
MODEL_FIELDS = {field.name for field in dataclasses.fields(JobModel)} - {"workload_id"}


class TrainingLogSource:
    r"""Reads the files that `path` names: `*`, `**` and `?` as in a shell, `{name}` for a part of the path's own.

    Options: `workload` is the job's id as its scheduler gives it, with `{name}` of the path and `{env:NAME}` of the
    agent's environment; `{rank}` and `{attempt}` are numbers. `format` is auto, megatron, verl, deepspeed, torchtitan
    or pattern; `pattern`, `checkpoint_pattern` and `evaluation_pattern` are regular expressions with named groups
    (`collector.training_log.LineReader`), `time_format` is strptime's for the group `time`. `time_zone` is that of the
    clock that the logs are written by. `gpus`, `global_batch` (samples) and `sequence_tokens` are a job's, where its
    log does not say so. `model` declares what is trained: `active_parameters`, and any of `layers`, `hidden_size`,
    `precision`, `parallelism`. `first_bytes` of a log that is there at the very first read are read, from its end;
    `max_bytes` at most in one read. `state_directory` is where it is remembered what was read.

    Raises ValueError for an option that cannot be used.
    """

    def __init__(  # noqa: PLR0913 settings of one set of logs, by keyword only
        self,
        path: str,
        *,
        workload: str = "{workload}",
        format: str = "auto",  # noqa: A002 the name that an operator looks for
        pattern: str = "",
        checkpoint_pattern: str = "",
        evaluation_pattern: str = "",
        time_format: str = "",
        time_zone: str = "UTC",
        gpus: int | None = None,
        global_batch: float | None = None,
        sequence_tokens: int | None = None,
        model: Mapping[str, Any] | None = None,
        first_bytes: int = 2**20,
        max_bytes: int = 8 * 2**20,
        interval_seconds: float = 15.0,
        state_directory: str | Path = "var/training_log",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"{SOURCE}:{path}"
        self.interval_seconds = interval_seconds
        self._places = Places(path, workload, os.environ if environment is None else environment)
        self._lines = LineReader(
            format, pattern=pattern, checkpoint_pattern=checkpoint_pattern, evaluation_pattern=evaluation_pattern
        )
        try:
            zone = ZoneInfo(time_zone)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError(f"time_zone: no zone is called {time_zone!r}") from error
        for option, value in {"gpus": gpus, "global_batch": global_batch, "sequence_tokens": sequence_tokens}.items():
            if value is not None and value <= 0:
                raise ValueError(f"{option}: must be more than 0")
        if first_bytes < 0 or max_bytes < 1024:
            raise ValueError("first_bytes, max_bytes: must be at least 0 and 1024")
        self._declared = Declared(
            zone=zone, time_format=time_format, gpus=gpus, samples=global_batch, sequence_tokens=sequence_tokens
        )
        self._model = _model(model, sequence_tokens)
        mark = hashlib.blake2b(self.name.encode(), digest_size=6).hexdigest()
        self._files = Follower(Path(state_directory) / f"{mark}.json", first_bytes=first_bytes, max_bytes=max_bytes)
        self._modelled: set[str] = set()

    def read(self, now: datetime) -> Observation:
        """What the files say that is new. Never raises: logs that cannot be read are a failed read."""
        try:
            return self._read(now)
        except OSError as error:
            return Observation(reads=(self._told(now, error=_said(error)),))
        except Exception as error:  # the port promises an observation, whatever a disk does
            return Observation(reads=(self._told(now, error=f"{type(error).__name__} while reading logs"),))

    def close(self) -> None:
        """Everything that was read is spooled: remember so."""
        self._files.close()

    def _read(self, now: datetime) -> Observation:
        rows: dict[str, list[Any]] = {}
        wrong: Counter[tuple[str, str]] = Counter()
        skipped, failed = 0, ""
        for piece in self._files.pieces(self._places.files(), now):
            if isinstance(piece, OSError):
                failed = failed or _said(piece)
                continue
            own = self._rows(piece)
            job, skipped = piece.subject.workload_id, skipped + piece.read.long_lines
            for record, made in own.records().items():
                rows.setdefault(record, []).extend(made)
            wrong[job, "rejected_value"] += own.refused
            wrong[job, "refused_line"] += own.skewed + piece.read.long_lines
            if self._model and job not in self._modelled:
                self._modelled.add(job)
                rows.setdefault("job_model", []).append(JobModel(workload_id=job, **self._model))
        self._files.keep(now)
        rows["quality_event"] = [
            QualityEvent(
                ts=now, source=SOURCE, subject_kind="workload", subject=job, kind=kind, detail=self.name, count=count
            )
            for (job, kind), count in wrong.items()
            if count
        ]
        return Observation(reads=(self._told(now, error=failed or None, skipped=skipped),), others=rows)

    def _rows(self, piece: Step) -> Rows:
        ended, read = (datetime.fromtimestamp(at, UTC) for at in (piece.read.piece.ended_at, piece.read.piece.read_at))
        told = self._lines.read(piece.read.lines)
        rows = progress_rows(told, piece.subject, self._declared, piece.tail.known, ended_at=ended, read_at=read)
        piece.tail.noted()
        return rows

    def _told(self, now: datetime, *, error: str | None = None, skipped: int = 0) -> SourceRead:
        return SourceRead(
            ts=now,
            node=self.name,
            source=SOURCE,
            scope="device",
            ok=error is None,
            interval_seconds=self.interval_seconds,
            skipped_lines=skipped,
            error=error,
        )


def _said(error: OSError) -> str:
    return f"{error.filename or 'logs'}: {os.strerror(error.errno or 0).lower()}"


def _model(declared: Mapping[str, Any] | None, sequence_tokens: int | None) -> Mapping[str, Any]:
    """The declaration of a model as fields of JobModel. Raises ValueError for one that has no such meaning."""
    model = dict(declared or {})
    if unknown := sorted(set(model) - MODEL_FIELDS):
        raise ValueError(f"model: knows no {unknown[0]}; known: {', '.join(sorted(MODEL_FIELDS))}")
    if model.get("precision", "bf16") not in PRECISIONS:
        raise ValueError(f"model.precision: must be one of {', '.join(PRECISIONS)}")
    for name, value in model.items():
        if name != "precision" and (not isinstance(value, int | float) or isinstance(value, bool) or value < 0):
            raise ValueError(f"model.{name}: must be a number, not negative")
    return model | ({"sequence_tokens": sequence_tokens} if model and sequence_tokens else {})
