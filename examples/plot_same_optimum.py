"""Why the optimum stays
=====================

Why the reduced problem has the same optimum.

A decided loss is replaced by the one piece it is proven to sit on at the optimum. A piece of a
convex function lies below it, so the reduced objective lies below the full one everywhere; near the
optimum the two are equal. A point where two convex functions touch and which minimises the lower
one locally minimises both. The picture cuts both objectives along a line through the optimum.
"""

import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.toy2()
problem = cvxscreen.svm(X, y, C=0.01)
solution = cvxscreen.solve(problem, tol=1e-12)
proven = solution.screening  # a record of proofs; it can reduce the problem
reduced = proven.reduce()
again = cvxscreen.solve(reduced, tol=1e-12)
print(f"terms: {problem.n} full, {reduced.n} reduced")
print(f"value: {solution.value:.12f} full, {again.value:.12f} reduced")
print(f"largest difference of a weight: {np.abs(solution.x - again.x).max():.1e}")
assert np.allclose(solution.x, again.x, atol=1e-6)

# %%
steps = np.linspace(-2.0, 4.0, 301)
line = [(1 + t) * solution.x for t in steps]
full = np.array([problem.primal(x) for x in line])
small = np.array([reduced.primal(x) for x in line])
assert (small <= full + 1e-9).all()

# %%
figure = Figure(figsize=(7.2, 4.2), layout="constrained")
axes = figure.subplots()
axes.plot(steps, full, color="#1a1a1a", label=f"full, {problem.n} terms")
axes.plot(steps, small, "--", color="#c0561b", label=f"reduced, {reduced.n} terms")
axes.plot(0, solution.value, "*", color="#1a1a1a", markersize=13, label="the common optimum")
axes.set(xlabel="step t along the line (1 + t) w*", ylabel="objective",
         title="The reduced objective lies below and touches at the optimum")
axes.legend(frameon=False)
plots.save(figure, "same_optimum.png")
