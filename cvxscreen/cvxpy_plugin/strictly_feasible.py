"""Points inside the side constraints for certain, so that bounds may rest on them.

A solver ends on the boundary, a rounding error inside or outside; no theorem holds for a point
outside. A step towards a strictly feasible point makes up for the rounding: the constraints are
convex, so a small part of the way leaves everything inside, and the duality gap, computed at the
point where the step ends, pays for it. Equalities have no interior; they hold up to rounding, which
the bounds charge (`SideConstraints.nearness`), and the step goes along them.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints

Array = NDArray[np.float64]

ROWS, MATRIX = 20_000, 30
"""Larger side constraints (rows, side of a PSD matrix) are not worth a solve of their own."""


def strictly_feasible_point(side: SideConstraints) -> Array | None:
    """A point well inside `side`, or None where there is none, or none to be found cheaply.

    Parameters
    ----------
    side : SideConstraints

    Returns
    -------
    array, shape (d,), or None
    """
    large = any(kind == "psd" and size > MATRIX for kind, size in side.dims)
    if large or side.matrix.shape[0] > ROWS:
        return None
    x, room = cp.Variable(side.matrix.shape[1]), cp.Variable()
    constraints: list[Any] = [room <= 1.0]
    for kind, size, rows in side.blocks():
        matrix = sp.csc_array(side.matrix[rows])
        value = matrix @ x + side.offset[rows]
        if kind == "zero":
            constraints.append(value == 0)
        elif kind == "nonneg":
            reach = np.sqrt(np.asarray(abs(matrix).power(2).sum(axis=1)).ravel())
            constraints.append(value >= room * np.maximum(reach, 1e-300))
        elif kind == "soc":
            constraints.append(cp.norm(value[1:]) <= value[0] - room)
        else:
            square = cp.reshape(value, (size, size), order="F")
            constraints.append(0.5 * (square + square.T) >> room * np.eye(size))
    problem = cp.Problem(cp.Minimize(1e-3 * cp.sum_squares(x) - room), constraints)
    try:
        problem.solve(solver="CLARABEL")
    except cp.error.SolverError:
        return None
    if x.value is None or room.value is None or not float(room.value) > 1e-8:
        return None
    found = np.asarray(x.value, dtype=np.float64)
    return found if np.isfinite(side.nearness(found)) else None
