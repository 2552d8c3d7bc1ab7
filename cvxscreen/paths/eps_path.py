"""A path on which one point serves for a whole range of C: optimal to a relative eps everywhere.

The solution at ``C_k``, its dual scaled by ``C / C_k``, is a feasible pair at every C; it is within
eps of optimal as long as its duality gap there is small enough, which two numbers of the point
decide (`cvxscreen.screening.c_ranges.eps_interval`; Ogawa et al. 2014, section 4 and (35)). The
next C to solve is where that ends, so the grid follows from eps and from the data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.validation import tolerance
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.paths.run import Run
from cvxscreen.screening.c_ranges import eps_interval

Array = NDArray[np.float64]

EXACT = 0.1
"""Share of eps to which the points themselves are solved at least: a step is the longer the smaller
a point's own gap. Hinge loss on the heart data, C from 0.001 to 100, eps = 0.001: 84 points with
half of eps, 80 with a tenth as with any smaller share."""


def eps_range(problem: Problem, eps: float, ends: Array) -> tuple[float, float]:
    """The first and the last C of an eps-approximate path.

    Raises
    ------
    InvalidInput
        For an `eps` outside (0, 1), other than two `ends`, and for a problem whose scaled dual
        points are not feasible or have no array over the terms.
    """
    tolerance(eps, "eps")
    if len(ends) != 2:
        raise InvalidInput(
            f"`values` has {len(ends)} numbers; with `eps` the grid follows from the data: give "
            "the first and the last C."
        )
    unfit = (
        "side constraints" if problem.side is not None
        else "a penalty" if problem.penalty is not None
        else "data in chunks" if problem.design.streamed
        else "a linear term on an unpenalised coordinate"
        if problem.linear[problem.quadratic.free].any() else ""
    )
    if unfit:
        raise InvalidInput(f"`eps`: a problem with {unfit} has no scaled dual point at another C.")
    return float(ends[0]), float(ends[1])


class EpsRun:
    """Points from the first C to the last, each solved where the one before stops being enough.

    Parameters
    ----------
    run : Run
        Solves a value of C.
    first, last : float
        Upwards or downwards.
    eps : float
    """

    def __init__(self, run: Run, first: float, last: float, eps: float) -> None:
        self.run, self.last, self.eps = run, last, eps
        self.points, self.limits = run.points, run.limits
        self.next, self.ended, self.note = first, False, ""
        self.up = last >= first

    def advance(self, _: Array) -> None:
        """Add the next point with the range of C that it serves; none where the time is up.

        Raises
        ------
        InvalidInput
            Where rounding keeps a point from being accurate enough for any step.
        """
        value, known = self.next, len(self.points)
        self.run.advance(np.array([value]))
        if len(self.points) == known:
            return
        point = self.points[known]
        here = self.run.problem.with_(C=value)
        pair = reference_point(here, point.x, point.theta)
        low, high = eps_interval(here, pair, self.eps)
        reach = high if self.up else low
        if not (reach > value if self.up else reach < value):
            raise InvalidInput(
                f"`eps` is {self.eps:g}; at C = {value:g} the relative gap is "
                f"{point.relative_gap:.1e}, not enough for a step. Give a larger `eps`, or a "
                "smaller `tol`."
            )
        self.points.replace(known, replace(point, serves=(low, high)))
        self.note = f"C={value:.4g}, serves to {reach:.4g}"
        self.ended = reach >= self.last if self.up else reach <= self.last
        self.next = reach
