"""An SVM written in a Python loop and the same with matrices: what the spelling costs.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_loops.py [--terms 2000 20000] [--plain 2000]

`pos` is ``sum(cp.pos(1 - y[i] * (X[i] @ w + b)) for i in ...)``, `slack` has a constraint a sample.
CPU seconds of writing the problem, of ``prob.solve(method="screen")``, and (up to ``--plain``
terms) of the plain solve by Clarabel; the last column is the difference of the two values.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from time import process_time

import cvxpy as cp
import numpy as np

import cvxscreen

COORDINATES = 20


def written(spelling: str, loop: bool, X: np.ndarray, y: np.ndarray) -> cp.Problem:
    """The problem in one of its spellings."""
    n, d = X.shape
    w, b, xi = cp.Variable(d), cp.Variable(), cp.Variable(n)
    ridge = 0.5 * cp.sum_squares(w)
    if spelling == "pos":
        margins = (y[i] * (X[i] @ w + b) for i in range(n))
        loss = sum(cp.pos(1 - m) for m in margins) if loop else cp.sum(
            cp.pos(1 - cp.multiply(y, X @ w + b)))
        return cp.Problem(cp.Minimize(ridge + loss))
    rows = [y[i] * (X[i] @ w + b) >= 1 - xi[i] for i in range(n)] if loop else [
        cp.multiply(y, X @ w + b) >= 1 - xi]
    return cp.Problem(cp.Minimize(ridge + cp.sum(xi)), [*rows, xi >= 0])


def timed(call):
    """CPU seconds of `call` and what it returned."""
    began = process_time()
    found = call()
    return process_time() - began, found


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--plain", type=int, default=2000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # CVXPY advises against loops
    X, y = cvxscreen.datasets.two_gaussians(3000, COORDINATES, seed=1)
    written("slack", False, X, y).solve(method="screen", always=True)  # compiles
    print("terms    spelling  loop   write s  screen s   plain s   ratio  difference")
    for terms in args.terms:
        X, y = cvxscreen.datasets.two_gaussians(terms, COORDINATES, seed=0)
        for spelling in ("pos", "slack"):
            for loop in (False, True):
                write, prob = timed(partial(written, spelling, loop, X, y))
                fast, value = timed(partial(prob.solve, method="screen", solver="CLARABEL"))
                line = f"{terms:7,}  {spelling:8}  {loop!s:5} {write:8.2f} {fast:9.2f}"
                if terms <= args.plain:
                    slow, truth = timed(partial(prob.solve, solver="CLARABEL"))
                    line += f" {slow:9.2f} {slow / fast:7.1f}  {abs(value - truth) / truth:.1e}"
                print(line, flush=True)


if __name__ == "__main__":
    main()
