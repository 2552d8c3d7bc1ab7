"""Ranges of C
===========

One solution, every C: how far the decisions of a reference reach.

A decision proven at C0 holds on a whole interval of C around it
(`cvxscreen.screening.ranges.c_interval`), so one pass over the data tells, for every other C,
which samples need not be looked at again.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots
from cvxscreen.screening.ranges import c_interval

# %%
X, y = cvxscreen.datasets.toy1()
values = np.geomspace(1e-3, 1, 40)
references = np.geomspace(1e-3, 1, 25)
rates = np.zeros((len(references), len(values)))
for i, C0 in enumerate(references):
    problem = cvxscreen.svm(X, y, C=C0)
    point = cvxscreen.solve(problem, tol=1e-10).point()
    low, high = c_interval(problem, point)
    for j, C in enumerate(values):
        rates[i, j] = np.mean((low <= C) & (high >= C))  # NaN where nothing is proven
print(f"decided at C0 itself {np.diag(rates[:, ::2]).mean():.1%} on average, "
      f"over all pairs {rates.mean():.1%}")
figure = plots.heat(values, references, rates, title="Two clouds: share decided from C0")
plots.save(figure, "c_ranges.png")
