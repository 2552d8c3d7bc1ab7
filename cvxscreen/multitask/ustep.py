"""One task at a fixed metric: a support vector machine's dual by active sets, started warm.

::

    minimise over u, b    sum_i f_i(<x_i, u> + b) + 1/2 (u - centre)' B^{-1} (u - centre)

With ``theta_i`` the slope of ``f_i``, ``u = centre - B X' theta`` and ``sum theta = 0``. A face is
the set of terms whose slope may move; a Newton step on it ends at its minimiser or where a slope
meets a bound and leaves the face, and then the terms that violate optimality most enter. Where many
violate (a cold start), a block of them is first brought near its optimum by pairs of coordinates.
Between the metrics of neighbouring outer iterations one to three faces are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Losses
from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.task_face import Face

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class TaskPoint:
    """Where one task stands.

    Attributes
    ----------
    theta : array, shape (n,)
        Slopes in their boxes, summing to 0.
    v : array, shape (d,)
        ``-X' theta``.
    u : array, shape (d,)
    b : float
    p : array, shape (n,)
        Predictions ``X u + b``; of the samples at `kept` alone where that is given.
    faces : int
        Newton steps it took.
    kept : array of int, optional
        The samples that were free to move, where not all were.
    """

    theta: Array
    v: Array
    u: Array
    b: float
    p: Array
    faces: int = 0
    kept: Index | None = None


@dataclass(frozen=True, eq=False)
class Fixed:
    """What does not move: all but the terms at `kept`.

    Attributes
    ----------
    kept : array of int
    rows : array, shape (len(kept), d)
        Their features.
    table : five arrays, shape (len(kept),)
        Their losses, ``b, e, q, lo, hi``.
    """

    kept: Index
    rows: Array
    table: tuple[Array, ...]


def cold(X: Array) -> TaskPoint:
    """All zero."""
    n, d = X.shape
    return TaskPoint(np.zeros(n), np.zeros(d), np.zeros(d), 0.0, np.zeros(n))


def solve_task(
    X: Array,
    losses: Losses,
    metric: Metric,
    start: TaskPoint,
    *,
    centre: Array | None = None,
    fixed: Fixed | None = None,
) -> TaskPoint:
    """The minimiser, to rounding.

    Parameters
    ----------
    X : array, shape (n, d)
    losses : Losses
        In the prediction ``<x_i, u> + b``.
    metric : Metric
        Its ``B`` is the one above.
    start : TaskPoint
        Its ``theta`` and ``b`` are used.
    centre : array, shape (d,), optional
        Zero when omitted.
    fixed : Fixed, optional
        Terms that hold the slopes they have in `start`.
    """
    B = metric.B
    if fixed is None:
        table = (losses.b, losses.e, losses.q, losses.lo, losses.hi)
        base = np.zeros(X.shape[1]) if centre is None else centre
        face = Face(X, table, metric, base, 0.0, start.theta, start.b)
        face.run()
        return TaskPoint(face.theta, face.v, face.u, face.b, face.p + face.b, face.faces)
    kept, rows, theta = fixed.kept, fixed.rows, start.theta.copy()
    mine = theta[kept]
    held = start.v + mine @ rows  # -X' theta of the terms that stay where they are
    base = B @ held if centre is None else centre + B @ held
    total = float(mine.sum() - theta.sum())  # so that rounding does not add up
    face = Face(rows, fixed.table, metric, base, total, mine, start.b)
    face.run()
    theta[kept] = face.theta
    return TaskPoint(
        theta, held + face.v, face.u, face.b, face.p + face.b, face.faces, kept
    )
