"""Everything that is ever compiled, compiled in advance: small problems through every engine.

Compiled code is kept on disk next to the package (or where ``NUMBA_CACHE_DIR`` says), so that it is
compiled once a machine. Each job below is a call that users make, on data of a few hundred numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time

import numpy as np

from cvxscreen._support.compiled import ANNOUNCEMENT
from cvxscreen._support.limits import Progress
from cvxscreen.api import solve
from cvxscreen.data_changes.bootstrap import Replicates, counts
from cvxscreen.datasets import heavy_tailed_regression, sparse_text_like, two_gaussians
from cvxscreen.models.metric import rtlm, triplets
from cvxscreen.models.multitask import raso
from cvxscreen.models.regression import regression
from cvxscreen.models.sparse import sparse_svm
from cvxscreen.models.svm import svm
from cvxscreen.paths.path import path
from cvxscreen.solvers.compiled_path.segments import compile_now

LARGE = 12_000
"""Terms of the largest problem: certificates of many terms have a loop of their own."""


def _dense_rows() -> None:
    """The compiled path and its certificates, with and without an intercept."""
    compile_now()
    X, y = two_gaussians(600, 5)
    for _ in range(3):  # one call buys one part
        solve(svm(X, y, intercept=True))
    grid = np.geomspace(0.01, 10.0, 6)
    for mode in ("certified", "safe"):
        path(svm(X, y), values=grid, mode=mode)
    solve(regression(*heavy_tailed_regression(600, 5), loss="huber", intercept=True))


def _many_terms() -> None:
    """The ordinary loop over more terms than numpy is quick with."""
    solve(svm(*two_gaussians(LARGE, 3)), mode="safe")


def _sparse_rows() -> None:
    """The dual methods, cold and along a path."""
    X, y = sparse_text_like(600, 400, 0.02)
    for loss in ("hinge", "squared_hinge"):
        for intercept in (False, True):
            solve(svm(X, y, loss=loss, intercept=intercept))
    path(svm(X, y), values=[0.1, 1.0, 10.0])


def _kernels() -> None:
    """A kernel machine, with and without an intercept."""
    X, y = two_gaussians(200, 3)
    for intercept in (False, True):
        solve(svm(X, y, kernel="rbf", intercept=intercept))


def _l1_terms() -> None:
    """Terms and features, dense and sparse."""
    for X, y in (two_gaussians(300, 40), sparse_text_like(300, 400, 0.02)):
        problem = sparse_svm(X, y, 0.05)
        for solver in ("auto", "sdca", "spdc"):
            solve(problem, solver=solver, tol=1e-3)  # type: ignore[arg-type]


def _metrics() -> None:
    """Metrics from triplets, full and diagonal."""
    X, y = two_gaussians(60, 4)
    found = triplets(X, y, k=3)
    for diagonal in (False, True):
        solve(rtlm(X, found, 1.0, diagonal=diagonal), tol=1e-3)


def _tasks() -> None:
    """Tasks that share a subspace."""
    solve(raso([two_gaussians(60, 5, seed=k) for k in range(3)], h=2, alpha=1e-3, beta=1e-3),
          tol=1e-3)


def _many_weightings() -> None:
    """A block of bootstrap fits, with and without an intercept."""
    for intercept in (False, True):
        X, y = heavy_tailed_regression(300, 3)
        fitted = solve(regression(X, y, intercept=intercept))
        Replicates(fitted, 1e-6).solve(counts(0, 0, len(y)))


JOBS: dict[str, Callable[[], None]] = {
    "dense rows": _dense_rows,
    "many weightings": _many_weightings,
    "many terms": _many_terms,
    "sparse rows": _sparse_rows,
    "kernels": _kernels,
    "L1 terms": _l1_terms,
    "metric learning": _metrics,
    "multi-task": _tasks,
}
"""What is run, by the word that the progress line shows."""


def warm_up(*, shown: bool) -> Iterator[tuple[str, float]]:
    """Run every job; after each its name and the CPU seconds it took."""
    silent, ANNOUNCEMENT.silent = ANNOUNCEMENT.silent, True  # the progress line says it
    try:
        with Progress(len(JOBS), "compiling", shown=shown) as bar:
            for name, job in JOBS.items():
                began = process_time()
                job()
                bar.step(name)
                yield name, process_time() - began
    finally:
        ANNOUNCEMENT.silent = silent
