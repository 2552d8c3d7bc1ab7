"""Which predictions survive other weights
=======================================

Which predictions survive a shift of the weights, whatever the shift is.

1. Fit a support vector machine; the sample may not be the population, so every sample's weight is
   known only roughly: ``|w - 1| <= S`` for some S.
2. For all such weights at once the optimum lies in one ball around the solution at hand. A point
   far from the decision line keeps its class for every weighting, a near one may lose it.
3. For each point the largest S for which its class is certain. Drawn as a map, these are bands
   along the line, and fits with random weights never cross the band of their own S.
"""

import numpy as np
from matplotlib.patches import Patch

import cvxscreen
from cvxscreen import plots
from cvxscreen.plots.style import INK, LINES, empty_figure, legend_above

SIZES = (0.02, 0.05, 0.1)

# %%
# Step 1: two groups; the third feature is 1, a penalised intercept.

X, y = cvxscreen.datasets.two_gaussians(200, 2, bayes_error=0.08, seed=2)
data = np.column_stack([X, np.ones(len(y))])
solution = cvxscreen.solve(cvxscreen.svm(data, y, C=0.02), tol=1e-12)

# %%
# Step 2 and 3: the largest size for every point of a grid over the plane.

span = 1.1 * np.abs(X).max()
side = np.linspace(-span, span, 161)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
points = np.column_stack([grid, np.ones(len(grid))])
found = cvxscreen.weight_range(solution, points, norm="interval", size=SIZES[-1])
print(found)

# %%
figure = empty_figure(4.2, 7.2)
axes = figure.add_subplot()
largest = found.largest.reshape(len(side), len(side))
levels = [0.0, *SIZES, max(float(largest.max()), 2.0 * SIZES[-1])]
greys = ["#8a8a8a", "#b5b5b5", "#d8d8d8", "#ffffff"]
axes.contourf(side, side, largest, levels=levels, colors=greys)
for group, style, name in ((y > 0, LINES[2], "class +1"), (y < 0, LINES[1], "class -1")):
    axes.plot(*X[group].T, style[1], color=style[2], markersize=3, linestyle="none",
              label=name)

# %%
# Fits with random weights in the smallest and the largest set, and their decision lines.

rng = np.random.default_rng(0)
for k, size in enumerate([SIZES[0]] * 6 + [SIZES[-1]] * 6):
    weights = 1.0 + size * rng.choice([-1.0, 1.0], len(y))
    now = cvxscreen.reweight(solution, weights).solution.x
    inside = found.largest >= size
    assert (np.sign(points @ now) == np.sign(found.predictions))[inside].all()
    if abs(now[1]) > abs(now[0]):
        ends = side, -(now[0] * side + now[2]) / now[1]
    else:
        ends = -(now[1] * side + now[2]) / now[0], side
    axes.plot(*ends, color=INK, linewidth=0.6, label="" if k else "fits with other weights")
axes.set_xlim(-span, span)
axes.set_ylim(-span, span)
axes.set_aspect("equal")
axes.set_xlabel("first feature")
axes.set_ylabel("second feature")
names = [f"not certain at {SIZES[0]:.0%}", *(f"certain at {size:.0%}" for size in SIZES)]
patches = [
    Patch(facecolor=grey, edgecolor=INK, linewidth=0.5, label=name)
    for grey, name in zip(greys, names, strict=True)
]
title = "the class, if every weight may be off by as much"
legend_above(axes, [*axes.get_legend_handles_labels()[0], *patches], title=title, columns=2)
plots.save(figure, "weight_range.png")
