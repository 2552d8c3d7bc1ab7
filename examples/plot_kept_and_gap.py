"""Kept terms and gap over time
============================

Kept terms and certified gap against time, for the two modes.

`safe` fixes only what is proven so far; `certified` also predicts, solves the small problem, and
lets the gap on all of the data say whether the guess was right.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.two_gaussians(30_000, 20, bayes_error=0.1)
problem = cvxscreen.svm(X, y, C=0.1)
cvxscreen.solve(problem, tol=1e-3)  # so that neither run pays for what is done once
runs = {}
for mode in ("safe", "certified"):
    solution = cvxscreen.solve(problem, tol=1e-9, mode=mode)
    print(solution)
    ends = np.cumsum([r.seconds for r in solution.rounds])
    kept = [r.kept for r in solution.rounds]
    runs[mode] = (ends, kept, [r.relative_gap for r in solution.rounds])
figure = plots.kept_and_gap(runs, title="Hinge SVM, 30,000 x 20, C = 0.1")
plots.save(figure, "kept_and_gap.png")
