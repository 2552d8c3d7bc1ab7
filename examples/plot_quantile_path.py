"""A quantile path
===============

A quantile regression path: the 90 % line of noise that grows, along C.

Every observation away from the fitted line sits on one of two linear pieces, so nearly all of them
are decided before each solve.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
rng = np.random.default_rng(0)
t = rng.uniform(0, 3, 4000)
y = 1.0 + 2.0 * t + (0.3 + t) * rng.standard_normal(len(t))
X = np.column_stack([t, t**2])
problem = cvxscreen.regression(X, y, loss="quantile", tau=0.9, intercept=True)
path = cvxscreen.path(problem, values=np.geomspace(1e-3, 1, 30), tol=1e-8)
for point in path.points[::6]:
    *slopes, b = point.x
    below = np.mean(y <= X @ slopes + b)
    print(f"C = {point.value:.3g}: {below:.1%} of the observations lie below "
          f"{b:.2f} {slopes[0]:+.2f} t {slopes[1]:+.3f} t^2")
print("wanted: 90 %; the true line is 1.38 + 3.28 t")
figure = path.plot("Quantile regression (90 %), 4,000 observations, along C")
plots.save(figure, "quantile_path.png")
