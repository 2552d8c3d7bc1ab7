"""Where `DualActiveSet` begins without a start: the slopes at x = 0, unless a share of them is
better."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_problems import make

from cvxscreen.core.closed_form import c_min
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.dual_active_set.iterate import DualIterate, PathCache
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet

KINDS = ("hinge", "absolute", "smoothed hinge")


def begun(problem: Problem) -> DualIterate:
    return DualIterate(problem, problem.design, None, 0.0, PathCache())  # type: ignore[arg-type]


def dual(problem: Problem, theta: np.ndarray) -> float:
    """The dual objective, written out."""
    f, pull = problem.losses, problem.design.adjoint(theta) + problem.linear
    conjugate = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
    return -float(conjugate.sum()) - 0.5 * float(pull**2 @ (1.0 / problem.quadratic.diagonal))


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_closed_form_is_known_nothing_is_left_to_do(
    kind: str, rng: np.random.Generator
) -> None:
    """Below ``C_min`` the solution is there before the first round; not so at 30 times that."""
    problem = make(kind, rng)
    if kind == "smoothed hinge":
        problem = problem.with_(C=1e-3)  # slopes at the end of the box
    least = c_min(problem).C
    low, high = (problem.with_(C=share * least) for share in (0.9, 30.0))
    target = 1e-9 * low.primal(np.zeros(low.d))
    found = DualActiveSet()(low, None, target)
    assert found.info["rounds"] == 0
    assert found.info["gap"] <= target
    assert DualActiveSet()(high, None, 1e-9 * high.primal(np.zeros(high.d))).info["rounds"] > 0


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_better_of_two_points(kind: str, C: float, rng: np.random.Generator) -> None:
    """All slopes where no share of them has a larger dual objective, else none."""
    problem = make(kind, rng, C)
    slopes, theta = problem.losses.slope(np.zeros(problem.n)), begun(problem).theta
    best = max(dual(problem, s * slopes) for s in np.linspace(0.0, 0.999, 40))
    whole = dual(problem, slopes) > best
    np.testing.assert_array_equal(theta, slopes if whole else 0.0)
