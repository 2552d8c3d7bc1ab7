"""Many variables that few rows couple: read as they are, solved by their dual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen.cvxpy_plugin.recognise.few_rows import MixedSquares, with_few_rows
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.cvxpy_plugin.size import FEW_BETWEEN, MOST_BETWEEN, measured
from cvxscreen.solvers.dual_form import MOST, ROWS, couples_few

N = 600


def factor_model(rng: Any) -> cp.Problem:
    S, F = rng.standard_normal((4, 4)), rng.standard_normal((N, 4))
    w = cp.Variable(N)
    risk = cp.quad_form(F.T @ w, cp.psd_wrap(S @ S.T + 0.1 * np.eye(4)))
    own = cp.sum_squares(cp.multiply(rng.uniform(0.3, 0.9, N), w))
    held = [cp.sum(w) == 1, w >= 0, w <= 0.1]
    return cp.Problem(cp.Maximize(rng.random(N) @ w - risk - own), held)


def user_factors(rng: Any) -> cp.Problem:
    """The factors as a variable of the user's, with a cost of their own."""
    S, F = rng.standard_normal((4, 4)), rng.standard_normal((N, 4))
    w, f = cp.Variable(N), cp.Variable(4)
    risk = cp.quad_form(f, cp.psd_wrap(S @ S.T + 0.1 * np.eye(4))) - 0.3 * cp.sum(f)
    return cp.Problem(
        cp.Minimize(risk + 0.5 * cp.sum_squares(w) - rng.random(N) @ w),
        [f == F.T @ w - 0.2, cp.sum(w) == 1, w >= 0],
    )


def svm_dual(rng: Any) -> cp.Problem:
    X = rng.standard_normal((N, 5))
    y = np.sign(X @ rng.standard_normal(5) + rng.standard_normal(N))
    a = cp.Variable(N)
    square = cp.sum_squares(X.T @ cp.multiply(a, y))
    return cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * square), [a >= 0, a <= 1, y @ a == 0])


def balancing(rng: Any) -> cp.Problem:
    """Weights near the same for all that balance means up to a tolerance."""
    X = rng.standard_normal((N, 5))
    w = cp.Variable(N)
    near = cp.abs(X.T @ w - X.mean(axis=0) - 0.1) <= 0.01
    return cp.Problem(cp.Minimize(N * cp.sum_squares(w - 1 / N)), [w >= 0, cp.sum(w) == 1, near])


def knapsack(rng: Any) -> cp.Problem:
    x = cp.Variable(N)
    rows = rng.random((5, N)) @ x <= 0.2 * N
    return cp.Problem(cp.Maximize(rng.random(N) @ x), [rows, x >= 0, x <= 1])


def least_squares(rng: Any) -> cp.Problem:
    """Far more features than rows, with a ridge, on a simplex."""
    X = rng.standard_normal((30, N))
    w = cp.Variable(N, nonneg=True)
    fit = cp.sum_squares(X @ w - X[:, :3].mean(axis=1))
    return cp.Problem(cp.Minimize(fit + 0.1 * cp.sum_squares(w)), [cp.sum(w) == 1])


def some_fixed(rng: Any) -> cp.Problem:
    """Entries without a weight, one that is fixed, bounds that do not hold 0, two rows a bound."""
    x, weights = cp.Variable(N), rng.uniform(0.5, 2.0, N)
    weights[:5] = 0.0
    square = cp.sum_squares(cp.multiply(weights, x) - rng.standard_normal(N))
    held = [x[7] == 0.3, x >= 0.1, 2 * x <= 1.6, x <= 0.9, rng.standard_normal(N) @ x <= 1.0]
    return cp.Problem(cp.Minimize(square + cp.sum(x[:5])), held)


def leverage(rng: Any) -> cp.Problem:
    """CVXPY's example of a factor model: the factors a variable, a limit of absolute values."""
    S, F = rng.standard_normal((4, 4)), rng.standard_normal((N, 4))
    w, f = cp.Variable(N), cp.Variable(4)
    risk = cp.quad_form(f, S.T @ S + 0.1 * np.eye(4))
    risk += cp.sum_squares(cp.multiply(np.sqrt(rng.uniform(0.1, 0.9, N)), w))
    held = [cp.sum(w) == 1, f == F.T @ w, cp.norm1(w) <= 2]
    return cp.Problem(cp.Maximize(rng.random(N) @ w - 0.1 * risk), held)


def turnover(rng: Any) -> cp.Problem:
    """Not far from weights held, some of which are all but 0: slopes in very narrow boxes."""
    F, held = rng.standard_normal((N, 4)), rng.dirichlet(np.ones(N))
    held[:20] *= 1e-3
    held /= held.sum()
    w = cp.Variable(N)
    own = cp.sum_squares(cp.multiply(rng.uniform(0.3, 1.0, N), w))
    return cp.Problem(
        cp.Minimize(cp.sum_squares(F.T @ w) + own - 0.1 * rng.standard_normal(N) @ w),
        [cp.sum(w) == 1, w >= 0, cp.norm1(w - held) <= 0.3],
    )


def trading_costs(rng: Any) -> cp.Problem:
    """Absolute values that cost, by weights of their own."""
    F, held, tolls = rng.standard_normal((N, 4)), rng.dirichlet(np.ones(N)), rng.uniform(0, 0.02, N)
    w = cp.Variable(N)
    cost = cp.sum(cp.multiply(tolls, cp.abs(w - held))) + cp.sum_squares(F.T @ w)
    return cp.Problem(
        cp.Minimize(cost + 2 * cp.sum_squares(w) - 0.1 * rng.standard_normal(N) @ w),
        [cp.sum(w) == 1, w >= -0.05, w <= 0.1],
    )


def leverage_and_turnover(rng: Any) -> cp.Problem:
    """Two limits and a cost of absolute values of the same weights, a third of them not held."""
    F, held = rng.standard_normal((N, 4)), rng.dirichlet(np.ones(N))
    held[::3] = 0.0
    w, f = cp.Variable(N), cp.Variable(4)
    cost = cp.sum_squares(f) + 2 * cp.sum_squares(w) + 0.01 * cp.norm1(w - 0.5 * held)
    return cp.Problem(
        cp.Minimize(cost - 0.1 * rng.standard_normal(N) @ w),
        [f == F.T @ w, cp.sum(w) == 1, cp.norm1(w) <= 1.4, cp.norm1(w - held) <= 0.5, w <= 0.1],
    )


FORMS: list[Callable[[Any], cp.Problem]] = [
    factor_model, user_factors, svm_dual, balancing, knapsack, least_squares, some_fixed, leverage,
    turnover, trading_costs, leverage_and_turnover,
]


def exactly(problem: cp.Problem) -> tuple[float, list[Any], list[Any]]:
    """Value, variables and dual values by Clarabel at tolerances that it reaches here."""
    close = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    value = problem.solve(solver=cp.CLARABEL, **close)
    assert problem.status == cp.OPTIMAL
    duals = [c.dual_value for c in problem.constraints]
    return value, [v.value for v in problem.variables()], duals


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_answer_is_that_of_the_whole_problem(form: Callable[[Any], cp.Problem]) -> None:
    problem = form(np.random.default_rng(3))
    value, values, duals = exactly(problem)
    assert couples_few(recognise(problem).problem)
    ours = problem.solve(method="screen", always=True)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert problem.status == cp.OPTIMAL
    assert report.recognised
    assert report.terms >= N
    assert ours == pytest.approx(value, rel=1e-8)
    assert problem.objective.value == pytest.approx(value, rel=1e-8)
    assert max(float(np.max(c.violation())) for c in problem.constraints) <= 1e-9
    for variable, expected in zip(problem.variables(), values, strict=True):
        if form is not svm_dual:  # whose least norm is not unique
            np.testing.assert_allclose(variable.value, expected, atol=2e-5)
    for constraint, expected in zip(problem.constraints, duals, strict=True):
        if form is not knapsack:
            scale = 1.0 + np.abs(expected).max()
            np.testing.assert_allclose(constraint.dual_value, expected, atol=1e-4 * scale)


def test_the_dual_of_a_support_vector_machine_has_its_coefficients() -> None:
    """The multiplier of ``y @ a == 0`` is the machine's intercept."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 5))
    y = np.sign(X @ rng.standard_normal(5) + rng.standard_normal(N))
    a, w, b = cp.Variable(N), cp.Variable(5), cp.Variable()
    square = cp.sum_squares(X.T @ cp.multiply(a, y))
    balance = y @ a == 0
    dual = cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * square), [a >= 0, a <= 1, balance])
    hinges = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    primal = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + hinges))
    assert dual.solve(method="screen", always=True) == pytest.approx(
        primal.solve(method="screen", always=True), rel=1e-8
    )
    np.testing.assert_allclose(X.T @ (a.value * y), w.value, atol=1e-5)
    assert abs(balance.dual_value) == pytest.approx(abs(b.value), abs=1e-5)


@pytest.mark.parametrize(("apart", "meet"), [(0.0, True), (1.5, False)])
def test_the_distance_of_sets_that_meet_is_certified(apart: float, meet: bool) -> None:
    """Its optimum is 0, to the rounding of the sums that cancel; no relative gap is reached."""
    rng = np.random.default_rng(9)
    A, B = rng.standard_normal((N, 4)) + apart, rng.standard_normal((N, 4)) - apart
    a, b = cp.Variable(N, nonneg=True), cp.Variable(N, nonneg=True)
    held = [cp.sum(a) == 1, cp.sum(b) == 1, a <= 8 / N, b <= 8 / N]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(A.T @ a - B.T @ b)), held)
    value, *_ = exactly(problem)
    problem.solve(method="screen", always=True)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert problem.solver_stats.solver_name == "builtin"
    assert problem.value == pytest.approx(value, rel=1e-6, abs=1e-12)
    assert (problem.value < 1e-12) is meet
    assert max(float(np.max(c.violation())) for c in held) <= 1e-9


@pytest.mark.parametrize(
    ("form", "mixed"), [(factor_model, True), (user_factors, True), (balancing, False)]
)
def test_squares_are_written_out_where_few_columns_have_them(
    form: Callable[[Any], cp.Problem], mixed: bool
) -> None:
    """Of factors they are losses, of single entries a diagonal; no matrix of all columns."""
    found = with_few_rows(standardise(canonicalise(form(np.random.default_rng(5)))))
    assert found is not None
    assert found.problem.quadratic.matrix is None
    assert any(isinstance(step, MixedSquares) for step in found.steps) is mixed
    assert found.problem.n == (4 if mixed else 0)
    assert (found.problem.quadratic.diagonal > 0.0).sum() == N


def test_nothing_feasible_and_nothing_bounded() -> None:
    """CVXPY's statuses."""
    rng = np.random.default_rng(6)
    x, row = cp.Variable(N), rng.random(N)
    empty = cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 0, x <= 1, row @ x >= 2 * N])
    falling = cp.Problem(cp.Minimize(cp.sum(x)), [x <= 1, (row - 0.5) @ x == 1.0])
    for problem, status in ((empty, cp.INFEASIBLE), (falling, cp.UNBOUNDED)):
        problem.solve(method="screen", always=True)
        assert problem.status == status


def test_which_problems_are_large_enough() -> None:
    """Squares of data from some 2,000 columns on; none that chains, or many rows, couple."""
    rng = np.random.default_rng(7)
    assert (FEW_BETWEEN, MOST_BETWEEN) == (ROWS, MOST)
    for n, pays in ((300, False), (4000, True)):
        x, A = cp.Variable(n), rng.standard_normal((5, n))
        box = [x >= 0, x <= 1]
        few = cp.Problem(cp.Minimize(cp.sum_squares(A @ x)), box)
        assert (measured(few).why_not() == "") is pays
        f = cp.Variable(5)
        factors = cp.Problem(cp.Minimize(cp.sum_squares(f)), [f == A @ x, *box])
        assert (measured(factors).why_not() == "") is pays
        # OSQP is quick with costs of absolute values, not with limits of them beside.
        tolls = cp.sum_squares(A @ x) + cp.norm1(x - 0.5)
        for limits in ([], [cp.norm1(x) <= 1]):
            asked = cp.Problem(cp.Minimize(tolls), [*box, cp.sum(x) == 1, *limits])
            assert (measured(asked).why_not() == "") is (pays and len(limits) > 0)
        chain = cp.sum_squares(cp.diff(x))
        many = rng.standard_normal((n // 5, n)) @ x <= 1
        for cost, held in ((chain, box), (cp.sum_squares(x - 1), [*box, many])):
            assert measured(cp.Problem(cp.Minimize(cost), held)).coupled == 0.0


def test_a_matrix_of_factors_may_be_singular_but_not_indefinite() -> None:
    rng = np.random.default_rng(8)
    F, w = rng.standard_normal((N, 4)), cp.Variable(N)
    held = [cp.sum(w) == 1, w >= 0]

    def under(S: Any) -> cp.Problem:
        risk = cp.quad_form(F.T @ w, cp.psd_wrap(S)) + 0.2 * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(risk - rng.random(N) @ w), held)

    flat = under(np.ones((4, 4)))
    value, *_ = exactly(flat)
    found = with_few_rows(standardise(canonicalise(flat)))
    assert found is not None
    assert found.problem.n == 1
    assert flat.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)
    mixed = np.eye(4)
    mixed[0, 1] = mixed[1, 0] = 1.0 + 1e-5
    for saddle in (under(mixed), under(np.diag([1.0, 1.0, 1.0, -1e-6]))):
        assert with_few_rows(standardise(canonicalise(saddle))) is None
