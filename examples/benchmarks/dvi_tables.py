"""The tables of Wang, Wonka and Ye (2014) next to ours: 100 values of C in [1e-2, 10].

    OMP_NUM_THREADS=1 python examples/benchmarks/dvi_tables.py [DATA_FOLDER] [--points 100]

Tables 1 to 3 of *Scaling SVM and Least Absolute Deviations via Exact Data Reduction*: three toy
sets (generated from the paper's description), ijcnn1, wine quality, forest cover type (classes 6
and 7, 4,320 rows of the paper's 37,877), and LAD on magic04, cpusmall and cadata. Without
DATA_FOLDER only the toy sets are run. "rejected" is the mean share of the terms that the DVI rule
proves before a point is solved, from the point before; "screened" and "full" are CPU seconds of
the same solver, warm started in the same way, with and without screening, to a certified relative
gap of 1e-6. The paper's own seconds are those of its dual coordinate descent on its machine:
compare ratios, not seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
import scipy.sparse as sp
from dense_path import unscreened_path

import cvxscreen
from cvxscreen.tables import table

# Seconds of the paper: solver alone, solver with DVI.
PAPER = {
    "Toy1": (11.83, 0.20),
    "Toy2": (13.68, 0.52),
    "Toy3": (15.35, 0.61),
    "ijcnn1": (4669.14, 828.02),
    "winequality": (76.52, 11.62),
    "covtype20k": (1675.46, 21.16),
    "magic04": (122.34, 12.41),
    "cpusmall": (5.38, 0.28),
    "cadata": (21.43, 0.19),
}


def standardised(X):
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def load(folder: Path, name: str):
    with np.load(folder / f"{name}.npz") as z:
        y = z["y"].astype(float)
        if "X" in z:
            return z["X"].astype(float), y
        parts = (z["X_data"].astype(float), z["X_indices"], z["X_indptr"])
        return sp.csr_matrix(parts, shape=z["X_shape"]), y


def cases(folder: Path | None):
    """Name and problem of every row that can be run."""
    for name in ("toy1", "toy2", "toy3"):
        yield name.capitalize(), cvxscreen.svm(*getattr(cvxscreen.datasets, name)())
    if folder is None:
        return
    X, y = load(folder, "ijcnn1")
    yield "ijcnn1", cvxscreen.svm(X.toarray(), y)
    X, y = load(folder, "winequality")
    yield "winequality", cvxscreen.svm(standardised(X), np.where(y >= 6, 1.0, -1.0))
    X, y = load(folder, "covtype20k")
    pair = np.isin(y, (6, 7))  # 17,367 + 20,510 rows of the whole set are the paper's 37,877
    yield "covtype20k", cvxscreen.svm(standardised(X[pair]), np.where(y[pair] == 6, 1.0, -1.0))
    for name in ("magic04", "cpusmall", "cadata"):
        X, y = load(folder, name)
        response = y if name == "magic04" else (y - y.mean()) / y.std()
        yield name, cvxscreen.regression(standardised(X), response)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--points", type=int, default=100)
    args = parser.parse_args()
    grid = np.geomspace(1e-2, 10.0, args.points)
    rows = []
    for name, problem in cases(args.folder):
        began = process_time()
        found = cvxscreen.path(problem, values=grid, tol=1e-6)
        screened = process_time() - began
        began = process_time()
        unscreened_gap = unscreened_path(problem, grid, 1e-6)
        full = process_time() - began
        before = [sum(p.before.values()) for p in found.points[1:]]
        alone, with_dvi = PAPER[name]
        rows.append((
            name, problem.n, problem.d, round(100 * float(np.mean(before)), 1),
            round(screened, 2), round(full, 2), round(full / screened, 2),
            max(max(p.relative_gap for p in found.points), unscreened_gap),
            alone, with_dvi, round(alone / with_dvi, 1),
        ))
    header = (
        "set", "n", "d", "rejected %", "screened s", "full s", "ratio", "largest gap",
        "paper full s", "paper DVI s", "paper ratio",
    )
    print(table(header, rows, title=f"hinge (toys to covtype) and LAD, {args.points} values of C"))


if __name__ == "__main__":
    main()
