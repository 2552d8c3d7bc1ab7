"""Where nothing can be written, and where several interpreters meet one empty cache.

An installation that may not be written to is a copy whose ``__pycache__`` are files: not even root
can put anything there. Without a home directory numba has no other place either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import children
import cvxpy
import pytest

import cvxscreen

PROGRAM = """
import hashlib, json, sys
import cvxpy as cp, numpy as np
import cvxscreen
X, y = cvxscreen.datasets.two_gaussians(300, 4, seed=0)
found = {"where": cvxscreen.__file__}
sparse = cvxscreen.sparse_svm(X, y, 0.05)
fits = {"auto": (cvxscreen.svm(X, y), "auto"), "sdca": (sparse, "sdca"),
        "dcd": (cvxscreen.svm(X, y), "dcd")}
for name in ("auto", *sys.argv[1:]):
    problem, solver = fits[name]
    solution = cvxscreen.solve(problem, solver=solver)
    found[name] = [solution.status, hashlib.sha256(solution.x.tobytes()).hexdigest()]
w = cp.Variable(4)
prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))))
prob.solve(method="screen", always=True)
found["cvxpy"] = [prob.status]
print(json.dumps(found))
"""

NOWHERE = os.devnull + "/none"


def started(home: Path, compiled: str, **more: str) -> subprocess.Popen[str]:
    """An interpreter that finds the package in `home` and may write to no home directory.

    It solves by numpy, through CVXPY, and by the loops of the solver `compiled`.
    """
    unknown = ("NUMBA_CACHE_DIR", "PYTHONPATH", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    kept = {name: value for name, value in os.environ.items() if name not in unknown}
    place = str(Path(cvxpy.__file__).parents[1])  # it may be another one than the environment's
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, compiled], text=True, cwd=children.ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**kept, "HOME": NOWHERE, "XDG_CACHE_HOME": NOWHERE, "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": os.pathsep.join([str(home), place]), **more},
    )


def ended(child: subprocess.Popen[str]) -> dict[str, list[str]]:
    said, trouble = child.communicate(timeout=600)
    assert child.returncode == 0, trouble
    return json.loads(said)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which no compiled code can be kept."""
    home = tmp_path_factory.mktemp("installed")
    source = Path(cvxscreen.__file__).parent
    shutil.copytree(source, home / "cvxscreen", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [home / "cvxscreen", *(home / "cvxscreen").rglob("*")]:
        if folder.is_dir():
            (folder / "__pycache__").write_text("nothing is kept here")
    return home


def test_nothing_needs_to_be_written(read_only: Path) -> None:
    """A read-only installation, no home directory: every process compiles for itself."""
    found = ended(started(read_only, "sdca"))
    assert found.pop("where").startswith(str(read_only))
    assert {answer[0] for answer in found.values()} == {"optimal"}


@pytest.mark.long
def test_four_interpreters_share_an_empty_cache(read_only: Path, tmp_path: Path) -> None:
    """They start together, compile the same loops, and find the same bits."""
    cache = tmp_path / "cache"
    cache.mkdir()
    many = [started(read_only, "dcd", NUMBA_CACHE_DIR=str(cache)) for _ in range(4)]
    first, *others = [ended(child) for child in many]
    assert {answer[0] for name, answer in first.items() if name != "where"} == {"optimal"}
    assert others == [first] * 3
    assert list(cache.rglob("*.nbi"))
    assert ended(started(read_only, "dcd", NUMBA_CACHE_DIR=str(cache))) == first
