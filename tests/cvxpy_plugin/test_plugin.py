"""The manners of ``prob.solve(method="screen")``: statuses, refusals, options, and what it says."""

from __future__ import annotations

import re
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.zoo import REFUSED, SPELLINGS, Data

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import cvxpy_solver, plugin, request
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver, options_for, solver_name
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.errors import InvalidInput, UnknownName

cvxpy_plugin.register()


def slack(data: Data) -> Any:
    return next(entry for entry in SPELLINGS if entry.name == "slack").make(data)


def report_of(problem: Any) -> Report:
    return problem.solver_stats.extra_stats["cvxscreen"]


def state(problem: Any) -> list[Any]:
    values = [v.value for v in problem.variables()]
    return [problem.status, problem.value, values, [c.dual_value for c in problem.constraints]]


BEYOND = ("integers", "not_dcp", "three_rows")  # the last is screened beside the losses


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in BEYOND])
def test_what_is_refused_is_solved_plainly_with_the_reason(name: str) -> None:
    make, words = REFUSED[name]
    plain, screened = make(), make()
    plain.solve(solver="CLARABEL")
    assert screened.solve(method="screen", solver="CLARABEL") == pytest.approx(plain.value)
    assert screened.status == plain.status
    report = report_of(screened)
    assert not report.recognised
    assert re.search(words, report.reason)
    assert "solved plainly" in str(report)


def test_infeasible_problems_have_cvxpys_own_status() -> None:
    data = Data()
    bad = [cp.sum(data.w) == 1, data.w <= 0]
    problem = cp.Problem(cp.Minimize(data.ridge + data.hinge), bad)
    assert problem.solve(method="screen") == np.inf
    assert problem.status == cp.INFEASIBLE
    assert data.w.value is None
    assert "infeasible" in report_of(problem).reason


def test_unbounded_problems_have_cvxpys_own_status() -> None:
    data = Data()
    # With one label only, nothing holds the intercept back.
    hinge = cp.sum(cp.pos(1 - (data.X @ data.w + data.b)))
    problem = cp.Problem(cp.Minimize(data.ridge + hinge - data.b))
    plain = cp.Problem(cp.Minimize(data.ridge + hinge - data.b))
    plain.solve(solver="CLARABEL")
    assert problem.solve(method="screen") == plain.value == -np.inf
    assert problem.status == plain.status == cp.UNBOUNDED
    assert not report_of(problem).recognised


def test_integer_problems_go_to_cvxpy() -> None:
    data = Data(n=12)
    error = data.X @ data.whole - data.r
    bounds = [data.xi >= error, data.xi >= -error, data.whole <= 3, data.whole >= -3]
    problem = cp.Problem(cp.Minimize(cp.sum(data.xi)), bounds)
    problem.solve(method="screen", solver="HIGHS")
    assert problem.status == cp.OPTIMAL
    assert np.allclose(data.whole.value, np.round(data.whole.value))
    assert "integer" in report_of(problem).reason


def test_integer_problems_that_no_solver_takes_raise_as_in_cvxpy() -> None:
    problem = REFUSED["integers"][0]()
    with pytest.raises(cp.error.SolverError):
        problem.solve(method="screen", solver="OSQP")
    assert all(variable.value is None for variable in problem.variables())


def test_problems_that_are_not_dcp_raise_as_in_cvxpy() -> None:
    problem = REFUSED["not_dcp"][0]()
    with pytest.raises(cp.error.DCPError):
        problem.solve(method="screen")


def test_a_parameter_without_a_value_raises_as_in_cvxpy() -> None:
    data = Data()
    problem = cp.Problem(cp.Minimize(data.ridge + cp.Parameter(nonneg=True) * data.hinge))
    with pytest.raises(cp.error.ParameterError):
        problem.solve(method="screen")


def test_unknown_solvers_raise_before_anything_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = slack(Data())
    problem.solve(method="screen")
    before = state(problem)
    monkeypatch.setattr(plugin, "recognise", None)
    with pytest.raises(cp.error.SolverError, match="NOSUCH"):
        problem.solve(method="screen", solver="NOSUCH")
    after = state(problem)
    assert after[:2] == before[:2]
    assert all(np.array_equal(a, b) for a, b in zip(before[2], after[2], strict=True))


def test_solvers_that_cannot_take_the_problem_raise_as_in_cvxpy() -> None:
    problem = next(entry for entry in SPELLINGS if entry.name == "norm_ball").make(Data())
    with pytest.raises(cp.error.SolverError, match="OSQP"):
        problem.solve(method="screen", solver="OSQP")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "fast"}, UnknownName, "`mode` is 'fast'"),
        ({"tol": 0.0}, InvalidInput, "`tol`"),
        ({"tol": float("nan")}, InvalidInput, "`tol`"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        slack(Data()).solve(method="screen", **arguments)


@pytest.mark.parametrize("name", ["gp", "qcp", "requires_grad"])
def test_other_kinds_of_solve_are_left_to_cvxpy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def plain(problem: Any, request: Any, reason: str, **how: Any) -> float:
        seen.update(request.options, reason=reason)
        return 0.0

    monkeypatch.setattr(request, "plain", plain)
    slack(Data()).solve(method="screen", **{name: True})
    assert seen[name] is True
    assert name in seen["reason"]


def test_options_reach_the_solver_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CvxpySolver] = []
    original = cvxpy_solver.CvxpySolver

    def spy(solver: Any, options: dict[str, Any]) -> CvxpySolver:
        seen.append(original(solver, options))
        return seen[-1]

    monkeypatch.setattr(cvxpy_solver, "CvxpySolver", spy)
    options = {"max_iter": 70, "tol_feas": 1e-8, "ignore_dpp": True}
    slack(Data()).solve(method="screen", solver="clarabel", **options)
    assert seen[0].options == {**options, "verbose": False}
    assert seen[0].name == "CLARABEL"


def test_loose_solvers_are_tightened_unless_the_user_says_otherwise() -> None:
    assert options_for("scs", {})["eps_abs"] == 1e-9
    assert options_for("OSQP", {"rho": 0.2})["eps_rel"] == 1e-9
    assert options_for("SCS", {"eps": 1e-3}) == {"eps": 1e-3}
    assert options_for("OSQP", {"max_iter": 5}) == {"max_iter": 5}
    assert options_for("CLARABEL", {}) == {}
    assert solver_name(None) == "CLARABEL"


def test_without_a_solver_options_decide_who_solves() -> None:
    """Options without a solver are for CVXPY's own choice, as in a plain solve."""
    problem = slack(Data())
    problem.solve(method="screen", warm_start=True)
    assert problem.solver_stats.solver_name == report_of(problem).solver == "builtin"
    problem.solve(method="screen", eps_abs=1e-8, eps_rel=1e-8)
    assert problem.solver_stats.solver_name == report_of(problem).solver == "OSQP"
    with pytest.raises(cp.error.SolverError):
        problem.solve(method="screen", tol_gap_abs=1e-8)


def test_an_answer_that_is_not_certified_is_called_inaccurate() -> None:
    problem = next(entry for entry in SPELLINGS if entry.name == "metric_trace").make(Data())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(method="screen", solver="SCS", eps=1e-4, tol=1e-12)
    report = report_of(problem)
    assert report.recognised
    assert report.relative_gap > 1e-12
    assert problem.status == cp.OPTIMAL_INACCURATE


def test_useless_answers_are_solved_again_plainly() -> None:
    problem = next(entry for entry in SPELLINGS if entry.name == "metric_trace").make(Data())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(method="screen", solver="SCS", max_iters=2)
    assert not report_of(problem).recognised


def test_a_defect_of_the_recogniser_never_costs_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(problem: Any) -> Any:
        raise TypeError("a defect")

    monkeypatch.setattr(plugin, "recognise", broken)
    problem = slack(Data())
    problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL
    assert "TypeError: a defect" in report_of(problem).reason


def test_statistics_and_report() -> None:
    problem = slack(Data(n=400))
    value = problem.solve(method="screen", solver="OSQP")
    assert value == problem.value
    stats = problem.solver_stats
    assert stats.solver_name == "OSQP"
    assert stats.num_iters > 0
    assert stats.solve_time > 0
    assert set(stats.extra_stats) == {"solver", "cvxscreen", "compilation_time"}
    assert stats.extra_stats["compilation_time"] > 0
    report = report_of(problem)
    assert (report.terms, report.dropped, report.solver) == (400, 0, "OSQP")
    assert report.kept + sum(report.fixed.values()) >= 400
    assert set(report.times) == {"recognise", "screen", "solve", "restore"}
    assert "relative gap" in str(report)
    problem.solve(method="screen", solver="SCS")
    assert {"info", "cvxscreen"} <= set(problem.solver_stats.extra_stats)


@pytest.mark.parametrize("solver", [None, "CLARABEL"])
def test_what_a_problem_says_of_itself_is_there_as_after_a_plain_solve(solver: str | None) -> None:
    """The time of compilation, the second time too (by the last answer), and the sizes."""
    problem, plain = slack(Data()), slack(Data())
    plain.solve(solver="CLARABEL")
    for _ in range(2):
        problem.solve(method="screen", solver=solver)
        assert report_of(problem).recognised
        assert problem.compilation_time == problem.solver_stats.extra_stats["compilation_time"] > 0
    assert vars(problem.size_metrics) == vars(plain.size_metrics)
    plain.solve(method="screen", solver=solver)
    assert plain.compilation_time == plain.solver_stats.extra_stats["compilation_time"]
    plain.solve(solver="CLARABEL")
    assert "compilation_time" not in (plain.solver_stats.extra_stats or {})
    assert plain.compilation_time > 0


def test_verbose_says_what_was_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    slack(Data()).solve(method="screen", verbose=True)
    text = capsys.readouterr().out
    assert "Problem (cvxpy)" in text
    assert "relative gap" in text
    REFUSED["logistic"][0]().solve(method="screen", verbose=True)
    assert "solved plainly by CVXPY, because" in capsys.readouterr().out
    slack(Data()).solve(method="screen")
    assert capsys.readouterr().out == ""


def test_solver_path_goes_through() -> None:
    problem = slack(Data())
    problem.solve(method="screen", solver_path=["CLARABEL", ("SCS", {"eps": 1e-7})])
    assert problem.status == cp.OPTIMAL
    assert report_of(problem).recognised


def test_variables_of_one_name_are_kept_apart() -> None:
    data = Data()
    other = cp.Variable(data.d, name="w")
    objective = data.ridge + cp.sum_squares(other) + cp.sum(
        cp.pos(1 - cp.multiply(data.y, data.X @ data.w + data.X[::-1] @ other)))
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(method="screen")
    first = np.concatenate([data.w.value, other.value])
    problem.solve(solver="CLARABEL")
    assert np.allclose(first, np.concatenate([data.w.value, other.value]), atol=1e-4)


@pytest.mark.parametrize("constraints", [
    lambda s: [s.w <= 0.3, s.w >= -0.2],
    lambda s: [cp.sum(s.w) == 0.5, s.w >= -0.3],
    lambda s: [s.X[:3] @ s.w <= 0.1, cp.norm_inf(s.w) <= 0.25],
], ids=["bounds", "equality", "rows"])
def test_the_builtin_solver_takes_linear_constraints(constraints: Any) -> None:
    """Value, variables and the constraints' dual values as from a plain solve, to its accuracy."""
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    ours, theirs = (
        cp.Problem(cp.Minimize(s.ridge + s.hinge), constraints(s)) for s in (Data(), Data())
    )
    ours.solve(method="screen", solver="builtin")
    theirs.solve(solver="CLARABEL", **tight)
    assert report_of(ours).recognised
    assert report_of(ours).solver == "builtin"
    assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    for mine, plain in zip(ours.variables(), theirs.variables(), strict=True):
        np.testing.assert_allclose(mine.value, plain.value, atol=1e-5)
    for mine, plain in zip(ours.constraints, theirs.constraints, strict=True):
        assert float(np.max(mine.violation())) <= 1e-9
        np.testing.assert_allclose(mine.dual_value, plain.dual_value, atol=1e-4)


def test_the_report_says_what_a_named_solver_did() -> None:
    problem = slack(Data())
    problem.solve(method="screen", solver="CLARABEL")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.named.startswith("optimal after ")
    assert "one call" in report.named
    assert "CLARABEL did" in str(report)
    problem.solve(method="screen")
    assert not problem.solver_stats.extra_stats["cvxscreen"].named
