"""The second door: a solver object that screens the matrices which CVXPY compiled."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import BOTH, MAXIMA, Data as BesideData, problem_of
from cvxpy_plugin.zoo import REFUSED, SPELLINGS, Data

import cvxscreen
from cvxscreen.cvxpy_plugin import request, screened_solver
from cvxscreen.errors import InvalidInput, UnknownName

pytestmark = pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}

PLAIN = {
    # squares of helpers that only an expression tells apart
    "squared_hinge", "epsilon_squared", "elastic_norm", "elastic_parameters",
    "absolute_bound", "largest_entry", "metric", "metric_trace",
    "least_squares_bounds", "lasso_intercept",
}
"""Spellings that the matrices alone do not give away, or that need a PSD cone."""


def duals(problem: Any) -> list[np.ndarray]:
    out = []
    for constraint in problem.constraints:
        value = constraint.dual_value
        out += [np.asarray(v) for v in (value if isinstance(value, list) else [value])]
    return out


@pytest.mark.table
@pytest.mark.parametrize("entry", SPELLINGS, ids=[entry.name for entry in SPELLINGS])
def test_spellings(entry: Any) -> None:
    """The plain solve's value and dual values, whether recognised or not."""
    problem, plain = entry.make(Data()), entry.make(Data())
    problem.solve(solver=cvxscreen.Screened("CLARABEL"), **TIGHT)
    plain.solve(solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised == (entry.name not in PLAIN)
    assert problem.status == plain.status == cp.OPTIMAL
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(duals(problem), duals(plain), strict=True):
        assert np.abs(ours - theirs).max(initial=0.0) <= 1e-4 * max(1.0, np.abs(theirs).max())


@pytest.mark.table
@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("name", BOTH)
def test_losses_beside_another_convex_part(name: str, mode: str) -> None:
    """Maxima of many pieces are screened; what only an expression tells is solved plainly."""
    problem, plain = problem_of(name), problem_of(name)
    problem.solve(solver=cvxscreen.Screened("CLARABEL", mode=mode), **TIGHT)
    plain.solve(solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised == (name in MAXIMA or name == "sum_largest")
    if name in MAXIMA:
        assert "maxima" in report.beside[0]
        assert mode == "certified" or report.kept < 0.6 * report.terms
    assert problem.status == plain.status == cp.OPTIMAL
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.abs(ours.value - theirs.value).max() <= 5e-5 * max(1, np.abs(theirs.value).max())
    for ours, theirs in zip(duals(problem), duals(plain), strict=True):
        assert np.abs(ours - theirs).max(initial=0.0) <= 5e-5 * max(1.0, np.abs(theirs).max())


def test_maxima_in_the_other_solver_and_statuses() -> None:
    problem = problem_of("slack_sum_fixed")
    problem.solve(solver=cvxscreen.Screened("SCS", mode="safe"))
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    found = problem.value
    assert found == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), rel=1e-7)
    data = BesideData()
    objective, rows = MAXIMA["slack"](data)
    bad = cp.Problem(cp.Minimize(objective), [*rows, data.W >= 1, data.W <= 0])
    assert bad.solve(solver=cvxscreen.Screened()) == np.inf
    assert bad.status == cp.INFEASIBLE


@pytest.mark.parametrize("name", ["budget", "logistic"])
def test_what_is_refused_is_solved_plainly(name: str) -> None:
    problem, plain = REFUSED[name][0](), REFUSED[name][0]()
    problem.solve(solver=cvxscreen.Screened())
    plain.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(plain.value, rel=1e-9)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert not report.recognised
    assert report.reason


def test_statuses_are_the_solvers() -> None:
    data = Data()
    bad = cp.Problem(cp.Minimize(data.ridge + data.hinge), [cp.sum(data.w) == 1, data.w <= 0])
    assert bad.solve(solver=cvxscreen.Screened()) == np.inf
    assert bad.status == cp.INFEASIBLE
    hinge = cp.sum(cp.pos(1 - (data.X @ data.w + data.b)))
    free = cp.Problem(cp.Minimize(data.ridge + hinge - data.b))
    assert free.solve(solver=cvxscreen.Screened()) == -np.inf
    assert free.status == cp.UNBOUNDED


def test_compiled_problems_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal solver objects share the compiled problem, and the rules run once."""
    data, C = Data(n=300), cp.Parameter(nonneg=True)
    problem = cp.Problem(cp.Minimize(data.ridge + C * data.hinge))
    runs: list[int] = []
    original = screened_solver.recognise_standard

    def counted(standard: Any) -> Any:
        runs.append(1)
        return original(standard)

    monkeypatch.setattr(screened_solver, "recognise_standard", counted)
    programs = set()
    for value in (1.0, 0.5, 2.0):
        C.value = value
        problem.solve(solver=cvxscreen.Screened("CLARABEL"), **TIGHT)
        programs.add(id(problem._cache.param_prog))
        ours = problem.value
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        again = cp.Problem(cp.Minimize(data.ridge + value * data.hinge))
        assert ours == pytest.approx(again.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
    assert len(programs) == 1
    assert len(runs) == 1


def test_equality_of_solver_objects() -> None:
    one, same = cvxscreen.Screened("CLARABEL"), cvxscreen.Screened("clarabel")
    assert one == same
    assert hash(one) == hash(same)
    assert one != cvxscreen.Screened("CLARABEL", tol=1e-8)
    assert one != cvxscreen.Screened("SCS")
    assert one != "CLARABEL"


def test_scs_and_its_options() -> None:
    data = Data(n=500)
    problem = cp.Problem(cp.Minimize(data.ridge + data.hinge))
    truth = problem.solve(solver="CLARABEL", **TIGHT)
    problem.solve(solver=cvxscreen.Screened("SCS", mode="safe"), eps_abs=1e-9, eps_rel=1e-9)
    assert problem.value == pytest.approx(truth, rel=1e-6)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert (report.mode, report.solver) == ("safe", "SCREENED_SCS")
    assert problem.solver_stats.solver_name == "SCREENED_SCS"
    with pytest.raises(TypeError, match="no_such_option"):
        problem.solve(solver=cvxscreen.Screened(), no_such_option=1)


def test_arguments_are_checked() -> None:
    with pytest.raises(UnknownName, match="solver"):
        cvxscreen.Screened("HIGHS")
    with pytest.raises(InvalidInput, match="tol"):
        cvxscreen.Screened(tol=2.0)
    with pytest.raises(UnknownName, match="mode"):
        cvxscreen.Screened(mode="fast")


@pytest.mark.parametrize(
    ("n", "mode", "screened"),
    [(300, "certified", False), (300, "safe", True), (4000, "certified", True)],
)
def test_small_problems_are_left_to_the_solver(
    n: int, mode: str, screened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    X, y = cvxscreen.datasets.two_gaussians(n, 30)
    w = cp.Variable(30)
    losses = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * losses))
    problem.solve(solver=cvxscreen.Screened("CLARABEL", mode=mode))
    report = cvxscreen.Report.of(problem)
    assert (report.recognised, "small" in report.reason) == (screened, not screened)
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)
