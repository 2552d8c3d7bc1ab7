"""1,000 bootstrap fits of a quantile regression: ours against one cold fit and against the peers.

    OMP_NUM_THREADS=1 python examples/benchmarks/bootstrap.py [--fits 1000] [--out bootstrap.json]

10,000 samples, 20 features and an intercept; errors of Student's t with 4 degrees of freedom, or of
a variance that grows with the first feature; features independent or correlated; level 0.5, 0.7 and
0.95. CPU seconds of this process; run ``cvxscreen warmup`` before, and a first small call, before
the clock starts, loads what it compiled. The peers make `--sampled` fits on samples drawn by
scikit-learn's `resample`, and their time for all is that times the rest; the peers solve the
problem without a ridge, ours has one of 1 (of a sum over 10,000 losses), and the largest relative
gap of its certificates stands beside it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import process_time

import numpy as np
from report import with_origin
from sklearn.linear_model import QuantileRegressor
from sklearn.utils import resample

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.data_changes.reweight import taken, weighted

N, D, TOL = 10_000, 20, 1e-6


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and responses."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, D))
    if kind == "correlated":
        X = X @ np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(range(D), range(D)))).T
    noise = rng.standard_t(4, size=N)
    if kind == "heteroscedastic":
        noise = rng.normal(size=N) * np.exp(0.5 * X[:, 0])
    return X, X @ rng.normal(size=D) + noise


def cold(X: np.ndarray, y: np.ndarray, tau: float) -> float:
    """CPU seconds of one fit from nothing, validation of the data included."""
    began = process_time()
    cvxscreen.solve(cvxscreen.regression(X, y, loss="quantile", tau=tau, intercept=True), tol=TOL)
    return process_time() - began


def by_sklearn(X: np.ndarray, y: np.ndarray, tau: float) -> None:
    QuantileRegressor(quantile=tau, alpha=0.0, solver="highs").fit(X, y)


def by_statsmodels(X: np.ndarray, y: np.ndarray, tau: float) -> None:
    import statsmodels.api as sm

    sm.QuantReg(y, sm.add_constant(X)).fit(q=tau)


def by_pyfixest(X: np.ndarray, y: np.ndarray, tau: float) -> None:
    import pandas as pd
    import pyfixest

    names = [f"x{j}" for j in range(D)]
    frame = pd.DataFrame(X, columns=names).assign(y=y)
    pyfixest.quantreg("y ~ " + " + ".join(names), frame, quantile=tau)


def by_pinball(X: np.ndarray, y: np.ndarray, tau: float) -> None:
    from pinball import QuantileRegressor as Pinball

    Pinball(tau=tau).fit(X, y)


PEERS: dict[str, Callable[[np.ndarray, np.ndarray, float], None]] = {
    "statsmodels": by_statsmodels, "pyfixest": by_pyfixest, "pinball-qr": by_pinball,
    "scikit-learn": by_sklearn,
}


def peer(name: str, X: np.ndarray, y: np.ndarray, tau: float, fits: int) -> float | None:
    """CPU seconds a fit on a sample drawn anew; None where the package is missing or fails."""
    try:
        PEERS[name](X[:200], y[:200], tau)  # imports, and what it compiles
        began = process_time()
        for k in range(fits):
            PEERS[name](*resample(X, y, random_state=k), tau)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
        return None
    return (process_time() - began) / fits


def worst_gap(solution: cvxscreen.Solution, found: cvxscreen.Bootstrap, seed: int) -> float:
    """Largest excess of five answers over a fit alone of a gap of 1e-9, relative."""
    worst = 0.0
    for k in range(0, len(found.coefficients), max(len(found.coefficients) // 5, 1)):
        drawn = np.random.default_rng((seed, k)).integers(0, N, N)
        w = np.bincount(drawn, minlength=N).astype(float)
        used = np.flatnonzero(w)
        there = weighted(taken(solution.problem, used), w[used])
        best = cvxscreen.solve(there, tol=1e-9)
        excess = there.primal(found.coefficients[k]) - best.value + best.certificate.gap
        worst = max(worst, excess / best.value)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--sampled", type=int, default=2)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    X, y = data("independent")
    first = process_time()
    cold(X, y, 0.5)
    first = process_time() - first
    cvxscreen.bootstrap(cvxscreen.regression(X[:500], y[:500], loss="quantile", intercept=True), 2)
    rows, results = [], []
    for kind, tau in (("independent", 0.5), ("independent", 0.95), ("correlated", 0.7),
                      ("heteroscedastic", 0.7)):
        X, y = data(kind)
        ones = [cold(X, y, tau) for _ in range(3)]
        solution = cvxscreen.solve(
            cvxscreen.regression(X, y, loss="quantile", tau=tau, intercept=True), tol=TOL
        )
        began = process_time()
        found = cvxscreen.bootstrap(solution, asked.fits, seed=3, tol=TOL)
        ours = process_time() - began
        one = min([*ones, *(cold(X, y, tau) for _ in range(3))])
        assert found.certified.all()
        gap = worst_gap(solution, found, 3)
        others = {name: peer(name, X, y, tau, asked.sampled) for name in PEERS}
        results.append({
            "data": kind, "tau": tau, "cold_fit": one, "fits": asked.fits, "seconds": ours,
            "cold_fits": ours / one, "excess": gap, "peer_seconds_a_fit": others,
        })
        rows.append((
            kind, tau, one, ours, ours / one, gap,
            *(None if t is None else f"{t * asked.fits / ours:,.0f}" for t in others.values()),
        ))
    head = ("data", "tau", "cold fit, s", f"{asked.fits} fits, s", "cold fits", "largest excess",
            *(f"{name} / ours" for name in PEERS))
    print(table(head, rows, title=f"Bootstrap of quantile regression, {N:,} x {D}"))
    versions = {}
    for name in ("statsmodels", "pyfixest", "pinball-qr", "scikit-learn", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    if asked.out is not None:
        report = {"versions": versions, "first_fit_of_the_process": first, "rows": results,
                  "sampled": asked.sampled}
        asked.out.write_text(json.dumps(with_origin(report), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
