"""Maxima of many lines in one argument, and of two arguments less what is not negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.recognise import epigraph, matrices
from cvxscreen.cvxpy_plugin.recognise.draft import Draft
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.solve import solve_problem

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
N, D = 80, 3
RNG = np.random.default_rng(20261124)
X = RNG.standard_normal((N, D))
Y = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
COSTS = RNG.uniform(0.5, 2.0, N)


def satisfies_kkt(found: Recognition) -> None:
    """The optimum of the recognised problem is one of the canonical problem, with multipliers."""
    solution = solve_problem(found.problem, tol=1e-10)
    assert solution.certificate.ok
    z = found.columns(solution.x)
    multipliers = found.multipliers(z, solution.theta, solution.multipliers)
    scale = 1.0 + np.abs(multipliers).max()
    assert found.value(z) == pytest.approx(solution.value, rel=1e-12)
    assert np.abs(found.residual(z, multipliers)).max() <= 1e-8 * scale
    rows = found.standard.rows.values(z)
    for cone in found.standard.cones:
        row, dual = rows[cone.rows], multipliers[cone.rows]
        assert abs(float(row @ dual)) <= 1e-7 * scale
        if cone.kind == "nonneg":
            assert row.min() >= -1e-9
            assert dual.min() >= -1e-9 * scale


def lines(w: Any, pieces: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    slopes = np.sort(rng.uniform(-2.0, 2.0, pieces))
    slopes += {0: 0.0, 1: 1.0 - slopes[0], 2: -1.0 - slopes[-1]}[seed % 3]
    return [s * (Y - X @ w) + h for s, h in zip(slopes, -slopes**2, strict=True)]


@pytest.mark.table
@pytest.mark.parametrize("pieces", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slack", [False, True])
def test_a_maximum_of_many_lines_is_as_many_losses_as_its_kinks_need(
    pieces: int, seed: int, slack: bool
) -> None:
    w, t = cp.Variable(D), cp.Variable(N)
    bounds = [t >= line for line in lines(w, pieces, seed)] if slack else []
    loss = t if slack else cp.maximum(*lines(w, pieces, seed))
    problem = cp.Problem(cp.Minimize(COSTS @ loss + 3.0 * cp.sum_squares(w)), bounds)
    value = problem.solve(solver="CLARABEL", **TIGHT)
    duals = [bound.dual_value for bound in bounds]
    found = recognise(problem)
    assert found.problem.n == N * (pieces // 2)
    satisfies_kkt(found)
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)
    for bound, dual in zip(bounds, duals, strict=True):
        np.testing.assert_allclose(bound.dual_value, dual, atol=1e-5)


def test_lines_with_kinks_of_their_own_fold_apart() -> None:
    """Entries whose maxima have two, three and four active lines."""
    w, r = cp.Variable(D), Y
    heights = np.where(np.arange(N) % 3 == 0, -50.0, -1.0)
    last = np.where(np.arange(N) % 3 == 1, -50.0, -6.0)
    e = X @ w - r
    loss = cp.maximum(-e, 0.5 * e, 2 * e + heights, 4 * e + last)
    problem = cp.Problem(cp.Minimize(cp.sum(loss) + cp.sum_squares(w)))
    value = problem.solve(solver="CLARABEL", **TIGHT)
    found = recognise(problem)
    satisfies_kkt(found)
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)


# -- two arguments less a variable ----------------------------------------------------------------


class Tube:
    """Residuals and a width that is a variable: nu-support vector regression."""

    def __init__(self, width: Any, *constraints: Any) -> None:
        self.w, self.b, self.width = cp.Variable(D), cp.Variable(), width
        self.e = X @ self.w + self.b - Y
        self.xi = cp.Variable(N)
        self.constraints = list(constraints)

    def problem(self, loss: Any, *more: Any, nu: float = 0.3) -> Any:
        cost = cp.sum_squares(self.w) + nu * N * cp.sum(self.width) / self.width.size
        return cp.Problem(cp.Minimize(cost + cp.sum(loss)), [*self.constraints, *more])


def free() -> Tube:
    width = cp.Variable()
    return Tube(width, width >= 0)


def signed() -> Tube:
    return Tube(cp.Variable(nonneg=True))


TUBES: dict[str, Callable[[float], Any]] = {
    "nested": lambda nu: (s := free()).problem(cp.pos(cp.abs(s.e) - s.width), nu=nu),
    "nested, nonneg": lambda nu: (s := signed()).problem(cp.pos(cp.abs(s.e) - s.width), nu=nu),
    "maximum": lambda nu: (s := signed()).problem(cp.maximum(cp.abs(s.e) - s.width, 0), nu=nu),
    "three arguments": lambda nu: (s := free()).problem(
        cp.maximum(0, s.e - s.width, -s.e - s.width), nu=nu),
    "slack": lambda nu: (s := signed()).problem(
        s.xi, cp.abs(s.e) <= s.width + s.xi, s.xi >= 0, nu=nu),
    "slack, three bounds": lambda nu: (s := free()).problem(
        s.xi, s.e <= s.width + s.xi, -s.e <= s.xi + s.width, s.xi >= 0, nu=nu),
    "a floor above": lambda nu: (s := free()).problem(
        cp.maximum(cp.abs(s.e) - s.width, 0.2), s.width <= 4, nu=nu),
    "a width for each of two groups": lambda nu: (
        s := Tube(width := cp.Variable(2), width >= 0.01)).problem(
            cp.pos(cp.abs(s.e) - width[np.arange(N) % 2]), nu=nu),
    "a gap below a bound": lambda nu: (s := Tube(width := cp.Variable(), width <= 3)).problem(
        cp.pos(cp.abs(s.e) + s.width - 3), nu=-nu),
}


@pytest.mark.table
@pytest.mark.parametrize("nu", [0.3, 1.5])
@pytest.mark.parametrize("name", TUBES)
def test_a_tube_of_variable_width_is_two_hinges(name: str, nu: float) -> None:
    """With nu above 1 the width is at its bound, where both hinges may pull too much."""
    problem = TUBES[name](nu)
    value = problem.solve(solver="CLARABEL", **TIGHT)
    w = problem.variables()[0].value
    found = recognise(problem)
    assert found.problem.n == 2 * N
    satisfies_kkt(found)
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)
    assert problem.status == "optimal"
    if problem.variables()[0].shape == (D,) and nu < 1:
        np.testing.assert_allclose(problem.variables()[0].value, w, atol=1e-4)


def test_without_its_sign_a_width_says_nothing() -> None:
    for width in (cp.Variable(), cp.Variable(nonpos=True)):
        s = Tube(width)
        problem = s.problem(cp.pos(cp.abs(s.e) - width), width >= -1.0)
        with pytest.raises(NotScreenable, match="different data"):
            recognise(problem)
    s = Tube(cp.Variable(nonneg=True))  # the wrong way round: both may be above
    with pytest.raises(NotScreenable, match="different data"):
        recognise(s.problem(cp.pos(cp.abs(s.e) + s.width)))


def test_the_tightest_bounds_of_columns_are_found_with_their_rows() -> None:
    v, u = cp.Variable(2), cp.Variable()
    rows = [2 * v >= np.array([-2.0, -6.0]), v[0] <= 3, -v >= -4, 5 * u - v[1] >= 0, u >= -9]
    standard = standardise(canonicalise(cp.Problem(cp.Minimize(cp.sum(v) + u), rows)))
    low, high, found = epigraph._column_bounds(Draft.of(standard))
    first = dict(zip([w.id for w in standard.variables], standard.starts, strict=False))
    columns = np.array([first[v.id], first[v.id] + 1, first[u.id]])
    np.testing.assert_array_equal(low[columns], [-1.0, -3.0, -9.0])
    np.testing.assert_array_equal(high[columns], [3.0, 4.0, np.inf])
    z = np.random.default_rng(0).standard_normal(standard.size)
    values = found @ standard.rows.values(z)
    np.testing.assert_allclose(values[columns], (z - low)[columns], atol=1e-15)
    known = columns[:2]
    np.testing.assert_allclose(values[standard.size + known], (high - z)[known], atol=1e-15)
    assert values[standard.size + columns[2]] == 0.0


def test_hinges_that_pull_more_than_the_cost_leave_the_rest_to_the_bound() -> None:
    found = recognise(TUBES["slack, three bounds"](1.5))
    z = found.columns(np.zeros(found.problem.d))
    theta, side = np.full(found.problem.n, -0.8), np.zeros(found.side.shape[0])
    multipliers = found.multipliers(z, theta, side)
    assert multipliers.min() >= 0.0
    # The three bounds of a slack share its cost of 1, and the width's bound has what was too much.
    assert multipliers.sum() == pytest.approx(N * (1.0 + 0.6))


def sums_of_two(name: str) -> Any:
    """Rows ``abs(u) + abs(v)`` below one number: four sides each."""
    n, d = 2 * epigraph.MANY_SUMS, 3
    rng = np.random.default_rng(8)
    A, B, x = rng.standard_normal((n, d)), rng.standard_normal((n, d)), cp.Variable(d)
    a, b = rng.standard_normal((2, n))
    both = cp.abs(A @ x - a) + 2.0 * cp.abs(B @ x - b)
    forms = {
        "largest": cp.Problem(cp.Minimize(cp.max(both))),
        "largest, squares": cp.Problem(cp.Minimize(cp.max(both) + 0.1 * cp.sum_squares(x))),
        "bounded": cp.Problem(cp.Maximize(cp.sum(x)), [both <= 20.0 + a]),
        "largest of a value and a hinge": cp.Problem(
            cp.Minimize(cp.max(cp.abs(A @ x - a) + cp.pos(B @ x - b)))),
    }
    return forms[name]


@pytest.mark.parametrize(
    "name", ["largest", "largest, squares", "bounded", "largest of a value and a hinge"]
)
def test_many_sums_of_two_helpers_have_four_sides(name: str) -> None:
    problem = sums_of_two(name)
    value = problem.solve(solver="CLARABEL", **TIGHT)
    x = problem.variables()[0].value
    duals = [constraint.dual_value for constraint in problem.constraints]
    found = recognise_any(problem)
    pieces = 4 * 2 * epigraph.MANY_SUMS
    assert not isinstance(found, BudgetedProblem)
    if isinstance(found, Recognition):
        assert found.problem.n >= pieces
    else:
        assert found.maxima is not None
        assert len(found.maxima.heights) == pieces
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)
    assert problem.status == "optimal"
    assert cvxpy_plugin.Report.of(problem).recognised
    np.testing.assert_allclose(problem.variables()[0].value, x, atol=1e-6)
    for constraint, dual in zip(problem.constraints, duals, strict=True):
        np.testing.assert_allclose(constraint.dual_value, dual, atol=1e-6)


def test_a_few_sums_of_two_helpers_stay_as_they_are() -> None:
    x = cp.Variable(2)
    A, b = np.random.default_rng(0).standard_normal((200, 2)), np.ones(200)
    problem = cp.Problem(cp.Minimize(cp.norm1(A @ x - b)), [cp.abs(x[0]) + cp.abs(x[1]) <= 1.0])
    draft = Draft.of(standardise(canonicalise(problem)))
    before = draft.inequalities.shape[0]
    epigraph.chain_bounds(draft)
    assert draft.inequalities.shape[0] == before


def test_squares_stay_with_their_coordinates_where_a_helper_comes_first() -> None:
    X = np.random.default_rng(0).standard_normal((1500, 4)) + 1.0
    w = cp.Variable(4)
    problem = cp.Problem(cp.Maximize(cp.min(X @ w) - cp.sum_squares(w)))
    found = recognise_any(problem)
    assert isinstance(found, Recognition)
    np.testing.assert_array_equal(
        found.problem.quadratic.diagonal, np.where(found.standard.own()[found.core], 2.0, 0.0)
    )
    value = problem.solve(solver="CLARABEL", **TIGHT)
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8, abs=1e-9)
    assert cvxpy_plugin.Report.of(problem).recognised


def test_a_helper_with_many_bounds_takes_as_few_products_as_one_with_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``pos(max(...))`` has one helper that is above all rows; its row of needs unites theirs."""
    calls: list[int] = []

    def counted(factor: Any) -> Any:
        calls.append(len(factor))
        return matrices.diagonal(factor)

    monkeypatch.setattr(epigraph, "diagonal", counted)
    X, w = np.random.default_rng(0).standard_normal((600, 4)), cp.Variable(4)
    problem = cp.Problem(cp.Minimize(cp.pos(cp.max(1 - X @ w)) + cp.sum_squares(w - 1)))
    draft = Draft.of(standardise(canonicalise(problem)))
    epigraph.chain_bounds(draft)
    assert isinstance(draft.steps[-1], epigraph.ChainedBounds)
    assert 600 in calls
    assert len(calls) < 10
    value = problem.solve(solver="CLARABEL", **TIGHT)
    assert problem.solve(method="screen", always=True) == pytest.approx(value, rel=1e-8)
    assert cvxpy_plugin.Report.of(problem).recognised
