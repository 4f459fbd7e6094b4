"""Makes the sources that the agent's settings name."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx

from collector.options import SHARED, mistake, taken_by
from collector.settings import CollectorSettings, OtherSource
from gpuledger.errors import ConfigError
from gpuledger.ports import Source
from gpuledger.registry import SOURCES, resolve


def build_sources(settings: CollectorSettings, client: httpx.Client) -> list[Source]:
    """The sources that `settings` name. Raises ConfigError for none, one twice, or a wrong option."""
    others = (_other(f"source.{number} ({given.kind})", given, client) for number, given in enumerate(settings.source))
    sources = [*_pages(settings, client), *_own_cards(settings), *others]
    if not sources:
        raise ConfigError("dcgm, nvml: nothing to read; name at least one endpoint or set nvml.enabled")
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"sources: given more than once: {', '.join(twice)}")
    return sources


def _pages(settings: CollectorSettings, client: httpx.Client) -> Iterator[Source]:
    for endpoint in settings.dcgm:
        yield resolve("sources", "dcgm")(
            endpoint.url,
            node=endpoint.node,
            interval_seconds=endpoint.interval_seconds,
            timeout_seconds=endpoint.timeout_seconds,
            gpu_util_ratio_unit=endpoint.gpu_util_ratio_unit,
            drop_labels=endpoint.drop_labels,
            client=client,
        )
    for page in settings.kube_state_metrics:
        yield resolve("sources", "kube_state_metrics")(
            page.url,
            cluster=page.cluster,
            interval_seconds=page.interval_seconds,
            timeout_seconds=page.timeout_seconds,
            rules=settings.attribution_rules,
            client=client,
        )


def _own_cards(settings: CollectorSettings) -> Iterator[Source]:
    if settings.nvml.enabled:
        yield resolve("sources", "nvml")(**settings.nvml.model_dump(exclude={"enabled"}))
    if settings.nvidia_smi.enabled:
        yield resolve("sources", "nvidia_smi")(**settings.nvidia_smi.model_dump(exclude={"enabled"}))


def _other(place: str, given: OtherSource, client: httpx.Client) -> Source:
    """A source by its registered name; one that can share `client` does.

    Raises ConfigError that begins with `place` for options that it lacks, or that are not what it takes.
    """
    try:
        maker = resolve("sources", given.kind)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    taken = taken_by(maker)
    wrong = mistake(given.options, taken, is_own=given.kind in SOURCES)
    if wrong is not None:
        raise ConfigError(f"{place}: {wrong}")
    shared = {SHARED: client} if SHARED in taken.types else {}
    try:
        source: Source = maker(**shared, **given.options)
        interval = float(source.interval_seconds)
    except (TypeError, ValueError, ConfigError) as error:
        raise ConfigError(f"{place}: {error}") from error
    if not (math.isfinite(interval) and interval > 0):
        raise ConfigError(f"{place}: interval_seconds: {interval} is no time that can pass between two reads")
    return source
