"""Small problems of rows, for certificates of many answers under weights of their own."""

from __future__ import annotations

import numpy as np

import cvxscreen
from cvxscreen.certificates.weightings import Around, stays_around
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.datasets import two_gaussians

X, Y = two_gaussians(300, 4, seed=2)
T = X @ np.array([1.0, -2.0, 0.5, 0.0]) + np.sin(5.0 * X[:, 0])
PROBLEMS = {
    "hinge": lambda i: cvxscreen.svm(X, Y, C=0.5, intercept=i),
    "squared hinge": lambda i: cvxscreen.svm(X, Y, C=0.5, loss="squared_hinge", intercept=i),
    "float32, badly scaled": lambda i: cvxscreen.svm(
        (X * [1.0, 1e3, 1e-3, 1.0]).astype(np.float32), Y, C=1e-4, intercept=i),
    "quantile": lambda i: cvxscreen.regression(X, T, loss="quantile", tau=0.8, intercept=i),
    "epsilon": lambda i: cvxscreen.regression(X, T, loss="epsilon", epsilon=0.1, intercept=i),
    "huber": lambda i: cvxscreen.regression(X, T, C=0.5, loss="huber", intercept=i),
}


def answers(problem: cvxscreen.Problem, tol: float = 1e-8):
    """Weights, answers and slopes of four weightings; the slopes of some terms are given."""
    rng = np.random.default_rng(5)
    W = rng.poisson(1.0, (4, problem.n)).astype(float)
    base = cvxscreen.solve(problem, tol=1e-10)
    found = [cvxscreen.solve(weighted(problem, w), tol=tol) for w in W]
    x, theta = np.array([s.x for s in found]), np.array([s.theta for s in found])
    slopes = problem.losses.slope(problem.design.forward(base.x))
    around = Around.at(problem, base.x, slopes)
    away = float(np.linalg.norm(x - base.x, axis=1).max())
    rows = np.flatnonzero(~stays_around(around, 1.001 * away))
    return W, x, theta, around, rows
