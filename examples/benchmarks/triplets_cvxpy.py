"""Metric learning through CVXPY: the full problem and the one screening leaves, SCS and Clarabel.

    python examples/benchmarks/triplets_cvxpy.py [--data segment.npz] [--large]

The reduced problem is (2.9) of Yoshida et al. (2019): what the midpoint sphere of a rough solution
(relative gap 1e-4 of our own solver, counted) proves is taken away. CPU seconds of the whole
``prob.solve``, CVXPY's compilation included; `dM` is the largest difference from our metric at a
gap of 1e-10, relative to its largest entry.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_wine

import cvxscreen
from cvxscreen.models.files import read_data

OPTIONS = {
    "CLARABEL": {"tol_gap_rel": 1e-9, "tol_gap_abs": 1e-9, "tol_feas": 1e-9},
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000},
}


def standard(X: np.ndarray) -> np.ndarray:
    X = np.asarray(X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def solved(prob, solver: str) -> float:
    began = time.process_time()
    prob.solve(solver=solver, **OPTIONS[solver])
    return time.process_time() - began


def compare(name: str, X: np.ndarray, y: np.ndarray, k: int, share: float, solvers) -> None:
    T = cvxscreen.triplets(X, y, k=k)
    p = cvxscreen.rtlm(X, T, 1.0)
    p = p.with_(lam=share * cvxscreen.lam_max(p))
    cvxscreen.solve(p, tol=1e-3)  # compiles
    exact = cvxscreen.solve(p, tol=1e-10)
    size = np.abs(exact.x).max()
    for solver in solvers:
        full = p.to_cvxpy()
        slow = solved(full, solver)
        began = time.process_time()
        reduced = cvxscreen.solve(p, tol=1e-4).screening.reduce()
        small = reduced.to_cvxpy()
        fast = solved(small, solver)
        total = time.process_time() - began
        metrics = [
            next(v for v in prob.variables() if v.shape == (X.shape[1],) * 2).value
            for prob in (full, small)
        ]
        away = [np.abs(m.ravel() - exact.x).max() / size for m in metrics]
        print(
            f"{name:10} {p.n:7,} {reduced.n:6,} {solver:9} {slow:8.2f} {fast:8.2f} {total:8.2f}"
            f" {slow / total:6.1f}  {abs(full.value - exact.value) / exact.value:8.1e}"
            f" {abs(small.value - exact.value) / exact.value:8.1e}  {away[0]:8.1e} {away[1]:8.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="a data file with about 19 features (segment)")
    parser.add_argument("--large", action="store_true", help="20,000 triplets in 30 dimensions")
    args = parser.parse_args()
    print("set              T   kept solver    full s  small s  total s  ratio  objective full,"
          " small   dM full, small")
    X, y = load_wine(return_X_y=True)
    compare("wine", standard(X), y, 5, 1e-2, ("CLARABEL", "SCS"))
    if args.data:
        X, y = read_data(args.data)
        some = np.random.default_rng(0).choice(len(y), 555, replace=False)
        compare("segment", standard(X)[some], y[some], 3, 1e-2, ("CLARABEL", "SCS"))
    if args.large:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 4, 1250)
        X = rng.standard_normal((1250, 30)) + 2.0 * rng.standard_normal((4, 30))[y]
        compare("synthetic", standard(X), y, 4, 1e-1, ("SCS",))


if __name__ == "__main__":
    main()
