"""The first call of a fresh process on a fresh machine, and the later ones: what waiting costs.

    OMP_NUM_THREADS=1 python examples/benchmarks/first_calls.py [--store] [--only solve,path]

Every line is a row of processes over one empty folder of compiled code (`NUMBA_CACHE_DIR`), one
after the other: "first" is the first call of the first, where nothing has ever been compiled.
Compiling is put off until it pays, maybe to a later process: "dearest" is the dearest call of all
of them (the first twenty of each, or of three seconds; eight processes). "process" is the first
call of the last process, which finds everything compiled, and "again" the cheapest of its later
ones. CPU seconds, what is imported for the call included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
from report import store

from cvxscreen._support.tables import table

PROCESSES = 8
"""On one folder: what earlier ones have waited for is compiled by the sixth at the latest."""

SIZES = (2_000, 50_000)
"""Terms: where an answer takes milliseconds in numpy, and where compiled loops pay at once."""


def calls() -> dict[str, Callable[[Any, Any], Callable[[], Any]]]:
    """What users call first, each as a function of the data; imports are the call's own."""
    import cvxscreen as cs

    def cvxpy_hinge(X: Any, y: Any) -> Callable[[], Any]:
        import cvxpy as cp

        def call() -> None:
            w, b = cp.Variable(X.shape[1]), cp.Variable()
            loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
            cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss)).solve(method="screen")
        return call

    def cross_validation(X: Any, y: Any) -> Callable[[], Any]:
        from cvxscreen.estimators import ScreenedSVCCV

        return lambda: ScreenedSVCCV(np.geomspace(1e-2, 10.0, 20), cv=5).fit(X, y)

    def huber_cross_validation(X: Any, y: Any) -> Callable[[], Any]:
        from cvxscreen.estimators import ScreenedRegressorCV

        return lambda: ScreenedRegressorCV(10, cv=5, loss="huber").fit(X[:, 1:], X[:, 0])

    def left_out(X: Any, y: Any) -> Callable[[], Any]:
        p = cs.svm(X, y, C=0.01)
        return lambda: cs.leave_one_out(cs.solve(p))

    def replicates(X: Any, y: Any) -> Callable[[], Any]:
        p = cs.regression(X[:, 1:], X[:, 0], loss="quantile", tau=0.3)
        return lambda: cs.bootstrap(p, 20, seed=0)

    def sparse_rows(X: Any, y: Any) -> Callable[[], Any]:
        from scipy import sparse

        A = sparse.random(len(X), 500, 0.02, format="csr", random_state=0)
        return lambda: cs.solve(cs.svm(A, y))

    def both_sides(X: Any, y: Any) -> Callable[[], Any]:
        p = cs.sparse_svm(X, y, 1.0)
        return lambda: cs.solve(p.with_(lam=0.1 * cs.lambda_max(p)))

    def triplets(X: Any, y: Any) -> Callable[[], Any]:
        X, y = X[: len(X) // 8], y[: len(X) // 8]
        p = cs.rtlm(X, cs.triplets(X, y, k=5), 1.0)
        return lambda: cs.solve(p.with_(lam=0.01 * cs.lam_max(p)))

    def multitask(X: Any, y: Any) -> Callable[[], Any]:
        tasks = [(X[i:2000:4], y[i:2000:4]) for i in range(4)]
        return lambda: cs.solve(cs.raso(tasks, h=2, alpha=0.1, beta=0.1), tol=1e-4)

    return {
        "solve": lambda X, y: lambda: cs.solve(cs.svm(X, y, intercept=True)),
        "quantile": lambda X, y: lambda: cs.solve(
            cs.regression(X[:, 1:], X[:, 0], loss="quantile", tau=0.3)
        ),
        "path": lambda X, y: lambda: cs.path(
            cs.svm(X, y), over="C", values=np.geomspace(1e-2, 10.0, 50)
        ),
        "cross-validation": cross_validation,
        "cross-validation of Huber": huber_cross_validation,
        "leave-one-out": left_out,
        "bootstrap": replicates,
        "quantile levels": lambda X, y: lambda: cs.path(
            cs.regression(X[:, 1:], X[:, 0], loss="quantile", tau=0.5),
            over="tau", values=np.linspace(0.1, 0.9, 9),
        ),
        "CVXPY hinge": cvxpy_hinge,
        "sparse rows": sparse_rows,
        "sparse_svm": both_sides,
        "rtlm": triplets,
        "rbf kernel": lambda X, y: lambda: cs.solve(
            cs.svm(X[:1000], y[:1000], kernel="rbf"), tol=1e-4
        ),
        "raso": multitask,
    }


def one(name: str, n: int) -> None:
    """In a process of its own: the seconds of the first call, the dearest and the cheapest."""
    import cvxscreen

    X, y = cvxscreen.datasets.two_gaussians(n, 10, seed=0)
    call = calls()[name](X, y)
    spent: list[float] = []
    while len(spent) < 2 or (len(spent) < 20 and sum(spent) < 3.0):
        began = process_time()
        call()
        spent.append(process_time() - began)
    print(json.dumps([spent[0], max(spent), min(spent)]))


def fresh(name: str, n: int, compiled: str) -> list[float]:
    """`one` in a new process whose compiled code lies in the folder `compiled`."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": compiled, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one", name, "--rows", str(n)]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(number) for number in json.loads(found.stdout.splitlines()[-1])]


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--store", action="store_true", help="write results/first_calls.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.rows)
        return
    rows = []
    for name in args.only.split(",") if args.only else calls():
        for n in SIZES:
            with tempfile.TemporaryDirectory() as compiled:
                spent = [fresh(name, n, compiled) for _ in range(PROCESSES)]
            (first, *_), (process, _, again) = spent[0], spent[-1]
            dearest = max(most for _, most, _ in spent)
            rows.append({
                "call": name, "n": n, "first": round(first, 2), "dearest": round(dearest, 2),
                "process": round(process, 2), "again": round(again, 4),
            })
            print(rows[-1], flush=True)
    print(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
    if args.store:
        note = "CPU seconds: first and dearest on a fresh machine, first of a process, again"
        print("stored in", store("first_calls", rows, note))


if __name__ == "__main__":
    main()
