"""The HTTP service: routes that read a request, call the service, and encode the answer. Nothing is decided here."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from gpuledger import __version__
from gpuledger.app import basis, finding_routes, fragmentation, health_figures, money, parameters, remote_write
from gpuledger.app.bodies import read_body
from gpuledger.app.encoding import ARROW_STREAM, from_arrow_stream, to_arrow_stream, to_json
from gpuledger.app.service import Service
from gpuledger.errors import BadInput, ConfigError, GpuledgerError, QueryRefused, RuleError, TooLarge
from gpuledger.registry import RECOMMENDERS, RULES
from warehouse import queries

OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""What needs no token."""

RETRY_AFTER_SECONDS = "5"
"""When a sender may try again what could not be taken in now."""

RESERVED = ("from", "to", "save", "tenant")


class Json(Response):
    """JSON with times in ISO 8601 and null for what is not a number."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(_service)]


async def _body(request: Request, limit: int) -> bytes:
    """The request's body, read no further than `limit` bytes."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise BadInput("Content-Encoding", "compressed bodies are not accepted; Arrow IPC compresses its own buffers")
    return await read_body(request, limit)


def _status(error: GpuledgerError) -> int:
    if isinstance(error, TooLarge):
        return 413
    if isinstance(error, BadInput):
        return 415 if error.field in ("Content-Encoding", "Content-Type") else 400
    if isinstance(error, QueryRefused | ConfigError):
        return 404 if str(error).startswith("no ") else 400
    return 500 if isinstance(error, RuleError) else 503


async def _refused(request: Request, error: Exception) -> Response:
    """The answer to a request that could not be met: what was wrong, and where."""
    assert isinstance(error, GpuledgerError)
    service, status = _service(request), _status(error)
    field, reason = _field(request, error, status), error.reason if isinstance(error, BadInput) else str(error)
    path = getattr(request.scope.get("route"), "path", "unknown")
    if status < 500:
        service.metrics.refuse(path, field)
    if status == 413:
        service.metrics.rejected_too_large.labels(path).inc()
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status == 503 else None
    return Json({"field": field, "reason": reason}, status, headers=headers)


def _field(request: Request, error: GpuledgerError, status: int) -> str:
    """What of the request was wrong: the part that the error names, else the name in the path that nothing has."""
    if isinstance(error, BadInput):
        return error.field
    if status == 404:
        return next(iter(request.path_params), "path")
    return "parameters" if isinstance(error, QueryRefused) else "request"


async def _no_route(request: Request, error: Exception) -> Response:
    """The answer to a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    field = "method" if error.status_code == 405 else "path"
    _service(request).metrics.refuse("unknown", field)
    return Json({"field": field, "reason": error.detail}, error.status_code, headers=error.headers)


def create_app(service: Service) -> FastAPI:
    """The application over `service`."""
    app = FastAPI(
        title="gpuledger",
        version=__version__,
        summary="Where a fleet's GPU-hours went",
        default_response_class=Json,
        exception_handlers={GpuledgerError: _refused, HTTPException: _no_route},
    )
    app.state.service = service
    token = service.settings.token.get_secret_value() if service.settings.token else ""
    expected = f"Bearer {token}".encode() if token else b""

    @app.middleware("http")
    async def authorise(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes as they came
        if expected and request.url.path not in OPEN_PATHS and not hmac.compare_digest(given, expected):
            service.metrics.refuse("any", "Authorization")
            return Json({"field": "Authorization", "reason": "a valid bearer token is needed"}, 401)
        return await call(request)

    _health_routes(app)
    _ingest_routes(app)
    remote_write.register(app)
    finding_routes.register(app)
    _read_routes(app)
    _stored_routes(app)
    _judge_routes(app)
    money.register(app)
    fragmentation.register(app)
    health_figures.register(app)
    basis.register(app)
    return app


def _health_routes(app: FastAPI) -> None:
    @app.get("/healthz")
    def healthz() -> Response:
        """Is the process alive?"""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    def readyz(service: Served) -> Response:
        """Does the warehouse answer?"""
        service.query("evidence_extent")
        return PlainTextResponse("ready\n")

    @app.get("/metrics")
    def metrics(service: Served) -> Response:
        """The service's own series."""
        for status, count in service.state.outbox_counts().items():
            service.metrics.outbox.labels(status).set(count)
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _ingest_routes(app: FastAPI) -> None:
    @app.post("/v1/ingest/{record}")
    async def ingest(
        record: str, request: Request, service: Served, x_batch_id: Annotated[str, Header()] = ""
    ) -> Response:
        """Take one batch of records in: an Arrow IPC stream. Answered after it is on disk."""
        body = await _body(request, service.settings.max_body_bytes)

        def take() -> Response:
            table = from_arrow_stream(body, 4 * service.settings.max_body_bytes)
            result = service.ingest(record, table, x_batch_id)
            rejected = [dict(zip(("row", "field", "reason"), row, strict=True)) for row in result.rejected]
            answer = {
                "batch_id": result.batch_id,
                "accepted": result.accepted,
                "rejected_count": result.rejected_count,
                "rejected": rejected,
                "duplicate": result.duplicate,
            }
            return Json(answer, 422 if result.rejected_count and not result.duplicate else 200)

        return await run_in_threadpool(take)


def _read_routes(app: FastAPI) -> None:
    @app.get("/v1/queries")
    def list_queries() -> Response:
        """The named queries with their documentation."""
        return Json(
            {
                query.name: {
                    "sentence": query.sentence,
                    "parameters": query.parameters,
                    "columns": query.columns,
                    **query.headings,
                }
                for query in queries.catalogue().values()
                if query.is_read
            }
        )

    @app.get("/v1/queries/{name}")
    def run_query(name: str, request: Request, service: Served) -> Response:
        """The rows of a named query, as JSON or as an Arrow stream."""
        given = {key: parameters.read(key, value) for key, value in request.query_params.items()}
        service.check_tenant(given.get("tenant"))
        table = service.query(name, **given)
        if ARROW_STREAM in request.headers.get("accept", ""):
            return Response(to_arrow_stream(table), media_type=ARROW_STREAM)
        return Json({"columns": table.column_names, "rows": table.to_pylist()})

    @app.get("/v1/ledger")
    def ledger(request: Request, service: Served) -> Response:
        """GPU-hours by one dimension and state, with the rates."""
        given = request.query_params
        by = parameters.read("by", given.get("by", "state"))
        span = given.get("from"), given.get("to")
        return Json(service.ledger(by, service.ledger_window(*span) if any(span) or service.evidence() else None))

    @app.get("/v1/quality")
    def quality(request: Request, service: Served) -> Response:
        """What lowers trust in the records, by source and kind, and what to do about it."""
        given = request.query_params
        language = parameters.read("language", given.get("language", "en"))
        return Json(service.quality(given.get("from"), given.get("to"), language))

    @app.post("/v1/ledger/build")
    def build(request: Request, service: Served) -> Response:
        """Rebuild the ledger over a window."""
        asked = request.query_params
        service.assemble()  # what remote write has sent is known before it is asked what is known
        if service.evidence() is None and not (asked.get("from") and asked.get("to")):
            return Json({"from": None, "to": None, "hours": 0.0, "spans": 0, "violations": 0})
        done = service.build_ledger(service.window(request.query_params.get("from"), request.query_params.get("to")))
        span = {"from": done.window.from_at, "to": done.window.to_at, "hours": done.window.hours}
        return Json({**span, "spans": done.spans, "violations": done.violations})


def _stored_routes(app: FastAPI) -> None:
    @app.get("/v1/recommendations")
    def recommendations(service: Served) -> Response:
        """The stored recommendations."""
        return Json({"recommendations": service.state.recommendations()})


def _judge_routes(app: FastAPI) -> None:
    @app.get("/v1/rules")
    def rules(service: Served) -> Response:
        """The rules, and until when each has analysed for good."""
        return Json({"rules": service.rules()})

    @app.post("/v1/analyze/{rule}")
    def analyze(rule: str, request: Request, service: Served) -> Response:
        """Run one rule."""
        given = dict(request.query_params)
        options = {key: value for key, value in given.items() if key not in RESERVED}
        window = service.window(given.get("from"), given.get("to"))
        return Json(service.analyze(rule, window, options, save=given.get("save") == "true"))

    @app.post("/v1/recommend/{kind}")
    def recommend(kind: str, request: Request, service: Served) -> Response:
        """Make recommendations and try each dry."""
        given = dict(request.query_params)
        options = {key: value for key, value in given.items() if key not in RESERVED}
        window = service.window(given.get("from"), given.get("to"))
        return Json({"recommendations": service.recommend(kind, window, options)})

    @app.post("/v1/reports/{name}")
    def report(name: str, request: Request, service: Served) -> Response:
        """A report as HTML."""
        given = request.query_params
        service.check_tenant(given.get("tenant"))
        zone = parameters.read("timezone", given.get("timezone", service.settings.timezone))
        language = given.get("language", "en")
        if language not in ("en", "zh"):
            raise BadInput("language", "must be en or zh")
        window = service.ledger_window(given.get("from"), given.get("to"))
        tenant = given.get("tenant") or None
        return HTMLResponse(service.report(name, window, tenant=tenant, timezone=zone, language=language))

    @app.post("/v1/check")
    def check(service: Served) -> Response:
        """The doctor's checks."""
        return Json({"checks": service.doctor(), "rules": list(RULES), "recommenders": list(RECOMMENDERS)})
