"""An objective within budgets of losses: the answer of CVXPY, with every multiplier."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from portfolios import portfolio

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import within_budgets as budgets
from cvxscreen.solvers.within_budgets import NothingWithin, WithinBudgets, within_budgets


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


@pytest.mark.table
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
    assert isinstance(found, WithinBudgets)
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


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("d", [2, 12])
def test_a_level_that_budgets_share(d: int, size: float) -> None:
    """The largest of two sums begins where they are, and at multipliers that its cost is."""
    objective, budget = budgeted_fit(n=300, d=d)
    wide = np.eye(1, d + 1, d)[0]
    objective = replace(
        objective, design=Rows(np.zeros((0, d + 1))), quadratic=Quadratic(np.zeros(d + 1)),
        linear=size * wide,
    )
    X = np.hstack([budget.design.dense(np.arange(300)), np.zeros((300, 1))])
    parts = [
        replace(
            budget, design=Rows(X[at]), losses=budget.losses.take(at), linear=-wide, constant=0.0,
            quadratic=Quadratic(np.zeros(d + 1)),
        )
        for at in (np.arange(90), np.arange(90, 300))
    ]
    found = within_budgets(objective, parts)
    assert isinstance(found, WithinBudgets)
    assert found.steps < 40
    assert found.weights.sum() == pytest.approx(size, rel=1e-8)
    x, sums = cp.Variable(d), []
    for part in parts:
        z = part.design.matrix[:, :d] @ x - part.losses.b
        sums.append(cp.sum(cp.maximum(1.5 * z, -z)))
    truth = cp.Problem(cp.Minimize(cp.maximum(*sums)))
    truth.solve(solver="CLARABEL")
    assert found.x[d] == pytest.approx(truth.value, rel=1e-7)


@pytest.fixture
def few_columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Coordinates of every problem that is solved, where 100 are already many."""
    seen: list[int] = []
    whole = budgets._over_all

    def counted(objective: Problem, *given: object) -> object:
        seen.append(objective.d)
        return whole(objective, *given)

    monkeypatch.setattr(budgets, "MANY_COLUMNS", 100)
    monkeypatch.setattr(budgets, "_over_all", counted)
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
    assert isinstance(found, WithinBudgets)
    assert 1 < rounds < 10
    assert small < 0.5 * objective.d
    whole = budgets._over_all(objective, [budget], UNLIMITED, 100)
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
    assert isinstance(found, WithinBudgets)
    assert (found.x[:120] > 1e-6).mean() > 0.5
    assert few_columns[-1] == objective.d
    value, _ = clarabel_within(objective, budget)
    assert objective.primal(found.x) == pytest.approx(value, rel=1e-7)


def hedged(level: float, n: int = 900, d: int = 300) -> tuple[Problem, Problem]:
    """Assets of a few factors: within little risk are few mixtures, and the first columns none.

    At a level of 0 each loses, the first one least.
    """
    objective, budget = budgeted(level, n=n, d=d)
    rng, rows = np.random.default_rng(0), budget.design.dense(np.arange(n)).copy()
    factors = rng.standard_normal((n, 12)) @ rng.standard_normal((12, d))
    rows[:, :d] = 0.3 * factors + 0.1 * rng.standard_normal((n, d)) - 0.02 * rng.random(d)
    equal = np.sort(rows[:, :d].mean(axis=1))[-n // 10:].mean()
    objective = replace(objective, linear=np.r_[rows[:, :d].mean(axis=0), 0.0])
    if not level:
        rows[:, :d] = 1.0 + np.abs(rows[:, :d]) * (np.arange(d) > 0)
    return objective, replace(budget, design=Rows(rows), constant=-level * equal)


@pytest.mark.parametrize("level", [0.2, 0.0])
def test_columns_that_hold_no_feasible_point_get_those_that_may(
    level: float, few_columns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reduced costs of the proof that nothing is; without such columns it is one of all."""
    objective, budget = hedged(level)
    kinds, counted = [], budgets._over_all

    def named(*given: object) -> object:
        kinds.append(counted(*given))
        return kinds[-1]

    monkeypatch.setattr(budgets, "_over_all", named)
    found = within_budgets(objective, [budget])
    assert max(few_columns) < 0.5 * objective.d
    assert isinstance(kinds[0], NothingWithin)
    whole = counted(objective, [budget], UNLIMITED, 100)
    assert type(found) is type(whole)
    if level:
        assert objective.primal(found.x) == pytest.approx(objective.primal(whole.x), rel=1e-8)
        return
    # Farkas: what must not be positive is, by multipliers that no coordinate can change it by.
    pull = found.weights[0] * (budget.linear + budget.design.adjoint(found.slopes[1]))
    left = pull - objective.side.adjoint(found.multipliers)
    assert np.abs(left).max() <= 1e-6 * np.abs(pull).max()
    assert (found.multipliers[1:] >= 0.0).all()
    assert found.weights[0] * budget.constant - found.multipliers @ objective.side.offset > 0.0


@pytest.mark.parametrize("kind", ["absolute", "huber", "constraints"])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_losses_beside_two_budgets(kind: str, size: float) -> None:
    """Clarabel's value and multipliers; an objective with losses, and hard ones among them."""

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
    assert isinstance(found, WithinBudgets)
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
    assert isinstance(found, WithinBudgets)
    assert objective.primal(found.x) == pytest.approx(value, rel=1e-7)
    assert found.weights[0] == pytest.approx(multiplier, rel=1e-5)
    assert multiplier > 0.1


def test_a_budget_that_does_not_bind() -> None:
    """Its multiplier is as good as 0, and the best asset is bought."""
    objective, budget = budgeted(30.0)
    found = within_budgets(objective, [budget])
    assert isinstance(found, WithinBudgets)
    assert found.weights[0] <= 1e-6 * clarabel_within(*budgeted(1.0))[1]
    assert objective.primal(found.x) == pytest.approx(objective.linear[:-1].min(), rel=1e-8)


def within_one(
    objective: Problem, budget: Problem, **options: Any
) -> WithinBudgets | NothingWithin | None:
    return within_budgets(objective, [budget], **options)


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("make", [lambda: budgeted(0.01), lambda: (
    budgeted_fit()[0], replace(budgeted_fit()[1], constant=-100.0))])
def test_multipliers_show_that_nothing_is_within_a_budget(
    make: Callable[[], tuple[Problem, Problem]], size: float
) -> None:
    """The Lagrangian of the constraints alone, at them, is flat and above 0."""
    objective, budget = make()
    scaled = replace(
        budget, losses=budget.losses.scaled(size), linear=size * budget.linear,
        constant=size * budget.constant,
    )
    found = within_one(objective, scaled)
    assert isinstance(found, NothingWithin)
    assert found.weights[0] > 0.0
    theta, f = found.slopes[1], scaled.losses
    assert ((theta >= f.lo) & (theta <= f.hi)).all()
    gradient = scaled.linear + scaled.design.adjoint(theta)
    least = scaled.constant - float(f.conjugate(theta).sum())
    if objective.side is not None:
        y = found.multipliers / found.weights[0]
        assert (y[1:] >= 0.0).all()
        gradient = gradient - objective.side.adjoint(y)
        least -= float(objective.side.offset @ y)
    assert least > 0.0
    assert np.abs(gradient).sum() <= 1e-9 * least


def test_what_is_not_solved_within_a_budget() -> None:
    """Unbounded, out of steps, and other kinds of problems: None, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert within_one(*budgeted(0.01), max_steps=3) is None
        objective, budget = budgeted_fit()
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
