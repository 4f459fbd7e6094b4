"""Who may do what: role-based access by bearer token, with the real server's words when it says no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.statuses import ApiRefusal, named

Rule = Mapping[str, Any]
"""A rule of a Role or ClusterRole: apiGroups, resources, verbs, resourceNames; or nonResourceURLs and verbs."""

_OPEN = ("/version", "/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi")


@dataclass(frozen=True, slots=True)
class Subject:
    """A user, its rules for the whole cluster (ClusterRole), and those for a namespace each (Role)."""

    user: str
    rules: Sequence[Rule] = ()
    in_namespace: Mapping[str, Sequence[Rule]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """Subjects by bearer token. A token that nobody has is answered 401; discovery is open to every subject."""

    subjects: Mapping[str, Subject]

    def check(self, asked: Asked) -> None:
        """Raises ApiRefusal (401, 403)."""
        if asked.token not in self.subjects:
            raise ApiRefusal(401, "Unauthorized")
        subject = self.subjects[asked.token]
        if not asked.plural:
            if asked.method != "GET" or not asked.path.startswith(_OPEN):
                raise _no_path(subject, asked)
            return
        rules = [*subject.rules, *subject.in_namespace.get(asked.namespace or "\0", ())]
        if not any(allows(rule, asked) for rule in rules):
            raise _no(subject, asked)


def allows(rule: Rule, asked: Asked) -> bool:
    """Whether a rule allows a request, as the RBAC authorizer judges it."""
    names = rule.get("resourceNames") or ()
    resources = rule.get("resources", ())
    return (
        _has(rule.get("verbs", ()), asked.verb)
        and _has(rule.get("apiGroups", ()), asked.group)
        and (_has(resources, asked.resource) or f"*/{asked.subresource}" in resources)
        and (not names or asked.name in names)
    )


def _has(listed: Sequence[str], value: str) -> bool:
    return "*" in listed or value in listed


def _no(subject: Subject, asked: Asked) -> ApiRefusal:
    qualified = f"{asked.plural}.{asked.group}" if asked.group else asked.plural
    what = f'{qualified} "{asked.name}"' if asked.name else qualified
    place = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{subject.user}" cannot {asked.verb} resource "{asked.resource}" '
        f'in API group "{asked.group}" {place}'
    )
    return ApiRefusal(403, message, details=named(asked.group, asked.plural, asked.name))


def _no_path(subject: Subject, asked: Asked) -> ApiRefusal:
    return ApiRefusal(403, f'forbidden: User "{subject.user}" cannot {asked.verb} path "{asked.path}"')
