"""Multi-task learning (rASO): algorithms against each other, and real data against separate SVMs.

    OMP_NUM_THREADS=1 python examples/benchmarks/multitask.py DATA [--parts algorithms,landmine]

DATA is a folder with landmine_mtl.npz and school_mtl.npz (arrays X, y, task). CPU seconds; relative
joint gap 1e-6 for every algorithm of ours, eps 1e-6 for SCS, defaults for Clarabel.
Hyperparameters are chosen by cross-validation inside the training part of every split.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.metrics import roc_auc_score

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.multitask.solve import Admm, ApgJoint, Bcd

CASES = {  # tasks, features, samples of a task, h, alpha, eta
    "A": (10, 30, 200, 3, 0.1, 0.1),
    "B": (10, 30, 200, 3, 0.1, 1.0),
    "C": (10, 30, 200, 3, 1.0, 0.01),
    "L1": (50, 100, 500, 5, 0.1, 0.1),
    "L2": (50, 100, 500, 5, 0.1, 1.0),
    "L3": (50, 100, 500, 5, 1.0, 0.01),
}


def related(m, d, n, h, seed=0, noise=0.3, spread=0.3):
    """Tasks whose weights lie near an h-dimensional subspace."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((d, h)))
    tasks = []
    for _ in range(m):
        w = basis @ rng.standard_normal(h) + spread * rng.standard_normal(d) / np.sqrt(d)
        X = rng.standard_normal((n, d))
        score = X @ w + 0.2 + noise * rng.standard_normal(n)
        tasks.append((X, np.where(score > 0, 1.0, -1.0)))
    return tasks


def algorithms(case: str, repeats: int, limit: float) -> list[tuple]:
    """One line for each algorithm on one case; the best of a few where it is short."""
    m, d, n, h, alpha, eta = CASES[case]
    problem = cvxscreen.raso(related(m, d, n, h), h=h, alpha=alpha, beta=alpha * eta)
    ours = {
        "BCD, plain": Bcd(accelerate=False, screening=False),
        "BCD + screening": Bcd(accelerate=False),
        "BCD + Anderson": Bcd(screening=False),
        "BCD + Anderson + screening": Bcd(),
        "ADMM": Admm(),
    }
    if case in "ABC":
        ours["APG on (U, M)"] = ApgJoint()
    lines = []
    for name, algorithm in ours.items():
        best, outcome = np.inf, None
        for _ in range(repeats):
            began = process_time()
            outcome = algorithm(problem, 1e-6)
            best = min(best, process_time() - began)
        last = outcome.rounds[-1]
        kept = np.mean([r.kept for r in outcome.rounds]) / problem.n
        found = (float(f"{last.objective:.9g}"), last.relative_gap, kept)
        lines.append((case, name, best, len(outcome.rounds), *found))
    conic = {"SCS": {"eps_abs": 1e-6, "eps_rel": 1e-6, "time_limit_secs": limit}}
    if case in "ABC":
        conic["CLARABEL"] = {}
    if case in ("A", "B", "C", "L3"):
        for solver, options in conic.items():
            built = problem.to_cvxpy()
            began = process_time()
            built.solve(solver=solver, **options)
            seconds = process_time() - began
            steps = built.solver_stats.num_iters
            value = float(f"{built.value:.9g}")
            name = f"CVXPY, {solver}" + ("" if built.status == "optimal" else ", stopped")
            lines.append((case, name, seconds, steps, value, None, None))
    return [(*line, lines[0][2] / line[2]) for line in lines]


# -- real data ----------------------------------------------------------------------------------


def split(task, y, share, rng, stratified):
    """A mask of training rows: `share` of every task (and class)."""
    train = np.zeros(len(task), dtype=bool)
    for t in np.unique(task):
        for label in np.unique(y[task == t]) if stratified else [None]:
            rows = np.flatnonzero((task == t) & ((y == label) if stratified else True))
            train[rng.permutation(rows)[: max(round(share * len(rows)), 1)]] = True
    return train


def fit(method, X, y, task, loss):
    """Coefficients and intercepts of every task (in the order of the ids)."""
    ids = np.unique(task)
    kind, alpha, eta, h = method
    d = X.shape[1]
    if kind == "pooled":
        problem = cvxscreen.raso([(X, y)], h=d, alpha=alpha, beta=alpha, loss=loss)
        found = cvxscreen.solve(problem, tol=1e-4)
        return np.tile(found.U, len(ids)), np.tile(found.b, len(ids))
    tasks = [(X[task == t], y[task == t]) for t in ids]
    h, eta = (d, 1.0) if kind == "independent" else (h, eta)
    problem = cvxscreen.raso(tasks, h=h, alpha=alpha, beta=alpha * eta, loss=loss)
    found = cvxscreen.solve(problem, tol=1e-4)
    return found.U, found.b


def auc(U, b, X, y, task):
    """Mean area under the curve over the tasks with both classes."""
    scores = []
    for k, t in enumerate(np.unique(task)):
        at = task == t
        if len(np.unique(y[at])) == 2:
            scores.append(roc_auc_score(y[at], X[at] @ U[:, k] + b[k]))
    return float(np.mean(scores))


def explained(U, b, X, y, task):
    """Share of the variance explained, all tasks together."""
    p = np.empty(len(y))
    for k, t in enumerate(np.unique(task)):
        p[task == t] = X[task == t] @ U[:, k] + b[k]
    return 1.0 - float(np.mean((y - p) ** 2) / np.var(y))


def chosen(methods, X, y, task, loss, score, rng, stratified, folds=3):
    """The method with the best mean score on held-out thirds of the training part."""
    parts = np.empty(len(y), dtype=int)
    for t in np.unique(task):
        for label in np.unique(y[task == t]) if stratified else [None]:
            rows = np.flatnonzero((task == t) & ((y == label) if stratified else True))
            parts[rng.permutation(rows)] = np.arange(len(rows)) % folds
    totals = []
    for method in methods:
        values = []
        for fold in range(folds):
            inner = parts != fold
            U, b = fit(method, X[inner], y[inner], task[inner], loss)
            values.append(score(U, b, X[~inner], y[~inner], task[~inner]))
        totals.append(np.mean(values))
    return methods[int(np.argmax(totals))]


def compare(X, y, task, loss, score, grids, share, splits, stratified):
    """Test score of every kind of model on every split."""
    lines = []
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        train = split(task, y, share, rng, stratified)
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        Z = (X - mean) / np.where(scale > 0, scale, 1.0)
        inner = (Z[train], y[train], task[train])
        for kind, methods in grids.items():
            began = process_time()
            method = chosen(methods, *inner, loss, score, rng, stratified)
            U, b = fit(method, *inner, loss)
            value = score(U, b, Z[~train], y[~train], task[~train])
            lines.append((seed, kind, value, str(method[1:]), process_time() - began))
    return lines


def grids(alphas, etas, hs):
    """The settings that cross-validation chooses from; as many alphas for everyone."""
    return {
        "independent": [("independent", a, 1.0, 0) for a in alphas],
        "pooled": [("pooled", a, 1.0, 0) for a in alphas],
        "rASO": [("rASO", a, e, h) for a, e, h in itertools.product(alphas, etas, hs)],
    }


def load(folder: Path, name: str):
    with np.load(folder / f"{name}.npz") as z:
        return z["X"].astype(float), z["y"].astype(float), z["task"]


def show(lines, unit):
    print(table(("split", "model", unit, "chosen (alpha, eta, h)", "CPU s"), lines))
    for kind in ("independent", "pooled", "rASO"):
        values = [line[2] for line in lines if line[1] == kind]
        print(f"{kind:12s} mean {np.mean(values):.4f}, standard error "
              f"{np.std(values) / np.sqrt(len(values)):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with landmine_mtl.npz and school_mtl.npz")
    parser.add_argument("--parts", default="algorithms,landmine,school")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each algorithm of ours")
    parser.add_argument("--limit", type=float, default=600.0, help="wall seconds for SCS")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if "algorithms" in parts:
        Bcd()(cvxscreen.raso(related(2, 3, 600, 1), h=1, alpha=1.0, beta=1.0), 1e-3)  # compiles
        names = ("case", "algorithm", "CPU s", "steps", "objective", "gap", "kept", "plain / it")
        for case in options.cases.split(","):
            print(table(names, algorithms(case, options.repeats, options.limit)), flush=True)
    if "landmine" in parts:
        X, y, task = load(options.data, "landmine_mtl")
        for loss in ("hinge",):
            print(f"\nlandmine, {loss}: half of every task for training")
            settings = grids((1e-4, 1e-3, 1e-2, 1e-1), (0.01, 0.1, 1.0), (1, 2))
            show(compare(X, y, task, loss, auc, settings, 0.5, options.splits, True), "test AUC")
    if "school" in parts:
        X, y, task = load(options.data, "school_mtl")
        print("\nschool, squared loss: three quarters of every task for training")
        y = (y - y.mean()) / y.std()
        settings = grids((1e-2, 1e-1, 1.0), (0.01, 0.1), (1, 2))
        lines = compare(X[:, :-1], y, task, "squared", explained, settings, 0.75,
                        min(options.splits, 3), False)
        show(lines, "explained variance")


if __name__ == "__main__":
    main()
