"""The loss terms as a certificate sees them: from their pieces, not from subgradients.

Used by certificates only, which share nothing with what they judge. `value_above` and `gap_above`
are written without branches over numbers *or* arrays, so that the certificate of one point (numpy)
and that of a whole path (compiled) are the same formulas.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.compiling import Loop, together
from cvxscreen.problem import Problem

Array = NDArray[np.float64]

_REFINED = 2000
_MANY = 10_000
"""Terms from which on `gap_above` is compiled, by a process that has numba loaded anyway."""
EPS = float(np.finfo(np.float64).eps)


def steepness(q: Any) -> Any:
    """``1 / (2 q)``; a huge number, only ever multiplied by 0, where ``q = 0``."""
    return 0.5 / np.maximum(q, 1e-300)


def value_above(t: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any, steep: Any) -> Any:
    """``f(t)`` from the pieces: distance to the flat part, then parabola, then line.

    `steep` is ``steepness(q)``.
    """
    total = 0.0 * t
    for distance, slope in ((b - e - t, -lo), (t - b - e, hi)):
        u = np.maximum(distance, 0.0)
        inner = np.minimum(u, q * slope)
        # Beyond the parabola, where the slope is finite; the minimum only keeps 0 * inf away.
        total = total + inner * inner * steep + np.minimum(slope, 1e300) * (u - inner)
    return total


def gap_above(
    t: Any, theta: Any, noise: Any, value: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any
) -> Any:
    """``f(t) + f*(theta) - t theta`` and what rounding can hide, margins within `noise` of `t`.

    Rounding is charged only where the term is not plainly zero: where theta sits at the slope of
    the linear piece that t is on, the three parts cancel identically.
    """
    product = t * theta
    conjugate = b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
    size = value + np.abs(conjugate) + np.abs(product)
    # The steepest slope, |theta| in place of an infinite one.
    steep = np.maximum(np.minimum(-lo, np.abs(theta) + 1e300 * (lo > -1e300)),
                       np.minimum(hi, np.abs(theta) + 1e300 * (hi < 1e300)))
    fy = np.maximum(value + conjugate - product, 0.0)
    tiny = noise + 8.0 * EPS * (np.abs(t) + np.abs(b) + e)
    low = (theta == lo) & (t + tiny <= b - e + q * lo)
    high = (theta == hi) & (t - tiny >= b + e + q * hi)
    left = (lo == 0.0) | (t - tiny >= b - e)
    right = (hi == 0.0) | (t + tiny <= b + e)
    same_piece = low | high | ((theta == 0.0) & left & right)
    settled = same_piece & (fy <= 16.0 * EPS * size)
    return (1.0 - settled) * (fy + 16.0 * EPS * size + 2.0 * steep * noise)


def each_above(  # type: ignore[no-untyped-def]
    t, theta, noise, value, b, e, q, lo, hi, out,
):
    """`gap_above` of every term, to `out`."""
    for i in range(t.size):
        out[i] = gap_above(
            t[i], theta[i], noise[i], value[i], b[i], e[i], q[i], lo[i], hi[i]
        )


@lru_cache(maxsize=1)
def _compiled() -> Loop | None:
    """`each_above`, compiled; None without numba."""
    strict = frozenset[str]()
    found = together(globals(), (("gap_above", strict), ("each_above", strict)))
    return None if found is None else found["each_above"]


def gaps_above(t: Array, theta: Array, noise: Array, value: Array, losses: Any) -> Array:
    """`gap_above` of all terms, shape (n,)."""
    loop = _compiled() if len(t) >= _MANY and "numba" in sys.modules else None
    if loop is None:
        return np.asarray(gap_above(t, theta, noise, value, *columns(losses)))
    out = np.empty(len(t))
    loop(t, theta, noise, value, *columns(losses), out)
    return out


def endless_above(value: Any, noise: Any, q: Any, lo: Any, hi: Any) -> Any:
    """What the rounding of a margin hides beyond `gap_above` where a slope is unbounded.

    That is charged with ``|theta|`` for the slope; the loss's own, ``sqrt(2 f / q)``, and how it
    grows over the noise come on top. 0 where both slopes are bounded.
    """
    endless = (lo < -1e300) | (hi > 1e300)
    bend = q + (1.0 - endless)
    return endless * noise * (np.sqrt(2.0 * value / bend) + noise / bend)


def columns(losses: Any) -> tuple[Any, ...]:
    """``b, e, q, lo, hi``."""
    return losses.b, losses.e, losses.q, losses.lo, losses.hi


def piecewise_value(problem: Problem, t: Array) -> Array:
    """``f_i(t_i)``, shape (n,); `value_above` where a loss has a parabola, else its lines alone."""
    f = problem.losses
    if f.q.any():
        return np.asarray(value_above(t, f.b, f.e, f.q, f.lo, f.hi, steepness(f.q)))
    total = np.zeros_like(t)
    for side, slope in ((-1.0, -f.lo), (1.0, f.hi)):
        if slope.any():
            total += slope * np.maximum(side * (t - f.b) - f.e, 0.0)
    return total


def blurred(
    problem: Problem, t: Array, theta: Array, values: Array, noise: Array, least: float = 0.0
) -> NDArray[np.intp]:
    """Terms inside their box (some of them), where the rounding of margins matters to the gap.

    At a kink it is multiplied by the whole jump of the slope. None where all of it is less than a
    two-hundredth of the terms themselves, or than `least` (it is charged all the same).
    """
    inside = (theta > problem.losses.lo) & (theta < problem.losses.hi) & (theta != 0)
    rows = np.flatnonzero(inside)
    s, (b, e, q, lo, hi) = theta[rows], (column[rows] for column in columns(problem.losses))
    conjugate = b * s + e * np.abs(s) + 0.5 * q * s**2
    gap = float(np.maximum(values[rows] + conjugate - t[rows] * s, 0.0).sum())
    reach = np.maximum(np.where(np.isfinite(lo), -lo, np.abs(s)),
                       np.where(np.isfinite(hi), hi, np.abs(s)))
    blur = float(reach @ noise[rows])
    return rows[:0] if blur <= max(0.005 * gap, least) else rows[:_REFINED]
