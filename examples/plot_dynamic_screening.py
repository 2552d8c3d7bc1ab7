"""Dynamic screening
=================

Dynamic screening: the smaller the gap, the more is proven, at every C.

During a solve the duality gap shrinks, and with it the ball around the optimum. The map shows the
share of samples that the midpoint ball proves at each C once the solver has reached a given
relative gap.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.breast_cancer()
values, gaps = np.geomspace(1e-3, 10, 24), np.geomspace(0.5, 1e-4, 17)
rates = np.zeros((len(gaps), len(values)))
for j, C in enumerate(values):
    problem = cvxscreen.svm(X, y, C=C)
    best = cvxscreen.solve(problem, tol=1e-11)
    # Pairs between the optimum and zero stand for the iterates of a solver.
    shares = np.geomspace(1e-12, 0.9, 60)
    points = [
        cvxscreen.reference_point(problem, (1 - s) * best.x, (1 - s) * best.theta)
        for s in shares
    ]
    reached = np.array([point.relative_gap for point in points])
    for i, gap in enumerate(gaps):
        within = np.flatnonzero(reached <= gap)
        if len(within):
            point = points[within[-1]]
            verdict = cvxscreen.screen(problem, reference=point)
            rates[i, j] = 1.0 - verdict.undecided.mean()
print(f"mean share proven: {rates[0].mean():.1%} at a gap of {gaps[0]:.0e}, "
      f"{rates[-1].mean():.1%} at {gaps[-1]:.0e}")
figure = plots.heat(
    values, gaps, rates, ylabel="relative gap reached", falling=True,
    title="Breast cancer, hinge SVM: share proven during the solve",
)
plots.save(figure, "dynamic_screening.png")
