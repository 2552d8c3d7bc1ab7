"""Validation against SCS
======================

A first-order solver on the full and on the reduced problem, asked for ever smaller residuals.

Both approach the same certified optimum. A tolerance of SCS bounds its residuals, not the error of
a weight, and SCS looks at them every 25 iterations: hence the steps, and answers that are better
than was asked for. What screening changes is the time that an accuracy costs.
"""

import warnings

import cvxpy as cp
import numpy as np

import cvxscreen
from cvxscreen import plots
from cvxscreen.plots.style import LINES, empty_figure

# %%
# A robust regression, and SCS's answer on either problem side by side.

X, y = cvxscreen.datasets.heavy_tailed_regression(4000, 8)
w = cp.Variable(X.shape[1])
problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * cp.norm1(X @ w - y)))
print(cvxscreen.verify(problem, solver="SCS"))

# %%
# The optimum to twelve digits, and SCS at one tolerance after another.

optimum = cvxscreen.solve(cvxscreen.regression(X, y, C=0.1), tol=1e-12)
runs = {"SCS, full problem": [], "SCS, reduced problem": []}
with warnings.catch_warnings():  # at loose tolerances CVXPY says that an answer is inaccurate
    warnings.simplefilter("ignore", UserWarning)
    for eps in 10.0 ** -np.arange(2, 10):
        options = {"solver": "SCS", "eps_abs": eps, "eps_rel": eps, "warm_start": False}
        reduced = cvxscreen.reduce(problem)
        for name, asked in zip(runs, (problem, reduced.problem), strict=True):
            asked.solve(**options)
            if asked is not problem:
                reduced.restore()
            seconds = asked.solver_stats.solve_time
            runs[name].append((seconds, np.abs(w.value - optimum.x).max()))
for name, found in runs.items():
    print(f"{name}: an error of {found[-1][1]:.0e} in {found[-1][0]:.4f} s")

# %%
# Every point is a tolerance, from 1e-2 down to 1e-9.

figure = empty_figure(2.7)
axes = figure.subplots()
for (name, found), (_, marker, color) in zip(runs.items(), LINES, strict=False):
    axes.loglog(*np.array(found).T, linestyle="none", marker=marker, color=color, label=name)
axes.set(xlabel="seconds of SCS", ylabel="largest error of a weight",
         title="The same optimum, sooner")
axes.grid(alpha=0.3)
axes.legend(frameon=False)
plots.save(figure, "validate_scs.png")
