"""What a request asks for: verb, kind, object, and query, as the API server's filters see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schedulers.fakes.apiserver.statuses import ApiRefusal

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request. For a path that names no resource (discovery), `plural` is "" and `verb` the method's word.

    `token` is the bearer token; it is not shown.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    verb: str = "get"
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    token: str = field(default="", repr=False)

    @property
    def resource(self) -> str:
        """The resource as access rules name it: "pods", "pods/status"."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def number(self, parameter: str) -> int | None:
        """A query parameter that counts; None where it is absent. Raises ApiRefusal (400)."""
        text = self.query.get(parameter, "")
        if not text:
            return None
        if not text.isdigit():
            raise ApiRefusal(400, f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    def is_set(self, parameter: str) -> bool:
        """A query parameter that is true or false."""
        return self.query.get(parameter, "").lower() in {"1", "true"}


def parse(method: str, path: str, query: Mapping[str, str], token: str = "") -> Asked:
    """Read a request's line."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Asked(method=method, path=path, query=query, verb=method.lower(), token=token)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    return Asked(
        method=method,
        path=path,
        query=query,
        verb=_verb(method, name, query),
        group=group,
        version=version,
        namespace=namespace,
        plural=plural,
        name=name or _single_name(query),
        subresource=subresource,
        token=token,
    )


def _single_name(query: Mapping[str, str]) -> str:
    """A list of the one object that a field selector names is allowed by that name."""
    selector = query.get("fieldSelector", "")
    return selector.removeprefix("metadata.name=") if selector.startswith("metadata.name=") else ""


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in {"GET", "HEAD"}:
        is_watch = query.get("watch", "").lower() in {"1", "true"}
        return "watch" if is_watch else "get" if name else "list"
    return "deletecollection" if method == "DELETE" and not name else _VERBS.get(method, method.lower())
