"""Its spheres
===========

The spheres of triplet screening, cut by a plane (Yoshida et al. 2019, Fig. 2).

A 2 x 2 metric is learnt from triplets. A point near the optimum and a feasible dual point give
several spheres that hold it; which one is the smallest depends on the pair.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.two_gaussians(60, 2)
X = X * [1.0, 2.0]  # the second feature is only larger, not better
T = cvxscreen.triplets(X, y, k=3)
problem = cvxscreen.rtlm(X, T, lam=50.0)
best = cvxscreen.solve(problem, tol=1e-10)
print(f"{len(T)} triplets, the metric is\n{cvxscreen.metric_of(problem, best.x)}")

# %%
point = cvxscreen.reference_point(problem, 0.9 * best.x, 0.99 * best.theta)
balls = {}
for name in ("gap", "dgb", "gb", "cdgb"):
    region = cvxscreen.bounds.named(name)(problem, point)
    assert region.contains(best.x)
    verdict = cvxscreen.screen(problem, reference=point, bound=name)
    radius = region.radius / np.sqrt(problem.lam)  # regions measure in the norm of lam I
    balls[name] = (region.centre, radius)
    print(f"{name:5s} radius {radius:.4f}, undecided {verdict.undecided.sum()}")
figure = plots.cone_plane(balls, best.x, title="Four spheres from the same pair of points")
plots.save(figure, "metric_spheres.png")
