"""Screening rates and path times of Ogawa et al. (2014) next to ours.

    OMP_NUM_THREADS=1 python examples/benchmarks/ogawa_tables.py DATA_FOLDER [--plot rates.png]

*Safe Sample Screening for Support Vector Machines*: hinge loss without intercept, linear and RBF
kernels with gamma 0.1/d, 1/d and 10/d, on breast cancer (D01; scikit-learn's), dna (D02; the first
2,000 rows), digit1 (D03), satimage (D04; the first 4,435 rows) and mushrooms (D06), standardised
but for the 0/1 features of dna and mushrooms. The paper does not say how it scales features or
makes two classes of several: here the largest class is set against the rest.

Figure 4: the share of the non-support vectors that BT1, BT2 and IT prove at C = 10 from a reference
at smaller C (a relative gap of 1e-9). The paper has pictures only, no numbers: IT is above BT1 and
BT2 everywhere, and rates grow with Cref/C and with gamma.

Table IV, RBF rows: a path up to C = 10^4. The paper's grid comes from an approximation path that
starts where the first term leaves its bound; ours is geometric from 0.01. Its seconds are those of
LIBSVM without and with shrinking, and with IT besides; ours are CPU seconds of the built-in solver
warm-started along the path: without screening ("full"), with safe screening by IT, and with
`cvxscreen.path` as users call it (certified). Compare ratios, not seconds. Everything is at a
certified relative gap of 1e-4; kernel values are shared along a path (cold at its start).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.bounds import named
from cvxscreen.certificates.certificate import certify
from cvxscreen.screening.verdict import judge
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.smo import Smo

FACTORS = (0.1, 1.0, 10.0)
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
RATE_HEADER = ("set", "kernel", "test", *map(str, RATIOS))
TESTS = ("bt1", "bt2", "it")
# Seconds of the paper for gamma = 0.1/d, 1/d, 10/d: Full, Shrink, IT, Shrink+IT.
PAPER = {
    "breast cancer": ((43.8, 4.51, 8.48, 2.87), (2.73, 0.68, 0.464, 0.294),
                      (0.73, 0.4, 0.266, 0.213)),
    "dna": ((298, 106, 242, 80.7), (13.9, 5.27, 7.03, 2.62), (4.98, 2.68, 2.71, 1.82)),
    "digit1": ((938, 261, 741, 203), (94.3, 27.3, 60.7, 16.8), (6.93, 2.71, 2.45, 0.794)),
    "satimage": ((1365, 565, 1178, 488), (635, 218, 277, 88.7), (31, 20.4, 3.87, 1.68)),
    "mushrooms": ((1938, 618, 1395, 423), (239, 103, 134, 50.6), (94.3, 56.3, 66.2, 40.9)),
}
FILES = {"dna": "dna", "digit1": "ssl_digit1", "satimage": "satimage", "mushrooms": "mushrooms"}
ROWS = {"dna": 2000, "satimage": 4435}


def load(folder: Path, name: str):
    """Features and labels of one set."""
    if name == "breast cancer":
        X, y = cvxscreen.datasets.breast_cancer()
        return scaled(X), y
    with np.load(folder / f"{FILES[name]}.npz") as z:
        y = z["y"]
        if "X" in z:
            X = z["X"].astype(float)
        else:
            X = sp.csr_matrix((z["X_data"].astype(float), z["X_indices"], z["X_indptr"]),
                              shape=z["X_shape"]).toarray()
    X, y = X[: ROWS.get(name)], y[: ROWS.get(name)]
    classes, counts = np.unique(y, return_counts=True)
    y = np.where(y == (classes[np.argmax(counts)] if len(classes) > 2 else classes[1]), 1.0, -1.0)
    return (X if name in ("dna", "mushrooms") else scaled(X)), y


def scaled(X):
    """Features with mean 0 and deviation 1."""
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def problem_of(X, y, factor: float, C: float):
    """The problem with an RBF kernel, or the linear one for a factor of 0."""
    if not factor:
        return cvxscreen.svm(X, y, C=C)
    return cvxscreen.svm(X, y, C=C, kernel="rbf", kernel_params={"gamma": factor / X.shape[1]})


def rates(X, y, factor: float, tol: float) -> dict[str, list[float]]:
    """Figure 4: proven share of the terms that are off their kink at C = 10."""
    there = problem_of(X, y, factor, 10.0)
    optimum = cvxscreen.solve(there, tol=tol)
    lo = there.losses.lo
    apart = int(((optimum.theta <= lo) | (optimum.theta >= 0.0)).sum())
    found: dict[str, list[float]] = {name: [] for name in TESTS}
    for ratio in RATIOS:
        reference = cvxscreen.solve(there.with_(C=10.0 * ratio), tol=tol).point()
        for name in TESTS:
            verdict = judge(there, named(name)(there, reference))
            found[name].append(float((verdict.codes >= 0).sum()) / max(apart, 1))
    return found


def full_path(problem, grid, tol: float) -> float:
    """The built-in solver on all terms, warm-started; returns the largest certified gap."""
    start, worst = None, 0.0
    for value in grid:
        here = problem.with_(C=float(value))
        scale = here.primal(np.zeros(here.d)) if start is None else here.primal(start.x)
        for _ in range(3):
            found = Smo()(here, start, 0.5 * tol * scale)
            proof = certify(here, found.x, found.theta, tol=tol)
            if proof.ok:
                break
            start, scale = Start(found.x, found.theta), abs(proof.primal)
        worst = max(worst, proof.relative_gap)
        following = float(grid[1] / grid[0])
        start = Start(found.x, found.theta * following)
    return worst


def safe_path(problem, grid, tol: float) -> tuple[float, float]:
    """Safe screening by IT before each solve: the largest gap and the mean proven share."""
    start, worst, proven = None, 0.0, []
    for value in grid:
        here = problem.with_(C=float(value))
        found = solve_screened(here, mode="safe", tol=tol, start=start, bounds=(named("it"),))
        worst = max(worst, found.certificate.relative_gap)
        proven.append(sum(found.before.get(k, 0.0) for k in ("zero", "linear")))
        start = Start(found.x, found.theta * float(grid[1] / grid[0]))
    return worst, float(np.mean(proven[1:]))


def timed(call):
    """CPU seconds of `call` and what it returned."""
    began = process_time()
    found = call()
    return process_time() - began, found


def row(name: str, X, y, index: int, grid, tol: float) -> list[object]:
    """One row of Table IV."""
    factor = FACTORS[index]
    full, shrink, test, both = PAPER[name][index]
    worst = []
    seconds = []
    for solve in (full_path, safe_path):
        taken, found = timed(lambda s=solve: s(problem_of(X, y, factor, grid[0]), grid, tol))
        seconds.append(taken)
        worst.append(found[0] if isinstance(found, tuple) else found)
    share = found[1]
    taken, path = timed(
        lambda: cvxscreen.path(problem_of(X, y, factor, grid[0]), values=grid, tol=tol)
    )
    worst.append(max(p.relative_gap for p in path.points))
    return [
        name, len(y), factor, round(seconds[0], 2), round(seconds[1], 2), round(taken, 2),
        round(seconds[0] / seconds[1], 2), round(seconds[0] / taken, 2), round(100 * share, 1),
        max(worst), full, shrink, test, both, round(full / test, 2), round(shrink / both, 2),
    ]


def figure(found, file: Path) -> None:
    """Figure 4: one panel a set and kernel, told apart by marker and line, also in grey."""
    from matplotlib.figure import Figure

    names = list(found)
    fig = Figure(figsize=(11.0, 2.4 * len(names) + 0.9), layout="constrained")
    panels = fig.subplots(len(names), 4, sharex=True, sharey=True, squeeze=False)
    styles = {
        "bt1": ("#b22222", "o", "-"), "bt2": ("#2e8b57", "s", ":"), "it": ("#1f4e9c", "^", "--"),
    }
    for line, name in zip(panels, names, strict=True):
        for axes, (factor, curves) in zip(line, found[name].items(), strict=True):
            for test, values in curves.items():
                color, marker, dash = styles[test]
                axes.plot(RATIOS, [100 * v for v in values], dash, color=color, marker=marker,
                          markersize=4, label=test.upper())
            axes.set_title(f"{name}, " + (f"RBF, gamma = {factor:g}/d" if factor else "linear"),
                           fontsize=10)
            axes.set_ylim(-3, 103)
            axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("C of the reference / C")
    for line in panels:
        line[0].set_ylabel("% of non-SVs proven")
    fig.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    fig.savefig(file, dpi=110)


def main() -> None:
    """Parse the folder, print the tables, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=25, help="values of C from 0.01 to 10^4")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--sets", nargs="*", default=list(PAPER))
    parser.add_argument("--plot", type=Path, help="file for the curves of Figure 4")
    parser.add_argument("--skip-paths", action="store_true", help="Figure 4 only")
    parser.add_argument("--quick", action="store_true", help="breast cancer, nine values of C")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.points = ["breast cancer"], 9
    data = {name: load(args.folder, name) for name in args.sets}
    cvxscreen.solve(problem_of(data[args.sets[0]][0][:80], data[args.sets[0]][1][:80], 1.0, 1.0))

    found: dict[str, dict[float, dict[str, list[float]]]] = {}
    lines = []
    for name in [name for name in args.sets if name != "mushrooms"]:  # Figure 4 has four sets
        found[name] = {}
        for factor in (0.0, *FACTORS):
            curves = found[name][factor] = rates(*data[name], factor, 1e-9 if factor else 1e-8)
            kernel = f"RBF {factor:g}/d" if factor else "linear"
            for test in TESTS:
                shares = (round(100 * v, 1) for v in curves[test])
                lines.append((name, kernel, test.upper(), *shares))
        print(table(RATE_HEADER, lines[-12:]), flush=True)
    if lines:
        title = "Figure 4: % of the non-support vectors proven at C = 10, by Cref/C"
        print(table(RATE_HEADER, lines, title=title))
    if args.plot:
        figure(found, args.plot)
    if args.skip_paths:
        return
    grid = np.geomspace(1e-2, 1e4, args.points)
    rows = []
    header = ("set", "n", "gamma d", "full s", "safe IT s", "path s", "full/IT", "full/path",
              "IT proven %", "worst gap", "paper Full", "Shrink", "IT", "Shrink+IT", "Full/IT",
              "Shrink/both")
    for name in args.sets:
        for index in range(3):
            rows.append(row(name, *data[name], index, grid, args.tol))
            print(table(header, rows[-1:]), flush=True)
    print(table(header, rows, title=f"Table IV, RBF: {args.points} values of C in [0.01, 10^4]"))


if __name__ == "__main__":
    main()
