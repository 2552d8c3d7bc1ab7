"""No cliffs: one value of C over decades of size, C, offset and scale, each size twice the last.

    OMP_NUM_THREADS=1 python examples/benchmarks/sweep.py [--out sweep.json] [--quick]

One thing is changed at a time, from a base case of 8,000 x 20 and C = 1: the number of terms, of
features, C, the mean of the features, their scale, how often each row is repeated; hinge, absolute
and Huber loss, with and without an intercept. CPU seconds of `cvxscreen.solve`, data already made,
the least of `repeat` runs after one that may compile; relative gap 1e-6, certified. A line is
marked where it costs more than four times the line before although only a doubling lies between.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from time import process_time

import numpy as np

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.solvers.compiled_path.segments import compile_now

BASE = {"n": 8000, "d": 20, "C": 1.0, "mean": 0.0, "scale": 1.0, "copies": 1}
SWEEPS = {
    "n": [125 * 2**k for k in range(12)],
    "d": [5 * 2**k for k in range(8)],
    "C": [float(4.0**k) for k in range(-7, 6)],
    "mean": [0.0, *(float(10.0**k) for k in range(-1, 5))],
    "scale": [float(10.0**k) for k in range(-4, 5)],
    "copies": [2**k for k in range(7)],
}
QUICK = {"n": 7, "d": 4}
LOSSES = ("hinge", "absolute", "huber")
CLIFF, SHORT = 4.0, 2e-3
"""A doubling may cost so much more; what takes less than so many seconds is not compared."""


def data(n: int, d: int, mean: float, scale: float, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and responses with Gaussian noise, each row `copies` times, n rows in all."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((max(n // copies, 2), d))
    y = X @ rng.standard_normal(d) / np.sqrt(d) + 0.7 * rng.standard_normal(len(X))
    return np.repeat(scale * (X + mean), copies, axis=0), np.repeat(y, copies)


def measure(case: dict[str, float], loss: str, intercept: bool, repeat: int) -> dict[str, object]:
    """One line: CPU seconds and the certified gap."""
    shape = (int(case["n"]), int(case["d"]), case["mean"], case["scale"], int(case["copies"]))
    X, y = data(*shape)  # type: ignore[arg-type]
    if loss == "hinge":
        problem = cvxscreen.svm(X, np.where(y > 0, 1.0, -1.0), C=case["C"], intercept=intercept)
    else:
        problem = cvxscreen.regression(X, y, C=case["C"], loss=loss, intercept=intercept)
    spent = []
    for _ in range(repeat):
        began = process_time()
        found = cvxscreen.solve(problem.with_(C=case["C"]), time_limit=None)
        spent.append(process_time() - began)
    return {**case, "loss": loss, "intercept": intercept, "seconds": min(spent),
            "relative_gap": found.certificate.relative_gap, "status": found.status}


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="terms and features, fewer sizes")
    given = parser.parse_args()
    compile_now()
    for _ in range(3):
        measure(BASE | {"n": 500}, "hinge", True, 1)
    results, cliffs = [], 0
    for name, values in SWEEPS.items():
        if given.quick and name not in QUICK:
            continue
        lines = []
        for loss in LOSSES:
            for intercept in (False, True):
                before = None
                for value in values[: QUICK[name] if given.quick else None]:
                    row = measure(BASE | {name: value}, loss, intercept, given.repeat)
                    cost = float(row["seconds"])  # type: ignore[arg-type]
                    steep = before is not None and cost > CLIFF * max(before, SHORT)
                    cliffs += steep
                    before = cost
                    results.append({"sweep": name, "cliff": steep, **row})
                    lines.append((loss, "yes" if intercept else "no", value, round(1e3 * cost, 2),
                                  row["relative_gap"], row["status"], "CLIFF" if steep else ""))
        header = ("loss", "intercept", name, "CPU ms", "gap", "status", "")
        print(table(header, lines, title=f"over {name}"), flush=True)
    print(f"{cliffs} cliffs in {len(results)} lines")
    if given.out is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine(),
                   "numpy": np.__version__, "cvxscreen": cvxscreen.__version__}
        given.out.write_text(json.dumps({"made_by": machine, "lines": results}, indent=1))


if __name__ == "__main__":
    main()
