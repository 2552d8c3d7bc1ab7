"""A norm inside all losses, as of uncertain rows of the data: one bound that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.size import measure

cvxpy_plugin.register()

D = 6
Made = tuple[cp.Problem, list[Any]]


def data(n: int) -> tuple[Any, Any, Any]:
    """Rows, labels and the radius of each row."""
    rng = np.random.default_rng(20261128)
    X = rng.standard_normal((n, D))
    labels = np.sign(X @ rng.standard_normal(D) + rng.standard_normal(n) + 0.3)
    return X, labels, rng.uniform(0.0, 0.2, n)


def hinges(n: int) -> Made:
    (X, y, s), w, b = data(n), cp.Variable(D), cp.Variable()
    losses = cp.pos(1 - cp.multiply(y, X @ w + b) + s * cp.norm(w))
    return cp.Problem(cp.Minimize(cp.sum(losses) / n + 0.01 * cp.sum_squares(w))), [w, b]


def slacks(n: int) -> Made:
    (X, y, _), w, b, xi = data(n), cp.Variable(D), cp.Variable(), cp.Variable(n)
    rows = [cp.multiply(y, X @ w + b) - 0.1 * cp.norm(w, 2) >= 1 - xi, xi >= 0]
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * cp.sum(xi)), rows), [w, b]


def classes(n: int) -> Made:
    """Each class has its own ellipsoid."""
    (X, y, _), w, b = data(n), cp.Variable(D), cp.Variable()
    wide = [np.diag(np.linspace(0.05, 0.3, D)), np.diag(np.linspace(0.2, 0.1, D))]
    losses = [
        cp.sum(cp.pos(1 - sign * (X[y == sign] @ w + b) + cp.norm(L @ w)))
        for sign, L in zip((1.0, -1.0), wide, strict=True)
    ]
    return cp.Problem(cp.Minimize(0.1 * sum(losses) + 0.5 * cp.sum_squares(w))), [w, b]


def residuals(n: int) -> Made:
    (X, y, s), w = data(n), cp.Variable(D)
    target = X @ np.arange(D) + s * y
    return cp.Problem(cp.Minimize(cp.sum(cp.abs(X @ w - target) + s * cp.norm(w)) / n)), [w]


def shortfalls(n: int) -> Made:
    (X, _, _), w, t = data(n), cp.Variable(D, nonneg=True), cp.Variable()
    losses = cp.pos(-0.1 * X @ w + 0.05 * cp.norm(w) - t)
    return cp.Problem(cp.Minimize(t + cp.sum(losses) / (0.1 * n)), [cp.sum(w) == 1]), [w]


def rows(n: int) -> Made:
    (X, _, s), w = data(n), cp.Variable(D)
    return cp.Problem(cp.Maximize(cp.sum(w)), [X @ w + 0.3 * cp.norm(w) <= 1 + s]), [w]


MADE: dict[str, Callable[[int], Made]] = {
    "hinges": hinges, "slacks": slacks, "classes": classes, "residuals": residuals,
    "shortfalls": shortfalls, "rows": rows,
}


@pytest.mark.parametrize("name", MADE)
def test_the_plain_answer(name: str) -> None:
    (problem, mine), (plain, theirs) = MADE[name](400), MADE[name](400)
    problem.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert report.relative_gap <= 1e-6
    assert problem.value == pytest.approx(plain.value, rel=1e-6)
    for one, other in zip(mine, theirs, strict=True):
        assert np.allclose(one.value, other.value, atol=1e-3)
    for own, its in zip(problem.constraints, plain.constraints, strict=True):
        assert np.allclose(own.dual_value, its.dual_value, atol=2e-3)


@pytest.mark.parametrize("name", MADE)
def test_taken_where_a_plain_solve_takes_long(name: str) -> None:
    assert measure(MADE[name](40_000)[0]).why_not() == ""
    assert "small" in measure(MADE[name](400)[0]).why_not()


@pytest.mark.parametrize("radius", [0.7, 3.0])
def test_where_the_norm_is_zero(radius: float) -> None:
    """The cone's apex: no classifier is worth what uncertain rows cost."""
    (X, y, _), w, b = data(400), cp.Variable(D), cp.Variable()
    losses = cp.pos(1 - cp.multiply(y, X @ w + b) + radius * 2 * cp.norm(w))
    problem = cp.Problem(cp.Minimize(cp.sum(losses)))
    problem.solve(method="screen", always=True)
    assert problem.value == pytest.approx(2.0 * min((y > 0).sum(), (y < 0).sum()), rel=1e-6)
    assert np.abs(w.value).max() <= 1e-6


def test_squares_of_all_coordinates_beside_it_are_left_to_cvxpy() -> None:
    (X, y, _), w = data(40_000), cp.Variable(D)
    losses = cp.pos(1 - cp.multiply(y, X @ w) + cp.norm(w))
    for beside in (cp.sum_squares(w), cp.quad_form(w, np.eye(D))):
        problem = cp.Problem(cp.Minimize(cp.sum(losses) + beside))
        assert "hold convex terms" in measure(problem).why_not()
