"""Linear programs of chains through CVXPY: the plain answer, its dual values, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sized_problems import of_nested_slacks

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import chained, plugin, request, size
from cvxscreen.cvxpy_plugin.recognise import epigraph
from cvxscreen.cvxpy_plugin.size import measured

cvxpy_plugin.register()

T, D = 500, 6
TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-10, "tol_feas": 1e-10, "max_iter": 300}
Written = Callable[[], cp.Problem]
PROBLEMS: dict[str, Written] = {}


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes decide, and these are large enough."""
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    monkeypatch.setattr(size, "OF_CHAIN", 0.0)


def written(make: Written) -> Written:
    PROBLEMS[make.__name__] = make
    return make


def returns() -> np.ndarray:
    rng = np.random.default_rng(0)
    return 0.01 * rng.standard_t(4, (T, D)) + rng.uniform(0.0, 0.002, D)


def drawdowns() -> tuple[Any, Any, list[Any]]:
    """Of a portfolio w, u of T + 1 days (PyPortfolioOpt, skfolio)."""
    w, u = cp.Variable(D), cp.Variable(T + 1)
    rows = [u[1:] >= u[:-1] - returns() @ w, u[0] == 0, u[1:] >= 0]
    return w, u, [*rows, cp.sum(w) == 1, w >= 0]


@written
def conditional() -> cp.Problem:
    _, u, rows = drawdowns()
    a, z = cp.Variable(), cp.Variable(T)
    return cp.Problem(
        cp.Minimize(a + cp.sum(z) / (T * 0.1)), [*rows, z >= u[1:] - a, z >= 0])


@written
def average() -> cp.Problem:
    _, u, rows = drawdowns()
    return cp.Problem(cp.Minimize(cp.sum(u[1:]) / T), rows)


@written
def largest() -> cp.Problem:
    _, u, rows = drawdowns()
    return cp.Problem(cp.Minimize(cp.max(u[1:])), rows)


@written
def ratio_of_columns() -> cp.Problem:
    """Riskfolio's: columns, scaled by 1000, the weights divided by what they return."""
    R = returns()
    w, k, u, top = (cp.Variable(s) for s in ((D, 1), (1, 1), (T + 1, 1), (1, 1)))
    rows = [
        u[1:] * 1000 >= u[:-1] * 1000 - R @ w * 1000, u[1:] * 1000 >= 0, u[0] * 1000 == 0,
        top * 1000 >= u[1:] * 1000, R.mean(axis=0, keepdims=True) @ w - 1e-5 * k == 1,
        cp.sum(w) == k, k >= 0, w >= 0,
    ]
    return cp.Problem(cp.Minimize(top), rows)


@written
def return_within_a_budget() -> cp.Problem:
    w, u, rows = drawdowns()
    a, z = cp.Variable(), cp.Variable(T)
    budget = a + cp.sum(z) / (T * 0.1) <= 0.2
    return cp.Problem(
        cp.Maximize(returns().mean(axis=0) @ w), [*rows, z >= u[1:] - a, z >= 0, budget])


@written
def running_maximum() -> cp.Problem:
    w = cp.Variable(D)
    v = np.cumsum(returns(), axis=0) @ w
    return cp.Problem(cp.Minimize(cp.max(cp.cummax(v) - v)), [cp.sum(w) == 1, w >= 0])


@written
def shortfalls_of_a_fixed_sum() -> cp.Problem:
    """The Omega ratio's (Kapsos, Zymler, Christofides and Rustem 2014)."""
    R = returns()
    w, t, u = cp.Variable(D), cp.Variable(), cp.Variable(T)
    rows = [u >= 1e-3 * t - R @ w, u >= 0, cp.sum(u) / T == 1, cp.sum(w) == t, w >= 0, t >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w - 1e-3 * t), rows)


def solved(problem: cp.Problem) -> cvxscreen.Report:
    problem.solve(method="screen")
    return cvxscreen.Report.of(problem)


def by_chain(problem: cp.Problem) -> bool:
    return solved(problem).solver == "CHAINS"


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_is_that_of_a_plain_solve(name: str) -> None:
    problem, plain = PROBLEMS[name](), PROBLEMS[name]()
    report = solved(problem)
    assert report.recognised
    assert report.solver == "CHAINS"
    assert report.relative_gap <= 1e-6
    plain.solve(solver="HIGHS")  # a vertex, exact to rounding
    assert problem.status == plain.status == cp.OPTIMAL
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for constraint in problem.constraints:
        size = max(1.0, float(np.abs(constraint.args[0].value).max()))
        assert np.max(constraint.violation()) <= 1e-7 * size


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_dual_values_are_those_of_a_plain_solve(name: str) -> None:
    problem, plain = PROBLEMS[name](), PROBLEMS[name]()
    assert by_chain(problem)
    plain.solve(solver="CLARABEL", **TIGHT)
    for mine, theirs in zip(problem.constraints, plain.constraints, strict=True):
        assert np.shape(mine.dual_value) == np.shape(theirs.dual_value)
        largest = max(float(np.abs(theirs.dual_value).max()), 1e-3)
        np.testing.assert_allclose(mine.dual_value, theirs.dual_value, atol=1e-4 * largest)


def test_other_values_of_a_parameter_and_the_same_again() -> None:
    w, u, rows = drawdowns()
    least = cp.Parameter(value=0.0)
    problem = cp.Problem(cp.Minimize(cp.sum(u[1:])), [*rows, returns().mean(axis=0) @ w >= least])
    plain = cp.Problem(problem.objective, problem.constraints)
    for value in (0.0, 0.0012, 0.0012, 0.0014):
        before, least.value = least.value, value
        assert by_chain(problem)
        again = problem.solver_stats.num_iters == 0
        assert again == (value == before != 0.0)
        mine = problem.value
        assert mine == pytest.approx(plain.solve(solver="CLARABEL", **TIGHT), rel=1e-7)


def test_what_a_user_has_chosen_is_left_to_cvxpy() -> None:
    for options in ({"solver": "CLARABEL"}, {"max_iter": 100}, {"solver": "SCIPY"}):
        problem = average()
        problem.solve(method="screen", **options)
        assert problem.solver_stats.solver_name != "CHAINS"
        assert problem.status == cp.OPTIMAL


def test_a_small_one_is_left_to_cvxpy_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "OF_CHAIN", 1e3)
    monkeypatch.setattr(chained, "solve_chained", lambda *_: pytest.fail("it was read"))
    report = solved(average())
    assert not report.recognised
    assert report.reason == size.SHORT_CHAIN


def test_slacks_above_slacks_are_solved_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVaR of costs by hand: nothing tries to recognise it, and few coordinates are CVXPY's."""
    monkeypatch.setattr(plugin, "screened_solve", lambda *_: pytest.fail("it was read"))
    problem, plain = of_nested_slacks(800, 12), of_nested_slacks(800, 12)
    assert solved(problem).recognised
    assert by_chain(problem)
    assert problem.value == pytest.approx(plain.solve(solver="CLARABEL", **TIGHT), rel=1e-7)
    for mine, other in zip(problem.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-7
        np.testing.assert_allclose(mine.dual_value, other.dual_value, atol=1e-4)
    assert solved(of_nested_slacks(800, 4)).reason == size.SHORT_CHAIN


def test_statuses_are_cvxpys() -> None:
    _, u, rows = drawdowns()
    infeasible = cp.Problem(cp.Minimize(cp.sum(u)), [*rows, cp.sum(u) <= -1.0])
    infeasible.solve(method="screen")
    assert infeasible.status == cp.INFEASIBLE
    unbounded = cp.Problem(cp.Maximize(cp.sum(u)), rows)
    unbounded.solve(method="screen")
    assert unbounded.status == cp.UNBOUNDED
    assert not cvxscreen.Report.of(unbounded).recognised


def test_neighbours_under_squares_or_of_whole_numbers_are_left_to_cvxpy() -> None:
    _, u, rows = drawdowns()
    squares = cp.Problem(cp.Minimize(cp.sum_squares(u)), rows)
    assert not by_chain(squares)
    assert squares.status == cp.OPTIMAL
    whole = cp.Variable(integer=True)
    integer = cp.Problem(cp.Minimize(whole), [*rows, whole >= 1.5 * u[1]])
    assert chained.solve_chained(integer, request.Request()) == chained.NO_CHAIN


def test_cones_are_left_to_cvxpy_before_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    _, u, rows = drawdowns()
    ulcer = cp.Problem(cp.Minimize(cp.norm(u[1:], 2)), rows)
    assert measured(ulcer).chained
    monkeypatch.setattr(cp.Problem, "get_problem_data", lambda *_, **__: pytest.fail("compiled"))
    assert chained.solve_chained(ulcer, request.Request()) == chained.NO_CHAIN


def test_what_is_a_chain() -> None:
    assert all(measured(make()).chained for make in PROBLEMS.values())
    # Coefficients in order are those of a fit, not links.
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((4000, 210)), cp.Variable(210)
    ordered = cp.Problem(cp.Minimize(cp.norm1(X @ w - 1.0)), [w[1:] >= w[:-1]])
    assert not measured(ordered).chained
    # Nor are weights in one row with data for each scenario.
    v = cp.Variable(210)
    weights = cp.Problem(cp.Minimize(cp.sum(cp.pos(-X @ v))), [cp.sum(v) == 1, v >= 0])
    assert not measured(weights).chained
    few = cp.Variable(20)
    assert not measured(cp.Problem(cp.Minimize(few[0]), [few[1:] >= few[:-1] + 1])).chained


@pytest.mark.parametrize("off", [1e-3, 1e-7])  # the second is within the gap that is asked for
def test_a_wrong_answer_is_not_handed_out(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    right = chained.solve_chain

    def wrong(*arguments: Any) -> Any:
        found = right(*arguments)
        return found._replace(z=(1.0 + off) * found.z)

    monkeypatch.setattr(chained, "solve_chain", wrong)
    problem = average()
    report = solved(problem)
    assert not report.recognised
    assert report.reason == chained.NOT_SOLVED
    assert problem.value == pytest.approx(average().solve(solver="CLARABEL"), rel=1e-5)


def test_one_that_is_not_recognised_is_solved_as_a_chain() -> None:
    """The largest of three affine functions each, in two directions."""
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((T, D)), np.sign(rng.standard_normal(T) + 0.5)
    w, k, s = cp.Variable(D), cp.Variable(), cp.Variable(T)
    m = cp.multiply(y, X @ w)
    rows = [1 - m <= s, 1 + m - 0.5 * k <= s, s >= 0, cp.norm(w, 1) <= k]
    problem = cp.Problem(cp.Minimize(0.05 * k + cp.sum(s) / T), rows)
    assert not measured(problem).chained
    problem.solve(method="screen")
    plain = cp.Problem(problem.objective, rows).solve(solver="CLARABEL", **TIGHT)
    assert problem.value == pytest.approx(plain, rel=1e-7)


def test_a_long_chain_of_bounds_is_soon_given_up() -> None:
    turns: list[int] = []
    once = epigraph._chain_once

    def counted(draft: Any) -> bool:
        turns.append(1)
        return once(draft)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epigraph, "_chain_once", counted)
        running_maximum().solve(method="screen", always=True)
    assert 0 < len(turns) <= 4 * epigraph.MOST_LINKS


def test_losses_above_a_number_of_any_sign_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they are of several arguments; those of one are, and where the number has a sign, or is an
    intercept, others may be."""
    n, few = 6_000, 300
    rng = np.random.default_rng(9)
    demand, X = rng.gamma(3.0, 10.0, n), rng.standard_normal((n, 3))
    x, w, t, b = cp.Variable(), cp.Variable(3), cp.Variable(), cp.Variable()
    above = cp.Variable(nonneg=True)
    cost = cp.maximum(4.0 * (x - demand), 9.0 * (demand - x))
    costs = cost + cp.maximum(2.0 * (w[0] - X[:, 0]), 3.0 * (X[:, 0] - w[0]))

    def tail(level: Any, cost: Any = cost) -> Any:
        return level + cp.sum(cp.pos(cost - level)) / (0.05 * cost.size)

    for problem in (
        cp.Problem(cp.Minimize(cp.sum(costs) / n + tail(t, costs))),
        cp.Problem(cp.Minimize(tail(t, cp.abs(cp.pos(X @ w) - demand)))),
        cp.Problem(cp.Maximize(-tail(t, -9.0 * cp.minimum(X @ w - demand, x)))),
    ):
        assert measured(problem).chained
    robust = cp.pos(1.0 - X @ w + b + cp.abs(w[0]))
    hinges = cp.sum(cp.pos(1.0 - X @ w))
    for objective, constraints in (
        (cp.sum(cost) / n + tail(t), []), (tail(t, cp.abs(X @ w - demand)), []),
        (tail(t, -9.0 * cp.minimum(X @ w - demand, 1.0)), []),
        (tail(above), []), (tail(t), [t >= 1.0]), (cp.sum(robust), []),
        (tail(t, 1.0 - X @ w), []), (hinges + tail(t, cp.abs(X[:few] @ w - 1.0)), []),
        (tail(t) + cp.square(x), []),
    ):
        assert not measured(cp.Problem(cp.Minimize(objective), constraints)).chained
    problem = cp.Problem(cp.Minimize(cp.sum(costs) / n + tail(t, costs)))
    monkeypatch.setattr(request, "supplied", _only_chains(request.supplied))
    value = problem.solve(method="screen")
    assert value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def _only_chains(supplied: Any) -> Any:
    def found(name: str) -> Any:
        assert name != "cvxpy.screened"
        return supplied(name)

    return found
