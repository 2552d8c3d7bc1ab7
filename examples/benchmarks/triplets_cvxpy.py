"""Metric learning through CVXPY: plain, screened, and the reduced problem alone; SCS and Clarabel.

    python examples/benchmarks/triplets_cvxpy.py [--data segment.npz] [--large]
    python examples/benchmarks/triplets_cvxpy.py --written [--terms 20000] [--limit 1500] [--loop]

The first line compares two programs made by ``to_cvxpy``: the full one, and (2.9) of Yoshida et al.
(2019), from which what the midpoint sphere of a rough solution (relative gap 1e-4 of our own
solver, counted) proves is taken away. CPU seconds of the whole ``prob.solve``, CVXPY's compilation
included; `dM` is the largest difference from our metric at a gap of 1e-10, relative to its largest
entry. `warm s` is ``cvxscreen.solve(p, solver=..., start=last)`` with the solution at lambda / 0.9,
the grid before (relative gap 1e-6, not counted), certified on all terms; the solver is asked for as
much in every column (`OPTIONS`).

The second line is for the problem as a user writes it, solved by ``prob.solve(solver=...)`` and by
``prob.solve(method="screen", solver=...)``, both at the solver's default tolerances as far as
``method="screen"`` leaves them (it asks SCS for 1e-9). Each plain solve is a process of its own
that is ended after `--limit` CPU seconds: the ratio then is a lower bound and says so. ``--loop``
screens the spelling with one ``trace(H_t @ M)`` a term as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import cvxpy as cp
import numpy as np
from sklearn.datasets import load_wine

import cvxscreen
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.models.files import read_table

OPTIONS = {
    "CLARABEL": {"tol_gap_rel": 1e-9, "tol_gap_abs": 1e-9, "tol_feas": 1e-9},
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000},
}


def standard(X: np.ndarray) -> np.ndarray:
    X = np.asarray(X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def solved(prob, solver: str) -> float:
    began = time.process_time()
    prob.solve(solver=solver, **OPTIONS[solver])
    return time.process_time() - began


def compare(name: str, X: np.ndarray, y: np.ndarray, k: int, share: float, solvers) -> None:
    T = cvxscreen.triplets(X, y, k=k)
    p = cvxscreen.rtlm(X, T, 1.0)
    p = p.with_(lam=share * cvxscreen.lambda_max(p))
    cvxscreen.solve(p, tol=1e-3)  # compiles
    exact = cvxscreen.solve(p, tol=1e-10)
    size = np.abs(exact.x).max()
    for solver in solvers:
        full = p.to_cvxpy()
        slow = solved(full, solver)
        began = time.process_time()
        reduced = cvxscreen.solve(p, tol=1e-4).screening.reduce()
        small = reduced.to_cvxpy()
        fast = solved(small, solver)
        total = time.process_time() - began
        last = cvxscreen.solve(p.with_(lam=p.lam / 0.9), tol=1e-6)
        inner = CvxpySolver(solver, OPTIONS[solver])
        began = time.process_time()
        found = cvxscreen.solve(p, solver=inner, start=last)
        warm = time.process_time() - began
        metrics = [
            next(v for v in prob.variables() if v.shape == (X.shape[1],) * 2).value
            for prob in (full, small)
        ]
        away = [np.abs(m.ravel() - exact.x).max() / size for m in (*metrics, found.x)]
        print(
            f"{name:10} {p.n:7,} {reduced.n:6,} {solver:9} {slow:8.2f} {fast:8.2f} {total:8.2f}"
            f" {slow / total:6.1f} {warm:7.2f} {slow / warm:6.1f}"
            f"  {abs(full.value - exact.value) / exact.value:8.1e}"
            f" {abs(small.value - exact.value) / exact.value:8.1e}"
            f"  {' '.join(f'{off:8.1e}' for off in away)}",
            flush=True,
        )


def synthetic(terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Four classes in 30 dimensions, enough points for so many triplets at k = 4."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, terms // 16)
    X = rng.standard_normal((len(y), 30)) + 2.0 * rng.standard_normal((4, 30))[y]
    return standard(X), y


def written(terms: int, loop: bool) -> cp.Problem:
    """The problem as a user writes it: ``lam/2 |M|^2 + sum of hinges of 1 - <H_t, M>``."""
    X, y = synthetic(terms)
    T = cvxscreen.triplets(X, y, k=4)
    lam = 0.1 * cvxscreen.lambda_max(cvxscreen.rtlm(X, T, 1.0))
    anchor, same, other = T.index.T
    far, near = X[anchor] - X[other], X[anchor] - X[same]
    H = np.einsum("ta,tb->tab", far, far) - np.einsum("ta,tb->tab", near, near)
    M = cp.Variable((30, 30), PSD=True)
    if loop:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY advises against it, rightly
            loss = sum(cp.pos(1 - cp.trace(H[t] @ M)) for t in range(len(H)))
            return cp.Problem(cp.Minimize(0.5 * lam * cp.sum_squares(M) + loss))
    loss = cp.sum(cp.pos(1 - H.reshape(len(H), -1) @ cp.vec(M, order="F")))
    return cp.Problem(cp.Minimize(0.5 * lam * cp.sum_squares(M) + loss))


def plainly(terms: int, solver: str, limit: int) -> tuple[float, float | None]:
    """CPU seconds of the plain solve and its value; no value where it had to be ended."""
    call = [sys.executable, __file__, "--plain", solver, "--terms", str(terms)]
    done = subprocess.run(
        call, check=False, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
    )
    if done.returncode:
        return float(limit), None
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["value"]


def screened(terms: int, solver: str, loop: bool) -> tuple[float, cp.Problem]:
    prob = written(terms, loop)
    began = time.process_time()
    prob.solve(method="screen", solver=solver)
    return time.process_time() - began, prob


def user(terms: int, limit: int, loop: bool) -> None:
    screened(2000, "CLARABEL", False)  # compiles
    print("solver    spelling   plain s  screen s    ratio    kept  gap      value, against plain")
    for solver in ("CLARABEL", "SCS"):
        slow, truth = plainly(terms, solver, limit)
        for spelling in ("matrix", "loop")[: 1 + loop]:
            fast, prob = screened(terms, solver, spelling == "loop")
            report = prob.solver_stats.extra_stats["cvxscreen"]
            sign, off = (">=", "not known") if truth is None else (
                "  ", f"{abs(prob.value - truth) / truth:.1e}")
            print(
                f"{solver:9} {spelling:8} {sign}{slow:8.1f} {fast:9.2f} {sign}{slow / fast:7.1f}"
                f" {report.kept:7,}  {report.relative_gap:.0e}  {prob.value:.6f}, {off}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="a data file with about 19 features (segment)")
    parser.add_argument("--large", action="store_true", help="20,000 triplets in 30 dimensions")
    parser.add_argument("--written", action="store_true", help="the problem as a user writes it")
    parser.add_argument("--terms", type=int, default=20_000, help="of --written, about")
    parser.add_argument("--limit", type=int, default=1500, help="CPU seconds of a plain solve")
    parser.add_argument("--loop", action="store_true", help="a Python loop of traces as well")
    parser.add_argument("--plain", help=argparse.SUPPRESS)  # what `plainly` calls
    args = parser.parse_args()
    if args.plain:
        prob = written(args.terms, False)
        began = time.process_time()
        prob.solve(solver=args.plain)
        print(json.dumps({"seconds": time.process_time() - began, "value": float(prob.value)}))
        return
    if args.written:
        user(args.terms, args.limit, args.loop)
        return
    print("set              T   kept solver    full s  small s  total s  ratio  warm s  ratio"
          "  objective full, small   dM full, small, warm")
    X, y = load_wine(return_X_y=True)
    compare("wine", standard(X), y, 5, 1e-2, ("CLARABEL", "SCS"))
    if args.data:
        data = read_table(args.data)
        X, y = data.X, data.y
        some = np.random.default_rng(0).choice(len(y), 555, replace=False)
        compare("segment", standard(X)[some], y[some], 3, 1e-2, ("CLARABEL", "SCS"))
    if args.large:
        X, y = synthetic(20_000)
        for share in (1e-1, 5e-2):
            compare("synthetic", X, y, 4, share, ("SCS",))


if __name__ == "__main__":
    main()
