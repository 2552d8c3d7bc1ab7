"""One value of C by `solve` and by `path`: the same engine, so the same time.

    OMP_NUM_THREADS=1 python examples/benchmarks/one_value.py DATA [--out one_value.json]

DATA is a folder with sets as NAME.npz (dense ``X``, or CSR as ``X_data``, ``X_indices``,
``X_indptr``, ``X_shape``; and ``y``); sets that it lacks are left out. Features standardised, hinge
to Huber loss, with and without an intercept, C = 0.01, 1 and 100, relative gap 1e-6. CPU seconds of
this process, the least of `repeat` runs taken in turns, after a first one; `cvxscreen warmup`
before, or the first sets are solved without compiled loops.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time

import numpy as np
from report import with_origin
from stored_sets import dense, stored

import cvxscreen
from cvxscreen._support.tables import table

CLASSES = ("ijcnn1", "magic04", "phishing", "a9a")
VALUES = ("cadata", "cpusmall", "winequality")
LOSSES = {True: ("hinge", "smoothed_hinge", "squared_hinge"),
          False: ("absolute", "quantile", "epsilon", "huber")}
GRID = (0.01, 1.0, 100.0)


def load(folder: Path, name: str):
    """Standardised features and targets of a set; None where it is absent."""
    found = stored(folder, name)
    if found is None:
        return None
    X, y = dense(found[0]), found[1].astype(float)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return X, y if name in CLASSES else (y - y.mean()) / y.std()


def compared(problem, repeat: int) -> dict[str, float]:
    """Least CPU seconds of both, and their relative gaps."""
    times: dict[str, list[float]] = {"solve": [], "path": []}
    gaps = {}
    for turn in range(repeat + 1):
        for name in times:
            began = process_time()
            if name == "solve":
                gaps[name] = cvxscreen.solve(problem).certificate.relative_gap
            else:
                point = cvxscreen.path(problem, values=[problem.C]).points[0]
                gaps[name] = point.relative_gap
            if turn:
                times[name].append(process_time() - began)
    return {**{name: min(found) for name, found in times.items()},
            **{f"{name}_gap": gap for name, gap in gaps.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=[*CLASSES, *VALUES])
    given = parser.parse_args()
    results = []
    for name in given.sets:
        found = load(given.data, name)
        if found is None:
            print(f"{name}: absent")
            continue
        X, y = found
        for loss in LOSSES[name in CLASSES]:
            for intercept in (False, True):
                for C in GRID:
                    make = cvxscreen.svm if name in CLASSES else cvxscreen.regression
                    problem = make(X, y, C=C, loss=loss, intercept=intercept)
                    row = {"set": name, "loss": loss, "intercept": intercept, "C": C}
                    results.append(row | compared(problem, given.repeat))
    rows = [(r["set"], r["loss"], r["intercept"], r["C"], round(1e3 * r["solve"], 2),
             round(1e3 * r["path"], 2), round(r["path"] / r["solve"], 2)) for r in results]
    print(table(("set", "loss", "intercept", "C", "solve ms", "path ms", "ratio"), rows))
    ratios = np.array([r["path"] / r["solve"] for r in results])
    print(f"ratio: median {np.median(ratios):.2f}, {ratios.min():.2f} to {ratios.max():.2f}")
    if given.out is not None:
        given.out.write_text(json.dumps(with_origin(results), indent=1))


if __name__ == "__main__":
    main()
