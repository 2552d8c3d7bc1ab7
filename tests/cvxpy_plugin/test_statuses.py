"""Statuses are CVXPY's: infeasible, unbounded, stopped by a limit, inaccurate; for every form.

A screened answer may be better than the plain one (the pilot has solved it already, say), and is
then called optimal, with a certificate; it is never called anything that the plain solve is not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import ALL, Data as BesideData, problem_of
from cvxpy_plugin.zoo import SPELLINGS, Data

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import plugin
from cvxscreen.cvxpy_plugin.request import Request, plain

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """CVXPY warns of inaccurate solutions, plain and screened."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        yield


def spelled(name: str, *, plain: bool = False) -> Callable[[], Any]:
    entry = next(entry for entry in SPELLINGS if entry.name == name)
    return lambda: entry.make(Data(plain=plain))


LIMITED: dict[str, Callable[[], Any]] = {
    **{name: spelled(name) for name in ("pos", "slack", "bounds", "huber", "elastic_net")},
    **{f"beside_{name}": (lambda name=name: problem_of(name))
       for name in ("slack", "slack_sum_fixed", "crammer_singer", "three_rows")},
}
CONIC: dict[str, Callable[[], Any]] = {
    **{name: spelled(name) for name in ("norm_ball", "metric", "metric_trace")},
    **{f"beside_{name}": (lambda name=name: problem_of(name))
       for name in ("norm", "logistic", "nuclear")},
}
STEPS = {"CLARABEL": "max_iter", "SCS": "max_iters", "OSQP": "max_iter"}
UNMET = 1e-17
"""A tolerance below rounding: a larger one SCS may meet by chance, far beyond its own `eps`."""


def both(make: Callable[[], Any], solver: str, **options: Any) -> tuple[Any, Any]:
    plain, screened = make(), make()
    plain.solve(solver=solver, **options)
    screened.solve(method="screen", solver=solver, **options)
    return plain, screened


CASES = [(name, solver) for name in LIMITED for solver in STEPS]
CASES += [(name, solver) for name in CONIC for solver in ("CLARABEL", "SCS")]
LIMITS = [
    pytest.param(name, solver, steps, marks=[pytest.mark.long] if (place + turn) % 2 else [])
    for place, (name, solver) in enumerate(CASES) for turn, steps in enumerate((1, 6))
]
"""Each problem by each solver with one of the limits; with the other one ``--long``."""


@pytest.mark.table
@pytest.mark.parametrize(("name", "solver", "steps"), LIMITS)
def test_a_limit_of_iterations(name: str, solver: str, steps: int) -> None:
    make = {**LIMITED, **CONIC}[name]
    plain, screened = both(make, solver, **{STEPS[solver]: steps})
    assert plain.status in (cp.USER_LIMIT, cp.OPTIMAL_INACCURATE)
    report = screened.solver_stats.extra_stats["cvxscreen"]
    if screened.status == cp.OPTIMAL:
        truth = problem_of(name[7:]) if name.startswith("beside_") else spelled(name, plain=True)()
        truth.solve(solver="CLARABEL")
        assert report.recognised
        assert report.relative_gap <= 1e-6
        assert screened.value == pytest.approx(truth.value, rel=2e-6)
        return
    assert screened.status == plain.status
    assert all(variable.value is not None for variable in screened.variables())
    if not report.recognised:
        # Too far off to be handed out: what the user gets is the plain solve's answer.
        assert screened.value == pytest.approx(plain.value, rel=1e-9)
        assert "certified" in report.reason
    else:
        assert 1e-6 < report.relative_gap <= 1e-2


def test_both_words_of_a_limit_are_met() -> None:
    """Clarabel and OSQP say `user_limit`, SCS `optimal_inaccurate`; neither is lost on the way."""
    # Problems that no built-in solver takes: its answers are exact, whatever the limit.
    beyond = {"CLARABEL": CONIC["metric_trace"], "SCS": CONIC["metric_trace"],
              "OSQP": LIMITED["beside_slack_sum_fixed"]}
    words = {solver: both(beyond[solver], solver, **{STEPS[solver]: 1}) for solver in STEPS}
    assert {solver: pair[0].status for solver, pair in words.items()} == {
        "CLARABEL": cp.USER_LIMIT, "OSQP": cp.USER_LIMIT, "SCS": cp.OPTIMAL_INACCURATE}
    assert all(plain.status == screened.status for plain, screened in words.values())


@pytest.mark.parametrize("name", ["bounds", "norm_ball"])
def test_an_inaccurate_answer_that_is_handed_out(name: str) -> None:
    """Near the optimum but above the tolerance: recognised, restored, and called inaccurate."""
    screened = spelled(name)()
    screened.solve(method="screen", solver="SCS", eps=1e-4, tol=UNMET)
    report = screened.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert report.relative_gap > UNMET
    assert screened.status == cp.OPTIMAL_INACCURATE
    truth = spelled(name)()
    truth.solve(solver="CLARABEL", **TIGHT)
    assert screened.value == pytest.approx(truth.value, rel=1e-2)


@pytest.mark.table
@pytest.mark.parametrize("name", ALL)
def test_an_inaccurate_answer_beside_another_convex_part(name: str) -> None:
    """It is as far from the optimum as its certificate says, at most."""
    problem, truth = problem_of(name), problem_of(name)
    problem.solve(method="screen", solver="SCS", eps=1e-3, tol=UNMET)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert problem.status == cp.OPTIMAL_INACCURATE
    assert report.relative_gap > UNMET
    truth.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert abs(problem.value - truth.value) <= 1.01 * report.gap + 1e-7 * abs(truth.value)


def impossible(name: str) -> Any:
    data = BesideData()
    objective, constraints = ALL[name](data)
    variable = data.W if any(v is data.W for v in objective.variables()) else data.w
    least = objective if isinstance(objective, cp.Maximize) else cp.Minimize(objective)
    return cp.Problem(least, [*constraints, variable >= 1, variable <= 0])


@pytest.mark.parametrize("name", ALL)
def test_infeasible_beside_another_convex_part(name: str) -> None:
    problem = impossible(name)
    worst = -np.inf if isinstance(problem.objective, cp.Maximize) else np.inf
    assert problem.solve(method="screen", solver="CLARABEL") == worst
    assert problem.status == cp.INFEASIBLE
    assert all(variable.value is None for variable in problem.variables())
    assert not problem.solver_stats.extra_stats["cvxscreen"].recognised


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP", "HIGHS"])
def test_infeasible_by_every_solver(solver: str) -> None:
    data, again = Data(), Data()
    plain, screened = (
        cp.Problem(cp.Minimize(s.ridge + s.hinge), [cp.sum(s.w) == 1, s.w <= 0])
        for s in (data, again)
    )
    if solver == "HIGHS":  # hands HiGHS bounds that are NaN; see test_solve
        plain.solve(solver="CLARABEL")
    else:
        plain.solve(solver=solver)
    assert screened.solve(method="screen", solver=solver) == np.inf
    assert screened.status == plain.status == cp.INFEASIBLE
    assert again.w.value is None


@pytest.mark.parametrize("pull", [0.0, 1e5])
def test_the_engine_finding_no_solution_is_the_end_of_screening(
    pull: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Infeasible constraints are shown; where nothing holds w back the plain solve comes after."""
    from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver

    asked: list[Any] = []
    monkeypatch.setattr(CvxpySolver, "__call__", lambda self, *a, **k: asked.append(a))
    data = Data()
    constraints = [] if pull else [cp.sum(data.w) >= 1, cp.sum(data.w) <= 0]
    problem = cp.Problem(
        cp.Minimize(cp.norm1(data.X @ data.w - data.r) - pull * data.w[0]), constraints
    )
    value = problem.solve(method="screen", always=True)
    assert value == (-np.inf if pull else np.inf)
    assert problem.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE, cp.UNBOUNDED)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised == (not pull)
    assert report.reason.endswith("(unbounded)" if pull else "satisfies its constraints")
    assert not asked


def test_two_words_for_unbounded_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's and one solver's; one solver's alone is asked of another one."""
    asked: list[Any] = []

    def counted(problem: Any, request: Any, reason: str, solver: Any) -> Any:
        asked.append(solver)
        return plain(problem, request, reason, solver)

    monkeypatch.setattr(plugin, "plain", counted)
    data = Data()
    loss = cp.sum(cp.huber(data.X @ data.w - data.r))
    problem = cp.Problem(cp.Minimize(loss - 1e5 * data.w[0]))
    assert problem.solve(method="screen", always=True) == -np.inf
    assert problem.status == cp.UNBOUNDED
    assert len(asked) == 1
    request = Request(None, "certified", 1e-6, False, {})
    assert plugin.plain_after_failure(problem, request, "no answer") == -np.inf
    assert len(asked) == 3


def unbounded(beside: Callable[[Any], Any]) -> Any:
    """One label only, and an intercept that is pulled upwards: nothing holds it back."""
    s = Data()
    loss = cp.sum(cp.pos(1 - (s.X @ s.w + s.b)))
    return cp.Problem(cp.Minimize(s.ridge + loss - s.b + beside(s)))


BESIDE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda s: 0.0,
    "norm1": lambda s: cp.norm1(s.w),
    "norm": lambda s: cp.norm(s.w),
    "logistic": lambda s: cp.sum(cp.logistic(s.X[:5] @ s.w)),
    "maxima": lambda s: cp.sum(cp.maximum(s.X[:9] @ s.w, s.r[:9] - s.X[9:18] @ s.w, 0)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_unbounded(name: str) -> None:
    problem, plain = unbounded(BESIDE[name]), unbounded(BESIDE[name])
    plain.solve(solver="CLARABEL")
    assert problem.solve(method="screen", solver="CLARABEL") == plain.value == -np.inf
    assert problem.status == plain.status == cp.UNBOUNDED
    assert not problem.solver_stats.extra_stats["cvxscreen"].recognised


@pytest.mark.parametrize("solver", ["SCS", "OSQP"])
def test_unbounded_by_other_solvers(solver: str) -> None:
    plain, screened = both(lambda: unbounded(BESIDE["nothing"]), solver)
    assert screened.status == plain.status
    assert plain.status in (cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE)


@pytest.mark.parametrize("name", ["metric_trace", "beside_slack_sum_fixed"])
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_a_limit_behind_the_compilation(name: str, solver: str) -> None:
    make = {**LIMITED, **CONIC}[name]
    plain, screened = make(), make()
    plain.solve(solver=solver, **{STEPS[solver]: 1})
    screened.solve(solver=cvxscreen.Screened(solver), **{STEPS[solver]: 1})
    assert screened.status == plain.status
    assert plain.status in (cp.USER_LIMIT, cp.OPTIMAL_INACCURATE)


def test_a_limit_on_the_way_back() -> None:
    """`Reduced.restore` of a solve that was stopped says what CVXPY says of a stopped solve."""
    problem = problem_of("slack_sum_fixed")
    reduced = cvxpy_plugin.reduce(problem)
    reduced.problem.solve(solver="CLARABEL", max_iter=3)
    assert reduced.problem.status == cp.USER_LIMIT
    assert not reduced.restore().ok
    assert problem.status == cp.USER_LIMIT
