"""The tree keeps the habits of CONTRIBUTING.md that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gpuledger", "collector", "warehouse", "analyzers", "schedulers", "dashboards", "reports", "alerts")
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
OTHERS = [path for folder in ("tests", "benchmarks", "docs") for path in sorted((ROOT / folder).rglob("*.py"))]
STATEMENTS = sorted((ROOT / "sql").rglob("*.sql"))
TEXTS = [
    *MODULES,
    *OTHERS,
    *STATEMENTS,
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for path in sorted(ROOT.iterdir()) if path.suffix in (".md", ".toml") or path.name == "Makefile"),
]

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "data", "manager", "info"}
COMPOSES_SQL = {"warehouse/ingest.py"}
"""The one file that makes SQL text, from constants only: docs/decisions/0002-records-derive-schemas.md."""

OPEN_MARKER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
SQL = re.compile(
    r"\bselect\s.*\sfrom\s|\binsert\s+into\b|\bdelete\s+from\b|\bmerge\s+into\b|\balter\s+table\b|\bupdate\s+\S+\s+set\b"
    r"|\b(create|drop)\s+(or\s+replace\s+)?(temp\s+)?(table|view)\b|\bfrom\s+[^\s,]+\s+where\b",
    re.IGNORECASE | re.DOTALL,
)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _constant(node: ast.AST) -> str:
    """The fixed text of a string expression; what is filled in stands as "?"."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_constant(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "?"


def _composed(tree: ast.AST) -> Iterator[str]:
    """Texts that are put together: f-strings, `+`, `%`, `format`, of which at least a part is not fixed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and any(isinstance(part, ast.FormattedValue) for part in node.values):
            yield _constant(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            yield _constant(node.left) + " " + _constant(node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            yield _constant(node.func.value)


@pytest.mark.parametrize("path", [*MODULES, *OTHERS], ids=_name)
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [
        _name(path) for path in [*MODULES, *OTHERS] if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES
    ] == []


def test_tests_are_no_packages() -> None:
    assert [_name(path) for path in OTHERS if path.name == "__init__.py"] == []


def test_nothing_is_marked_as_open() -> None:
    marked = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OPEN_MARKER.search(line)
    ]
    assert marked == []


def test_every_module_says_why_it_exists() -> None:
    assert [_name(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []


def test_sql_is_composed_in_one_file_only() -> None:
    composing = {
        _name(path)
        for path in MODULES
        if any(SQL.search(text) for text in _composed(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert composing == COMPOSES_SQL


@pytest.mark.parametrize(
    ("source", "is_sql"),
    [
        ('f"select {a} from t"', True),
        ('"delete from " + table', True),
        ('"insert into %s" % table', True),
        ('"select a from {}".format(table)', True),
        ('"select a from t"', False),
        ('f"nothing from {a}, where it was"', False),
    ],
)
def test_composed_sql_is_recognised(source: str, is_sql: bool) -> None:
    assert any(SQL.search(text) for text in _composed(ast.parse(source))) is is_sql


@pytest.mark.parametrize("path", STATEMENTS, ids=_name)
def test_sql_keywords_are_lower_case(path: Path) -> None:
    text = re.sub(r"--.*|'[^']*'|\"[^\"]*\"", " ", path.read_text(encoding="utf-8"))
    assert re.findall(r"\b[A-Z]{2,}\b", text) == []


def test_the_lock_file_has_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(--(extra-)?index-url|--find-links|-i |-f )", text, re.MULTILINE)
    requirements = [block for block in re.split(r"\n(?=\S)", text) if block.strip() and not block.startswith("#")]
    assert len(requirements) > 50
    for block in requirements:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,-]+\])?==\S+", block), block[:80]
        assert "--hash=sha256:" in block, block[:80]
