"""Features far from 0 beside an intercept: the same problem about their centre, and the way back.

``<a_i, x> = <a_i - e_i mu, x> + e_i <mu, x>``, e the column of a coordinate that nothing holds, is
the same problem with that coordinate larger by ``<mu, x>``. Years, prices and identifiers are
features whose mean is a hundred or a million times their spread; systems of such columns are
singular to rounding, and no solver gets to the end of them. The compiled path centres the copy of
the data that it makes anyway (`compiled_path.segments`); this is for all others.

Nothing is proven about the centred data where entries have been rounded: the answer is certified
on the data as they are. Mostly none is (`Centred.exact`), and the two problems are the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import require
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import TooLarge
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]

FAR = 30.0
"""Features are centred whose mean is so many times their spread. (Absolute losses without a
penalty, 300 x 5: a vertex is found in 10 ms at 0 and at 10, in 130 at 100, never at 100,000.)"""

SAMPLE = 64
"""Rows that tell centre and spread: any point near the data will do, so no pass is made."""

WITHIN = 0.51
"""Of the centre, and its inverse: between them an entry is within a factor 2 of it."""

class Centred(NamedTuple):
    """A problem about the centre of its features: a `cvxscreen.solvers.loop.Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
    free : int
        The coordinate that takes up the shift.
    mean : array, shape (d,)
        The shift, 0 where features are near enough.
    """

    problem: Problem
    equivalent: Problem
    free: int
    mean: Array

    @classmethod
    def of(cls, problem: Problem) -> Centred | None:
        """`problem` centred; None where no feature is far off, or nothing could take it up."""
        design, side = problem.design, problem.side
        if not isinstance(design, Rows) or design.sparse or problem.penalty is not None:
            return None
        if not isinstance(problem.quadratic, Quadratic) or problem.drift or problem.imbalance:
            return None
        held = ~problem.quadratic.untouched
        if held.all():
            return None
        n, p = design.matrix.shape
        at = np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp)
        few = np.hstack([design.matrix[at].astype(np.float64), design.extra[at]])
        if side is not None:
            held = held | (abs(side.matrix).sum(axis=0) > 0)
        free = _intercept(few, held)
        if free is None:
            return None
        rows = few[few[:, free] != 0.0]
        points = np.sort(rows[:, :p] / rows[:, free, None], axis=0)
        centre = points[len(rows) // 2]  # one of them: about it the same rows have the centre 0
        far = (np.abs(centre) > FAR * points.std(axis=0)) & (points[0] < points[-1])
        if not far.any():
            return None
        try:
            require(8 * n * p, "features about their centre", "centre them")
        except TooLarge:
            return None
        centre = np.where(far, centre, 0.0)
        column = design.matrix[:, free] if free < p else design.extra[:, free - p]
        matrix = design.matrix - np.multiply.outer(column.astype(np.float64), centre)
        mean = np.zeros(problem.d)
        mean[:p] = centre
        equivalent = replace(
            problem, design=Rows(matrix, design.scale, design.extra, known=True),
            linear=problem.linear - problem.linear[free] * mean,
        )
        return cls(problem, equivalent, free, mean)

    @property
    def exact(self) -> bool:
        """Whether no entry has been rounded, so that both problems have the same margins.

        Sterbenz (1974): a difference of numbers within a factor 2 of each other is exact.
        """
        design, far = cast(Rows, self.problem.design), np.flatnonzero(self.mean)
        p = design.matrix.shape[1]
        ones = design.extra[:, self.free - p] if self.free >= p else design.matrix[:, self.free]
        if self.problem.linear[self.free] or not (ones == 1.0).all():
            return False
        share = design.matrix[:, far] / self.mean[far]
        return bool(((share > WITHIN) & (share < 1.0 / WITHIN)).all())

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        x = start.x.copy()
        x[self.free] += self.mean @ x
        return Start(x, start.theta, multipliers=start.multipliers)

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`."""
        x = found.x.copy()
        x[self.free] -= self.mean @ x
        return found.carried_to(self.problem, x, found.theta, found.multipliers, tol)


def _intercept(few: Array, held: NDArray[np.bool_]) -> int | None:
    """A coordinate that is not `held`, by squares or constraints, and one number in `few` rows.

    But for its sign, which may be a label's, and for rows of a penalty, which it is not in.
    """
    size = np.abs(few)
    one = size.max(axis=0, initial=0.0)
    found = np.flatnonzero(~held & (one > 0.0) & ((size == one) | (size == 0.0)).all(axis=0))
    return int(found[-1]) if len(found) else None
