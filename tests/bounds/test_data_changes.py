"""Left-out margins: attained, containing the optimum without the term, right whatever is
decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategies import CASES, Case, build, points, reference, solved

from cvxscreen import svm
from cvxscreen.bounds.data_changes import left_out_margins, takes_left_out
from cvxscreen.core.duality import reference_point
from cvxscreen.models.samples import CLASSIFICATION

PLAIN = [case for case in CASES if not case.intercept]


def without(problem, i):
    keep = np.arange(problem.n) != i
    return replace(
        problem, design=problem.design.take_rows(keep), losses=problem.losses.take(keep)
    )


def test_attained_by_a_term_orthogonal_to_the_others() -> None:
    """Without it nothing pulls along its row: its margin is 0, an end of the interval."""
    X = np.diag([0.5, 1.0, 1.5, 2.0])
    problem = svm(X, np.array([1.0, -1.0, 1.0, -1.0]), C=1.0)
    # alpha = min(C, 1/|a|^2), as the terms do not see each other.
    theta = -np.minimum(1.0, 1.0 / problem.sizes**2)
    x = -problem.design.adjoint(theta)
    low, high = left_out_margins(reference_point(problem, x, theta))
    assert ((low <= 0) & (high >= 0)).all()
    assert np.abs(low).max() <= 1e-6  # the root of what rounding leaves of the Fenchel-Young terms
    middle, reach = 0.5 * (low + high), 0.99 * 0.5 * (high - low)
    assert not (middle - reach <= 0).any()


def test_a_term_without_a_slope_changes_nothing() -> None:
    ref = reference(Case("squared_hinge"))
    low, high = left_out_margins(ref.point)
    idle = ref.theta == 0
    assert idle.any()
    assert (high - low)[idle].max() < 1e-5 * (high - low)[~idle].max()


@pytest.mark.parametrize("case", PLAIN[::3], ids=str)
def test_the_optimum_without_a_term_is_inside(case: Case, rng: np.random.Generator) -> None:
    """From points near and far, whatever the loss, the scaling and the storage."""
    ref = reference(case)
    problem = ref.problem
    near = [ref.point, *points(ref, rng, 4)]
    chosen = rng.choice(problem.n, 5, replace=False)
    wrong = decided = 0
    for i in chosen:
        left = solved(without(problem, i))
        [true] = problem.design.take_rows(np.array([i])).forward(left.x)
        slack = (left.error + 1e-14 * np.linalg.norm(left.x)) * problem.norms[i]
        for point in near:
            assert takes_left_out(point)
            low, high = left_out_margins(point)
            assert low[i] - slack <= true <= high[i] + slack
            decided += low[i] > 0 or high[i] < 0
            wrong += bool(low[i] > slack and true <= -slack) + bool(
                high[i] < -slack and true > slack
            )
    assert wrong == 0
    assert decided > 0 or case.data == "wide" or case.loss not in CLASSIFICATION


def test_intervals_shrink_towards_the_optimum() -> None:
    ref = reference(Case("hinge"))
    blurred = reference_point(ref.problem, ref.x + 0.1, ref.theta)
    near, far = left_out_margins(ref.point), left_out_margins(blurred)
    assert (near[1] - near[0]).mean() < (far[1] - far[0]).mean()


@pytest.mark.parametrize("intercept", [True, False])
def test_only_where_every_coordinate_is_penalised(intercept: bool) -> None:
    problem = build(Case("hinge", intercept=intercept))
    assert takes_left_out(reference_point(problem, np.zeros(problem.d))) is not intercept
