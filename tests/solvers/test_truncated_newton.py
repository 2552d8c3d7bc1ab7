"""Newton's method with conjugate gradients: the optimum of every smooth loss, honest gaps, choices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.limits import Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers import beginning, dual_coordinate_descent, truncated_newton
from cvxscreen.solvers.beginning import (
    HARD,
    Continued,
    FirstEpoch,
    hardness,
    is_hard,
    newton_follows,
    newton_pays,
)
from cvxscreen.solvers.dual_coordinate_descent import DualCoordinateDescent, one_epoch
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.truncated_newton import (
    TruncatedNewton,
    along,
    products_for_a_system,
    takes,
)

LOSSES = ("squared_hinge", "smoothed_epsilon", "huber")


def of(
    loss: str, intercept: bool = False, C: float = 1.0, n: int = 300, d: int = 40, **parts: Any
) -> Problem:
    """A problem whose rows have a third of their entries stored."""
    rng = np.random.default_rng(7)
    A = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)
    y = A @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) + 0.3
    X = sp.csr_matrix(A)
    if "hinge" in loss:
        y = np.where(y > 0, 1.0, -1.0)
        return cvxscreen.svm(X, y, C=C, loss=loss, intercept=intercept, **parts)
    return cvxscreen.regression(X, y, C=C, loss=loss, intercept=intercept, **parts)


def is_optimal(problem: Problem, x: np.ndarray, theta: np.ndarray, tol: float) -> None:
    """The certificate holds, and Newton's method on a matrix has no better value."""
    proof = certify(problem, x, theta, tol=tol)
    other = cvxscreen.solve(problem, solver="newton", tol=1e-10)
    assert proof.ok
    assert abs(problem.primal(x) - other.value) <= proof.gap + other.certificate.gap


@pytest.mark.table
@pytest.mark.parametrize("by_matrix", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_smooth_loss_is_solved(
    loss: str, intercept: bool, C: float, by_matrix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By conjugate gradients alone, and by the matrix of a system from the beginning."""
    problem, steps = of(loss, intercept, C), truncated_newton.newton_steps

    def hard(rows: Any, terms: Any, at: Any, columns: Any, plan: Any) -> Any:
        if by_matrix and not plan.given:
            found = steps(rows, terms, at, columns, plan._replace(most=0))
            return (*found[:-1], truncated_newton.HARD)
        return steps(rows, terms, at, columns, plan)

    monkeypatch.setattr(truncated_newton, "newton_steps", hard)
    found = TruncatedNewton(tol=1e-8)(problem)
    assert found.status == "optimal"
    assert found.info["steps"] > 0
    assert (found.info["products"] == 0) is by_matrix
    is_optimal(problem, found.x, found.theta, 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_squares_of_different_weights_and_a_linear_term(intercept: bool) -> None:
    """The metric of M, rows with factors, and samples of different weights."""
    rng = np.random.default_rng(3)
    problem = of("squared_hinge", intercept, sample_weight=rng.uniform(0.1, 10.0, 300))
    diagonal = np.where(problem.quadratic.free, 0.0, rng.uniform(0.1, 10.0, problem.d))
    linear = np.where(problem.quadratic.free, 0.0, rng.standard_normal(problem.d))
    problem = replace(problem, quadratic=Quadratic(diagonal), linear=linear)
    found = TruncatedNewton(tol=1e-8)(problem)
    assert found.status == "optimal"
    is_optimal(problem, found.x, found.theta, 1e-8)


def categories(n: int, count: int, values: int) -> sp.csr_matrix:
    """Rows of ones, one for the value of each category: they add up to a constant."""
    rng = np.random.default_rng(5)
    drawn = np.minimum(rng.geometric(0.02, (n, count)) - 1, values - 1)
    columns = (values * np.arange(count) + drawn).ravel()
    parts = np.ones(n * count), columns, count * np.arange(n + 1)
    return sp.csr_matrix(parts, (n, count * values))


@pytest.mark.parametrize("C", [0.1, 1.0])
def test_features_that_add_up_to_a_constant(C: float) -> None:
    """Beside an intercept systems are nearly singular, unless that is eliminated from them.

    They have too many columns for a matrix.
    """
    X, rng = categories(3000, 8, 300), np.random.default_rng(6)
    t = X @ rng.standard_normal(X.shape[1])
    y = np.where(t - np.median(t) + rng.standard_normal(X.shape[0]) > 0.0, 1.0, -1.0)
    products = []
    for intercept in (False, True):
        problem = cvxscreen.svm(X, y, C=C, loss="squared_hinge", intercept=intercept)
        found = TruncatedNewton(tol=1e-8)(problem)
        assert certify(problem, found.x, found.theta, tol=1e-8).ok
        products.append(found.info["products"])
    assert products[1] <= products[0]


def test_the_unpenalised_coordinate_may_be_any_column() -> None:
    """Also one of the matrix."""
    problem = of("squared_hinge", C=1.0)
    diagonal = np.ones(problem.d)
    diagonal[3] = 0.0
    problem = replace(problem, quadratic=Quadratic(diagonal))
    found = TruncatedNewton(tol=1e-8)(problem)
    assert found.info["products"] > 0
    assert found.status == "optimal"
    is_optimal(problem, found.x, found.theta, 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_the_gap_that_it_tells_is_the_gap(tol: float, intercept: bool) -> None:
    """Neither more nor less than the certificate's, and what was asked for."""
    problem = of("squared_hinge", intercept)
    found = TruncatedNewton(tol=tol)(problem)
    proof = certify(problem, found.x, found.theta, tol=tol)
    assert found.info["gap"] == pytest.approx(proof.gap, rel=1e-6, abs=1e-10)
    assert proof.relative_gap <= tol


@pytest.mark.parametrize("tol", [1e-6, 1e-12])
def test_no_gap_near_rounding_is_taken_on_trust(
    tol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where so little is asked for, margins and gradient are computed afresh."""
    look, looks = truncated_newton._Run.look, []

    def watched(self: Any) -> None:
        look(self)
        looks.append(self.gap)

    monkeypatch.setattr(truncated_newton._Run, "look", watched)
    problem = of("squared_hinge", C=10.0)
    found = TruncatedNewton(tol=tol)(problem)
    proof = certify(problem, found.x, found.theta, tol=tol)
    assert bool(looks) is (tol < 1e-10)
    assert proof.relative_gap <= 2.0 * tol


def test_an_intercept_alone() -> None:
    """Targets that are all alike: the optimum is 0, and no row is off it."""
    problem = cvxscreen.regression(
        sp.csr_matrix(np.eye(6)), np.full(6, 3.0), loss="huber", intercept=True
    )
    found = TruncatedNewton(tol=1e-6)(problem, None, 1e-9)
    assert found.status == "optimal"
    assert problem.primal(found.x) <= 1e-9


def test_hard_systems_are_solved_by_their_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as products have cost as much, and all that follow."""
    rng = np.random.default_rng(0)
    A = rng.random((3000, 30)) < 0.3
    X = sp.csr_matrix(np.hstack([A, A ^ (rng.random(A.shape) < 0.05)]).astype(float))
    y = np.where(X @ rng.standard_normal(60) > rng.standard_normal(3000), 1.0, -1.0)
    problem = cvxscreen.svm(X, y, C=1e4, loss="squared_hinge")
    directly, rows = truncated_newton._Run.solve_directly, []

    def watched(self: Any, count: int) -> None:
        rows.append(count)
        directly(self, count)

    monkeypatch.setattr(truncated_newton._Run, "solve_directly", watched)
    found = TruncatedNewton(tol=1e-8)(problem)
    assert found.status == "optimal"
    by_products = found.info["steps"] - len(rows)
    assert by_products > 0
    assert rows
    price = sum(products_for_a_system.py_func(3000.0, float(X.nnz), 60))
    assert found.info["products"] <= by_products * (price + 2.0)
    is_optimal(problem, found.x, found.theta, 1e-8)


def test_what_a_system_costs() -> None:
    """More products for longer rows and more columns; nothing of too many."""
    price = products_for_a_system.py_func
    assert price(1000.0, 10_000.0, 100)[0] < price(1000.0, 40_000.0, 100)[0]
    assert price(1000.0, 10_000.0, 100)[1] < price(1000.0, 10_000.0, 1000)[1]
    assert price(1000.0, 10_000.0, 5000) == price(0.0, 0.0, 10) == (np.inf, np.inf)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_that_is_followed_is_the_gradient(
    loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After steps in which rows change their piece, as are the slopes, J and the diagonal."""
    problem, steps = of(loss, intercept, C=10.0), truncated_newton.newton_steps
    free, f, seen = problem.quadratic.free, problem.losses, []
    root = 1.0 / np.sqrt(np.where(free, 1.0, problem.quadratic.diagonal))
    A, linear = problem.design.dense() * root, problem.linear * root

    def watched(rows: Any, terms: Any, at: Any, columns: Any, plan: Any) -> Any:
        found = steps(rows, terms, at, columns, plan._replace(most=min(3, plan.most)))
        index = at.curved[:found[3]]
        np.testing.assert_allclose(at.theta, f.slope(at.margins), atol=1e-13)
        expected = linear + A.T @ at.theta + np.where(free, 0.0, columns.v)
        scale = np.abs(A).T @ np.abs(at.theta) + np.abs(columns.v)
        assert (np.abs(columns.gradient - expected) <= 1e-12 * scale).all()
        squares = np.square(A[index]).T @ at.second[index]
        np.testing.assert_allclose(columns.squares, squares, rtol=1e-10)
        if intercept:
            border = A[index].T @ (at.second[index] * A[index, -1])
            size = np.abs(A[index]).T @ (at.second[index] * np.abs(A[index, -1]))
            assert (np.abs(columns.border - border) <= 1e-12 * size).all()
        seen.append(index.copy())
        return found

    monkeypatch.setattr(truncated_newton, "newton_steps", watched)
    assert TruncatedNewton(tol=1e-9)(problem).status == "optimal"
    assert len(seen) > 1
    assert not np.array_equal(seen[0], seen[-1])


def test_it_ends_within_its_limits() -> None:
    """Steps, passes and seconds; what there is by then is told honestly."""
    problem = of("squared_hinge", True, C=100.0)
    for solver in (
        TruncatedNewton(tol=1e-9, limits=Limits(max_iter=2)), TruncatedNewton(1e-9, 4.0),
        TruncatedNewton(tol=1e-9, limits=Limits(1e-9)),
    ):
        found = solver(problem)
        assert found.status == "inaccurate"
        assert found.info["steps"] <= 3
        proof = certify(problem, found.x, found.theta, tol=1e-9)
        assert found.info["gap"] == pytest.approx(proof.gap, rel=1e-6)


def test_a_start_that_is_worse_than_nothing_is_none() -> None:
    """One that is better saves steps."""
    problem = of("huber", C=10.0)
    cold = TruncatedNewton(tol=1e-8)(problem)
    far = Start(1e6 * np.ones(problem.d), np.zeros(problem.n))
    assert TruncatedNewton(tol=1e-8)(problem, far).info["steps"] == cold.info["steps"]
    near = Start(cold.x * (1.0 + 1e-4), cold.theta)
    assert TruncatedNewton(tol=1e-8)(problem, near).info["steps"] < cold.info["steps"]


def test_what_it_does_not_take_goes_to_newton() -> None:
    """Kinks, round corners, dense rows."""
    dense = cvxscreen.svm(np.eye(4), [1, -1, 1, -1], loss="squared_hinge")
    for problem in (dense, of("hinge"), of("smoothed_hinge")):
        assert not takes(problem)
        found = TruncatedNewton()(problem, None, 1e-6)
        assert found.status == "optimal"
        assert "products" not in found.info


# -- where it begins and goes on -------------------------------------------------------------------


def test_the_beginning_depends_on_the_dual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinate descent where that is easy, Newton's method at once where it is not."""
    easy, hard = of("squared_hinge", C=1e-3), of("squared_hinge", C=10.0)
    assert newton_pays(easy)
    assert not is_hard(easy)
    assert is_hard(hard)
    assert not newton_pays(of("squared_hinge", n=60, d=40))
    assert not newton_pays(of("hinge"))
    assert isinstance(beginning.beginning(easy, None, 1e-6), Continued)
    begun = beginning.beginning(hard, None, 1e-6)
    assert isinstance(begun, Continued)
    assert isinstance(begun.first, FirstEpoch)
    beside = beginning.beginning(of("squared_hinge", True, C=10.0), None, 1e-6)
    assert isinstance(beside, Continued)
    assert isinstance(beside.first, FirstEpoch)
    assert isinstance(beginning.beginning(of("hinge"), None, 1e-6), DualCoordinateDescent)
    clock = truncated_newton.CLOCK
    monkeypatch.setattr(type(clock), "bought", property(lambda self: self is not clock))
    for problem in (easy, hard):
        assert isinstance(beginning.beginning(problem, None, 1e-6), DualCoordinateDescent)


def test_an_epoch_at_a_smaller_C_saves_steps() -> None:
    """Where descent is right, whatever C is; after one at C itself Newton's method takes more."""
    problem = of("squared_hinge", C=1e3)
    newton, share = TruncatedNewton(tol=1e-8), HARD / hardness(problem)
    assert share < 0.1
    x, theta = one_epoch(problem, share)
    assert np.allclose(x, -problem.design.adjoint(theta), rtol=1e-12, atol=1e-14)
    easier = problem.with_(C=share * problem.C)
    gap, aside = (certify(each, x, theta).relative_gap for each in (easier, problem))
    assert gap < 0.6 < 0.99 < aside
    found = Continued(FirstEpoch(), newton)(problem)
    is_optimal(problem, found.x, found.theta, 1e-8)
    others = newton(problem), newton(problem, Start(*one_epoch(problem, 1.0)))
    assert found.info["steps"] < min(other.info["steps"] for other in others)
    assert FirstEpoch()(problem, Start(x, theta)).x is x
    two = replace(problem, quadratic=Quadratic(np.append(np.zeros(2), np.ones(problem.d - 2))))
    with pytest.raises(InvalidInput, match="unpenalised"):
        one_epoch(two, 1.0)


def test_an_epoch_beside_an_intercept_holds_it_like_a_feature() -> None:
    """One of the size of a row; Newton's method goes on from there."""
    problem = of("squared_hinge", True, C=100.0)
    x, theta = one_epoch(problem, 1.0)
    assert np.allclose(x[:-1], -problem.design.adjoint(theta)[:-1], rtol=1e-12, atol=1e-14)
    weight = problem.n / float(np.sum(problem.norms**2))
    assert x[-1] == pytest.approx(-problem.design.adjoint(theta)[-1] / weight)
    found = Continued(FirstEpoch(), TruncatedNewton(tol=1e-8))(problem)
    is_optimal(problem, found.x, found.theta, 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_newton_goes_on_where_descent_is_given_up(intercept: bool) -> None:
    """From its point, which is better than nothing; steps of both are told."""
    problem = of("squared_hinge", intercept, C=0.1)
    descent, newton = DualCoordinateDescent(budget=8.0, tol=1e-8), TruncatedNewton(tol=1e-8)
    first, alone = descent(problem), newton(problem)
    both = Continued(descent, newton)(problem)
    assert first.status == "inaccurate"
    assert both.status == "optimal"
    steps = both.info["steps"] - first.info["steps"]
    assert 0 < steps < alone.info["steps"]
    is_optimal(problem, both.x, both.theta, 1e-8)


def test_descent_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a few epochs promise the target each time, as beside an intercept that creeps."""
    monkeypatch.setattr(dual_coordinate_descent, "CLOSE", 1e12)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)  # no pivots, which would do
    found = DualCoordinateDescent(tol=1e-9, budget=20.0)(of("squared_hinge", C=10.0))
    assert found.status == "inaccurate"
    assert 20.0 <= found.info["passes"] < 40.0


def test_slower_ways_are_counted_until_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop and before the compiled path, and nowhere else."""
    clock = truncated_newton.CLOCK
    monkeypatch.setattr(type(clock), "bought", property(lambda self: self is not clock))
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(dual_coordinate_descent, "budget", lambda problem, then: 8.0)
    for problem, counts in (
        (of("squared_hinge", C=10.0, n=1000, d=40), True),
        (of("squared_hinge", C=10.0, n=1000, d=160), True), (of("hinge", C=10.0, n=1000), False),
    ):
        before = clock.spent
        assert cvxscreen.solve(problem).status == "optimal"
        assert (clock.spent > before) is counts


# -- many values of C ------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_value_along_C_is_solved(loss: str, intercept: bool) -> None:
    """From known ones on or from nothing; each from where those before point to saves passes."""
    problem, values = of(loss, intercept), np.geomspace(1e-2, 1e2, 12)
    found = list(along(problem, values, 1e-8))
    assert [C for C, _, _ in found] == values.tolist()
    for C, x, theta in found:
        is_optimal(problem.with_(C=C), x, theta, 1e-8)
    again = list(along(problem, values[6:], 1e-8, known=found[:6]))
    assert [C for C, _, _ in again] == values[6:].tolist()
    for C, x, theta in again:
        assert certify(problem.with_(C=C), x, theta, tol=1e-8).ok
    assert list(along(cvxscreen.svm(sp.csr_matrix(np.eye(4)), [1, -1, 1, -1]), [], 1e-8)) == []


def test_values_along_C_cost_less_than_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in all."""
    problem, values = of("squared_hinge", True), np.geomspace(1e-1, 1e1, 10)
    steps: list[int] = []
    run = truncated_newton._Run.run

    def counted(self: Any) -> None:
        run(self)
        steps.append(self.steps)

    monkeypatch.setattr(truncated_newton._Run, "run", counted)
    assert len(list(along(problem, values, 1e-6))) == 10
    together = sum(steps)
    steps.clear()
    for C in values:
        assert len(list(along(problem, [C], 1e-6))) == 1
    assert 2 * together <= sum(steps)


def test_the_way_along_C_ends_where_a_value_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is yielded before it is solved."""
    problem = of("squared_hinge", C=1e-6)
    monkeypatch.setattr(truncated_newton, "STEPS", 2)
    found = list(along(problem, [1e-6, 1e3, 1e4], 1e-8))
    assert [C for C, _, _ in found] == [1e-6]


def test_it_follows_where_the_dual_is_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many columns, at most of the values."""
    hard, easy = np.array([1e-1, 1e2]), np.array([1e-7, 1e-5])
    problem = of("squared_hinge", n=400, d=100)
    assert newton_follows(problem, hard)
    assert not newton_follows(problem, easy)
    assert not newton_follows(of("squared_hinge"), hard)
    assert not newton_follows(of("hinge", n=400, d=100), hard)
    clock = truncated_newton.CLOCK
    monkeypatch.setattr(type(clock), "bought", property(lambda self: self is not clock))
    assert not newton_follows(problem, hard)
