"""One cold solve of a large dense problem in memory: with and without a sample to begin at.

    OMP_NUM_THREADS=1 python examples/benchmarks/cold_start.py [--rows 1000000] [--quick]

Two overlapping Gaussian classes, 50 features, relative gap 1e-6 certified on all data. A "pass" is
the time of one ``X @ w``. "Screening off" is the same Newton method on all terms; "from 0" begins
with a rough solve of all terms and then guesses; "sample" is what `cvxscreen.solve` does.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.certificates.certificate import certify
from cvxscreen.solvers import prediction as guess
from cvxscreen.solvers.newton import Newton


def timed(call) -> tuple[float, object]:
    """Least CPU seconds of two runs, and the result."""
    best = float("inf")
    for _ in range(2):
        began = process_time()
        found = call()
        best = min(best, process_time() - began)
    return best, found


def without_screening(problem) -> float:
    """Newton on all terms; the certified gap."""
    at = problem.primal(np.zeros(problem.d))
    for share in (1e-6, 1e-7):
        found = Newton()(problem, None, 0.5 * share * at)
        proof = certify(problem, found.x, found.theta, tol=1e-6)
        if proof.ok:
            break
    return proof.relative_gap


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="100,000 rows")
    args = parser.parse_args()
    n = 100_000 if args.quick else args.rows
    small = cvxscreen.datasets.two_gaussians(5000, 5, seed=1)
    cvxscreen.solve(cvxscreen.svm(*small))  # compiles
    X, y = cvxscreen.datasets.two_gaussians(n, 50, seed=0)
    one, _ = timed(lambda: X @ np.ones(50))
    print(f"{n:,} x 50; one X @ w takes {1e3 * one:.1f} ms")
    rows, pilot = [], guess.PILOT
    for loss in ("hinge", "squared_hinge"):
        for intercept in (False, True):
            for C in (1e-5, 1e-2, 1.0):
                problem = cvxscreen.svm(X, y, C=C, loss=loss, intercept=intercept)
                plain, gap = timed(lambda p=problem: without_screening(p))
                found = {}
                for name, least in (("from 0", 10**12), ("sample", pilot)):
                    guess.PILOT = least
                    found[name] = timed(lambda p=problem: cvxscreen.solve(p))
                worst = max(gap, *(s.certificate.relative_gap for _, s in found.values()))
                first, last = found["from 0"][0], found["sample"][0]
                rows.append((
                    loss, "yes" if intercept else "no", C, round(plain, 2), round(first, 2),
                    round(last, 2), round(plain / last, 1), round(first / last, 1),
                    round(last / one), worst,
                ))
                print(*rows[-1], flush=True)
    header = ("loss", "intercept", "C", "off s", "from 0 s", "sample s", "off/sample",
              "from 0/sample", "passes", "worst gap")
    print(table(header, rows))


if __name__ == "__main__":
    main()
