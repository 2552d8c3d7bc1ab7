"""What screening costs where it decides nothing: safe mode against no screening at all.

    OMP_NUM_THREADS=1 python examples/benchmarks/overhead.py [--repeat 40]

Random labels: hardly any term is decided before the gap is tiny. Each line compares
``solve(..., mode="safe")`` with one call of the same built-in solver on the full problem, both cold
and both followed by the same certificate on all data. The solver without screening is asked for
the accuracy that safe mode reached, so the certified gaps beside each other are alike. "passes" are
the solver's own; a time is the median of runs in turns, who begins changing, and so is their ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time

import numpy as np

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.registry import builtin_solver


def in_turns(runs: list[Callable[[], object]], repeat: int) -> np.ndarray:
    """CPU seconds of several calls made in turns, shape (repeat, calls)."""
    spent = np.zeros((repeat, len(runs)))
    for k in range(repeat):
        for j in range(len(runs))[:: 1 - 2 * (k % 2)]:  # who follows whom changes
            began = process_time()
            runs[j]()
            spent[k, j] = process_time() - began
    return spent


def compare(name: str, problem: Problem, tol: float, repeat: int) -> tuple[object, ...]:
    """One line of the table."""
    solver = builtin_solver(problem)
    safe = cvxscreen.solve(problem, mode="safe", tol=tol)
    target = 0.8 * tol * abs(safe.value)

    def off() -> object:
        found = solver(problem, None, target)
        return found, certify(problem, found.x, found.theta, tol=tol)

    found, proof = off()  # type: ignore[misc]
    repeat = max(repeat, int(2.0 / max(in_turns([off], 3).min(), 1e-4)))
    spent = in_turns([lambda: cvxscreen.solve(problem, mode="safe", tol=tol), off], repeat)
    on_cpu, off_cpu = np.median(spent, axis=0)
    ratio = float(np.median(spent[:, 0] / spent[:, 1]))
    on_passes = sum(r.solver_info.get("passes", 0) * r.kept / problem.n for r in safe.rounds)
    return (
        name, problem.C, round(1e3 * off_cpu, 2), round(1e3 * on_cpu, 2),
        round(ratio, 3), found.info["passes"], round(on_passes, 1), len(safe.rounds),
        proof.relative_gap, safe.certificate.relative_gap,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--tol", type=float, default=1e-6)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    lines = []
    X, y = rng.standard_normal((20_000, 50)), np.where(rng.random(20_000) < 0.5, 1.0, -1.0)
    for C in (0.1, 1.0, 10.0):
        lines.append(compare("dense 20,000 x 50", cvxscreen.svm(X, y, C=C), args.tol, args.repeat))
    both = cvxscreen.svm(X, y, intercept=True)
    lines.append(compare("dense, intercept", both, args.tol, args.repeat))
    X, y = rng.standard_normal((2000, 2)), np.where(rng.random(2000) < 0.5, 1.0, -1.0)
    for C in (0.1, 10.0):
        lines.append(compare("toy 2,000 x 2", cvxscreen.svm(X, y, C=C), args.tol, args.repeat))
    X, _ = cvxscreen.datasets.sparse_text_like(5000, 2000, 0.01)
    y = np.where(rng.random(5000) < 0.5, 1.0, -1.0)
    for C in (0.1, 1.0):
        lines.append(compare("sparse 5,000 x 2,000", cvxscreen.svm(X, y, C=C), args.tol,
                             args.repeat))
    header = ("data, random labels", "C", "off ms", "safe ms", "safe/off", "passes off",
              "passes safe", "rounds", "gap off", "gap safe")
    print(table(header, lines, title="Safe mode where screening is useless, CPU of one solve"))


if __name__ == "__main__":
    main()
