"""A bound of your own
===================

A bound of your own in twenty lines.

The dual is strongly concave: the optimum is within sqrt(2 gap) of x_theta, the primal point of the
dual point. That is a ball, so it is a bound. It is tested here for containment and compared with
the two that use the primal point too. `cvxscreen.bounds.register` gives it a name of its own.
"""

import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots
from cvxscreen._support.rounding import up
from cvxscreen.bounds.regions import Ball


def dual_ball(problem, point):
    """``||x* - x_theta|| <= sqrt(2 G)``: half of the argument behind the midpoint ball."""
    radius = up(np.sqrt(2.0 * up(point.gap))) + point.dual_error + problem.drift
    margins = problem.design.forward(point.x_theta)
    return Ball(problem, "dual", point.x_theta, margins, up(radius), point.gap)

# %%
X, y = cvxscreen.datasets.breast_cancer()
problem = cvxscreen.svm(X, y, C=0.1)
best = cvxscreen.solve(problem, tol=1e-13)
bounds = {
    "midpoint": cvxscreen.bounds.midpoint_ball, "gap": cvxscreen.bounds.gap_ball,
    "dual (ours)": dual_ball,
}
rng, gaps, rates = np.random.default_rng(0), [], {name: [] for name in bounds}
for size in np.geomspace(1e-6, 1, 25):
    x = best.x + size * rng.standard_normal(problem.d) * np.abs(best.x)
    point = cvxscreen.reference_point(problem, x, (1 - size / 2) * best.theta)
    gaps.append(point.relative_gap)
    for name, bound in bounds.items():
        assert bound(problem, point).contains(best.x), name
        verdict = cvxscreen.screen(problem, reference=point, bound=bound)
        rates[name].append(1.0 - verdict.undecided.mean())
ours = cvxscreen.solve(problem, mode="safe", bounds=[dual_ball])  # and in the solve
assert abs(ours.value - best.value) < 1e-5 * best.value
for name, shares in rates.items():
    print(f"{name}: {np.mean(shares):.1%} decided on average")

# %%
figure = Figure(figsize=(7.2, 4.2), layout="constrained")
axes = figure.subplots()
order = np.argsort(gaps)
for (name, shares), look in zip(rates.items(), ("o-", "s--", "^:"), strict=True):
    axes.semilogx(np.array(gaps)[order], np.array(shares)[order], look, markersize=4,
                  color="#1a1a1a", label=name)
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(xlabel="relative duality gap of the point", ylabel="share of samples decided",
         title="Three bounds on the same points")
axes.invert_xaxis()
axes.legend(frameon=False)
plots.save(figure, "own_bound.png")
