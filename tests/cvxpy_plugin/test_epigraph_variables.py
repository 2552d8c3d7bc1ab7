"""Variables that only bound one function: read as that function, and written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import auxiliary_variables
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import (
    EpigraphVariable,
    without_epigraph_variables,
)

cvxpy_plugin.register()

N, D = 600, 4
RNG = np.random.default_rng(20261128)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_t(3, N)
SIGNS = np.where(Y > 0, 1.0, -1.0)
TIGHT = {"tol_gap_rel": 1e-9}

Form = Callable[[Any, Any, Any, Any], tuple[Any, list[Any]]]
"""Objective and constraints of coordinates, their residuals and two numbers."""


def problem_of(form: Form, sense: Any = cp.Minimize) -> cp.Problem:
    w = cp.Variable(D)
    least, constraints = form(w, X @ w - Y, cp.Variable(), cp.Variable(nonneg=True))
    return cp.Problem(sense(least if sense is cp.Minimize else -least), constraints)


def hinges(w: Any) -> Any:
    return cp.pos(1 - cp.multiply(SIGNS, X @ w))


FORMS: dict[str, Form] = {
    "huber": lambda w, r, t, u: (t, [cp.sum(cp.huber(r)) <= t]),
    "huber beside an L1 norm": lambda w, r, t, u: (
        2 * t + 5 * cp.norm1(w), [t >= cp.sum(cp.huber(r, 0.5))]),
    "a mean": lambda w, r, t, u: (
        t + 0.1 * cp.norm1(w), [cp.sum(cp.huber(r)) <= N * t, w >= -1]),
    "all on one side": lambda w, r, t, u: (
        t, [cp.sum(cp.huber(r)) - 3 * t + w[0] + 1 <= 0, w <= 1]),
    "squares": lambda w, r, t, u: (t, [cp.sum_squares(r) <= t]),
    "a quadratic over a number": lambda w, r, t, u: (
        u / 2 + cp.norm1(w), [cp.quad_over_lin(r, 4.0) <= u]),
    "squares and an L1 norm, each below a number": lambda w, r, t, u: (
        t + 9 * u, [cp.sum_squares(r) <= t, cp.norm1(w) <= u]),
    "a norm": lambda w, r, t, u: (t + 3 * cp.norm1(w), [cp.norm(r) <= t]),
    "squared hinges": lambda w, r, t, u: (
        cp.sum_squares(w) + t / 7, [cp.sum_squares(hinges(w)) <= 2 * t]),
    "hinges on the simplex": lambda w, r, t, u: (
        t, [cp.sum(hinges(w)) <= t, cp.sum(w) == 1, w >= 0]),
    "a sum of two losses": lambda w, r, t, u: (
        t + cp.norm1(w), [cp.sum(cp.huber(r)) + cp.norm1(r[:99]) <= t]),
    "a largest value": lambda w, r, t, u: (t + 0.1 * cp.norm1(w), [cp.norm_inf(r) <= t]),
    "a conditional value at risk": lambda w, r, t, u: (
        t + 0.1 * cp.norm1(w), [cp.cvar(cp.abs(r), 0.9) <= t]),
    "semideviation": lambda w, r, t, u: (
        t - 0.1 * cp.sum(w), [cp.norm(cp.pos(r)) <= t, cp.sum(w) == 1]),
    "beside a level of losses": lambda w, r, t, u: (
        t, [cp.norm1(w) <= t, cp.sum(cp.huber(r)) <= 1.5 * N]),
}
AT_A_WEIGHT = ("semideviation", "beside a level of losses")


def same_answer(screened: cp.Problem, plain: cp.Problem) -> None:
    size = 1e-6 * (1e-3 + abs(plain.value))
    assert screened.status == cp.OPTIMAL
    assert screened.value == pytest.approx(plain.value, abs=size)
    assert screened.objective.expr.value == pytest.approx(screened.value, abs=size)
    for mine, other in zip(screened.variables(), plain.variables(), strict=True):
        assert np.shape(mine.value) == np.shape(other.value)
        room = 1e-3 * (1.0 + np.abs(other.value).max())
        assert np.allclose(mine.value, other.value, rtol=0.0, atol=room)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-7 * (1.0 + abs(plain.value))
        # CVXPY has one of shape (1,) for squares in a scalar constraint.
        assert np.shape(mine.dual_value) == mine.shape
        truth = np.reshape(other.dual_value, mine.shape)
        room = 2e-3 * (1e-3 + np.abs(truth).max())
        assert np.allclose(mine.dual_value, truth, rtol=0.0, atol=room)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str, sense: Any) -> None:
    screened, plain = problem_of(FORMS[form], sense), problem_of(FORMS[form], sense)
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL")
    report = cvxscreen.Report.of(screened)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    same_answer(screened, plain)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("form", [form for form in FORMS if form not in AT_A_WEIGHT])
def test_a_plain_answer_is_certified(form: str) -> None:
    problem = problem_of(FORMS[form])
    problem.solve(solver="CLARABEL")
    assert cvxscreen.certify(problem).ok
    wasting = next(v for v in problem.variables() if v.size == 1)
    wasting.save_value(wasting.value + 0.01 * (1.0 + abs(wasting.value)))
    assert not cvxscreen.certify(problem).ok


def test_other_values_of_parameters_are_other_problems() -> None:
    w, t, u = cp.Variable(D), cp.Variable((1,)), cp.Variable((1, 1))
    weight, y, far = cp.Parameter(nonneg=True), cp.Parameter(N), cp.Parameter(nonneg=True)
    limits = [cp.sum(cp.huber(X @ w - y)) + far <= 2 * t, far * cp.norm1(w) <= u]
    problem = cp.Problem(cp.Minimize(weight * t + 0.5 * u), limits)
    for k in range(6):
        weight.value, y.value = 0.4 + 0.3 * (k % 2), (1.0 + 0.1 * (k // 2)) * Y
        far.value = 5.0 + k // 3
        problem.solve(method="screen", always=True)
        assert cvxscreen.Report.of(problem).recognised
        answer = [problem.value, t.value, u.value, *(c.dual_value for c in limits)]
        problem.solve(solver="CLARABEL", **TIGHT)
        plain = [problem.value, t.value, u.value, *(c.dual_value for c in limits)]
        for mine, other in zip(answer, plain, strict=True):
            assert np.shape(mine) == np.shape(other)
            assert mine == pytest.approx(other, rel=1e-5)


def test_a_weight_of_zero() -> None:
    w, t, weight = cp.Variable(D), cp.Variable(), cp.Parameter(nonneg=True, value=0.0)
    limit = cp.sum(cp.huber(X @ w - Y)) <= t
    problem = cp.Problem(cp.Minimize(weight * t + cp.norm1(X @ w - Y)), [limit])
    problem.solve(method="screen", always=True)
    assert limit.dual_value == pytest.approx(0.0, abs=1e-7)
    assert limit.violation() <= 1e-9
    assert problem.value == pytest.approx(cp.Problem(cp.Minimize(cp.norm1(X @ w - Y))).solve())


def left() -> dict[str, cp.Problem]:
    w, t, u, p = cp.Variable(D), cp.Variable(), cp.Variable(nonneg=True), cp.Parameter()
    v, steps, some = cp.Variable(), cp.Variable(integer=True), cp.Variable(3)
    r = X @ w - Y
    loss, free = cp.sum(cp.huber(r)), cp.Parameter(value=1.0)
    negative = cp.sum(cp.huber(r)) - 5.0

    def least(objective: Any, *constraints: Any) -> cp.Problem:
        return cp.Problem(cp.Minimize(objective), list(constraints))

    return {
        "no cost": least(cp.norm1(w), loss <= t),
        "a gain": least(cp.norm1(w) - t, loss <= t, t <= 900),
        "a curved cost": least(t**2, loss <= t),
        "a second cost": least(t + cp.pos(t - 1), loss <= t),
        "two costs": least(t + cp.norm1(w) + t, loss <= t),
        "two bounds": least(t, loss <= t, cp.norm1(r) <= t),
        "a bound of its own": least(t, loss <= t, t >= 700),
        "a bound from above": least(t + cp.norm1(w), loss <= t, t <= 900),
        "on both sides": least(t, loss + cp.pos(t) <= 3 * t),
        "linear": least(t, cp.sum(w) <= t, w >= 1),
        "a sign that the function need not have": least(u + cp.norm1(w), negative <= u),
        "an integer": least(steps, loss <= steps),
        "entries": least(cp.sum(some), loss <= some[0], some[1:] >= 0),
        "rows": least(t, cp.huber(r) <= t),
        "an equation": least(t, t == cp.sum(w), loss <= 700),
        "a weight of either sign": least(free * t + cp.norm1(w), loss <= t),
        "a share in a parameter": least(t, loss <= cp.exp(p) * t),
        "an upper bound of another": least(v + cp.norm1(w), loss <= t, t <= v),
    }


@pytest.mark.parametrize("name", left())
def test_what_is_left_alone(name: str) -> None:
    problem = left()[name]
    assert without_epigraph_variables(problem) == (problem, ())


def test_what_is_not_screened_is_solved_as_it_is_written() -> None:
    w, t = cp.Variable(D), cp.Variable()
    limit = cp.sum(cp.exp(X[:40] @ w)) <= 2 * t
    problem = cp.Problem(cp.Minimize(t + cp.sum_squares(w)), [limit, w <= 1])
    problem.solve(method="screen", always=True)
    assert not cvxscreen.Report.of(problem).recognised
    assert t.value == pytest.approx(0.5 * np.exp(X[:40] @ w.value).sum(), rel=1e-5)
    assert limit.dual_value == pytest.approx(0.5, rel=1e-5)


def test_unbounded_in_cvxpy_s_own_words() -> None:
    w, t = cp.Variable(D), cp.Variable()
    problem = cp.Problem(cp.Minimize(t + 1e4 * w[0]), [cp.sum(hinges(w)) <= t])
    assert problem.solve(method="screen", always=True) == -np.inf
    assert problem.status == cp.UNBOUNDED


def test_a_misread_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(EpigraphVariable):
        __slots__ = ()

        def value(self, values: dict[int, Any]) -> Any:
            return (1.0 + 1e-6) * super().value(values)

    monkeypatch.setattr(auxiliary_variables, "EpigraphVariable", Wrong)
    monkeypatch.setattr(cvxscreen.cvxpy_plugin.recognise.check, "_compare", lambda *args: None)
    problem, plain = problem_of(FORMS["huber"]), problem_of(FORMS["huber"])
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert "bound of a variable" in report.reason
    assert problem.value == pytest.approx(plain.solve(), rel=1e-6)
