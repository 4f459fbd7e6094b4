"""Signing a body so that its receiver can tell who sent it and when: HMAC-SHA256 over "<seconds>.<body>"."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime

HEADER = "X-Gpuledger-Signature"


def _digest(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d." % seconds + body, hashlib.sha256).hexdigest()


def sign(secret: str, body: bytes, at: datetime) -> str:
    """The header's value for `body` sent at `at`: "t=1772409600,v1=<hex>"."""
    seconds = int(at.timestamp())
    return f"t={seconds},v1={_digest(secret, seconds, body)}"


def verify(header: str, secret: str, body: bytes, now: datetime, tolerance_seconds: float = 300) -> bool:
    """What a receiver does: is `header` a signature of `body` with `secret`, made within the tolerance of `now`?

    Compares in constant time. A header that cannot be read is not a signature.
    """
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    stamp, given = parts.get("t", ""), parts.get("v1", "")
    if not (stamp.isascii() and stamp.isdigit() and given.isascii()):
        return False
    is_fresh = abs(now.timestamp() - int(stamp)) <= tolerance_seconds
    return hmac.compare_digest(given, _digest(secret, int(stamp), body)) and is_fresh
