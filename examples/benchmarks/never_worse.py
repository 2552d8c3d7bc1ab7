"""What ``method="screen"`` costs beside a plain solve, above all where it cannot help.

    OMP_NUM_THREADS=1 python examples/benchmarks/never_worse.py [--forms NAME ...] [--random 100]
        [--repeat 3] [--json examples/benchmarks/results/never_worse.json]

Forms that users of CVXPY write (from its documentation's examples, courses and notebooks, typed
anew with data of their usual size) and random convex problems. Every form is made twice from one
seed; one is solved with ``prob.solve()``, the other with ``prob.solve(method="screen")``, in turns:
a first call, and a second one after its parameters (where it has any) have changed by a tenth. CPU
seconds, compilation included, the least of some repetitions; "over" is what the screened call took
beyond ``1.2 * plain + 3 ms``, which nothing should. Values are compared, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from report import with_origin

from cvxscreen._support.tables import table

Make = Callable[[np.random.Generator], Any]

FORMS: dict[str, Make] = {}

FACTOR, CONSTANT = 1.2, 0.003
"""The bar: so many times the plain time, and so many seconds on top."""


def form(function: Make) -> Make:
    """Enrol a form by its function's name."""
    FORMS[function.__name__] = function
    return function


def classes(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    """Two overlapping classes."""
    X = rng.standard_normal((n, d))
    return X, np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1.0, -1.0)


def line(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    """A linear model with heavy-tailed noise."""
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) + rng.standard_t(3, n)


def svm(rng: np.random.Generator, n: int, d: int, C: Any = 1.0) -> Any:
    X, y = classes(rng, n, d)
    w, b = cp.Variable(d), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * loss))


def svm_slacks(rng: np.random.Generator, n: int, d: int) -> Any:
    X, y = classes(rng, n, d)
    w, b, xi = cp.Variable(d), cp.Variable(), cp.Variable(n)
    return cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(xi)),
        [cp.multiply(y, X @ w + b) >= 1 - xi, xi >= 0],
    )


def regression(
    rng: np.random.Generator, n: int, d: int, loss: Callable[[Any], Any], ridge: float = 0.5
) -> Any:
    X, y = line(rng, n, d)
    w = cp.Variable(d)
    cost = cp.sum(loss(X @ w - y))
    return cp.Problem(cp.Minimize(cost + ridge * cp.sum_squares(w) if ridge else cost))


def weight(value: float = 1.0) -> Any:
    return cp.Parameter(nonneg=True, value=value)


for _n, _d in ((20, 10), (100, 5), (300, 10), (1000, 10), (3000, 20), (10000, 20)):
    FORMS[f"svm_{_n}x{_d}"] = lambda r, n=_n, d=_d: svm(r, n, d)
    FORMS[f"svm_parameter_{_n}x{_d}"] = lambda r, n=_n, d=_d: svm(r, n, d, weight())
    FORMS[f"svm_slacks_{_n}x{_d}"] = lambda r, n=_n, d=_d: svm_slacks(r, n, d)
for _n, _d in ((50, 5), (400, 10), (3000, 10)):
    FORMS[f"lad_ridge_{_n}x{_d}"] = lambda r, n=_n, d=_d: regression(r, n, d, cp.abs)
    FORMS[f"lad_{_n}x{_d}"] = lambda r, n=_n, d=_d: regression(r, n, d, cp.abs, 0.0)
    FORMS[f"huber_ridge_{_n}x{_d}"] = lambda r, n=_n, d=_d: regression(r, n, d, cp.huber)
    FORMS[f"huber_{_n}x{_d}"] = lambda r, n=_n, d=_d: regression(r, n, d, cp.huber, 0.0)
    FORMS[f"least_squares_{_n}x{_d}"] = lambda r, n=_n, d=_d: regression(r, n, d, cp.square, 0.0)


@form
def quantile(rng: np.random.Generator) -> Any:
    """Quantile regression by the pinball loss."""
    return regression(rng, 2000, 10, lambda e: cp.maximum(0.9 * e, -0.1 * e), 0.0)


@form
def quantile_lasso(rng: np.random.Generator) -> Any:
    X, y = line(rng, 2000, 20)
    w = cp.Variable(20)
    e = y - X @ w
    return cp.Problem(cp.Minimize(cp.sum(cp.maximum(0.5 * e, -0.5 * e)) + 5 * cp.norm1(w)))


@form
def epsilon_insensitive(rng: np.random.Generator) -> Any:
    return regression(rng, 2000, 10, lambda e: cp.pos(cp.abs(e) - 0.1))


@form
def lasso(rng: np.random.Generator) -> Any:
    X, y = line(rng, 500, 50)
    w = cp.Variable(50)
    return cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y) + weight(10.0) * cp.norm1(w)))


@form
def lasso_wide(rng: np.random.Generator) -> Any:
    X, y = line(rng, 200, 1000)
    w = cp.Variable(1000)
    return cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y) + weight(50.0) * cp.norm1(w)))


@form
def elastic_net(rng: np.random.Generator) -> Any:
    X, y = line(rng, 500, 50)
    w = cp.Variable(50)
    cost = cp.sum_squares(X @ w - y) + 5 * cp.norm1(w) + 2 * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(cost))


@form
def ridge(rng: np.random.Generator) -> Any:
    X, y = line(rng, 1000, 50)
    w = cp.Variable(50)
    return cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y) + weight() * cp.sum_squares(w)))


@form
def svm_l1(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 2000, 20)
    w, b = cp.Variable(20), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(loss / 2000 + weight(0.01) * cp.norm(w, 1)))


@form
def svm_l1_course(rng: np.random.Generator) -> Any:
    """The example of CVXPY's documentation: n = 20, m = 1000."""
    X, y = classes(rng, 1000, 20)
    beta, v = cp.Variable((20, 1)), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y[:, None], X @ beta - v)))
    return cp.Problem(cp.Minimize(loss / 1000 + weight(0.1) * cp.norm(beta, 1)))


@form
def svm_norm(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 1000, 20)
    w = cp.Variable(20)
    return cp.Problem(cp.Minimize(cp.norm(w) + cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))))


@form
def svm_group(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 1000, 20)
    w = cp.Variable(20)
    groups = sum(cp.norm(w[4 * k : 4 * k + 4]) for k in range(5))
    return cp.Problem(cp.Minimize(groups + cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))))


@form
def svm_l1_ball(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 1000, 20)
    w = cp.Variable(20)
    cost = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    return cp.Problem(cp.Minimize(cost), [cp.norm1(w) <= 3])


@form
def hinge_alone(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 1000, 20)
    w = cp.Variable(20)
    return cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))))


@form
def svm_dual(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 200, 10)
    alpha = cp.Variable(200)
    Z = y[:, None] * X
    cost = cp.sum(alpha) - 0.5 * cp.sum_squares(Z.T @ alpha)
    return cp.Problem(cp.Maximize(cost), [alpha >= 0, alpha <= 1, y @ alpha == 0])


@form
def svm_kernel(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 200, 3)
    K = np.exp(-np.sum((X[:, None] - X[None]) ** 2, axis=2)) + 1e-8 * np.eye(200)
    a, b = cp.Variable(200), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, K @ a + b)))
    return cp.Problem(cp.Minimize(0.5 * cp.quad_form(a, cp.psd_wrap(K)) + loss))


@form
def svm_multiclass(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((300, 10))
    y = rng.integers(0, 3, 300)
    W = cp.Variable((10, 3))
    scores = X @ W
    mine = cp.sum(cp.multiply(np.eye(3)[y], scores), axis=1)
    worst = cp.max(scores + 1 - np.eye(3)[y], axis=1) - mine
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + cp.sum(worst)))


@form
def svm_loop(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 150, 5)
    w, b = cp.Variable(5), cp.Variable()
    loss = sum(cp.pos(1 - y[i] * (X[i] @ w + b)) for i in range(150))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))


@form
def svm_loop_slacks(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 150, 5)
    w, b, xi = cp.Variable(5), cp.Variable(), cp.Variable(150)
    rows = [y[i] * (X[i] @ w + b) >= 1 - xi[i] for i in range(150)]
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(xi)), [*rows, xi >= 0])


@form
def logistic(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 500, 10)
    w = cp.Variable(10)
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w)))
    return cp.Problem(cp.Minimize(loss + weight() * cp.sum_squares(w)))


@form
def logistic_l1(rng: np.random.Generator) -> Any:
    X, y = classes(rng, 500, 10)
    w = cp.Variable(10)
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w)))
    return cp.Problem(cp.Minimize(loss + weight() * cp.norm1(w)))


@form
def total_variation(rng: np.random.Generator) -> Any:
    y = np.repeat([0.0, 2.0, -1.0, 3.0, 1.0], 1000) + 0.5 * rng.standard_normal(5000)
    x = cp.Variable(5000)
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(x - y) + 2.0 * cp.tv(x)))


@form
def total_variation_abs(rng: np.random.Generator) -> Any:
    y = np.repeat([0.0, 2.0, -1.0], 300) + 0.5 * rng.standard_normal(900)
    x = cp.Variable(900)
    cost = 0.5 * cp.sum_squares(x - y) + weight(2.0) * cp.norm1(cp.diff(x))
    return cp.Problem(cp.Minimize(cost))


@form
def total_variation_huber(rng: np.random.Generator) -> Any:
    y = np.repeat([0.0, 2.0, -1.0], 300) + 0.5 * rng.standard_normal(900)
    x = cp.Variable(900)
    cost = cp.sum(cp.huber(x - y)) + 2.0 * cp.norm1(cp.diff(x))
    return cp.Problem(cp.Minimize(cost))


@form
def total_variation_image(rng: np.random.Generator) -> Any:
    y = rng.standard_normal((40, 40))
    x = cp.Variable((40, 40))
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) + cp.tv(x)))


@form
def trend_filter(rng: np.random.Generator) -> Any:
    y = np.cumsum(np.cumsum(rng.standard_normal(2000) * (rng.random(2000) < 0.01)))
    y += rng.standard_normal(2000)
    x = cp.Variable(2000)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(1998, 2000), format="csr")
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - x) + 50.0 * cp.norm(D @ x, 1)))


@form
def isotonic(rng: np.random.Generator) -> Any:
    y = np.linspace(0, 1, 1000) + 0.3 * rng.standard_normal(1000)
    x = cp.Variable(1000)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y)), [cp.diff(x) >= 0])


@form
def isotonic_abs(rng: np.random.Generator) -> Any:
    y = np.linspace(0, 1, 1000) + 0.3 * rng.standard_normal(1000)
    x = cp.Variable(1000)
    return cp.Problem(cp.Minimize(cp.norm1(x - y)), [x[1:] >= x[:-1]])


@form
def spline(rng: np.random.Generator) -> Any:
    """Penalised spline: absolute errors, squares of second differences."""
    t = np.sort(rng.random(500))
    y = np.sin(6 * t) + 0.3 * rng.standard_t(2, 500)
    knots = np.linspace(0, 1, 30)
    B = np.maximum(0.0, 1.0 - np.abs(t[:, None] - knots) * 29)
    c = cp.Variable(30)
    rough = cp.sum_squares(cp.diff(c, 2))
    return cp.Problem(cp.Minimize(cp.norm1(B @ c - y) + 5.0 * rough))


@form
def spline_cubic(rng: np.random.Generator) -> Any:
    """One coefficient a sample, squares of second differences."""
    y = np.sin(np.linspace(0, 9, 800)) + 0.3 * rng.standard_normal(800)
    x = cp.Variable(800)
    rough = 100.0 * cp.sum_squares(cp.diff(x, 2))
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(x - y, 0.5)) + rough))


@form
def svdd_loop(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((150, 3))
    c, r, xi = cp.Variable(3), cp.Variable(), cp.Variable(150)
    rows = [cp.sum_squares(X[i] - c) <= r + xi[i] for i in range(150)]
    return cp.Problem(cp.Minimize(r + cp.sum(xi) / 15), [*rows, xi >= 0])


@form
def enclosing_ball(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((500, 5))
    c, r = cp.Variable(5), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.norm(X - c[None, :], axis=1) <= r])


@form
def geometric_median(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((300, 5))
    c = cp.Variable(5)
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(X - c[None, :], axis=1))))


@form
def weighted_medians(rng: np.random.Generator) -> Any:
    """Two facilities that are drawn together, one within a box."""
    P, x, y, w = rng.standard_normal((12_000, 2)), cp.Variable(2), cp.Variable(2), weight(50.0)
    near = rng.random(6_000) @ cp.norm(P[:6_000] - x, axis=1)
    far = cp.sum(cp.norm(P[6_000:] - y, axis=1))
    return cp.Problem(cp.Minimize(near + far + w * cp.norm(x - y)), [x >= 0.1])


@form
def robust_outputs(rng: np.random.Generator) -> Any:
    """Norms of the residuals of three outputs."""
    X, W = rng.standard_normal((5_000, 8)), cp.Variable((8, 3))
    Y = X @ rng.standard_normal((8, 3)) + rng.standard_t(2, (5_000, 3))
    loss = cp.sum(cp.norm(X @ W - Y, axis=1))
    return cp.Problem(cp.Minimize(loss + weight() * cp.sum_squares(W)))


def worst_group(rng: np.random.Generator, loss: Callable[[Any], Any]) -> Any:
    """The worst mean loss of four groups, and a ridge."""
    X, y = line(rng, 6_000, 10)
    w = cp.Variable(10)
    groups = [cp.mean(loss(X[k::4] @ w - y[k::4])) for k in range(4)]
    return cp.Problem(cp.Minimize(cp.max(cp.hstack(groups)) + 0.1 * weight() * cp.sum_squares(w)))


FORMS["worst_group_abs"] = lambda rng: worst_group(rng, cp.abs)
FORMS["worst_group_huber"] = lambda rng: worst_group(rng, cp.huber)
FORMS["worst_group_squares"] = lambda rng: worst_group(rng, cp.square)


@form
def markowitz(rng: np.random.Generator) -> Any:
    """The example of CVXPY's documentation: a covariance, the simplex, gamma a parameter."""
    F = rng.standard_normal((50, 50))
    w = cp.Variable(50)
    risk = cp.quad_form(w, F.T @ F / 50)
    cost = rng.standard_normal(50) @ w - weight(0.5) * risk
    return cp.Problem(cp.Maximize(cost), [cp.sum(w) == 1, w >= 0])


@form
def factor_portfolio(rng: np.random.Generator) -> Any:
    w, f = cp.Variable(300), cp.Variable(15)
    F = rng.standard_normal((300, 15))
    risk = cp.sum_squares(cp.multiply(rng.random(300), w)) + cp.sum_squares(f)
    cost = rng.standard_normal(300) @ w - weight(0.1) * risk
    return cp.Problem(cp.Maximize(cost), [cp.sum(w) == 1, f == F.T @ w, cp.norm1(w) <= 2])


@form
def portfolio_turnover(rng: np.random.Generator) -> Any:
    F, old = rng.standard_normal((50, 50)), np.full(50, 0.02)
    w = cp.Variable(50)
    cost = cp.quad_form(w, F.T @ F / 50) - rng.standard_normal(50) @ w
    cost += 0.01 * cp.norm1(w - old)
    return cp.Problem(cp.Minimize(cost), [cp.sum(w) == 1, w >= 0])


@form
def cvar_program(rng: np.random.Generator) -> Any:
    R = 0.01 * rng.standard_t(4, (1000, 20))
    w, t, u = cp.Variable(20), cp.Variable(), cp.Variable(1000)
    rows = [u >= -R @ w - t, u >= 0, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Minimize(t + cp.sum(u) / 50), rows)


@form
def cvar_atom(rng: np.random.Generator) -> Any:
    R = 0.01 * rng.standard_t(4, (1000, 20))
    w = cp.Variable(20)
    return cp.Problem(cp.Minimize(cp.cvar(-R @ w, 0.95)), [cp.sum(w) == 1, w >= 0])


@form
def cvar_constraint(rng: np.random.Generator) -> Any:
    R = 0.01 * rng.standard_t(4, (1000, 20)) + 0.001
    w = cp.Variable(20)
    rows = [cp.cvar(-R @ w, 0.95) <= 0.05, cp.sum(w) == 1, w >= 0]
    return cp.Problem(cp.Maximize(R.mean(0) @ w), rows)


@form
def mean_absolute_deviation(rng: np.random.Generator) -> Any:
    R = 0.01 * rng.standard_t(4, (1000, 20))
    w = cp.Variable(20)
    rows = [cp.sum(w) == 1, w >= 0, R.mean(0) @ w >= 0.0]
    return cp.Problem(cp.Minimize(cp.sum(cp.abs((R - R.mean(0)) @ w)) / 1000), rows)


@form
def newsvendor(rng: np.random.Generator) -> Any:
    demand = rng.gamma(5, 10, 1000)
    q = cp.Variable(nonneg=True)
    cost = 3.0 * q - 5.0 * cp.sum(cp.minimum(q, demand)) / 1000
    return cp.Problem(cp.Minimize(cost))


@form
def newsvendor_features(rng: np.random.Generator) -> Any:
    X = rng.random((1000, 8))
    demand = X @ rng.random(8) * 20 + rng.gamma(2, 2, 1000)
    w = cp.Variable(8)
    cost = cp.sum(4 * cp.pos(demand - X @ w) + cp.pos(X @ w - demand)) / 1000
    return cp.Problem(cp.Minimize(cost))


@form
def ranking(rng: np.random.Generator) -> Any:
    X, score = line(rng, 60, 8)
    i, j = (index.ravel() for index in np.meshgrid(np.arange(60), np.arange(60)))
    keep = score[i] > score[j] + 1.0
    w = cp.Variable(8)
    loss = cp.sum(cp.pos(1 - (X[i[keep]] - X[j[keep]]) @ w))
    return cp.Problem(cp.Minimize(loss / keep.sum() + 0.01 * cp.norm1(w)))


@form
def metric_triplets(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((40, 3))
    M = cp.Variable((3, 3), PSD=True)
    a, b, c = (rng.integers(0, 40, 60) for _ in range(3))
    loss = 0
    for k in range(60):
        u, v = X[a[k]] - X[b[k]], X[a[k]] - X[c[k]]
        loss += cp.pos(1 - cp.trace((np.outer(v, v) - np.outer(u, u)) @ M))
    return cp.Problem(cp.Minimize(loss + 0.5 * cp.sum_squares(M)))


@form
def metric_trace(rng: np.random.Generator) -> Any:
    """LMNN: the trace in place of squares."""
    X = rng.standard_normal((100, 3))
    M = cp.Variable((3, 3), PSD=True)
    a, b, c = (rng.integers(0, 100, 300) for _ in range(3))
    u, v = X[a] - X[b], X[a] - X[c]
    H = np.einsum("ti,tj->tij", v, v) - np.einsum("ti,tj->tij", u, u)
    loss = cp.sum(cp.pos(1 - H.reshape(300, 9) @ cp.vec(M, order="F")))
    return cp.Problem(cp.Minimize(loss + 0.5 * cp.trace(M)))


@form
def largest_sum(rng: np.random.Generator) -> Any:
    return regression(rng, 1000, 10, lambda e: cp.sum_largest(cp.abs(e), 50), 0.0)


@form
def minimax(rng: np.random.Generator) -> Any:
    return regression(rng, 1000, 10, cp.norm_inf, 0.0)


@form
def program_many_rows(rng: np.random.Generator) -> Any:
    A = rng.standard_normal((2000, 10))
    x = cp.Variable(10)
    cost = cp.sum_squares(x - 3 * rng.standard_normal(10))
    return cp.Problem(cp.Minimize(cost), [A @ x <= 1 + rng.random(2000)])


@form
def chebyshev_centre(rng: np.random.Generator) -> Any:
    A = rng.standard_normal((50, 4))
    x, r = cp.Variable(4), cp.Variable()
    size = np.linalg.norm(A, axis=1)
    return cp.Problem(cp.Maximize(r), [A @ x + size * r <= 1])


@form
def linear_program(rng: np.random.Generator) -> Any:
    """The example of CVXPY's documentation, with the cost as a parameter."""
    A, s = rng.standard_normal((15, 10)), rng.standard_normal(15)
    x0, y0 = rng.standard_normal(10), np.maximum(s, 0)
    c = cp.Parameter(10, value=-A.T @ np.maximum(-s, 0))
    x = cp.Variable(10)
    return cp.Problem(cp.Minimize(c @ x), [A @ x <= A @ x0 + y0])


@form
def quadratic_program(rng: np.random.Generator) -> Any:
    P, q = rng.standard_normal((10, 10)), cp.Parameter(10, value=rng.standard_normal(10))
    x = cp.Variable(10)
    cost = 0.5 * cp.quad_form(x, P.T @ P) + q @ x
    rows = [rng.standard_normal((15, 10)) @ x <= 1, rng.standard_normal((5, 10)) @ x == 0]
    return cp.Problem(cp.Minimize(cost), rows)


@form
def box_least_squares(rng: np.random.Generator) -> Any:
    """The first example of CVXPY's documentation."""
    A, b = line(rng, 30, 20)
    x = cp.Variable(20)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)), [x >= 0, x <= 1])


@form
def nonnegative_least_squares(rng: np.random.Generator) -> Any:
    A, b = line(rng, 500, 100)
    x = cp.Variable(100, nonneg=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)))


@form
def model_predictive_control(rng: np.random.Generator) -> Any:
    n, m, T = 4, 2, 30
    A, B = np.eye(n) + 0.1 * rng.standard_normal((n, n)), rng.standard_normal((n, m))
    x, u = cp.Variable((n, T + 1)), cp.Variable((m, T))
    start = cp.Parameter(n, value=rng.standard_normal(n))
    cost, rows = 0, [x[:, 0] == start]
    for t in range(T):
        cost += cp.sum_squares(x[:, t + 1]) + cp.sum_squares(u[:, t])
        rows += [x[:, t + 1] == A @ x[:, t] + B @ u[:, t], cp.norm_inf(u[:, t]) <= 1]
    return cp.Problem(cp.Minimize(cost), rows)


@form
def control_fuel(rng: np.random.Generator) -> Any:
    """Absolute values of inputs, one vectorised dynamic constraint."""
    n, T = 4, 40
    A, b = np.eye(n) + 0.1 * rng.standard_normal((n, n)), rng.standard_normal((n, 1))
    x, u = cp.Variable((n, T + 1)), cp.Variable((1, T))
    rows = [x[:, 1:] == A @ x[:, :-1] + b @ u, x[:, 0] == 0, x[:, T] == rng.standard_normal(n)]
    return cp.Problem(cp.Minimize(cp.sum(cp.maximum(cp.abs(u), 2 * cp.abs(u) - 1))), rows)


@form
def kalman_robust(rng: np.random.Generator) -> Any:
    n, T = 2, 60
    A, y = np.array([[1.0, 0.1], [0.0, 1.0]]), rng.standard_normal((1, T))
    x, w, v = cp.Variable((n, T + 1)), cp.Variable((n, T)), cp.Variable((1, T))
    cost = cp.sum_squares(w) + weight(2.0) * cp.sum(cp.huber(v))
    rows = [x[:, 1:] == A @ x[:, :-1] + w, y == x[:1, :-1] + v]
    return cp.Problem(cp.Minimize(cost), rows)


@form
def max_flow(rng: np.random.Generator) -> Any:
    n, m = 20, 80
    ends = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    A = sp.csr_array((np.r_[np.ones(m), -np.ones(m)], (ends.T.ravel(), np.tile(np.arange(m), 2))),
                     shape=(n, m))
    f, s = cp.Variable(m), cp.Variable()
    source = np.zeros(n)
    source[0], source[-1] = 1, -1
    return cp.Problem(cp.Maximize(s), [A @ f == s * source, f >= 0, f <= rng.random(m)])


@form
def optimal_advertising(rng: np.random.Generator) -> Any:
    """The example of CVXPY's documentation: minima of clicks and budgets."""
    P, B = rng.random((5, 24)), rng.random(5)
    D = cp.Variable((5, 24))
    income = [cp.minimum(P[i] @ D[i], B[i]) for i in range(5)]
    rows = [D >= 0, cp.sum(D, axis=0) <= rng.random(24), cp.sum(D, axis=1) >= 0.01]
    return cp.Problem(cp.Maximize(sum(income)), rows)


@form
def entropy(rng: np.random.Generator) -> Any:
    A = rng.standard_normal((5, 40))
    x = cp.Variable(40)
    rows = [A @ x == A @ rng.dirichlet(np.ones(40)), cp.sum(x) == 1]
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), rows)


@form
def water_filling(rng: np.random.Generator) -> Any:
    x = cp.Variable(20)
    cost = cp.sum(cp.log(rng.random(20) + x))
    return cp.Problem(cp.Maximize(cost), [x >= 0, cp.sum(x) == 1])


@form
def semidefinite(rng: np.random.Generator) -> Any:
    C = rng.standard_normal((8, 8))
    X = cp.Variable((8, 8), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(C.T @ C @ X)), [cp.trace(X) == 1, X[0, 1] == 0.1])


@form
def covariance_sparse(rng: np.random.Generator) -> Any:
    Y = rng.standard_normal((50, 5))
    S = cp.Variable((5, 5), PSD=True)
    cost = cp.log_det(S) - cp.trace(S @ (Y.T @ Y / 50))
    return cp.Problem(cp.Maximize(cost), [cp.sum(cp.abs(S)) <= 10])


@form
def second_order_program(rng: np.random.Generator) -> Any:
    """The example of CVXPY's documentation."""
    x = cp.Variable(10)
    rows = [
        cp.SOC(rng.standard_normal(10) @ x + 20, rng.standard_normal((5, 10)) @ x) for _ in range(3)
    ]
    return cp.Problem(cp.Minimize(rng.standard_normal(10) @ x), [*rows, cp.norm(x) <= 5])


@form
def robust_least_squares(rng: np.random.Generator) -> Any:
    A, b = line(rng, 200, 10)
    x = cp.Variable(10)
    return cp.Problem(cp.Minimize(cp.norm(A @ x - b) + 0.1 * cp.norm(x)))


@form
def matrix_completion(rng: np.random.Generator) -> Any:
    M, seen = rng.standard_normal((10, 10)), rng.random((10, 10)) < 0.5
    X = cp.Variable((10, 10))
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [cp.multiply(seen, X - M) == 0])


@form
def compressed_sensing(rng: np.random.Generator) -> Any:
    A = rng.standard_normal((60, 200))
    x = cp.Variable(200)
    truth = rng.standard_normal(200) * (rng.random(200) < 0.05)
    return cp.Problem(cp.Minimize(cp.norm1(x)), [A @ x == A @ truth])


@form
def integers(rng: np.random.Generator) -> Any:
    x = cp.Variable(8, boolean=True)
    rows = [rng.random(8) @ x <= 2]
    return cp.Problem(cp.Maximize(rng.random(8) @ x), rows)


@form
def scheduling(rng: np.random.Generator) -> Any:
    load, price = rng.random(96), rng.random(96)
    c, q = cp.Variable(96), cp.Variable(97)
    rows = [q[1:] == q[:-1] + c, q >= 0, q <= 5, c >= -1, c <= 1, q[0] == 2, load + c >= 0]
    return cp.Problem(cp.Minimize(price @ (load + c) + 0.1 * cp.norm1(cp.diff(c))), rows)


LOSSES: tuple[Callable[[Any], Any], ...] = (
    cp.pos, cp.abs, cp.huber, cp.square, cp.exp, lambda e: cp.maximum(0.3 * e, -0.7 * e),
    lambda e: cp.square(cp.pos(e)), lambda e: cp.pos(cp.abs(e) - 0.2), cp.logistic,
)

PENALTIES: tuple[Callable[[Any], Any], ...] = (
    cp.sum_squares, cp.norm1, cp.norm, lambda x: cp.sum_squares(cp.diff(x)),
    lambda x: cp.norm1(cp.diff(x)), lambda x: 0 * cp.sum(x), lambda x: cp.norm_inf(x),
)

ROWS: tuple[Callable[[Any, np.random.Generator], list[Any]], ...] = (
    lambda x, r: [],
    lambda x, r: [x >= -1, x <= 2],
    lambda x, r: [cp.sum(x) == 1],
    lambda x, r: [r.standard_normal((30, x.size)) @ x <= 1 + r.random(30)],
    lambda x, r: [cp.norm(x) <= 3],
)


def random_problem(rng: np.random.Generator) -> Any:
    """A sum of losses of an affine map, a penalty and constraints, all drawn."""
    d = int(rng.integers(2, 40))
    n = int(np.exp(rng.uniform(np.log(5), np.log(1500))))
    x = cp.Variable(d)
    loss, penalty = LOSSES[rng.integers(len(LOSSES))], PENALTIES[rng.integers(len(PENALTIES))]
    cost = cp.sum(loss((rng.standard_normal((n, d)) @ x - rng.standard_normal(n)) / np.sqrt(d)))
    scale = weight(1.0) if rng.random() < 0.5 else 1.0
    return cp.Problem(
        cp.Minimize(scale * cost + penalty(x)), ROWS[rng.integers(len(ROWS))](x, rng)
    )


@dataclass(frozen=True)
class Line:
    """One form: CPU seconds plain and screened, at the first and at the second call."""

    name: str
    first: tuple[float, float]
    second: tuple[float, float]
    recognised: bool
    kept: float
    difference: float
    reason: str

    @property
    def over(self) -> float:
        """Seconds beyond the bar, of the worse call; negative where both are within it."""
        return max(s - FACTOR * p - CONSTANT for p, s in (self.first, self.second))


def timed(problem: Any, **options: Any) -> float:
    """CPU seconds of a solve; what it raises is somebody else's business."""
    began = process_time()
    with contextlib.suppress(cp.error.SolverError):
        problem.solve(**options)
    return process_time() - began


def measure(name: str, make: Make, seed: int, repeat: int) -> Line:
    """Both calls of both ways, the least of `repeat`."""
    spent = np.full((repeat, 2, 2), np.inf)
    for k in range(repeat):
        for way in (0, 1) if k % 2 else (1, 0):
            problem = make(np.random.default_rng(seed))
            options = {"method": "screen"} if way else {}
            spent[k, 0, way] = timed(problem, **options)
            for parameter in problem.parameters():
                parameter.value = 1.1 * parameter.value
            spent[k, 1, way] = timed(problem, **options)
            if way:
                screened = problem
            else:
                plain = problem
        if spent[: k + 1].sum() > 20.0:
            break
    least = spent.min(axis=0)
    stats = screened.solver_stats
    report = None if stats is None else stats.extra_stats["cvxscreen"]
    values = [np.nan if p.value is None else float(p.value) for p in (plain, screened)]
    difference = 0.0 if values[0] == values[1] else (values[1] - values[0]) / (1 + abs(values[0]))
    if isinstance(plain.objective, cp.Maximize):
        difference = -difference
    found = report is not None and report.recognised
    return Line(
        name, tuple(least[0]), tuple(least[1]), found,
        report.kept / max(report.terms, 1) if found else 1.0, difference,
        "" if report is None else report.reason,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forms", nargs="*", help="only forms whose name contains one of these")
    parser.add_argument("--random", type=int, default=0, help="so many random problems besides")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    forms = dict(FORMS)
    forms |= {f"random_{k}": random_problem for k in range(arguments.random)}
    if arguments.forms:
        forms = {k: v for k, v in forms.items() if any(part in k for part in arguments.forms)}
    for options in ({}, {"method": "screen"}):  # imports
        svm(np.random.default_rng(0), 2000, 5).solve(**options)
        svm(np.random.default_rng(0), 20, 5).solve(**options)
    lines = []
    for k, (name, make) in enumerate(forms.items()):
        lines.append(measure(name, make, k, arguments.repeat))
        print(f"{name}: {lines[-1]}", flush=True)
    lines.sort(key=lambda entry: -entry.over)
    rows = [
        (
            entry.name, *(round(1e3 * t, 1) for t in (*entry.first, *entry.second)),
            round(1e3 * entry.over, 1), "yes" if entry.recognised else "no",
            round(entry.kept, 3), f"{entry.difference:.1e}",
        )
        for entry in lines
    ]
    header = ("form", "plain ms", "screen ms", "plain 2nd", "screen 2nd", "over ms", "screened",
              "kept", "value off")
    print(table(header, rows, title="never worse than 1.2 times plain plus 3 ms"))
    gains = [np.log(entry.first[0] / entry.first[1]) for entry in lines if entry.recognised]
    within = int(sum(entry.over <= 0 for entry in lines))
    print(f"within the bar: {within} of {len(lines)}; screened: {len(gains)}, "
          f"their plain time over the screened one (geometric mean): {np.exp(np.mean(gains)):.2f}")
    if arguments.json:
        record = with_origin({"columns": header, "rows": rows, "within": within})
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
