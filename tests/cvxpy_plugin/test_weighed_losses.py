"""Norms and levels of losses at a weight: the plain answer with its duals, and true bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import weighed_losses as module
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.weighed_losses import (
    Line,
    least_of_largest,
    line_of,
    weighed_losses,
)
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


@written
def semideviation_of_slacks() -> cp.Problem:
    """A column of slacks, as portfolio libraries write it."""
    R, w, below = returns(), cp.Variable((D, 1)), cp.Variable((N, 1))
    fall = (R - R.mean(axis=0)) @ w
    rows = [cp.sum(w) == 1, w >= 0, fall >= -below, below >= 0]
    risk = WEIGHT * cp.norm(below, "fro") / np.sqrt(N)
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w - risk), rows)


@written
def hinges_of_slacks() -> cp.Problem:
    """On another scale, which the dual values have to follow."""
    (X, y), w, b, xi = labelled(), cp.Variable(D), cp.Variable(), cp.Variable(N, nonneg=True)
    rows = [(1 - cp.multiply(y, X @ w + b)) * 10 <= xi * 10]
    return cp.Problem(cp.Minimize(WEIGHT * cp.norm(xi) + 0.1 * cp.sum_squares(w)), rows)


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
    made = weighed_losses(problem)
    assert made is not None
    made.weight.value = made.cost() / (2.0 * s)
    found = cvxscreen.solve(recognise(made.inner).problem, tol=1e-10)
    return found, found.value + 0.5 * made.cost() * s


@pytest.mark.parametrize("name", PROBLEMS)
def test_lines_lie_below_and_touch(name: str) -> None:
    """The bound from one weight holds at all others, and is tight at its own."""
    problem = PROBLEMS[name]()
    WEIGHT.value = 1.0
    made = weighed_losses(problem)
    assert made is not None
    middle = made.cost() / (2.0 * made.first())
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
    monkeypatch.setattr(module, "FINE", 1.0)
    problem = hinges()
    made = weighed_losses(problem)
    assert made is not None
    made.last = 3.0 * made.cost() / (2.0 * made.first())  # where the search would have to go on
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
        assert weighed_losses(cp.Problem(cp.Minimize(cost))) is None
    slack, bound = cp.Variable(N), cp.Variable(N)
    for rows in (
        [slack == X @ w - y], [slack >= X @ w - y, slack <= 9], [slack >= bound**2], [],
        [slack[1:] >= slack[:-1], slack >= X @ w - y],
    ):
        assert weighed_losses(cp.Problem(cp.Minimize(cp.norm(slack)), rows)) is None
    huber = cp.Problem(cp.Minimize(cp.norm(losses) + cp.sum(cp.huber(X @ w - y))))
    truth = solved(cp.Problem(huber.objective), solver="CLARABEL").value
    assert solved(huber, method="screen").value == pytest.approx(truth, rel=1e-6)
    named = solved(hinges(), method="screen", solver="CLARABEL")
    assert named.solver_stats.solver_name == "CLARABEL"
    assert not cvxscreen.Report.of(named).beside


def test_a_homogeneous_problem_takes_few_solves() -> None:
    """All V(s) are the optimum there: a line that only rounding lets fall bounds nothing."""
    R, w, below = returns(), cp.Variable(D, nonneg=True), cp.Variable(N)
    k, mean = cp.Variable(nonneg=True), R.mean(axis=0)
    rows = [mean @ w - 1e-5 * k == 1, cp.sum(w) == k, w <= 0.4 * k, (R - mean) @ w >= -below]
    problem = cp.Problem(cp.Minimize(cp.norm(below) / np.sqrt(N - 1)), [*rows, below >= 0])
    truth = solved(cp.Problem(*problem.args), solver="CLARABEL", tol_gap_rel=1e-11).value
    for solves in (3, 1):
        assert solved(problem, method="screen").value == pytest.approx(truth, rel=1e-6)
        report = cvxscreen.Report.of(problem)
        assert report.recognised
        assert report.rounds <= solves
        assert report.relative_gap <= 1e-8


def test_other_constraints_are_another_problem() -> None:
    problem = semideviation()
    WEIGHT.value = 0.5
    before = weighed_losses(problem)
    assert weighed_losses(problem) is before
    problem._constraints = [*problem.constraints, problem.variables()[0] <= 0.3]
    assert weighed_losses(problem) is not before


def test_explain() -> None:
    WEIGHT.value = 1.0
    found = cvxscreen.explain(hinges())
    assert found.recognised
    assert sum(found.terms.values()) == N
    assert "norm" in found.beside[0]
    assert not cvxscreen.explain(cp.Problem(cp.Minimize(cp.norm(cp.Variable(N) - 1)))).recognised


# -- losses below a level -------------------------------------------------------------------------


LEVEL = cp.Parameter()
BOUNDED: dict[str, tuple[Written, float, float]] = {}


def bounded(first: float, second: float) -> Callable[[Written], Written]:
    """Under its name, with two levels at which the constraint is active."""

    def keep(make: Written) -> Written:
        BOUNDED[make.__name__] = make, first, second
        return make

    return keep


def targets() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, D))
    return X, X @ np.array([1.0, -2.0, 0.5, 0.0, 0.0]) + rng.standard_t(2, N)


@bounded(0.7 * N, 0.85 * N)
def squared_hinges_below() -> cp.Problem:
    (X, y), w, b = labelled(), cp.Variable(D), cp.Variable()
    loss = cp.sum_squares(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(cp.norm1(w)), [loss <= LEVEL])


@bounded(2.2, 3.0)
def huber_below() -> cp.Problem:
    """Beside squares, with weights."""
    (X, y), w = targets(), cp.Variable(D)
    weights = np.random.default_rng(3).uniform(0.5, 1.5, N) / N
    rows = [w[0] + w[1] == 0.1, weights @ cp.huber(X @ w - y, 0.8) <= LEVEL]
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + w[4]), rows)


@bounded(3.0, 3.6)
def linear_beside_huber() -> cp.Problem:
    """What is below the level depends on the coordinates besides."""
    (X, y), w = targets(), cp.Variable(D)
    loss = cp.sum(cp.huber(X @ w - y)) / N + 0.2 * w[0] - 0.1 * cp.sum(w)
    return cp.Problem(cp.Minimize(cp.norm1(w)), [loss - LEVEL <= 0.1, w <= 3])


@bounded(2e-5, 4e-5)
def downside_risk() -> cp.Problem:
    R, w = returns(), cp.Variable(D)
    risk = cp.sum_squares(cp.pos(-0.0005 - R @ w)) / N
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [cp.sum(w) == 1, w >= 0, risk <= LEVEL])


@bounded(5e-3, 6.5e-3)
def downside_deviation() -> cp.Problem:
    R, w = returns(), cp.Variable(D, nonneg=True)
    risk = cp.norm(cp.neg(R @ w)) / np.sqrt(N)
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [risk <= LEVEL, cp.sum(w) == 1])


@bounded(5e-3, 6.5e-3)
def downside_deviation_of_slacks() -> cp.Problem:
    R, w, below = returns(), cp.Variable(D, nonneg=True), cp.Variable(N, nonneg=True)
    rows = [cp.norm(below) / np.sqrt(N) <= LEVEL, cp.sum(w) == 1, R @ w + below >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows)


@bounded(2e-5, 4e-5)
def downside_risk_of_slacks() -> cp.Problem:
    R, w, below = returns(), cp.Variable(D), cp.Variable(N, nonneg=True)
    rows = [cp.sum(w) == 1, w >= 0, -0.0005 - R @ w <= below]
    risk = cp.sum_squares(below) / N
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [risk <= LEVEL, *rows])


@bounded(50.0, 52.0)
def norm_times_a_parameter() -> cp.Problem:
    (X, y), w = targets(), cp.Variable(D)
    twice = cp.Parameter(nonneg=True, value=2.0)
    tube = cp.norm(cp.pos(cp.abs(X @ w - y) - 1.0), 2)
    return cp.Problem(cp.Minimize(cp.sum_squares(w)), [twice * tube <= 5 * LEVEL - 10])


@pytest.mark.parametrize("name", BOUNDED)
def test_the_plain_answer_below_a_level(name: str) -> None:
    """At two levels, of one and of a new problem: value, variables, dual values."""
    make, *levels = BOUNDED[name]
    problem, other = make(), make()
    for level in levels:
        LEVEL.value = level
        solved(problem, method="screen")
        solved(other, solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-11, tol_feas=1e-11)
        report = cvxscreen.Report.of(problem)
        assert report.recognised, report.reason
        assert f"a level of {N} losses" in report.beside[0]
        assert 0.0 <= report.relative_gap <= 1e-8
        assert problem.status == cp.OPTIMAL
        assert problem.value == pytest.approx(other.value, rel=3e-7)
        assert problem.value == pytest.approx(problem.objective.value, rel=1e-13)
        for ours, theirs in zip(problem.variables(), other.variables(), strict=True):
            assert ours.value == pytest.approx(theirs.value, rel=1e-3, abs=1e-4)
        for mine, plain in zip(problem.constraints, other.constraints, strict=True):
            assert float(np.max(mine.violation())) <= 1e-8 * max(1.0, level)
            dual, truth = np.ravel(mine.dual_value), np.ravel(plain.dual_value)
            assert dual == pytest.approx(truth, rel=2e-3, abs=1e-3 * np.abs(truth).max() + 1e-9)
            assert dual.min() >= 0.0 or isinstance(mine, cp.constraints.Equality)
    again = solved(problem, method="screen").value
    assert again == pytest.approx(problem.value, rel=1e-8)
    assert cvxscreen.Report.of(problem).rounds <= 3


def test_points_that_jump_with_the_weight() -> None:
    """All losses are on lines: the answer lies between two of them, for no weight gives it."""
    rng = np.random.default_rng(4)
    A, c, w = rng.uniform(1.0, 2.0, (N, 3)), np.array([1.0, 2.0, 4.0]), cp.Variable(3)
    loss, level = cp.sum(cp.huber(A @ w + 1.0, 0.5)), 1.15 * N
    problem = cp.Problem(cp.Maximize(c @ w), [loss <= level, w <= 0.2, w >= 0])
    solved(problem, method="screen")
    report = cvxscreen.Report.of(problem)
    assert report.recognised, report.reason
    # huber(t, 1/2) is t - 1/4 there: sums @ w + 3/4 N = level, the last coordinates up first.
    sums = A.sum(axis=0)
    rest = level - 0.75 * N - 0.2 * sums[2]
    assert 0.0 < rest < 0.2 * sums[1]
    assert w.value == pytest.approx([0.0, rest / sums[1], 0.2], rel=1e-8, abs=1e-9)
    assert loss.value <= level * (1.0 + 1e-12)
    assert problem.constraints[0].dual_value == pytest.approx(2.0 / sums[1], rel=1e-8)


def test_a_level_that_is_not_reached_has_no_multiplier() -> None:
    (X, y), w = targets(), cp.Variable(D)
    rows = [cp.sum(cp.huber(X @ w - y)) <= 100 * N]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + w[0]), rows)
    solved(problem, method="screen")
    assert cvxscreen.Report.of(problem).recognised
    assert problem.value == pytest.approx(0.75, rel=1e-8)
    assert float(np.squeeze(rows[0].dual_value)) == 0.0


@pytest.mark.parametrize("level", [0.05 * N, -1.0, 0.0])
@pytest.mark.parametrize("norm", [False, True])
def test_what_cannot_be_met_is_infeasible(level: float, norm: bool) -> None:
    (X, y), w = labelled(), cp.Variable(D)
    losses = cp.pos(1 - cp.multiply(y, X @ w))
    loss = cp.norm(losses) if norm else cp.sum_squares(losses)
    level = np.sqrt(level) if norm and level > 0.0 else level
    problem = solved(cp.Problem(cp.Minimize(cp.norm1(w)), [loss <= level]), method="screen")
    assert problem.status == cp.INFEASIBLE
    assert problem.value == np.inf


def test_what_falls_without_end_is_unbounded() -> None:
    (X, y), w = targets(), cp.Variable(D)
    loss = cp.sum(cp.huber(X[:, 1:] @ w[1:] - y))
    problem = solved(cp.Problem(cp.Minimize(w[0]), [loss <= 10 * N]), method="screen")
    assert problem.status == cp.UNBOUNDED


@pytest.mark.parametrize("first", [1.0, 1e-2, 1e4])
def test_losses_have_to_outweigh_the_rest(first: float) -> None:
    """Huber's losses grow like lines: at a weight that is too small there is no optimum."""
    (X, y), w = targets(), cp.Variable(D)
    problem = cp.Problem(cp.Minimize(1e3 * w[0]), [cp.sum(cp.huber(X @ w - y)) / N <= 3.0])
    made = weighed_losses(problem)
    assert made is not None
    made.last = first
    truth = cp.Problem(problem.objective, problem.constraints)
    solved(truth, solver="CLARABEL", tol_gap_rel=1e-11, tol_feas=1e-11)
    value = truth.value
    solved(problem, method="screen")
    assert cvxscreen.Report.of(problem).recognised
    assert problem.value == pytest.approx(value, rel=1e-7)


def test_a_wrong_weight_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends before the level is met has a gap: CVXPY solves the problem."""
    make, level, _ = BOUNDED["downside_risk"]
    LEVEL.value = level
    truth = solved(make(), solver="CLARABEL").value
    monkeypatch.setattr(module, "FINE", 3.0)
    problem = solved(make(), method="screen")
    assert not cvxscreen.Report.of(problem).recognised
    assert problem.value == pytest.approx(truth, rel=1e-4)


def test_levels_that_are_left_alone() -> None:
    X, y = labelled()
    w = cp.Variable(D)
    squares = cp.sum_squares(cp.pos(1 - cp.multiply(y, X @ w)))
    moving = cp.Parameter((N, D), value=X)
    for rows in (
        [cp.sum(cp.pos(1 - X @ w)) <= 5],
        [cp.sum_squares(X @ w - y) <= 5],
        [cp.sum_squares(cp.pos(1 - X[:50] @ w)) <= 5],
        [cp.sum(cp.logistic(X @ w)) <= 900],
        [squares <= 800, cp.sum(cp.huber(X @ w - y)) <= 900],
        [cp.norm(cp.pos(1 - X @ w)) <= 20 + w[0]],
        [cp.sum_squares(cp.pos(1 - moving @ w)) <= 800],
    ):
        assert weighed_losses(cp.Problem(cp.Minimize(cp.norm1(w)), rows)) is None
    problem = cp.Problem(cp.Minimize(cp.norm1(w)), [squares <= 0.75 * N])
    named = solved(problem, method="screen", solver="CLARABEL")
    assert named.solver_stats.solver_name == "CLARABEL"
    assert "built-in" in cvxscreen.Report.of(named).reason


def test_explain_a_level() -> None:
    LEVEL.value = 0.7 * N
    found = cvxscreen.explain(squared_hinges_below())
    assert found.recognised
    assert "a level" in found.beside[0]
