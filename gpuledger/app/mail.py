"""Makes the mailer from the settings: which channels there are, what may be told, and where the heartbeat goes."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from gpuledger.app.reviewing import Gate
from gpuledger.app.service import Service
from gpuledger.registry import resolve


def mailer_for(service: Service) -> Any:
    """The mailer of `service`, with the channels that its settings name."""
    settings = service.settings

    def webhook(url: SecretStr | None) -> Any:
        channel = resolve("channels", "webhook")
        return channel(url, settings.alert_webhook_secret, clock=service.clock) if url is not None else None

    alert_channel = webhook(settings.alert_webhook_url)
    return resolve("mailers", "outbox")(
        service.state,
        {"webhook": alert_channel} if alert_channel is not None else {},
        service.clock,
        heartbeat=webhook(settings.heartbeat_url),
        gate=lambda: Gate(service),
        on_silence=lambda rule, reason: service.metrics.silenced.labels(rule, reason).inc(),
        minimum_gpu_hours=settings.alert_minimum_gpu_hours,
        timezone=settings.timezone,
    )
