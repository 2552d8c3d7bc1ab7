"""A first point for metric learning written in CVXPY: one PSD matrix, its squared Frobenius norm.

A conic solver needs long for many triplets, accelerated proximal gradient on the same problem with
its kinks slightly smoothed does not: a step is one pass over the data and one eigendecomposition.
The point it ends with is only a reference to screen and to predict from; what it is worth is
measured by its gap on the problem itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import PSD
from cvxscreen.core.problem import Problem
from cvxscreen.core.quadratic import Quadratic
from cvxscreen.cvxpy_plugin.recognise.matrices import gathered
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import CvxscreenError
from cvxscreen.solvers.apg import Apg
from cvxscreen.solvers.interface import Start

Array = NDArray[np.float64]

FEW, LARGE = 1000, 40_000_000
"""Fewer terms are left to the solver; more entries of data are not written out in full."""

WIDTH = 0.001
"""Kinks are smoothed over this width, relative to where they are."""

GAP = 3e-6
"""Gap asked for, relative to the objective at 0."""

STEPS = 600


def metric_start(problem: Problem) -> Start | None:
    """A start for `problem`, or None where it is no metric learning or too small to need one.

    Parameters
    ----------
    problem : Problem
        With one PSD constraint whose entries are the coordinates, each once or twice.
    """
    side, quadratic = problem.side, problem.quadratic
    if side is None or len(side.dims) != 1 or side.dims[0][0] != "psd" or problem.n < FEW:
        return None
    size = int(side.dims[0][1])
    frame = sp.csr_array(side.matrix)
    single = (np.diff(frame.indptr) == 1).all() and (frame.data == 1.0).all()
    plain = isinstance(quadratic, Quadratic) and quadratic.matrix is None
    if not (single and plain) or side.offset.any() or problem.n * size**2 > LARGE:
        return None
    times = np.bincount(frame.indices, minlength=problem.d).astype(np.float64)
    if (times == 0).any() or (quadratic.diagonal == 0).any():
        return None
    weight = quadratic.diagonal / times
    if np.ptp(weight) > 1e-12 * weight.max() or not isinstance(problem.design, Rows):
        return None
    try:
        return _solved(problem, frame, times, float(weight[0]), size)
    except (CvxscreenError, np.linalg.LinAlgError):
        return None


def _solved(problem: Problem, frame: Any, times: Array, weight: float, size: int) -> Start | None:
    """The smoothed problem over all entries of the matrix, solved and brought back."""
    spread = sp.csr_array(frame @ sp.diags_array(1.0 / times))
    design = problem.design
    if design.sparse:
        rows = design.rows_csr(np.arange(problem.n))
        entries = np.asarray((spread @ rows.T).T.toarray())
    else:
        entries = gathered(design.dense(), sp.csc_array(spread.T))
    losses = problem.losses
    steepest = np.maximum(
        np.where(np.isfinite(losses.lo), -losses.lo, 0.0),
        np.where(np.isfinite(losses.hi), losses.hi, 0.0),
    )
    where = float(np.median(np.abs(losses.b) + losses.e)) or 1.0
    soft = WIDTH * where / np.where(steepest > 0, steepest, 1.0)
    q = np.where(losses.q > 0, losses.q, soft)
    whole = Problem(
        design=Rows(entries),
        losses=Losses(losses.b, losses.e, q, losses.lo, losses.hi),
        quadratic=Quadratic(np.full(size**2, weight)),
        linear=np.asarray(spread @ problem.linear),
        penalty=PSD(size),
    )
    target = GAP * abs(whole.primal(np.zeros(size**2)))
    found = Apg(max_iterations=STEPS, check=25)(whole, None, target)
    if not found.usable:
        return None
    point = reference_point(whole, found.x, found.theta)
    x = np.asarray(spread.T @ found.x)
    well = np.asarray(spread.T @ np.eye(size).ravel()) * max(float(np.abs(x).max()), 1e-300)
    if problem.side is not None:
        x = problem.side.moved_inside(x, x + well)  # so that proofs may rest on it
    return Start(x, found.theta, None, -point.penalty_subgradient)
