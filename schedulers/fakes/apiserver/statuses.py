"""The API's own way to refuse: a `Status` object with code, reason, message and details."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiRefusal(Exception):
    """An answer other than success: what goes over the wire is `status`, with HTTP `code`.

    `is_plain` answers with text instead, as the API does for a path that no handler has.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        token: str = "",
        is_plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.is_plain = is_plain
        self.message = message
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": token} if token else {},
            "status": "Failure",
            "message": message,
            "reason": reason or REASONS.get(code, "Unknown"),
            "code": code,
        }
        if details:
            self.status["details"] = dict(details)

    @property
    def retry_after_seconds(self) -> int | None:
        """What the `Retry-After` header says; None where the answer has none."""
        details = self.status.get("details", {})
        value = details.get("retryAfterSeconds")
        return None if value is None else int(value)

    @property
    def body(self) -> bytes:
        """The answer's bytes."""
        return self.message.encode() if self.is_plain else json.dumps(self.status).encode()


def named(group: str, plural: str, name: str = "") -> dict[str, Any]:
    """The details that say which object an answer is about."""
    details = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in details.items() if value}


def no_such_path() -> ApiRefusal:
    """A path that no handler has: an unknown group, version or resource. Plain text, as Go's multiplexer answers."""
    return ApiRefusal(404, "404 page not found\n", is_plain=True)


def not_found(group: str, plural: str, name: str) -> ApiRefusal:
    """No object of this name."""
    qualified = f"{plural}.{group}" if group else plural
    return ApiRefusal(404, f'{qualified} "{name}" not found', details=named(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> ApiRefusal:
    """A create of a name that is taken."""
    qualified = f"{plural}.{group}" if group else plural
    details = named(group, plural, name)
    return ApiRefusal(409, f'{qualified} "{name}" already exists', reason="AlreadyExists", details=details)


def conflict(group: str, plural: str, name: str, why: str = "") -> ApiRefusal:
    """A write that was made from an older version."""
    qualified = f"{plural}.{group}" if group else plural
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    details = named(group, plural, name)
    return ApiRefusal(409, f'Operation cannot be fulfilled on {qualified} "{name}": {why}', details=details)


def invalid(group: str, kind: str, name: str, errors: Sequence[tuple[str, str, str]]) -> ApiRefusal:
    """An object that its schema refuses. Each error is (cause's reason, field, message)."""
    texts = [f"{field}: {message}" for _, field, message in errors]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": reason, "field": field, "message": message} for reason, field, message in errors]
    qualified = f"{kind}.{group}" if group else kind
    details = {**named(group, kind, name), "causes": causes}
    return ApiRefusal(422, f'{qualified} "{name}" is invalid: {text}', details=details)


def too_old(version: int, floor: int) -> ApiRefusal:
    """A watch from a version that is no longer kept."""
    return ApiRefusal(410, f"too old resource version: {version} ({floor})")


def too_new(version: int, current: int) -> ApiRefusal:
    """A read at a version that the server has not reached."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiRefusal(504, f"Timeout: Too large resource version: {version}, current: {current}", details=details)
