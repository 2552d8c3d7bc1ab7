"""Squares under an L1 norm with an intercept as a lasso without one, and the way back.

::

    min_b  sum_i c_i (<x_i, w> + b - y_i)^2 / 2 = sum_i c_i (<x_i - m, w> - (y_i - l))^2 / 2,

m and l the means of rows and targets with weights ``c_i``: beside absolute values of w alone
nothing else knows b. What solves a lasso without an intercept knows its features; with one, their
absolute values are d further terms, which is as quick where the rows are tall only. Nothing is
proven by it: the answer is certified on the data as given, and where that refuses it, they are
solved as they are, from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.short_squares import squares_alone
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]

DENSE = 0.3
"""Share of the entries from which on rows that are stored as sparse are taken as dense: those of
data in fewer rows than columns are, beside the unit rows of the absolute values."""

MOST = 50
"""Rows for each coordinate up to which it pays (features kept by weights of 0.1 and 0.01 of the
largest, CPU ms as terms and so: 800 x 400 53 to 70 and 340 to 370 -> 7 and 33 to 42, 2,000 x 400 55
and 350 to 450 -> 16 and 60, 1,200 x 1,500 1,300 to 1,800 and 7,000 -> 47 and 113, 3,000 x 300 88
and 100 -> 72 and 76, 5,000 x 100 16 to 26 -> 14; 50,000 x 50 37 to 54 -> 44 to 56)."""

SHARE = 0.5
"""Of the tolerance that the lasso is solved to: what the way back rounds has the rest."""


class WithoutIntercept(NamedTuple):
    """A lasso whose intercept is eliminated.

    Attributes
    ----------
    problem, equivalent : Problem
    rows : Rows
        Of the squares, the column of the intercept last.
    squares : LossTerms
    """

    problem: Problem
    equivalent: Problem
    rows: Rows
    squares: LossTerms

    @classmethod
    def of(cls, problem: Problem) -> WithoutIntercept | None:
        """`problem` so; None where it is no such lasso, or its rows are sparse or tall."""
        layout, design, d = problem.layout, problem.design, problem.d
        if layout is None or not (layout.intercept and layout.penalty_terms == d - 1):
            return None
        if not isinstance(design, Rows) or problem.side is not None or problem.penalty is not None:
            return None
        if problem.drift or problem.imbalance or problem.linear.any():
            return None
        if problem.quadratic.matrix is not None or problem.quadratic.diagonal.any():
            return None
        n = problem.n - layout.penalty_terms
        f = problem.losses.take(np.arange(n))
        if not 1 <= n <= MOST * d or design.scale is not None or not squares_alone(f):
            return None
        if not (problem.losses.hi[n:] > 0.0).all():  # a slope of 0 can be made no smaller
            return None
        matrix = design.matrix[:n]
        if sp.issparse(matrix):
            if matrix.nnz < DENSE * n * (d - 1):
                return None
            matrix = matrix.toarray()
        rows = Rows(matrix, None, design.extra[:n], known=True)
        if rows.extra.shape[1] != 1 or not (rows.extra == 1.0).all():
            return None
        share = 1.0 / f.q
        share /= share.sum()
        b, ends = f.b - share @ f.b, np.full(n, np.inf)
        equivalent = replace(
            problem, design=Rows(matrix - share @ matrix, known=True),
            losses=Losses(b, 0.0 * b, f.q, -ends, ends),
            quadratic=ZeroQuadratic(np.zeros(d - 1)), linear=np.zeros(d - 1), layout=None,
            penalty=L1(problem.losses.hi[n:].copy()),
        )
        return cls(problem, equivalent, rows, f)

    def apply(self, start: Start) -> Start:
        """A start of the problem as one of `equivalent`."""
        x = start.x[:-1]
        return Start(x, self.equivalent.losses.slope(self.equivalent.design.forward(x)))

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        The intercept is the weighted mean of what is left. Slopes are those at x, made smaller
        until the absolute values can balance them.
        """
        x, f, kappa = np.append(found.x, 0.0), self.squares, self.problem.losses.hi[-len(found.x):]
        theta = np.zeros(self.problem.n)
        if np.isfinite(x).all():
            t = self.rows.forward(x)
            x[-1] = float((f.b - t) @ (1.0 / f.q)) / float((1.0 / f.q).sum())
            slopes = f.slope(t + x[-1])
            pull = self.rows.adjoint(slopes)[:-1]
            room = float(np.max(np.abs(pull) / kappa, initial=1.0))
            theta = np.concatenate([slopes, -pull]) / room
            np.clip(theta, self.problem.losses.lo, self.problem.losses.hi, out=theta)
        return found.carried_to(self.problem, x, theta, np.zeros(0), tol)
