"""The planted faults of the laboratory: each can still be planted; the tests kill a sample."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "laboratory"
SCRIPT = FOLDER / "mutations.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the examples are not shipped here")

NOTHING = """
import sys
import mutations
from faults.table import DROPPED, Fault
old = '"Unit roundoff of double precision."'.replace('"', '\"\"\"')
mutations.FAULTS = (Fault("a word", DROPPED, "_support/rounding.py", old,
                          old.replace("Unit", "The unit"),
                          ("tests/designs/test_rounding.py::test_up_exceeds_the_exact_value",),
                           "nothing"),)
sys.exit(mutations.main(["--narrow", "--skip-baseline"]))
"""


@pytest.fixture
def mutations(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    import mutations

    yield mutations
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("faults", "mutations"):
            del sys.modules[name]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    threads = {"PYTHONPATH": str(FOLDER), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, **threads},
    )


def test_every_fault_can_still_be_planted(mutations: ModuleType) -> None:
    """Every old text is in its module exactly once, and the planted source is still Python."""
    assert mutations.check() == []
    names = [fault.name for fault in mutations.FAULTS]
    assert len(names) == len(set(names)) >= 100
    said = re.search(r"plants more than (\d+) faults", (ROOT / "docs/safety.md").read_text("utf-8"))
    assert said is not None
    assert len(names) > int(said[1])


def test_every_kind_and_every_safe_module_has_faults(mutations: ModuleType) -> None:
    import faults

    assert {fault.kind for fault in mutations.FAULTS} == set(faults.KINDS)
    hit = {fault.module for fault in mutations.FAULTS}
    package = ROOT / "cvxscreen"
    files = {path.relative_to(package).as_posix() for path in package.glob("bounds/**/*.py")}
    assert files - hit == {"bounds/__init__.py", "bounds/regions/__init__.py"}  # tables of names


def test_a_text_that_is_gone_or_there_twice_is_said(mutations: ModuleType) -> None:
    fault = mutations.FAULTS[0]
    for text in ("", 2 * fault.old):
        with pytest.raises(ValueError, match=fault.name):
            mutations.planted(text, fault)
    assert mutations.planted(f"a {fault.old} b", fault) == f"a {fault.new} b"


def test_a_change_that_no_test_can_notice_is_a_survivor() -> None:
    done = run("-c", NOTHING)
    assert done.returncode == 1, done.stderr
    assert "SURVIVED" in done.stdout
    assert "0 of 1 planted faults killed" in done.stdout


@pytest.mark.long
def test_a_sample_of_the_faults_is_killed() -> None:
    done = run(str(SCRIPT), "--only", "core/losses.py", "--narrow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| core/losses.py |" in done.stdout
