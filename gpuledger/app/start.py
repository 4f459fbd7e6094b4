"""Where the command line begins.

The agent loads nothing but itself: it runs on every node, beside the work whose memory it would take.
"""

from __future__ import annotations

import sys

import typer

from gpuledger.app.printing import configure_logs
from gpuledger.errors import BadInput, ConfigError, GpuledgerError, QueryRefused


def main() -> None:
    """Run the command line."""
    configure_logs()
    try:
        _commands(sys.argv[1:])()
    except (BadInput, ConfigError, QueryRefused) as error:
        sys.stderr.write(f"gpuledger: {error}\n")
        sys.exit(2)
    except (GpuledgerError, OSError) as error:
        sys.stderr.write(f"gpuledger: {error}\n")
        sys.exit(1)


def _commands(arguments: list[str]) -> typer.Typer:
    if arguments[:1] == ["collect"]:
        from gpuledger.app.collector_commands import agent_app  # noqa: PLC0415

        return agent_app
    from gpuledger.app.cli import app  # noqa: PLC0415 loads everything

    return app
