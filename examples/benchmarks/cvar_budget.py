"""A bound on the conditional value at risk: ``method="screen"`` and cvqp, an ADMM made for it.

    pip install cvqp
    OMP_NUM_THREADS=1 python examples/benchmarks/cvar_budget.py [--assets D] [--scenarios N ...]

Largest mean return of a long-only portfolio with ``cp.cvar(-R @ w, 0.95)`` at most that of equal
weights; scenarios as in `cvar.py`. CPU seconds of this process, first call included. A method that
stops early has a larger mean return than there is: beside the seconds stands by how much the bound
is exceeded, how far the weights are from the simplex, and the mean return over the certified one.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

import cvxscreen  # noqa: F401  (registers the solve method)
from cvxscreen._support.tables import table

BETA = 0.95
TOLERANCES = ((1e-4, 1e-3), (1e-6, 1e-5), (1e-8, 1e-7))
"""Absolute and relative tolerances of cvqp: its own, and what comes nearer to a certified answer.
"""


def scenarios(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factors = 0.007 * rng.standard_normal((5, d))
    R = rng.standard_t(4, (n, 5)) @ factors
    return R + 0.01 * rng.standard_t(4, (n, d)) + rng.uniform(0, 0.002, d)


def tail(losses: np.ndarray) -> float:
    """The mean of the worst share of the losses, of which one may count in part."""
    m = (1.0 - BETA) * len(losses)
    worst = np.sort(losses)[::-1]
    whole = int(m)
    return float((worst[:whole].sum() + (m - whole) * worst[whole]) / m)


def screened(R: np.ndarray, most: float) -> np.ndarray:
    import cvxpy as cp

    w = cp.Variable(R.shape[1])
    limits = [cp.sum(w) == 1, w >= 0, cp.cvar(-R @ w, BETA) <= most]
    problem = cp.Problem(cp.Maximize(R.mean(axis=0) @ w), limits)
    problem.solve(method="screen")
    return np.asarray(w.value)


def by_cvqp(R: np.ndarray, most: float, absolute: float, relative: float) -> np.ndarray:
    import cvqp

    d = R.shape[1]
    rows = np.vstack([np.ones((1, d)), np.eye(d)])
    low, high = np.r_[1.0, np.zeros(d)], np.r_[1.0, np.full(d, np.inf)]
    settings = cvqp.Settings(abstol=absolute, reltol=relative, time_limit=300.0)
    found = cvqp.solve(
        None, -R.mean(axis=0), -R, rows, low, high, BETA, most, settings=settings
    )
    return np.asarray(found.x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--assets", type=int, default=50)
    parser.add_argument("--scenarios", type=int, nargs="*", default=[10_000])
    asked = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for n in asked.scenarios:
        R = scenarios(n, asked.assets)
        most = tail(-R.mean(axis=1))
        best = 0.0
        for stop in (None, *TOLERANCES):
            name = "cvxscreen" if stop is None else f"cvqp {stop[0]:.0e}"
            began = process_time()
            w = screened(R, most) if stop is None else by_cvqp(R, most, *stop)
            seconds = process_time() - began
            value = float(R.mean(axis=0) @ w)
            best = best or value
            off = max(abs(float(w.sum()) - 1.0), -float(w.min()))
            rows.append((n, name, seconds, tail(-R @ w) / most - 1.0, off, value / best - 1.0))
    print(table(
        ("scenarios", "method", "CPU s", "bound exceeded", "off the simplex", "return above"),
        rows, title=f"A bound on CVaR, {asked.assets} assets",
    ))


if __name__ == "__main__":
    main()
