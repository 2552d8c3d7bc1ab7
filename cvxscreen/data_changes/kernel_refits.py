"""Many refits of a kernel problem, each without one term, from the solution with all of them.

Without a term few slopes change: those at a kink, and the terms next to one. So each refit is a
small quadratic program over a box (`cvxscreen.solvers.box_qp`), over the terms whose margins are
nearest to a kink, all others held at their slopes. Their Gram matrix is the same for all refits.
A block of answers is certified on all terms at once: the margins of all are one matrix product
with the slopes that changed (`cvxscreen.certificates.many.LeftOutOfGram`). Terms that turn out
to be on another piece join, and what they belong to is solved again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen.certificates.many import LeftOutOfGram, LeftOutProofs
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram
from cvxscreen.solvers.box_qp import BoxQp
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

NEAREST = 150
"""Terms, those inside their box apart, that a first program looks at. Measured on satimage, 6,435
points, 61 inside their box: 80 to 250 take as long, with fewer there are more second programs."""

TURN = 60
"""Coordinate steps before a Newton step, as a program begins near its answer: 30 to 120 take as
long, the thousands of a start from anywhere three times as long."""

RIDGE = 1e-12
"""Added to the diagonal of the system where programs begin, relative: points may be there twice."""

MOST = 2000
"""Most terms of a program; beyond, and for what is not certified, refits go through `solve`."""

ROUNDS = 4
"""How often terms on another piece than was thought may join."""

SHARE = 0.1
"""Of the tolerance, for what the program's violation may add to the gap."""


def suits(problem: Problem) -> bool:
    """Whether `Programs` take `problem`: a kernel, a point for each term, no intercept."""
    design = problem.design
    return (
        isinstance(design, Gram) and not design.intercept and not problem.linear.any()
        and len(np.unique(design.index)) == len(design.index)
    )


class Programs:
    """Refits of a kernel problem without single terms by small quadratic programs; a `Solver`.

    Parameters
    ----------
    solution : Solution
        Of all terms, of a problem that `suits`.
    tol : float
        Relative gap of each answer.
    """

    rounds = ROUNDS

    def __init__(self, solution: Solution, tol: float) -> None:
        problem, theta = solution.problem, solution.theta
        self.problem, self.theta = problem, theta
        self.proofs = LeftOutOfGram(problem, theta, tol)
        losses, t = problem.losses, self.proofs.margins
        away = losses.kink_distance(t)
        # The slope of a term inside its box changes with any other's.
        between = (theta > losses.lo) & (theta < losses.hi)
        self.inside = between & ((theta != 0.0) | (losses.e == 0.0))
        away[self.inside] = 0.0
        few = int(self.inside.sum()) + NEAREST
        self.near = np.sort(np.argsort(away, kind="stable")[:few])
        span = np.minimum(losses.hi - losses.lo, 2.0 * float(np.abs(theta).max(initial=0.0)))
        self.eps = SHARE * tol * abs(solution.value) / max(float(span[self.near].sum()), 1e-300)

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None where too many terms are near."""
        rows = np.union1d(near, index)
        if len(rows) > MOST:
            return None
        slopes = self._answers(self.proofs.gram(rows, rows), rows, index)
        return self.proofs.certify(index, rows, slopes)

    def _answers(self, gram: Array, rows: Index, index: Index) -> Array:
        """The best slopes at `rows` without each term of `index`, all other terms keeping theirs.

        Every program begins where the terms inside their box would be if none met its end: one
        linear system with as many right sides as there are programs.
        """
        f, theta = self.problem.losses.take(rows), self.theta[rows]
        answers, at = np.arange(len(index)), np.searchsorted(rows, index)
        start = np.tile(theta, (len(index), 1))
        free = np.flatnonzero(self.inside[rows])
        if len(free):
            matrix = gram[np.ix_(free, free)] + np.diag(f.q[free])
            np.fill_diagonal(matrix, matrix.diagonal() * (1.0 + RIDGE))
            factor, failed = lapack.dpotrf(matrix, lower=1, clean=0)
            if not failed:
                pulled = gram[np.ix_(free, at)] * theta[at]
                start[:, free] += lapack.dpotrs(factor, pulled, lower=1)[0].T
        start = np.clip(start, f.lo, f.hi)
        start[answers, at] = 0.0
        gradients = f.b - self.proofs.margins[rows] + (start - theta) @ gram
        for k, own in enumerate(at):
            lo, hi = f.lo.copy(), f.hi.copy()
            lo[own] = hi[own] = 0.0
            program = BoxQp(gram, gradients[k], start[k], lo, hi, f.e, f.q, balanced=False)
            program.solve(self.eps, turn=TURN)
        return start
