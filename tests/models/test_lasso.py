"""The squared loss beside an L1 norm or constraints: scikit-learn's lasso, certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.linear_model import ElasticNet, Lasso

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.errors import InvalidInput

RNG = np.random.default_rng(1)


def drawn(n: int, d: int, scale: float = 1.0, kind: Any = np.float64) -> tuple[Any, Any]:
    """Features that are not centred, and a response that needs an intercept."""
    X = scale * (RNG.normal(size=(n, d)) + 1.0)
    return X.astype(kind), 2.0 * X[:, 0] / scale + RNG.normal(size=n) + 3.0


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "scale", "kind"),
    [(400, 6, 1.0, np.float64), (500, 30, 1e3, np.float64), (400, 6, 1.0, np.float32),
     (60, 90, 1.0, np.float64)],
)
def test_the_lasso_is_scikit_learns(
    n: int, d: int, scale: float, kind: Any, intercept: bool, mode: str
) -> None:
    X, y = drawn(n, d, scale, kind)
    alpha = 0.1 * scale
    C = 1.0 / (n * alpha)
    problem = cs.regression(X, y, C=C, loss="squared", penalty="l1", intercept=intercept)
    found = cs.solve(problem, tol=1e-8, mode=mode)
    peer = Lasso(alpha, fit_intercept=intercept, tol=1e-12, max_iter=100_000).fit(
        X.astype(np.float64), y
    )
    r = y - peer.predict(X.astype(np.float64))
    value = np.abs(peer.coef_).sum() + 0.5 * C * float(r @ r)
    assert found.status == "optimal"
    assert found.value == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(scale * found.x[:d], scale * peer.coef_, atol=2e-3)
    if intercept:
        assert found.intercept == pytest.approx(float(peer.intercept_), abs=5e-3)
    assert certify(problem, found.x, found.theta, tol=1e-8).ok
    moved = found.x + 1e-2 * np.abs(found.x).max() * np.eye(len(found.x))[0]
    assert not certify(problem, moved, found.theta, tol=1e-8).ok


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_without_an_intercept_features_are_left_out(l2: float) -> None:
    X, y = drawn(120, 300)
    y = y - 3.0
    problem = cs.sparse_svr(X, y, 1.0, loss="squared", l2=l2)
    assert cs.lambda_max(problem) == pytest.approx(np.abs(X.T @ y).max() / 120, rel=1e-9)
    lam = 0.3 * cs.lambda_max(problem)
    for mode in ("certified", "safe"):
        found = cs.solve(problem.with_(lam=lam), tol=1e-9, mode=mode)
        share = 1.0 / (1.0 + l2)
        peer = ElasticNet(
            lam * (1.0 + l2), l1_ratio=share, fit_intercept=False, tol=1e-12, max_iter=100_000
        ).fit(X, y)
        assert found.status == "optimal"
        np.testing.assert_allclose(found.x, peer.coef_, atol=1e-3)
        assert found.screening.dropped.sum() > 200


def test_least_squares_with_and_without_signs() -> None:
    X, y = drawn(300, 5)
    free = cs.solve(cs.regression(X, y, C=np.inf, loss="squared"), tol=1e-10)
    np.testing.assert_allclose(free.x, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-4)
    problem = cs.regression(X, -y, C=np.inf, loss="squared", nonneg=True)
    _, norm = nnls(X, -y)
    assert cs.solve(problem, tol=1e-9).value == pytest.approx(0.5 * norm**2, rel=1e-7)


def test_beside_a_squared_norm_it_is_refused() -> None:
    X, y = drawn(50, 3)
    with pytest.raises(InvalidInput, match="linear system"):
        cs.regression(X, y, loss="squared")
    with pytest.raises(InvalidInput, match='"squared"'):
        cs.sparse_svr(X, y, 1.0, loss="absolute", l2=0.0)


def test_columns_are_left_out_where_nothing_else_is_asked_for() -> None:
    """The plain lasso is solved by columns, as `sparse_svr` with ``l2=0``: the same answer."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 60))
    y = 3.0 * X[:, 0] + rng.standard_normal(400)
    found = cs.solve(
        cs.regression(X, y, C=0.02, loss="squared", penalty="l1"), tol=1e-10
    )
    other = cs.solve(
        cs.sparse_svr(X, y, 1.0 / (0.02 * 400), loss="squared", l2=0), tol=1e-10
    )
    assert found.status == "optimal"
    assert found.screening.dropped.sum() > 40
    np.testing.assert_allclose(found.w, other.x, atol=1e-6)
