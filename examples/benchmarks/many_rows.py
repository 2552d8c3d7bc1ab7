"""A quadratic program with very many rows: ``method="screen"`` and Clarabel through CVXPY.

    OMP_NUM_THREADS=1 python examples/benchmarks/many_rows.py [--sizes N ...] [--cap S] [--store]

``minimise 1/2 ||x||^2 + <q, x> subject to A x <= b``, 50 columns, rows that hold at a drawn point
with room from an exponential distribution. CPU seconds of this process, first call and then second
one, and by how much the largest row is violated. Clarabel gets at most `--cap` seconds of wall time
in its own loop: where it stops there, ``plain`` is what it had taken, and its ratio is a bound.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from report import store

import cvxscreen  # noqa: F401  (registers the solve method)
from cvxscreen._support.tables import table

D = 50


def program(n: int, seed: int = 5) -> tuple[cp.Problem, cp.Variable, np.ndarray, np.ndarray]:
    """The problem, its variable, and its rows."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, D))
    b = A @ rng.standard_normal(D) + rng.exponential(1.0, n)
    x = cp.Variable(D)
    cost = 0.5 * cp.sum_squares(x) + 3.0 * rng.standard_normal(D) @ x
    return cp.Problem(cp.Minimize(cost), [A @ x <= b]), x, A, b


def timed(problem: cp.Problem, **how: Any) -> float:
    """CPU seconds of one solve; one that its limit ends is no error."""
    began = process_time()
    with suppress(cp.error.SolverError):
        problem.solve(**how)
    return process_time() - began


def record(n: int, cap: float) -> dict[str, Any]:
    """Both ways at n rows."""
    problem, x, A, b = program(n)
    first, second = timed(problem, method="screen"), timed(problem, method="screen")
    value, violation = float(problem.value), float((A @ x.value - b).max())
    status = problem.status
    plain, _, _, _ = program(n)
    seconds = timed(plain, solver="CLARABEL", canon_backend="SCIPY", time_limit=cap)
    done = plain.status == "optimal"
    return {
        "rows": n, "first": first, "second": second, "status": status, "violation": violation,
        "plain": seconds, "plain_status": plain.status, "ratio": seconds / first,
        "value_difference": abs(float(plain.value) / value - 1.0) if done else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[50_000, 1_000_000])
    parser.add_argument("--cap", type=float, default=180.0)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    cp.Problem(cp.Minimize(cp.norm1(cp.Variable(3) - 1.0))).solve()  # CVXPY's own first call
    records = [record(n, asked.cap) for n in asked.sizes]
    names = list(records[0])
    print(table(names, [tuple(r[name] for name in names) for r in records],
                title=f"A quadratic program with {D} columns"))
    if asked.store:
        store("many_rows", records, f"Clarabel capped at {asked.cap:g} s of wall time in its loop.")


if __name__ == "__main__":
    main()
