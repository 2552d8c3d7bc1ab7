"""C by cross-validation on ijcnn1: screened paths against GridSearchCV(LinearSVC), CPU seconds.

``python examples/benchmarks/cross_validation.py DATA`` with DATA the folder that holds ijcnn1.npz.
The same 20 values of C, the same five stratified folds, the same rows; LinearSVC (which penalises
its intercept; ours does not) with both of its losses, as it comes and with as many iterations as it
needs. One thread.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from cvxscreen._support.tables import table
from cvxscreen.estimators import ScreenedSVCCV

GRID = np.geomspace(1e-3, 10, 20)


def ijcnn1(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / "ijcnn1.npz") as data:
        parts = (data["X_data"], data["X_indices"], data["X_indptr"])
        X = sp.csr_matrix(parts, shape=tuple(data["X_shape"]))
        return X.toarray().astype(float), data["y"].astype(float)


def ours(X, y, folds, loss, tol):
    began = process_time()
    search = ScreenedSVCCV(GRID, cv=folds, loss=loss, tol=tol).fit(X, y)
    seconds = process_time() - began
    return (f"ScreenedSVCCV, {loss}, tol {tol:g}", seconds, search.C_,
            float(search.scores_.mean(axis=0).max()), float(search.path_gaps_.max()))


def theirs(X, y, folds, loss, iterations):
    began = process_time()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LinearSVC(loss=loss, max_iter=iterations)
        search = GridSearchCV(model, {"C": GRID}, cv=folds).fit(X, y)
    seconds = process_time() - began
    stopped = sum(issubclass(w.category, ConvergenceWarning) for w in seen)
    return (f"LinearSVC, {loss}, at most {iterations:,} iterations ({stopped} fits stopped)",
            seconds, float(search.best_params_["C"]), float(search.best_score_), None)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("data", type=Path)
    X, y = ijcnn1(arguments.parse_args().data)
    folds = StratifiedKFold(5)
    small = slice(0, 2000)
    ours(X[small], y[small], folds, "hinge", 1e-4)  # what is loaded and compiled once
    rows = [
        ours(X, y, folds, "hinge", 1e-6),
        ours(X, y, folds, "hinge", 1e-4),
        ours(X, y, folds, "squared_hinge", 1e-6),
        theirs(X, y, folds, "hinge", 1000),
        theirs(X, y, folds, "hinge", 1_000_000),
        theirs(X, y, folds, "squared_hinge", 1000),
    ]
    print(table(("search", "CPU s", "best C", "accuracy", "largest gap"), rows,
                title=f"ijcnn1, {X.shape[0]:,} x {X.shape[1]}, 20 values of C, 5 folds"))


if __name__ == "__main__":
    main()
