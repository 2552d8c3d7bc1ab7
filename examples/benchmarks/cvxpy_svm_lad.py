"""CVXPY with and without screening on ijcnn1 (hinge) and magic04 (LAD), in one run.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_svm_lad.py DATA_FOLDER

DATA_FOLDER holds ``ijcnn1.npz`` and ``magic04.npz`` (dense ``X`` or CSR parts, and ``y``). The
first table times one plain ``prob.solve(solver=...)`` and one ``prob.solve(method="screen",
solver=...)`` of the same problem at the solver's default tolerance: CPU seconds end to end,
CVXPY's own compile time within the plain solve, their ratio, the certified relative gap, the kept
terms, data passes (CPU time divided by the time of one ``X @ w``), and the built-in solver alone,
with and without screening, to a gap of 1e-6. The second table compares the two answers at tight
tolerances: relative difference of the objectives, of ``w``, and the worst difference of a
constraint's dual value on the scale of that dual.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import cvxpy as cp
import numpy as np
from stored_sets import needed

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.solvers.newton import Newton

TIGHT = {"CLARABEL": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}}


def load(folder: Path, name: str):
    """X (dense or CSR float64) and y of one npz file."""
    X, y = needed(folder, name)
    return X, y.astype(float)


def svm_problem(X, y, C):
    """The slack spelling, the one most users write."""
    n, d = X.shape
    w, xi = cp.Variable(d), cp.Variable(n)
    constraints = [cp.multiply(y, X @ w) >= 1 - xi, xi >= 0]
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * cp.sum(xi)), constraints), w


def lad_problem(X, y, C):
    """Least absolute deviations with one slack a sample."""
    n, d = X.shape
    w, t = cp.Variable(d), cp.Variable(n)
    constraints = [X @ w - y <= t, y - X @ w <= t]
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * cp.sum(t)), constraints), w


def passes(X, seconds: float) -> float:
    """`seconds` in units of one ``X @ w``."""
    w = np.ones(X.shape[1])
    X @ w
    began = process_time()
    for _ in range(20):
        X @ w
    return seconds / ((process_time() - began) / 20)


def timed(call):
    """CPU seconds of `call` and what it returned."""
    began = process_time()
    result = call()
    return process_time() - began, result


def unscreened(problem) -> float:
    """CPU seconds of the built-in solver without screening, to a relative gap of 1e-6."""
    scale = problem.primal(np.zeros(problem.d))
    optimum = problem.primal(Newton()(problem, None, 1e-6 * scale).x)
    return timed(lambda: Newton()(problem, None, 1e-6 * abs(optimum)))[0]


def speed(name: str, X, y, build, make, C: float, solver: str) -> list[object]:
    """One line of the first table."""
    prob, _ = build(X, y, C)
    screened, _ = timed(lambda: prob.solve(method="screen", solver=solver))
    report = prob.solver_stats.extra_stats["cvxscreen"]
    plain, _ = build(X, y, C)
    full, _ = timed(lambda: plain.solve(solver=solver))
    problem = make(X, y, C=C)
    builtin, _ = timed(lambda: cvxscreen.solve(problem))
    return [
        name, C, round(full, 2), round(float(plain.compilation_time or 0.0), 2),
        round(screened, 3), round(full / screened, 1), report.relative_gap, report.kept,
        round(passes(X, screened)), round(builtin, 3), round(unscreened(problem), 3),
    ]


def accuracy(name: str, X, y, build, C: float, solver: str) -> list[object]:
    """One line of the second table."""
    options = TIGHT.get(solver, {})
    prob, w = build(X, y, C)
    prob.solve(method="screen", solver=solver, **options)
    plain, w_plain = build(X, y, C)
    plain.solve(solver=solver, **options)
    duals = [
        float(np.abs(ours.dual_value - theirs.dual_value).max() / np.abs(theirs.dual_value).max())
        for ours, theirs in zip(prob.constraints, plain.constraints, strict=True)
    ]
    return [
        name, C, plain.status, abs(prob.value - plain.value) / abs(plain.value),
        float(np.abs(w.value - w_plain.value).max() / np.abs(w_plain.value).max()), *duals,
    ]


def main() -> None:
    """Parse the folder and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solver", default="CLARABEL")
    args = parser.parse_args()

    ijcnn1, labels = load(args.folder, "ijcnn1")
    magic04, response = load(args.folder, "magic04")
    magic04 = (magic04 - magic04.mean(axis=0)) / magic04.std(axis=0)
    cases = (
        ("ijcnn1 hinge", ijcnn1.toarray(), labels, svm_problem, cvxscreen.svm),
        ("magic04 LAD", magic04, response, lad_problem, cvxscreen.regression),
    )
    warm, _ = svm_problem(magic04[:500], response[:500], 1.0)
    # Libraries are loaded before the clock starts.
    warm.solve(method="screen", solver=args.solver, always=True)
    first, second = [], []
    for name, X, y, build, make in cases:
        for C in (1e-2, 1.0, 10.0):
            first.append(speed(name, X, y, build, make, C, args.solver))
            second.append(accuracy(name, X, y, build, C, args.solver))
    header = (
        "problem", "C", "full s", "compile s", "screened s", "ratio", "certified gap", "kept",
        "passes", "built-in s", "unscreened s",
    )
    print(table(header, first, title=f"CPU seconds, {args.solver} at its default tolerance"))
    print()
    header = ("problem", "C", "status", "objective", "w", "first dual", "second dual")
    print(table(header, second, title="relative differences, screened against full, tight"))


if __name__ == "__main__":
    main()
