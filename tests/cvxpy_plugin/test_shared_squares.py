"""Squared distances from one point: the affine form they are read as, and the plain answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.shifted_squares import without_shared_squares

cvxpy_plugin.register()

N, D = 80, 3
X = np.random.default_rng(20261124).standard_normal((N, D)) * [1.0, 2.0, 0.5] + [3.0, -1.0, 0.0]
WEIGHTS = np.random.default_rng(7).uniform(0.1, 1.0, N)
COST = 1.0 / (0.1 * N)


def rows(c: Any, spelling: str) -> Any:
    """Squared distances of all points from c."""
    row = cp.reshape(c, (1, D), order="F")
    return {
        "squares": lambda: cp.sum(cp.square(X - row), axis=1),
        "norms": lambda: cp.square(cp.norm(X - row, 2, axis=1)),
        "power": lambda: cp.norm(row - X, axis=1) ** 2,
        "columns": lambda: cp.sum(cp.square(X.T - row.T), axis=0),
        "sums": lambda: cp.sum_squares(X - row, axis=1),
    }[spelling]()


SPELLINGS = ("squares", "norms", "power", "columns", "sums")


def description(far: Any, c: Any) -> cp.Problem:
    r, xi = cp.Variable(), cp.Variable(N)
    return cp.Problem(cp.Minimize(r + COST * cp.sum(xi)), [far <= r + xi, xi >= 0])


def signed(far: Any, c: Any) -> cp.Problem:
    r, xi = cp.Variable(nonneg=True), cp.Variable(N, nonneg=True)
    return cp.Problem(cp.Minimize(r + COST * cp.sum(xi)), [far <= r + xi])


def hinges(far: Any, c: Any) -> cp.Problem:
    r = cp.Variable()
    return cp.Problem(cp.Minimize(r + COST * (WEIGHTS @ cp.pos(far - r)) + 0.1 * r))


def beside(far: Any, c: Any) -> cp.Problem:
    r = cp.Variable()
    losses = r + COST * cp.sum(cp.pos(far - r))
    return cp.Problem(cp.Minimize(losses), [cp.sum(c) == 1, r >= 0.5])


def largest(far: Any, c: Any) -> cp.Problem:
    return cp.Problem(cp.Minimize(cp.max(far)))


def ball(far: Any, c: Any) -> cp.Problem:
    r = cp.Variable()
    return cp.Problem(cp.Minimize(r), [far <= r])


def negated(far: Any, c: Any) -> cp.Problem:
    r, xi = cp.Variable(), cp.Variable(N, nonneg=True)
    return cp.Problem(cp.Maximize(-r - COST * cp.sum(xi)), [r + xi >= far])


FORMS: dict[str, Callable[[Any, Any], cp.Problem]] = {
    form.__name__: form for form in (description, signed, hinges, beside, largest, ball, negated)
}


def compare(ours: cp.Problem, truth: cp.Problem) -> None:
    """Value, variables and dual values; the constraints hold."""
    assert ours.status == truth.status == cp.OPTIMAL
    assert ours.value == pytest.approx(truth.value, rel=1e-6)
    for mine, theirs in zip(ours.variables(), truth.variables(), strict=True):
        np.testing.assert_allclose(mine.value, theirs.value, atol=2e-4)
    for mine, theirs in zip(ours.constraints, truth.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-6
        np.testing.assert_allclose(mine.dual_value, theirs.dual_value, atol=2e-4)


@pytest.mark.table
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_plain_answer_with_dual_values(name: str, spelling: str) -> None:
    def make() -> cp.Problem:
        c = cp.Variable(D)
        return FORMS[name](rows(c, spelling), c)

    ours, truth = make(), make()
    truth.solve(solver="CLARABEL")
    ours.solve(method="screen", solver="CLARABEL")
    report = cvxscreen.Report.of(ours)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    compare(ours, truth)


@pytest.mark.parametrize("squared", [True, False])
def test_a_loop_of_distances_is_one_constraint(squared: bool) -> None:
    def make() -> cp.Problem:
        c, r, xi = cp.Variable(D), cp.Variable(), cp.Variable(N, nonneg=True)
        distance = cp.sum_squares if squared else cp.norm
        far = [distance(X[i] - c) <= r + xi[i] for i in range(N)]
        return cp.Problem(cp.Minimize(r + COST * cp.sum(xi)), far)

    ours, truth = make(), make()
    truth.solve(solver="CLARABEL")
    ours.solve(method="screen", solver="CLARABEL")
    assert cvxscreen.Report.of(ours).recognised == squared
    for mine, theirs in zip(ours.constraints, truth.constraints, strict=True):
        assert np.shape(mine.dual_value) == np.shape(theirs.dual_value)
    compare(ours, truth)


def test_a_loop_whose_vectors_differ_otherwise_stays_a_loop() -> None:
    c, r = cp.Variable(D), cp.Variable()
    far = [cp.sum_squares(X[i] - (1.0 + i % 2) * c) <= r for i in range(N)]
    problem = cp.Problem(cp.Minimize(r), far)
    truth = problem.solve(solver="CLARABEL")
    assert problem.solve(method="screen", solver="CLARABEL") == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_what_is_read_has_the_value_of_what_is_written(name: str) -> None:
    c = cp.Variable(D)
    problem = FORMS[name](rows(c, "squares"), c)
    read, shifted = without_shared_squares(problem)
    assert read is not problem
    rng = np.random.default_rng(3)
    for variable in problem.variables():
        variable.save_value(np.abs(rng.standard_normal(variable.shape)))
    own = {v.id: v.value for v in problem.variables()}
    if shifted is not None:
        level = shifted.variable.value - shifted.square.value(own)
        shifted.stand_in.save_value(level)
        np.testing.assert_allclose(shifted.value(level, own), shifted.variable.value)
    for variable in read.variables():
        if variable.value is None:  # the square that all have in common
            variable.save_value(np.sum((c.value - X.mean(axis=0)) ** 2))
    assert read.objective.value == pytest.approx(problem.objective.value, rel=1e-12)
    for ours, theirs in zip(read.constraints, problem.constraints, strict=False):
        assert ours.id == theirs.id
        np.testing.assert_allclose(ours.expr.value, theirs.expr.value, atol=1e-11)


def test_rows_that_square_different_maps_are_left() -> None:
    c, r = cp.Variable(D), cp.Variable()
    scale = 1.0 + np.arange(N)[:, None]
    far = cp.sum(cp.square(X - cp.multiply(scale, np.ones((N, 1)) @ cp.reshape(c, (1, D), "F"))),
                 axis=1)
    problem = cp.Problem(cp.Minimize(r), [far <= r])
    assert without_shared_squares(problem) == (problem, None)


def test_data_in_parameters_are_left() -> None:
    points, c, r = cp.Parameter((N, D), value=X), cp.Variable((1, D)), cp.Variable()
    far = cp.sum(cp.square(points - c), axis=1)
    problem = cp.Problem(cp.Minimize(r), [far <= r])
    assert without_shared_squares(problem) == (problem, None)


def test_another_weight_of_the_slacks_is_followed() -> None:
    cost = cp.Parameter(nonneg=True, value=COST)
    c, r = cp.Variable(D), cp.Variable()
    problem = cp.Problem(cp.Minimize(r + cost * cp.sum(cp.pos(rows(c, "squares") - r))))
    for value in (COST, 3.0 * COST, 1.5 * COST):
        cost.value = value
        ours = problem.solve(method="screen", solver="CLARABEL")
        found = r.value
        truth = problem.solve(solver="CLARABEL")
        assert ours == pytest.approx(truth, rel=1e-6)
        assert found == pytest.approx(r.value, abs=1e-3)


def test_the_answer_of_another_solver_is_certified() -> None:
    c = cp.Variable(D)
    problem = description(rows(c, "squares"), c)
    problem.solve(solver="CLARABEL")
    assert cvxscreen.certify(problem, tol=1e-5).ok
    c.value = c.value + 0.3
    assert not cvxscreen.certify(problem, tol=1e-5).ok
