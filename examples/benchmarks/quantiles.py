"""Quantile regression without a penalty, its process, and the robust fits beside it, against peers.

    OMP_NUM_THREADS=1 python examples/benchmarks/quantiles.py [--peers N ...] [--out quantiles.json]

Data: n x 50 normal features and a constant, noise with heavy tails (t, 3 degrees of freedom) that
grows with a feature. CPU seconds of this process, in turns, first call included; beside each the
relative excess of its objective over the certified optimum, computed here from its coefficients
alone, and for ours the certified relative gap and the largest residual at the d + 1 terms that are
at their kinks. ``--peers`` names the sizes at which peers run as well: scikit-learn's
`QuantileRegressor` (HiGHS), `statsmodels` (iteratively reweighted least squares), `pinball-qr` and
`pyfixest` (the Frisch-Newton method, with and without preprocessing), and Clarabel through CVXPY as
anybody would write it. ``--only`` names some of them; a peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from report import with_origin

import cvxscreen
from cvxscreen._support.tables import table

D = 50


def data(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features without the constant, and responses."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    noise = rng.standard_t(3, n) * (1.0 + 0.5 * np.abs(X[:, 0]))
    return X, X @ rng.standard_normal(D) + noise


def pinball(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, tau: float) -> float:
    r = y - X @ w - b
    return float(np.maximum(tau * r, (tau - 1.0) * r).sum())


def by_sklearn(X: np.ndarray, y: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import QuantileRegressor

    model = QuantileRegressor(quantile=tau, alpha=0.0).fit(X, y)
    return model.coef_, float(model.intercept_)


def by_statsmodels(X: np.ndarray, y: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    from statsmodels.regression.quantile_regression import QuantReg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = QuantReg(y, np.column_stack([X, np.ones(len(y))])).fit(
            q=tau, max_iter=5000, p_tol=1e-9
        ).params
    return found[:-1], float(found[-1])


def by_clarabel(X: np.ndarray, y: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    import cvxpy as cp

    w, b = cp.Variable(X.shape[1]), cp.Variable()
    r = y - X @ w - b
    cost = cp.sum(cp.maximum(tau * r, (tau - 1.0) * r))
    cp.Problem(cp.Minimize(cost)).solve(solver="CLARABEL", canon_backend="SCIPY")
    return w.value, float(b.value)


def by_pinball(X: np.ndarray, y: np.ndarray, tau: float, method: str) -> tuple[np.ndarray, float]:
    from pinball import QuantileRegressor

    model = QuantileRegressor(tau=tau, method=method).fit(X, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def by_pyfixest(X: np.ndarray, y: np.ndarray, tau: float, method: str) -> tuple[np.ndarray, float]:
    import pandas as pd
    import pyfixest as pf

    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(y=y)
    found = pf.quantreg(
        "y ~ " + " + ".join(names), frame, vcov="iid", quantile=tau, method=method, tol=1e-9
    ).coef()
    return found[names].to_numpy(), float(found["Intercept"])


PEERS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "scikit-learn": by_sklearn, "statsmodels": by_statsmodels, "Clarabel": by_clarabel,
    "pinball-qr fn": partial(by_pinball, method="fn"),
    "pinball-qr pfn": partial(by_pinball, method="pfn"),
    "pyfixest fn": partial(by_pyfixest, method="fn"),
    "pyfixest pfn": partial(by_pyfixest, method="pfn"),
}


def ours(X: np.ndarray, y: np.ndarray, tau: float) -> tuple[dict[str, Any], float]:
    """The record of a fit, and its value."""
    began = process_time()
    problem = cvxscreen.regression(X, y, C=np.inf, loss="quantile", tau=tau, intercept=True)
    found = cvxscreen.solve(problem, tol=1e-9)
    seconds = process_time() - began
    away = np.abs(X @ found.w + found.intercept - y)
    at_kinks = np.partition(away, X.shape[1])[: X.shape[1] + 1]
    record = {
        "solver": "cvxscreen", "n": len(y), "tau": tau, "seconds": seconds,
        "relative_gap": found.certificate.relative_gap, "within": found.certificate.within,
        "kept": [r.kept for r in found.rounds], "vertex": float(at_kinks.max()),
        "status": found.status,
    }
    return record, found.value


def process(n: int) -> dict[str, Any]:
    """99 quantiles as a path, and one of them alone."""
    X, y = data(n)
    problem = cvxscreen.regression(X, y, C=np.inf, loss="quantile", tau=0.5, intercept=True)
    began = process_time()
    cvxscreen.solve(problem, tol=1e-9)
    one = process_time() - began
    began = process_time()
    path = cvxscreen.path(problem, over="tau", values=np.arange(1, 100) / 100, tol=1e-9)
    seconds = process_time() - began
    return {
        "n": n, "one": one, "all": seconds, "ratio": seconds / one,
        "relative_gap": max(point.relative_gap for point in path.points),
        "optimal": sum(point.status == "optimal" for point in path.points),
    }


def robust(n: int, peers: bool) -> list[dict[str, Any]]:
    """LAD, Huber and quantile with absolute values, native and by Clarabel through CVXPY."""
    import cvxpy as cp

    X, y = data(n)
    w = cp.Variable(D)
    r = y - X @ w
    asked = {
        "absolute": ({"C": np.inf}, cp.norm1(r)),
        "huber": ({"C": np.inf}, 0.5 * cp.sum(cp.huber(r, 1.0))),
        "quantile": ({"C": 100.0 / n, "tau": 0.9, "penalty": "l1"},
                     cp.norm1(w) + 100.0 / n * cp.sum(cp.maximum(0.9 * r, -0.1 * r))),
    }
    records = []
    for loss, (options, cost) in asked.items():
        began = process_time()
        found = cvxscreen.solve(cvxscreen.regression(X, y, loss=loss, **options), tol=1e-9)
        record = {"loss": loss, "n": n, "seconds": process_time() - began,
                  "relative_gap": found.certificate.relative_gap, "status": found.status}
        if peers:
            problem = cp.Problem(cp.Minimize(cost))
            began = process_time()
            problem.solve(solver="CLARABEL", canon_backend="SCIPY")
            record["clarabel"] = process_time() - began
            record["clarabel_excess"] = float(problem.value) / found.value - 1.0
        records.append(record)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 50_000, 1_000_000])
    parser.add_argument("--peers", type=int, nargs="*", default=[10_000, 50_000])
    parser.add_argument("--only", nargs="*", default=list(PEERS))
    parser.add_argument("--process", type=int, default=100_000)
    parser.add_argument("--robust", type=int, default=50_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    fits = []
    for n in asked.sizes:
        X, y = data(n)
        for tau in (0.5, 0.9):
            record, best = ours(X, y, tau)
            fits.append(record)
            for name in asked.only if n in asked.peers else ():
                began = process_time()
                try:
                    w, b = PEERS[name](X, y, tau)
                except ImportError:
                    continue
                seconds = process_time() - began
                excess = pinball(X, y, w, b, tau) / best - 1.0
                fits.append({"solver": name, "n": n, "tau": tau, "seconds": seconds,
                             "excess": excess})
    print(table(
        ("solver", "n", "tau", "CPU s", "gap or excess", "vertex"),
        [(f["solver"], f["n"], f["tau"], f["seconds"], f.get("relative_gap", f.get("excess")),
          f.get("vertex", "")) for f in fits],
        title="Quantile regression without a penalty",
    ))
    result: dict[str, Any] = {"fits": fits, "robust": robust(asked.robust, bool(asked.peers))}
    print(table(
        ("loss", "n", "CPU s", "relative gap", "Clarabel s", "its excess"),
        [(r["loss"], r["n"], r["seconds"], r["relative_gap"], r.get("clarabel", ""),
          r.get("clarabel_excess", "")) for r in result["robust"]],
        title="Without a penalty, and with absolute values",
    ))
    result["process"] = process(asked.process)
    print(result["process"])
    if asked.out:
        asked.out.write_text(json.dumps(with_origin(result), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
