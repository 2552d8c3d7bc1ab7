"""C by cross-validation: screened paths against GridSearchCV(LinearSVC), CPU seconds.

    OMP_NUM_THREADS=1 python examples/benchmarks/cross_validation.py [DATA] [--only NAME] [--store]

20 values of C, the same five stratified folds, the refit included, one thread. Sparse sets from
DATA (a folder with NAME.npz; those it lacks are left out) and generated ones as in `cold_fits.py`,
and dense ones (ijcnn1, magic04, generated). ``LinearSVC`` is as it comes, with as many iterations
as `--iterations` says at most, in the dual and (squared hinge) in the primal; the better of the two
counts. Its gap is not known, and it penalises its intercept; ours does not, and every fit of ours
is certified to `--tol`. The first search of a process is in the table (`first`): what was compiled
before is loaded in it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from cold_fits import sets
from report import store
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC
from stored_sets import dense, stored

from cvxscreen._support.tables import table
from cvxscreen.estimators import ScreenedSVCCV

GRID = np.geomspace(1e-3, 10, 20)
DENSE = ("ijcnn1", "magic04")


def data_sets(folder: Path | None) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Name, rows, labels."""
    for name, X, y in sets(folder):
        if sp.issparse(X):
            yield name, X, y
    for name in DENSE if folder else ():
        found = stored(folder, name)
        if found is None:
            continue
        X, y = found
        yield name, dense(X), np.where(y >= np.unique(y)[-1], 1.0, -1.0)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20_000, 40))
    y = np.sign(X @ rng.standard_normal(40) / 6.0 + 0.5 * rng.standard_normal(20_000))
    yield "dense 20000x40", X, y


def ours(X: Any, y: np.ndarray, folds: Any, loss: str, tol: float) -> tuple[float, float, float]:
    """CPU seconds, best score, largest certified gap of the paths."""
    began = process_time()
    search = ScreenedSVCCV(GRID, cv=folds, loss=loss, tol=tol).fit(X, y)
    seconds = process_time() - began
    return seconds, float(search.scores_.mean(axis=0).max()), float(search.path_gaps_.max())


def theirs(
    X: Any, y: np.ndarray, folds: Any, loss: str, dual: bool, iterations: int
) -> tuple[float, float, int]:
    """CPU seconds, best score, and how many fits ended at the most iterations."""
    began = process_time()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LinearSVC(loss=loss, dual=dual, max_iter=iterations)
        search = GridSearchCV(model, {"C": GRID}, cv=folds).fit(X, y)
    seconds = process_time() - began
    stopped = sum(issubclass(w.category, ConvergenceWarning) for w in seen)
    return seconds, float(search.best_score_), stopped


def compared(
    name: str, X: Any, y: np.ndarray, loss: str, tol: float, iterations: int
) -> dict[str, object]:
    """One line of the table."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
    first, _, _ = ours(X, y, folds, loss, tol)
    again, score, gap = ours(X, y, folds, loss, tol)
    line: dict[str, object] = {
        "data": name, "n": X.shape[0], "d": X.shape[1], "loss": loss, "first": first,
        "again": again, "gap": gap, "score": score,
    }
    best = np.inf
    for dual in (True, False) if loss == "squared_hinge" else (True,):
        seconds, other, stopped = theirs(X, y, folds, loss, dual, iterations)
        if seconds < best:
            best = seconds
            line |= {"LinearSVC": seconds, "stopped": stopped, "its score": other}
    return line | {"ratio": best / again}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    rows = []
    for name, X, y in data_sets(arguments.data):
        if arguments.only and name not in arguments.only:
            continue
        for loss in ("hinge", "squared_hinge"):
            rows.append(compared(name, X, y, loss, arguments.tol, arguments.iterations))
            print(rows[-1], flush=True)
    print(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
    mean = np.exp(np.mean([np.log(float(str(row["ratio"]))) for row in rows]))
    print(f"LinearSVC's time over ours, geometric mean: {mean:.2f}")
    if arguments.store:
        print(store("cross_validation", rows, arguments.note))


if __name__ == "__main__":
    main()
