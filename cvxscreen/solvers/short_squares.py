"""Squares of many terms in few coordinates as those of a triangle, and the way back.

::

    sum_i (<a_i, x> - b_i)^2 / (2 q_i) = |R x - c|^2 / 2 + rho^2 / 2

with ``A' Q^{-1} A = R' R``, ``R' c = A' Q^{-1} b`` and ``rho^2 = b' Q^{-1} b - |c|^2``: whatever
stands beside the squares (an L1 norm, constraints, other squares), d + 1 terms are the n of the
data. Cholesky's factor of a Gram matrix has half the digits of a triangle by reflections (Higham,
"Accuracy and stability of numerical algorithms", 2002, section 20.4), and takes a tenth of the
time. Nothing is proven by it: the answer is certified on the data, and where that refuses it, they
are solved as they are, from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]

TALL, MOST, ENTRIES = 5, 500, 100_000
"""Terms for each coordinate, coordinates up to which, and entries of the data from which on it pays
(lasso by the built-in solvers at weights of 0.3, 0.05 and 0.001 of the largest, CPU, loaded
machine: 2,500 x 40 13, 14 and 19 -> 12, 11 and 7 ms; 20,000 x 50 29, 25 and 88 -> 18, 19 and 18;
100,000 x 30 77, 81 and 244 -> 41, 53 and 56; 5,000 x 300 39, 59 and 212 -> 39, 35 and 49; at three
terms for each of 300 and 1,000 coordinates 14 to 1,150 -> 11 to 540, and 55 -> 127 in one case)."""

DIGITS = 1e-6
"""Least diagonal entry of R, as a share of the largest: below, what Cholesky's method loses is too
much of the rest."""


class ShortSquares(NamedTuple):
    """A problem of squares with as many terms as coordinates: a `solvers.loop.Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
    """

    problem: Problem
    equivalent: Problem

    @classmethod
    def of(cls, problem: Problem) -> ShortSquares | None:
        """`problem` so; None where it has other losses, or is not tall or well-conditioned."""
        design, f, (n, d) = problem.design, problem.losses, problem.design.shape
        if not isinstance(design, Rows) or n < TALL * (d + 1) or d > MOST or n * d < ENTRIES:
            return None
        if not (problem.penalty is None or isinstance(problem.penalty, L1)):
            return None
        if problem.drift or problem.imbalance or not squares_alone(f):
            return None
        weights = 1.0 / f.q
        gram, pull = design.weighted_gram(None, weights), design.adjoint(weights * f.b)
        try:
            triangle = np.linalg.cholesky(gram).T
        except np.linalg.LinAlgError:
            return None
        diagonal = triangle.diagonal()
        if not diagonal.min() > DIGITS * diagonal.max():
            return None
        c = solve_triangular(triangle, pull, trans="T")
        left = float(weights * f.b @ f.b - c @ c)
        rows = Rows(np.vstack([triangle, np.zeros(d)]), known=True)
        none, ends = np.zeros(d + 1), np.full(d + 1, np.inf)
        targets = np.append(c, np.sqrt(max(left, 0.0)))
        losses = Losses(targets, none, none + 1.0, -ends, ends)
        return cls(problem, replace(problem, design=rows, losses=losses, layout=None))

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        theta = self.equivalent.losses.slope(self.equivalent.design.forward(start.x))
        return Start(start.x, theta, multipliers=start.multipliers)

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        Its slopes are those at x; the certificate shrinks what an L1 norm does not let pass.
        """
        theta = found.theta
        if np.isfinite(found.x).all():
            theta = self.problem.losses.slope(self.problem.design.forward(found.x))
        return found.carried_to(self.problem, found.x, theta, found.multipliers, tol)


def squares_alone(f: LossTerms) -> bool:
    """Whether all terms are squares, without a kink or an end."""
    ends = np.isinf(f.lo).all() and np.isinf(f.hi).all()
    return bool(ends and (f.q > 0.0).all() and not f.e.any())
