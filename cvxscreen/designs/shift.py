"""Rows far from 0 beside a coordinate that nothing holds, about a point near them.

``<a_i, x> = <a_i - e_i m, x> + e_i <m, x>``, e the column of that coordinate: the margins of x are
those of the shifted rows where the coordinate is larger by ``<m, x>``, for any fixed m. Only how
short the rows are, and so what rounding costs, depends on m.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import has_room
from cvxscreen.designs.protocols import Design
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]

FAR = 30.0
"""Features are centred whose mean is so many times their spread. (Absolute losses without a
penalty, 300 x 5: a vertex is found in 10 ms at 0 and at 10, in 130 at 100, never at 100,000.)"""

SAMPLE = 64
"""Rows that tell centre and spread: any point near the data will do, so no pass is made."""

ALIKE = 20.0
"""The eigenvalue of the products of rows that their centre makes, as a multiple of the mean of the
others, from which on it is taken out. (Coordinate descent, C = 0.01, of the time without, a centre
of 0.2, 0.3 and 0.5 spreads: 1,000 x 500 0.8 to 1.2, 0.2 to 0.8 and 0.4 to 0.9, 5,000 x 200 1.0 to
1.2, 1.0 to 1.1 and 0.4 to 1.0, 400 x 80 1.2 to 1.3, 1.1 to 1.3 and 1.0 to 1.2: 0.2 ms.)"""


class Shift(NamedTuple):
    """A point near rows that are far from 0, and the coordinate that takes it up.

    Attributes
    ----------
    design : Rows
    free : int
        The coordinate that takes up the shift.
    mean : array, shape (d,)
        The shift, 0 where features are near enough.
    """

    design: Rows
    free: int
    mean: Array

    @classmethod
    def of(cls, design: Design, held: NDArray[np.bool_]) -> Shift | None:
        """That of dense rows; None where no feature is far off, or nothing could take it up.

        `held` masks the coordinates that squares, constraints or a penalty know of.
        """
        if not isinstance(design, Rows) or design.sparse or held.all():
            return None
        n, p = design.matrix.shape
        at = np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp)
        few = np.zeros((len(at), design.shape[1]))
        few[:, :p], few[:, p:design.stored] = design.matrix[at], design.beside[at]
        free = _intercept(few, held)
        if free is None:
            return None
        rows = few[few[:, free] != 0.0]
        points = np.sort(rows[:, :p] / rows[:, free, None], axis=0)
        centre = points[len(rows) // 2]  # one of them: about it the same rows have the centre 0
        far = (np.abs(centre) > FAR * points.std(axis=0)) & (points[0] < points[-1])
        if not far.any() or not has_room(8 * n * p):
            return None
        mean = np.zeros(design.shape[1])
        mean[:p] = np.where(far, centre, 0.0)
        return cls(design, free, mean)

    @classmethod
    def shortest(cls, design: Design, column: Array, free: int) -> Shift | None:
        """The one that makes dense rows the shortest; None where their centre is near 0 already.

        `column` is that of `free`, with the factors of the rows.
        """
        if not isinstance(design, Rows) or design.sparse:
            return None
        n, p = design.matrix.shape
        left = left_about_centre(design, column, free)
        if not min(n, p) * (1.0 - left) > ALIKE * left or not has_room(8 * n * p):
            return None
        mean = design.adjoint(column) / float(column @ column)
        mean[free], mean[p:] = 0.0, 0.0
        return cls(design, free, mean)

    @property
    def ones(self) -> Array:
        """The column of `free`, without the factors of the rows, shape (n,)."""
        matrix, p = self.design.matrix, self.design.matrix.shape[1]
        column = matrix[:, self.free] if self.free < p else self.design.beside[:, self.free - p]
        return column.astype(np.float64)

    def rows(self, roundings: int = 0) -> Rows:
        """The shifted rows: a copy in double precision. `roundings` is handed on to them."""
        design, p = self.design, self.design.matrix.shape[1]
        ones, mean = self.ones, self.mean[:p]
        even = bool((ones == 1.0).all())
        matrix = design.matrix - (mean if even else np.multiply.outer(ones, mean))
        return Rows(
            matrix, design.scale, design.beside, known=True, roundings=roundings,
            absent=design.absent,
        )


def left_about_centre(design: Rows, column: Array, free: int) -> float:
    """The share of the squares of dense rows that their centre leaves, by some of them.

    1 where it is that of rows about 0, whose sample has a centre of its own.
    """
    n, p = design.matrix.shape
    at = slice(0, n, -(-n // SAMPLE) or 1)
    few, e = design.matrix[at].astype(np.float64), column[at]
    if len(e) < 2:
        return 1.0
    if design.scale is not None:
        few *= design.scale[at, None]
    if free < p:
        few[:, free] = 0.0
    size, squares = float(e @ e), float(np.vdot(few, few))
    if not (size > 0.0 and 0.0 < squares < np.inf):
        return 1.0
    pull = e @ few
    taken = float(pull @ pull) / size
    # What is left of squares of k rows about their own centre is (k - 1) / k of that about 0.
    return min((squares - taken) / squares * len(e) / (len(e) - 1), 1.0)


def _intercept(few: Array, held: NDArray[np.bool_]) -> int | None:
    """A coordinate that is not `held`, by squares or constraints, and one number in `few` rows.

    But for its sign, which may be a label's, and for rows of a penalty, which it is not in.
    """
    size = np.abs(few)
    one = size.max(axis=0, initial=0.0)
    found = np.flatnonzero(~held & (one > 0.0) & ((size == one) | (size == 0.0)).all(axis=0))
    return int(found[-1]) if len(found) else None
