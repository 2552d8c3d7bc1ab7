"""CVXPY problems with an L1 norm and smooth losses, and no quadratic term: features leave them."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen as cs


def data(seed: int = 0, n: int = 50, d: int = 20):
    """Rows, labels and responses."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    t = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(n)
    return X, np.where(t > 0, 1.0, -1.0), t


def squared_hinge(w, X, y):
    return cp.sum(cp.square(cp.pos(1 - cp.multiply(y, X @ w))))


def written(kind: str) -> tuple[cp.Problem, cp.Variable, list]:
    """The problem in one of its spellings, its variable, and the constraints with multipliers."""
    X, y, t = data()
    w = cp.Variable(X.shape[1])
    if kind == "squared hinge":
        return cp.Problem(cp.Minimize(8 * cp.norm1(w) + squared_hinge(w, X, y))), w, []
    if kind == "abs":
        loss = 0.01 * cp.sum_squares(cp.pos(1 - cp.multiply(y, X @ w)))
        return cp.Problem(cp.Minimize(cp.sum(0.08 * cp.abs(w)) + loss)), w, []
    if kind == "slacks":
        xi = cp.Variable(len(y), nonneg=True)
        rows = cp.multiply(y, X @ w) >= 1 - xi
        return cp.Problem(cp.Minimize(8 * cp.norm1(w) + cp.sum_squares(xi)), [rows]), w, [rows]
    if kind == "weights":
        kappa = np.linspace(4.0, 12.0, X.shape[1])
        return cp.Problem(cp.Minimize(kappa @ cp.abs(w) + squared_hinge(w, X, y))), w, []
    assert kind == "huber"
    return cp.Problem(cp.Minimize(6 * cp.norm1(w) + cp.sum(cp.huber(X @ w - t, 0.7)))), w, []


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("kind", ["squared hinge", "abs", "slacks", "weights", "huber"])
def test_solves_to_the_same_optimum_duals_included(kind: str, mode: str) -> None:
    problem, w, rows = written(kind)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    value, best, duals = problem.value, w.value, [c.dual_value for c in rows]
    said = cs.explain(problem)
    assert said.recognised
    problem.solve(method="screen", mode=mode)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(w.value, best, atol=1e-4)
    for row, dual in zip(rows, duals, strict=True):
        np.testing.assert_allclose(row.dual_value, dual, atol=1e-3 * np.abs(dual).max())
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.dropped > 5
    assert (w.value == 0).sum() >= report.dropped
    assert report.relative_gap <= 1e-6


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_reduced_by_proofs_and_restored(solver: str) -> None:
    problem, w, _ = written("squared hinge")
    reduced = cs.reduce(problem)
    assert reduced.screening.dropped.sum() > 5
    reduced.problem.solve(solver=solver, **({"eps_abs": 1e-9, "eps_rel": 1e-9}
                                            if solver == "SCS" else {}))
    proof = reduced.restore()
    assert proof.ok
    assert (w.value[reduced.screening.dropped] == 0).all()
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_verify_agrees() -> None:
    assert cs.verify(written("slacks")[0], solver="CLARABEL").agrees


def test_a_parameter_in_front_of_the_norm() -> None:
    X, y, _ = data(1)
    w, lam = cp.Variable(X.shape[1]), cp.Parameter(nonneg=True)
    problem = cp.Problem(cp.Minimize(lam * cp.norm1(w) + squared_hinge(w, X, y)))
    for value in (20.0, 8.0, 2.0, 0.5, 8.0):
        lam.value = value
        plain = problem.solve(solver="CLARABEL")
        assert problem.solve(method="screen") == pytest.approx(plain, rel=1e-6)
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised


def test_above_lambda_max_all_features_leave() -> None:
    X, y, _ = data(2)
    w = cp.Variable(X.shape[1])
    top = float(np.abs(2 * X.T @ y).max())
    problem = cp.Problem(cp.Minimize(1.01 * top * cp.norm1(w) + squared_hinge(w, X, y)))
    assert problem.solve(method="screen") == pytest.approx(len(y), rel=1e-6)
    np.testing.assert_allclose(w.value, 0.0, atol=1e-8)


def test_what_the_norm_does_not_hold_keeps_its_features() -> None:
    """An intercept, a kink, a feature without a weight, a constraint: absolute values are terms."""
    X, y, _ = data(3)
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    margins = cp.multiply(y, X @ w)
    some = np.ones(X.shape[1])
    some[3] = 0.0
    for objective, constraints in (
        (8 * cp.norm1(w) + cp.sum(cp.square(cp.pos(1 - cp.multiply(y, X @ w + b)))), []),
        (8 * cp.norm1(w) + cp.sum(cp.pos(1 - margins)), []),
        (8 * (some @ cp.abs(w)) + squared_hinge(w, X, y), []),
        (8 * cp.norm1(w) + squared_hinge(w, X, y), [cp.sum(w) == 1]),
        (8 * cp.norm1(w) + squared_hinge(w, X, y) + w[0], []),
    ):
        problem = cp.Problem(cp.Minimize(objective), constraints)
        said = cs.explain(problem)
        assert said.recognised
        assert (said.shrunk, said.unpenalised) == (0, said.coordinates)
        plain = problem.solve(solver="CLARABEL")
        assert problem.solve(method="screen", solver="CLARABEL") == pytest.approx(plain, rel=1e-6)
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
