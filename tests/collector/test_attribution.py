"""Whose a pod is: one case for each framework, in both spellings of its labels, and the operator's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.attribution import Attribution, Labels, Owner, Rules, Subject, attribute, load
from gpuledger.attribution.labels import normal
from gpuledger.attribution.rules import parse
from gpuledger.errors import ConfigError

AT = datetime(2026, 3, 2, tzinfo=UTC)
CASES: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "attribution_cases.yaml").read_text(encoding="utf-8")
)


def _spelt(labels: Mapping[str, str]) -> dict[str, str]:
    """As kube-state-metrics writes them."""
    return {f"label_{normal(name)}": value for name, value in labels.items()}


def _asked(case: Mapping[str, Any], labels: Mapping[str, str]) -> Attribution:
    owner = Owner(*case["owner"]) if "owner" in case else None
    return attribute(Subject(case.get("namespace", "team"), case["pod"], owner), labels, AT)


@pytest.mark.parametrize("name", CASES)
def test_built_in_rules(name: str) -> None:
    case = CASES[name]
    labels = case.get("labels", {})
    found = asdict(_asked(case, labels))
    assert {key: found[key] for key in case["expect"]} == case["expect"]
    assert asdict(_asked(case, _spelt(labels))) == found


def test_what_nothing_says_is_said_by_name_and_namespace() -> None:
    assert attribute(Subject("team", "lonely"), {}, AT) == Attribution(
        workload_id="team/lonely",
        name="lonely",
        framework="pod",
        kind="unknown",
        stage="other",
        tenant="team",
        user=None,
        queue="",
        is_gang=False,
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("training.kubeflow.org/job-name", "training_kubeflow_org_job_name"),
        ("label_training_kubeflow_org_job_name", "training_kubeflow_org_job_name"),
        ("label_app_conflict2", "app"),
        ("jobName", "job_name"),
        ("label_job_name", "job_name"),
    ],
)
def test_one_label_has_one_name(written: str, expected: str) -> None:
    assert normal(written) == expected


def test_labels_that_could_not_be_told_apart_match_with_any_of_their_values() -> None:
    labels = {"label_team_conflict1": "vision", "label_team_conflict2": "nlp"}
    rules = parse({"tenant": [{"labels": {"team": "nlp"}, "value": "language"}]})
    assert attribute(Subject("n", "p"), labels, AT, rules).tenant == "language"
    assert Labels(labels).get("team") == "vision"


RULES = parse(
    {
        "workload": [{"labels": {"experiment": "*"}, "value": "exp-{label:experiment}"}],
        "tenant": [
            {"namespace": "nlp-*", "value": "research", "until": "2026-03-01T00:00:00Z"},
            {"namespace": "nlp-*", "value": "product", "from": "2026-03-01T00:00:00Z"},
            {"labels": {"cost.example.com/centre": "*"}, "value": "{label:cost.example.com/centre}"},
        ],
        "stage": [{"pod": "*-eval-*", "value": "evaluation"}, {"labels": {"phase": "*"}, "value": "{label:phase}"}],
        "kind": [{"labels": {"app": "vllm"}, "value": "inference"}],
        "queue": [{"namespace": "nlp-*", "value": "{namespace}-queue"}],
        "user": [{"value": "{label:mail}"}],
    }
)


def _ruled(namespace: str = "n", pod: str = "p", at: datetime = AT, **labels: str) -> Attribution:
    return attribute(Subject(namespace, pod), labels, at, RULES)


def test_the_first_rule_that_matches_decides() -> None:
    assert _ruled("nlp-a").tenant == "product"
    assert _ruled("nlp-a", at=datetime(2026, 2, 28, 23, tzinfo=UTC)).tenant == "research"
    assert _ruled("vision", label_cost_example_com_centre="4711").tenant == "4711"
    assert _ruled("vision").tenant == "vision"


def test_rules_for_every_field() -> None:
    assert _ruled(experiment="7").workload_id == "n/exp-7"
    assert _ruled(pod="llm-eval-3").stage == "evaluation"
    assert _ruled(app="vllm").kind == "inference"
    assert _ruled(app="vllm").stage == "inference"
    assert _ruled("nlp-a").queue == "nlp-a-queue"
    assert (_ruled(mail="a@b").user, _ruled().user) == ("a@b", None)


def test_a_value_that_is_no_stage_is_not_taken() -> None:
    assert _ruled(phase="pretraining").stage == "pretraining"
    assert _ruled(phase="lunch").stage == "other"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[team]]\nvalue = "x"\n', "'team'"),
        ('[[tenant]]\nname = "x"\n', "tenant rule 1"),
        ('[[tenant]]\nvalue = "x"\n[[tenant]]\nvalue = "y"\nlabel = "z"\n', "tenant rule 2"),
        ('[[stage]]\nvalue = "training"\n', "'training'"),
        ('[[kind]]\nvalue = "x"\n', "'x'"),
        ('[[tenant]]\nvalue = "x"\nfrom = "soon"\n', "from"),
        ('[[tenant]]\nvalue = "x"\nfrom = 2026-02-01T00:00:00Z\nuntil = 2026-01-01T00:00:00Z\n', "until"),
        ('[[tenant]]\nvalue = "x"\nlabels = {a = 1}\n', "texts"),
        (
            '[[tenant]]\nvalue = "x"\n[[tenant]]\nvalue = "{lable:user}"\n',
            "tenant rule 2: '{lable:user}' holds a brace",
        ),
        ('[[tenant]]\nvalue = "{label:x"\n', "tenant rule 1: '{label:x' holds a brace"),
        ('[[user]]\nvalue = "a/{namespace}/{label:}"\n', "user rule 1"),
        ('[[queue]]\nvalue = "{{namespace}}"\n', "queue rule 1"),
        ('[[stage]]\nvalue = "{label:phase}}"\n', "stage rule 1"),
        ("tenant = 1\n", "list"),
        ("[[tenant\n", "line 1"),
    ],
)
def test_rules_that_cannot_be_read_are_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rules\.toml") as error:
        load(path)
    assert named in str(error.value)


def test_a_file_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[tenant]]\nnamespace = "a"\nvalue = "x"\nfrom = 2026-01-01\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="from"):
        load(path)
    path.write_text('[[tenant]]\nnamespace = "a"\nvalue = "x"\nfrom = 2026-01-01T00:00:00\n', encoding="utf-8")
    assert attribute(Subject("a", "p"), {}, AT, load(path)).tenant == "x"
    assert load(None) == Rules()
    with pytest.raises(ConfigError, match="nowhere"):
        load(tmp_path / "nowhere.toml")
