"""Tall least squares beside what no rule takes: solved plainly by CVXPY, with short squares."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import history, request
from cvxscreen.cvxpy_plugin.recognise import short_squares, triangular
from cvxscreen.cvxpy_plugin.recognise.triangular import triangle_of, with_triangles
from cvxscreen.errors import NotScreenedWarning

cvxpy_plugin.register()

N, D, K = 300, 4, 3
RNG = np.random.default_rng(20261127)
X = RNG.standard_normal((N, D))
Y = X @ [0.6, 0.3, 0.1, 0.4] + 0.3 * RNG.standard_normal(N)
OUTPUTS = X @ RNG.standard_normal((D, K)) + RNG.standard_normal((N, K))
FEW = 0.25 * RNG.standard_normal((6, D))


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SHORTER", 0.0)
    monkeypatch.setattr(history, "FEWEST_SHORTER", 0)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.request.STEP_ASIDE", True)


def shares(part: Callable[[Any, Any], Any]) -> cp.Problem:
    w = cp.Variable(D)
    return cp.Problem(cp.Minimize(part(w, X @ w - Y)), [cp.sum(w) == 1, w[0] >= 0.3])


def outputs(residuals: Callable[[Any, Any], Any]) -> cp.Problem:
    W, b = cp.Variable((D, K)), cp.Variable((1, K))
    fit = cp.sum_squares(residuals(W, b) - OUTPUTS) / N
    return cp.Problem(cp.Minimize(fit + 0.3 * cp.normNuc(W)), [cp.sum(W[0]) == 0.2])


def barrier() -> cp.Problem:
    w = cp.Variable(D, nonneg=True)
    gain = 0.1 * cp.sum(cp.log(w)) - cp.sum_squares(X @ w - Y) / N
    return cp.Problem(cp.Maximize(gain), [cp.sum(w) <= 1.5])


FORMS: dict[str, Callable[[], cp.Problem]] = {
    "entropy": lambda: shares(lambda w, r: cp.sum_squares(r) / N - cp.sum(cp.entr(w))),
    "mean of squares": lambda: shares(lambda w, r: cp.mean(r**2) + cp.sum(cp.exp(w))),
    "weights": lambda: shares(
        lambda w, r: cp.sum(cp.multiply(np.linspace(0.0, 1.0, N), cp.square(r))) / N
        + cp.sum(cp.kl_div(w, np.full(D, 1.0 / D)))
    ),
    "a norm": lambda: shares(lambda w, r: cp.norm(r) - cp.sum(cp.entr(w))),
    "two": lambda: shares(
        lambda w, r: cp.sum_squares(r[:200]) / N + cp.sum_squares(r[200:]) + cp.sum(cp.exp(-w))
    ),
    "logistic": lambda: shares(
        lambda w, r: cp.sum_squares(r) / N + cp.sum(cp.logistic(FEW @ w))
    ),
    "a barrier, maximised": barrier,
    "a matrix": lambda: outputs(lambda W, b: X @ W),
    "a matrix of sparse data": lambda: outputs(lambda W, b: sp.csr_array(X * (X > 0.3)) @ W),
    "a matrix and a row": lambda: outputs(lambda W, b: X @ W + b),
    "a matrix and ones": lambda: outputs(lambda W, b: np.ones((N, 1)) @ b - X @ W),
    "a matrix, by columns": lambda: outputs(lambda W, b: cp.hstack([X @ W[:, :1], X @ W[:, 1:]])),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str) -> None:
    short, plain = FORMS[form](), FORMS[form]()
    short.solve(method="screen", solver="CLARABEL")
    plain.solve(solver="CLARABEL")
    report = cvxscreen.Report.of(short)
    assert not report.recognised
    assert report.beside, report.reason
    explanation = cvxscreen.explain(short)
    assert explanation.recognised or explanation.beside == report.beside
    assert "shorter" in str(report)
    assert short.status == plain.status == cp.OPTIMAL
    assert short.value == pytest.approx(plain.value, rel=1e-6)
    assert short.objective.value == short.value
    for mine, other in zip(short.variables(), plain.variables(), strict=True):
        assert np.allclose(mine.value, other.value, atol=1e-3)
    for mine, other in zip(short.constraints, plain.constraints, strict=True):
        assert np.allclose(mine.dual_value, other.dual_value, atol=1e-3)


def test_what_has_become_shorter_gives_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is about problems for which nothing was done."""
    monkeypatch.setattr(request, "ALREADY_SAID", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotScreenedWarning)
        FORMS["entropy"]().solve(method="screen")
        FORMS["logistic"]().solve(method="screen")
    assert not request.ALREADY_SAID


def test_a_matrix_takes_no_more_rows_than_it_has_columns() -> None:
    """However many outputs: the triangle is the data's, not that of a Kronecker product."""
    made, found = with_triangles(FORMS["a matrix and a row"](), objective=True)
    assert found[0].shorter.shape == (D + 1 + K, K)
    assert made.is_dcp()


def test_a_parameter_beside_the_squares_needs_no_new_triangle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = cp.Parameter(nonneg=True)
    problem = shares(lambda w, r: cp.sum_squares(r) / N - weight * cp.sum(cp.entr(w)))
    calls: list[int] = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return triangle_of(*args)

    monkeypatch.setattr(triangular, "triangle_of", counted)
    for value in (0.01, 1.0, 100.0):
        weight.value = value
        problem.solve(method="screen")
        found = problem.value
        assert found == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)
    assert len(calls) == 1


def test_another_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triangle of other data is found out at the answer, and CVXPY asked for its own."""
    monkeypatch.setattr(
        triangular, "triangle_of", lambda *args: (1.0 + 1e-6) * triangle_of(*args)
    )
    for form in ("entropy", "a matrix"):
        problem, plain = FORMS[form](), FORMS[form]()
        problem.solve(method="screen", solver="CLARABEL")
        assert not cvxscreen.Report.of(problem).beside
        assert problem.value == plain.solve(solver="CLARABEL")


def test_without_a_solution_the_status_is_plain_s() -> None:
    w = cp.Variable(D)
    squares = cp.sum_squares(X @ w - Y)
    problem = cp.Problem(cp.Minimize(squares - cp.sum(cp.log(w))), [w <= -1])
    assert problem.solve(method="screen") == np.inf
    assert problem.status == cp.INFEASIBLE
    assert w.value is None


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_integers_raise_what_cvxpy_raises() -> None:
    """Squares and integers are for no solver that comes with CVXPY."""
    w = cp.Variable(D, integer=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - Y)), [cp.abs(w) <= 3])
    try:
        plain = problem.solve()
    except cp.error.SolverError as error:
        with pytest.raises(cp.error.SolverError, match=str(error)[:20]):
            problem.solve(method="screen")
    else:
        assert problem.solve(method="screen") == pytest.approx(plain, rel=1e-6)
        assert cvxscreen.Report.of(problem).beside


def test_what_is_solved_in_another_way_is_left_alone() -> None:
    """A user's own kind of solve gets the user's own expressions."""
    problem = FORMS["entropy"]()
    problem.solve(method="screen", qcp=True)
    assert not cvxscreen.Report.of(problem).beside


def test_nothing_is_kept_alive() -> None:
    problem = FORMS["entropy"]()
    problem.solve(method="screen")
    before = len(short_squares._KNOWN)
    del problem
    assert len(short_squares._KNOWN) == before - 1


# -- squares alone --------------------------------------------------------------------------------

TALL = RNG.standard_normal((400, 12))
SEEN = TALL @ RNG.standard_normal(12) + RNG.standard_normal(400)


def squares(*more: Any, **variable: Any) -> tuple[cp.Problem, cp.Parameter]:
    """Least squares under a few kinds of penalties and constraints, in a `Parameter`."""
    w, weight = cp.Variable(12, **variable), cp.Parameter(nonneg=True, value=3.0)
    parts = [part(w, weight) for part in more]
    fit = cp.sum_squares(TALL @ w - SEEN)
    objective = fit + sum(part for part in parts if isinstance(part, cp.Expression))
    held = [part for part in parts if not isinstance(part, cp.Expression)]
    return cp.Problem(cp.Minimize(objective), held), weight


ALONE: dict[str, Callable[[], tuple[cp.Problem, cp.Parameter]]] = {
    "a lasso": lambda: squares(lambda w, c: 20.0 * c * cp.norm1(w)),
    "groups": lambda: squares(lambda w, c: 9.0 * c * (cp.norm(w[:6]) + cp.norm(w[6:]))),
    "the simplex": lambda: squares(
        lambda w, c: cp.sum(w) == c, lambda w, c: w <= 0.5, nonneg=True
    ),
    "a budget": lambda: squares(lambda w, c: cp.norm1(w) <= c),
    "nothing": lambda: squares(lambda w, c: c * w[0]),
}


@pytest.mark.parametrize("form", ALONE)
def test_squares_alone_are_left_to_clarabel_with_a_triangle(form: str) -> None:
    """As precisely as it solves all of them, dual values too, at every value of a parameter."""
    (short, weight), (plain, other) = ALONE[form](), ALONE[form]()
    for value in (3.0, 1.5, 2.0):
        weight.value = other.value = value
        short.solve(method="screen")
        plain.solve(solver="CLARABEL")
        report = cvxscreen.Report.of(short)
        assert (report.recognised, report.reason, report.solver) == (
            False, request.SHORT, "CLARABEL"
        )
        assert "400 residuals as of 13" in report.beside[0]
        assert short.value == pytest.approx(plain.value, rel=1e-7)
        for mine, full in zip(short.variables(), plain.variables(), strict=True):
            assert np.allclose(mine.value, full.value, atol=1e-5)
        for mine, full in zip(short.constraints, plain.constraints, strict=True):
            assert np.allclose(mine.dual_value, full.dual_value, atol=1e-4)


def test_other_losses_bounded_residuals_and_data_in_parameters_go_their_way() -> None:
    """A triangle is not all that there is of them, or there is none."""
    w, e = cp.Variable(12), cp.Variable(400)
    data = cp.Parameter((400, 12), value=TALL)
    fit = cp.sum_squares(TALL @ w - SEEN)
    others = [
        cp.Problem(cp.Minimize(fit + cp.norm1(TALL @ w))),
        cp.Problem(cp.Minimize(cp.sum_squares(e) + cp.norm1(w)), [e == TALL @ w - SEEN, e <= 9]),
        cp.Problem(cp.Minimize(cp.sum_squares(data @ w - SEEN) + cp.norm1(w))),
        cp.Problem(cp.Minimize(fit), [TALL @ w <= 5.0]),
        cp.Problem(cp.Minimize(sum(cp.square(TALL[i] @ w - SEEN[i]) for i in range(200)))),
    ]
    for problem in others:
        assert request.Request().why_plain(problem) != request.SHORT
    assert request.Request().why_plain(ALONE["a lasso"]()[0]) == request.SHORT
    assert not request.Request(always=True).why_plain(ALONE["a lasso"]()[0])


@pytest.mark.parametrize("status", [cp.OPTIMAL_INACCURATE, cp.USER_LIMIT, "another length"])
def test_what_the_solver_is_not_sure_of_is_screened(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would be without triangles, not left to CVXPY with all of its data."""
    w, rng = cp.Variable(8), np.random.default_rng(0)
    data = rng.standard_normal((20_000, 8))
    fit = cp.sum_squares(data @ w - data[:, 0] - rng.standard_normal(20_000))
    problem = cp.Problem(cp.Minimize(fit), [cp.norm1(w) <= 0.5])
    solve = cp.Problem.solve

    def unsure(self: cp.Problem, *args: Any, **options: Any) -> Any:
        found = solve(self, *args, **options)
        if self is short_squares.with_short_squares(problem).problem:
            self._status = status
        return found

    monkeypatch.setattr(request, "why_wait", lambda *args: "")  # what it loads is loaded
    if status == "another length":
        monkeypatch.setattr(
            triangular, "triangle_of", lambda *args: (1.0 + 1e-6) * triangle_of(*args)
        )
    else:
        monkeypatch.setattr(cp.Problem, "solve", unsure)
    problem.solve(method="screen")
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert report.relative_gap <= 1e-9
    assert problem.status == cp.OPTIMAL


def test_small_ones_wait_until_they_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a triangle takes as long as a few plain solves of so little."""
    monkeypatch.setattr(history, "SHORTER", 0.01)
    monkeypatch.setattr(history, "FEWEST_SHORTER", 3000)
    problem, _ = ALONE["a lasso"]()
    assert not history.short_squares_pay(problem)
    problem.solve(method="screen")
    assert not cvxscreen.Report.of(problem).beside
    history.history(problem).plain.seconds = 0.02
    problem.solve(method="screen")
    assert cvxscreen.Report.of(problem).beside


def test_an_inaccurate_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver of CVXPY's choice then gets the user's own problem."""
    solve, solved = request._solve_as_asked, []

    def inaccurate(problem: cp.Problem, *args: Any) -> None:
        solve(problem, *args)
        solved.append(problem)
        if len(solved) == 1:
            problem._status = cp.OPTIMAL_INACCURATE

    monkeypatch.setattr(request, "_solve_as_asked", inaccurate)
    problem, _ = ALONE["the simplex"]()
    problem.solve(method="screen")
    assert solved[0] is not problem
    assert solved[1] is problem
    assert problem.status == cp.OPTIMAL
    assert not cvxscreen.Report.of(problem).beside


# -- residuals that a variable stands for ---------------------------------------------------------

SCALES = np.linspace(0.5, 2.0, 400)


def in_residuals(part: Callable[[Any, Any], Any], equation: Any = None, *more: Any,
                 **attributes: Any) -> cp.Problem:
    """An objective in coordinates and residuals, which an equation defines."""
    w, e = cp.Variable(12), cp.Variable(400, **attributes)
    held = e == TALL @ w - SEEN if equation is None else equation(w, e)
    return cp.Problem(part(w, e), [*(one(w, e) for one in more), held])


RESIDUALS: dict[str, Callable[[], cp.Problem]] = {
    "a lasso": lambda: in_residuals(
        lambda w, e: cp.Minimize(cp.sum_squares(e) + 20.0 * cp.norm1(w))
    ),
    "the other way": lambda: in_residuals(
        lambda w, e: cp.Minimize(cp.sum(e**2) / 400 + 0.1 * cp.norm1(w)),
        lambda w, e: TALL @ w + e == SEEN,
        lambda w, e: cp.sum(w) == 1,
    ),
    "a norm": lambda: in_residuals(
        lambda w, e: cp.Minimize(3.0 * cp.norm(e) + cp.sum_squares(w)),
        lambda w, e: e - SEEN + TALL @ w == 0,
    ),
    "weights, maximised": lambda: in_residuals(
        lambda w, e: cp.Maximize(w[0] - cp.sum_squares(cp.multiply(SCALES, e)) / 400),
        None,
        lambda w, e: w >= 0,
        lambda w, e: cp.sum(w) <= 2,
    ),
    "beside what CVXPY has no gradient of": lambda: in_residuals(
        lambda w, e: cp.Minimize(cp.sum_squares(e) + 9.0 * cp.norm_inf(w)),
    ),
    "twice": lambda: in_residuals(
        lambda w, e: cp.Minimize(
            cp.sum_squares(e[:200]) + 2.0 * cp.sum_squares(e[100:]) + 9.0 * cp.norm(w)
        ),
    ),
    "a cone": lambda: in_residuals(
        lambda w, e: cp.Minimize(cp.sum_squares(e)),
        lambda w, e: cp.Zero(e + SEEN - TALL @ w),
        lambda w, e: cp.norm(w) <= 1,
    ),
}


@pytest.mark.parametrize("form", RESIDUALS)
def test_residuals_are_written_out(form: str) -> None:
    """Values of the variable, and the equation's multipliers, are those of the user's problem."""
    short, plain = RESIDUALS[form](), RESIDUALS[form]()
    for _ in range(2):
        short.solve(method="screen")
        plain.solve(solver="CLARABEL")
        report = cvxscreen.Report.of(short)
        assert (report.reason, report.solver) == (request.SHORT, "CLARABEL")
        assert report.beside
        assert short.value == pytest.approx(plain.value, rel=1e-7)
        for mine, full in zip(short.variables(), plain.variables(), strict=True):
            assert np.allclose(mine.value, full.value, atol=1e-4)
        for mine, full in zip(short.constraints, plain.constraints, strict=True):
            assert np.shape(mine.dual_value) == np.shape(full.dual_value)
            assert np.allclose(mine.dual_value, full.dual_value, atol=1e-3)
            assert np.abs(mine.violation()).max() < 1e-6


def test_two_kinds_of_residuals_and_a_matrix_of_them() -> None:
    def problem() -> cp.Problem:
        w, b = cp.Variable(12), cp.Variable()
        first, second = cp.Variable((40, 10)), cp.Variable(200)
        rows = cp.reshape(TALL @ w - SEEN - b, (40, 10), order="C")
        fit = cp.sum_squares(first) + cp.norm(second) + cp.norm1(w)
        return cp.Problem(cp.Minimize(fit), [first == rows, TALL[:200] @ w - 1 == second])

    short, plain = problem(), problem()
    short.solve(method="screen")
    plain.solve(solver="CLARABEL")
    assert len(cvxscreen.Report.of(short).beside) == 2
    assert short.value == pytest.approx(plain.value, rel=1e-7)
    for mine, full in zip(short.constraints, plain.constraints, strict=True):
        assert np.allclose(mine.dual_value, full.dual_value, atol=1e-4)


@pytest.mark.parametrize("form", ["bounded", "in another constraint", "absolute", "scaled", "free"])
def test_variables_that_are_more_than_residuals_are_left(form: str) -> None:
    """What else is asked of them would be lost."""
    def squares(w: Any, e: Any) -> Any:
        return cp.Minimize(cp.sum_squares(e) + cp.norm1(w))

    problems = {
        "bounded": lambda: in_residuals(squares, nonneg=True),
        "in another constraint": lambda: in_residuals(squares, None, lambda w, e: cp.sum(e) == 0),
        "absolute": lambda: in_residuals(lambda w, e: cp.Minimize(cp.sum_squares(e) + cp.norm1(e))),
        "scaled": lambda: in_residuals(squares, lambda w, e: 2 * e == TALL @ w - SEEN),
        "free": lambda: in_residuals(squares, lambda w, e: e - e == TALL @ w - w[0]),
    }
    problem = problems[form]()
    assert short_squares.written_out(problem)[0] is problem
    assert short_squares.with_short_squares(problem) is None


def test_residuals_of_no_solution_have_no_values() -> None:
    problem = in_residuals(
        lambda w, e: cp.Minimize(cp.sum_squares(e)), None, lambda w, e: w[0] == 1,
        lambda w, e: w[0] == 2,
    )
    assert problem.solve(method="screen") == np.inf
    assert problem.status == cp.INFEASIBLE
    assert all(variable.value is None for variable in problem.variables())
    short_squares.written_out(problem)
    before = len(short_squares._WRITTEN)
    del problem
    assert len(short_squares._WRITTEN) == before - 1
