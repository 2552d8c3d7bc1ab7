"""A variable with an L1 norm for each squared residual: Huber's loss, and its part of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import elimination
from cvxscreen.cvxpy_plugin.size import measured

cvxpy_plugin.register()

N, D = 500, 4
RNG = np.random.default_rng(20261129)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_t(2, N)
WEIGHTS = RNG.uniform(0.5, 2.0, N)
SPARSE = sp.random_array((N, D), density=0.4, rng=1, format="csr")

Form = Callable[[Any, Any, Any], tuple[Any, list[Any]]]
"""Objective and constraints of coordinates, outliers and an intercept."""


def problem_of(form: Form, shape: tuple[int, ...] = ()) -> cp.Problem:
    least, constraints = form(cp.Variable((D, *shape)), cp.Variable((N, *shape)), cp.Variable())
    return cp.Problem(cp.Minimize(least), constraints)


def defined(w: Any, o: Any, b: Any) -> tuple[Any, list[Any]]:
    e = cp.Variable(N)
    return cp.sum_squares(e) + 2 * cp.norm1(o), [e == Y - X @ w - o]


def predicted(w: Any, o: Any, b: Any) -> tuple[Any, list[Any]]:
    f = cp.Variable(N)
    return cp.sum_squares(Y - f - o) + 2 * cp.norm1(o), [f == X @ w + b]


def below(w: Any, o: Any, b: Any) -> tuple[Any, list[Any]]:
    return b + 2 * cp.norm1(o), [cp.sum_squares(Y - X @ w - o) <= b]


FORMS: dict[str, Form] = {
    "as it is": lambda w, o, b: (cp.sum_squares(Y - X @ w - o) + 2 * cp.norm1(o), []),
    "an intercept and squares": lambda w, o, b: (
        0.5 * cp.sum_squares(X @ w + b + o - Y) + 0.7 * cp.norm(o, 1) + cp.sum_squares(w), []),
    "an L1 norm": lambda w, o, b: (
        cp.sum_squares(Y - X @ w - b - o) / N + cp.norm1(o) / N + 0.1 * cp.norm1(w), []),
    "weights": lambda w, o, b: (
        cp.sum_squares(Y - X @ w - o) + cp.norm1(cp.multiply(WEIGHTS, o)) + 3 * cp.norm(w), []),
    "multiples": lambda w, o, b: (
        cp.sum_squares(Y - X @ w - cp.multiply(WEIGHTS, o)) + cp.sum(cp.abs(o)), []),
    "on the simplex": lambda w, o, b: (
        cp.sum_squares(Y - X @ w - o) + 2 * cp.norm1(o), [cp.sum(w) == 1, w >= 0]),
    "sparse rows, some of them empty": lambda w, o, b: (
        cp.sum_squares(SPARSE @ w + o - Y) + cp.norm1(o) + cp.norm1(w), []),
    "residuals": defined,
    "predictions": predicted,
    "below a number": below,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str) -> None:
    screened, plain = problem_of(FORMS[form]), problem_of(FORMS[form])
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL", tol_gap_rel=1e-9)
    report = cvxscreen.Report.of(screened)
    assert report.recognised, report.reason
    assert report.terms <= N + D
    assert report.relative_gap <= 1e-6
    size = 1e-7 * (1e-3 + abs(plain.value))
    assert screened.value == pytest.approx(plain.value, abs=size)
    assert screened.objective.expr.value == pytest.approx(screened.value, abs=size)
    for mine, other in zip(screened.variables(), plain.variables(), strict=True):
        room = 1e-3 * (1.0 + np.abs(other.value).max())
        assert np.allclose(mine.value, other.value, rtol=0.0, atol=room)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-7 * (1.0 + abs(plain.value))
        truth = np.reshape(other.dual_value, mine.shape)
        room = 2e-3 * (1e-3 + np.abs(truth).max())
        assert np.allclose(mine.dual_value, truth, rtol=0.0, atol=room)


def test_columns() -> None:
    form: Form = lambda w, o, b: (  # noqa: E731
        cp.sum_squares(Y[:, None] - X @ w - o) + 2 * cp.norm1(o), [w <= 1])
    screened, plain = problem_of(form, (1,)), problem_of(form, (1,))
    screened.solve(method="screen", always=True)
    assert cvxscreen.Report.of(screened).terms == N
    assert screened.value == pytest.approx(plain.solve(solver="CLARABEL"), rel=1e-7)


def test_outliers_are_what_huber_s_loss_leaves() -> None:
    problem = problem_of(FORMS["as it is"])
    problem.solve(method="screen", always=True)
    w, o = problem.variables()
    left = Y - X @ w.value
    assert o.value == pytest.approx(np.sign(left) * np.maximum(np.abs(left) - 1.0, 0.0), abs=1e-9)
    v = cp.Variable(D)
    huber = cp.Problem(cp.Minimize(cp.sum(cp.huber(Y - X @ v))))
    assert problem.value == pytest.approx(huber.solve(method="screen", always=True), rel=1e-9)


def test_other_values_of_parameters_are_other_problems() -> None:
    w, o = cp.Variable(D), cp.Variable(N)
    weight, y = cp.Parameter(nonneg=True), cp.Parameter(N)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(y - X @ w - o) + weight * cp.norm1(o) + cp.norm1(w)))
    for k in range(4):
        weight.value, y.value = 1.0 + k, (1.0 + k % 2) * Y
        found = problem.solve(method="screen", always=True)
        assert cvxscreen.Report.of(problem).recognised
        assert found == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_columns_of_one_entry_are_no_outliers() -> None:
    """A lasso some of whose features are in one row each, several of them in some rows."""
    rng = np.random.default_rng(2)
    rows = sp.csr_array((np.ones(60), (rng.integers(0, 30, 60), np.arange(60))), (N, 60))
    v, b = cp.Variable(60), cp.Variable(D)
    features = sp.csr_array(sp.hstack([rows, SPARSE]))
    whole = cp.sum_squares(features @ cp.hstack([v, b]) - Y)
    problem = cp.Problem(cp.Minimize(whole + cp.norm1(v) + cp.norm1(b)))
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert report.recognised, report.reason
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


@pytest.mark.parametrize(
    ("outliers", "rows"), [([2, 3], [0, 1]), ([2], []), ([2, 3, 4], []), ([], [])]
)
def test_each_square_has_one_or_none_has(outliers: list[int], rows: list[int]) -> None:
    """Of squares 0 and 1 with columns 2 and 4, and 3; a third row defines no square."""
    block = sp.coo_array([[1.0, 0, -1, 0, 2], [0, 1.0, 0, -1, 0], [0, 0, 0, 0, 1.0]])
    some, squared = np.zeros(5, dtype=bool), np.zeros(5, dtype=bool)
    some[outliers], squared[:2] = True, True
    assert list(elimination._one_a_square(block, some, squared)) == rows


def left() -> dict[str, cp.Problem]:
    w, o, s = cp.Variable(D), cp.Variable(N), cp.Variable(N // 2)
    r = Y - X @ w
    half = cp.hstack([s, np.zeros(N - N // 2)])
    return {
        "no data": cp.Problem(cp.Minimize(cp.sum_squares(Y - o) + cp.norm1(o))),
        "differences": cp.Problem(cp.Minimize(cp.sum_squares(Y - o) + cp.norm1(cp.diff(o)))),
        "of half the residuals": cp.Problem(
            cp.Minimize(cp.sum_squares(r - half) + cp.norm1(s))),
        "bounded": cp.Problem(cp.Minimize(cp.sum_squares(r - o) + cp.norm1(o)), [o <= 3]),
        "that sum to nothing": cp.Problem(
            cp.Minimize(cp.sum_squares(r - o) + cp.norm1(o)), [cp.sum(o) == 0]),
        "squared": cp.Problem(
            cp.Minimize(cp.sum_squares(r - o) + cp.norm1(o) + cp.sum_squares(o))),
    }


@pytest.mark.parametrize("name", left())
def test_what_is_left_is_solved_all_the_same(name: str) -> None:
    problem = left()[name]
    problem.solve(method="screen", always=True)
    assert "stopped" not in cvxscreen.Report.of(problem).reason
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_their_rows_count() -> None:
    data, w, o, n = np.broadcast_to(1.0, (20_000, 20)), cp.Variable(20), cp.Variable(20_000), 20_000
    squares = cp.sum_squares(cp.Constant(data) @ w + o - 1.0)
    size = measured(cp.Problem(cp.Minimize(squares + cp.norm1(o))))
    assert (size.terms, size.coordinates, size.smooth) == (n, 20, True)
    assert size.why_not() == ""
    for other in (squares + cp.norm1(o[: n // 2]), squares + cp.norm1(o) + cp.sum_squares(o)):
        assert measured(cp.Problem(cp.Minimize(other))).terms != n


@pytest.mark.parametrize("terms", [N, 4000])
@pytest.mark.parametrize("written", ["norm1", "abs", "pinball", "hinge"])
def test_a_square_that_each_kink_has_for_itself(written: str, terms: int) -> None:
    """``|r - s| + s^2 / 2`` is Huber's loss of r, also where a check would look at a sample."""
    rng = np.random.default_rng(3)
    data = rng.standard_normal((terms, D))
    y = data @ np.arange(D) + rng.standard_t(2, terms)

    def made() -> tuple[cp.Problem, list[cp.Variable]]:
        w, s = cp.Variable(D), cp.Variable(terms)
        r = data @ w - y - s
        loss = {
            "norm1": cp.norm1(r), "abs": cp.sum(cp.abs(r)),
            "pinball": cp.sum(cp.maximum(0.3 * r, -0.7 * r)), "hinge": cp.sum(cp.pos(1 - r)),
        }[written]
        return cp.Problem(cp.Minimize(loss + 0.5 * cp.sum_squares(s) + cp.sum_squares(w))), [w, s]

    (problem, mine), (plain, theirs) = made(), made()
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert (report.recognised, report.terms) == (True, terms)
    plain.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(plain.value, rel=1e-6)
    for one, other in zip(mine, theirs, strict=True):
        assert np.allclose(one.value, other.value, atol=1e-3)
