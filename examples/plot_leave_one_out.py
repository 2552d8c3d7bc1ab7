"""Leave one out
=============

How a left-out sample moves its ball, and what one pass over the data decides for all of them.

1. Fit a support vector machine on all samples.
2. Without sample i the slopes of the others stay dual feasible, and what changes is A' theta by
   theta_i a_i: the optimum without it lies in a ball through the optimum with it, of radius
   ``|theta_i a_i| / 2``. Samples without a slope have a ball of radius 0: nothing changes.
3. On a ball the margin of the sample itself has a least and a largest value. Where both have one
   sign, its left-out class is certain without a refit.
"""

import numpy as np
from matplotlib.patches import Circle

import cvxscreen
from cvxscreen import plots
from cvxscreen.plots.style import INK, LINES, empty_figure, legend_above

# %%
# Step 1: 40 samples with two features, so that the weights can be drawn.

X, y = cvxscreen.datasets.two_gaussians(40, 2, bayes_error=0.12, seed=6)
rows = y[:, None] * X
solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.2), tol=1e-13)
w, alpha = solution.x, solution.alpha
left_out = cvxscreen.leave_one_out(solution)
quick = cvxscreen.leave_one_out(solution, refit=False)
print(left_out)

# %%
# Step 2: the balls of three support vectors, and where the optimum without each of them is.

figure = empty_figure(3.6, 10.0)
plane, margins = figure.subplots(1, 2)
support = np.flatnonzero(~quick.unchanged)
reach = alpha * np.linalg.norm(rows, axis=1)
optima = {i: cvxscreen.remove(solution, [i], tol=1e-12).solution.x for i in support}
for i in support:
    centre = w - 0.5 * alpha[i] * rows[i]
    assert np.linalg.norm(optima[i] - centre) <= 0.5 * reach[i] * (1 + 1e-6) + 1e-6

# Those that move the optimum farthest, in different directions: each ball with its optimum.
moves = np.array([optima[i] - w for i in support])
farthest = np.argsort(-np.linalg.norm(moves, axis=1))
angles = np.arctan2(*moves.T)
picked: list[int] = []
for k in farthest:
    if len(picked) < 3 and all(np.cos(angles[k] - angles[other]) < 0.9 for other in picked):
        picked.append(k)
chosen = support[picked]
for i, (line, marker, colour) in zip(chosen, LINES[1:], strict=False):
    centre = w - 0.5 * alpha[i] * rows[i]
    plane.add_patch(Circle(
        tuple(centre), 0.5 * reach[i], fill=False, edgecolor=colour, linestyle=line, linewidth=1.2
    ))
    plane.plot(*optima[i], marker, color=colour, markersize=5)
    plane.plot([], [], line, marker=marker, color=colour, linewidth=1.2, markersize=5,
               label=f"without sample {i}: ball, optimum")
plane.plot(*w, "*", color=INK, markersize=11, linestyle="none", label="optimum with all")
middles, radii = w - 0.5 * alpha[chosen, None] * rows[chosen], 0.55 * reach[chosen, None]
plane.set_xlim((middles - radii)[:, 0].min(), (middles + radii)[:, 0].max())
plane.set_ylim((middles - radii)[:, 1].min(), (middles + radii)[:, 1].max())
plane.set_aspect("equal", adjustable="box")
plane.set_xlabel("weight of the first feature")
plane.set_ylabel("weight of the second feature")
legend_above(plane, columns=1)

# %%
# Step 3: the interval of every left-out margin. Those across 0 had to be refitted.

order = np.argsort(quick.low + quick.high)
at = np.arange(len(order))
low, high = quick.low[order], quick.high[order]
decided = quick.decided[order]
for mask, style, name in ((decided, LINES[2], "class certain by one pass"),
                          (~decided, LINES[1], "refitted")):
    margins.vlines(at[mask], low[mask], high[mask], color=style[2], linewidth=1.6, label=name)
    exact = np.clip(left_out.value, left_out.low, left_out.high)[order][mask]
    margins.plot(at[mask], np.where(np.isnan(exact), 0.5 * (low + high)[mask], exact),
                 style[1], color=style[2], markersize=3)
margins.axhline(0.0, color=INK, linewidth=0.8)
margins.set_xlabel("samples, in order")
margins.set_ylabel("left-out margin")
legend_above(margins, columns=1)
plots.save(figure, "leave_one_out.png")
