"""Slurm by slurmrestd: a version is agreed on, and every answer is looked at for errors that came with 200."""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from gpuledger.clock import Clock
from gpuledger.errors import ConfigError, NotPermitted, SchedulerUnreachable
from schedulers.rest import token_in, told_of
from schedulers.slurm import rest_facts
from schedulers.slurm.dialect import EVERY_ATTEMPT, PLACES, VERSIONS, find
from schedulers.slurm.facts import Facts, Job
from schedulers.slurm.options import SlurmOptions
from schedulers.slurm.rest_facts import each
from schedulers.slurm.transport import Broken, check_counted, places_in

_PATH = re.compile(r"/slurm/(v\d+\.\d+\.\d+)/jobs/?")
_NOTHING = "Nothing found"
"""How slurmdbd's part says that there are no such jobs: as an error."""
_REFUSALS = (
    "authentication",
    "access/permission denied",
    "permission denied",
    "invalid user",
    "protocol authentication",
)


class _Token(httpx.Auth):
    """Slurm's own two headers; not an `Authorization`, which its versions before 23.02 do not take."""

    def __init__(self, user: str, path: Path, clock: Clock) -> None:
        self._user, self._path, self._clock = user, path, clock

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        token = token_in(self._path, "slurm").removeprefix("SLURM_JWT=")
        until = _ends_at(token)
        if until is not None and until <= self._clock.now():
            raise NotPermitted(f"{request.url}: the token in {self._path} ended at {until:%Y-%m-%dT%H:%M:%SZ}")
        request.headers["X-SLURM-USER-NAME"] = self._user
        request.headers["X-SLURM-USER-TOKEN"] = token
        yield request


def _ends_at(token: str) -> datetime | None:
    """When a JWT ends, as it says itself: slurmrestd 22.05 answers an old one with "Unspecified error"."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (LookupError, ValueError, TypeError, OverflowError):
        return None


class Slurmrestd:
    """Reads jobs, nodes, accounts and their like from slurmrestd."""

    def __init__(self, options: SlurmOptions, clock: Clock) -> None:
        self._options = options
        self._url = options.rest().url
        self._auth = None if options.token_file is None else _Token(options.user, options.token_file, clock)
        self._version = ""
        self._cluster = ""
        self._is_counted = False
        self._http: httpx.Client | None = None
        self.where = f"{self._url}/slurm/"

    def facts(self) -> Facts:
        """Everything, once. What the accounting does not let us see is in `denied`."""
        with self._connected():
            return self._facts()

    def _facts(self) -> Facts:
        broken: Broken = []
        denied: list[tuple[str, str]] = []
        jobs, hosts = self._slurm("jobs"), self._slurm("nodes")
        partitions, reservations = self._slurm("partitions"), self._slurm("reservations")
        associations, qos = self._slurmdb("associations", denied), self._slurmdb("qos", denied)
        associations = self._of_this_cluster(associations, [*jobs, *hosts], denied)
        told = json.dumps([jobs, hosts, associations, qos], sort_keys=True)
        return Facts(
            jobs=each(jobs, "job_id", rest_facts.job, broken),
            hosts=each(hosts, "name", rest_facts.host, broken),
            partitions=each(partitions, "name", rest_facts.partition, broken),
            reservations=each(reservations, "name", rest_facts.reservation, broken),
            associations=each(associations, "account", rest_facts.association, broken),
            qos=each(qos, "name", rest_facts.qos, broken),
            places=places_in(self._options.topology_conf),
            denied=tuple(denied),
            broken=tuple(broken),
            version=sha256(told.encode()).hexdigest(),
        )

    def finished(self, begin: datetime, end: datetime) -> tuple[list[Job], Broken]:
        """The attempts that the accounting has of the time. Times are sent as seconds: its server may be anywhere."""
        broken: Broken = []
        query = {"start_time": f"uts{int(begin.timestamp())}", "end_time": f"uts{int(end.timestamp())}"}
        with self._connected():
            if not self._is_counted:
                path = f"/slurmdb/{self._agreed()}/tres"
                told = ((str(one.get("type")), str(one.get("name"))) for one in self._list(path, "tres"))
                check_counted(f"GET {self._url}{path}", told)
                self._is_counted = True
            path = f"/slurmdb/{self._agreed()}/jobs"
            given = self._list(path, "jobs", {**query, **EVERY_ATTEMPT.get(self._agreed(), EVERY_ATTEMPT[""])})
        return list(each(given, "job_id", rest_facts.past, broken)), broken

    def _agreed(self) -> str:
        """The version to ask in. Raises SchedulerUnreachable where none that is served is one of ours."""
        if self._version:
            return self._version
        served: set[str] = set()
        for path in ("/openapi/v3", "/openapi"):
            answer = self._get(path)
            if answer.status_code in (401, 403):
                raise NotPermitted(f"GET {self._url}{path}: {answer.status_code} {answer.reason_phrase}")
            served = {match[1] for name in find(_object(answer), "paths") or () if (match := _PATH.fullmatch(name))}
            if served:
                break
        known = next((version for version in VERSIONS if version in served), None)
        if known is None:
            those = ", ".join(sorted(served)) or "no version of jobs"
            raise SchedulerUnreachable(f"{self.where}: serves {those}; we know {VERSIONS[-1]} to {VERSIONS[0]}")
        self._version = known
        return known

    def _slurm(self, plural: str) -> Sequence[Mapping[str, Any]]:
        return self._list(f"/slurm/{self._agreed()}/{plural}", plural)

    def _slurmdb(self, plural: str, denied: list[tuple[str, str]]) -> Sequence[Mapping[str, Any]]:
        """What the accounting lists; where it is down or forbidden the rest is still worth reading."""
        try:
            return self._list(f"/slurmdb/{self._agreed()}/{plural}", plural)
        except (NotPermitted, SchedulerUnreachable) as error:
            denied.append((f"accounting ({plural})", str(error)))
            return ()

    def _of_this_cluster(
        self,
        associations: Sequence[Mapping[str, Any]],
        named: Iterable[Mapping[str, Any]],
        denied: list[tuple[str, str]],
    ) -> Sequence[Mapping[str, Any]]:
        """One accounting may serve many clusters, and lists them all. Jobs name theirs, later versions' nodes too."""
        clusters = {str(one["cluster"]) for one in associations if one.get("cluster")}
        self._cluster = next(filter(None, (rest_facts.cluster(one) for one in named)), self._cluster)
        if len(clusters) < 2:
            return associations
        if not self._cluster:
            those = ", ".join(sorted(clusters))
            denied.append(("accounting (associations)", f"serves {those}, and no job says which of them this is"))
        return [one for one in associations if self._cluster and one.get("cluster") == self._cluster]

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Requests are sent in here. slurmrestd sends nobody elsewhere, and its headers must not go there."""
        try:
            verify = ssl.create_default_context(cafile=self._options.ca_file)
        except OSError as error:
            raise ConfigError(f"scheduler slurm: {self._options.ca_file}: {type(error).__name__}") from None
        timeout = self._options.timeout_seconds
        with httpx.Client(
            auth=self._auth, timeout=timeout, verify=verify, follow_redirects=False, trust_env=False
        ) as self._http:
            yield

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> httpx.Response:
        where = f"{self._url}{path}"
        if self._http is None:
            raise SchedulerUnreachable(f"GET {where}: not connected")
        try:
            return self._http.get(where, params=query, headers={"Accept": "application/json"})
        except httpx.TimeoutException:
            raise SchedulerUnreachable(f"GET {where}: no answer in {self._options.timeout_seconds:g} s") from None
        except httpx.HTTPError as error:
            raise SchedulerUnreachable(f"GET {where}: {told_of(error)}") from None

    def _list(self, path: str, plural: str, query: Mapping[str, str] | None = None) -> Sequence[Mapping[str, Any]]:
        answer = self._get(path, query)
        where = f"{self._url}{path}"
        if answer.status_code in (401, 403):
            raise NotPermitted(f"GET {where}: {answer.status_code} {answer.reason_phrase}")
        if answer.status_code == 404:
            self._version = ""  # an upgrade took it away: the next reading agrees on another
        told = _object(answer)
        wrong = _errors(told)
        if wrong.startswith(_NOTHING):
            return ()
        if wrong:
            refused = any(word in wrong.lower() for word in _REFUSALS)
            raise (NotPermitted if refused else SchedulerUnreachable)(f"GET {where}: {answer.status_code} {wrong}")
        given = find(told, f"{plural}.list") if f"{plural}.list" in PLACES else find(told, plural)
        if answer.status_code >= 400 or not isinstance(given, list):
            raise SchedulerUnreachable(f"GET {where}: {answer.status_code}, and no list of {plural}")
        return given


def _object(answer: httpx.Response) -> Mapping[str, Any]:
    """The JSON object of an answer. Slurm writes names as they came: bytes that are no UTF-8 become U+FFFD."""
    try:
        told = json.loads(answer.content.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _errors(told: Mapping[str, Any]) -> str:
    found = [one for one in told.get("errors") or () if isinstance(one, Mapping)]
    return "; ".join(
        f"{one.get('description') or ''} ({one.get('error') or one.get('error_number')})" for one in found[:3]
    )
