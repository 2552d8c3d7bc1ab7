"""Under an L1 term: where a call begins, and which answers are taken as they are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import CURVED, KINKED, make

import cvxscreen as cs
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.interface import Start, SubproblemResult
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton.rows_and_columns import (
    ALONE,
    SOME,
    ZeroIterate,
    at_once,
    beginning,
)
from cvxscreen.solvers.prox_newton.solver import ProxNewton


def alone(share: float, sparse: bool = False, n: int = 60, d: int = 40) -> Problem:
    """A squared hinge under an L1 norm without a quadratic term."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3 if sparse else 1.0)
    y = np.where(X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(n) >= 0, 1.0, -1.0)
    data = sp.csr_matrix(X) if sparse else X
    problem = cs.sparse_svm(data, y, 1.0, loss="squared_hinge", l2=0)
    assert isinstance(problem, Problem)
    return problem.with_(lam=share * cs.lambda_max(problem))


@pytest.mark.parametrize("loss", [*CURVED, *KINKED, "alone"])
@pytest.mark.parametrize("share", [0.2, 1.5])
def test_the_origin_is_the_point_at_zero(loss: str, share: float) -> None:
    problem = alone(share) if loss == "alone" else make(loss, "dense", 3, share=share)
    point, origin = reference_point(problem, np.zeros(problem.d)), ZeroIterate.of(problem)
    np.testing.assert_array_equal(origin.x, point.x)
    np.testing.assert_array_equal(origin.At_theta, point.At_theta)
    assert origin.primal == point.primal
    assert origin.gap == pytest.approx(point.gap, rel=1e-9, abs=1e-9 * point.primal)


def test_what_proves_begins_at_a_point() -> None:
    problem = make("huber", "dense", 3)
    assert isinstance(beginning(problem, None, True), Point)
    assert not isinstance(beginning(problem, None, False), Point)
    x, theta = np.ones(problem.d), np.zeros(problem.n)
    point = reference_point(problem, x, theta)
    assert beginning(problem, Start(x, theta, point=point), False) is point
    assert beginning(problem, Start(x, theta), False).gap == point.gap


class Beyond(ProxNewton):
    """The built-in solver with slopes that are a little too large for the constraint."""

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        found = super().__call__(problem, start, target)
        return SubproblemResult(found.status, found.x, found.theta * (1.0 + 1e-9), info=found.info)


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("inner", [ProxNewton(), Beyond()])
def test_slopes_of_an_answer_are_feasible(inner: ProxNewton, mode: str) -> None:
    problem = alone(0.1)
    found = solve_screened(problem, inner, mode=mode)
    assert found.certificate is not None
    assert found.certificate.ok
    pull = np.abs(problem.design.adjoint(found.theta))
    assert (pull <= problem.penalty.kappa * (1.0 + 1e-12)).all()  # type: ignore[union-attr]
    again = cs.certify(problem, found.x, found.theta)
    assert again.gap == pytest.approx(found.certificate.gap, abs=1e-8 * abs(again.primal))


def test_slopes_that_are_feasible_are_taken_as_they_are() -> None:
    """The point with its rounding is made when somebody asks for it."""
    found = cs.solve(alone(0.1))
    assert found.answer is not None
    assert "point" not in found.answer.__dict__
    assert found.point().gap == pytest.approx(found.certificate.gap, rel=1e-3)


@pytest.mark.parametrize(("wanted", "features", "all_of_them"), [
    (ALONE, 100 * ALONE, False), (ALONE + 1, 100 * ALONE, True), (5, 50, False), (6, 50, True),
])
def test_how_many_wanted_features_make_all(wanted: int, features: int, all_of_them: bool) -> None:
    assert SOME == 0.1
    X = sp.random(20, features, 0.01, format="csr", random_state=np.random.default_rng(0))
    y = np.where(np.arange(20) % 2, 1.0, -1.0)
    problem = cs.sparse_svm(X, y, 1.0, loss="squared_hinge", l2=0)
    assert isinstance(problem, Problem)
    mask = np.arange(features) < wanted
    assert at_once(problem, ProxNewton(), mask) == all_of_them
    assert not at_once(problem, ProxNewton(moving=False), mask)
