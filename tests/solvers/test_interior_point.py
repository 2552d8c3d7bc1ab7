"""The interior point method: every loss, with constraints, degenerate, infeasible, unbounded."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from strategies import CASES, Case, build, reference

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers import interior_point
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.interior_point import (
    InteriorPoint,
    WithinBudgets,
    _Path,
    _Run,
    _Terms,
    fenchel_young,
    within_budgets,
)

SOLVE = InteriorPoint()


def size_of(problem: Problem) -> float:
    return max(abs(problem.primal(np.zeros(problem.d))), 1e-300)


def solved_by_cvxpy(problem: Problem, solver: str = "CLARABEL") -> float:
    written = problem.to_cvxpy()
    options = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000} if solver == "SCS" else {}
    written.solve(solver=solver, **options)
    return float(written.value)


@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_every_case_is_solved(case: Case) -> None:
    """To a relative gap of 1e-10 of P(0), certified, and at the exact optimum's value."""
    problem = build(case)
    found = SOLVE(problem, target=1e-10 * size_of(problem))
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-8).ok
    ref = reference(case)
    if ref.truth is not None:
        assert problem.primal(found.x) - float(ref.truth.value) <= 2e-10 * size_of(problem)
    assert found.info["steps"] < 60


def portfolio(n: int = 200, d: int = 8, ridge: float = 0.1, seed: int = 0) -> Problem:
    """CVaR of a portfolio on the simplex; the threshold is the last coordinate."""
    rng = np.random.default_rng(seed)
    returns = 0.01 + 0.1 * rng.standard_t(4, (n, d))
    losses = Losses(
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, 1.0 / (0.1 * n))
    )
    F = sp.vstack([
        sp.csr_matrix(np.r_[np.ones(d), 0.0]),
        sp.hstack([sp.identity(d), sp.csr_matrix((d, 1))]),
    ])
    side = SideConstraints(F, np.r_[-1.0, np.zeros(d)], (("zero", 1), ("nonneg", d)))
    diagonal = np.r_[np.full(d, ridge), 0.0]
    return Problem(
        Rows(np.c_[-returns, -np.ones(n)]), losses, Quadratic(diagonal),
        np.r_[np.zeros(d), 1.0], side=side,
    )


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
@pytest.mark.parametrize("ridge", [0.1, 0.0])
def test_constraints(ridge: float, solver: str) -> None:
    """The value that another solver finds; feasible, with multipliers that fit."""
    problem = portfolio(ridge=ridge)
    found = SOLVE(problem, target=1e-12)
    assert found.status == "optimal"
    value, slack = problem.primal(found.x), problem.side.slack(found.x)
    assert value == pytest.approx(solved_by_cvxpy(problem, solver), rel=1e-4)
    assert problem.side.violation(found.x) <= 1e-12
    assert (found.multipliers[1:] >= 0).all()
    assert abs(found.multipliers @ slack) <= 1e-12
    left = (problem.design.adjoint(found.theta) + problem.quadratic.apply(found.x)
            + problem.linear - problem.side.adjoint(found.multipliers))
    assert np.abs(left).max() <= 1e-12


def test_a_bound_that_binds_has_a_multiplier() -> None:
    """An asset that costs more than it is worth: its weight is 0, its multiplier balances."""
    problem = portfolio()
    tilted = replace(problem, linear=problem.linear + np.r_[5.0, np.zeros(8)])
    found = SOLVE(tilted, target=1e-12)
    assert found.x[0] == 0.0
    assert found.multipliers[1] > 1.0
    left = (tilted.design.adjoint(found.theta) + tilted.quadratic.apply(found.x)
            + tilted.linear - tilted.side.adjoint(found.multipliers))
    assert np.abs(left).max() <= 1e-12


NORMS: dict[str, Any] = {
    # Rows (of x, of helpers), so that the norm of x is at most the offset of the last.
    "L1": (lambda d: np.vstack([
        np.c_[np.eye(d), np.eye(d)], np.c_[-np.eye(d), np.eye(d)],
        np.r_[np.zeros(d), -np.ones(d)],
    ]), lambda x: cp.norm1(x)),
    "sum of largest sizes": (lambda d: np.vstack([
        # |x_j| <= t_j, t_j <= s_j + q, s_j >= 0, sum_j s_j + 2 q <= radius.
        np.c_[np.eye(d), np.eye(d), np.zeros((d, d + 1))],
        np.c_[-np.eye(d), np.eye(d), np.zeros((d, d + 1))],
        np.c_[np.zeros((d, d)), -np.eye(d), np.eye(d), np.ones(d)],
        np.c_[np.zeros((d, 2 * d)), np.eye(d), np.zeros(d)],
        np.r_[np.zeros(2 * d), -np.ones(d), -2.0],
    ]), lambda x: cp.sum_largest(cp.abs(x), 2)),
}


@pytest.mark.parametrize("radius", [0.01, 1.0])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_in_a_constraint(norm: str, loss: str, ridge: float, radius: float) -> None:
    """Helpers of a norm, which no loss sees, are as large as what they bound: few steps."""
    n, d = 300, 6
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    A, b = (X, y) if loss == "absolute" else (-np.sign(y)[:, None] * X, np.full(n, -1.0))
    rows, written = NORMS[norm]
    F, zeros = rows(d), np.zeros(n)
    helpers = F.shape[1] - d
    side = SideConstraints(
        sp.csr_matrix(F), np.r_[np.zeros(len(F) - 1), radius], (("nonneg", len(F)),)
    )
    losses = Losses(b, zeros, zeros, zeros - (loss == "absolute"), np.ones(n))
    problem = Problem(
        Rows(np.c_[A, np.zeros((n, helpers))]), losses,
        Quadratic(np.r_[np.full(d, ridge), np.zeros(helpers)]), np.zeros(d + helpers), side=side,
    )
    found = SOLVE(problem, target=1e-9 * size_of(problem))
    assert found.status == "optimal"
    assert found.info["steps"] <= 40
    x = cp.Variable(d)
    part = cp.norm1(A @ x - b) if loss == "absolute" else cp.sum(cp.pos(A @ x - b))
    square = 0.5 * ridge * cp.sum_squares(x) if ridge else 0.0
    truth = cp.Problem(cp.Minimize(part + square), [written(x) <= radius]).solve(solver="CLARABEL")
    assert problem.primal(found.x) == pytest.approx(truth, rel=1e-7)


def test_only_what_is_taken() -> None:
    """A cone that is not linear, or too many coordinates: refused, with the reason."""
    problem = portfolio()
    cone = SideConstraints(sp.identity(9, format="csr"), np.ones(9), (("psd", 3),))
    with pytest.raises(InvalidInput, match="not linear"):
        SOLVE(replace(problem, side=cone))
    wide = Problem(
        Rows(np.ones((3, 2001))), Losses.repeated(3, 1.0, 0.0, 0.0, -1.0, 0.0),
        Quadratic(np.ones(2001)), np.zeros(2001),
    )
    with pytest.raises(InvalidInput, match="2,001 coordinates"):
        SOLVE(wide)


def test_limits() -> None:
    """One step is one step, and still an answer."""
    problem = portfolio()
    found = InteriorPoint(limits=Limits(max_iter=2))(problem, target=1e-12)
    assert found.status == "inaccurate"
    assert found.info["steps"] <= 2
    assert np.isfinite(found.x).all()


def test_warm_start_on_the_face() -> None:
    """From the optimum, a little off: the equations of its face, and no step at all."""
    problem = portfolio(ridge=0.0)
    first = SOLVE(problem, target=1e-13)
    near = first.x + 1e-6 * np.random.default_rng(0).standard_normal(problem.d)
    start = Start(near, first.theta, multipliers=first.multipliers)
    again = SOLVE(problem, start, 1e-13)
    assert again.status == "optimal"
    assert again.info["steps"] == 0
    np.testing.assert_allclose(again.x, first.x, atol=1e-10)


# -- against another solver, on anything --------------------------------------------------------

ROWS = {  # e, q, -lo, hi
    "hinge": (0, 0, 1, 0), "absolute": (0, 0, 1, 1), "quantile": (0, 0, 0.1, 0.9),
    "epsilon": (0.3, 0, 1, 1), "smoothed_epsilon": (0.3, 0.5, 1, 1), "one_sided": (0.2, 0, 0, 1),
    "smoothed_hinge": (0, 0.5, 1, 0), "squared_hinge": (0, 1, np.inf, 0),
    "huber": (0, 1, 0.7, 0.7), "squared": (0, 1, np.inf, np.inf), "nothing": (0, 0, 0, 0),
}


def drawn(seed: int) -> Problem:
    """A small problem of any kind: losses mixed, M = 0, singular or dense, ties, duplicates.

    Most are feasible by a planted point; about one in ten is infeasible or unbounded.
    """
    r = np.random.default_rng(seed)
    n, d = int(r.integers(1, 80)), int(r.integers(1, 9))
    A = r.standard_normal((n, d))
    if r.random() < 0.2:
        A = np.round(A)  # degenerate vertices
    if r.random() < 0.15:
        A[:, int(r.integers(d))] = 0.0
    if r.random() < 0.15:
        A[n // 2:] = A[: n - n // 2]
    if r.random() < 0.15:
        A *= 10.0 ** r.integers(-3, 4, (1, d))
    if r.random() < 0.1:
        A = A.astype(np.float32)
    names = list(ROWS)
    kinds = [str(r.choice(names))] * n if r.random() < 0.6 else [str(k) for k in r.choice(names, n)]
    x, e, q, down, up = r.standard_normal(d), *np.array([ROWS[kind] for kind in kinds]).T
    b = A @ x + r.standard_normal(n) * r.choice([0.0, 0.1, 1.0])
    if r.random() < 0.2:
        b = np.round(b)
    c = np.exp(r.standard_normal(n) * r.choice([0.0, 1.0]))
    lo, hi = -down * c, up * c
    if r.random() < 0.3:  # constraints as terms
        for i in r.choice(n, min(n, int(r.integers(1, 4))), replace=False):
            e[i] = q[i] = 0.0
            equal = r.random() < 0.3
            lo[i], hi[i] = -np.inf if equal else 0.0, np.inf
            b[i] = A[i] @ x + (0.0 if equal else r.random())
    B = r.standard_normal((d, max(1, d // 2)))
    form = [
        Quadratic(np.zeros(d)), Quadratic(np.ones(d)), Quadratic(np.zeros(d), B @ B.T),
        Quadratic((r.random(d) < 0.5).astype(float)), Quadratic(np.full(d, 1e-3), B @ B.T),
    ][int(r.integers(5))]
    side = None
    if r.random() < 0.6:
        k = int(r.integers(1, 6))
        equal = int(r.integers(0, min(k, d) + 1))
        F = np.eye(d)[r.integers(d, size=k)] if r.random() < 0.3 else r.standard_normal((k, d))
        offset = np.where(np.arange(k) < equal, 0.0, r.random(k) * r.integers(0, 2, k)) - F @ x
        if r.random() < 0.1:
            offset[-1] -= 5.0
        dims = (("zero", equal), ("nonneg", k - equal))
        side = SideConstraints(sp.csr_matrix(F), offset, tuple(x for x in dims if x[1]))
    return Problem(
        Rows(sp.csr_matrix(A) if r.random() < 0.3 else A), Losses(b, e, q / c, lo, hi), form,
        r.standard_normal(d) * r.choice([0.0, 0.1, 3.0]), side=side,
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_problem(seed: int) -> None:
    """Clarabel's status and value; the constraints hold and the multipliers fit."""
    problem = drawn(seed)
    written = problem.to_cvxpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written.solve(solver="CLARABEL")
    status, size = written.status, 1.0 + abs(written.value)
    found = SOLVE(problem, target=1e-8 * size if np.isfinite(size) else 1e-8)
    assert found.status == status.removesuffix("_inaccurate")
    if found.status != "optimal":
        return
    assert problem.primal(found.x) == pytest.approx(written.value, abs=2e-6 * size)
    t = problem.design.forward(found.x)
    assert float(problem.losses.violation(t).max()) <= 1e-8 * size
    assert problem.side is None or problem.side.violation(found.x) <= 1e-8 * size
    proof = certify(problem, found.x, found.theta, found.multipliers, tol=1e-6)
    left = problem.design.adjoint(found.theta) + problem.linear + problem.quadratic.apply(found.x)
    if problem.side is not None:
        left = left - problem.side.adjoint(found.multipliers)
    load = np.abs(problem.design.dense()).T @ np.abs(found.theta) + np.abs(problem.linear) + 1.0
    assert proof.ok or (np.abs(left) <= 1e-6 * load).all()


def test_unbounded() -> None:
    """Nothing holds a coordinate: said so, not an answer."""
    n = 30
    problem = Problem(
        Rows(np.random.default_rng(0).standard_normal((n, 3))),
        Losses.repeated(n, 0.0, 0.0, 0.0, -0.01, 0.01), Quadratic(np.zeros(3)), np.r_[5.0, 0, 0],
    )
    assert SOLVE(problem, target=1e-9).status == "unbounded"


def test_infeasible() -> None:
    """Constraints that nothing satisfies, and equations that contradict each other."""
    base = portfolio()
    d = base.d
    F = np.zeros((2, d))
    F[0, 0], F[1, 0] = 1.0, -1.0
    apart = SideConstraints(sp.csr_matrix(F), np.r_[-1.0, 0.5], (("nonneg", 2),))
    assert SOLVE(replace(base, side=apart), target=1e-9).status == "infeasible"
    equal = SideConstraints(sp.csr_matrix(F), np.r_[-1.0, 0.5], (("zero", 2),))
    assert SOLVE(replace(base, side=equal), target=1e-9).status == "infeasible"


# -- what its answers rest on ------------------------------------------------------------------


def test_fenchel_young_terms_are_those_of_the_losses() -> None:
    """Value plus conjugate minus product, for every loss without a dead zone."""
    rng = np.random.default_rng(0)
    for kind in ("hinge", "absolute", "quantile", "smoothed_hinge", "huber", "squared_hinge"):
        e, q, down, up = np.array(ROWS[kind]).T
        losses = Losses.repeated(200, 0.3, float(e), float(q), -float(down), float(up))
        problem = Problem(Rows(np.ones((200, 1))), losses, Quadratic(np.ones(1)), np.zeros(1))
        t = 2.0 * rng.standard_normal(200)
        theta = np.clip(2.0 * rng.standard_normal(200), losses.lo, losses.hi)
        mine = fenchel_young(_Terms.of(problem), t - losses.b, theta)
        np.testing.assert_allclose(mine, losses.fenchel_young(t, theta), rtol=1e-12, atol=1e-14)


def test_the_gap_charges_what_is_not_balanced() -> None:
    """At twice the optimum, with the slopes of that point, the residual is all that is wrong."""
    rng = np.random.default_rng(1)
    A, n = rng.standard_normal((60, 4)), 60
    problem = Problem(
        Rows(A), Losses(A @ np.ones(4), np.zeros(n), np.zeros(n), np.full(n, -1.0), np.ones(n)),
        Quadratic(np.zeros(4)), np.zeros(4),
    )
    x = 2.0 * np.ones(4)
    theta = problem.losses.slope(problem.design.forward(x))
    gap, _ = _Run(_Terms.of(problem), 0.0).gap_of(x, theta, np.zeros(0))
    assert gap >= problem.primal(x)  # the optimum is worth 0


def bounded(b: float, lo: float, hi: float, linear: float, m: float = 0.0) -> _Path:
    """One coordinate, one term ``[lo, hi]`` at b; an infinite slope makes it a constraint."""
    problem = Problem(
        Rows(np.ones((1, 1))), Losses([b], [0.0], [0.0], [lo], [hi]),
        Quadratic(np.array([m])), np.array([linear]),
    )
    return _Path(_Terms.of(problem))


def test_a_point_outside_the_constraints_is_none() -> None:
    """Whatever its Fenchel-Young terms: of an inequality and of an equality."""
    path = bounded(1.0, 0.0, np.inf, 0.0)
    run = _Run(path.terms, 0.0)
    assert run.gap_of(np.array([1.0]), np.zeros(1), np.zeros(0))[0] == 0.0
    assert np.isinf(run.gap_of(np.array([1.1]), np.zeros(1), np.zeros(0))[0])
    problem = portfolio()
    run = _Run(_Terms.of(problem), 0.0)
    inside, theta = np.r_[np.full(8, 0.125), 0.0], np.zeros(len(run.terms))
    assert np.isfinite(run.gap_of(inside, theta, np.zeros(1))[0])
    assert np.isinf(run.gap_of(1.01 * inside, theta, np.zeros(1))[0])


def test_a_direction_proves_unboundedness_only_where_nothing_holds_it() -> None:
    """Neither a constraint on either side, nor a square, nor a slope that is steeper."""
    one = np.ones(1)
    assert bounded(1.0, -0.5, 0.5, -1.0)._descends(one)
    assert not bounded(1.0, -0.5, 0.5, 1.0)._descends(one)
    assert not bounded(1.0, -0.5, 1.5, -1.0)._descends(one)
    assert not bounded(1.0, 0.0, np.inf, -1.0)._descends(one)
    assert not bounded(1.0, -np.inf, 0.0, 1.0)._descends(-one)
    assert not bounded(1.0, -0.5, 0.5, -1.0, m=1.0)._descends(one)


def test_slopes_prove_infeasibility_only_where_they_cancel() -> None:
    """``x <= -1`` has a value of -1 and points; with ``-x <= 0`` beside it there are none."""
    path = bounded(-1.0, 0.0, np.inf, 0.0)
    path.theta = np.ones(1)
    assert not path._separates()
    both = Problem(
        Rows(np.array([[1.0], [-1.0]])),
        Losses([-1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [np.inf, np.inf]),
        Quadratic(np.zeros(1)), np.zeros(1),
    )
    path = _Path(_Terms.of(both))
    path.theta = np.ones(2)
    assert path._separates()


def test_only_a_rounding_error_is_moved_onto_a_bound() -> None:
    """A coordinate at 1e-15 becomes 0, one at 1e-9 stays."""
    terms = _Terms.of(portfolio())
    x = np.r_[1e-15, 1e-9, np.full(6, 1 / 6), 0.1]
    moved = terms.at_bounds(x)
    assert moved[0] == 0.0
    np.testing.assert_array_equal(moved[1:], x[1:])


# -- a budget of losses ----------------------------------------------------------------------------


def budgeted(
    level: float, n: int = 600, d: int = 8, ridge: float = 0.0, seed: int = 0
) -> tuple[Problem, Problem]:
    """Most mean return with at most so many times the risk of an equal share of everything."""
    risk = portfolio(n, d, 0.0, seed)
    rows = risk.design.dense(np.arange(n))
    equal = np.sort(rows[:, :d].mean(axis=1))[-n // 10:].mean()
    pull = np.r_[rows[:, :d].mean(axis=0), 0.0]
    squares = Quadratic(np.r_[np.full(d, ridge), 0.0])
    objective = Problem(
        Rows(np.zeros((0, d + 1))), risk.losses.take(np.arange(0)), squares, pull, side=risk.side
    )
    return objective, replace(risk, side=None, constant=-level * equal)


def budgeted_fit(e: float = 0.0, n: int = 500, d: int = 6) -> tuple[Problem, Problem]:
    """Least sum of some coordinates with a bound on absolute errors; no side constraints."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    b = X @ rng.standard_normal(d) + rng.standard_t(3, n)
    losses = Losses.repeated(n, 0.0, e, 0.0, -1.0, 1.5)
    losses = Losses(b, losses.e, losses.q, losses.lo, losses.hi)
    objective = Problem(
        Rows(np.zeros((0, d))), losses.take(np.arange(0)), Quadratic(np.zeros(d)), np.ones(d)
    )
    budget = Problem(Rows(X), losses, Quadratic(np.zeros(d)), np.zeros(d), constant=-2.0 * n)
    return objective, budget


def clarabel_within(objective: Problem, budget: Problem) -> tuple[float, float]:
    """Value and multiplier by Clarabel."""
    import cvxpy as cp

    x, f = cp.Variable(budget.d), budget.losses
    z = budget.design.dense(np.arange(budget.n)) @ x - f.b
    cost = f.hi @ cp.pos(z - f.e) - f.lo @ cp.pos(-z - f.e)
    bound = budget.linear @ x + cost + budget.constant <= 0
    rows, side = [bound], objective.side
    if side is not None:
        slack = side.matrix @ x + side.offset
        rows += [slack[0] == 0, slack[1:] >= 0]
    squares = 0.5 * cp.sum(cp.multiply(objective.quadratic.diagonal, cp.square(x)))
    written = cp.Problem(cp.Minimize(objective.linear @ x + squares), rows)
    written.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(written.value), float(bound.dual_value)


BUDGETS = {
    "risk": budgeted(1.0), "tight": budgeted(0.97), "many assets": budgeted(1.0, d=60),
    "squares": budgeted(1.0, ridge=0.01), "fit": budgeted_fit(), "dead zones": budgeted_fit(0.5),
}


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e4])
def test_within_a_budget(name: str, size: float) -> None:
    """Clarabel's value and multiplier, in units of any size."""
    objective, budget = BUDGETS[name]
    value, multiplier = clarabel_within(objective, budget)
    scaled = replace(
        budget, losses=budget.losses.scaled(size), linear=size * budget.linear,
        constant=size * budget.constant,
    )
    found = within_budgets(objective, [scaled])
    assert found is not None
    assert found.steps < 50
    assert objective.primal(found.x) == pytest.approx(value, rel=1e-7)
    assert size * found.weights[0] == pytest.approx(multiplier, rel=1e-5)
    assert budget.primal(found.x) <= 1e-8 * abs(budget.constant)
    f = budget.losses
    assert ((found.slopes[1] >= size * f.lo) & (found.slopes[1] <= size * f.hi)).all()
    gradient = objective.linear + objective.quadratic.apply(found.x)
    steepest = float(np.abs(gradient).max())
    gradient = gradient + found.weights[0] * (
        size * budget.linear + budget.design.adjoint(found.slopes[1])
    )
    if objective.side is not None:
        assert (found.multipliers[1:] >= 0).all()
        gradient = gradient - objective.side.adjoint(found.multipliers)
    assert np.abs(gradient).max() <= 1e-6 * steepest


@pytest.fixture
def few_columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Coordinates of every problem that is solved, where 100 are already many."""
    seen: list[int] = []
    whole = interior_point._over_all

    def counted(objective: Problem, *given: object) -> object:
        seen.append(objective.d)
        return whole(objective, *given)

    monkeypatch.setattr(interior_point, "MANY_COLUMNS", 100)
    monkeypatch.setattr(interior_point, "_over_all", counted)
    return seen


@pytest.mark.parametrize("level", [3.0, 4.0])
@pytest.mark.parametrize("entry", [1.0, 2.5])
def test_columns_at_their_bound_are_left_out(
    level: float, entry: float, few_columns: list[int]
) -> None:
    """The same optimum, with a multiplier for every constraint, ``2.5 x >= 0`` among them."""
    objective, budget = budgeted(level, n=900, d=160, seed=4)
    side = objective.side
    rows = sp.diags(np.r_[1.0, np.full(160, entry)])
    side = SideConstraints(rows @ side.matrix, side.offset, side.dims)
    objective = replace(objective, side=side)
    found = within_budgets(objective, [budget])
    rounds, small = len(few_columns), max(few_columns)
    assert found is not None
    assert 1 < rounds < 10
    assert small < 0.5 * objective.d
    whole = interior_point._over_all(objective, [budget], UNLIMITED, 100)
    assert objective.primal(found.x) == pytest.approx(objective.primal(whole.x), rel=1e-8)
    assert found.weights == pytest.approx(whole.weights, rel=1e-5)
    gradient = objective.linear + found.weights[0] * (
        budget.linear + budget.design.adjoint(found.slopes[1])
    )
    steepest = float(np.abs(gradient).max())
    gradient = gradient - side.adjoint(found.multipliers)
    assert np.abs(gradient).max() <= 1e-6 * steepest
    assert (found.multipliers[1:] >= 0).all()
    assert (side.slack(found.x)[1:] >= -1e-12).all()
    assert budget.primal(found.x) <= 1e-8 * abs(budget.constant)


def test_columns_of_a_spread_out_optimum_are_all_taken(few_columns: list[int]) -> None:
    objective, budget = budgeted(1.2, ridge=10.0, n=900, d=120, seed=4)
    found = within_budgets(objective, [budget])
    assert found is not None
    assert (found.x[:120] > 1e-6).mean() > 0.5
    assert few_columns[-1] == objective.d
    value, _ = clarabel_within(objective, budget)
    assert objective.primal(found.x) == pytest.approx(value, rel=1e-7)


def test_columns_that_reach_no_feasible_point_are_given_up(few_columns: list[int]) -> None:
    objective, budget = budgeted(0.6, n=900, d=160, seed=4)
    found = within_budgets(objective, [budget])
    whole = interior_point._over_all(objective, [budget], UNLIMITED, 100)
    assert few_columns[0] < objective.d
    assert (found is None) == (whole is None)
    if found is not None:
        assert objective.primal(found.x) == pytest.approx(objective.primal(whole.x), rel=1e-8)


@pytest.mark.parametrize("kind", ["absolute", "huber", "constraints"])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_losses_beside_two_budgets(kind: str, size: float) -> None:
    """Clarabel's value and multipliers; an objective with losses, and hard ones among them."""
    import cvxpy as cp

    _, budget = budgeted_fit()
    rows, f, n, d = budget.design.dense(), budget.losses, budget.n, budget.d
    part = np.arange(n) < n // 2
    hard = kind == "constraints"
    curve, steep = (1.0, 0.5) if kind == "huber" else (0.0, 1.0)
    kink = 3.2 if hard else 1.0
    ends = (0.0, np.inf) if hard else (-steep, steep)
    own = Losses.repeated(40, kink, 0.0, curve, *ends)
    A = np.random.default_rng(5).standard_normal((40, d))
    squares, linear = Quadratic(np.full(d, 0.1 if hard else 0.0)), np.full(d, -0.1)
    objective = Problem(Rows(A), own, squares, linear)
    budgets = [
        replace(budget, design=Rows(rows[at]), losses=f.take(np.flatnonzero(at)).scaled(size),
                linear=np.full(d, size), constant=-size * share * at.sum())
        for at, share in ((part, 2.2), (~part, 1.9))
    ]
    x = cp.Variable(d)
    away = A @ x - kink
    costs = {"absolute": cp.norm1(away), "huber": 0.5 * cp.sum(cp.huber(away, 0.5)),
             "constraints": 0.05 * cp.sum_squares(x)}
    bounds = [
        (1.5 * cp.sum(cp.pos(rows[at] @ x - f.b[at])) + cp.sum(cp.neg(rows[at] @ x - f.b[at]))
         + cp.sum(x) + part_of.constant / size) <= 0
        for at, part_of in zip((part, ~part), budgets, strict=True)
    ]
    written = cp.Problem(
        cp.Minimize(costs[kind] + linear @ x), [*bounds, *([away <= 0] if hard else [])]
    )
    written.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    found = within_budgets(objective, budgets)
    assert found is not None
    assert found.steps < 50
    assert objective.primal(found.x) == pytest.approx(written.value, rel=1e-7)
    theirs = np.array([float(bound.dual_value) for bound in bounds])
    assert theirs.max() > 1e-4
    np.testing.assert_allclose(size * found.weights, theirs, rtol=1e-5, atol=1e-7)
    gradient = linear + squares.apply(found.x) + A.T @ found.slopes[0]
    for weight, slopes, each in zip(found.weights, found.slopes[1:], budgets, strict=True):
        assert each.primal(found.x) <= 1e-8 * abs(each.constant)
        assert ((slopes >= each.losses.lo) & (slopes <= each.losses.hi)).all()
        gradient = gradient + weight * (each.linear + each.design.adjoint(slopes))
    steepest = np.abs(linear) + np.abs(A).T @ np.abs(found.slopes[0])
    assert np.abs(gradient).max() <= 1e-6 * steepest.max()


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e3])
def test_a_budget_whose_losses_have_no_constants(size: float) -> None:
    """Bids within a conditional value at risk: at 0, where the start would be, no loss is felt."""
    rng, n, d = np.random.default_rng(0), 400, 6
    profit = size * (rng.gamma(5.0, 8.0, (n, d)) - np.linspace(20.0, 60.0, d))
    frame = np.vstack([np.eye(d + 1)[:1], np.eye(d + 1)[1:d], -np.eye(d + 1)[1:d]])
    side = SideConstraints(
        frame, np.r_[0.0, np.zeros(d - 1), np.full(d - 1, 10.0)],
        (("zero", 1), ("nonneg", 2 * (d - 1))),
    )
    losses = Losses.repeated(n, 0.0, 0.0, 0.0, 0.0, 20.0 / n)
    rows, none = Rows(np.column_stack([-profit, -np.ones(n)])), Quadratic(np.zeros(d + 1))
    budget = Problem(rows, losses, none, np.eye(d + 1)[d], constant=-200.0 * size)
    objective = Problem(
        Rows(np.zeros((0, d + 1))), losses.take(np.arange(0)), none,
        np.r_[-profit.mean(axis=0), 0.0], side=side,
    )
    value, multiplier = clarabel_within(objective, budget)
    found = within_budgets(objective, [budget])
    assert found is not None
    assert objective.primal(found.x) == pytest.approx(value, rel=1e-7)
    assert found.weights[0] == pytest.approx(multiplier, rel=1e-5)
    assert multiplier > 0.1


def test_a_budget_that_does_not_bind() -> None:
    """Its multiplier is as good as 0, and the best asset is bought."""
    objective, budget = budgeted(30.0)
    found = within_budgets(objective, [budget])
    assert found is not None
    assert found.weights[0] <= 1e-6 * clarabel_within(*budgeted(1.0))[1]
    assert objective.primal(found.x) == pytest.approx(objective.linear[:-1].min(), rel=1e-8)


def within_one(objective: Problem, budget: Problem, **options: Any) -> WithinBudgets | None:
    return within_budgets(objective, [budget], **options)


def test_what_is_not_solved_within_a_budget() -> None:
    """Infeasible, unbounded, out of steps, and other kinds of problems: None, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert within_one(*budgeted(0.01)) is None
        objective, budget = budgeted_fit()
        assert within_one(objective, replace(budget, constant=-1.0)) is None
        ray = np.r_[1.0, np.zeros(budget.d - 1)]
        unseen = replace(budget, design=Rows(budget.design.dense(np.arange(budget.n)) * (1 - ray)))
        assert within_one(objective, unseen) is None
        assert within_one(*BUDGETS["risk"], max_steps=3) is None
        assert within_one(*BUDGETS["risk"], limits=Limits(max_iter=2)) is None
        squares = Quadratic(np.ones(budget.d))
        assert within_one(budget, replace(budget, quadratic=squares)) is None
        curved = replace(budget, losses=Losses(
            budget.losses.b, np.zeros(budget.n), np.ones(budget.n), budget.losses.lo,
            budget.losses.hi,
        ))
        assert within_one(objective, curved) is None
