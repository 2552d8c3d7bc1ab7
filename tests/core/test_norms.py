"""Which norms of the rows and columns outlive a change of the problem, and that they are right."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

import cvxscreen
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Norms, Problem
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.solve import InUnits

NAMES = tuple(entry.name for entry in fields(Norms))


def problems(rng: np.random.Generator) -> dict[str, Problem]:
    """One with an intercept, one under an L1 norm."""
    X, y = rng.standard_normal((20, 5)), np.where(rng.random(20) < 0.5, -1.0, 1.0)
    return {
        "intercept": cvxscreen.svm(X, y, C=0.3, loss="squared_hinge", intercept=True),
        "L1": cvxscreen.sparse_svm(X, y, 0.05),
    }


@pytest.mark.parametrize(("kind", "change"), [
    ("intercept", "C"), ("L1", "lam"), ("intercept", "rows"), ("L1", "rows"), ("L1", "columns"),
    ("intercept", "units"),
])
def test_what_is_taken_over_is_what_would_be_computed(
    kind: str, change: str, rng: np.random.Generator
) -> None:
    """After every change, from a problem that knows all its norms."""
    problem = problems(rng)[kind]
    for name in NAMES:
        getattr(problem, name)
    codes = np.full(problem.n, -1, dtype=np.int8)
    if change in ("C", "lam"):
        changed = problem.with_(**{change: 0.7})
    elif change == "units":
        changed = replace(problem, quadratic=problem.quadratic.scaled(3.0))
        for name in NAMES:
            getattr(changed, name)
        changed = InUnits.of(changed).unit
    elif change == "rows":
        codes[::3] = Piece.ZERO
        changed = Selection(codes).reduce(problem)
    else:
        changed = Selection(codes, np.arange(problem.d) < 2).reduce(problem)
    fresh = replace(changed)
    assert all(getattr(fresh.known, name) is None for name in NAMES)
    known = [name for name in NAMES if getattr(changed.known, name) is not None]
    expected = {"C": 5, "lam": 6, "rows": 4, "columns": 2, "units": 4}[change]
    assert len(known) == expected, known
    for name in NAMES:
        np.testing.assert_allclose(getattr(changed, name), getattr(fresh, name), rtol=1e-12)
    if change in ("lam", "units"):  # bounds rest on them
        assert (changed.norms >= fresh.norms).all()
        assert (changed.rounding_norms >= fresh.rounding_norms).all()


def test_nothing_is_computed_by_taking_over(rng: np.random.Generator) -> None:
    """A problem that knows nothing hands on nothing."""
    problem = problems(rng)["intercept"]
    codes = np.full(problem.n, -1, dtype=np.int8)
    codes[0] = Piece.ZERO
    reduced = Selection(codes).reduce(replace(problem))
    known = {name for name in NAMES if getattr(reduced.known, name) is not None}
    assert known <= {"free_columns", "sizes", "norms", "rounding_norms"}
    assert reduced.known.column_norms is None
