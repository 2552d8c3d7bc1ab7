"""What a safe region is, step by step
===================================

On twenty samples in the plane:

1. Take any weights x and any feasible dual point theta: nothing has to be optimal.
2. The duality gap of the pair bounds how far the unknown optimum can be: a ball.
3. A sample's loss has its kink on the line <a_i, w> = 1. If the line misses the ball, every weight
   vector in the ball, hence the optimum, is on the same side: the sample is decided.
4. A better pair has a smaller gap, a smaller ball, and decides more.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
# Step 0: a problem, 20 samples with two features and no intercept.

X, y = cvxscreen.datasets.two_gaussians(20, 2, bayes_error=0.1, seed=3)
problem = cvxscreen.svm(X, y, C=0.1)

# %%
# Step 1: pairs (x, theta), from far to near. theta = None takes the slopes of the losses at x.

optimum = cvxscreen.solve(problem, tol=1e-12)
regions = {}
for share in (0.3, 0.7, 0.95):
    x = share * optimum.x + (1 - share) * np.array([0.7, 0.0])
    theta = share * optimum.theta
    point = cvxscreen.reference_point(problem, x, theta)

    # Step 2: the midpoint ball, radius sqrt(gap - |x - x_theta|^2 / 4).
    ball = cvxscreen.bounds.midpoint_ball(problem, point)
    distance = np.linalg.norm(optimum.x - ball.centre)
    print(f"gap {point.gap:.4f}: radius {ball.radius:.4f}, the optimum is {distance:.4f} away")
    assert distance <= ball.radius

    # Step 3: what the ball decides.
    verdict = cvxscreen.screen(problem, reference=point)
    print(f"   zero {verdict.zero.sum()}, linear {verdict.linear.sum()}, "
          f"undecided {verdict.undecided.sum()}")
    regions[f"gap {point.gap:.3f}"] = (ball.centre, ball.radius)

# %%
# Step 4: the picture, all three balls and the kinks of the samples.

figure = plots.weight_plane(
    regions, y[:, None] * X, optimum=optimum.x, title="Safe regions in the plane of weights"
)
plots.save(figure, "safe_region.png")
