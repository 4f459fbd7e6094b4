"""Rules for what names and labels mean here: which tenant, stage, kind, queue and user a pod belongs to.

A file of rules is TOML. Each table is a list; the first rule that matches gives the value, and what no rule says is
worked out as `gpuledger.attribution.attribute` describes:

    [[tenant]]
    namespace = "nlp-*"                      # a pattern of the shell; left out: any
    labels = { "team" = "*", "tier" = "a" }  # all of them must be there and match
    value = "nlp/{label:team}"               # or {namespace}, {pod}; a label that is not set: the rule does not match
    from = 2026-01-01T00:00:00Z              # the rule holds from then on
    until = 2026-07-01T00:00:00Z             # and until then
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from gpuledger.attribution.labels import Labels
from gpuledger.errors import ConfigError
from gpuledger.model.vocabulary import STAGES, WORKLOAD_KINDS

FIELDS = ("workload", "tenant", "user", "queue", "stage", "kind")
"""What rules may say, in the order in which it is worked out."""

_CHOICES: Mapping[str, tuple[str, ...]] = {"stage": STAGES, "kind": WORKLOAD_KINDS}
_PLACE = re.compile(r"\{(namespace|pod|label:[^{}]+)\}")
_KNOWN = {"namespace", "pod", "labels", "value", "from", "until"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `value` for pods that match, during [`from_at`, `until_at`)."""

    value: str
    namespace: str = "*"
    pod: str = "*"
    labels: Mapping[str, str] = field(default_factory=dict)
    from_at: datetime | None = None
    until_at: datetime | None = None

    def answer(self, namespace: str, pod: str, labels: Labels, at: datetime) -> str | None:
        """The rule's value for this pod at `at`; None where it does not match."""
        if (self.from_at and at < self.from_at) or (self.until_at and at >= self.until_at):
            return None
        if not (fnmatchcase(namespace, self.namespace) and fnmatchcase(pod, self.pod)):
            return None
        for name, pattern in self.labels.items():
            if not any(fnmatchcase(value, pattern) for value in labels.all(name)):
                return None
        return _fill(self.value, namespace, pod, labels)


def _fill(template: str, namespace: str, pod: str, labels: Labels) -> str | None:
    fixed = {"namespace": namespace, "pod": pod}
    values = {
        place: fixed[place] if place in fixed else labels.get(place.removeprefix("label:"))
        for place in _PLACE.findall(template)
    }
    if None in values.values():
        return None
    return _PLACE.sub(lambda match: values[match[1]] or "", template) or None


@dataclass(frozen=True, slots=True)
class Rules:
    """Ordered rules for each of `FIELDS`. Without any, the built-in ones alone decide."""

    by_field: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)

    def answer(self, name: str, namespace: str, pod: str, labels: Labels, at: datetime) -> str | None:
        """What the first matching rule says of field `name`."""
        for rule in self.by_field.get(name, ()):
            found = rule.answer(namespace, pod, labels, at)
            if found is not None and found in _CHOICES.get(name, (found,)):
                return found
        return None


def load(path: Path | None) -> Rules:
    """The rules in `path`; none for None. Raises ConfigError naming the file, the rule and what is wrong."""
    if path is None:
        return Rules()
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"attribution rules {path}: {error}") from error


def parse(given: Any) -> Rules:
    """Rules from what a file held. Raises ValueError naming the rule by its field and number."""
    if not isinstance(given, dict):
        raise ValueError("is not a table of rules")  # noqa: TRY004 the file's content, not our caller's type
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise ValueError(f"no field called {unknown[0]!r}; known: {', '.join(FIELDS)}")
    return Rules({name: tuple(_rules(name, rows)) for name, rows in given.items()})


def _rules(name: str, rows: Any) -> list[Rule]:
    if not isinstance(rows, list):
        raise ValueError(f"{name}: is not a list of rules")  # noqa: TRY004 the file's content
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(_rule(name, row))
        except ValueError as error:
            raise ValueError(f"{name} rule {number}: {error}") from None
    return found


def _rule(name: str, row: Any) -> Rule:
    if not isinstance(row, dict) or not isinstance(row.get("value"), str) or not row["value"]:
        raise ValueError("needs a value")
    if unknown := sorted(set(row) - _KNOWN):
        raise ValueError(f"no key called {unknown[0]!r}")
    labels = row.get("labels", {})
    texts = [row.get("namespace", "*"), row.get("pod", "*"), *(labels.values() if isinstance(labels, dict) else [None])]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("namespace, pod and labels are texts")
    if any(brace in _PLACE.sub("", row["value"]) for brace in "{}"):
        raise ValueError(f"{row['value']!r} holds a brace that is none of {{namespace}}, {{pod}}, {{label:name}}")
    if not _PLACE.search(row["value"]) and row["value"] not in _CHOICES.get(name, (row["value"],)):
        raise ValueError(f"{row['value']!r} is not one of {', '.join(_CHOICES[name])}")
    begin, end = _instant(row, "from"), _instant(row, "until")
    if begin and end and end <= begin:
        raise ValueError("until lies before from")
    return Rule(row["value"], cast("str", texts[0]), cast("str", texts[1]), labels, begin, end)


def _instant(row: Mapping[str, Any], key: str) -> datetime | None:
    value = row.get(key)
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if not isinstance(at, datetime):
        raise ValueError(f"{key} is no time (2026-01-01T00:00:00Z)")  # noqa: TRY004 the file's content
    return at if at.tzinfo else at.replace(tzinfo=UTC)
