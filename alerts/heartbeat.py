"""A signed sign of life. Its absence is the alarm: whoever expects it notices that no alert could reach them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuledger.clock import Clock
from gpuledger.ports import Channel, Delivery, Message
from gpuledger.presentation.texts import Texts

KIND = "heartbeat"


def heartbeat_message(
    at: datetime, instance: str = "gpuledger", *, language: str = "en", fields: Mapping[str, Any] | None = None
) -> Message:
    """The message for instant `at`; each instant has its own key, so that none is taken for a repetition."""
    texts, stamp = Texts(language), at.isoformat(timespec="seconds")
    return Message(
        key=f"heartbeat:{instance}:{stamp}",
        kind=KIND,
        title=texts("alert.heartbeat_title"),
        text=texts("alert.heartbeat_text", at=stamp),
        severity="info",
        created_at=at,
        fields={"instance": instance, **(fields or {})},
    )


def beat(channel: Channel, clock: Clock, instance: str = "gpuledger", **fields: Any) -> Delivery:
    """Send one heartbeat now. Raises DeliveryError; a missed beat is not repeated, the next one follows soon."""
    return channel.send(heartbeat_message(clock.now(), instance, fields=fields))
