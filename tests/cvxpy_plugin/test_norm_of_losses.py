"""The norm of losses by their squares: the plain answer with its duals, and true bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import norm_of_losses
from cvxscreen.cvxpy_plugin.norm_of_losses import (
    Line,
    least_of_largest,
    line_of,
    norm_as_squares,
)
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.solvers.solution import Solution

cvxpy_plugin.register()

N, D = 900, 5
WEIGHT = cp.Parameter(nonneg=True)
Written = Callable[[], cp.Problem]
PROBLEMS: dict[str, Written] = {}


def written(make: Written) -> Written:
    PROBLEMS[make.__name__] = make
    return make


def returns() -> np.ndarray:
    rng = np.random.default_rng(0)
    return 0.01 * rng.standard_t(4, (N, D)) + rng.uniform(0.0, 0.002, D)


def labelled() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, D))
    return X, np.where(X @ rng.standard_normal(D) + rng.standard_normal(N) > 0, 1.0, -1.0)


@written
def semideviation() -> cp.Problem:
    R, w = returns(), cp.Variable(D)
    below = cp.pos(R.mean(axis=0) @ w - R @ w)
    risk = WEIGHT * cp.norm(below, 2) / np.sqrt(N)
    return cp.Problem(cp.Minimize(risk - R.mean(axis=0) @ w), [cp.sum(w) == 1, w >= 0])


@written
def most_return() -> cp.Problem:
    R, w = returns(), cp.Variable(D)
    risk = cp.norm(cp.neg((R - R.mean(axis=0)) @ w)) / np.sqrt(N)
    rows = [cp.sum(w) == 1, w >= 0, w <= 0.4]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w - WEIGHT * risk), rows)


@written
def hinges() -> cp.Problem:
    (X, y), w, b = labelled(), cp.Variable(D), cp.Variable()
    loss = cp.norm(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(WEIGHT * loss + 0.1 * cp.sum_squares(w)))


@written
def tube_beside_l1() -> cp.Problem:
    (X, y), w = labelled(), cp.Variable(D)
    loss = cp.pnorm(cp.pos(cp.abs(X @ w - y) - 0.3), 2)
    return cp.Problem(cp.Minimize(cp.norm1(w) + WEIGHT * loss), [w[0] + w[1] == 0.2])


def solved(problem: cp.Problem, **options: Any) -> cp.Problem:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(**options)
    return problem


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_plain_answer(name: str) -> None:
    """At two weights, of one and of a new problem: value, variables, dual values."""
    problem, other = PROBLEMS[name](), PROBLEMS[name]()
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-10, "tol_feas": 1e-11}
    for weight in (0.5, 1.5):
        WEIGHT.value = weight
        solved(problem, method="screen")
        solved(other, solver="CLARABEL", **tight)
        report = cvxscreen.Report.of(problem)
        assert report.recognised, report.reason
        assert f"the norm of {N} losses" in report.beside[0]
        assert 0.0 <= report.relative_gap <= 1e-9
        assert problem.status == cp.OPTIMAL
        assert problem.value == pytest.approx(other.value, rel=1e-8)
        assert problem.value == pytest.approx(problem.objective.value, rel=1e-14)
        for ours, theirs in zip(problem.variables(), other.variables(), strict=True):
            assert ours.value == pytest.approx(theirs.value, rel=1e-4, abs=1e-5)
        for mine, plain in zip(problem.constraints, other.constraints, strict=True):
            size = max(1e-3, float(np.abs(plain.dual_value).max()))
            assert np.abs(mine.dual_value - plain.dual_value).max() <= 1e-3 * size
    again = solved(problem, method="screen").value
    assert again == pytest.approx(other.value, rel=1e-8)
    assert cvxscreen.Report.of(problem).rounds <= report.rounds


def squares_at(problem: cp.Problem, s: float) -> tuple[Solution, float]:
    """The problem with squares at s solved, and ``V(s)``."""
    made = norm_as_squares(problem)
    assert made is not None
    made.weight.value = made.cost() / (2.0 * s)
    found = cvxscreen.solve(recognise(made.inner).problem, tol=1e-10)
    return found, found.value + 0.5 * made.cost() * s


@pytest.mark.parametrize("name", PROBLEMS)
def test_lines_lie_below_and_touch(name: str) -> None:
    """The bound from one weight holds at all others, and is tight at its own."""
    problem = PROBLEMS[name]()
    WEIGHT.value = 1.0
    made = norm_as_squares(problem)
    assert made is not None
    middle = made.first()
    scales = middle * np.array([0.3, 0.9, 1.0, 1.2, 4.0])
    found = [squares_at(problem, s) for s in scales]
    size = max(abs(value) for _, value in found)
    for s, (solution, value) in zip(scales, found, strict=True):
        line = line_of(solution, made.cost(), s, made.count)
        assert line is not None
        for at, (_, other) in zip(scales, found, strict=True):
            assert line.height + line.slope * at <= other + 1e-9 * size
        assert line.height + line.slope * s == pytest.approx(value, abs=1e-8 * size)
        # Elsewhere it is no more than that: V is strictly convex there.
        assert any(
            line.height + line.slope * at < other - 1e-6 * size
            for at, (_, other) in zip(scales, found, strict=True)
        )


def test_the_least_of_the_largest() -> None:
    assert least_of_largest([Line(1.0, -1.0)]) == -np.inf
    assert least_of_largest([Line(1.0, -1.0), Line(0.0, -0.1)]) == -np.inf
    assert least_of_largest([Line(1.0, 0.0)]) == 1.0
    assert least_of_largest([Line(2.0, 1.0)]) == 2.0  # at 0: no norm is negative
    assert least_of_largest([Line(4.0, -1.0), Line(0.0, 1.0)]) == pytest.approx(2.0)
    assert least_of_largest([Line(4.0, -1.0), Line(0.0, 1.0), Line(2.5, 0.0)]) == 2.5
    rng = np.random.default_rng(0)
    grid = np.linspace(0.0, 30.0, 3001)
    for _ in range(20):
        lines = [Line(h, s) for h, s in rng.standard_normal((4, 2))] + [Line(-1.0, 0.5)]
        largest = np.max([line.height + line.slope * grid for line in lines], axis=0)
        assert least_of_largest(lines) <= largest.min() + 1e-12
        assert least_of_largest(lines) == pytest.approx(largest.min(), abs=0.02)


def test_a_wrong_answer_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends early has a gap: CVXPY solves the problem."""
    WEIGHT.value = 1.0
    truth = solved(hinges(), solver="CLARABEL").value
    monkeypatch.setattr(norm_of_losses, "FINE", 1.0)
    problem = hinges()
    made = norm_as_squares(problem)
    assert made is not None
    made.s = 3.0 * made.first()  # where the search would have to go on
    solved(problem, method="screen")
    assert "norm" not in str(cvxscreen.Report.of(problem).beside)
    assert problem.value == pytest.approx(truth, rel=1e-6)


def test_nothing_is_lost() -> None:
    """The norm is 0 at the optimum, where no weight of squares is enough."""
    X, w = labelled()[0], cp.Variable(D)
    loss = cp.norm(cp.pos(X @ w - 50))
    problem = solved(cp.Problem(cp.Minimize(loss + cp.sum_squares(w - 1))), method="screen")
    assert problem.status == cp.OPTIMAL
    assert problem.value == pytest.approx(0.0, abs=1e-6)


def test_other_forms_are_left_alone() -> None:
    X, y = labelled()
    w, WEIGHT.value = cp.Variable(D), 1.0
    losses, few = cp.pos(1 - cp.multiply(y, X @ w)), cp.pos(1 - X[:50] @ w)
    for cost in (
        cp.norm(X @ w - y), cp.norm(losses, 1), cp.norm(losses, 3), cp.norm(few), cp.sum(losses),
        cp.norm(losses) + 2 * cp.norm(cp.pos(X @ w)),
    ):
        assert norm_as_squares(cp.Problem(cp.Minimize(cost))) is None
    huber = cp.Problem(cp.Minimize(cp.norm(losses) + cp.sum(cp.huber(X @ w - y))))
    truth = solved(cp.Problem(huber.objective), solver="CLARABEL").value
    assert solved(huber, method="screen").value == pytest.approx(truth, rel=1e-6)
    named = solved(hinges(), method="screen", solver="CLARABEL")
    assert named.solver_stats.solver_name == "CLARABEL"
    assert not cvxscreen.Report.of(named).beside


def test_other_constraints_are_another_problem() -> None:
    problem = semideviation()
    WEIGHT.value = 0.5
    before = norm_as_squares(problem)
    assert norm_as_squares(problem) is before
    problem._constraints = [*problem.constraints, problem.variables()[0] <= 0.3]
    assert norm_as_squares(problem) is not before


def test_explain() -> None:
    WEIGHT.value = 1.0
    found = cvxscreen.explain(hinges())
    assert found.recognised
    assert sum(found.terms.values()) == N
    assert "norm" in found.beside[0]
    assert not cvxscreen.explain(cp.Problem(cp.Minimize(cp.norm(cp.Variable(N) - 1)))).recognised
