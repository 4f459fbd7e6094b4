"""The agent: `gpuledger collect` runs it, `gpuledger collector` has the commands beside that.

This module and what it imports is all that the agent's process loads (see `start`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

agent_app = typer.Typer(name="gpuledger", pretty_exceptions_enable=False)
collector_app = typer.Typer(help="Commands about the agent beside running it.", no_args_is_help=True)


@agent_app.callback()
def _agent() -> None:
    """The agent."""


@agent_app.command()
def collect(
    config: Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")] = None,
    service_url: Annotated[str | None, typer.Option(help="where the service is")] = None,
    dcgm: Annotated[list[str] | None, typer.Option(help="address of a dcgm-exporter page; may be repeated")] = None,
    nvml: Annotated[bool | None, typer.Option("--nvml/--no-nvml", help="read this node's cards through NVML")] = None,
    discover: Annotated[
        bool | None, typer.Option("--discover/--no-discover", help="look for what this node has, and read that too")
    ] = None,
) -> None:
    """Run the agent: read sources, keep what was read on disk, ship it to the service."""
    from gpuledger.app.collecting import run  # noqa: PLC0415

    run(config, service_url=service_url, dcgm=dcgm or [], nvml=nvml, discover=discover)


@collector_app.callback()
def _group() -> None:
    """Commands about the agent beside running it."""


@collector_app.command()
def discover(
    service_url: Annotated[str, typer.Option(help="where the service is")] = "http://127.0.0.1:8420",
    dcgm: Annotated[list[str] | None, typer.Option(help="where to look for dcgm-exporter; may be repeated")] = None,
    kube_state_metrics: Annotated[
        list[str] | None, typer.Option(help="where to look for kube-state-metrics; default: where charts put it")
    ] = None,
    timeout_seconds: Annotated[float, typer.Option(min=0.1, max=300, help="how long to wait for each")] = 5.0,
) -> None:
    """Look for what this node has to read, and print a settings file for `gpuledger collect`.

    A page of dcgm-exporter says itself which nodes its cards are in. What does not (NVML, nvidia-smi, a page of this
    node without a Hostname) gets this node's name: the variable NODE_NAME, as a Kubernetes manifest sets it from
    `spec.nodeName`, else the host name. Ends with 1 when nothing was found.
    """
    from collector.discovery import DCGM_URLS, KUBE_STATE_METRICS_URLS, Places  # noqa: PLC0415 loads the sources
    from gpuledger.app.collecting import found  # noqa: PLC0415

    places = Places(
        dcgm_urls=tuple(dcgm or DCGM_URLS),
        kube_state_metrics_urls=tuple(kube_state_metrics or KUBE_STATE_METRICS_URLS),
        timeout_seconds=timeout_seconds,
    )
    text, is_any = found(places, service_url)
    sys.stdout.write(text)
    if not is_any:
        sys.exit(1)
