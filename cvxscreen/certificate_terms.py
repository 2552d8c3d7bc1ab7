"""The loss terms as a certificate sees them: from their pieces, not from subgradients.

Used by `cvxscreen.certificate` only, which shares nothing with what it judges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem

Array = NDArray[np.float64]

_REFINED = 2000
_EPS = float(np.finfo(np.float64).eps)


def piecewise_value(problem: Problem, t: Array) -> Array:
    """``f_i(t_i)`` from the pieces: distance to the flat part, then parabola, then line."""
    f = problem.losses
    total, curved_anywhere = np.zeros_like(t), bool(f.q.any())
    for side, slope in ((-1.0, -f.lo), (1.0, f.hi)):
        if not slope.any():
            continue
        u = np.maximum(side * (t - f.b) - f.e, 0.0)
        if not curved_anywhere:  # every slope is then finite
            total += slope * u
            continue
        with np.errstate(invalid="ignore"):
            bend = np.where(f.q > 0, f.q * slope, 0.0)
        inner = np.minimum(u, bend)
        curved = np.divide(inner**2, 2.0 * f.q, out=np.zeros_like(u), where=f.q > 0)
        beyond = u - inner
        line = np.where(beyond > 0, np.where(np.isfinite(slope), slope, 0.0) * beyond, 0.0)
        total += np.where(slope > 0, curved + line, 0.0)
    return total


def same_piece(problem: Problem, t: Array, theta: Array, noise: Array) -> NDArray[np.bool_]:
    """Terms whose dual variable is exactly the slope of the linear piece around ``t``."""
    f = problem.losses
    with np.errstate(invalid="ignore"):
        low_end = f.b - f.e + np.where(f.q > 0, f.q * f.lo, 0.0)
        high_end = f.b + f.e + np.where(f.q > 0, f.q * f.hi, 0.0)
    tiny = noise + 8 * _EPS * (np.abs(t) + np.abs(f.b) + f.e)
    low = (theta == f.lo) & (t + tiny <= low_end)
    high = (theta == f.hi) & (t - tiny >= high_end)
    left = (f.lo == 0) | (t - tiny >= f.b - f.e)
    right = (f.hi == 0) | (t + tiny <= f.b + f.e)
    return low | high | ((theta == 0) & left & right)


def blurred(
    problem: Problem, t: Array, theta: Array, values: Array, noise: Array
) -> NDArray[np.intp]:
    """Terms inside their box (some of them), where the rounding of margins matters to the gap.

    At a kink it is multiplied by the whole jump of the slope. None where all of it is less than a
    two-hundredth of the terms themselves.
    """
    inside = (theta > problem.losses.lo) & (theta < problem.losses.hi) & (theta != 0)
    rows = np.flatnonzero(inside)
    f, s = problem.losses.take(rows), theta[rows]
    conjugate = f.b * s + f.e * np.abs(s) + 0.5 * f.q * s**2
    gap = float(np.maximum(values[rows] + conjugate - t[rows] * s, 0.0).sum())
    reach = np.maximum(np.where(np.isfinite(f.lo), -f.lo, np.abs(s)),
                       np.where(np.isfinite(f.hi), f.hi, np.abs(s)))
    return rows[:0] if float(reach @ noise[rows]) <= 0.005 * gap else rows[:_REFINED]
