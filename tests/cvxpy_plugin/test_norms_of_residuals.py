"""Sums of norms of residuals: answers and dual values agree with Clarabel's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen.core.cones import SideConstraints
from cvxscreen.cvxpy_plugin.size import measured

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def outputs(seed: int, n: int = 300, d: int = 4, k: int = 3) -> tuple[Any, Any, Any]:
    """Residuals of several outputs, their variable, and a generator."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n, d)), cp.Variable((d, k))
    Y = X @ rng.standard_normal((d, k)) + rng.standard_t(2, (n, k))
    return X @ W - Y, W, rng


def plainly(seed: int) -> Any:
    """No penalty."""
    E, _, _ = outputs(seed)
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(E, axis=1))))


def with_ridge(seed: int) -> Any:
    """Squares of the coordinates, and weights."""
    E, W, rng = outputs(seed)
    loss = rng.uniform(0.1, 2.0, E.shape[0]) @ cp.norm(E, 2, axis=1)
    return cp.Problem(cp.Minimize(loss + 20 * cp.sum_squares(W)))


def with_l1(seed: int) -> Any:
    """An L1 norm."""
    E, W, _ = outputs(seed)
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(E, axis=1)) + 30 * cp.norm1(W)))


def with_frobenius(seed: int) -> Any:
    """A norm of everything, which is one block more."""
    E, W, _ = outputs(seed)
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(E, axis=1)) + 30 * cp.norm(W, "fro")))


def mixed(seed: int) -> Any:
    """In CVXPY's own word, to be maximised."""
    E, _, _ = outputs(seed)
    return cp.Problem(cp.Maximize(3 - cp.mixed_norm(E, 2, 1)))


def constrained(seed: int) -> Any:
    """Bounds and equations, which have dual values."""
    E, W, _ = outputs(seed)
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(E, axis=1))), [W >= -0.5, cp.sum(W, axis=1) == 1])


def with_cones(seed: int) -> Any:
    """Bounds of the user's own, which have the dual values of cones."""
    E, _, _ = outputs(seed)
    t = cp.Variable(E.shape[0])
    return cp.Problem(cp.Minimize(cp.sum(t)), [cp.SOC(t, E, axis=1)])


def facilities(seed: int) -> Any:
    """Three facilities, costs of what lies between, a region."""
    rng = np.random.default_rng(seed)
    P, X = rng.uniform(size=(150, 2)), cp.Variable((3, 2))
    cost = sum(
        rng.uniform(0, 1, 150) @ cp.norm(P - cp.reshape(X[f], (1, 2), order="C"), axis=1)
        for f in range(3)
    )
    between = sum(cp.norm(X[f] - X[g]) for f in range(3) for g in range(f))
    return cp.Problem(cp.Minimize(cost + 20 * between), [X[0, 0] + X[1, 1] <= 0.7])


def median(seed: int) -> Any:
    """The geometric median, at none of the points."""
    rng = np.random.default_rng(seed)
    x = cp.Variable((1, 3))
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(rng.standard_normal((400, 3)) - x, axis=1))))


def at_a_point(seed: int) -> Any:
    """The same at one of the points, which weighs a third of all."""
    rng = np.random.default_rng(seed)
    P, x, weights = rng.standard_normal((400, 3)), cp.Variable((1, 3)), np.ones(400)
    weights[7] = 300.0
    return cp.Problem(cp.Minimize(weights @ cp.norm(P - x, axis=1)))


def many_at_zero(seed: int) -> Any:
    """Two thirds of the residuals are 0, far more than there are coordinates."""
    rng = np.random.default_rng(seed)
    X, truth, W = rng.standard_normal((300, 4)), rng.standard_normal((4, 3)), cp.Variable((4, 3))
    Y = X @ truth
    Y[::3] += rng.standard_normal((100, 3))
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(X @ W - Y, axis=1))))


FORMS: list[Callable[[int], Any]] = [
    plainly, with_ridge, with_l1, with_frobenius, mixed, constrained, with_cones, facilities,
    median, at_a_point, many_at_zero,
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_agree_with_clarabel(form: Callable[[int], Any], seed: int) -> None:
    """Value, variables and dual values; the answer is the built-in engine's, and certified."""
    problem, other = form(seed), form(seed)
    problem.solve(method="screen", always=True)
    other.solve(solver="CLARABEL", **TIGHT)
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert (report.solver, problem.status) == ("builtin", "optimal")
    assert report.relative_gap <= 1e-8
    assert problem.value == pytest.approx(other.value, rel=1e-8)
    for ours, theirs in zip(problem.variables(), other.variables(), strict=True):
        np.testing.assert_allclose(ours.value, theirs.value, atol=2e-5)
    for ours, theirs in zip(problem.constraints, other.constraints, strict=True):
        pairs = [(ours.dual_value, theirs.dual_value)]
        if isinstance(ours.dual_value, list):
            pairs = list(zip(ours.dual_value, theirs.dual_value, strict=True))
        for one, two in pairs:
            np.testing.assert_allclose(np.ravel(one), np.ravel(two), atol=2e-4)


def test_a_heavy_point_is_its_own_median() -> None:
    """Up to rounding, with the residual exactly on the apex of its cone."""
    problem = at_a_point(3)
    (x,) = problem.variables()
    problem.solve(method="screen", always=True)
    points = np.random.default_rng(3).standard_normal((400, 3))
    np.testing.assert_allclose(x.value[0], points[7], atol=1e-12)


def test_the_same_problem_is_certified_and_not_solved_again() -> None:
    """The second call has no steps to make."""
    problem = with_l1(0)
    first = problem.solve(method="screen", always=True)
    assert problem.solve(method="screen", always=True) == first
    assert cvxscreen.Report.of(problem).times["solve"] == 0.0


def test_a_named_solver_gets_the_problem_as_it_is() -> None:
    """Nothing would be left out for it; and the next call is the engine's again."""
    problem = plainly(0)
    problem.solve(method="screen", solver="CLARABEL", always=True)
    assert not cvxscreen.Report.of(problem).recognised
    assert problem.solver_stats.solver_name == "CLARABEL"
    problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).solver == "builtin"


def shared_bounds() -> Any:
    """Bounds that another constraint holds as well."""
    E, _, _ = outputs(0)
    t = cp.Variable(E.shape[0])
    return cp.Problem(cp.Minimize(cp.sum(t)), [cp.SOC(t, E, axis=1), t[0] + t[1] <= 1])


def free_bounds() -> Any:
    """Bounds that cost nothing."""
    E, W, _ = outputs(0)
    t = cp.Variable(E.shape[0])
    return cp.Problem(cp.Minimize(cp.sum_squares(W)), [cp.SOC(t, E, axis=1)])


@pytest.mark.parametrize("form", [shared_bounds, free_bounds])
def test_bounds_that_are_not_free_are_not_eliminated(form: Callable[[], Any]) -> None:
    """Whoever answers, it is the same answer."""
    problem, other = form(), form()
    problem.solve(method="screen", always=True)
    other.solve(solver="CLARABEL", **TIGHT)
    assert problem.value == pytest.approx(other.value, rel=1e-6, abs=1e-6)


def test_norms_are_found_by_their_own_bounds() -> None:
    """One whose bound stands in another row is none of them."""
    frame = np.zeros((6, 4))
    frame[[0, 1, 2, 3, 4], [2, 0, 3, 1, 2]] = 1.0
    side = SideConstraints(frame, np.zeros(6), [("soc", 2), ("soc", 2), ("nonneg", 2)])
    assert side.residual_norms.heads.tolist() == [3]
    assert side.residual_norms.tails[0].tolist() == [3]


def test_sizes_that_cannot_pay_are_left_to_cvxpy() -> None:
    """Few norms, and norms under Huber's loss, before anything is read."""
    assert measured(plainly(0)).why_not()
    E, _, _ = outputs(0, n=20_000, d=10, k=4)
    assert not measured(cp.Problem(cp.Minimize(cp.sum(cp.norm(E, axis=1))))).why_not()
    under_huber = cp.Problem(cp.Minimize(cp.sum(cp.huber(cp.norm(E, axis=1)))))
    assert "huber of norms" in measured(under_huber).why_not()


def test_terms_of_a_few_coordinates_beside_thousands_of_norms_take_no_system_of_all_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An L1 norm beside 10,000 norms took minutes: a matrix of all of their bounds was solved."""
    rng = np.random.default_rng(5)
    X, W = rng.standard_normal((1500, 4)), cp.Variable((4, 2))
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_t(2, (1500, 2))
    largest, solve = [0], np.linalg.solve

    def watched(matrix: Any, right: Any) -> Any:
        largest.append(len(matrix))
        return solve(matrix, right)

    monkeypatch.setattr(np.linalg, "solve", watched)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.norm(X @ W - Y, axis=1)) + 2 * cp.norm1(W)))
    value = problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).solver == "builtin"
    assert value == pytest.approx(problem.solve("CLARABEL"), rel=1e-7)
    assert max(largest) < 200


def test_columns_that_stand_twice_are_left_to_a_plain_solve_once() -> None:
    rng = np.random.default_rng(6)
    X, W = rng.standard_normal((1500, 4)), cp.Variable((4, 2))
    X[:, 1] = X[:, 0]
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_t(2, (1500, 2))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.norm(X @ W - Y, axis=1))))
    value = problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert report.recognised or "the built-in engine stopped" in report.reason
    assert value == pytest.approx(problem.solve("CLARABEL"), rel=1e-7)
