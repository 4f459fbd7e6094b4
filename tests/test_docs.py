"""What can be named has its place in the documentation, and what is generated is up to date."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from collector.settings import CollectorSettings, DcgmEndpoint, KubeStateMetricsEndpoint, NvidiaSmi, Nvml, OtherSource
from docs import generate
from gpuledger import registry
from gpuledger.config import Settings
from gpuledger.model import RECORDS, State
from gpuledger.model.vocabulary import ASSET_STATUSES, CONDITIONS, STAGES, WORKLOAD_KINDS
from schedulers.airflow.api import AirflowOptions
from schedulers.deploying import family
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.ray import RayOptions
from schedulers.slurm.options import SlurmOptions
from schedulers.yarn.api import YarnOptions
from warehouse.queries import catalogue

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SECTIONS = ("Finds", "Ignores", "Evidence", "GPU-hours counted", "Acts on it", "Defaults and their source")
JUDGES = [*registry.RULES, *registry.RECOMMENDERS]
ENTRIES = [(table, name) for table, known in registry.TABLES.items() for name in known]
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


OPTIONS: dict[str, type[BaseModel]] = {
    **{adapter.name: adapter.options_class for adapter in family()},
    "slurm": SlurmOptions,
    "ray": RayOptions,
    "yarn": YarnOptions,
    "airflow": AirflowOptions,
}

GLOSSARY = _text(ROOT / "GLOSSARY.md")
README = _text(ROOT / "README.md")


def _section(page: str, heading: str) -> str:
    """The lines below `heading` up to the next of its level or above."""
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{heading.count('#')}}} |\Z)", page, re.MULTILINE | re.DOTALL
    )
    assert found, f"no {heading!r}"
    return found[1]


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert _text(path) == generate.pages()[path], "run `make docs`"


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_every_adapter_resolves_and_has_its_row(table: str, name: str) -> None:
    assert callable(registry.resolve(table, name))
    assert f"| `{name}` | " in _section(_text(DOCS / "adapters.md"), f"## {table.capitalize()}")


@pytest.mark.parametrize("name", JUDGES)
def test_every_rule_and_recommender_has_page_and_cases(name: str) -> None:
    page = _text(DOCS / "rules" / f"{name}.md")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert len(headings) == len(SECTIONS)
    for heading, section in zip(headings, SECTIONS, strict=True):
        assert heading.startswith(section)
    assert (ROOT / "tests" / "cases" / f"{name}.yaml").is_file()


def test_every_page_of_a_rule_is_of_one_that_exists() -> None:
    assert {path.stem for path in (DOCS / "rules").glob("*.md")} == set(JUDGES)


@pytest.mark.parametrize("name", registry.RULES)
def test_every_rule_has_its_sql(name: str) -> None:
    assert list((ROOT / "sql" / "rules").glob(f"{name.partition('_')[0]}*.sql"))


def test_every_query_of_a_rule_is_asked_by_one() -> None:
    asking = "".join(_text(path) for path in (ROOT / "analyzers").rglob("*.py"))
    unasked = [
        query.name for query in catalogue().values() if query.folder == "rules" and f'"{query.name}"' not in asking
    ]
    assert unasked == []


@pytest.mark.parametrize("name", [query.name for query in catalogue().values() if query.is_read])
def test_every_query_has_its_heading(name: str) -> None:
    section = _section(_text(DOCS / "queries.md"), f"### `{name}`")
    for word in (*catalogue()[name].parameters, *catalogue()[name].columns):
        assert f"`{word}`" in section


@pytest.mark.parametrize("name", generate.commands())
def test_every_command_has_its_heading(name: str) -> None:
    section = _section(_text(DOCS / "cli.md"), f"## `gpuledger {name}`")
    for parameter in generate.commands()[name].params:
        for written in parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]:
            assert f"`{written}`" in section
    assert f"gpuledger {name.partition(' ')[0]}" in README


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_of_the_service_has_its_row(name: str) -> None:
    section = _section(_text(DOCS / "settings.md"), "## Service")
    assert f"| `{name}` | " in section
    assert f"`GPULEDGER_{name.upper()}`" in section


def test_every_setting_of_the_collector_has_its_row() -> None:
    section = _section(_text(DOCS / "settings.md"), "## Collector")
    names = [*CollectorSettings.model_fields, *(f"dcgm.{name}" for name in DcgmEndpoint.model_fields)]
    names += [f"kube_state_metrics.{name}" for name in KubeStateMetricsEndpoint.model_fields]
    names += [f"nvidia_smi.{name}" for name in NvidiaSmi.model_fields]
    names += [f"source.{name}" for name in OtherSource.model_fields]
    for name in [*names, *(f"nvml.{name}" for name in Nvml.model_fields)]:
        assert f"| `{name}` | " in section


def test_every_setting_says_what_it_is() -> None:
    fields = [
        field
        for model in (Settings, CollectorSettings, DcgmEndpoint, KubeStateMetricsEndpoint, Nvml, NvidiaSmi, OtherSource)
        for field in model.model_fields.items()
    ]
    assert [name for name, field in fields if not field.description] == []


@pytest.mark.parametrize("state", State)
def test_every_state_has_its_heading_with_its_chinese_name(state: State) -> None:
    texts = tomllib.loads(_text(ROOT / "gpuledger" / "presentation" / "texts.toml"))
    assert f"\n### `{state}` {texts['state'][state]['zh']}\n" in GLOSSARY


def test_states_stand_in_their_order() -> None:
    assert re.findall(r"^### `(\w+)`", GLOSSARY, re.MULTILINE) == list(State)


@pytest.mark.parametrize("word", [*ASSET_STATUSES, *CONDITIONS, *WORKLOAD_KINDS, *STAGES])
def test_every_word_of_a_record_is_explained(word: str) -> None:
    assert f"`{word}`" in GLOSSARY


@pytest.mark.parametrize("record", RECORDS)
def test_every_record_is_explained(record: str) -> None:
    assert f"`{RECORDS[record].cls.__name__}`" in GLOSSARY


def test_every_rate_has_its_row_with_its_chinese_name() -> None:
    sql = _text(ROOT / "sql" / "report" / "ledger_rates.sql")
    rates = re.findall(r"'name': '(\w+)', 'name_zh': '([^']+)'", sql)
    assert len(rates) > 10
    for name, name_zh in rates:
        assert f"| `{name}` | {name_zh} | " in GLOSSARY


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_of_the_readme_exist(target: str) -> None:
    assert f"\nmake {target}\n" in README
    assert re.search(rf"^{target}:", _text(ROOT / "Makefile"), re.MULTILINE)


def test_every_make_target_has_a_rule() -> None:
    makefile = _text(ROOT / "Makefile")
    declared = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    for target in " ".join(declared).split():
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", _text(path)):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_decisions_are_numbered_and_say_what_follows() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    for path in DECISIONS:
        page = _text(path)
        assert page.startswith(f"# {int(path.name[:4])}. "), path.name
        for heading in ("Context", "Decision", "Consequences"):
            assert f"\n## {heading}" in page, path.name


@pytest.mark.parametrize("name", [name for name in registry.SCHEDULERS if name != "fake"])
def test_every_option_of_a_scheduler_stands_in_its_page_and_no_other(name: str) -> None:
    page = _text(DOCS / "schedulers" / f"{name}.md")
    own = set(OPTIONS[name].model_fields)
    if name != "kubernetes" and issubclass(OPTIONS[name], KubernetesOptions):
        assert "those of `kubernetes`" in page.lower()
        own -= set(KubernetesOptions.model_fields)
    table = _section(page, "## Options") if "## Options\n" in page else ""
    named = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert {option for cell in named for option in re.findall(r"`(\w+)`", cell)} == own
