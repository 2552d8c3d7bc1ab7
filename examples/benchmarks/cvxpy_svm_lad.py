"""CVXPY with and without screening on ijcnn1 (hinge) and magic04 (LAD), in one run.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_svm_lad.py DATA_FOLDER

DATA_FOLDER holds ``ijcnn1.npz`` and ``magic04.npz`` (dense ``X`` or CSR parts, and ``y``). Every line
compares one plain ``prob.solve(solver=...)`` with one ``prob.solve(method="screen", solver=...)`` of
the same problem object: CPU seconds end to end, CVXPY's own compile time within them, their ratio,
the relative difference of the objectives, the worst difference of a constraint's dual value on the
scale of that dual, the certified relative gap, the kept terms, and data passes (CPU time divided by
the time of one ``X @ w``).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import cvxscreen
from cvxscreen.tables import table

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def load(folder: Path, name: str):
    """X (dense or CSR float64) and y of one npz file."""
    file = folder / f"{name}.npz"
    if not file.exists():
        raise SystemExit(f"{file} is not there; give the folder that holds {name}.npz")
    with np.load(file) as z:
        y = z["y"].astype(float)
        if "X" in z:
            return z["X"].astype(float), y
        parts = (z["X_data"].astype(float), z["X_indices"], z["X_indptr"])
        return sp.csr_matrix(parts, shape=z["X_shape"]), y


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


def compare(name: str, X, y, build, C: float, solver: str, options: dict) -> list[object]:
    """One line of the table."""
    prob, w = build(X, y, C)
    began = process_time()
    prob.solve(method="screen", solver=solver, **options)
    screened = process_time() - began
    report = prob.solver_stats.extra_stats["cvxscreen"]
    value, point = prob.value, w.value.copy()
    duals = [np.array(c.dual_value) for c in prob.constraints]

    plain, w_plain = build(X, y, C)
    began = process_time()
    plain.solve(solver=solver, **options)
    full = process_time() - began
    worst = max(
        float(np.abs(ours - c.dual_value).max() / np.abs(c.dual_value).max())
        for ours, c in zip(duals, plain.constraints, strict=True)
    )

    problem = (
        cvxscreen.svm(X, y, C=C) if build is svm_problem else cvxscreen.regression(X, y, C=C)
    )
    began = process_time()
    cvxscreen.solve(problem)
    builtin = process_time() - began
    return [
        name, C, solver, round(full, 2), round(float(plain.compilation_time or 0.0), 2),
        round(screened, 3), round(full / screened, 1), abs(value - plain.value) / abs(plain.value),
        float(np.abs(point - w_plain.value).max()), worst, report.relative_gap, report.kept,
        round(passes(X, screened)), round(builtin, 3),
    ]


HEADER = (
    "problem", "C", "solver", "full s", "compile s", "screened s", "ratio", "objective diff",
    "w diff", "dual diff", "certified gap", "kept", "passes", "built-in s",
)


def main() -> None:
    """Parse the folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solver", default="CLARABEL")
    args = parser.parse_args()
    options = TIGHT if args.solver == "CLARABEL" else {}

    rows = []
    X, y = load(args.folder, "ijcnn1")
    dense = X.toarray()
    for C in (1e-2, 1.0, 10.0):
        rows.append(compare("ijcnn1 hinge", dense, y, svm_problem, C, args.solver, options))
        print(table(HEADER, rows[-1:]), flush=True)
    X, y = load(args.folder, "magic04")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for C in (1e-2, 1.0, 10.0):
        rows.append(compare("magic04 LAD", X, y, lad_problem, C, args.solver, options))
        print(table(HEADER, rows[-1:]), flush=True)
    print()
    print(table(HEADER, rows, title="CPU seconds, one run"))


if __name__ == "__main__":
    main()
