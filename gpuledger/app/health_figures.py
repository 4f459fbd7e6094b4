"""The route of the fleet's health figures: failure rate and MTTF, effective training time, goodput."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from analyzers.health.figures import SIZES, health_figures
from gpuledger.app.encoding import to_json
from gpuledger.app.service import Service
from gpuledger.errors import BadInput

LARGEST_JOB_GPUS = 10_000_000


def register(app: FastAPI) -> None:
    """Add the route to `app`."""

    @app.get("/v1/health-figures")
    def figures(request: Request) -> Response:
        """Failure rate with its interval, MTTF and ETTR (observed, and modelled by size of job), goodput."""
        service: Service = request.app.state.service
        given = request.query_params
        window = service.ledger_window(given.get("from"), given.get("to"))
        answer = health_figures(service, window, sizes=_sizes(given.get("gpus")))
        return Response(to_json(answer), media_type="application/json")


def _sizes(text: str | None) -> tuple[int, ...]:
    """Sizes of jobs from "1024,2048"; those of SIZES where none is given."""
    if not text:
        return SIZES
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput("gpus", f"{text[:80]!r} is not a list of whole numbers") from None
    if not all(0 < size <= LARGEST_JOB_GPUS for size in sizes):
        raise BadInput("gpus", f"must be from 1 to {LARGEST_JOB_GPUS}")
    return sizes
