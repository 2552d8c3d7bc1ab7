"""CVXPY's own tests with ``method="screen"`` as the default: what passes plainly passes screened.

Some 2,500 tests and a quarter of an hour, twice. Most of their problems are not recognised, so this
is a test of the way that leads back to CVXPY: statuses, exceptions, statistics, attributes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import children
import pytest

import cvxscreen

HELPERS = Path(__file__).resolve().parents[1] / "helpers"

OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore", "--pyargs", "cvxpy.tests")

OTHERWISE: dict[str, str] = {
    "test_problem.py::TestProblem::test_solve_solver_path":
        "counts the calls of a mock that is told of `method` here",
}
"""Tests that may fail with another default, and why that says nothing of the method."""


def failures(folder: Path, *options: str) -> set[str]:
    """The names of CVXPY's tests that fail."""
    home = str(Path(cvxscreen.__file__).parents[1])
    places = os.pathsep.join([home, str(HELPERS)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *options, *OPTIONS], capture_output=True, text=True,
        check=False, cwd=folder, env={**os.environ, "PYTHONPATH": places},
    )
    assert re.search(r"\d+ passed", done.stdout), done.stdout[-2000:] + done.stderr[-2000:]
    return set(re.findall(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE))


@pytest.mark.long
def test_cvxpys_own_tests_pass_with_the_method_as_the_default(tmp_path: Path) -> None:
    screened = failures(tmp_path, "-p", "screened_by_default") - set(OTHERWISE)
    if screened:
        screened -= failures(tmp_path)
    assert not screened


DEFAULT = """
import screened_by_default, cvxpy as cp, numpy as np
w = cp.Variable(2)
prob = cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(cp.pos(1 - np.ones((3, 2)) @ w))))
prob.solve()
assert prob.solver_stats.extra_stats["cvxscreen"].recognised
"""


def test_the_default_is_another_one_there() -> None:
    places = os.pathsep.join([str(Path(cvxscreen.__file__).parents[1]), str(HELPERS)])
    done = children.run(DEFAULT, PYTHONPATH=places)
    assert done.returncode == 0, done.stderr
