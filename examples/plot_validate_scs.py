"""Validate against SCS: a first-order solver on the full and on the reduced problem.

SCS is asked for ever smaller residuals. Its answers on the full and on the reduced problem approach
the same certified optimum; where they differ it is SCS's tolerance, not screening.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots


def main(folder: Path) -> Path:
    X, y = cvxscreen.datasets.heavy_tailed_regression(400, 8)
    w = cp.Variable(X.shape[1])
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * cp.norm1(X @ w - y)))
    print(cvxscreen.verify(problem, solver="SCS"))

    optimum = cvxscreen.solve(cvxscreen.regression(X, y, C=0.1), tol=1e-12)
    eps = 10.0 ** -np.arange(3, 10)
    away = {"full": [], "reduced": []}
    for e in eps:
        options = {"solver": "SCS", "eps_abs": e, "eps_rel": e, "warm_start": False}
        problem.solve(**options)
        away["full"].append(np.abs(w.value - optimum.x).max())
        reduced = cvxscreen.reduce(problem)
        with warnings.catch_warnings():  # at loose tolerances CVXPY says that it is inaccurate
            warnings.simplefilter("ignore", UserWarning)
            reduced.problem.solve(**options)
            reduced.restore()
        away["reduced"].append(np.abs(w.value - optimum.x).max())
    for name, errors in away.items():
        print(f"{name}: {errors[0]:.1e} at eps {eps[0]:.0e}, {errors[-1]:.1e} at eps {eps[-1]:.0e}")

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.loglog(eps, np.maximum(away["full"], 1e-17), "o-", color="#1a1a1a", label="SCS, full")
    axes.loglog(eps, np.maximum(away["reduced"], 1e-17), "s--", color="#c0561b",
                label="SCS, reduced")
    axes.set(xlabel="tolerance asked of SCS", ylabel="largest error of a weight",
             title="SCS approaches the certified optimum on either problem")
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return plots.save(figure, folder / "validate_scs.png")


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
