"""Doubly sparse models: how much is screened, how long a path takes, and against skglm.

    python examples/benchmarks/sparse_models.py DATA [--set NAME ...] [--part rates|modes|peers]
        [--solver auto whole sdca spdc apg] [--way none features samples both certified]
        [--loss huber] [--budget SECONDS] [--at K ...] [--pictures FOLDER]

DATA is a folder of ``NAME.npz`` files (``X`` and ``y``, or a CSR matrix in parts). Sets: farmads,
pcmac_7511, news20_multi (one class against the rest), madelon, colon, and data of the shape of
real-sim: ``synthetic``, ``synthetic_clean`` and ``topics`` (see ``sparse_sets.py``; only the first
of them runs unasked). Times are CPU seconds of one process. The solver ``whole`` is the built-in
one without its working set: every step looks at all features. The ways are taken in turns at every
lambda, so that a busy machine is as busy for each; a part ends early when its first way has used
the budget. Pictures are the paper's Figs. 2-4 in form, with the first solver.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sparse_pictures import bars, costs, maps
from sparse_sets import FILES, MADE, load

import cvxscreen as cs
from cvxscreen.bounds import dual_ball, joint, midpoint_ball
from cvxscreen.solvers.loop import SubproblemSolver, solve_screened
from cvxscreen.solvers.prox_newton import ProxNewton
from cvxscreen.solvers.registry import named_solver
from cvxscreen.solvers.solution import warm_start

SETS = (*FILES, *MADE)
WAYS = {
    "none": (), "features": (dual_ball,), "samples": (midpoint_ball,), "both": (joint,),
}


def rates(name: str, X: Any, y: np.ndarray) -> None:
    """What is screened at relative gaps 1e-1 ... 1e-6 (features %, samples %)."""
    base = cs.sparse_svm(X, y, 1.0)
    top = cs.lambda_max(base)
    print(f"{name}: features / samples screened in %, by gap and bound")
    for share in (0.5, 0.1, 0.02):
        problem = base.with_(lam=share * top)
        best = cs.solve(problem, tol=1e-9)
        zero = cs.solve(problem.with_(lam=1.3 * problem.lam), tol=1e-6)
        far = cs.reference_point(problem, zero.x, zero.theta)
        for gap in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6):
            low, high = 0.0, 1.0
            for _ in range(25):  # between a neighbour and the optimum until the gap fits
                mix = 0.5 * (low + high)
                x = best.x + mix * (far.x - best.x)
                point = cs.reference_point(problem, x, best.theta + mix * (far.theta - best.theta))
                low, high = (mix, high) if point.relative_gap < gap else (low, mix)
            cells = []
            for bound in ("midpoint", "dual", "synergy", "joint"):
                said = cs.screen(problem, reference=point, bound=bound)
                flat = (said.zero | said.linear).mean()
                cells.append(f"{bound} {100 * said.dropped.mean():5.1f}/{100 * flat:5.1f}")
            print(f"  lam {share:4.2f} lambda_max  gap {gap:.0e}  " + "   ".join(cells))


def chosen_solver(name: str, problem: cs.Problem) -> SubproblemSolver:
    """The solver called `name`."""
    return ProxNewton(moving=False) if name == "whole" else named_solver(name, problem)


def load_compiled(solver: str = "auto") -> None:
    """Run everything compiled once, on little data."""
    rng = np.random.default_rng(0)
    X = sp.random(300, 400, 0.05, format="csr", random_state=rng)
    y = np.where(X @ rng.standard_normal(400) > 0, 1.0, -1.0)
    small = cs.sparse_svm(X, y, 1.0)
    ways = [(mode, way) for way in WAYS for mode in ("safe", "certified")]
    along(small, cs.lambda_max(small) * np.geomspace(1.0, 1e-3, 5), ways, solver)


def solved(
    base: cs.Problem, lam: float, near: cs.Solution | None, mode: str, way: str, solver: str
) -> tuple[cs.Solution, float]:
    """The answer at `lam` from the one nearby, and the CPU seconds."""
    here = base.with_(lam=lam)
    began = process_time()
    start = None if near is None else warm_start(here, near)
    inner = chosen_solver(solver, here)
    found = solve_screened(here, inner, mode=mode, start=start, bounds=WAYS[way])
    return found, process_time() - began


def steps_of(found: cs.Solution) -> int:
    """Steps or sweeps of all rounds."""
    info = [r.solver_info for r in found.rounds]
    return sum(i.get("epochs", i.get("steps", 0)) for i in info)


def single(
    name: str, base: cs.Problem, grid: np.ndarray, at: list[int], ways: list[tuple[str, str]],
    solver: str,
) -> None:
    """A path too long to be gone through, sampled: some values, each from the one before it."""
    for k in at:
        near = cs.solve(base.with_(lam=float(grid[k - 1])), tol=1e-6) if k else None
        for mode, way in ways:
            found, spent = solved(base, float(grid[k]), near, mode, way, solver)
            gap = found.certificate.relative_gap if found.certificate else np.inf
            print(
                f"{name:12} {solver:6} {mode:9} {way:8} value {k:3} of {len(grid)}, "
                f"{grid[k] / grid[0]:.1e} lambda_max {spent:8.2f} s {steps_of(found):7} steps  "
                f"{found.status}, gap {gap:.0e}", flush=True,
            )


def along(
    base: cs.Problem, grid: np.ndarray, ways: list[tuple[str, str]], solver: str,
    budget: float = np.inf,
) -> np.ndarray:
    """Warm-started paths by (mode, way) in turns: (lambda, way, seconds/sweeps/value/ok)."""
    table, previous = np.zeros((len(grid), len(ways), 4)), [None] * len(ways)
    for k, lam in enumerate(grid):
        for w, (mode, way) in enumerate(ways):
            previous[w], spent = solved(base, float(lam), previous[w], mode, way, solver)
            found = previous[w]
            table[k, w] = spent, steps_of(found), found.value, found.status == "optimal"
        if table[:, 0, 0].sum() > budget:
            return table[: k + 1]
    return table


def modes(
    name: str, X: Any, y: np.ndarray, points: int, last: float, solvers: list[str], budget: float,
    loss: str, asked: list[str], at: list[int],
) -> np.ndarray:
    """The same path by the same solver: none, features, samples, both; and certified."""
    if loss == "huber":
        base = cs.sparse_svr(X, y, 1.0, loss="huber", delta=1.0)
    else:
        base = cs.sparse_svm(X, y, 1.0)
    grid = cs.lambda_max(base) * np.geomspace(1.0, last, points)
    ways = [("certified", "both") if way == "certified" else ("safe", way) for way in asked]
    first = np.zeros(0)
    for solver in solvers:
        load_compiled(solver)
        if at:
            single(name, base, grid, at, ways, solver)
            continue
        table = along(base, grid, ways, solver, budget)
        for w, (mode, way) in enumerate(ways):
            values = table[:, w, 2] / table[:, 0, 2] - 1.0
            print(
                f"{name:12} {solver:6} {mode:9} {way:8} {table[:, w, 0].sum():8.2f} s "
                f"{int(table[:, w, 1].sum()):7} steps  {int(table[:, w, 3].sum())}/{len(table)} of "
                f"{points} certified  values differ by {np.abs(values).max():.0e}",
                flush=True,
            )
        first = first if first.size else table
    return first


def peers(name: str, X: Any, y: np.ndarray, points: int, last: float, budget: float) -> None:
    """Huber loss, elastic net, against skglm's AndersonCD at a gap certified to 1e-6.

    Of skglm only the last, successful tolerance is counted, from 1e-3 lam down by tens; it is warm
    started too, and stopped when it has used `budget` seconds.
    """
    from skglm.datafits import Huber
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import AndersonCD
    from skglm.utils.jit_compilation import compiled_clone

    warnings.simplefilter("ignore")
    base = cs.sparse_svr(X, y, 1.0, loss="huber", delta=1.0)
    grid = cs.lambda_max(base) * np.geomspace(1.0, last, points)
    load_compiled()
    columns = sp.csc_matrix(X) if sp.issparse(X) else np.asfortranarray(X)
    datafit = compiled_clone(Huber(1.0))
    if sp.issparse(X):
        datafit.initialize_sparse(columns.data, columns.indptr, columns.indices, y)
    else:
        datafit.initialize(columns, y)
    w, theirs, done = np.zeros(X.shape[1]), 0.0, 0

    def fit(lam: float, tol: float) -> np.ndarray:
        solver = AndersonCD(tol=tol, fit_intercept=False, max_iter=100, max_epochs=100_000,
                            ws_strategy="subdiff", warm_start=True)
        penalty = compiled_clone(L1_plus_L2(2.0 * lam, 0.5))
        return np.asarray(solver.solve(columns, y, datafit, penalty, w.copy(), X @ w)[0])

    fit(grid[0], 1e-3)
    for lam in grid:
        here, tol = base.with_(lam=float(lam)), 1e-3 * lam
        while True:
            began = process_time()
            found = fit(float(lam), tol)
            spent = process_time() - began
            slopes = here.losses.slope(here.design.forward(found))
            if cs.certify(here, found, slopes, tol=1e-6).ok or tol < 1e-9 * lam:
                break
            tol *= 0.1
        theirs, w, done = theirs + spent, found, done + 1
        if theirs > budget:
            break
    ours = along(base, grid[:done], [("certified", "both")], "auto")[:, 0, 0].sum()
    print(f"{name:12} {done} points: ours {ours:.2f} s, skglm {theirs:.2f} s", flush=True)


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", nargs="*", choices=SETS, default=[*FILES, "synthetic"])
    parser.add_argument("--part", nargs="*", choices=("rates", "modes", "peers"),
                        default=["rates", "modes", "peers"])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--last", type=float, default=1e-4)
    parser.add_argument("--solver", nargs="*", default=["auto"])
    parser.add_argument("--way", nargs="*", choices=(*WAYS, "certified"), default=list(WAYS),
                        help="what is screened in mode safe; certified is the other mode")
    parser.add_argument("--at", nargs="*", type=int, default=[],
                        help="only these of the points, each from the built-in answer before it")
    parser.add_argument("--loss", choices=("smoothed_hinge", "huber"), default="smoothed_hinge")
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--pictures", type=Path, help="a folder for the paper's Figs. 2-4 in form")
    chosen = parser.parse_args()
    totals = {}
    for name in chosen.set:
        X, y = load(chosen.data, name)
        print(f"{name}: {X.shape[0]:,} x {X.shape[1]:,}")
        if "rates" in chosen.part:
            rates(name, X, y)
        if "modes" in chosen.part:
            table = modes(name, X, y, chosen.points, chosen.last, chosen.solver, chosen.budget,
                          chosen.loss, chosen.way, chosen.at)
            if chosen.pictures is not None and not chosen.at:
                grid = np.geomspace(1.0, chosen.last, chosen.points)[: len(table)]
                costs(chosen.pictures, name, chosen.solver[0], grid, chosen.way, table)
                totals[f"{name}\n{len(table)} values"] = dict(
                    zip(chosen.way, table[:, :, 0].sum(axis=0), strict=True))
        if "peers" in chosen.part:
            peers(name, X, y, chosen.points, chosen.last, chosen.budget)
        if chosen.pictures is not None:
            maps(chosen.pictures, name, cs.sparse_svm(X, y, 1.0))
    if totals:
        bars(chosen.pictures, chosen.solver[0], totals)


if __name__ == "__main__":
    main()
