"""LAD, quantile and epsilon-insensitive paths over C, against the full problem through CVXPY.

    OMP_NUM_THREADS=1 python examples/benchmarks/lad_paths.py DATA_FOLDER [--quick]

DATA_FOLDER holds ``cadata.npz``, ``magic04.npz`` and ``cpusmall.npz``. Standardised features, an
unpenalised intercept, 100 values of C in [1e-2, 10]; the whole path through `cvxscreen.path`, cold
start included, certified at a relative gap of 1e-6 on all data. The full problem is solved by CVXPY
at a few values of C only (``--samples``) with one parametrised problem, compiled once; each solver
uses the loosest of its settings whose answer has a gap of 1e-6 by our certificate, or its default
if none has, and the fastest that reaches the gap counts. The mean of its seconds over the samples,
times the number of points, is the time of the full path; one compilation stands beside it and is
not included. CPU seconds. The gap of a CVXPY answer is evaluated from w, b and the dual variables
that its constraints give. "passes" is CPU time divided by the time of one ``X @ w``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from time import process_time

import cvxpy as cp
import numpy as np
from stored_sets import needed

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point

SETS = ("cadata", "magic04", "cpusmall")
LOSSES = {"absolute": {}, "quantile": {"tau": 0.1}, "epsilon": {"epsilon": 0.1}}
PIECES = {  # slope of the loss in y - f(x), and how far the kink is from 0
    "absolute": ((1.0, 0.0), (-1.0, 0.0)),
    "quantile": ((0.1, 0.0), (-0.9, 0.0)),
    "epsilon": ((1.0, 0.1), (-1.0, 0.1)),
}
SETTINGS = {
    "CLARABEL": ({"tol_gap_rel": 1e-6, "tol_gap_abs": 1e-6}, {}),
    "OSQP": ({}, {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iter": 20_000}),
    "SCS": ({}, {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 10_000}),
    "HIGHS": ({},),
}
HEADER = (
    "set", "loss", "n", "d", "ours s", "passes a point", "largest gap", "CVXPY", "s a point",
    "gap ", "compile s", "full path s", "ratio",
)


def load(folder: Path, name: str):
    """Standardised X, and y (standardised unless it holds labels)."""
    X, y = needed(folder, name)
    y = y.astype(float)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return X, y if name == "magic04" else (y - y.mean()) / y.std()


class Full:
    """The full problem in epigraph form, one slack a sample: the fastest spelling tried."""

    def __init__(self, X, y, loss: str) -> None:
        n, d = X.shape
        self.w, self.b, self.C = cp.Variable(d), cp.Variable(), cp.Parameter(nonneg=True)
        slack = cp.Variable(n, nonneg=loss == "epsilon")
        residual = y - X @ self.w - self.b
        self.slopes = [slope for slope, _ in PIECES[loss]]
        self.constraints = [slope * residual - dead <= slack for slope, dead in PIECES[loss]]
        cost = 0.5 * cp.sum_squares(self.w) + self.C * cp.sum(slack)
        self.prob = cp.Problem(cp.Minimize(cost), self.constraints)

    def solve(self, solver: str, C: float, problem, options) -> tuple[float, float]:
        """CPU seconds of one solve and the certified gap of its answer."""
        self.C.value = C
        began = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.prob.solve(solver=solver, warm_start=False, **options)
            except cp.SolverError:
                return process_time() - began, float("inf")
        seconds = process_time() - began
        if self.w.value is None:
            return seconds, float("inf")
        pairs = zip(self.slopes, self.constraints, strict=True)
        theta = -sum(slope * c.dual_value for slope, c in pairs)
        x = np.append(self.w.value, self.b.value)
        point = reference_point(problem.with_(C=C), x, theta)
        return seconds, certify(point.problem, point.x, point.theta).relative_gap


def full_path(X, y, loss, problem, sampled, solvers, tol, patience):
    """Solver, seconds a point, worst gap, compile seconds of the fastest that reaches `tol`."""
    best = None
    for solver in solvers:
        for options in SETTINGS[solver]:
            full = Full(X, y, loss)
            full.C.value = 1.0
            began = process_time()
            full.prob.get_problem_data(solver)
            compiling = process_time() - began
            runs = []
            for C in sampled:
                runs.append(full.solve(solver, float(C), problem, options))
                slow = best is not None and runs[-1][0] > patience * best[1]
                if runs[-1][1] > tol or slow:
                    break
            seconds, gap = float(np.mean([s for s, _ in runs])), max(g for _, g in runs)
            done = len(runs) == len(sampled) and gap <= tol
            print(f"  {solver} {options}: {seconds:.2f} s a point, gap {gap:.1e}"
                  + ("" if done else ", given up"), flush=True)
            if done and (best is None or seconds < best[1]):
                best = (solver, seconds, gap, compiling)
            if done or seconds > 10.0:
                break
    return best


def line(name, loss, X, y, args):
    """One row of the table."""
    grid = np.geomspace(1e-2, 10.0, args.points)
    problem = cvxscreen.regression(X, y, C=1.0, loss=loss, intercept=True, **LOSSES[loss])
    began = process_time()
    path = cvxscreen.path(problem, values=grid, tol=args.tol)
    ours = process_time() - began
    w = np.ones(X.shape[1])
    began = process_time()
    for _ in range(200):
        X @ w
    one_pass = (process_time() - began) / 200
    row = [
        name, loss, *X.shape, round(ours, 2), round(ours / args.points / one_pass),
        max(p.relative_gap for p in path.points),
    ]
    sampled = np.geomspace(1e-2, 10.0, args.samples)
    best = full_path(X, y, loss, problem, sampled, args.solvers, args.tol, args.patience)
    if best is None:
        return [*row, "none", "", "", "", "", ""]
    solver, seconds, gap, compiling = best
    whole = args.points * seconds
    return [*row, solver, round(seconds, 2), gap, round(compiling, 2), round(whole, 1),
            round(whole / ours, 1)]


def main() -> None:
    """Parse the folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4, help="values of C given to CVXPY")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--solvers", nargs="*", default=["CLARABEL", "OSQP", "SCS", "HIGHS"])
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--losses", nargs="*", default=list(LOSSES))
    parser.add_argument("--patience", type=float, default=2.0,
                        help="a solver so many times slower than the best so far is given up")
    parser.add_argument("--quick", action="store_true", help="cpusmall, ten points, one solver")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.points, args.samples, args.solvers = ["cpusmall"], 10, 2, ["CLARABEL"]
    X, y = load(args.folder, args.sets[0])
    cvxscreen.solve(cvxscreen.regression(X[:500], y[:500], intercept=True))  # loads what is lazy
    rows = []
    for name in args.sets:
        X, y = load(args.folder, name)
        for loss in args.losses:
            print(f"{name}, {loss}", flush=True)
            rows.append(line(name, loss, X, y, args))
    title = f"{args.points} values of C in [1e-2, 10], CPU seconds, gap {args.tol:g}"
    print(table(HEADER, rows, title=title))


if __name__ == "__main__":
    main()
