"""Least squares with constraints over tall data: ``method="screen"``, CVXPY's choice and Clarabel.

    OMP_NUM_THREADS=1 python examples/benchmarks/least_squares.py [--sizes N D ...] [--cap S]

Heavy-tailed columns of different scales, half of the coefficients 0. CPU seconds of this process,
the first call of a form and a second one; every form once small beforehand. Plain solves get
at most `--cap` seconds of wall time: what is stopped there is a bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
from many_rows import timed
from report import store

import cvxscreen
from cvxscreen._support.tables import table

Written = tuple[Any, list[Any]]
FORMS: dict[str, Callable[[Any, Any, Any], Written]] = {
    "alone": lambda X, y, w: (cp.sum_squares(X @ w - y), []),
    "nonnegative": lambda X, y, w: (cp.sum_squares(X @ w - y), [w >= 0]),
    "simplex": lambda X, y, w: (cp.sum_squares(X @ w - y), [w >= 0, cp.sum(w) == 1]),
    "norm1(w) <= 1": lambda X, y, w: (cp.sum_squares(X @ w - y), [cp.norm1(w) <= 1]),
    "norm(w) <= 1/2": lambda X, y, w: (cp.sum_squares(X @ w - y), [cp.norm(w) <= 0.5]),
    "norm1(w), bounds": lambda X, y, w: (
        cp.sum_squares(X @ w - y) + 30 * cp.norm1(w), [cp.abs(w) <= 0.5]),
    "tv(w)": lambda X, y, w: (cp.sum_squares(X @ w - y) + 30 * cp.tv(w), []),
    "norm, norm1(w)": lambda X, y, w: (cp.norm(X @ w - y) + 3 * cp.norm1(w), []),
    "norm, bounds": lambda X, y, w: (cp.norm(X @ w - y), [cp.abs(w) <= 0.5]),
    "norm <= t": lambda X, y, w: (cp.norm1(w), [cp.norm(X @ w - y) <= 1.5 * len(y) ** 0.5]),
    "squares <= t": lambda X, y, w: (cp.norm_inf(w), [cp.sum_squares(X @ w - y) <= 2 * len(y)]),
    "cvar, norm <= t": lambda X, y, w: (
        cp.cvar(X @ w - y, 0.9), [cp.norm(X @ w - y) <= 1.5 * len(y) ** 0.5]),
    "entropy": lambda X, y, w: (cp.sum_squares(X @ w - y) - 30 * cp.sum(cp.entr(w)), []),
    "barrier": lambda X, y, w: (cp.sum_squares(X @ w - y) - 30 * cp.sum(cp.log(w)), []),
    "logistic of few": lambda X, y, w: (
        cp.sum_squares(X @ w - y) + cp.sum(cp.logistic(X[:50] @ w)), []),
    "normNuc, 3 outputs": lambda X, y, w: _outputs(X, y, cp.Variable((len(X[0]), 3))),
}


def _outputs(X: Any, y: Any, W: Any) -> Written:
    return cp.sum_squares(X @ W - np.column_stack([y, -y, y[::-1]])) + 30 * cp.normNuc(W), []


CONIC = frozenset(
    ("norm(w) <= 1/2", "norm, norm1(w)", "norm, bounds", "norm <= t", "squares <= t",
     "cvar, norm <= t", "entropy", "barrier", "logistic of few")
)
"""Those for which CVXPY takes Clarabel; SCS for a nuclear norm, for the others OSQP."""


def problem(name: str, n: int, d: int, seed: int = 0) -> cp.Problem:
    """One form over drawn data."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(4, (n, d)) * rng.uniform(0.3, 3.0, d)
    y = X @ (rng.standard_normal(d) * (rng.random(d) < 0.5) / np.sqrt(d)) + rng.standard_normal(n)
    cost, constraints = FORMS[name](X, y, cp.Variable(d))
    return cp.Problem(cp.Minimize(cost), constraints)


def _limit(solver: str, cap: float) -> dict[str, float]:
    return {"time_limit_secs" if solver == "SCS" else "time_limit": cap}


def record(name: str, n: int, d: int, cap: float) -> dict[str, Any]:
    """One form: screened twice, then CVXPY's choice of solver and Clarabel."""
    found = problem(name, n, d)
    first = timed(found, method="screen")
    report = cvxscreen.Report.of(found)
    again = problem(name, n, d)
    entry: dict[str, Any] = {
        "form": name, "rows": n, "columns": d, "recognised": report.recognised, "first": first,
        "second": timed(again, method="screen"), "relative_gap": report.relative_gap,
    }
    choice = "CLARABEL" if name in CONIC else "SCS" if "normNuc" in name else "OSQP"
    for label, solver in (("choice", choice), ("clarabel", "CLARABEL")):
        plain = problem(name, n, d)
        entry[label] = timed(plain, solver=solver, **_limit(solver, cap))
        entry[f"{label}_status"] = plain.status
        known = plain.value is not None and np.isfinite(plain.value)
        entry[f"{label}_off"] = abs(plain.value / found.value - 1.0) if known else None
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[20_000, 50])
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    for name in FORMS:  # what is loaded once a process is no part of a form
        timed(problem(name, 400, 5), method="screen", always=True)
        timed(problem(name, 400, 5))
    sizes = list(zip(asked.sizes[::2], asked.sizes[1::2], strict=True))
    records = [record(name, n, d, asked.cap) for n, d in sizes for name in FORMS]
    names = list(records[0])
    print(table(names, [tuple(r[name] for name in names) for r in records],
                title="Least squares through CVXPY, CPU seconds"))
    if asked.store:
        store("least_squares", records, f"Plain solves capped at {asked.cap:g} s of wall time.")


if __name__ == "__main__":
    main()
