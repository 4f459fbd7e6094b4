"""Routes of findings: lists, one, its explanation and history, decisions, reviews, and the site's policy."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, ValidationError

from gpuledger.app import parameters, policies
from gpuledger.app.bodies import read_body
from gpuledger.app.encoding import to_json
from gpuledger.app.explaining import explain
from gpuledger.app.findings import FILTERS
from gpuledger.app.service import Service
from gpuledger.errors import BadInput


class Line(BaseModel):
    """One line of a judged sample."""

    line: int = 0
    sample: str = Field("", max_length=64)
    finding_id: str = Field("", max_length=64)
    verdict: str = Field("", max_length=64)
    judged_by: str = Field("", max_length=256)
    note: str = Field("", max_length=4096)


class Lines(BaseModel):
    """The lines of a judged sample, each to be read by itself."""

    lines: list[Any] = Field(max_length=100_000)

    def read(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(lines that can be understood, refusals of the others by line, field and reason).

        A line without a number of its own is named by its place, the first being 1.
        """
        good, rejected = [], []
        for place, one in enumerate(self.lines, 1):
            try:
                good.append(Line.model_validate(one).model_dump())
            except ValidationError as error:
                first = error.errors()[0]
                line = one.get("line") if isinstance(one, dict) else None
                field = ".".join(map(str, first["loc"])) or "line"
                rejected.append({"line": line if type(line) is int else place, "field": field, "reason": first["msg"]})
        return good, rejected


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def _served(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def register(app: FastAPI) -> None:
    """Add the routes to `app`."""
    _of_findings(app)
    _of_reviews(app)
    _of_policy(app)


def _of_findings(app: FastAPI) -> None:
    @app.get("/v1/findings")
    def findings(request: Request) -> Response:
        """The stored findings, largest waste first. Filters: rule, tenant, status, owner, category, vendor, kind."""
        service, given = _served(request), request.query_params
        service.check_tenant(given.get("tenant"))
        wanted = {name: given.get(name, "") for name in FILTERS}
        wanted["rule"] = wanted["rule"] or given.get("analyzer", "")
        return _json({"findings": service.finding_book.listed(**wanted)})

    @app.get("/v1/findings/{finding_id}")
    def finding(finding_id: str, request: Request) -> Response:
        """One finding, and where it stands."""
        return _json(_served(request).finding_book.shown(finding_id))

    @app.get("/v1/findings/{finding_id}/history")
    def history(finding_id: str, request: Request) -> Response:
        """Every change of a finding, oldest first."""
        return _json({"finding_id": finding_id, "changes": _served(request).finding_book.history(finding_id)})

    @app.get("/v1/findings/{finding_id}/explanation")
    def explanation(finding_id: str, request: Request) -> Response:
        """Why it says what it says: thresholds, confidence, the query, and the rows of the ledger that prove it."""
        language = parameters.read("language", request.query_params.get("language", "en"))
        return _json(explain(_served(request), finding_id, language))

    @app.post("/v1/findings/{finding_id}/status")
    async def decide(finding_id: str, request: Request) -> Response:
        """Acknowledge, dispute or exempt a finding, or name its owner.

        JSON with status, by, note; with reason for a dispute, expires_at for an exemption, owner where it changes.
        """
        service = _served(request)
        given = parameters.decision(await read_body(request, service.settings.max_body_bytes))

        def decided() -> str:
            return service.finding_book.decide(
                finding_id,
                given.status,
                by=given.by,
                note=given.note,
                reason=given.reason,
                owner=given.owner,
                expires_at=given.expires_at,
            )

        return _json({"finding_id": finding_id, "status": await run_in_threadpool(decided)})


def _of_reviews(app: FastAPI) -> None:
    @app.get("/v1/precision")
    def precision(request: Request) -> Response:
        """How often each rule is right, by kind of workload and vendor, and whether it may notify there."""
        return _json(_served(request).reviewing.precision())

    @app.post("/v1/reviews/sample")
    def sample(request: Request) -> Response:
        """Draw a sample of findings for owners to judge."""
        given = request.query_params
        language = parameters.read("language", given.get("language", "en"))
        size, seed = (parameters.read(name, given.get(name, default)) for name, default in (("size", 200), ("seed", 1)))
        return _json(_served(request).reviewing.draw(size, seed, language))

    @app.post("/v1/reviews/verdicts")
    async def verdicts(request: Request) -> Response:
        """Take verdicts on a sample in: JSON with `lines`. Wrong lines are refused and named, the rest is kept."""
        service = _served(request)
        body = await read_body(request, service.settings.max_body_bytes)
        try:
            given = Lines.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadInput("body", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        lines, rejected = given.read()
        return _json(await run_in_threadpool(lambda: service.reviewing.judge(lines, rejected)))


def _of_policy(app: FastAPI) -> None:
    @app.get("/v1/policy")
    def policy(request: Request) -> Response:
        """The policy in force: what it sets, and what it exempts of the stored findings."""
        service = _served(request)
        return _json(policies.effect(service, service.policy, service.clock.now()))

    @app.post("/v1/policy/check")
    async def check(request: Request) -> Response:
        """What the policy in the body (TOML) would set and exempt. Nothing is changed."""
        service = _served(request)
        body = await read_body(request, service.settings.max_body_bytes)
        try:
            text = body.decode("utf-8-sig")  # editors write a byte-order mark, which is no TOML
        except UnicodeDecodeError:
            raise BadInput("body", "is no UTF-8") from None
        given = policies.parse_checked(text, "in the request")
        return _json(await run_in_threadpool(lambda: policies.effect(service, given, service.clock.now())))
