"""An L1 norm without a quadratic term: against LinearSVC(penalty="l1") and skglm at the same gap.

    python examples/benchmarks/sparse_l1.py DATA [--set NAME ...] [--part linear|skglm|cold]
        [--points N] [--last SHARE] [--limit SECONDS] [--every K]

DATA is a folder of ``NAME.npz`` files, as for ``sparse_models.py``. Squared hinge against
LinearSVC, Huber's loss (labels as responses) against skglm, on a grid from lambda_max down to SHARE
of it. Ours is a warm-started path, every point certified to a relative gap of 1e-6. The others run
at the loosest tolerance of a geometric grid (steps of sqrt(10)) whose answer has that gap, by the
same certificate, and only that fit is counted: LinearSVC cold, skglm from its answer at the lambda
before. A fit above SECONDS is the last one tried at its lambda. With ``--every K`` LinearSVC runs
at every K-th lambda, and its time is interpolated (both on logarithmic scales).

The part ``cold`` fits LinearSVC and ours without a start at a half, a tenth and a fiftieth of
lambda_max: medians, taken in turns. To make the problem (the data are checked then) is not counted
in ours, but told beside it. CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sparse_models import load_compiled
from sparse_sets import FILES as SETS, load

import cvxscreen as cs
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.solution import warm_start

TOL, STEP, LOOSEST, TIGHTEST = 1e-6, 10.0**-0.5, 1e-1, 1e-12

Fit = Callable[[float, float], np.ndarray]


def ours(base: cs.Problem, grid: np.ndarray) -> tuple[np.ndarray, int]:
    """CPU seconds at every lambda of a warm-started path, and how many are certified."""
    spent, previous, ok = [], None, 0
    for lam in grid:
        began = process_time()
        here = base.with_(lam=float(lam))
        start = None if previous is None else warm_start(here, previous)
        previous = solve_screened(here, tol=TOL, start=start)
        spent.append(process_time() - began)
        ok += previous.status == "optimal" and bool(previous.certificate.ok)
    return np.array(spent), ok


def load_loops() -> None:
    """Run what is compiled for an L1 norm alone once, on little data, sparse and dense."""
    rng = np.random.default_rng(0)
    X = sp.random(300, 400, 0.05, format="csr", random_state=rng)
    y = np.where(X @ rng.standard_normal(400) > 0, 1.0, -1.0)
    for data in (X, X.toarray()):
        small = cs.sparse_svm(data, y, 1.0, loss="squared_hinge", l2=0)
        assert isinstance(small, cs.Problem)
        ours(small, cs.lambda_max(small) * np.geomspace(0.5, 1e-3, 5))


def matched(here: cs.Problem, fit: Fit, tol: float, limit: float) -> tuple[float, float, bool, Any]:
    """Seconds of the fit at the loosest tolerance that will do, that tolerance, whether one did.

    The search begins at `tol`, that of the lambda before.
    """
    def tried(tol: float) -> tuple[float, bool, np.ndarray]:
        began = process_time()
        w = fit(here.lam or 0.0, tol)
        spent = process_time() - began
        slopes = here.losses.slope(here.design.forward(w))
        return spent, cs.certify(here, w, slopes, tol=TOL).ok, w

    spent, good, w = tried(tol)
    while good and tol < LOOSEST:  # a looser one may do
        less, still, other = tried(tol / STEP)
        if not still:
            return spent, tol, True, w
        tol, spent, w = tol / STEP, less, other
    while not good and tol > TIGHTEST and spent < limit:
        tol *= STEP
        spent, good, w = tried(tol)
    return spent, tol, good, w


def against(name: str, peer: str, base: cs.Problem, fit: Fit, grid: np.ndarray, limit: float,
            keep: Callable[[np.ndarray], None], every: int = 1) -> tuple[float, float]:
    """Print the two totals over the grid; the peer's answer of each lambda goes to `keep`."""
    load_compiled()
    load_loops()
    mine, ok = ours(base, grid)
    theirs, reached, tol = [], 0, 1e-3
    some = grid[every - 1 :: every]
    for lam in some:
        spent, tol, good, w = matched(base.with_(lam=float(lam)), fit, tol, limit)
        keep(w)
        theirs.append(spent)
        reached += good
    if every > 1:
        theirs = list(np.exp(np.interp(-np.log(grid), -np.log(some), np.log(theirs))))
    print(
        f"{name:13} {len(grid)} lambdas: ours {mine.sum():8.2f} s ({ok} certified), {peer} "
        f"{sum(theirs):8.2f} s ({reached} of {len(some)} reach the gap)   "
        f"{sum(theirs) / mine.sum():6.1f}x   "
        f"by thirds of the grid "
        + " ".join(f"{b.sum() / a.sum():.1f}x" for a, b in
                   zip(np.array_split(mine, 3), np.array_split(np.array(theirs), 3), strict=True)),
        flush=True,
    )
    return float(mine.sum()), float(sum(theirs))


def linear_svc(X: Any, y: np.ndarray) -> Fit:
    """LinearSVC's ``||w||_1 + C sum max(0, 1 - t)^2`` by lambda: C = 1/(2 n lam)."""
    from sklearn.svm import LinearSVC

    def fit(lam: float, tol: float) -> np.ndarray:
        model = LinearSVC(penalty="l1", loss="squared_hinge", dual=False, fit_intercept=False,
                          C=0.5 / (len(y) * lam), tol=tol, max_iter=1_000_000, random_state=0)
        return np.asarray(model.fit(X, y).coef_[0])

    return fit


def cold(name: str, X: Any, y: np.ndarray, limit: float, times: int = 9) -> tuple[float, float]:
    """Single fits without a start against LinearSVC's, in milliseconds."""
    load_compiled()
    load_loops()
    fit, spent = linear_svc(X, y), np.zeros((3, times, 3))
    top = cs.lambda_max(cs.sparse_svm(X, y, 1.0, loss="squared_hinge", l2=0))
    for share, table in zip((0.5, 0.1, 0.02), spent, strict=True):
        lam = share * top
        tol = matched(cs.sparse_svm(X, y, lam, loss="squared_hinge", l2=0), fit, 1e-3, limit)[1]
        for row in table:
            began = process_time()
            problem = cs.sparse_svm(X, y, lam, loss="squared_hinge", l2=0)
            made = process_time()
            assert cs.solve(problem, tol=TOL).status == "optimal"
            done = process_time()
            fit(lam, tol)
            row[:] = done - made, process_time() - done, made - began
        mine, theirs, making = 1e3 * np.median(table, axis=0)
        print(f"{name:13} {share:4} lam_max: ours {mine:7.2f} ms (problem {making:5.2f} ms), "
              f"LinearSVC {theirs:8.2f} ms   {theirs / mine:5.2f}x", flush=True)
    mine, theirs, _ = np.median(spent, axis=1).sum(axis=0)
    return float(mine), float(theirs)


def linear(name: str, X: Any, y: np.ndarray, points: int, last: float,
           limit: float, every: int) -> tuple[float, float]:
    """Squared hinge against LinearSVC."""
    base = cs.sparse_svm(X, y, 1.0, loss="squared_hinge", l2=0)
    top, fit = cs.lambda_max(base), linear_svc(X, y)
    assert isinstance(base, cs.Problem)
    # At lambda_max itself the answer is 0.
    grid = top * np.geomspace(1.0, last, points + 1)[1:]
    return against(name, "LinearSVC", base, fit, grid, limit, lambda w: None, every)


def skglm(name: str, X: Any, y: np.ndarray, points: int, last: float,
          limit: float) -> tuple[float, float]:
    """Huber's loss against skglm's AndersonCD."""
    from skglm.datafits import Huber
    from skglm.penalties import L1
    from skglm.solvers import AndersonCD
    from skglm.utils.jit_compilation import compiled_clone

    base = cs.sparse_svr(X, y, 1.0, loss="huber", delta=1.0, l2=0)
    columns = sp.csc_matrix(X) if sp.issparse(X) else np.asfortranarray(X)
    datafit = compiled_clone(Huber(1.0))
    if sp.issparse(X):
        datafit.initialize_sparse(columns.data, columns.indptr, columns.indices, y)
    else:
        datafit.initialize(columns, y)
    begin = [np.zeros(X.shape[1])]

    def fit(lam: float, tol: float) -> np.ndarray:
        solver = AndersonCD(tol=tol * lam, fit_intercept=False, max_iter=100, max_epochs=100_000,
                            ws_strategy="subdiff", warm_start=True)
        w = begin[0].copy()
        return np.asarray(solver.solve(columns, y, datafit, compiled_clone(L1(lam)), w, X @ w)[0])

    def keep(w: np.ndarray) -> None:
        begin[0] = w

    grid = cs.lambda_max(base) * np.geomspace(1.0, last, points + 1)[1:]
    fit(grid[0], 1e-1)  # compile
    return against(name, "skglm", base, fit, grid, limit, keep)


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--part", nargs="*", choices=("linear", "skglm", "cold"),
                        default=["linear", "skglm"])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--last", type=float, default=1e-4)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in given.part:
        totals, grid = [], (given.points, given.last)
        for name in given.set:
            X, y = load(given.data, name)
            if part == "cold":
                totals.append(cold(name, X, y, given.limit))
            elif part == "linear":
                totals.append(linear(name, X, y, *grid, given.limit, given.every))
            else:
                totals.append(skglm(name, X, y, *grid, given.limit))
        mine, theirs = np.sum(totals, axis=0)
        print(f"{part}: in total ours {mine:.2f} s, theirs {theirs:.2f} s, {theirs / mine:.1f}x")


if __name__ == "__main__":
    main()
