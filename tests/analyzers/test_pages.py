"""Each rule's page and docstring say what they must, and every option stands on its page with its default's source."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analyzers.recommend.move_quota import MoveQuota, MoveQuotaOptions
from analyzers.rules.fragmentation import Fragmentation, FragmentationOptions
from analyzers.rules.quota_balance import QuotaBalance, QuotaBalanceOptions

ROOT = Path(__file__).resolve().parents[2]
PAGES = [(Fragmentation, FragmentationOptions), (QuotaBalance, QuotaBalanceOptions), (MoveQuota, MoveQuotaOptions)]
SECTIONS = ("Finds", "Ignores", "Evidence", "GPU-hours counted", "Acts on it")


@pytest.mark.parametrize(("rule", "options"), PAGES)
def test_page_and_docstring(rule: Any, options: Any) -> None:
    page = (ROOT / "docs" / "rules" / f"{rule.name}.md").read_text()
    assert page.startswith(f"# {rule.name}\n")
    for section in SECTIONS:
        assert f"\n## {section}" in page
        assert f"**{section}**" in rule.__doc__
    for field in dataclasses.fields(options):
        assert f"`{field.name}`" in page, field.name


def test_the_decision_about_the_weighting_is_written_down() -> None:
    text = (ROOT / "docs" / "decisions" / "0003-demand-weighting.md").read_text()
    assert FragmentationOptions().weighting == "demand"
    for number in ("146.9292", "39.1971", "863.0451", "866.2326"):
        assert number in text
