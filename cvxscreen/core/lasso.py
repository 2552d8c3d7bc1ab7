"""The lasso, however a problem writes it: squares beside an L1 norm alone.

::

    min_{w, b}  sum_i c_i (<x_i, w> + b - y_i)^2 / 2 + sum_j kappa_j |w_j|

Without an intercept the norm is a penalty (`Problem.pure_l1`); beside one it is d - 1 terms of the
problem, one for each other coordinate, since a penalty leaves none out.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]


class Lasso(Immutable):
    """The parts of a lasso over dense rows.

    Attributes
    ----------
    problem : Problem
    rows : Rows
        Of the squares; the column of ones of an intercept, if there is one, is beside the matrix.
    targets, weights : array, shape (n,)
        The `y` and `c` of the module's docstring.
    kappa : array, shape (d,)
        Positive.
    """

    problem: Problem
    rows: Rows
    targets: Array
    weights: Array
    kappa: Array

    @property
    def intercept(self) -> bool:
        """Whether the last coordinate of the problem is one."""
        return bool(self.rows.extra.shape[1])

    @classmethod
    def of(cls, problem: Problem) -> Lasso | None:
        """`problem` as a lasso; None where it is none, or its features are stored as sparse."""
        design, f = problem.design, problem.losses
        if problem.pure_l1:
            if not isinstance(design, Rows) or design.sparse or design.scale is not None:
                return None
            bare = not (problem.drift or problem.imbalance or problem.linear.any())
            if design.extra.shape[1] or not (bare and squares_alone(f)):
                return None
            kappa = cast(L1, problem.penalty).kappa
            return cls(problem, design, f.b, 1.0 / f.q, kappa)
        n = lasso_rows(problem)
        if not n:
            return None
        design, f, kappa = cast(Rows, design), f.take(np.arange(n)), f.hi[n:]
        matrix, extra = design.matrix[:n], design.extra[:n]
        if design.sparse:
            if matrix.nnz < FILLED * n * (problem.d - 1):
                return None
            matrix = matrix.toarray()
        if extra.shape[1] != 1 or not (extra == 1.0).all():
            return None
        return cls(problem, Rows(matrix, None, extra, known=True), f.b, 1.0 / f.q, kappa)

    def slopes(self, x: Array, residuals: Array | None = None) -> Array:
        """Slopes of all terms of the problem that are feasible, to rounding: those at x, shrunk.

        Those of absolute values balance the others. `residuals` are those at x, where known.
        """
        if residuals is None:
            residuals = self.rows.forward(x) - self.targets
        theta = self.weights * residuals
        pull = self.rows.adjoint(theta)[: len(self.kappa)]
        room = float(np.max(np.abs(pull) / self.kappa, initial=1.0))
        if not self.intercept:
            return theta / room
        balancing = np.clip(-pull / room, -self.kappa, self.kappa)
        return np.concatenate([theta / room, balancing])


FILLED = 0.3
"""Share of the entries from which on rows that are stored as sparse are taken as dense: those of
data in fewer rows than columns are, beside the unit rows of the absolute values."""


def lasso_rows(problem: Problem) -> int:
    """Squares of a lasso with an intercept, beside its absolute values; 0 if it is none."""
    layout, design, d = problem.layout, problem.design, problem.d
    if layout is None or not (layout.intercept and layout.penalty_terms == d - 1):
        return 0
    if not isinstance(design, Rows) or problem.side is not None or problem.penalty is not None:
        return 0
    if problem.drift or problem.imbalance or problem.linear.any():
        return 0
    if problem.quadratic.matrix is not None or problem.quadratic.diagonal.any():
        return 0
    n = problem.n - layout.penalty_terms
    if design.scale is not None or not squares_alone(problem.losses.take(np.arange(n))):
        return 0
    weighs = (problem.losses.hi[n:] > 0.0).all()  # a slope of 0 can be made no smaller
    return n if weighs else 0


def squares_alone(f: LossTerms) -> bool:
    """Whether all terms are squares, without a kink or an end."""
    ends = np.isinf(f.lo).all() and np.isinf(f.hi).all()
    return bool(ends and (f.q > 0.0).all() and not f.e.any())
