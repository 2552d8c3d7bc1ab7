"""Wrap your CVXPY SVM: the only change is `method="screen"`.

The problem keeps its variables, its parameter and a constraint of its own; the report says what was
recognised, how many samples the solver saw, and the gap certified on all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cvxpy as cp
import numpy as np

import cvxscreen
from cvxscreen import plots


def main(folder: Path) -> Path:
    X, y = cvxscreen.datasets.two_gaussians(5000, 10)
    n, d = X.shape
    w, b = cp.Variable(d), cp.Variable()
    C = cp.Parameter(pos=True)
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    # Something that no library offers: the first two features must count the same.
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * loss), [w[0] == w[1]])

    C.value = 1.0
    print(cvxscreen.explain(problem))

    values, kept, gaps = np.geomspace(1e-2, 10, 12), [], []
    for value in values:
        C.value = value
        problem.solve(method="screen", solver="CLARABEL")
        report = problem.solver_stats.extra_stats["cvxscreen"]
        kept.append(report.kept)
        gaps.append(report.relative_gap)
        print(f"C = {value:.3g}: value {problem.value:.6f}, b = {b.value:.4f}, "
              f"kept {report.kept} of {report.terms}")

    fixed = {"fixed before the solver": 1.0 - np.array(kept) / n}
    figure = plots.rejection(
        values, fixed, gaps=gaps, kept=kept, title="A CVXPY problem solved with method='screen'"
    )
    return plots.save(figure, folder / "cvxpy_svm.png")


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
