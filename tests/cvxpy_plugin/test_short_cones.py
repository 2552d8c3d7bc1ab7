"""Norms of residuals that are variables, or with data in a parameter: as short as a triangle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import short_cones
from cvxscreen.cvxpy_plugin.recognise.recognise import (
    RefusedByRules,
    recognise,
    recognise_in_general as in_general,
)
from cvxscreen.cvxpy_plugin.recognise.short_cones import factors
from cvxscreen.cvxpy_plugin.recognise.triangular import BLOCK, TALL
from cvxscreen.cvxpy_plugin.size import measured

cvxpy_plugin.register()

N, D = 400, 4
RNG = np.random.default_rng(20261127)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_normal(N)
LEVEL = 1.1 * np.linalg.norm(Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0])

Form = Callable[[Any, Any, Any, Any], tuple[Any, list[Any]]]
"""Objective and constraints of coordinates, residuals or predictions, an intercept and a number."""


def problem_of(form: Form) -> cp.Problem:
    least, constraints = form(cp.Variable(D), cp.Variable(N), cp.Variable(), cp.Variable())
    return cp.Problem(cp.Minimize(least), constraints)


FORMS: dict[str, Form] = {
    "a norm alone": lambda w, e, b, t: (cp.norm(e), [e == Y - X @ w]),
    "square-root lasso": lambda w, e, b, t: (cp.norm(e, 2) + 3 * cp.norm1(w), [X @ w - Y == e]),
    "an intercept": lambda w, e, b, t: (
        cp.norm(e) + 2 * cp.norm1(w), [Y - X @ w - b - e == 0]),
    "predictions": lambda w, e, b, t: (
        cp.norm(e - Y) + 2 * cp.norm1(w), [e == X @ w + b]),
    "on the simplex": lambda w, e, b, t: (
        cp.norm(e), [e == Y - X @ w, cp.sum(w) == 1, w >= 0]),
    "beside squares": lambda w, e, b, t: (
        cp.norm(e) + cp.sum_squares(w), [e == Y - X @ w]),
    "bounded": lambda w, e, b, t: (cp.norm1(w), [e == Y - X @ w, cp.norm(e) <= LEVEL]),
    "bounded squares": lambda w, e, b, t: (
        cp.norm1(w), [e == Y - X @ w, cp.sum_squares(e) <= LEVEL**2]),
    "an epigraph": lambda w, e, b, t: (
        t + 3 * cp.norm1(w), [e == Y - X @ w, cp.norm(e) <= t]),
    "a cone": lambda w, e, b, t: (t + 3 * cp.norm1(w), [cp.SOC(t, e), e == Y - X @ w]),
    "two norms": lambda w, e, b, t: (
        cp.norm(e[:150]) + 2 * cp.norm(e[150:]) + cp.norm1(w), [e == Y - X @ w]),
    "the larger of two": lambda w, e, b, t: (
        cp.maximum(cp.norm(e[:200]), cp.norm(e[200:])), [e == Y - X @ w]),
    "beside losses": lambda w, e, b, t: (
        cp.sum(cp.pos(Y - X @ w - 1.0)), [e == Y - X @ w, cp.norm(e) <= LEVEL]),
    "beside absolute values of them": lambda w, e, b, t: (
        3 * cp.norm(e) + 0.1 * cp.norm1(e), [e == Y - X @ w]),
    "a budget of them": lambda w, e, b, t: (
        cp.norm(e) + 9 * cp.norm1(w), [e == Y - X @ w, cp.norm1(e) <= 340.0]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str) -> None:
    screened, plain = problem_of(FORMS[form]), problem_of(FORMS[form])
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL", tol_gap_rel=1e-9)
    report = cvxscreen.Report.of(screened)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    size = 1e-6 * (1e-3 + abs(plain.value))
    assert screened.value == pytest.approx(plain.value, abs=size)
    assert screened.objective.expr.value == pytest.approx(screened.value, abs=size)
    for mine, other in zip(screened.variables(), plain.variables(), strict=True):
        room = 1e-3 * (1.0 + np.abs(other.value).max())
        assert np.allclose(mine.value, other.value, rtol=0.0, atol=room)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-7
        dual, truth = flat(mine), flat(other)
        assert np.allclose(dual, truth, rtol=0.0, atol=2e-3 * (1e-3 + np.abs(truth).max()))


def flat(constraint: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part.value) for part in constraint.dual_variables])


def test_residuals_of_zero_have_dual_values() -> None:
    """They have no direction: any dual values of the right sum and length will do."""
    w, e = cp.Variable(D), cp.Variable(N)
    exact = X @ np.array([1.0, 0.5, -1.0, 2.0])
    define = e == X @ w - exact
    problem = cp.Problem(cp.Minimize(10.0 * cp.norm(e) + w[0] + cp.norm1(w[1:])), [define])
    problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).recognised
    assert w.value == pytest.approx([1.0, 0.5, -1.0, 2.0], rel=1e-6)
    # The gradient of the Lagrangian in w is c - X' u, with u the dual values of X w - e.
    assert X.T @ define.dual_value == pytest.approx([1.0, 1.0, -1.0, 1.0], abs=1e-5)
    assert np.linalg.norm(define.dual_value) <= 10.0 * (1.0 + 1e-6)


def test_other_values_of_parameters_are_other_problems() -> None:
    w, e = cp.Variable(D), cp.Variable(N)
    data, y, weight = cp.Parameter((N, D)), cp.Parameter(N), cp.Parameter(nonneg=True)
    forms = {
        "slack": cp.Problem(cp.Minimize(cp.norm(e) + weight * cp.norm1(w)), [e == y - X @ w]),
        "rows": cp.Problem(cp.Minimize(cp.norm(data @ w - Y) + cp.norm1(w))),
        "level": cp.Problem(cp.Minimize(cp.norm1(w)), [cp.norm(X @ w - y) <= LEVEL * weight]),
    }
    for k in range(4):
        data.value, y.value = (1.0 + k) * X, (1.0 + 0.05 * (k // 2)) * Y
        weight.value = 1.0 + 0.1 * (k % 2)
        for name, problem in forms.items():
            found = problem.solve(method="screen", always=True)
            assert cvxscreen.Report.of(problem).recognised, name
            assert found == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6), name


def test_the_report_says_what_is_shorter() -> None:
    problem = problem_of(FORMS["two norms"])
    problem.solve(method="screen", always=True)
    words = ("the norm of 150 residuals as of 5", "the norm of 250 residuals as of 5")
    assert cvxscreen.Report.of(problem).beside == words
    assert cvxscreen.explain(problem_of(FORMS["two norms"])).beside == words


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("form", ["a norm alone", "bounded", "beside losses"])
def test_another_length_is_refused(
    form: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Combinations that are no triangle are found out when they are read, or at the answer."""
    def wrong(matrix: Any) -> Any:
        columns, triangle = factors(matrix)
        return (1.0 + 1e-6) * columns, (1.0 + 1e-6) * triangle

    monkeypatch.setattr(short_cones, "factors", wrong)
    if late:
        for module in ("recognise.check", "recognise.recognise", "composite", "budgets"):
            monkeypatch.setattr(f"cvxscreen.cvxpy_plugin.{module}.check", lambda *a, **k: None)
    problem, plain = problem_of(FORMS[form]), problem_of(FORMS[form])
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert not report.recognised
    if late:  # else an earlier refusal is the one that is told
        assert "norm of residuals" in report.reason
    assert problem.value == pytest.approx(plain.solve(), rel=1e-6)


def short_of(problem: cp.Problem) -> Any:
    try:
        return recognise(problem)
    except RefusedByRules as refusal:
        return in_general(refusal)


@pytest.mark.parametrize("n", [5, 300, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_factors(n: int, scale: float) -> None:
    """Q is orthonormal whatever the columns' sizes, and where one depends on others."""
    rng = np.random.default_rng(n)
    matrix = scale * rng.standard_normal((n, 4)) * [1.0, 1e8, 1e-8, 1.0]
    matrix[:, 3] = matrix[:, 0] + 1e-8 * matrix[:, 1]
    columns, triangle = factors(matrix)
    assert columns.shape == (n, 4)
    assert triangle.shape == (4, 4)
    assert np.abs(columns.T @ columns - np.eye(4)).max() <= 1e-14
    sizes = np.linalg.norm(matrix / scale, axis=0)
    assert (np.abs(columns @ triangle - matrix) / scale).max(axis=0) == pytest.approx(
        np.zeros(4), abs=1e-14 * sizes.max())
    assert (np.abs(columns @ triangle - matrix) / scale <= 1e-13 * sizes).all()


def left() -> dict[str, cp.Problem]:
    w, e, few = cp.Variable(D), cp.Variable(N), TALL * (D + 1)
    wide, thin = cp.Variable(150), sp.random_array((N, 150), density=0.02, rng=1)
    return {
        "few rows": cp.Problem(cp.Minimize(cp.norm(e[:few])), [e[:few] == (Y - X @ w)[:few]]),
        "nearly as many columns": cp.Problem(cp.Minimize(cp.norm(e)), [e == Y - thin @ wide]),
        "residuals that are coordinates": cp.Problem(cp.Minimize(cp.norm(e) + cp.sum(e[:2]))),
    }


@pytest.mark.parametrize("name", left())
def test_what_is_left_long(name: str) -> None:
    problem, plain = left()[name], left()[name]
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert not any("residuals" in words for words in report.beside)
    assert problem.value == pytest.approx(plain.solve(), rel=1e-6, abs=1e-6)


def many_distances(points: Any) -> tuple[cp.Problem, list[Any]]:
    """The smallest ball around `points`, and one of residuals of a line beside it."""
    c, e, w = cp.Variable(points.shape[1]), cp.Variable(N), cp.Variable(D)
    far = [e == Y - X @ w, cp.norm(e) <= LEVEL]
    largest = cp.max(cp.norm(points - c[None, :], axis=1))
    return cp.Problem(cp.Minimize(largest + cp.norm1(w)), far), [c, w]


def test_short_cones_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, shorter = [], short_cones._shorter

    def counted(draft: Any, place: slice, settled: Any) -> Any:
        looked.append(place.stop - place.start)
        return shorter(draft, place, settled)

    points = np.random.default_rng(3).standard_normal((150, 3 * TALL))
    problem, plain = many_distances(points)[0], many_distances(points)[0]
    monkeypatch.setattr(short_cones, "_shorter", counted)
    found = short_of(problem)
    assert looked == [N + 1]
    assert [one.size for one in found.short] == [N + 1]
    problem.solve(method="screen", always=True)
    assert problem.value == pytest.approx(plain.solve(), rel=1e-7)
    for mine, theirs in zip(problem.constraints, plain.constraints, strict=True):
        assert np.allclose(mine.dual_value, theirs.dual_value, atol=1e-5)


def test_one_cone_among_many_is_shortened_by_its_own_columns() -> None:
    w, t, thin = cp.Variable(3 * D), cp.Variable(2), np.zeros((2 * N, 3 * D))
    thin[:N, :D], thin[N:, D : 2 * D] = X, X[::-1]
    e = cp.Variable(2 * N)
    rows = [e == sp.csr_array(thin) @ w - np.r_[Y, Y], cp.norm(e[:N]) <= t[0],
            cp.norm(cp.hstack([e[N:], w])) <= t[1]]
    problem = cp.Problem(cp.Minimize(cp.sum(t) + cp.norm1(w)), rows)
    assert [one.rows.shape[0] for one in short_of(problem).short] == [D + 1, 3 * D + 1]


def test_sparse_rows_that_are_too_many_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    w, e, thin = cp.Variable(12), cp.Variable(N), sp.random_array((N, 12), density=0.1, rng=1)
    problem = cp.Problem(cp.Minimize(cp.norm(e) + cp.norm1(w)), [e == Y - thin @ w])
    assert short_of(problem).short[0].rows.shape == (13, 12 + N + 1 + 12)
    monkeypatch.setattr(short_cones, "MOST_FILLED", N * 13 - 1)
    with pytest.raises(cvxscreen.errors.NotScreenable):
        short_of(problem)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_are_left_to_cvxpy(bad: float) -> None:
    y = Y.copy()
    y[3] = bad
    w, held = cp.Variable(D), cp.Parameter(N, value=Y)
    problem = cp.Problem(cp.Minimize(cp.norm(X @ w - held) + cp.norm1(w)))
    held.project_and_assign(y)
    with pytest.raises(cvxscreen.errors.NotScreenable, match="NaN or infinity"):
        short_of(problem)


def test_data_in_a_parameter_count() -> None:
    w, level = cp.Variable(20), cp.Parameter(nonneg=True)
    data, y = np.broadcast_to(1.0, (100_000, 20)), cp.Parameter(100_000)
    far = [cp.norm(cp.Constant(data) @ w - y) <= level]
    assert measured(cp.Problem(cp.Minimize(cp.norm1(w)), far)).why_not() == ""
    few = [cp.norm(cp.Constant(data[:1000]) @ w - y[:1000]) <= level]
    assert measured(cp.Problem(cp.Minimize(cp.norm1(w)), few)).why_not() != ""
