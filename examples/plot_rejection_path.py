"""A rejection path
================

Stacked rejection rates along a path: how much is proven before each solve.

At every C the solution before it, scaled to the new C, gives a ball that holds the new optimum
(the DVI ball of Wang et al. 2014, safe for an approximate solution). The picture shows the share of
samples it decides, and below it what was left for the solver and how good the answer is.
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.breast_cancer()
path = cvxscreen.path(cvxscreen.svm(X, y), values=np.geomspace(1e-2, 10, 40), tol=1e-8)
print(path)
plots.save(path.plot("Breast cancer, hinge SVM along C"), "rejection_path.png")
