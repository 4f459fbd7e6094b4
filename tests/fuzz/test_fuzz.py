"""The short form of every fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fuzz import _harness
from fuzz._harness import TookTooLong, deadline, fuzz

ROOT = Path(__file__).resolve().parents[2]
FUZZERS = sorted(path for path in (ROOT / "fuzz").glob("*.py") if not path.name.startswith("_"))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fuzzer_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_fuzzers():
    assert "exposition" in {path.stem for path in FUZZERS}


@pytest.mark.parametrize("path", FUZZERS, ids=lambda path: path.stem)
def test_a_few_seconds_of_it_find_nothing(path):
    command = [sys.executable, str(path), "--seconds", "4", "--seed", "20260302"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 20260302" in done.stdout


def test_the_same_seed_gives_the_same_inputs():
    exposition = loaded(ROOT / "fuzz" / "exposition.py")
    first, second = random.Random(7), random.Random(7)
    made = [exposition.make(first) for _ in range(50)]
    assert made == [exposition.make(second) for _ in range(50)]
    assert len(set(made)) > 40


def test_the_seed_pages_pass_as_they_are():
    exposition = loaded(ROOT / "fuzz" / "exposition.py")
    for page in exposition.corpus():
        exposition.check(page)


def test_an_input_that_fails_is_kept_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_harness, "_keep", lambda name, content: (tmp_path / name).write_bytes(content) and name)

    def check(content: bytes) -> None:
        assert b"7" not in content, "a seven"

    with pytest.raises(AssertionError, match="a seven"):
        fuzz("sevens", lambda rng: b"%d" % rng.randrange(1000), check, ["--seconds", "5"])
    assert b"7" in (tmp_path / "sevens").read_bytes()
    assert "sevens: seed 1, input" in capsys.readouterr().out


def test_what_hangs_is_stopped_even_where_every_exception_is_handled():
    def hang() -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    with pytest.raises(TookTooLong), deadline(0.2):
        hang()
