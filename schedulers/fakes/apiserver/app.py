"""The HTTP side: one handler that judges access and faults, then reads, watches or writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from schedulers.fakes.apiserver.access import Access
from schedulers.fakes.apiserver.discovery import answer
from schedulers.fakes.apiserver.listing import get_bytes, list_bytes
from schedulers.fakes.apiserver.requests import Asked, parse
from schedulers.fakes.apiserver.statuses import ApiRefusal, no_such_path
from schedulers.fakes.apiserver.store import Store, encoded
from schedulers.fakes.apiserver.watching import Watch
from schedulers.fakes.apiserver.writing import Writing, Written, decoded

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a request: it waits, is refused with a status, or its answer breaks off.

    `refusal` is an HTTP code or a whole refusal; `cut_after_bytes` closes the connection after that much of the body.
    """

    delay_seconds: float = 0
    refusal: int | ApiRefusal | None = None
    cut_after_bytes: int | None = None


Faults = Callable[[Asked], Fault | None]


class _CutOff(Exception):
    """Ends a connection in the middle of an answer."""


@dataclass(slots=True, kw_only=True)
class Handler:
    """Answers requests from a store. `asked` is the log of all requests, in order."""

    store: Store
    access: Access | None = None
    faults: Faults | None = None
    bookmark_seconds: float = 60
    asked: list[Asked] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        asked = parse(request.method, request.url.path, dict(request.query_params), token)
        self.asked.append(asked)
        fault = self.faults(asked) if self.faults else None
        try:
            if fault:
                await _suffer(fault)
            if self.access:
                self.access.check(asked)
            response = await self._answer(asked, request)
        except ApiRefusal as refusal:
            return _refused(refusal)
        return _cut(response, fault.cut_after_bytes) if fault and fault.cut_after_bytes is not None else response

    async def _answer(self, asked: Asked, request: Request) -> Response:
        api = f"{asked.group}/{asked.version}"
        if api in self.store.aggregated and asked.plural:
            return _aggregated(self.store, api, asked)
        if not asked.plural:
            found = answer(self.store, asked.path)
            return Response(found if isinstance(found, str) else json.dumps(found), media_type=_media(found))
        resource = self.store.resource(asked.group, asked.plural)
        has_namespace = bool(asked.namespace)
        is_all = not has_namespace and asked.verb in {"list", "watch"}
        if asked.version not in resource.versions or (resource.is_namespaced is not has_namespace and not is_all):
            raise no_such_path()
        if asked.subresource and (asked.subresource != "status" or asked.version not in resource.with_status):
            raise no_such_path()
        if asked.verb == "watch":
            watch = Watch(self.store, resource, asked, bookmark_seconds=self.bookmark_seconds, closing=self.closing)
            return StreamingResponse(_while_connected(watch.lines(), request), media_type="application/json")
        if asked.verb in {"get", "list"}:
            reads = get_bytes if asked.verb == "get" else list_bytes
            return Response(reads(self.store, resource, asked), media_type="application/json")
        return _written(await _write(Writing(self.store, resource, asked), request))


async def _suffer(fault: Fault) -> None:
    if fault.delay_seconds:
        await asyncio.sleep(fault.delay_seconds)
    if isinstance(fault.refusal, ApiRefusal):
        raise fault.refusal
    if fault.refusal is not None:
        raise ApiRefusal(
            fault.refusal, f"an error on the server has prevented the request from succeeding ({fault.refusal})"
        )


async def _write(writing: Writing, request: Request) -> Written:
    body = decoded(await request.body())
    match writing.asked.verb:
        case "create":
            return writing.create(body)
        case "update":
            return writing.replace(body)
        case "patch":
            return writing.merge(body, request.headers.get("content-type", ""))
        case "delete":
            return writing.delete(body)
    raise ApiRefusal(405, "the server does not allow this method on the requested resource")


def _written(written: Written) -> Response:
    response = Response(encoded(written.item), written.code, media_type="application/json")
    for warning in written.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append("Warning", f'299 - "{quoted}"')
    return response


def _aggregated(store: Store, api: str, asked: Asked) -> Response:
    found = store.aggregated[api][1](asked.path.partition(f"/apis/{api}/")[2], asked.query)
    if found is None:
        raise no_such_path()
    return Response(encoded(found), media_type="application/json")


def _refused(refusal: ApiRefusal) -> Response:
    media = "text/plain" if refusal.is_plain else "application/json"
    response = Response(refusal.body, refusal.code, media_type=media)
    if refusal.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_seconds)
    return response


def _media(found: Mapping[str, Any] | str) -> str:
    return "text/plain" if isinstance(found, str) else "application/json"


async def _while_connected(chunks: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        if chunk:
            yield chunk
        elif await request.is_disconnected():
            return


def _cut(response: Response, after_bytes: int) -> Response:
    """The same answer, broken off: its length (or chunks) promise more than comes."""

    async def parts() -> AsyncIterator[bytes]:
        left = after_bytes
        async for part in _body(response):
            yield part[:left]
            left -= len(part)
            if left <= 0:
                break
        raise _CutOff

    headers = {name: value for name, value in response.headers.items() if name.lower() != "content-length"}
    return StreamingResponse(parts(), response.status_code, headers)


async def _body(response: Response) -> AsyncIterator[bytes]:
    if isinstance(response, StreamingResponse):
        async for part in response.body_iterator:
            yield part if isinstance(part, bytes) else str(part).encode()
    else:
        yield bytes(response.body)


def application(handler: Handler) -> Starlette:
    """The ASGI application of a handler."""

    async def endpoint(request: Request) -> Response:
        return await handler(request)

    return Starlette(routes=[Route("/{path:path}", endpoint, methods=METHODS)])
