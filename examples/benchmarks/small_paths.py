"""Paths over C on small data: 100 certified points against LinearSVC, point by point.

    OMP_NUM_THREADS=1 python examples/benchmarks/small_paths.py [--points 100] [--repeat 5]

The three plane sets of Wang, Wonka and Ye (2014) and scikit-learn's breast cancer set (features
standardised), hinge loss, no intercept, C from 1e-2 to 10. Ours: every point to a certified
relative gap of 1e-9; checks of the data and certificates are counted, compilation (once a machine)
is reported apart. LinearSVC: at every C the largest of the tolerances 1e-1, 3e-2, 1e-2, ... whose
answer is within a relative 1e-6 of the optimum; only that last fit is counted. CPU milliseconds of
this process for the whole path, the smallest of `repeat` for ours and of 3 for each fit. "passes"
counts passes over the data of the whole path, a Newton step on m of n terms as 2 m / n.
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.datasets import toy1, toy2, toy3
from cvxscreen.solvers.compiled_path.segments import CompiledPath

TOLERANCES = [10.0 ** (-k / 2) for k in range(2, 21)]


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == 1, 1.0, -1.0)


def timed(work, repeat):
    """Smallest CPU seconds of `repeat` runs, and the last result."""
    best = np.inf
    for _ in range(repeat):
        began = process_time()
        found = work()
        best = min(best, process_time() - began)
    return best, found


def fit(X, y, C, tol):
    model = LinearSVC(loss="hinge", dual=True, fit_intercept=False, tol=tol, C=C, max_iter=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return model.coef_.ravel()


def linear_svc(X, y, problem, C, best):
    """CPU seconds of the loosest fit within 1e-6 of the objective `best`, and what it is off."""
    for tol in TOLERANCES:
        off = problem.primal(fit(X, y, C, tol)) / best - 1.0
        if off <= 1e-6:
            break
    return timed(lambda: fit(X, y, C, tol), 3)[0], off


def stretches(problem, grid, screen, tol=1e-9):
    """The compiled path without the front door, so that screening can be switched off."""
    run, record = CompiledPath(problem, screen, tol), []
    worst = 0.0
    while len(record) < len(grid):
        part = run.solve(grid[len(record):])
        if not len(part):
            raise SystemExit(f"the compiled solver misses C = {grid[len(record)]:.3g}")
        worst = max(worst, float(part.proofs.relative_gap.max()))
        record.extend(part.record)
    return np.array(record), worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    grid = np.geomspace(1e-2, 10.0, args.points)

    began = process_time()
    cvxscreen.path(cvxscreen.svm(*toy1()), values=grid[:2], tol=1e-9)
    print(f"first call of this process, compiled or loaded: {process_time() - began:.2f} s CPU")
    rows = []
    for name, data in (("toy1", toy1), ("toy2", toy2), ("toy3", toy3), ("breast", cancer)):
        X, y = data()
        problem = cvxscreen.svm(X, y)
        certified, found = timed(
            lambda X=X, y=y: cvxscreen.path(cvxscreen.svm(X, y), values=grid, tol=1e-9),
            args.repeat,
        )
        points = found.points
        safe = timed(
            lambda X=X, y=y: cvxscreen.path(
                cvxscreen.svm(X, y), values=grid, tol=1e-9, mode="safe"
            ), args.repeat,
        )[0]
        ordinary = timed(
            lambda p=problem: cvxscreen.path(p, values=grid, tol=1e-9, solver="newton"), 1
        )[0]
        plain, (_, gap) = timed(
            lambda X=X, y=y: stretches(cvxscreen.svm(X, y), grid, "off"), args.repeat
        )
        passes = stretches(cvxscreen.svm(X, y), grid, "certified")[0][:, 5].sum()
        fits = [linear_svc(X, y, problem.with_(C=p.value), p.value, p.objective) for p in points]
        seconds = sum(time for time, _ in fits)
        rows.append((
            name, f"{X.shape[0]} x {X.shape[1]}", round(1e3 * certified, 2), round(1e3 * safe, 2),
            round(1e3 * plain, 1), round(1e3 * ordinary, 0), round(1e3 * seconds, 1),
            round(seconds / certified, 1), max(p.relative_gap for p in points), gap, round(passes),
            max(off for _, off in fits),
        ))
    print(table(
        ("data", "size", "ours ms", "safe ms", "unscreened ms", "not compiled ms", "LinearSVC ms",
         "ratio", "largest gap", "unscreened gap", "passes", "LinearSVC off"), rows,
    ))


if __name__ == "__main__":
    main()
