"""A path over C on dense data: built-in solver with and without screening, and LinearSVC.

    OMP_NUM_THREADS=1 python examples/benchmarks/dense_path.py [--n 100000] [--d 50] [--points 50]

Two overlapping Gaussian classes with a Bayes error of 10 %, hinge loss, no intercept, C from 1e-2
to 10, every point at a certified relative gap of 1e-6, the cold first point included. LinearSVC
(the same problem, tol=1e-6) is run at a few values of C only and scaled to the whole grid by
interpolating its time in log C; its own gap is computed from its primal value and our certified
dual bound. CPU seconds of this process; "passes" is CPU time divided by the time of one ``X @
w``. The first two rows are the compiled path (compiling or loading it is not counted), the third is
the ordinary solver.
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time

import numpy as np
from sklearn.svm import LinearSVC

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.core.duality import reference_point
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.newton import Newton


def unscreened_path(problem, grid, tol):
    """The same solver, warm-started in the same way, on the full problem at every point."""
    start, gaps = None, []
    for value in grid:
        here = problem.with_(C=float(value))
        scale = here.primal(np.zeros(here.d)) if start is None else here.primal(start.x)
        for _ in range(4):  # the scale at the start may be far too large
            found = Newton()(here, start, 0.5 * tol * scale)
            point = reference_point(here, found.x, found.theta)
            if point.relative_gap <= tol:
                break
            start, scale = Start(found.x, found.theta, found.info["weight"]), abs(point.primal)
        gaps.append(point.relative_gap)
        following = float(np.exp(np.log(grid[1] / grid[0]))) if len(grid) > 1 else 1.0
        start = Start(found.x, found.theta * following, 4.0 * found.info["weight"] / following)
    return max(gaps)


def linear_svc(X, y, C, dual_bound):
    """CPU seconds of one fit and its relative gap."""
    model = LinearSVC(
        loss="hinge", dual=True, fit_intercept=False, tol=1e-6, C=C, max_iter=100_000
    )
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns when it stops at max_iter; the gap says more
        model.fit(X, y)
    seconds = process_time() - began
    primal = cvxscreen.svm(X, y, C=C).primal(model.coef_.ravel())
    return seconds, (primal - dual_bound) / abs(primal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--d", type=int, default=50)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--svc-points", type=int, default=4, help="values of C given to LinearSVC")
    parser.add_argument("--svc-largest", type=float, default=1.0, help="largest C among them")
    args = parser.parse_args()

    X, y = cvxscreen.datasets.two_gaussians(args.n, args.d, bayes_error=0.1)
    grid = np.geomspace(1e-2, 10.0, args.points)
    problem = cvxscreen.svm(X, y)
    w = np.ones(args.d)
    began = process_time()
    for _ in range(50):
        X @ w
    one_pass = (process_time() - began) / 50
    cvxscreen.path(cvxscreen.svm(*cvxscreen.datasets.two_gaussians(200, 5)), values=grid[:2])

    rows = []

    def line(name, seconds, gap):
        per_point = seconds / args.points / one_pass
        rows.append((name, round(seconds, 2), round(per_point, 1), gap))

    for mode in ("certified", "safe"):
        began = process_time()
        found = cvxscreen.path(problem, values=grid, tol=1e-6, mode=mode)
        line(f"{mode}", process_time() - began, max(p.relative_gap for p in found.points))
    began = process_time()
    worst = unscreened_path(problem, grid, 1e-6)
    line("no screening", process_time() - began, worst)

    if args.svc_points:
        sampled = np.geomspace(1e-2, args.svc_largest, args.svc_points)
        times, gaps = [], []
        for C in sampled:
            bound = cvxscreen.solve(problem.with_(C=float(C)), tol=1e-9).certificate.dual
            seconds, gap = linear_svc(X, y, float(C), bound)
            times.append(seconds)
            gaps.append(gap)
        # Beyond the largest sampled C its time is held constant, which flatters LinearSVC.
        guess = np.exp(np.interp(np.log(grid), np.log(sampled), np.log(times)))
        line(f"LinearSVC, {args.svc_points} values of C scaled", float(guess.sum()), max(gaps))
        print("LinearSVC samples (C, CPU s, relative gap):",
              ", ".join(f"({C:.3g}, {t:.2f}, {g:.1e})" for C, t, g in zip(sampled, times, gaps,
                                                                      strict=True)))
    print(f"{args.n:,} x {args.d}, {args.points} values of C; one pass {1e3 * one_pass:.2f} ms")
    print(table(("solver", "CPU s", "passes per point", "largest gap"), rows))


if __name__ == "__main__":
    main()
