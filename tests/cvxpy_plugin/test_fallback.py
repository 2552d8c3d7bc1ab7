"""Where screening does not end with a certificate: CVXPY's answer, or the better of the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import plugin, request
from cvxscreen.errors import NotScreenable, UnknownName

cvxpy_plugin.register()

N, D = 200, 5


def data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    labels = np.sign(X[:, 0] + 0.5 * rng.standard_normal(N))
    return X, labels, X @ rng.standard_normal(D) + 0.3 * rng.standard_normal(N)


def svm(squares: float = 1.0, column: float = 1.0, bounded: bool = False) -> Any:
    X, labels, _ = data()
    X[:, 0] *= column
    w, b = cp.Variable(D), cp.Variable()
    hinge = cp.sum(cp.pos(1 - cp.multiply(labels, X @ w + b)))
    return cp.Problem(cp.Minimize(0.5 * squares * cp.sum_squares(w) + hinge),
                      [cp.sum(w) <= 1] if bounded else [])


def regression(loss: Callable[[Any], Any], target: float = 1.0, column: float = 1.0) -> Any:
    X, _, y = data()
    X[:, 0] *= column
    w, b = cp.Variable(D), cp.Variable()
    error = X @ w + b - target * y
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(loss(error))))


EXTREME: dict[str, Callable[[], Any]] = {
    "small squares": lambda: svm(squares=1e-8),
    "large squares": lambda: svm(squares=1e8),
    "small squares and a constraint": lambda: svm(squares=1e-8, bounded=True),
    "a large column": lambda: svm(column=1e8),
    "a large column of absolute values": lambda: regression(cp.abs, column=1e8),
    "large targets": lambda: regression(cp.abs, target=1e8),
    "a large Huber threshold": lambda: regression(lambda e: cp.huber(e, 1e6)),
    "a large column of a Huber loss": lambda: regression(cp.huber, column=1e8),
}
RANK = {cp.OPTIMAL: 0, cp.OPTIMAL_INACCURATE: 1, cp.USER_LIMIT: 2}


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("solver", [None, "builtin"])
@pytest.mark.parametrize("name", EXTREME)
def test_never_worse_than_clarabel(name: str, solver: str | None) -> None:
    """Neither in status nor, where Clarabel has a solution, in the objective."""
    truth, problem = EXTREME[name](), EXTREME[name]()
    truth.solve(solver="CLARABEL")
    problem.solve(method="screen", solver=solver)
    assert RANK.get(problem.status, 3) <= RANK.get(truth.status, 3)
    if truth.status == cp.OPTIMAL:
        assert problem.value <= truth.value + 1e-5 * abs(truth.value)


def test_whatever_stops_the_loop_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise FloatingPointError("a defect")

    monkeypatch.setattr(plugin, "run", broken)
    problem, truth = svm(), svm()
    assert problem.solve(method="screen") == pytest.approx(truth.solve(solver="CLARABEL"))
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert not report.recognised
    assert "FloatingPointError: a defect" in report.reason


def test_an_answer_without_certificate_is_solved_again() -> None:
    problem = svm(bounded=True)
    problem.solve(method="screen", tol=1e-15)
    assert problem.status == cp.OPTIMAL
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert not report.recognised
    assert "not certified" in report.reason


def failing(*_: Any, **options: Any) -> Any:
    """A solver that gives up."""
    raise cp.error.SolverError("no answer")


def stops_early(n: int = 1200) -> Any:
    """A small problem at which OSQP, CVXPY's choice, stops at its limit of iterations."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, D))
    y = X @ rng.standard_normal(D) + rng.standard_normal(n)
    w, b = cp.Variable(D), cp.Variable()
    cost = cp.sum_squares(w) + cp.norm1(X @ w + b - y)
    return cp.Problem(cp.Minimize(cost), [cp.norm1(w) <= 1])


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_nor_is_what_is_not_recognised_left_where_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read in vain, as ``always=True`` asks, or as its size says."""
    problem, precise = stops_early(), stops_early()
    monkeypatch.setattr(plugin, "recognise_any", lambda _: refuse())
    monkeypatch.setattr(request, "ALREADY_SAID", ["before"])
    value = problem.solve(method="screen", always=True)
    assert problem.status == cp.OPTIMAL
    assert value == pytest.approx(precise.solve(solver="CLARABEL"), rel=1e-7)
    assert not cvxscreen.Report.of(problem).recognised
    problem.solve(method="screen", always=True, solver="OSQP")  # nobody else's
    assert problem.status == cp.USER_LIMIT


def refuse() -> Any:
    raise NotScreenable("not today")


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_where_cvxpys_choice_stops_early_another_solver_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    plain, precise, problem = stops_early(), stops_early(), stops_early()
    plain.solve()
    assert plain.status == cp.USER_LIMIT
    value = problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL
    assert value == pytest.approx(precise.solve(solver="CLARABEL"), rel=1e-7)
    report = cvxscreen.Report.of(problem)
    assert not report.recognised
    assert "small" in report.reason
    named = stops_early()  # whoever names a solver gets its answer
    named.solve(method="screen", solver="OSQP")
    assert named.status == plain.status


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_another_solver_does_not_meet_the_values_that_the_first_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CVXPY cannot compile ``sum_largest`` of a fractional number of values that are known."""
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    problem = stops_early()
    [w] = (v for v in problem.variables() if v.shape)
    objective = cp.Minimize(problem.objective.expr + cp.sum_largest(w, 1.5))
    problem = cp.Problem(objective, problem.constraints)
    problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL


def test_a_plain_solve_does_not_fail_because_of_the_values_of_a_screened_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same: CVXPY alone compiles before there are values. After an error they are as before."""
    rng = np.random.default_rng(0)
    w, least = cp.Variable(3), cp.Parameter(value=0.0)
    risk = cp.cvar(-rng.standard_normal((90, 3)) @ w, 0.95)
    problem = cp.Problem(cp.Minimize(risk), [w >= 0, cp.sum(w) == 1, w[0] >= least])
    problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).recognised
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    least.value, before = 0.9, w.value
    with pytest.raises(TypeError, match="no_such_option"):
        request.plain(problem, request.Request(options={"no_such_option": 1}), "asked", "CLARABEL")
    np.testing.assert_array_equal(w.value, before)
    for variable in problem.variables():  # then nothing fails in compiling, and nothing is repeated
        variable.save_value(None)
    solves, solve = [], cp.Problem.solve
    monkeypatch.setattr(cp.Problem, "solve", lambda *a, **k: solves.append(a) or solve(*a, **k))
    with pytest.raises(TypeError, match="no_such_option"):
        request.plain(problem, request.Request(options={"no_such_option": 1}), "asked", "CLARABEL")
    assert len(solves) == 1
    monkeypatch.undo()
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    w.value = before
    problem.solve(method="screen")
    assert not cvxscreen.Report.of(problem).recognised
    assert w.value[0] == pytest.approx(0.9, abs=1e-6)


def test_where_cvxpys_choice_fails_another_solver_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    problem = stops_early()
    with monkeypatch.context() as without:
        without.setattr(request, "plain", failing)
        without.setattr(plugin, "plain", failing)
        with pytest.raises(cp.error.SolverError, match="no answer"):
            problem.solve(method="screen")
    monkeypatch.setattr(request, "plain", failing)
    problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL
    with pytest.raises(cp.error.SolverError, match="no answer"):
        problem.solve(method="screen", solver="CLARABEL")


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_the_screened_answer_stays_where_the_plain_one_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "plain", failing)
    problem, truth = svm(bounded=True), svm(bounded=True)
    value = problem.solve(method="screen", tol=1e-15)
    assert problem.status == cp.OPTIMAL_INACCURATE
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert value == pytest.approx(truth.solve(solver="CLARABEL"), rel=1e-6)
    assert problem.constraints[0].dual_value is not None


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_the_better_of_two_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    original = plugin.plain

    def cut_short(problem: Any, request: Any, reason: str, solver: Any = None) -> Any:
        found = original(problem, plugin.Request("CLARABEL", options={"max_iter": 2}), reason)
        assert problem.status == cp.USER_LIMIT
        return found

    monkeypatch.setattr(plugin, "plain", cut_short)
    problem, truth = svm(bounded=True), svm(bounded=True)
    value = problem.solve(method="screen", tol=1e-15)
    assert problem.status == cp.OPTIMAL_INACCURATE
    assert value == pytest.approx(truth.solve(solver="CLARABEL"), rel=1e-6)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    original = plugin.recognise

    def spy(problem: Any) -> Any:
        calls.append(problem)
        return original(problem)

    monkeypatch.setattr(plugin, "recognise", spy)
    return calls


def test_a_refusal_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    x, first = cp.Variable(3), cp.Parameter(3, value=[1.0, 2.0, 3.0])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= 1, x[0] == first[0]])
    reasons = set()
    for value in ([1.0, 2.0, 3.0], [2.0, 1.0, 5.0], [3.0, 1.0, 7.0]):
        first.value = value
        problem.solve(method="screen")
        assert x.value[0] == pytest.approx(value[0], abs=1e-4)
        reasons.add(problem.solver_stats.extra_stats["cvxscreen"].reason)
    assert len(calls) == 1
    assert len(reasons) == 1
    first.value = [-1.0, 2.0, 3.0]
    problem.solve(method="screen")
    assert len(calls) == 2


def test_a_refusal_does_not_outlive_what_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    X, labels, _ = data()
    w, C = cp.Variable(D), cp.Parameter(nonneg=True, value=0.0)
    hinge = cp.sum(cp.pos(1 - cp.multiply(labels, X @ w)))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * hinge))
    problem.solve(method="screen")
    assert not problem.solver_stats.extra_stats["cvxscreen"].recognised
    C.value = 1.0
    problem.solve(method="screen")
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert len(calls) == 2


def test_verify_where_cvxpy_refuses_the_values_of_its_helpers() -> None:
    """With values in the variables, CVXPY's canonicaliser for HIGHS may raise on derived bounds."""
    X, labels, _ = data()
    w, b = cp.Variable(D, bounds=[-np.inf, 0.1]), cp.Variable(bounds=[-1, 1])
    hinge = cp.sum(cp.pos(1 - cp.multiply(labels, X @ w + b)))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + hinge))
    solvers = ["CLARABEL", "SCS", "OSQP", "HIGHS"]
    try:  # CVXPY 1.8 cannot run this problem through HiGHS 1.16: then nobody compares with it
        cp.Problem(problem.objective).solve(solver="HIGHS")
    except cp.error.SolverError:
        solvers.remove("HIGHS")
    found = cvxscreen.verify(problem, solvers)
    assert len(found.runs) == len(solvers), found
    assert all(run.agrees for run in found.runs if run.report.solver != "HIGHS")


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_behind_the_compilation_the_better_answer_stays_too() -> None:
    problem, truth = svm(bounded=True), svm(bounded=True)
    problem.solve(solver=cvxpy_plugin.Screened("CLARABEL", tol=1e-15))
    assert problem.status == cp.OPTIMAL
    assert "not certified" in problem.solver_stats.extra_stats["cvxscreen"].reason
    assert problem.solver_stats.num_iters > 0
    assert problem.value == pytest.approx(truth.solve(solver="CLARABEL"))


def test_screened_says_what_to_do_with_other_solvers() -> None:
    with pytest.raises(UnknownName, match=r"method='screen', solver='OSQP'"):
        cvxpy_plugin.Screened("OSQP")


@pytest.mark.filterwarnings("ignore:Your problem is mixed-integer")
def test_exceptions_are_cvxpys_own() -> None:
    """What CVXPY refuses is refused by CVXPY, in the same words."""
    for kind in ({"integer": True}, {"boolean": True}):
        x = cp.Variable(3, **kind)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(x - 0.3) + cp.norm1(x)))
        for options in ({"solver": "CLARABEL"}, {}):
            with pytest.raises(cp.error.SolverError) as plain:
                problem.solve(**options)
            with pytest.raises(cp.error.SolverError) as screened:
                problem.solve(method="screen", **options)
            assert str(plain.value) == str(screened.value)
    z = cp.Variable(3, complex=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(z - 0.3) + cp.norm1(z)))
    value = problem.solve(method="screen", solver="CLARABEL")
    assert value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_a_named_solver_gets_little_more_than_cvxpy_gives_it() -> None:
    """What OSQP does not solve soon it does not solve: the fallback must not wait for it."""
    assert request.options_for("OSQP", {})["max_iter"] <= 20_000
    assert request.options_for("OSQP", {"max_iter": 7}) == {"max_iter": 7}
