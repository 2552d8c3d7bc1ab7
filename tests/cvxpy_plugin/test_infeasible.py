"""Constraints that nothing satisfies: CVXPY's status and value, and multipliers that show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.infeasible import CHUNK, least_coordinate
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise

cvxpy_plugin.register()

N, D, TAIL = 4000, 6, 0.05


def returns(scale: float = 1.0) -> Any:
    rng = np.random.default_rng(3)
    common = rng.standard_normal((N, 2)) @ rng.standard_normal((2, D))
    return scale * (0.01 * common + 0.01 * rng.standard_normal((N, D)) + 0.0005)


def fit() -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, D))
    return X, X @ rng.standard_normal(D) + rng.standard_t(3, N)


def tail_atom(level: float = 0.001) -> Any:
    R, w = returns(), cp.Variable(D, nonneg=True)
    bounds = [cp.sum(w) == 1, cp.cvar(-R @ w, 1 - TAIL) <= level]
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), bounds)


def tail_program() -> Any:
    R, w, a, u = returns(), cp.Variable(D), cp.Variable(), cp.Variable(N)
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [
        cp.sum(w) == 1, w >= 0, u >= -R @ w - a, u >= 0, a + cp.sum(u) / (N * TAIL) <= 0.001,
    ])


def deviation() -> Any:
    R, w = returns(), cp.Variable(D, nonneg=True)
    away = cp.sum(cp.abs((R - R.mean(axis=0)) @ w)) / N
    return cp.Problem(cp.Maximize(R.mean(axis=0) @ w), [cp.sum(w) == 1, away <= 0.0005])


def residuals() -> Any:
    X, y = fit()
    w = cp.Variable(D)
    return cp.Problem(cp.Minimize(cp.norm1(w)), [cp.norm1(X @ w - y) / N <= 0.6])


def curved() -> Any:
    X, y = fit()
    w = cp.Variable(D)
    return cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.sum(cp.abs(X @ w - y)) <= 0.6 * N])


def rows(few: bool = False) -> Any:
    rng, x = np.random.default_rng(5), cp.Variable(D)
    A = rng.standard_normal((N, D))
    b = np.full(N, 1.0 if few else -0.1)
    if few:
        A[5], b[5] = -A[7], -1.5
    return cp.Problem(cp.Minimize(cp.sum_squares(x)), [A @ x <= b])


def margins() -> Any:
    X, y = fit()
    w, b, y = cp.Variable(D), cp.Variable(), np.sign(y)
    return cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.multiply(y, X @ w + b) >= 1])


def sides() -> Any:
    X, y = fit()
    w = cp.Variable(D)
    return cp.Problem(cp.Minimize(cp.norm1(X @ w - y)), [w >= 1, cp.sum(w) <= D - 1])


def quantile_sides() -> Any:
    X, y = fit()
    w = cp.Variable(D)
    loss = cp.sum(0.5 * cp.abs(X @ w - y) + 0.45 * (X @ w - y))  # slopes of one sign and both
    return cp.Problem(cp.Minimize(loss), [w >= 1, cp.sum(w) <= D - 1])


def target() -> Any:
    R, w = returns(), cp.Variable(D, nonneg=True)
    mean = R.mean(axis=0)
    risk = cp.cvar(-R @ w, 1 - TAIL)
    return cp.Problem(cp.Minimize(risk), [cp.sum(w) == 1, mean @ w >= 1.1 * mean.max()])


MADE: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (tail_atom, tail_program, deviation, residuals, curved, rows, margins, sides,
                 quantile_sides, target)
} | {"two_rows": lambda: rows(few=True)}


@pytest.mark.parametrize("name", MADE)
def test_the_status_is_cvxpy_s_without_a_plain_solve(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No solver of CVXPY's is called; the value is infinite, of the sign that CVXPY gives it."""
    plain, problem = MADE[name](), MADE[name]()
    plain.solve(solver="CLARABEL")
    assert plain.status == cp.INFEASIBLE
    from cvxscreen.cvxpy_plugin import request

    monkeypatch.setattr(request, "_solve_as_asked", None)
    for variable in problem.variables():
        variable.save_value(np.zeros(variable.shape))
    assert problem.solve(method="screen", always=True) == plain.value
    assert problem.status == cp.INFEASIBLE
    assert all(variable.value is None for variable in problem.variables())
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert "satisfies its constraints" in report.reason
    assert "infeasible" in repr(report)
    assert "infeasible" in str(report)
    assert "nan" not in f"{report!r}{report}"
    for mine, theirs in zip(problem.constraints, plain.constraints, strict=True):
        assert np.shape(mine.dual_value) == np.shape(theirs.dual_value)


def test_the_dual_values_are_a_proof_of_farkas() -> None:
    """By hand, from the constraints as the user wrote them: the program of a tail's mean.

    CVXPY 1.8 has none for infeasible problems, whoever solves them.
    """
    plain, problem = tail_program(), tail_program()
    plain.solve(solver="CLARABEL")
    problem.solve(method="screen", always=True)
    if plain.constraints[0].dual_value is None:
        assert all(constraint.dual_value is None for constraint in problem.constraints)
        return
    equal, nonneg, at, held, level = (np.asarray(c.dual_value) for c in problem.constraints)
    R, size = returns(), float(level)
    assert min(nonneg.min(), at.min(), held.min()) >= 0.0 < size
    assert np.abs(-R.T @ at + equal - nonneg).max() <= 1e-9 * size * np.abs(R).max()  # of w
    assert abs(size - at.sum()) <= 1e-9 * size  # of a
    assert np.abs(size / (N * TAIL) - at - held).max() <= 1e-9 * size / (N * TAIL)  # of u
    assert -0.001 * size - float(equal) == pytest.approx(1.0)  # what is left of the Lagrangian
    problem = rows()
    problem.solve(method="screen", always=True)
    y = problem.constraints[0].dual_value
    A, b = (problem.constraints[0].args[0].args[0].value, np.full(N, -0.1))
    assert (y >= 0).all()
    assert b @ y == pytest.approx(-1.0)
    assert np.abs(A.T @ y).max() <= 1e-9


def test_a_limit_near_the_least_risk_is_told_apart() -> None:
    """Below the least risk that there is nothing is feasible; above it something is, however close.

    A little below it rounding proves nothing, and the plain solve ends at its limit.
    """
    R, w = returns(), cp.Variable(D, nonneg=True)
    least = cp.Problem(cp.Minimize(cp.cvar(-R @ w, 1 - TAIL)), [cp.sum(w) == 1])
    least.solve(solver="CLARABEL", tol_gap_rel=1e-12, tol_gap_abs=1e-12, tol_feas=1e-12)
    for away in (-1e-2, 1e-2, 1e-4, 1e-6):
        problem = tail_atom(least.value * (1 + away))
        problem.solve(method="screen", always=True)
        assert problem.status == (cp.OPTIMAL if away > 0 else cp.INFEASIBLE)


def test_a_limit_in_a_parameter_that_becomes_too_low() -> None:
    """And feasible again afterwards: nothing of the failure stays."""
    R, w, level = returns(), cp.Variable(D, nonneg=True), cp.Parameter(value=0.03)
    problem = cp.Problem(cp.Maximize(R.mean(axis=0) @ w),
                         [cp.sum(w) == 1, cp.cvar(-R @ w, 1 - TAIL) <= level])
    first = problem.solve(method="screen", always=True)
    level.value = 0.001
    assert problem.solve(method="screen", always=True) == -np.inf
    assert problem.status == cp.INFEASIBLE
    level.value = 0.03
    assert problem.solve(method="screen", always=True) == pytest.approx(first, rel=1e-9)
    assert problem.status == cp.OPTIMAL


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_who_names_a_solver_has_its_own_word(solver: str) -> None:
    problem = sides()
    problem.solve(method="screen", always=True, solver=solver)
    assert problem.status == cp.INFEASIBLE
    assert problem.solver_stats.solver_name == solver


# -- the check of multipliers ---------------------------------------------------------------------


def pair(n: int = 1, sparse: bool = False) -> Any:
    """``x <= -1`` n times and ``-x <= 0`` n times, canonical."""
    x = cp.Variable(3)
    A = np.ones((n, 1)) @ np.eye(1, 3)
    A = sp.csr_array(A) if sparse else A
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [A @ x <= -1.0, -A @ x <= 0.0])
    return standardise(canonicalise(problem))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [1, 3 * CHUNK])
def test_multipliers_that_cancel_show_everything(n: int, sparse: bool) -> None:
    standard, m = pair(n, sparse), np.ones(2 * n)
    assert least_coordinate(standard, m) >= 1e12
    assert least_coordinate(standard, 1e-6 * m) >= 1e12


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [1, 3 * CHUNK])
def test_what_is_left_says_how_far(n: int, sparse: bool) -> None:
    """``x <= -1`` 1.01 times and ``-x <= 0`` once leave 0.01 x <= -1.01: attained there."""
    standard = pair(n, sparse)
    m = np.r_[np.full(n, 1.01), np.ones(n)]
    assert least_coordinate(standard, m) == pytest.approx(101.0, rel=1e-9)
    assert least_coordinate(standard, m) <= 101.0


@pytest.mark.parametrize("sparse", [False, True])
def test_what_cancels_by_rounding_alone_is_charged(sparse: bool) -> None:
    """The sum of 2^53, 1 and -2^53 is 1, and may be computed as 0: then x >= 5 is what is shown."""
    x, large = cp.Variable(2), 2.0**53
    A = np.array([[large], [1.0], [-large]]) @ np.eye(1, 2)
    A = sp.csr_array(A) if sparse else A
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [A @ x - np.array([0.0, 5.0, 0.0]) >= 0])
    assert least_coordinate(standardise(canonicalise(problem)), np.ones(3)) <= 5.0


def test_a_ray_that_is_none_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that calls a feasible problem infeasible, with multipliers, is not believed."""
    from cvxscreen.solvers.interior_point import PrimalDualPath

    def wrong(self: Any, tol: float) -> Any:
        return np.where(~self.terms.counted & (self.terms.b < 0.0), 1.0, 0.0)  # w >= 0.1

    monkeypatch.setattr(PrimalDualPath, "separating", wrong)
    monkeypatch.setattr(PrimalDualPath, "far", True)
    X, y = fit()
    w = cp.Variable(D)
    problem = cp.Problem(cp.Minimize(cp.norm1(X @ w - y)), [w >= 0.1, cp.sum(w) <= D + 1.0])
    problem.solve(method="screen", always=True)
    assert problem.status == cp.OPTIMAL


def test_what_shows_nothing_is_refused() -> None:
    standard = pair()
    assert least_coordinate(standard, np.array([1.0, 0.0])) == pytest.approx(1.0, rel=1e-12)
    for m in ([0.0, 1.0], [0.0, 0.0], [-1.0, -1.0], [-1.0, 1.0]):
        assert least_coordinate(standard, np.array(m)) == 0.0
    x = cp.Variable(2)
    feasible = cp.Problem(cp.Minimize(cp.sum(x)), [x[0] <= 1.0, -x[0] <= 0.0])
    # These cancel, but their signs are not those of the cone.
    assert least_coordinate(standardise(canonicalise(feasible)), -np.ones(2)) == 0.0


def test_multipliers_of_a_cone_are_moved_into_it() -> None:
    """``|x| <= t`` with ``t <= -1``: by a multiplier of the cone that is inside, or moved there."""
    x, t = cp.Variable(2), cp.Variable()
    problem = cp.Problem(cp.Minimize(t), [cp.norm(x) <= t, t <= -1.0])
    standard = standardise(canonicalise(problem))
    m = np.zeros(standard.rows.shape[0])
    for cone in standard.cones:
        m[cone.rows.start] = 1.0  # of the head, and of every inequality
    assert {cone.kind for cone in standard.cones} == {"nonneg", "soc"}
    assert least_coordinate(standard, m) >= 1e13
    feasible = cp.Problem(cp.Minimize(t), [cp.norm(x) <= t, t <= 5.0, x[1] == 3.0])
    standard = standardise(canonicalise(feasible))
    for sign in (-1.0, 1.0):  # outside the cone they cancel, and 2 times 3 exceeds 5
        m = np.zeros(standard.rows.shape[0])
        for cone in standard.cones:
            m[cone.rows] = {"soc": [1.0, 0.0, 2.0 * sign], "nonneg": 1.0, "zero": 0.0}[cone.kind]
        for way in (-1.0, 1.0):
            for cone in standard.cones:
                if cone.kind == "zero":
                    m[cone.rows] = 2.0 * way
            assert least_coordinate(standard, m) <= 3.0


def test_of_matrices_nothing_is_said() -> None:
    M = cp.Variable((2, 2), PSD=True)
    standard = standardise(canonicalise(cp.Problem(cp.Minimize(0), [cp.trace(M) <= -1])))
    assert least_coordinate(standard, np.ones(standard.rows.shape[0])) == 0.0
