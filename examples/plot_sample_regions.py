"""Which samples are decided
=========================

Which samples are decided before training, seen in the plane (Ogawa et al. 2014, Fig. 1).

The solution at C = 0.5 is known; training at C = 0.6 has not begun. The ball that holds its optimum
decides every sample in the hatched parts of the plane.
"""

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.toy2()
X, y = X[::4], y[::4]
before = cvxscreen.solve(cvxscreen.svm(X, y, C=0.5), tol=1e-10)
problem = cvxscreen.svm(X, y, C=0.6)
ball = cvxscreen.bounds.dvi_ball(problem, before.point())
verdict = cvxscreen.screen(problem, reference=before, bound="dvi")
print(verdict)

# %%
optimum = cvxscreen.solve(problem, tol=1e-10)  # only to draw the line
figure = plots.sample_plane(
    X, y, ball.centre, ball.radius, w=optimum.w,
    title="Decided for C = 0.6 from the solution at C = 0.5",
)
plots.save(figure, "sample_regions.png")
