"""A path over C on sparse data: the built-in solver for such data, and LinearSVC.

    OMP_NUM_THREADS=1 python examples/benchmarks/sparse_path.py [--n 50000] [--points 50]

Text-like rows (`cvxscreen.datasets.sparse_text_like`), hinge loss, no intercept, C from 1e-2 to
10, every point warm-started from the one before and certified on all data at a relative gap of
1e-6; the cold first point is included. LinearSVC (the same problem) is run at a few values of C
only and scaled to the whole grid by interpolating log time in log C; its gap is computed from its
primal value and our certified dual bound. It starts cold at every value: it cannot do otherwise.

CPU seconds of this process, the least of `--repeat` runs of everything. "passes" is CPU time
divided by the time of one ``X @ w``. The loops are compiled before the clock starts (that time is
printed; a cache keeps them between runs).
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from time import process_time

import numpy as np
from sklearn.svm import LinearSVC

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.dual_active_set import DualActiveSet, PathCache
from cvxscreen.solvers.interface import Start, SubproblemResult


@dataclass
class Point:
    """One value of C: what was found, and what it cost."""

    C: float
    found: SubproblemResult
    proof: Certificate
    seconds: float
    proving: float


def scaled(point: Point, here: Problem) -> Start:
    """The dual point of a neighbour times the ratio of the two C."""
    before, now = point.found.theta, here.losses
    theta = here.C / point.C * before
    low = -point.C
    return Start(point.found.x, np.where(before <= low, now.lo, theta))


def objective(point: Point, C: float) -> float:
    """The objective of a neighbour's x at `C`: the sum of losses is known at another C."""
    square = 0.5 * float(point.found.x @ point.found.x)
    return C / point.C * (point.proof.primal - square) + square


def solve(
    here: Problem, start: Start | None, tol: float, cache: PathCache, size: float | None = None
) -> Point:
    """Solve and certify; aim lower when the certificate asks for it."""
    began = process_time()
    seconds = proving = 0.0
    x = np.zeros(here.d) if start is None else start.x
    scale, aim = here.primal(x) if size is None else size, 0.9
    while True:
        found = DualActiveSet(path_cache=cache)(here, start, aim * tol * scale)
        seconds += process_time() - began
        began = process_time()
        proof = certify(here, found.x, found.theta, tol=tol)
        proving += process_time() - began
        if proof.ok or aim < 0.1:
            return Point(here.C, found, proof, seconds, proving)
        began = process_time()
        start, scale, aim = Start(found.x, found.theta), abs(proof.primal), 0.7 * aim


def path(problem: Problem, grid, tol: float) -> list[Point]:
    """All values of C, each from the one before."""
    points: list[Point] = []
    cache = PathCache()
    for value in grid:
        here = problem.with_(C=float(value))
        start = scaled(points[-1], here) if points else None
        size = objective(points[-1], here.C) if points else None
        points.append(solve(here, start, tol, cache, size))
    return points


def linear_svc(X, y, C: float, dual_bound: float, tol: float) -> tuple[float, float]:
    """CPU seconds of one fit and its relative gap."""
    model = LinearSVC(
        loss="hinge", dual=True, fit_intercept=False, tol=tol, C=C, max_iter=1_000_000,
        random_state=0,
    )
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    seconds = process_time() - began
    primal = cvxscreen.svm(X, y, C=C).primal(model.coef_.ravel())
    return seconds, (primal - dual_bound) / abs(primal)


def compile_loops() -> float:
    """Solve something small, so that no compiling is measured."""
    began = process_time()
    X, y = cvxscreen.datasets.sparse_text_like(6000, 3000, 0.01)  # large enough for all of them
    path(cvxscreen.svm(X, y), (2.0, 2.4), 1e-6)
    return process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--d", type=int, default=20_000)
    parser.add_argument("--density", type=float, default=0.0025)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--largest", type=float, default=10.0, help="largest C of the grid")
    parser.add_argument("--svc-points", type=int, default=7, help="values of C given to LinearSVC")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--svc-tol", type=float, nargs="*", default=[1e-6, 1e-4])
    args = parser.parse_args()

    X, y = cvxscreen.datasets.sparse_text_like(args.n, args.d, args.density)
    grid = np.geomspace(1e-2, args.largest, args.points)
    compiling = compile_loops()
    w = np.ones(args.d)
    began = process_time()
    for _ in range(20):
        X @ w
    one_pass = (process_time() - began) / 20

    problem = cvxscreen.svm(X, y)
    runs = [path(problem, grid, 1e-6) for _ in range(args.repeat)]
    points = min(runs, key=lambda run: sum(p.seconds + p.proving for p in run))
    ours = sum(p.seconds for p in points)
    proofs = sum(p.proving for p in points)
    worst = max(p.proof.relative_gap for p in points)
    every = max(1, args.points // 10)
    shown = [
        (p.C, round(1e3 * p.seconds, 1), round(p.seconds / one_pass, 1), p.proof.relative_gap,
         p.found.info["rounds"], p.found.info["steps"], p.found.info["kept"])
        for p in points[::-every][::-1]
    ]
    header = ("C", "CPU ms", "passes", "certified gap", "rounds", "CG steps", "kept")
    print(table(header, shown, title="Some points of the path"))

    rows: list[tuple[object, ...]] = []

    def line(name: str, seconds: float, gap: float) -> None:
        per_point = seconds / args.points / one_pass
        ratios = (round(seconds / ours, 1), round(seconds / (ours + proofs), 1))
        rows.append((name, round(seconds, 2), round(per_point, 1), gap, *ratios))

    line("built-in", ours, worst)
    line("built-in and certificates", ours + proofs, worst)
    least, gap = np.inf, 0.0
    for _ in range(args.repeat):
        began = process_time()
        public = cvxscreen.path(problem, values=grid, tol=1e-6)
        least = min(least, process_time() - began)
        gap = max(gap, *(p.relative_gap for p in public.points))
    line("cvxscreen.path", least, gap)
    if args.svc_points:
        sampled = [points[i] for i in np.linspace(0, args.points - 1, args.svc_points).astype(int)]
        bounds = []
        for p in sampled:
            start = Start(p.found.x, p.found.theta)
            fine = solve(problem.with_(C=p.C), start, 1e-9, PathCache())
            bounds.append(fine.proof.dual)
        for tol in args.svc_tol:
            fits = [min(linear_svc(X, y, p.C, b, tol) for _ in range(args.repeat))
                    for p, b in zip(sampled, bounds, strict=True)]
            print(f"LinearSVC, tol={tol:g} (C, CPU s, relative gap):",
                  ", ".join(f"({p.C:.3g}, {s:.2f}, {g:.1e})"
                            for p, (s, g) in zip(sampled, fits, strict=True)))
            times = np.log([seconds for seconds, _ in fits])
            guess = np.exp(np.interp(np.log(grid), np.log([p.C for p in sampled]), times))
            line(f"LinearSVC tol={tol:g}, {len(fits)} values of C scaled", float(guess.sum()),
                 max(gap for _, gap in fits))
    print(f"{args.n:,} x {args.d:,}, {X.nnz:,} entries, {args.points} values of C; one pass "
          f"{1e3 * one_pass:.2f} ms; compiling or loading the loops took {compiling:.1f} s")
    columns = ("solver", "CPU s", "passes per point", "largest gap", "times built-in",
               "times with certificates")
    print(table(columns, rows))


if __name__ == "__main__":
    main()
