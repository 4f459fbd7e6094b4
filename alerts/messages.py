"""Messages from findings. The wording is a text file that an operator may edit; its first line is the title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from gpuledger.errors import ConfigError
from gpuledger.model import Finding
from gpuledger.ports import Message
from gpuledger.presentation import numbers
from gpuledger.presentation.findings import FindingView, view
from gpuledger.presentation.texts import Texts

SEVERITIES = (("critical", 1000.0), ("warning", 100.0), ("info", 0.0))
"""From how many wasted GPU-hours a finding has which severity."""


def severity(gpu_hours_wasted: float) -> str:
    """How urgent a finding is, by what it costs."""
    return next((name for name, floor in SEVERITIES if gpu_hours_wasted >= floor), "info")


def load_template(language: str = "en", directory: Path | None = None) -> Template:
    """The wording of findings: the file in `directory`, else ours. Raises ConfigError naming a bad field."""
    name = "finding.txt" if language == "en" else f"finding.{language}.txt"
    own = directory / name if directory is not None else None
    text = own.read_text(encoding="utf-8") if own is not None and own.is_file() else None
    if text is None:
        text = files("alerts").joinpath("templates", name).read_text(encoding="utf-8")
    template = Template(text)
    if not template.is_valid():
        raise ConfigError(f"{name}: a $ must be followed by a field's name, or be doubled")
    unknown = sorted(set(template.get_identifiers()) - set(_FIELDS))
    if unknown:
        raise ConfigError(f"{name}: unknown field ${unknown[0]}; known: {', '.join(_FIELDS)}")
    return template


_FIELDS = (
    "rule",
    "subject",
    "sentence",
    "tenant",
    "period",
    "wasted",
    "recoverable",
    "observed",
    "confidence",
    "basis",
    "cause",
    "action",
    "changes",
)


def _values(seen: FindingView, texts: Texts, timezone: str) -> dict[str, str]:
    def hours(value: float) -> str:
        return numbers.gpu_hours(value, texts.language)

    texts_of = {name: str(getattr(seen, name)) for name in _FIELDS if hasattr(seen, name) and name != "sentence"}
    return texts_of | {
        "sentence": seen.sentence(texts),
        "period": numbers.period(seen.from_at, seen.to_at, timezone),
        "wasted": hours(seen.gpu_hours_wasted),
        "recoverable": hours(seen.gpu_hours_recoverable),
        "observed": hours(seen.gpu_hours_observed),
        "confidence": numbers.percent(seen.confidence),
    }


def _severity(finding: Finding | Mapping[str, Any]) -> str:
    """By what it costs; a health finding says itself how urgent it is."""
    row = asdict(finding) if isinstance(finding, Finding) else finding
    own = row.get("severity") if row.get("category") == "health" else None
    return own if own in dict(SEVERITIES) else severity(row["gpu_hours_wasted"])


def finding_message(
    finding: Finding | Mapping[str, Any],
    created_at: datetime,
    *,
    timezone: str = "UTC",
    language: str = "en",
    template: Template | None = None,
) -> Message:
    """A finding (or a row of query `finding_list`) as a message. Its key names the finding, whatever its numbers."""
    texts = Texts(language)
    seen = view(finding, texts)
    title, _, text = (template or load_template(language)).substitute(_values(seen, texts, timezone)).partition("\n")
    return Message(
        key=f"finding:{seen.finding_id}:new",
        kind="finding",
        title=title.strip(),
        text=text.strip(),
        severity=_severity(finding),
        created_at=created_at,
        fields={
            "finding_id": seen.finding_id,
            "analyzer": seen.analyzer,
            "subject": seen.subject,
            "tenant": seen.tenant,
            "window_start": seen.from_at.isoformat(),
            "window_end": seen.to_at.isoformat(),
            "gpu_hours_observed": seen.gpu_hours_observed,
            "gpu_hours_wasted": seen.gpu_hours_wasted,
            "gpu_hours_recoverable": seen.gpu_hours_recoverable,
            "confidence": seen.confidence,
            "basis": seen.basis,
        },
    )


def to_json(message: Message) -> dict[str, Any]:
    """The message as plain JSON values, for an outbox."""
    return {**asdict(message), "created_at": message.created_at.isoformat(), "fields": dict(message.fields)}


def from_json(stored: Mapping[str, Any]) -> Message:
    """A message that `to_json` stored."""
    return Message(**{**stored, "created_at": datetime.fromisoformat(stored["created_at"])})
