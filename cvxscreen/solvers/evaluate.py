"""An answer of a solver as a point of the problem, with its certificate where that is at hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate import Certificate, Passes, certify
from cvxscreen.duality import Point, reference_point
from cvxscreen.problem import Problem

Array = NDArray[np.float64]


def evaluated(
    problem: Problem, x: Array, theta: Array, multipliers: Array, tol: float | None
) -> tuple[Point, Certificate | None]:
    """``(x, theta)`` as a point; with a `tol` its certificate comes first, and its passes serve.

    The certificate takes nothing from the solver or the point; the point takes over the two
    products that the certificate has computed. None if the point is not that very pair.
    """
    if tol is None or problem.penalty is not None:
        return reference_point(problem, x, theta, multipliers), None
    passes = Passes()
    proof = certify(problem, x, theta, multipliers, tol=tol, passes=passes)
    known = None
    if passes.margins is not None and passes.force is not None:
        known = passes.margins, passes.force
    point = reference_point(problem, x, theta, multipliers, known=known)
    same = np.array_equal(point.theta, theta) and np.array_equal(point.x, x)
    return point, proof if same else None
