"""A lasso along C: what single solves find, on all shapes, and what becomes of refused points."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import lasso_path

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.paths import path as paths
from cvxscreen.solvers import lasso_path as module
from cvxscreen.solvers.lasso_path import LassoPath

SHAPES = {"tall": (1500, 12), "square": (90, 80), "wide": (30, 200)}


def lasso(n: int, d: int, intercept: bool, kind=np.float64, **options):
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1)) + rng.standard_normal(d)
    X = (8.0 * X).astype(kind) / (1 if kind is np.int16 else 8)
    X = X.astype(kind)
    y = X[:, :4].astype(float) @ np.array([2.0, -1.0, 1.0, 0.5]) + 7.0 + rng.standard_normal(n)
    return X, y, cs.regression(
        X, y, C=0.02, loss="squared", penalty="l1", intercept=intercept, **options
    )


def grid(X, y, intercept: bool, ends=(0.05, -2.5), count: int = 7):
    """Values of C from above the largest weight that matters on."""
    X, y = X - intercept * X.mean(axis=0), y - intercept * y.mean()
    return 1.0 / (np.abs(X.T @ y).max() * np.logspace(*ends, count))


@pytest.mark.table
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("name", SHAPES)
def test_all_points_are_those_of_single_solves(name: str, kind, intercept: bool, monkeypatch):
    """Up and down along C, none of them by the ordinary loop."""
    X, y, problem = lasso(*SHAPES[name], intercept, kind)
    values = grid(X.astype(float), y, intercept)
    monkeypatch.setattr(paths, "solve_screened", lambda *a, **o: pytest.fail("the ordinary loop"))
    there = cs.path(problem, values=values, tol=1e-8)
    back = cs.path(problem, values=values[::-1], tol=1e-8)
    monkeypatch.undo()
    assert there.finished
    for value, point, other in zip(values, there.points, back.points[::-1], strict=True):
        here = problem.with_(C=value)
        alone = cs.solve(here, tol=1e-8)
        assert point.status == other.status == alone.status == "optimal"
        for one in (point, other):
            assert one.objective == pytest.approx(alone.value, rel=3e-8)
            assert certify(here, one.x, one.theta, tol=1e-8).ok
    assert not there.points[0].x[: X.shape[1]].any()
    for point in there.points:
        assert point.features == (point.x[: X.shape[1]] != 0.0).sum()
    assert there.points[-1].x.any()


def test_along_lambda_as_well(monkeypatch) -> None:
    """The same lasso with its parameter on the other side."""
    X, y, _ = lasso(*SHAPES["square"], False)
    problem = cs.sparse_svr(X, y, 2.0, loss="squared", l2=0.0)
    lams = cs.lambda_max(problem) * np.array([1.01, 0.5, 0.1, 0.01])
    monkeypatch.setattr(paths, "solve_screened", lambda *a, **o: pytest.fail("the ordinary loop"))
    found = cs.path(problem, over="lam", values=lams, tol=1e-8)
    monkeypatch.undo()
    assert not found.points[0].x.any()
    for lam, point in zip(lams, found.points, strict=True):
        here = problem.with_(lam=lam)
        assert point.over == "lam"
        assert point.objective == pytest.approx(cs.solve(here, tol=1e-8).value, rel=3e-8)
        assert certify(here, point.x, point.theta, tol=1e-8).ok
        assert set(point.before) >= {"zero", "linear"}


def test_its_coefficients_are_scikit_learns() -> None:
    X, y, problem = lasso(*SHAPES["square"], True, sample_weight=None)
    values = grid(X, y, True)
    points = cs.path(problem, values=values, tol=1e-10).points
    alphas = 1.0 / (len(y) * values)
    _, coefficients, _ = lasso_path(
        X - X.mean(axis=0), y - y.mean(), alphas=alphas, tol=1e-13, max_iter=100_000
    )
    for point, peer in zip(points, coefficients.T, strict=True):
        np.testing.assert_allclose(point.x[:-1], peer, atol=1e-4)


@pytest.mark.parametrize("intercept", [False, True])
def test_features_that_depend_on_each_other_end_no_path(intercept: bool) -> None:
    """Copies, their negatives, a constant one, and far more features than terms kept."""
    X, y, _ = lasso(30, 40, intercept)
    X = np.hstack([X, X, -X, np.ones((30, 1)), np.zeros((30, 1))])
    problem = cs.regression(X, y, loss="squared", penalty="l1", intercept=intercept)
    values = grid(X, y, intercept, (0.0, -6.0))
    for value, point in zip(values, cs.path(problem, values=values).points, strict=True):
        assert point.status == "optimal"
        assert certify(problem.with_(C=value), point.x, point.theta, tol=1e-6).ok


def test_weights_of_samples_take_part() -> None:
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 90)
    X, y, problem = lasso(*SHAPES["square"], True, sample_weight=weights)
    value = 20.0 * float(grid(X, y, True)[0])
    point = cs.path(problem, values=[value / 2.0, value], tol=1e-9).points[1]
    alone = cs.solve(problem.with_(C=value), tol=1e-9, mode="safe")
    assert point.objective == pytest.approx(alone.value, rel=3e-9)


def test_refused_points_are_solved_by_the_ordinary_loop(monkeypatch) -> None:
    """And where many are, all that are left."""
    X, y, problem = lasso(*SHAPES["square"], True)
    values = grid(X, y, True)
    monkeypatch.setattr(LassoPath, "search", lambda *_: 0)  # which leaves all of them at 0
    points = cs.path(problem, values=values, tol=1e-8).points
    for value, point in zip(values, points, strict=True):
        assert point.status == "optimal"
        assert point.objective == pytest.approx(cs.solve(problem.with_(C=value)).value, rel=3e-6)


def test_who_gets_it(monkeypatch) -> None:
    """Not safe mode, named solvers, bounds, a checkpoint, other losses or sparse features."""
    X, y, problem = lasso(*SHAPES["square"], True)
    values = list(grid(X, y, True)[:2])
    monkeypatch.setattr(LassoPath, "solve", lambda *_: pytest.fail("a lasso path"))
    for options in ({"mode": "safe"}, {"solver": "interior_point"}, {"bounds": "midpoint"},
                    {"max_iter": 1000}):
        assert cs.path(problem, values=values, **options).finished
    other = cs.regression(X, y, loss="huber", penalty="l1")
    assert cs.path(other, values=[1e-3, 2e-3]).finished


def test_limits_cut_it_short() -> None:
    """Values are not begun once the time is up."""
    X, y, problem = lasso(*SHAPES["square"], False)
    values = grid(X, y, False)
    found = cs.path(problem, values=values, time_limit=1e-9)
    assert not found.finished
    assert len(found.points) < len(values)


@pytest.mark.parametrize("most", [1, 1000])
def test_blocks_of_any_size_lead_to_the_same_optimum(most: int, monkeypatch) -> None:
    """One feature at a time, or all that violate optimality."""
    monkeypatch.setattr(module, "BLOCK", most)
    monkeypatch.setattr(module, "ALL_PRODUCTS", 0)
    X, y, problem = lasso(*SHAPES["wide"], True)
    values = grid(X, y, True)
    for value, point in zip(values, cs.path(problem, values=values, tol=1e-8).points, strict=True):
        alone = cs.solve(problem.with_(C=value), tol=1e-8)
        assert point.objective == pytest.approx(alone.value, rel=3e-8)
