"""Writes the pages that are tables of the code: settings, named queries, command line, adapters. Run by `make docs`.

The pages are committed, so that they can be read without running anything; a test says when they are out of date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from collector.settings import CollectorSettings, DcgmEndpoint, KubeStateMetricsEndpoint, NvidiaSmi, Nvml, OtherSource
from gpuledger.app.cli import app
from gpuledger.config import Settings
from gpuledger.registry import TABLES
from schedulers.deploying import family, manifests
from warehouse.queries import NamedQuery, catalogue

ROOT = Path(__file__).resolve().parent.parent
GENERATED = "<!-- Written by `make docs`; changes here are lost. -->"

QUERY_PARTS = {
    "report": "What pages, reports and the API show",
    "rules": "What rules and recommenders ask",
    "audits": "Audits: each must give no row",
    "snapshots": "What is open of a scheduler: asked when the service begins to read it",
}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[str]:
    return [_row(*header), _row(*("---" for _ in header)), *(_row(*row) for row in rows), ""]


def _text(value: Any) -> str:
    """A default as a person writes it: "none" for what is not set."""
    if value is None or value in ((), []):
        return "none"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    default = field.get_default(call_default_factory=True, validated_data={})
    return "see below" if isinstance(default, BaseModel) else _text(default)


def _settings(model: type[BaseModel], prefix: str = "", variables: str | None = None) -> list[str]:
    """A table of the fields of `model`; `variables` is the prefix of its environment variables, where it has any."""

    def rows() -> Iterator[tuple[str, ...]]:
        for name, field in model.model_fields.items():
            cells = (f"`{prefix}{name}`", _default(field), field.description or "")
            yield cells if variables is None else (*cells, f"`{variables}{name.upper()}`")

    header = ("setting", "default", "what it is")
    return _table(header if variables is None else (*header, "environment variable"), rows())


def settings_page() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        GENERATED,
        "",
        "The first that is given counts: command line, environment variable, file (TOML, `--config`), default.",
        "Units are in the names. An unknown name in a file or in the environment is an error that names it.",
        "Tokens, keys and webhook addresses are never printed.",
        "",
        "## Service",
        "",
        "For every command but `collect`. The file holds these names at its top level.",
        "",
        *_settings(Settings, variables="GPULEDGER_"),
        "## Collector",
        "",
        "For `gpuledger collect`.",
        "",
        *_settings(CollectorSettings, variables="GPULEDGER_COLLECTOR_"),
        "### `[[dcgm]]`: one table for each dcgm-exporter page",
        "",
        'In the environment the list is JSON: `GPULEDGER_COLLECTOR_DCGM=\'[{"url": "http://node-1:9400/metrics"}]\'`.',
        "",
        *_settings(DcgmEndpoint, "dcgm."),
        "### `[[kube_state_metrics]]`: one table for each kube-state-metrics page",
        "",
        *_settings(KubeStateMetricsEndpoint, "kube_state_metrics."),
        "### `[nvml]`: this node's own cards",
        "",
        *_settings(Nvml, "nvml.", "GPULEDGER_COLLECTOR_NVML__"),
        "### `[nvidia_smi]`: the same by a command, where nothing else is there",
        "",
        *_settings(NvidiaSmi, "nvidia_smi.", "GPULEDGER_COLLECTOR_NVIDIA_SMI__"),
        "### `[[source]]`: a source by its name, also one of another package",
        "",
        "Everything else in its table goes to the source as its options.",
        "",
        *_settings(OtherSource, "source."),
    ]
    return "\n".join(lines)


def _query(query: NamedQuery) -> list[str]:
    parameters = ", ".join(f"`{name}`" for name in query.parameters) or "none"
    headings = [
        f"* **{heading}**: {query.headings[heading]}" for heading in ("Grain", "Reads", "Units", "Ignores", "Order")
    ]
    columns = ((f"`{name}`", kind) for name, kind in query.columns.items())
    return [
        f"### `{query.name}`",
        "",
        query.sentence,
        "",
        f"* **Parameters**: {parameters}",
        *headings,
        "",
        *_table(("column", "type"), columns),
    ]


def queries_page() -> str:
    """docs/queries.md."""
    lines = [
        "# Named queries",
        "",
        GENERATED,
        "",
        "Every number that gpuledger shows comes from one of these. Each is one file, `sql/<folder>/<name>.sql`, and",
        "can be asked over HTTP: `GET /v1/queries/<name>?parameter=value`.",
        "`from_at` and `to_at` bound a half-open window in UTC.",
        "A file whose parameters are not as declared, or that lacks one of the headings below, is refused.",
        "",
    ]
    for folder, title in QUERY_PARTS.items():
        lines += [f"## {title}", ""]
        for query in catalogue().values():
            if query.folder == folder:
                lines += _query(query)
    return "\n".join(lines)


def commands() -> Mapping[str, Any]:
    """Every command by its full name: "ledger", "import openb"."""
    found: dict[str, Any] = {}

    def walk(group: Any, prefix: str) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, f"{prefix}{name} ")
            else:
                found[f"{prefix}{name}"] = command

    walk(typer.main.get_command(app), "")
    return found


def _parameter(parameter: Any) -> tuple[str, str, str]:
    """Option or argument as a row: how it is written, its default, what it is."""
    if parameter.param_type_name == "argument":
        written = f"`{parameter.name.upper()}`"
    else:
        written = " / ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    is_repeated = getattr(parameter, "multiple", False)
    default = "must be given" if parameter.required else "none" if is_repeated else _text(parameter.default)
    is_switch = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
    return written, "off" if is_switch else default, parameter.help or ""


def _command(name: str, command: Any) -> list[str]:
    extra = []
    if command.context_settings.get("ignore_unknown_options"):
        extra = [
            "Options of its own follow as `--name value`: [rules/](rules/) has the page of each rule and recommender.",
            "",
        ]
    return [
        f"## `gpuledger {name}`",
        "",
        command.help,
        "",
        *extra,
        *_table(("option", "default", "what it is"), (_parameter(parameter) for parameter in command.params)),
    ]


def cli_page() -> str:
    """docs/cli.md."""
    lines = [
        "# Command line",
        "",
        GENERATED,
        "",
        "Answers go to standard output, logs to standard error. Exit status: 0 fine, 1 failed, 2 wrong arguments.",
        "With `--warehouse` a command works on the file, or through the service that holds it: one answer either way.",
        "Where an option's default is none, the setting of the same name counts ([settings.md](settings.md)).",
        "",
    ]
    for name, command in commands().items():
        lines += _command(name, command)
    return "\n".join(lines)


def _purpose(place: str) -> str:
    """The first paragraph of the module that `place` ("module:attribute") is in."""
    return " ".join((inspect.getdoc(import_module(place.partition(":")[0])) or "").split("\n\n")[0].split())


def adapters_page() -> str:
    """docs/adapters.md."""
    lines = [
        "# Adapters",
        "",
        GENERATED,
        "",
        "What stands in the tables of `gpuledger/registry.py`. Outside packages add to them by the entry points",
        "`gpuledger.<table>` (`gpuledger.sources` and so on) and import only `gpuledger`.",
        "",
    ]
    for table, known in TABLES.items():
        rows = ((f"`{name}`", f"`{place}`", _purpose(place)) for name, place in known.items())
        lines += [f"## {table.capitalize()}", "", *_table(("name", "where", "what it does"), rows)]
    return "\n".join(lines)


def pages() -> Mapping[Path, str]:
    """Every generated page: its path and its text."""
    made = {"settings": settings_page, "queries": queries_page, "cli": cli_page, "adapters": adapters_page}
    found = {ROOT / "docs" / f"{name}.md": page() for name, page in made.items()}
    found |= {ROOT / "deploy" / "rbac" / f"{adapter.name}.yaml": manifests(adapter) for adapter in family()}
    return found


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
