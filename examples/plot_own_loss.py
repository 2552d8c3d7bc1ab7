"""A loss of your own
==================

A loss of your own: five numbers a term, and everything else follows.

Forecasts that are too low cost three times as much as those that are too high, and errors below 0.5
cost nothing. The conjugate ``b u + e |u| + q/2 u^2`` on ``[lo, hi]`` says just that: kinks at
``b -+ e``, no curvature, slopes -3 C and +C. CVXPY is asked whether it is true.
"""

import cvxpy as cp
import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots
from cvxscreen.designs.rows import Rows

# %%
X, y = cvxscreen.datasets.heavy_tailed_regression(2000, 6)
n, d, C = *X.shape, 0.05
losses = cvxscreen.Losses(b=y, e=np.full(n, 0.5), q=np.zeros(n), lo=np.full(n, -3 * C),
                          hi=np.full(n, C))
problem = cvxscreen.Problem(Rows(X), losses, cvxscreen.Quadratic(np.ones(d)), np.zeros(d))
solution = cvxscreen.solve(problem, tol=1e-10)
print(solution)

# %%
w = cp.Variable(d)
error = X @ w - y
cost = 3 * cp.pos(-error - 0.5) + cp.pos(error - 0.5)
full = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * cp.sum(cost)))
full.solve(solver="CLARABEL")
print(f"cvxscreen {solution.value:.8f}, CVXPY {full.value:.8f}")
assert abs(solution.value - full.value) <= 1e-6 * full.value

# %%
low, high = (X @ solution.x < y - 0.5).mean(), (X @ solution.x > y + 0.5).mean()
print(f"too low {low:.1%}, too high {high:.1%}")
figure = Figure(figsize=(7.2, 4.2), layout="constrained")
axes = figure.subplots()
r = np.linspace(-3, 3, 601)
one = cvxscreen.Losses([0.0], [0.5], [0.0], [-3.0], [1.0])
axes.plot(r, [float(one.value(np.array([v]))[0]) for v in r], color="#1a1a1a", label="the loss")
axes.hist(X @ solution.x - y, bins=60, range=(-3, 3), density=True, color="#b5b5b5",
          edgecolor="white", label="errors at the optimum (density)")
axes.set(ylim=(0, 3), xlabel="forecast minus response", ylabel="loss, density",
         title="Forecasts that are too low cost three times as much")
axes.legend(frameon=False)
plots.save(figure, "own_loss.png")
