"""Problems of CVXPY of any size: losses alone, beside squares, an L1 norm or bounds, and texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp


def fit(n: int, d: int, loss: Callable[[Any], Any] = cp.abs) -> Any:
    rng = np.random.default_rng(0)
    w = cp.Variable(d, name="w")
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(loss(X @ w - y))))


def loop(n: int, d: int = 3) -> Any:
    X = np.random.default_rng(0).standard_normal((n, d))
    w = cp.Variable(d)
    loss = sum(cp.pos(1 - X[k] @ w) for k in range(n))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + loss))


def lasso(n: int, d: int, nonneg: bool = False) -> Any:
    rng = np.random.default_rng(0)
    w = cp.Variable(d, nonneg=nonneg)
    cost = cp.sum_squares(rng.standard_normal((n, d)) @ w - rng.standard_normal(n))
    return cp.Problem(cp.Minimize(cost + 9.0 * cp.norm1(w)))


def without_squares(n: int, d: int, loss: Callable[[Any], Any] = cp.abs) -> Any:
    rng = np.random.default_rng(0)
    w = cp.Variable(d)
    error = rng.standard_normal((n, d)) @ w - rng.standard_normal(n)
    return cp.Problem(cp.Minimize(cp.sum(loss(error))))


def bounded(n: int, d: int, loss: Callable[[Any], Any] = cp.pos, **attributes: bool) -> Any:
    rng = np.random.default_rng(0)
    w = cp.Variable(d, **attributes)
    cost = cp.sum_squares(w) + cp.sum(loss(1 - rng.standard_normal((n, d)) @ w))
    return cp.Problem(cp.Minimize(cost), [] if attributes else [w <= 1])


def limited(n: int, d: int, loss: Callable[[Any], Any]) -> Any:
    """Losses that OSQP takes, and bounds."""
    B, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
    return cp.Problem(cp.Minimize(cp.sum(loss(B @ w - 1)) + cp.sum_squares(cp.diff(w))), [w <= 1])


def words(n: int, d: int, each: int) -> Any:
    """Sparse rows of `each` entries at random places, as of texts."""
    rng = np.random.default_rng(0)
    return sp.random_array((n, d), density=each / d, format="csr", rng=rng)


def sparse_svm(X: Any) -> cp.Problem:
    w = cp.Variable(X.shape[1])
    y = np.where(np.arange(X.shape[0]) % 3 > 0, 1.0, -1.0)
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))


def shrunk(n: int, d: int) -> Any:
    rng, w = np.random.default_rng(0), cp.Variable(d)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    return cp.Problem(cp.Minimize(cp.norm1(X @ w - y) + cp.norm1(w)))


def linear_program(n: int, d: int, density: float = 1.0) -> Any:
    rng = np.random.default_rng(0)
    x = cp.Variable(d)
    data = rng.standard_normal((n, d))
    if density < 1.0:
        data = sp.csr_array(data * (rng.random((n, d)) < density))
    rows = [data @ x <= 1.0 + rng.random(n), cp.norm_inf(x) <= 5.0]
    return cp.Problem(cp.Minimize(rng.standard_normal(d) @ x), rows)


def of_nested_slacks(n: int, d: int, *, equal: bool = False) -> Any:
    """CVaR by hand, of costs that are a slack themselves: or, if `equal`, another name of a loss.
    """
    rng = np.random.default_rng(0)
    x, level, cost = cp.Variable(d), cp.Variable(), cp.Variable(n)
    above = cp.Variable(n, nonneg=True)
    e = rng.standard_normal((n, d)) @ x - rng.standard_normal(n)
    rows = [cost - level <= above, *([cost == e] if equal else [cost >= e, cost >= -3 * e])]
    return cp.Problem(cp.Minimize(level + cp.sum(above) / (0.1 * n) + cp.norm1(x)), rows)
