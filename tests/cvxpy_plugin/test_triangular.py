"""Long residuals under norms and bounded squares: their triangle, and the plain answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import triangular
from cvxscreen.cvxpy_plugin.recognise.matrices import Scaled
from cvxscreen.cvxpy_plugin.recognise.triangular import BLOCK, TALL, triangle_of, with_triangles
from cvxscreen.cvxpy_plugin.size import measured

cvxpy_plugin.register()

N, D = 400, 4
RNG = np.random.default_rng(20261126)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_normal(N)
R = 0.01 * X + 0.0005
INDEX = R @ np.full(D, 1.0 / D) + 0.001 * RNG.standard_normal(N)
FAR = 0.004


def error_of_tracking(length: Callable[[Any], Any]) -> cp.Problem:
    w = cp.Variable(D)
    limits = [length(R @ w - INDEX), cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), limits)


def fit(part: Callable[[Any, Any], Any]) -> cp.Problem:
    w, b = cp.Variable(D), cp.Variable()
    return cp.Problem(cp.Minimize(part(w, X @ w + b - Y)))


def bounded_by_variable() -> cp.Problem:
    w, t = cp.Variable(D), cp.Variable()
    return cp.Problem(cp.Minimize(t + 0.3 * cp.norm1(w)), [cp.norm(X @ w - Y) <= t, w <= 1])


def matrix() -> cp.Problem:
    W = cp.Variable((D, 2))
    residuals = X @ W - np.column_stack([Y, -2.0 * Y[::-1]])
    return cp.Problem(cp.Minimize(cp.norm(residuals, "fro") + cp.mixed_norm(W, 2, 1)))


def worse_half() -> cp.Problem:
    w = cp.Variable(D)
    r = X @ w - Y
    half = N // 2
    return cp.Problem(cp.Minimize(cp.maximum(cp.norm(r[:half]), cp.norm(r[half:]) + cp.sum(w))))


def beside_losses() -> cp.Problem:
    w = cp.Variable(D)
    near = cp.norm(R @ w - INDEX) <= FAR * N**0.5
    return cp.Problem(cp.Minimize(cp.cvar(-R @ w, 0.9)), [near, cp.sum(w) == 1, w >= 0])


def beside_a_budget() -> cp.Problem:
    w = cp.Variable(D)
    near = cp.sum_squares(R @ w - INDEX) <= N * FAR**2
    limits = [near, cp.cvar(-R @ w, 0.9) <= 0.012, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), limits)


FORMS: dict[str, Callable[[], cp.Problem]] = {
    "a norm": lambda: error_of_tracking(lambda r: cp.norm(r) <= FAR * N**0.5),
    "a norm of fractions": lambda: error_of_tracking(lambda r: cp.norm(r / N**0.5, 2) <= FAR),
    "squares": lambda: error_of_tracking(lambda r: cp.sum_squares(r) / N <= FAR**2),
    "a mean of squares": lambda: error_of_tracking(lambda r: cp.mean(r**2) <= FAR**2),
    "a quadratic over a number": lambda: error_of_tracking(
        lambda r: cp.quad_over_lin(r, float(N)) <= FAR**2
    ),
    "a norm squared": lambda: error_of_tracking(lambda r: cp.square(cp.norm(r)) <= N * FAR**2),
    "square-root lasso": lambda: fit(lambda w, r: cp.norm(r) + 2.0 * cp.norm1(w)),
    "two norms": lambda: fit(lambda w, r: cp.norm(r) + 0.5 * cp.norm(w)),
    "a norm alone": lambda: fit(lambda w, r: cp.norm(r)),
    "a variable's bound": bounded_by_variable,
    "a matrix": matrix,
    "the larger of two": worse_half,
    "beside losses": beside_losses,
    "beside a budget": beside_a_budget,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str) -> None:
    screened, plain = FORMS[form](), FORMS[form]()
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL", tol_gap_rel=1e-9)
    report = cvxscreen.Report.of(screened)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    size = 1e-6 * (1e-3 + abs(plain.value))
    assert screened.value == pytest.approx(plain.value, abs=size)
    assert screened.objective.expr.value == pytest.approx(screened.value, abs=size)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-7
        room = 1e-3 * (1e-3 + np.abs(other.dual_value).max())
        assert np.allclose(mine.dual_value, other.dual_value, rtol=0.0, atol=room)


def cones() -> dict[str, cp.Problem]:
    w, t = cp.Variable(D), cp.Variable()
    r, twice = X @ w - Y, np.column_stack([X, X[:, 0] + X[:, 1]])
    W = cp.Variable(D + 1)
    shares = [cp.sum(w) == 1, w >= 0]
    tracked = cp.SOC(cp.Constant(FAR * N**0.5), R @ w - INDEX)
    return {
        "a bound that costs": cp.Problem(
            cp.Minimize(t + 0.3 * cp.norm1(w)), [cp.SOC(t, r), w <= 1]),
        "a bound of affine numbers": cp.Problem(
            cp.Minimize(cp.norm1(w)), [w[0] >= 0.2, cp.SOC(22.0 + 0.1 * w[1], r)]),
        "a number": cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [*shares, tracked]),
        "beside losses": cp.Problem(cp.Minimize(cp.cvar(-R @ w, 0.9)), [tracked, *shares]),
        "two": cp.Problem(cp.Minimize(t + cp.norm1(w)), [
            cp.SOC(t, r[: N // 2]), cp.SOC(t + 1.0, r[N // 2 :])]),
        "columns that depend on others": cp.Problem(
            cp.Minimize(t + 1e-3 * cp.sum_squares(W)), [cp.SOC(t, twice @ W - Y)]),
        "beside an entropy": cp.Problem(
            cp.Minimize(t - cp.sum(cp.entr(w))), [cp.SOC(t, r), cp.sum(w) == 1]),
    }


def flat_dual(constraint: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part.value) for part in constraint.dual_variables])


@pytest.mark.parametrize("form", cones())
def test_a_cone_that_is_a_constraint(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many dual values as residuals come back."""
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.history.SHORTER", 0.0)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.history.FEWEST_SHORTER", 0)
    screened, plain = cones()[form], cones()[form]
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL", tol_gap_rel=1e-9)
    report = cvxscreen.Report.of(screened)
    assert "residuals" in str(report.beside), report.reason
    assert screened.value == pytest.approx(plain.value, rel=1e-6, abs=1e-9)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        dual, truth = flat_dual(mine), flat_dual(other)
        assert np.allclose(dual, truth, rtol=0.0, atol=1e-3 * (1e-3 + np.abs(truth).max()))
        if isinstance(mine, cp.SOC):
            assert np.linalg.norm(dual[1:]) <= dual[0] * (1.0 + 1e-6)


def test_a_cone_at_its_point_has_dual_values() -> None:
    """Residuals of 0 have no direction: any dual values of the right sum and length will do."""
    w, t = cp.Variable(D), cp.Variable()
    A = np.column_stack([X, X[:, 0]])[:, :D]
    exact = A @ np.array([1.0, 0.5, -1.0, 2.0])
    cone = cp.SOC(t, A @ w - exact)
    problem = cp.Problem(cp.Minimize(10.0 * t + w[0] + cp.norm1(w[1:])), [cone, t >= 0])
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert report.beside, report.reason
    assert w.value == pytest.approx([1.0, 0.5, -1.0, 2.0], rel=1e-6)
    head, *rest = flat_dual(cone)
    # The gradient of the Lagrangian in w is c - A' u.
    assert A.T @ np.array(rest) == pytest.approx([1.0, 1.0, -1.0, 1.0], abs=1e-5)
    assert np.linalg.norm(rest) <= head * (1.0 + 1e-6)


def test_the_report_says_what_is_shorter() -> None:
    problem = FORMS["a norm"]()
    problem.solve(method="screen", always=True)
    words = (f"the norm of {N} residuals as of {D + 1}",)
    assert cvxscreen.Report.of(problem).beside == words
    for form in ("a norm", "beside losses"):
        assert cvxscreen.explain(FORMS[form]()).beside == words


ALONE = ("a norm", "a norm alone", "beside losses")


@pytest.mark.parametrize(
    ("form", "late"), [*product(ALONE, (False, True)), ("beside a budget", False)]
)
def test_another_length_is_refused(
    form: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triangle of other data is found out when it is read, or at the answer."""
    def wrong(*args: Any) -> Any:
        return (1.0 + 1e-6) * triangle_of(*args)

    monkeypatch.setattr(triangular, "triangle_of", wrong)
    if late:
        monkeypatch.setattr("cvxscreen.cvxpy_plugin.recognise.check.check", lambda *a, **k: None)
        for module in ("recognise.recognise", "composite", "budgets"):
            monkeypatch.setattr(f"cvxscreen.cvxpy_plugin.{module}.check", lambda *a, **k: None)
    problem, plain = FORMS[form](), FORMS[form]()
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert not report.recognised
    if late or form == "beside losses":  # else an earlier refusal is the one that is told
        assert "norm of residuals" in report.reason
    assert problem.value == pytest.approx(plain.solve(), rel=1e-6)


def test_another_bound_is_another_problem() -> None:
    far = cp.Parameter(nonneg=True, value=FAR)
    problem = error_of_tracking(lambda r: cp.norm(r) <= far * N**0.5)
    found = [problem.solve(method="screen", always=True)]
    far.value = 1.5 * FAR
    found.append(problem.solve(method="screen", always=True))
    wanted = problem.solve(solver="CLARABEL")
    assert found[1] == pytest.approx(wanted, abs=1e-8)
    assert found[1] > found[0] + 1e-6


def test_out_of_reach_is_infeasible_in_cvxpy_s_own_words() -> None:
    problem = error_of_tracking(lambda r: cp.norm(r) <= 1e-4)
    assert problem.solve(method="screen", always=True) == -np.inf
    assert problem.status == cp.INFEASIBLE


@pytest.mark.parametrize("n", [5, 300, BLOCK, BLOCK + 3, 2 * BLOCK + 1])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_the_length_is_that_of_the_residuals(n: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    dense = rng.standard_normal((n, 3)) * [1.0, 1e8, 1e-8] * scale
    factor = rng.uniform(0.1, 10.0, n)
    thin = sp.random_array((n, 2), density=0.3, rng=rng, format="csr") * scale
    constant = rng.standard_normal(n) * scale
    blocks = [dense, Scaled(dense, factor), thin]
    whole = np.column_stack([dense, factor[:, None] * dense, thin.toarray(), constant])
    triangle = triangle_of(blocks, constant)
    assert triangle.shape == (min(whole.shape), whole.shape[1])
    sizes = np.linalg.norm(whole / scale, axis=0)
    for _ in range(20):
        z = np.append(rng.standard_normal(whole.shape[1] - 1), 1.0)
        exact = (whole / scale).astype(np.longdouble) @ z
        length = np.sqrt(float(exact @ exact))
        found = np.linalg.norm((triangle / scale) @ z)
        assert abs(found - length) <= 50 * np.finfo(float).eps * (sizes @ np.abs(z))


def test_a_matrix_that_is_lost_is_not_taken_for_the_whole() -> None:
    values = np.arange(3.0 * (BLOCK + 7)).reshape(-1, 3)
    gram = values.T @ values
    triangle = triangle_of([values[:, :2]], values[:, 2])
    assert np.allclose(triangle.T @ triangle, gram, rtol=1e-12)


def left() -> dict[str, cp.Problem]:
    w, P = cp.Variable(D), cp.Parameter((N, D), value=X)
    t, ts = cp.Variable(), cp.Variable(N)
    few = TALL * (D + 1)
    return {
        "few rows": cp.Problem(cp.Minimize(cp.norm(X[:few] @ w - Y[:few]))),
        "data in a parameter": cp.Problem(cp.Minimize(cp.norm(P @ w - Y))),
        "absolute values": cp.Problem(cp.Minimize(cp.norm(X @ w - Y, 1))),
        "another norm": cp.Problem(cp.Minimize(cp.norm(X @ w - Y, 3))),
        "squares to minimise": cp.Problem(cp.Minimize(cp.sum_squares(X @ w - Y))),
        "a norm's squares to minimise": cp.Problem(cp.Minimize(cp.norm(X @ w - Y) ** 2)),
        "norms of rows": cp.Problem(cp.Minimize(cp.sum(cp.norm(X @ cp.diag(w) - 1.0, 2, axis=1)))),
        "a cone of a few": cp.Problem(cp.Minimize(t), [cp.SOC(t, X[:few] @ w - Y[:few])]),
        "cones of rows": cp.Problem(cp.Minimize(cp.sum(ts)), [cp.SOC(ts, X @ cp.diag(w), axis=1)]),
        "a norm of losses": cp.Problem(cp.Minimize(cp.norm(cp.pos(X @ w - Y)))),
    }


@pytest.mark.parametrize("name", left())
def test_what_is_left_alone(name: str) -> None:
    problem = left()[name]
    assert with_triangles(problem) == (problem, ())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_are_left_to_cvxpy(bad: float) -> None:
    values = X.copy()
    values[3, 1] = bad
    w = cp.Variable(D)
    problem = cp.Problem(cp.Minimize(cp.norm1(w)), [cp.norm(values @ w - Y) <= 30.0])
    assert with_triangles(problem) == (problem, ())


def test_they_are_taken_from_a_size_on() -> None:
    data = np.broadcast_to(1.0, (100_000, 20))
    long, short = (cp.Constant(data[:n]) for n in (100_000, 1_000))
    w, P = cp.Variable(20), cp.Parameter((100_000, 20))
    for fixed, taken in ((long, True), (short, False), (P, True)):
        for length in (cp.norm(fixed @ w - 1.0), cp.sum_squares(fixed @ w - 1.0)):
            problem = cp.Problem(cp.Maximize(cp.sum(w)), [length <= 1.0, cp.sum(w) == 1])
            assert (measured(problem).why_not() == "") is taken
