"""Where logs lie and whose they are: a path with wildcards and named parts, and the job's id made of those."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from pathlib import Path

from collector.training_log.steps import Subject

MAX_FILES = 1_000
_PART = re.compile(r"\{(\w+)\}|(\*)|(\?)")
_NAME = re.compile(r"\{(env:)?(\w+)\}")
_NUMBERS = ("rank", "attempt")


class Places:
    """The files that a path names, and the subject of each.

    In `path`, `*`, `**` (any folders) and `?` are as in a shell; `{name}` is a part of the path's own, of which
    `{rank}` and `{attempt}` are numbers. `workload` is the job's id, with `{name}` of the path and `{env:NAME}` of
    `environment`. Raises ValueError for a form that cannot be used.
    """

    def __init__(self, path: str, workload: str, environment: Mapping[str, str]) -> None:
        if not path or "\0" in path:
            raise ValueError("path: names no file")
        parts = str(Path(path).absolute()).split("/")[1:]
        plain = list(takewhile(lambda part: part != "**" and not _PART.search(part), parts[:-1]))
        self._root = Path("/", *plain)
        self._glob = "/".join(_PART.sub("*", part) if part != "**" else part for part in parts[len(plain) :])
        try:
            self._match = re.compile("/" + "".join(map(_folder, parts[:-1])) + _named(parts[-1]))
        except re.error as error:
            raise ValueError(f"path: {error}") from error
        self._workload, self._fields = _filled(workload, environment)
        if missing := sorted(self._fields - set(self._match.groupindex)):
            raise ValueError(f"workload: the path has no part {{{missing[0]}}}")

    def files(self) -> Iterator[tuple[Path, Subject]]:
        """The files that are there, at most MAX_FILES, by name. Raises OSError where the folder cannot be read."""
        if not self._root.is_dir():
            raise FileNotFoundError(2, "no such folder", str(self._root))
        known = ((path, self.subject(path)) for path in sorted(self._root.glob(self._glob)) if path.is_file())
        yield from islice(((path, subject) for path, subject in known if subject is not None), MAX_FILES)

    def subject(self, path: Path) -> Subject | None:
        """Whose log `path` is; None where it is none of these."""
        found = self._match.fullmatch(str(path))
        if found is None:
            return None
        of = found.groupdict()
        name = _NAME.sub(lambda part: of[part[2]], self._workload)
        return Subject(workload_id=name, rank=int(of["rank"]) if "rank" in of else None) if name else None


def _folder(part: str) -> str:
    return "(?:[^/]+/)*" if part == "**" else _named(part) + "/"


def _named(part: str) -> str:
    text, done = "", 0
    for found in _PART.finditer(part):
        name, many, _ = found.groups()
        wild = r"\d{1,7}" if name in _NUMBERS else "[^/]+" if name else "[^/]*" if many else "[^/]"
        text += re.escape(part[done : found.start()]) + (f"(?P<{name}>{wild})" if name else wild)
        done = found.end()
    return text + re.escape(part[done:])


def _filled(workload: str, environment: Mapping[str, str]) -> tuple[str, set[str]]:
    """`workload` with the environment filled in, and the names of the path's parts that it wants."""
    fields: set[str] = set()

    def of(found: re.Match[str]) -> str:
        if not found[1]:
            fields.add(found[2])
            return found[0]
        if not (value := environment.get(found[2])):
            raise ValueError(f"workload: {found[2]} is not set in the environment")
        return value.replace("{", "").replace("}", "")

    text = _NAME.sub(of, workload)
    if not text or _NAME.sub("", text).strip("{}") != _NAME.sub("", text):
        raise ValueError("workload: must be a name, with {part} of the path or {env:NAME}")
    return text, fields
