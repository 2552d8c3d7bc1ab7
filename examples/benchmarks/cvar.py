"""Portfolios of least CVaR: 50 assets, simplex and return constraints, many scenarios.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvar.py [--clarabel N] [--out cvar.json]

Scenarios with five common factors and heavy tails (t, 4 degrees of freedom), level 0.95. CPU
seconds of this process, first call included, building the problem included; beside each the
certified relative gap and the violation of the constraints. ``--clarabel`` names the number of
scenarios at which Clarabel through CVXPY, as anybody would write it, runs as well; its objective is
compared.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from report import with_origin

import cvxscreen
from cvxscreen._support.tables import table

D, BETA = 50, 0.95


def scenarios(n: int, seed: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factors = 0.007 * rng.standard_normal((5, D))
    R = rng.standard_t(4, (n, 5)) @ factors
    R += 0.01 * rng.standard_t(4, (n, D))
    R += rng.uniform(0, 0.002, D)
    return R


def by_clarabel(R: np.ndarray, least: float) -> float:
    import cvxpy as cp

    w, a = cp.Variable(D), cp.Variable()
    tail = cp.sum(cp.pos(-R @ w - a)) / ((1.0 - BETA) * len(R))
    problem = cp.Problem(
        cp.Minimize(a + tail), [cp.sum(w) == 1, w >= 0, R.mean(axis=0) @ w >= least]
    )
    problem.solve(solver="CLARABEL", canon_backend="SCIPY")
    return float(problem.value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--clarabel", type=int, nargs="*", default=[20_000])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    records: list[dict[str, Any]] = []
    for n in asked.sizes:
        R = scenarios(n)
        least = float(np.quantile(R.mean(axis=0), 0.6))
        began = process_time()
        found = cvxscreen.solve(cvxscreen.cvar(R, BETA, min_return=least), tol=1e-8)
        record = {
            "scenarios": n, "seconds": process_time() - began, "status": found.status,
            "relative_gap": found.certificate.relative_gap, "within": found.certificate.within,
            "violation": found.certificate.violation, "value": found.value,
            "kept": [r.kept for r in found.rounds],
            "peak_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        if n in asked.clarabel:
            began = process_time()
            value = by_clarabel(R, least)
            record["clarabel"] = process_time() - began
            record["clarabel_excess"] = value / found.value - 1.0
        records.append(record)
    print(table(
        ("scenarios", "CPU s", "relative gap", "violation", "peak GB", "Clarabel s", "its excess"),
        [(r["scenarios"], r["seconds"], r["relative_gap"], r["violation"], r["peak_GB"],
          r.get("clarabel", ""), r.get("clarabel_excess", "")) for r in records],
        title="CVaR portfolios",
    ))
    if asked.out:
        asked.out.write_text(json.dumps(with_origin(records), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
