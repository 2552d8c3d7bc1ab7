"""Losses in constraints: the plain answer with its dual values, and a certificate that refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import budgets, solution_cache
from cvxscreen.cvxpy_plugin.budgets import (
    BudgetedPair,
    BudgetedPoint,
    BudgetedProblem,
    ScreenedBudgets,
    budget_value,
    certify_budgets,
    effective_multipliers,
    recognise_budgets,
)
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.loop import run
from cvxscreen.solvers.within_budgets import WithinBudgets, within_budgets

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
Written = Callable[[int, int, int], cp.Problem]
PROBLEMS: dict[str, Written] = {}


def written(make: Written) -> Written:
    PROBLEMS[make.__name__] = make
    return make


def returns(n: int, d: int, seed: int) -> tuple[np.ndarray, float]:
    """Daily returns, and the risk (CVaR at 95 %) of an equal share of everything."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((n, d)) * rng.uniform(0.5, 1.5, d)
    R = 0.01 * (own + rng.standard_t(4, n)[:, None]) + rng.uniform(0, 0.002, d)
    return R, float(np.sort(-R.mean(axis=1))[-n // 20:].mean())


def fit(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) + rng.standard_t(3, n)


@written
def cvar(n: int, d: int, seed: int) -> cp.Problem:
    R, risk = returns(n, d, seed)
    w = cp.Variable(d)
    rows = [cp.cvar(-R @ w, 0.95) <= risk, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows)


@written
def cvar_program(n: int, d: int, seed: int) -> cp.Problem:
    R, risk = returns(n, d, seed)
    w, level, xi = cp.Variable(d), cp.Variable(), cp.Variable(n)
    rows = [xi >= -R @ w - level, xi >= 0, level + cp.sum(xi) / (0.05 * n) <= risk]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [*rows, cp.sum(w) == 1, w >= 0])


@written
def two_levels(n: int, d: int, seed: int) -> cp.Problem:
    R, risk = returns(n, d, seed)
    w = cp.Variable(d)
    rows = [cp.cvar(-R @ w, 0.95) <= 1.01 * risk, cp.sum(cp.pos(-R @ w)) <= 0.35 * risk * n / 2]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [*rows, cp.sum(w) == 1, w >= 0])


@written
def mean_deviation(n: int, d: int, seed: int) -> cp.Problem:
    R, _ = returns(n, d, seed)
    w, away = cp.Variable(d), R - R.mean(axis=0)
    most = 1.02 * float(np.abs(away.mean(axis=1)).mean())
    rows = [cp.sum(cp.abs(away @ w)) / n <= most, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows)


@written
def shortest(n: int, d: int, seed: int) -> cp.Problem:
    X, y = fit(n, d, seed)
    w = cp.Variable(d)
    rows = [cp.sum(cp.pos(1 - cp.multiply(np.sign(y), X @ w))) <= 0.8 * n]
    return cp.Problem(cp.Minimize(cp.sum_squares(w)), rows)


@written
def sparsest(n: int, d: int, seed: int) -> cp.Problem:
    X, y = fit(n, d, seed)
    w = cp.Variable(d)
    return cp.Problem(cp.Minimize(cp.norm1(w)), [cp.norm1(X @ w - y) <= 1.5 * n])


@written
def losses_of_two_groups(n: int, d: int, seed: int) -> cp.Problem:
    """The fit of everybody, with a bound on the errors of some."""
    X, y = fit(n, d, seed)
    w, b = cp.Variable(d), cp.Variable()
    some = X[: n // 2] @ w + b - y[: n // 2]
    return cp.Problem(cp.Minimize(cp.norm1(X @ w + b - y)), [cp.sum(cp.pos(some)) <= 0.15 * n])


@written
def worst_group(n: int, d: int, seed: int) -> cp.Problem:
    """The worse off of two groups: the largest of two sums of losses is a level above both."""
    X, y = fit(n, d, seed)
    w, b = cp.Variable(d), cp.Variable()
    margins, half = 1 - cp.multiply(np.sign(y), X @ w + b), n // 3
    worst = cp.maximum(cp.sum(cp.pos(margins[:half])) / half, cp.sum(cp.pos(margins[half:])) / n)
    return cp.Problem(cp.Minimize(worst + 0.01 * cp.sum_squares(w)), [w <= 0.5])


@written
def worst_group_through_0(n: int, d: int, seed: int) -> cp.Problem:
    """The same without an intercept: no loss sees the one coordinate that is not squared."""
    X, y = fit(n, d, seed)
    w, third = cp.Variable(d), n // 3
    away = X @ w - y
    worst = cp.maximum(cp.norm1(away[:third]) / third, 2 * cp.sum(cp.pos(away[third:])) / n)
    return cp.Problem(cp.Minimize(worst + 0.01 * cp.sum_squares(w)), [w <= 0.5])


@written
def worst_of_two_risks(n: int, d: int, seed: int) -> cp.Problem:
    """The larger risk of two markets: a level above two sums, each with a level of its own."""
    R, _ = returns(n, d, seed)
    w, half = cp.Variable(d), n // 2
    risks = [cp.cvar(-R[:half] @ w, 0.95), cp.cvar(-R[half:] @ w, 0.9)]
    return cp.Problem(cp.Minimize(cp.maximum(*risks)), [cp.sum(w) == 1, w >= 0])


@written
def worst_of_three(n: int, d: int, seed: int) -> cp.Problem:
    """The same as its linear program, below 0 where nothing is lost."""
    X, y = fit(n, d, seed)
    w, level = cp.Variable(d), cp.Variable()
    rows = [
        cp.norm1(X[k::3] @ w - y[k::3]) / len(y[k::3]) - 3 <= level + 0.01 * k for k in range(3)
    ]
    return cp.Problem(cp.Minimize(level), rows)


@written
def levels_with_a_cost(n: int, d: int, seed: int) -> cp.Problem:
    """A level of its own for each group, which other losses see as well."""
    X, y = fit(n, d, seed)
    w, levels = cp.Variable(d), cp.Variable(2)
    rows = [cp.norm1(X[k::2] @ w - y[k::2]) / len(y[k::2]) <= levels[k] for k in range(2)]
    return cp.Problem(cp.Minimize(cp.sum(cp.pos(levels - 1)) + 0.1 * cp.sum(levels)), rows)


@written
def loose(n: int, d: int, seed: int) -> cp.Problem:
    """A budget that nobody uses up."""
    R, risk = returns(n, d, seed)
    w = cp.Variable(d)
    rows = [cp.cvar(-R @ w, 0.95) <= 20 * risk, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows)


def solved(problem: cp.Problem, **options: Any) -> cp.Problem:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(**options)
    return problem


def made(name: str, n: int = 400, d: int = 5, seed: int = 0) -> BudgetedProblem:
    return recognise_budgets(standardise(canonicalise(PROBLEMS[name](n, d, seed))))


def solution(budgeted: BudgetedProblem) -> BudgetedPoint:
    screened = ScreenedBudgets(budgeted, budgeted.parts, CvxpySolver(), 1e-6)
    screened.begin()
    run(screened)
    assert screened.centre is not None
    assert screened.proof is not None
    assert screened.proof.ok
    return screened.centre


@pytest.mark.table
@pytest.mark.parametrize(("n", "seed"), [(400, 0), (5_000, 1)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_plain_answer(name: str, n: int, seed: int) -> None:
    truth = solved(PROBLEMS[name](n, 5, seed), solver="CLARABEL", **TIGHT)
    problem = solved(PROBLEMS[name](n, 5, seed), method="screen")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert "budget" in report.beside[0]
    if n == 5_000:
        assert report.kept < 0.7 * report.terms
    assert problem.status == truth.status == cp.OPTIMAL
    assert problem.value == pytest.approx(truth.value, rel=1e-6)
    for ours, theirs in zip(problem.constraints, truth.constraints, strict=True):
        assert np.max(ours.violation()) <= 1e-6 * n
        size = max(1e-3, float(np.abs(theirs.dual_value).max()))
        assert np.abs(ours.dual_value - theirs.dual_value).max() <= 1e-3 * size


def test_who_solves_the_reduced_problems() -> None:
    """The built-in method, unless a solver or options of one are named."""
    for name in ("two_levels", "cvar"):
        plain = solved(PROBLEMS[name](3_000, 5, 0), method="screen")
        assert plain.solver_stats.solver_name == "INTERIOR_POINT"
        assert plain.solver_stats.num_iters > 0
    for named in ({"solver": "CLARABEL"}, {"tol_gap_rel": 1e-9}):
        other = solved(PROBLEMS["cvar"](3_000, 5, 0), method="screen", **named)
        assert other.solver_stats.solver_name == "CLARABEL"
        assert other.value == pytest.approx(plain.value, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "seed"), [
        *((name, 0) for name in sorted(PROBLEMS)),
        ("levels_with_a_cost", 1), ("cvar", 2), ("cvar_program", 2),
    ],
)
def test_the_built_in_method_solves_each(name: str, seed: int) -> None:
    """Without a solver of CVXPY, which would hide that it has not.

    In the last two rounding ends what may be had just above what is aimed at.
    """
    budgeted = made(name, 400, 5, seed)
    found = within_budgets(budgeted.objective, budgeted.budgets)
    assert isinstance(found, WithinBudgets)
    truth = solved(PROBLEMS[name](400, 5, seed), solver="CLARABEL", **TIGHT)
    sign = -1.0 if isinstance(truth.objective, cp.Maximize) else 1.0
    objective = budgeted.objective
    value = sign * objective.primal(found.x)
    assert value == pytest.approx(truth.value, rel=1e-6, abs=1e-8)
    pulls = [objective.linear, objective.quadratic.apply(found.x)]
    if objective.side is not None:
        pulls.append(-objective.side.adjoint(found.multipliers))
    for part, slopes, weight in zip(
        budgeted.parts, found.slopes, (1.0, *found.weights), strict=True
    ):
        pulls.append(weight * part.design.adjoint(slopes))
        pulls.append(weight * part.linear if part is not objective else 0.0 * part.linear)
    assert np.abs(sum(pulls)).max() <= 1e-6 * np.abs(pulls).max()


def test_a_relaxation_that_runs_away_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the built-in method has solved a sample, it is asked again with more terms.

    Each of three alike groups may be the worst one, and the sample's is not that of all terms.
    """
    kept: list[tuple[int, bool]] = []

    def within(objective: Any, parts: Any, **options: Any) -> Any:
        found = within_budgets(objective, parts, **options)
        kept.append((sum(part.n for part in parts), found is not None))
        return found

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("another solver was asked")

    monkeypatch.setattr(budgets, "within_budgets", within)
    monkeypatch.setattr(CvxpySolver, "__call__", never)
    rng, w, level = np.random.default_rng(3), cp.Variable(12), cp.Variable()
    X = rng.standard_normal((20_000, 12))
    y = X @ rng.standard_normal(12) + 0.5 * rng.standard_t(3, 20_000)
    rows = [cp.norm1(X[k::3] @ w - y[k::3]) / len(y[k::3]) <= level for k in range(3)]
    problem = solved(cp.Problem(cp.Minimize(level), rows), method="screen")
    assert cvxscreen.Report.of(problem).recognised
    ran_away = [count for count, done in kept if not done]
    assert ran_away
    assert max(ran_away) < 20_000


def test_clarabels_options_go_to_clarabel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where CVXPY's own choice is another one: OSQP for squares below a sum of hinges."""
    monkeypatch.setattr(budgets, "within_budgets", lambda *_, **__: None)
    asked: list[tuple[Any, set[str]]] = []
    original = cp.Problem.solve

    def solve(problem: Any, *args: Any, **options: Any) -> Any:
        asked.append((options.get("solver"), set(options)))
        return original(problem, *args, **options)

    rng = np.random.default_rng(3)
    X = rng.standard_normal((600, 4))
    y = np.sign(X[:, 0] + rng.standard_normal(600))
    w = cp.Variable(4)
    mean = cp.sum(cp.pos(1 - cp.multiply(y, X @ w))) / 600
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w)), [mean <= 0.8])
    monkeypatch.setattr(cp.Problem, "solve", solve)
    for given in ({}, {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000}):
        asked.clear()
        problem.solve(method="screen", **given)
        assert cvxscreen.Report.of(problem).recognised
        inner = asked[1:]
        assert inner
        for solver, options in inner:
            assert ("tol_gap_abs" in options) == (solver == "CLARABEL")


def test_infeasible_and_unbounded_are_cvxpy_s_own() -> None:
    R, risk = returns(3_000, 5, 0)
    w = cp.Variable(5)
    rows = [cp.cvar(-R @ w, 0.95) <= 0.01 * risk, cp.sum(w) == 1, w >= 0]
    problem = solved(cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows), method="screen")
    assert problem.status == cp.INFEASIBLE
    free = [cp.sum(cp.pos(np.abs(R) @ w - 1)) <= 3_000]
    problem = solved(cp.Problem(cp.Minimize(cp.sum(w)), free), method="screen")
    assert problem.status == cp.UNBOUNDED


def test_a_sample_that_is_infeasible_is_no_reason_to_give_up() -> None:
    """The budget is close to the least risk there is; some sample of the terms exceeds it."""
    R, _ = returns(6_000, 5, 4)
    w = cp.Variable(5)
    long_only = [cp.sum(w) == 1, w >= 0]
    level = cp.Variable()
    risk = level + cp.sum(cp.pos(-R @ w - level)) / (0.05 * len(R))
    least = solved(cp.Problem(cp.Minimize(risk), long_only), solver="CLARABEL")
    for share in (1.001, 1.003, 1.01):
        rows = [risk <= share * least.value, *long_only]
        problem = cp.Problem(cp.Maximize(R.mean(axis=0) @ w), rows)
        truth = solved(problem, solver="CLARABEL", **TIGHT).value
        report = solved(problem, method="screen").solver_stats.extra_stats["cvxscreen"]
        assert report.recognised, report.reason
        assert problem.value == pytest.approx(truth, rel=1e-6)


def test_explain_and_certify() -> None:
    problem = PROBLEMS["cvar"](3_000, 5, 3)
    said = cvxscreen.explain(problem)
    assert said.recognised
    assert said.beside == ("a budget of 3000 losses",)
    solved(problem, solver="CLARABEL", **TIGHT)
    assert cvxscreen.certify(problem).ok
    weights = problem.variables()[0]
    weights.value = np.full(5, 0.2)
    proof = cvxscreen.certify(problem)
    assert not proof.ok
    with pytest.raises(NotScreenable, match="budget"):
        cvxscreen.reduce(problem)


def test_safe_mode_says_that_nothing_is_proven() -> None:
    problem = solved(PROBLEMS["cvar"](2_000, 5, 0), method="screen", mode="safe")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert not report.recognised
    assert "proven" in report.reason


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_lagrangian_bounds_every_feasible_point(name: str) -> None:
    """Weak duality: no feasible point is better than the certificate says, at any multipliers."""
    budgeted = made(name)
    best, rng = solution(budgeted), np.random.default_rng(5)
    value = budgeted.objective.primal(best.x)
    for factor in (1.0, 0.5, 2.0):
        other = best._replace(budget_multipliers=factor * best.budget_multipliers)
        for near in (0.0, 0.01, 0.3):
            x = best.x + near * rng.standard_normal(len(best.x))
            proof = certify_budgets(budgeted, other._replace(x=x), 1e-6)
            # The optimum is feasible, so what any x is worse than it by is within its gap.
            allowed = proof.gap + 1e-7 * max(1.0, abs(value))
            assert budgeted.objective.primal(x) - value <= allowed


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_certificate_is_tight(name: str) -> None:
    """At the optimum it is attained."""
    budgeted = made(name)
    best = solution(budgeted)
    proof = certify_budgets(budgeted, best, 1e-6)
    assert proof.ok
    assert proof.gap <= 1e-6 * max(abs(proof.primal), 1e-3)


def test_slack_in_a_budget_is_charged() -> None:
    """A point inside a budget that has a multiplier is not optimal, and not certified."""
    budgeted = made("shortest")
    best = solution(budgeted)
    x = 1.01 * best.x
    value, _, _ = budget_value(budgeted.budgets[0], x)
    assert value < 0
    # The optimum of the Lagrangian with the budget's multiplier, where the budget has slack.
    proof = certify_budgets(budgeted, best._replace(x=x), 1e-6)
    weight = effective_multipliers(budgeted, best.budget_multipliers)[0]
    lost = budgeted.objective.primal(x) - budgeted.objective.primal(best.x)
    assert lost <= proof.gap
    assert proof.gap >= -weight * value
    assert not proof.ok


def test_an_exceeded_budget_is_refused() -> None:
    budgeted = made("shortest")
    best = solution(budgeted)
    proof = certify_budgets(budgeted, best._replace(x=0.99 * best.x), 1e-3)
    assert not proof.ok
    assert "exceeded" in proof.reason
    assert proof.primal_residual > 0


def test_slopes_belong_to_their_budget() -> None:
    """What is the objective's does not scale with a multiplier, what is the budget's does."""
    budgeted = made("losses_of_two_groups")
    assert [part.n for part in budgeted.parts] == [400, 200]
    first, second = budgeted.at(np.array([1.0])), budgeted.at(np.array([3.0]))
    own, shared = budgeted.places
    assert np.array_equal(first.losses.hi[own], second.losses.hi[own])
    assert np.allclose(3.0 * first.losses.hi[shared], second.losses.hi[shared])
    x = np.random.default_rng(0).standard_normal(budgeted.objective.d)
    value = budgeted.objective.primal(x) + 3.0 * budget_value(budgeted.budgets[0], x)[0]
    assert second.primal(x) == pytest.approx(value, rel=1e-12)


def test_a_budget_of_the_coordinates_alone_is_none() -> None:
    """``norm1(w) <= 1`` of many coordinates bounds no losses."""
    rng = np.random.default_rng(0)
    w = cp.Variable(150)
    rows = [cp.norm1(w) <= 1]
    problem = cp.Problem(cp.Minimize(rng.standard_normal(150) @ w), rows)
    with pytest.raises(NotScreenable, match="coordinates"):
        recognise_budgets(standardise(canonicalise(problem)))


def test_a_wrong_prediction_is_put_back() -> None:
    """Terms predicted from a far point are refuted by the margins, and the answer is the same."""
    budgeted = made("cvar", n=6_000, d=8, seed=2)
    right = solution(budgeted)
    screened = ScreenedBudgets(budgeted, budgeted.parts, CvxpySolver(), 1e-6)
    rng = np.random.default_rng(1)
    x = right.x + 0.05 * rng.standard_normal(len(right.x))
    slopes = tuple(part.losses.slope(part.design.forward(x)) for part in budgeted.parts)
    screened.whole, screened.keep = False, 200
    screened.centre = screened.point(BudgetedPair(x, slopes, *right[2:4]))
    run(screened)
    assert screened.proof is not None
    assert screened.proof.ok
    assert sum(entry.refuted for entry in screened.rounds) > 0
    assert screened.proof.primal == pytest.approx(budgeted.objective.primal(right.x), rel=1e-6)


def slack_limits(n: int, d: int, seed: int, loose: float = 3.0) -> tuple[cp.Problem, list[Any]]:
    """The largest mean below two values at risk of which one, or none where `loose`, binds."""
    R, risk = returns(n, d, seed)
    w, levels = cp.Variable(d), [cp.Variable(), cp.Variable()]
    rows = [cp.sum(w) == 1, w >= 0]
    limits = [
        t + cp.sum(cp.pos(-R @ w - t)) / (share * n) <= limit
        for t, share, limit in zip(levels, (0.05, 0.3), (loose * risk, 3.0 * risk), strict=True)
    ]
    cost = R.mean(axis=0) @ w - 1e-4 * cp.norm1(w - 1 / d)
    return cp.Problem(cp.Maximize(cost), [*rows, *limits]), limits


@pytest.mark.parametrize("loose", [3.0, 1.0])
def test_a_budget_that_does_not_bind_is_not_solved_for(loose: float) -> None:
    """Its level may lie anywhere, and what was assumed of its losses be wrong in every round."""
    problem, limits = slack_limits(3_000, 12, 0, loose)
    problem.solve(method="screen")
    report, value = cvxscreen.Report.of(problem), problem.value
    duals = [limit.dual_value for limit in limits]
    assert report.recognised
    assert report.rounds <= 5
    assert report.kept < 0.6 * report.terms
    assert all(limit.violation() <= 1e-12 for limit in limits)
    problem.solve("CLARABEL", **TIGHT)
    assert value == pytest.approx(problem.value, rel=1e-6)
    size = abs(problem.value)
    assert duals == pytest.approx([limit.dual_value for limit in limits], abs=1e-4 * size + 1e-6)
    assert (max(duals) > 1e-3) == (loose == 1.0)


def least_norm(norm: str, loose: float, n: int = 2_000) -> cp.Problem:
    """The least norm of coefficients whose absolute errors are `loose` times those of 0."""
    X, y = fit(n, 6, 0)
    w = cp.Variable(6)
    of = {"squares": cp.sum_squares, "1": cp.norm1, "2": cp.norm2, "inf": cp.norm_inf}[norm]
    limit = loose * float(np.abs(y).sum())
    return cp.Problem(cp.Minimize(of(w)), [cp.norm1(X @ w - y) <= limit])


@pytest.mark.parametrize("loose", [1.0, 1.5])
@pytest.mark.parametrize("norm", ["squares", "1", "2"])
def test_an_optimum_of_0_is_known_at_once(norm: str, loose: float) -> None:
    """No gap is small beside it: whatever comes close would be refused in the end."""
    problem = least_norm(norm, loose)
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert report.kept == 0
    assert (problem.status, problem.value) == ("optimal", 0.0)
    assert problem.variables()[0].value.tolist() == [0.0] * 6
    assert problem.constraints[0].dual_value == 0.0


def test_an_optimum_of_0_but_for_rounding_is_left_to_the_solver() -> None:
    problem = least_norm("inf", 1.5)
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert not report.recognised
    assert "0 but for rounding" in report.reason
    assert problem.value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("norm", ["squares", "1", "2", "inf"])
def test_0_is_no_optimum_where_a_budget_or_a_constraint_forbids_it(norm: str) -> None:
    problem = least_norm(norm, 0.9)
    assert budgets.at_zero(recognise_any(problem)) is None
    loose = least_norm(norm, 1.5)
    w = loose.variables()[0]
    assert budgets.at_zero(recognise_any(loose)) is not None
    forbidden = cp.Problem(loose.objective, [*loose.constraints, cp.sum(w) == 1])
    assert budgets.at_zero(recognise_any(forbidden)) is None
    for found in (problem, forbidden):
        found.solve(method="screen", always=True)
        value = found.value
        assert cvxscreen.Report.of(found).recognised
        found.solve("CLARABEL", **TIGHT)
        assert value == pytest.approx(found.value, rel=1e-6)
        assert value > 0.01


def test_0_is_not_taken_for_the_optimum_of_an_objective_that_falls() -> None:
    """Nor certified, with multipliers of 0."""
    loose = least_norm("squares", 1.5)
    w = loose.variables()[0]
    made = recognise_any(cp.Problem(cp.Minimize(loose.objective.expr + 0.1 * w[0]),
                                    loose.constraints))
    assert budgets.at_zero(made) is None
    zero = budgets.at_zero(recognise_any(loose))
    assert zero is not None
    assert certify_budgets(recognise_any(loose), zero, 1e-6).ok
    assert not certify_budgets(made, zero, 1e-6).ok
    tight = recognise_any(least_norm("squares", 0.9))
    assert "exceeded" in certify_budgets(tight, zero, 1e-6).reason


def test_a_level_is_the_lowest_of_its_budget_and_of_no_other_coordinate() -> None:
    """Over it alone: other coordinates, and levels that two budgets share, stay."""
    problem, _ = slack_limits(600, 5, 1)
    parts = recognise_any(problem).parts
    rng = np.random.default_rng(0)
    x = rng.random(parts[0].d)
    point = BudgetedPoint(
        x, (), np.zeros(2), np.zeros(0), tuple(part.design.forward(x) for part in parts)
    )
    found = budgets.levelled(parts, point)
    moved = np.flatnonzero(found.x != x)
    assert len(moved) == 2
    for part, margins in zip(parts[1:], found.margins[1:], strict=True):
        np.testing.assert_allclose(margins, part.design.forward(found.x), atol=1e-12)
        lowest = budget_value(part, found.x)[0]
        for j in moved:
            for step in (-1e-3, -1e-6, 1e-6, 1e-3):
                other = found.x.copy()
                other[j] += step
                assert budget_value(part, other)[0] >= lowest - 1e-14
    unmoved = budgets.levelled((parts[0], parts[1], parts[1]), point)
    np.testing.assert_array_equal(unmoved.x, x)


# -- at other costs -------------------------------------------------------------------------------


def weighed(name: str, p: Any) -> cp.Problem:
    """With a parameter in the objective: before squares, losses, a level or a linear function."""
    X, y = fit(600, 5, 3)
    R, risk = returns(600, 5, 3)
    w, b = cp.Variable(5), cp.Variable()
    margins, few = 1 - cp.multiply(np.sign(y), X @ w + b), 200
    sums = cp.sum(cp.pos(margins[:few])) / few, cp.sum(cp.pos(margins[few:])) / 400
    share, squares = [cp.sum(w) == 1, w >= 0], cp.sum_squares(w)
    if name == "squares":
        return cp.Problem(cp.Minimize(cp.maximum(*sums) + 0.1 * p * squares))
    if name == "losses":
        return cp.Problem(cp.Minimize(p * sums[0] + 0.1 * squares), [sums[1] <= 0.8])
    if name == "level":
        risks = [cp.cvar(-R[:few] @ w, 0.9), cp.cvar(-R[few:] @ w, 0.9)]
        return cp.Problem(cp.Minimize(p * cp.maximum(*risks) + 0.1 * squares), share)
    rows = [cp.cvar(-R @ w, 0.9) <= 1.01 * risk, *share]
    return cp.Problem(cp.Minimize(0.1 * squares + (p - 1) * (R.mean(axis=0) @ w)), rows)


@pytest.mark.parametrize("name", ["squares", "losses", "level", "linear"])
def test_at_other_costs_no_rule_runs_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of objective, budgets and Lagrangian are those of a new problem."""
    p = cp.Parameter(nonneg=True, value=1.0)
    problem = weighed(name, p)
    solution_cache.cached_recognition(problem, recognise_any)
    by_rules = recognise_budgets
    with monkeypatch.context() as context:
        context.setattr(budgets, "recognise_budgets", lambda _: pytest.fail("rules ran again"))
        found = []
        for p.value in (2.5, 0.3):
            found.append(solution_cache.cached_recognition(problem, recognise_any))
    for known, value in zip(found, (2.5, 0.3), strict=True):
        other = cp.Parameter(nonneg=True, value=value)
        fresh = by_rules(standardise(canonicalise(weighed(name, other))))
        x = np.random.default_rng(4).standard_normal(known.objective.d)
        assert len(known.parts) == len(fresh.parts)
        for ours, theirs in zip(
            (*known.parts, known.lagrangian.problem), (*fresh.parts, fresh.lagrangian.problem),
            strict=True,
        ):
            assert ours.n == theirs.n
            assert ours.primal(x) == pytest.approx(theirs.primal(x), rel=1e-12)
            margins = ours.design.forward(x)
            assert np.allclose(ours.losses.slope(margins), theirs.losses.slope(margins))
    p.value = 0.3
    truth = solved(weighed(name, cp.Parameter(nonneg=True, value=0.3)), solver="CLARABEL", **TIGHT)
    assert solved(problem, method="screen").value == pytest.approx(truth.value, rel=1e-6)
    for ours, theirs in zip(problem.constraints, truth.constraints, strict=True):
        size = max(1e-3, float(np.abs(theirs.dual_value).max()))
        assert np.abs(ours.dual_value - theirs.dual_value).max() <= 1e-3 * size


def test_at_other_levels_no_rule_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frontier: limits in parameters, with a weight in the objective, both or one by one."""
    R, risk = returns(1_500, 6, 4)
    w, limit, bound, weight = cp.Variable(6), *(cp.Parameter(nonneg=True) for _ in range(3))
    problem = cp.Problem(
        cp.Maximize(R.mean(axis=0) @ w - weight * cp.norm1(w - 1 / 6)),
        [cp.sum(w) == 1, w >= 0, cp.cvar(-R @ w, 0.95) <= limit,
         cp.mean(cp.abs(R @ w)) <= bound],
    )
    limit.value, bound.value, weight.value = 1.05 * risk, 0.4 * risk, 1e-4
    assert cvxscreen.explain(problem).recognised
    problem.solve(method="screen")
    rules, counts = budgets.recognise_standard, []

    def counted(*args: Any, **more: Any) -> Any:
        counts.append(1)
        return rules(*args, **more)

    monkeypatch.setattr(budgets, "recognise_standard", counted)
    for at in ((1.0, 0.4, 1.0), (1.02, 0.5, 1.0), (1.3, 0.35, 3.0), (1.1, 0.45, 3.0)):
        limit.value, bound.value, weight.value = at[0] * risk, at[1] * risk, 1e-4 * at[2]
        problem.solve(method="screen")
        report, value = cvxscreen.Report.of(problem), problem.value
        duals = [constraint.dual_value for constraint in problem.constraints[2:]]
        assert report.recognised
        assert max(float(c.violation().max()) for c in problem.constraints) <= 1e-10
        for variable in problem.variables():
            variable.save_value(None)  # CVXPY 1.9 fails to compile `cvar` of known values
        problem.solve("CLARABEL", **TIGHT)
        assert value == pytest.approx(problem.value, rel=1e-6)
        right = [constraint.dual_value for constraint in problem.constraints[2:]]
        assert duals == pytest.approx(right, abs=1e-4 * max(right) + 1e-6)
    assert not counts
    weight.value, limit.value = 1e-4, 1e9  # from so far off the next level would be rounding
    problem.solve(method="screen")
    limit.value = 1.05 * risk
    before = len(counts)
    problem.solve(method="screen")
    assert len(counts) > before
    assert cvxscreen.Report.of(problem).recognised


def test_rows_with_another_entry_are_not_the_same() -> None:
    """Nor a level that is no budget's: the rules run."""
    made = recognise_any(slack_limits(600, 5, 1)[0])
    standard = made.standard
    assert made._same_but_levels(standard)
    offset = standard.rows.offset.copy()
    offset[made.rows[0]] += 1e-3
    assert made._same_but_levels(standard._replace(rows=replace(standard.rows, offset=offset)))
    other = np.flatnonzero(np.isin(np.arange(len(offset)), made.rows, invert=True))[0]
    offset[other] += 1e-3
    assert not made._same_but_levels(standard._replace(rows=replace(standard.rows, offset=offset)))
    sparse = standard.rows.sparse.copy()
    sparse.data[-1] *= 1.5
    assert not made._same_but_levels(standard._replace(rows=replace(standard.rows, sparse=sparse)))
    for k, block in enumerate(standard.rows.blocks):
        matrix = block.matrix.copy()
        matrix[0, 0] += 1.0
        blocks = list(standard.rows.blocks)
        blocks[k] = replace(block, matrix=matrix)
        changed = replace(standard.rows, blocks=tuple(blocks))
        assert not made._same_but_levels(standard._replace(rows=changed))


def test_a_helper_that_comes_to_cost_something_is_no_budgets_alone() -> None:
    """The user's own bounds of losses: at another value of p the objective weighs them, too."""
    def made_of(p: Any) -> cp.Problem:
        X, y = fit(300, 3, 0)
        w, xi = cp.Variable(3), cp.Variable(300)
        rows = [xi >= X @ w - y, xi >= 0, cp.sum(xi) <= 250]
        return cp.Problem(cp.Minimize(cp.sum_squares(w) + (p - 1) * cp.sum(xi)), rows)

    p = cp.Parameter(value=1.0)
    problem = made_of(p)
    for p.value in (1.0, 1.2, 1.0):
        value = solved(problem, method="screen").value
        truth = solved(made_of(cp.Parameter(value=p.value)), solver="CLARABEL", **TIGHT).value
        assert value == pytest.approx(truth, rel=1e-6)


def test_a_loss_that_is_put_into_another_budget_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which of them pays for a term is read off costs, and compared with the user's problem."""
    def exchanged(recognition: Any, standard: Any) -> Any:
        found = original(recognition, standard)
        weights = np.ones(found.problem.n)
        weights[[0, -1]] = 2.0, 0.5
        wrong = replace(found.problem, losses=found.problem.losses.weighted(weights))
        return found._replace(problem=wrong)

    original = budgets.at_costs
    standard = standardise(canonicalise(PROBLEMS["worst_group"](400, 5, 0)))
    recognise_budgets(standard)
    monkeypatch.setattr(budgets, "at_costs", exchanged)
    with pytest.raises(NotScreenable, match=r"agree|not the original"):
        recognise_budgets(standard)
