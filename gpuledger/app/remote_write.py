"""The route that a Prometheus writes to: what it may send, and what it is told.

The answer decides what a sender does next: after 2xx it goes on, after another 4xx it drops the request and goes on,
after 429 and 5xx it sends the same again. So 400 says that what can be kept is kept and the rest never will be.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from gpuledger.app.bodies import read_body
from gpuledger.app.encoding import to_json
from gpuledger.app.receiving import Receipt
from gpuledger.app.service import Service
from gpuledger.errors import BadInput

PATH = "/api/v1/write"

_TYPE = "application/x-protobuf"
_VERSIONS = {"": 1, "prometheus.WriteRequest": 1, "io.prometheus.write.v2.Request": 2}


def register(app: FastAPI) -> None:
    """Add the route to `app`."""

    @app.post(PATH)
    async def write(request: Request) -> Response:
        """Take samples in: Prometheus remote write, version 1 or 2. Answered after they are on disk."""
        service: Service = request.app.state.service
        version = _version(request.headers.get("content-type", ""))
        encoding = request.headers.get("content-encoding", "")
        if encoding.strip().lower() != "snappy":
            raise BadInput("Content-Encoding", "must be snappy; nothing else is unpacked here")
        block = await read_body(request, service.settings.max_body_bytes)
        service.receiver.check(block)
        receipt = await service.receiver.receive(block, version)
        if receipt.refused:
            service.metrics.refuse(PATH, "timeseries")
        return _answer(receipt)


def _version(content_type: str) -> int:
    """The version that the content type names. Raises BadInput, so that the sender falls back to one we know."""
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    named = [part.partition("=")[2].strip().strip('"') for part in parameters if part.lower().startswith("proto=")]
    message = named[0] if named else ""
    if kind.lower() != _TYPE or message not in _VERSIONS:
        known = ", ".join(name for name in _VERSIONS if name)
        raise BadInput("Content-Type", f"must be {_TYPE} with proto one of {known}")
    return _VERSIONS[message]


def _answer(receipt: Receipt) -> Response:
    headers = {
        "X-Prometheus-Remote-Write-Samples-Written": str(receipt.written),
        "X-Prometheus-Remote-Write-Histograms-Written": "0",
        "X-Prometheus-Remote-Write-Exemplars-Written": "0",
    }
    if not receipt.refused:
        return Response(status_code=204, headers=headers)
    told = {
        "field": "timeseries",
        "reason": "refused: " + ", ".join(f"{reason} ({count})" for reason, count in receipt.refused.items()),
        "received": receipt.received,
        "stored": receipt.stored,
        "repeated": receipt.repeated,
        "conflicting": receipt.conflicting,
        "refused": receipt.refused,
        "ignored": receipt.ignored,
    }
    return Response(to_json(told), 400, headers, "application/json")
