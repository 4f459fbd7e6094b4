"""A site's policy: thresholds of rules for some of its work, and exemptions with an owner, a reason and an end.

A policy file is TOML:

    [[threshold]]
    rule = "idle_allocation"            # a rule's name
    kind = "notebook"                   # tenant, queue, kind, workload: patterns of the shell; left out: any
    min_idle_minutes = 120              # options of the rule, by their names

    [[exemption]]
    rule = "idle_allocation"            # left out: every rule
    tenant = "serving-*"
    owner = "li.wei"
    reason = "warm spares for the festival"
    expires_at = 2027-02-20T00:00:00Z

Of several thresholds that match, the last one that sets an option wins. An exemption ends by itself. Of an exemption
`node` may be a pattern too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from gpuledger.errors import BadInput, ConfigError
from gpuledger.model.people import check_name


class Subject(BaseModel):
    """Which work is meant: patterns of the shell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: str = "*"
    queue: str = "*"
    kind: str = "*"
    workload: str = "*"

    _line: int = PrivateAttr(0)

    @property
    def line(self) -> int:
        """Where the file says it, counted from 1; 0 where that is not known."""
        return self._line

    @property
    def patterns(self) -> Mapping[str, str]:
        """The patterns that leave anything out, by their names."""
        given = {name: getattr(self, name) for name in Subject.model_fields}
        return {name: pattern for name, pattern in given.items() if pattern != "*"}

    def covers(self, subject: Mapping[str, Any]) -> bool:
        """Whether `subject` (tenant, queue, kind, workload_id) matches every pattern."""
        return (
            fnmatchcase(subject.get("tenant") or "", self.tenant)
            and fnmatchcase(subject.get("queue") or "", self.queue)
            and fnmatchcase(subject.get("kind") or "", self.kind)
            and fnmatchcase(subject.get("workload_id") or "", self.workload)
        )


class Threshold(Subject):
    """Options of one rule for some work."""

    model_config = ConfigDict(extra="allow", frozen=True)

    rule: str

    @property
    def options(self) -> Mapping[str, Any]:
        """What is set, by the rule's option names."""
        return self.model_extra or {}


def _person(name: str) -> str:
    try:
        check_name("owner", name)
    except BadInput as error:
        raise ValueError(error.reason) from None
    return name


class Exemption(Subject):
    """Work that a rule may not accuse until `expires_at`."""

    rule: str = "*"
    node: str = "*"
    owner: Annotated[str, Field(min_length=1), AfterValidator(_person)]
    reason: str = Field(min_length=1)
    expires_at: AwareDatetime


class Policy(BaseModel):
    """Thresholds and exemptions, in the file's order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threshold: tuple[Threshold, ...] = ()
    exemption: tuple[Exemption, ...] = ()

    def options(self, rule: str, given: Mapping[str, Any], subject: Mapping[str, Any]) -> dict[str, Any]:
        """`given` with what the policy sets of `rule` for `subject` over it."""
        chosen = dict(given)
        for one in self.threshold:
            if one.rule == rule and one.covers(subject):
                chosen.update(one.options)
        return chosen

    def origin(self, rule: str, name: str, subject: Mapping[str, Any]) -> Threshold | None:
        """The threshold that sets option `name` of `rule` for `subject`; None where the policy leaves it as it is."""
        setting = [one for one in self.threshold if one.rule == rule and name in one.options and one.covers(subject)]
        return setting[-1] if setting else None

    def expired(self, at: datetime) -> tuple[Exemption, ...]:
        """Exemptions that have ended by `at`: lines that say nothing any more."""
        return tuple(one for one in self.exemption if one.expires_at <= at)

    def exemption_of(self, rule: str, subject: Mapping[str, Any], at: datetime) -> Exemption | None:
        """The first exemption of `subject` from `rule` that is in force at `at`."""
        for one in self.exemption:
            is_meant = fnmatchcase(rule, one.rule) and fnmatchcase(subject.get("node") or "", one.node)
            if is_meant and at < one.expires_at and one.covers(subject):
                return one
        return None


def parse(text: str, name: str) -> Policy:
    """The policy in `text`. Raises ConfigError naming the file as `name`, the place and what is wrong."""
    try:
        policy = Policy.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"policy {name}: {_place(first['loc'], text)}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy {name}: {error}") from error
    tables: Mapping[str, tuple[Subject, ...]] = {"threshold": policy.threshold, "exemption": policy.exemption}
    for table, entries in tables.items():
        for one, line in zip(entries, _lines(text, table), strict=False):
            one._line = line  # noqa: SLF001 where it stands is known only here
    return policy


def load(path: Path | None) -> Policy:
    """The policy in `path`; an empty one for None. Raises ConfigError naming the file, the place and what is wrong."""
    if path is None:
        return Policy()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"policy {path}: {error}") from error
    return parse(text, str(path))


def _lines(text: str, table: str) -> list[int]:
    """In which lines the tables `[[table]]` begin."""
    heads = (re.match(rf"\s*\[\[\s*{table}\s*\]\]", line) for line in text.splitlines())
    return [number for number, head in enumerate(heads, 1) if head]


def _place(location: tuple[int | str, ...], text: str) -> str:
    """A place in the file as its writer counts: the table, its line, the field."""
    table, *rest = location
    if not rest or not isinstance(rest[0], int):
        return ".".join(map(str, location))
    number, lines = rest[0], _lines(text, str(table))
    line = f" (line {lines[number]})" if number < len(lines) else ""
    return ".".join([f"{table} {number + 1}{line}", *map(str, rest[1:])])
