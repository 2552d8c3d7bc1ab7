"""The documentation builds without a warning, and its reference has every public name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cvxscreen

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long  # the workflow "documentation" builds it for every change
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    # In a copy: the pages of the reference are written beside their source.
    for folder in ("docs", "examples"):
        wanted = shutil.ignore_patterns("generated", "benchmarks", "__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=wanted)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html",
         "-D", "plot_gallery=0",  # the scripts run in test_examples.py
         str(tmp_path / "docs"), str(tmp_path / "html")],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    made = {path.stem for path in (tmp_path / "html" / "generated").glob("cvxscreen.*.html")}
    functions = {n for n in cvxscreen.__all__ if not isinstance(getattr(cvxscreen, n), type(sys))}
    missing = {n for n in functions if not n.startswith("_")} - {n.split(".")[1] for n in made}
    assert not missing
    assert (tmp_path / "html" / "theory.html").is_file()
    pages = {path.stem for path in (tmp_path / "html" / "generated" / "examples").glob("plot_*")}
    assert pages == {path.stem for path in (ROOT / "examples").glob("plot_*.py")}
    teaching = (tmp_path / "html" / "start_teaching.html").read_text("utf-8")
    assert 'href="generated/examples/plot_safe_region.html"' in teaching
