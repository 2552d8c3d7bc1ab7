"""Hard data: scales over sixteen orders of magnitude, near duplicates, margins at kinks, and so on.

Everything is drawn from one generator, so a cell of the campaign is its number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxscreen import regression, sparse_svm, sparse_svr, svm
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION
from cvxscreen.solvers.lambda_max import lambda_max

LOSSES = (*CLASSIFICATION, *REGRESSION)
KINDS = (
    "plain", "scales", "duplicates", "collinear", "integer", "wide", "tall", "constant", "far",
    "imbalanced", "graded",
)
STORAGE = (("dense", "float64"), ("dense", "float32"), ("csr", "float64"), ("csr", "float32"),
           ("dense", "int64"))
SHAPES: dict[str, dict[str, float]] = {
    "hinge": {}, "squared_hinge": {}, "absolute": {}, "smoothed_hinge": {"gamma": 0.5},
    "quantile": {"tau": 0.25}, "epsilon": {"epsilon": 0.5}, "huber": {"delta": 0.75},
    "smoothed_epsilon": {"epsilon": 0.5, "gamma": 0.25},
}


def features(kind: str, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A data matrix, dense float64."""
    if kind == "wide":
        n, d = max(n // 6, 4), 3 * d
    if kind == "tall":
        n, d = 3 * n, 2
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    if kind == "scales":
        X *= 10.0 ** rng.uniform(-8, 8, d)
    elif kind == "graded":  # rows of very different sizes
        X *= 10.0 ** rng.uniform(-8, 8, n)[:, None]
    elif kind == "duplicates":
        copies = rng.integers(0, n, n // 2)
        size = 10.0 ** rng.integers(-17, -8, n // 2)[:, None]
        X[: n // 2] = X[copies] * (1.0 + size * rng.standard_normal((n // 2, d)))
        X[0], X[1] = X[2], -X[3]
    elif kind == "collinear":
        X = np.outer(X[:, 0], rng.standard_normal(d)) + 1e-9 * X
        X[:, -1] = X[:, 0]
    elif kind == "integer":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "constant":
        X[:, 0], X[:, -1], X[: n // 8] = 0.0, 3.0, 0.0
    elif kind == "far":
        X += 1e6
    return X


def stored(X: np.ndarray, storage: tuple[str, str], rng: np.random.Generator) -> Any:
    """The matrix in a storage; integers are rounded, sparse ones thinned out."""
    form, dtype = storage
    if dtype == "int64":
        return np.clip(np.round(X), -1e15, 1e15).astype(np.int64)
    if form == "csr":
        X = np.where(rng.random(X.shape) < 0.4, 0.0, X)
    X = X.astype(dtype)
    return sp.csr_matrix(X) if form == "csr" else X


def response(kind: str, X: Any, loss: str, rng: np.random.Generator) -> np.ndarray:
    """Labels or targets that depend on the data, with noise."""
    dense = np.asarray(X.todense() if sp.issparse(X) else X, dtype=float)
    size = np.maximum(np.abs(dense).max(axis=0), 1e-300)
    score = (dense / size) @ rng.standard_normal(dense.shape[1])
    score = 1.5 * score / (score.std() + 1e-12) + rng.standard_normal(len(dense))
    if loss not in CLASSIFICATION:
        return np.round(score) if kind == "integer" else score
    share = 0.96 if kind == "imbalanced" else 0.5
    y = np.where(score > np.quantile(score, share), 1.0, -1.0)
    y[0], y[-1] = 1.0, -1.0
    return y


def strength(rng: np.random.Generator) -> float:
    """A parameter: usual, tiny or huge."""
    kind = rng.integers(0, 8)
    return float(10.0 ** (rng.uniform(-2, 1) if kind < 5 else rng.uniform(*(
        (-8, -3) if kind < 7 else (2, 6)))))


def vectors(
    loss: str, kind: str, storage: tuple[str, str], rng: np.random.Generator,
    *, n: int = 60, d: int = 5, intercept: bool = False, weighted: bool = False,
) -> Problem:
    """A problem by the front doors."""
    X = stored(features(kind, rng, n, d), storage, rng)
    y = response(kind, X, loss, rng)
    weight = 10.0 ** rng.uniform(-8, 8, X.shape[0]) if weighted else None
    if weight is not None:
        weight[rng.integers(0, len(weight))] = 0.0
        weight[[0, -1]] = 1.0
    mean = float(np.mean(np.asarray(X.multiply(X).sum(axis=1) if sp.issparse(X)
                                    else np.sum(np.square(X, dtype=float), axis=1))))
    C = strength(rng) / max(mean, 1e-300)
    door = svm if loss in CLASSIFICATION else regression
    return door(X, y, C=C, loss=loss, sample_weight=weight, intercept=intercept, **SHAPES[loss])


def elastic(
    loss: str, kind: str, storage: tuple[str, str], rng: np.random.Generator,
    *, n: int = 50, d: int = 12,
) -> Problem:
    """A problem under an L1 term, from above its largest lambda to a thousandth of it."""
    X = stored(features(kind, rng, n, d), storage, rng)
    y = response(kind, X, loss, rng)
    door = sparse_svm if loss in CLASSIFICATION else sparse_svr
    weight = rng.uniform(0.2, 3.0, X.shape[0])
    l2 = float(10.0 ** rng.uniform(-1, 1))
    problem = door(X, y, 1.0, loss=loss, sample_weight=weight, l2=l2, **SHAPES[loss])
    top = lambda_max(problem)
    share = float(rng.choice([1.001, 0.999, 0.5, 0.2, 0.05, 1e-3]))
    return problem.with_(lam=share * top if top > 0 else 1.0)


def planted(
    loss: str, rng: np.random.Generator, n: int = 40, d: int = 1
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Binary data whose optimum is known exactly, margins at knots or a few ulps beside them.

    Slopes are chosen first, ``x* = -A' theta*`` follows without rounding, and every term's kink is
    then put where its margin has to be. In one coordinate all rows are parallel, so that a ball
    that is attained is attained by every term.
    """
    A = rng.integers(-8, 9, (n, d)) * 2.0 ** rng.integers(-4, 5, (n, 1))
    A = A * 2.0 ** rng.integers(-9, 9)
    e = 0.5 if "epsilon" in loss else 0.0
    curved = {"smoothed_hinge": 0.5, "squared_hinge": 1.0, "smoothed_epsilon": 0.25, "huber": 1.0}
    q = curved.get(loss, 0.0)
    ends = {"squared_hinge": (-np.inf, 0.0), "quantile": (-0.25, 0.75), "huber": (-0.75, 0.75)}
    lo, hi = ends.get(loss, (-1.0, 0.0) if "hinge" in loss else (-1.0, 1.0))
    bottom = max(lo, -1.0)
    theta = rng.integers(round(bottom * 16), round(hi * 16) + 1, n) / 16.0
    linear = rng.random(n) < 0.7
    theta[linear] = rng.choice([bottom, 0.0, hi], int(linear.sum()))
    x = -A.T @ theta
    t = A @ x
    # How far beyond its knot a term on a linear piece is: nothing, an ulp or a few, or clearly.
    ulp = np.spacing(np.maximum(np.abs(t), 2.0**-30))
    away = np.choose(rng.integers(0, 5, n), [0 * ulp, ulp, 4 * ulp, 2.0**-20 + 0 * ulp, 0.25])
    z = e * np.sign(theta) + q * theta
    side = rng.choice([-1.0, 1.0], n)
    at_zero = away if hi == 0.0 else side * (e - away) if e > 0 else 0.0 * away
    z = np.where((theta == lo) & (lo < 0), z - away, z)
    z = np.where((theta == hi) & (hi > 0), z + away, z)
    b = t - np.where(theta == 0.0, at_zero, z)
    losses = Losses(b, e, q, lo, hi)
    problem = Problem(Rows(A), losses, Quadratic(np.ones(d)), np.zeros(d), kind="planted")
    return problem, x, theta
