"""The CVXPY door against the engine behind it and against no door, on many sets and losses.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_door.py DATA [--out cvxpy_door.json]
    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_door.py DATA --solvers

DATA is a folder with sets as NAME.npz (dense ``X``, or CSR as ``X_data``, ``X_indices``,
``X_indptr``, ``X_shape``; and ``y``); sets that it lacks are left out, generated ones need none.
Dense features standardised, sparse ones as they are, C = 1. Each case runs in a process of its own:
``door`` is ``prob.solve(method="screen")``, ``first`` the same as the very first call of the
process, ``named`` with ``solver="CLARABEL"``, ``solve`` is `cvxscreen.solve` on the same problem,
``plain`` is ``prob.solve(solver="CLARABEL")``. CPU seconds, constructing the problem included, the
least of `repeat` runs (plain: one); libraries are imported before.

``--solvers`` takes one set and each solver that CVXPY has installed: plain and behind the screen,
with status, relative error of the value, certified relative gap of the variables on the full data,
CPU seconds, and what the solver had to do behind the screen; each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from report import with_origin
from stored_sets import stored

import cvxscreen
from cvxscreen._support.tables import table

CASES = (
    # set, loss, intercept
    ("ijcnn1", "hinge", True),
    ("magic04", "hinge", False),
    ("shuttle", "squared_hinge", True),
    ("covtype20k", "hinge", True),
    ("phishing", "squared_hinge", False),
    ("ssl_digit1", "hinge", True),
    ("cadata", "quantile", True),
    ("cpusmall", "epsilon", False),
    ("cpusmall", "huber", True),
    ("abalone", "huber", False),
    ("winequality", "quantile", False),
    ("made_60000_20", "epsilon", True),
    ("made_20000_100", "huber", True),
    ("a9a", "hinge", True),
    ("a9a_test", "squared_hinge", False),
    ("mushrooms", "quantile", True),
    ("pcmac_7511", "hinge", False),
)
CLASSES = ("hinge", "squared_hinge")
OPTIONS = {"quantile": {"tau": 0.3}, "epsilon": {"epsilon": 0.2}, "huber": {"gamma": 1.0}}
NAMES = ("CLARABEL", "SCS", "OSQP", "HIGHS", "PIQP", "QOCO", "PROXQP")


def made(n: int, d: int):
    """Two overlapping classes, as numbers for regression too."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.standard_normal(n)


def load(folder: Path, name: str, loss: str):
    """Features and targets; None where the set is absent."""
    if name.startswith("made"):
        X, y = made(*map(int, name.split("_")[1:]))
        return X, np.where(y > 0, 1.0, -1.0) if loss in CLASSES else y
    found = stored(folder, name)
    if found is None:
        return None
    X, y = found[0], found[1].astype(float)
    if sp.issparse(X):
        X = sp.csr_array(X)
    else:
        spread = X.std(axis=0)
        X = np.ascontiguousarray((X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0])
    if loss in CLASSES:
        return X, np.where(y == np.unique(y)[0], -1.0, 1.0)
    return X, (y - y.mean()) / y.std()


def written(X, y, loss: str, intercept: bool):
    """The problem as a user of CVXPY writes it."""
    w = cp.Variable(X.shape[1])
    b = cp.Variable() if intercept else 0.0
    margin = cp.multiply(y, X @ w + b) if intercept else cp.multiply(y, X @ w)
    residual = X @ w + b - y if intercept else X @ w - y
    terms = {
        "absolute": lambda: cp.norm1(residual),
        "hinge": lambda: cp.sum(cp.pos(1 - margin)),
        "squared_hinge": lambda: 0.5 * cp.sum_squares(cp.pos(1 - margin)),
        "quantile": lambda: cp.sum(cp.maximum(0.3 * -residual, -0.7 * -residual)),
        "epsilon": lambda: cp.sum(cp.pos(cp.abs(residual) - 0.2)),
        "huber": lambda: 0.5 * cp.sum(cp.huber(residual, 1.0)),
    }
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + terms[loss]()))


def ours(X, y, loss: str, intercept: bool):
    """The same problem for `cvxscreen.solve`."""
    make = cvxscreen.svm if loss in CLASSES else cvxscreen.regression
    return make(X, y, loss=loss, intercept=intercept, **OPTIONS.get(loss, {}))


def timed(call):
    """CPU seconds of `call` and what it returned."""
    began = process_time()
    result = call()
    return process_time() - began, result


def compared(folder: Path, case, repeat: int, plain: bool) -> dict | None:
    """All figures of one case."""
    name, loss, intercept = case
    found = load(folder, name, loss)
    if found is None:
        return None
    data = (*found, loss, intercept)

    def door(**options):
        problem = written(*data)
        problem.solve(**options)
        return problem

    out = {"set": name, "loss": loss, "intercept": intercept, "shape": list(found[0].shape)}
    out["first"], screened = timed(lambda: door(method="screen"))
    report = screened.solver_stats.extra_stats["cvxscreen"]
    out |= {"value": screened.value, "gap": report.relative_gap, "reason": report.reason,
            "status": screened.status, "with": screened.solver_stats.solver_name}
    runs = [timed(lambda: door(method="screen"))[0] for _ in range(repeat)]
    out["door"] = min(runs)
    out["times"] = {key: round(value, 4) for key, value in report.times.items()}
    out["named"] = min(
        timed(lambda: door(method="screen", solver="CLARABEL"))[0] for _ in range(repeat)
    )
    out["solve"] = min(
        timed(lambda: cvxscreen.solve(ours(*data)))[0] for _ in range(repeat + 1)
    )
    if plain:
        out["plain"], reference = timed(lambda: door(solver="CLARABEL"))
        out["plain_value"] = reference.value
        w, v = (max(p.variables(), key=lambda v: v.size).value for p in (screened, reference))
        out["distance"] = float(np.linalg.norm(w - v) / np.linalg.norm(v))
    return out


def by_solver(folder: Path, name: str, way: str, repeat: int) -> dict:
    """One installed solver, plain or behind the screen."""
    case = ("made_20000_20", "hinge", True)
    data = (*load(folder, case[0], case[1]), *case[1:])
    best = cvxscreen.solve(ours(*data), tol=1e-10).value
    options = {"method": "screen"} if way == "screened" else {}
    times = []
    for _ in range(repeat):
        problem = written(*data)
        try:
            seconds, _ = timed(partial(problem.solve, solver=name, **options))
        except cp.error.SolverError as error:
            return {"solver": name, "way": way, "status": str(error)}
        times.append(seconds)
    value = float(problem.objective.value)  # at the variables, whatever was reported
    row = {"solver": name, "way": way, "status": problem.status, "error": abs(value - best) / best,
           "gap": cvxscreen.certify(problem).relative_gap, "cpu": min(times)}
    if options:
        row["did"] = problem.solver_stats.extra_stats["cvxscreen"].named
    return row


def apart(folder: Path, *arguments: str) -> Any:
    """What this script prints last, in a process of its own; None where a solver has ended it."""
    command = [sys.executable, __file__, str(folder), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-plain", action="store_true")
    parser.add_argument("--solvers", action="store_true")
    parser.add_argument("--cases", type=int, nargs="*", default=list(range(len(CASES))))
    parser.add_argument("--solver", nargs=2, help="name, and plain or screened: figures as JSON")
    parser.add_argument("--one", type=int, help="one case, its figures as JSON")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(compared(given.data, CASES[given.one], given.repeat, not given.no_plain)))
        return
    repeat = ["--repeat", str(given.repeat)]
    if given.solver:
        print("\n" + json.dumps(by_solver(given.data, *given.solver, given.repeat)), flush=True)
        return
    if given.solvers:
        results = []
        for name in [name for name in NAMES if name in cp.installed_solvers()]:
            for way in ("plain", "screened"):
                row = apart(given.data, "--solver", name, way, *repeat)
                dead = {"solver": name, "way": way, "status": "ended its process"}
                results.append(dead if row is None else row)
        columns = ("solver", "way", "status", "error", "gap", "cpu", "did")
        print(table(columns, [[row.get(key, "") for key in columns] for row in results]))
    else:
        results = []
        for k in given.cases:
            row = apart(
                given.data, "--one", str(k), *repeat, *(["--no-plain"] * given.no_plain)
            )
            if row is None:
                print(f"{CASES[k][0]}: absent, or its process has ended")
                continue
            results.append(row)
            print(shown(row), flush=True)
        summary(results)
    if given.out:
        given.out.write_text(json.dumps(with_origin(results), indent=1) + "\n")


def shown(row: dict) -> str:
    """One line of a case."""
    seconds = "  ".join(
        f"{key} {row[key]:.3f}" for key in ("first", "door", "named", "solve", "plain")
        if key in row
    )
    what = f"{row['set']} {row['loss']}{' b' * row['intercept']}"
    return (f"{what:28s} {seconds}  gap {row['gap']:.0e}  off {row.get('distance', np.nan):.0e}  "
            f"{row['with']} {row['times']}")


def summary(results: list[dict]) -> None:
    """Geometric means of the ratios."""
    def mean(first: str, second: str, rows=results) -> str:
        ratios = [row[first] / row[second] for row in rows if second in row and first in row]
        return f"{np.exp(np.mean(np.log(ratios))):.2f}" if ratios else "-"

    large = [row for row in results if row["shape"][0] >= 10_000]
    print("door / solve:", mean("door", "solve"))
    print("plain / door:", mean("plain", "door"), " n >= 10,000:", mean("plain", "door", large))
    print("plain / first:", mean("plain", "first"), " n >= 10,000:", mean("plain", "first", large))
    print("plain / named:", mean("plain", "named"))


if __name__ == "__main__":
    main()
