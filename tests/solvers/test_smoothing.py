"""Newton's method over smoothed losses: close to the optimum, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.solvers.relaxation import foreseen
from cvxscreen.solvers.smoothing import (
    PIVOTED,
    applies,
    least_squares,
    near_optimum,
    of_few,
    repeats,
)


def heavy(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) + rng.standard_t(3, n) * (1.0 + 0.5 * np.abs(X[:, 0]))


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("loss", ["quantile", "absolute", "epsilon"])
def test_the_terms_of_the_optimum_are_within_reach(loss: str, storage: str) -> None:
    X, y = heavy(9000, 6)
    data: Any = X if storage == "dense" else sp.csr_matrix(X)
    problem = cs.regression(data, y, C=np.inf, loss=loss, intercept=True)
    best, near = cs.solve(problem, tol=1e-10), foreseen(problem)
    assert near is not None
    assert near.value == pytest.approx(best.value, rel=1e-4)
    assert near.value == pytest.approx(problem.primal(near.x), rel=1e-12)
    f, margins = problem.losses, problem.design.forward(best.x)
    away = f.kink_distance(near.margins)
    other = f.slope(margins) != f.slope(near.margins)
    kept = max(near.reach, 10 * problem.d)
    assert 0 < other.sum() < 100
    assert (away[other] <= np.partition(away, kept)[kept]).mean() > 0.9


def test_slopes_and_their_products_come_along() -> None:
    X, y = heavy(6000, 4)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.2)
    near = foreseen(problem)
    assert near is not None
    assert near.known is not None
    assert near.known.At_theta == pytest.approx(problem.design.adjoint(near.known.theta))
    assert near.margins == pytest.approx(problem.design.forward(near.x))


@pytest.mark.parametrize("loss", ["quantile", "absolute", "epsilon"])
def test_pivots_lead_to_the_vertex_from_there(loss: str) -> None:
    X, y = heavy(9000, 6)
    problem = cs.regression(X, y, C=np.inf, loss=loss, intercept=True)
    near = foreseen(problem)
    assert near is not None
    found = near.vertex()
    assert found is not None
    x, theta, kept = found
    assert kept < 1000
    proof = cs.certify(problem, x, theta, tol=1e-12)
    assert proof.ok
    solution = cs.solve(problem, tol=1e-9)
    assert [one.refuted for one in solution.rounds] == [0]
    np.testing.assert_allclose(solution.x, x, atol=1e-12)


def test_terms_that_were_not_near_but_have_changed_sides_are_put_back() -> None:
    X, y = heavy(9000, 6)
    problem = cs.regression(X, y, C=np.inf, loss="quantile")
    close = least_squares(problem)
    assert close is not None
    near = near_optimum(problem, close, problem.design.forward(close), 400)
    assert near is not None
    assert len(near.near.terms) > 401
    off = problem.losses.slope(near.margins) != near.others
    assert off.sum() <= len(near.near.terms)  # these have no slope among the others
    off[near.near.terms] = False
    assert not off.any()
    pull = problem.design.adjoint(near.others)
    np.testing.assert_allclose(near.known.At_theta, pull, atol=1e-9)


def test_a_quadratic_form_has_its_part() -> None:
    X, y = heavy(6000, 4)
    problem = cs.regression(X, y, C=1e-4, loss="absolute")
    near = foreseen(problem)
    assert near is not None
    assert near.value == pytest.approx(cs.solve(problem, tol=1e-10).value, rel=1e-4)


def test_terms_that_are_tied_are_left_alone() -> None:
    X, _ = heavy(6000, 4)
    fitted = cs.regression(X, X @ np.ones(4), C=np.inf, loss="absolute")
    assert foreseen(fitted) is None  # all of them at their kinks
    x = least_squares(fitted)
    assert x is not None
    assert near_optimum(fitted, x, fitted.design.forward(x), 3000) is None


def test_whole_numbers_on_both_sides_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (6000, 4)).astype(float)
    y = X @ np.array([1.0, 2.0, -1.0, 0.0]) + rng.integers(-2, 3, 6000)
    problem = cs.regression(X, y, C=np.inf, loss="absolute")
    assert repeats(problem)
    assert foreseen(problem) is None
    assert not repeats(cs.regression(X + rng.random((6000, 4)), y, C=np.inf, loss="absolute"))
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"


def test_losses_that_bend_and_norms_are_not_for_it() -> None:
    X, y = heavy(100, 4)
    assert applies(cs.regression(X, y, C=np.inf, loss="absolute"))
    assert not applies(cs.regression(X, y, C=np.inf, loss="huber"))
    assert not applies(cs.regression(X, y, C=1.0, loss="absolute", penalty="l1"))


@pytest.mark.parametrize("fewer", [0, 2])
def test_no_more_terms_than_coordinates_are_left_alone(fewer: int) -> None:
    d = PIVOTED + 6
    rows = np.random.default_rng(0).standard_normal((d - fewer, d))
    ones = np.ones(d - fewer)
    assert of_few((rows, ones, -ones, ones, np.zeros(d)), np.zeros(d)) is None
