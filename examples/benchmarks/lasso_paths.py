"""Paths of a lasso, 20 values to a hundredth of the largest weight, beside scikit-learn's.

    OMP_NUM_THREADS=1 python examples/benchmarks/lasso_paths.py [--repeat R] [--store]

CPU seconds of this process, the least of R; ours with every point certified to 1e-6, the model
included, and the same by the ordinary loop, which a bound of its iterations asks for. `lasso_path`
has its default tolerance, and the loosest one at which its largest relative gap, computed here, is
1e-6; with an intercept it gets centred copies, as `LassoCV` makes them, on the clock.
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time
from typing import Any

import numpy as np
from report import store
from sklearn.linear_model import lasso_path

import cvxscreen
from cvxscreen._support.tables import table

TARGET, MOST = 1e-6, 10**9
SHAPES = (
    (800, 400, "plain"), (500, 1500, "plain"), (50_000, 50, "plain"), (2000, 400, "chain"),
    (300, 3000, "factors"), (5000, 100, "factors"), (1500, 15, "chain"), (20_000, 300, "chain"),
)
"""Terms, features, and how these depend on each other."""


def drawn(n: int, d: int, kind: str) -> tuple[Any, Any]:
    """Features with means of their own, twenty of which count, and targets far from 0."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d))
    if kind == "factors":
        X = 0.5 * X + rng.standard_normal((n, 5)) @ rng.standard_normal((5, d))
    if kind == "chain":
        for j in range(1, d):
            X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(0.19) * X[:, j]
    X += 0.3 * rng.standard_normal(d)
    w = np.zeros(d)
    w[rng.permutation(d)[:20]] = rng.standard_normal(min(20, d))
    return X, X @ w + rng.standard_normal(n) + 3.0


def ours(X: Any, y: Any, alphas: Any, intercept: bool, **options: Any) -> float:
    """CPU seconds of the path, every point of it optimal."""
    began = process_time()
    problem = cvxscreen.regression(X, y, loss="squared", penalty="l1", intercept=intercept)
    found = cvxscreen.path(problem, values=1.0 / (len(y) * alphas), tol=TARGET, **options)
    seconds = process_time() - began
    assert all(point.status == "optimal" for point in found.points)
    return seconds


def peer(X: Any, y: Any, alphas: Any, intercept: bool, tol: float) -> tuple[float, float]:
    """CPU seconds and the largest relative gap."""
    began = process_time()
    means = X.mean(axis=0) if intercept else 0.0
    features, left = np.asfortranarray(X - means), y - (y.mean() if intercept else 0.0)
    _, found, _ = lasso_path(features, left, alphas=alphas, tol=tol, max_iter=100_000)
    seconds, gaps = process_time() - began, []
    for alpha, w in zip(alphas * len(y), found.T, strict=True):
        r = left - features @ w
        primal = 0.5 * r @ r + alpha * np.abs(w).sum()
        r = r * min(1.0, alpha / max(np.abs(features.T @ r).max(), 1e-300))
        gaps.append((primal - left @ r + 0.5 * r @ r) / primal)
    return seconds, float(max(gaps))


def record(n: int, d: int, kind: str, intercept: bool, repeat: int) -> dict[str, Any]:
    """One row."""
    X, y = drawn(n, d, kind)
    largest = np.abs((X - intercept * X.mean(axis=0)).T @ (y - intercept * y.mean())).max() / n
    asked = X, y, largest * np.logspace(-0.05, -2.0, 20), intercept
    gap = peer(*asked, 1e-4)[1]
    for tol in 10.0 ** np.arange(-4.0, -13.0, -0.5):
        if peer(*asked, float(tol))[1] <= TARGET:
            break
    times = np.array([
        (ours(*asked), ours(*asked, max_iter=MOST), peer(*asked, 1e-4)[0],
         peer(*asked, float(tol))[0])
        for _ in range(repeat)
    ]).min(axis=0)
    names = ("ours", "ordinary loop", "lasso_path", "at the same gap")
    row = {"terms": n, "features": d, "kind": kind, "intercept": intercept}
    return {**row, **dict(zip(names, map(float, times), strict=True)), "its default's gap": gap}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--note", default="")
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for n in (300, 4000):  # what is loaded once a process
        for intercept in (False, True):
            record(n, 100, "plain", intercept, 1)
    records = [record(*shape, intercept, asked.repeat) for shape in SHAPES
               for intercept in (False, True)]
    names = list(records[0])
    print(table(names, [tuple(row[name] for name in names) for row in records],
                title="Paths of a lasso, CPU seconds"))
    if asked.store:
        store("lasso_paths", records, asked.note)


if __name__ == "__main__":
    main()
