"""An RBF path over C on mushrooms and satimage, against scikit-learn's SVC at a matched gap.

    OMP_NUM_THREADS=1 python examples/benchmarks/kernel_path.py DATA_FOLDER

DATA_FOLDER holds ``mushrooms.npz`` and ``satimage.npz`` (dense ``X`` or CSR parts, and ``y``). For
gamma = 0.1/d, 1/d and 10/d, with an intercept, the path is solved three times: by cvxscreen to a
certified relative gap of ``--tol``; by SVC at its default tolerance; and by SVC at, for each C, the
loosest of the tolerances 1e-2, 1e-3, ... whose gap is within ``--tol`` (the search is not counted;
where none gets there the tightest is). CPU seconds include everything: the kernel matrix, the
centring, the certificates; they exclude compilation, which is reported apart. The worst gap of the
path stands beside each time; those of SVC are evaluated by cvxscreen from its dual variables and
intercept. Kernel values are in units of n^2; the peak is of the whole process at that moment.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from time import process_time

import numpy as np
import scipy.sparse as sp
from sklearn.svm import SVC
from stored_sets import needed

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.core.duality import reference_point

TOLERANCES = 10.0 ** -np.arange(2, 9)
HEADER = (
    "data", "n", "gamma d", "ours s", "gap", "proven before %", "kernel values", "SVC default s",
    "gap ", "SVC matched s", "gap  ", "ratio", "peak MB",
)


def load(folder: Path, name: str):
    """Standardised X and labels -1/+1 (satimage: class 3 against the rest)."""
    X, y = needed(folder, name)
    if sp.issparse(X):
        return X.toarray(), y.astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == 3, 1.0, -1.0)


def fit(X, y, gamma, C, tol):
    """One SVC and its CPU seconds."""
    began = process_time()
    model = SVC(C=C, gamma=gamma, tol=tol, cache_size=1000).fit(X, y)
    return model, process_time() - began


def gap(problem, model, y):
    """The relative gap of an SVC, rounding included."""
    c = np.zeros(problem.n)
    c[model.support_] = model.dual_coef_[0]
    x = np.append(c, model.intercept_[0] + problem.design.offset(c))
    return reference_point(problem, x, -c * y).relative_gap


def matched(problem, X, y, gamma, C, tol):
    """SVC at the loosest tolerance that reaches the gap: seconds and gap."""
    for svc_tol in TOLERANCES:
        model, seconds = fit(X, y, gamma, C, svc_tol)
        reached = gap(problem.with_(C=C), model, y)
        if reached <= tol:
            break
    return seconds, reached


def compare(name, X, y, factor, grid, tol):
    """One line of the table."""
    gamma = factor / X.shape[1]
    began = process_time()
    p = cvxscreen.svm(
        X, y, C=grid[0], kernel="rbf", kernel_params={"gamma": gamma}, intercept=True
    )
    path = cvxscreen.path(p, over="C", values=grid, tol=tol)
    ours = process_time() - began
    evaluations = p.design.kernel.evaluations / p.n**2
    before = 100.0 * np.mean([sum(point.before.values()) for point in path.points])
    plain = [fit(X, y, gamma, C, 1e-3) for C in grid]
    default = sum(seconds for _, seconds in plain)
    worst = max(gap(p.with_(C=C), m, y) for C, (m, _) in zip(grid, plain, strict=True))
    same = [matched(p, X, y, gamma, C, tol) for C in grid]
    seconds = sum(s for s, _ in same)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        name, p.n, factor, round(ours, 2), max(q.relative_gap for q in path.points),
        round(before, 1), round(evaluations, 2), round(default, 2), worst, round(seconds, 2),
        max(g for _, g in same), round(seconds / ours, 1), round(peak),
    ]


def main() -> None:
    """Parse the folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--sets", nargs="*", default=["satimage", "mushrooms"])
    parser.add_argument("--factors", nargs="*", type=float, default=[0.1, 1.0, 10.0],
                        help="gamma times the number of features")
    parser.add_argument("--quick", action="store_true", help="satimage, 1/d, three values of C")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.factors, args.points = ["satimage"], [1.0], 3
    grid = np.geomspace(0.1, 100.0, args.points)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.tile([-1.0, 1.0], 30)
    began = process_time()
    cvxscreen.solve(cvxscreen.svm(X, y, kernel="rbf", intercept=True))
    compile_seconds = process_time() - began
    rows = []
    for name in args.sets:
        X, y = load(args.folder, name)
        for factor in args.factors:
            rows.append(compare(name, X, y, factor, grid, args.tol))
            print(table(HEADER, rows[-1:]), flush=True)
    print()
    title = (
        f"CPU seconds for {args.points} values of C to a relative gap of {args.tol:g}; "
        f"compiling or loading the compiled loops took {compile_seconds:.1f} s"
    )
    print(table(HEADER, rows, title=title))


if __name__ == "__main__":
    main()
