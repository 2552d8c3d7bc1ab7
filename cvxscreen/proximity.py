"""What a penalty adds to the gap, by formulas of its own; serves the certificate only.

With ``g(x) = 1/2 <x, M x> + h(x)`` and ``v = -A' theta - q`` the regulariser's Fenchel-Young term
``g(x) + g*(v) - <v, x>`` is ``1/2 ||x - x_v||_M^2`` plus a non-negative rest, ``x_v`` the maximiser
in ``g*(v)``. A matrix is accepted as positive semidefinite if it is so up to the rounding of its
eigenvalues; the distance of a true member of the cone is then charged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.penalty import L1, PSD, NonNegative
from cvxscreen.problem import Problem

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Proximity:
    """The parts of the regulariser's Fenchel-Young term.

    Attributes
    ----------
    x_dual : array, shape (d,)
        ``x_v``, within `dual_blur` (Euclidean) of one that belongs to a feasible dual point.
    rest : float
        Upper bound of the term without ``1/2 ||x - x_v||_M^2``.
    blur, dual_blur : float
        Euclidean distance of x from a point surely in the domain; the same for ``M x_v``.
    outside : str
        Why x is refused; empty if it is in the domain.
    """

    x_dual: Array
    rest: float
    blur: float = 0.0
    dual_blur: float = 0.0
    outside: str = ""


def proximity(problem: Problem, x: Array, v: Array) -> Proximity:
    """The regulariser's Fenchel-Young term of `problem` at ``(x, v)``.

    Raises
    ------
    InvalidInput
        For a penalty it does not know: no certificate without a formula of its own.
    """
    penalty, diagonal = problem.penalty, problem.quadratic.diagonal
    if isinstance(penalty, L1):
        return _l1(penalty.kappa, diagonal, x, v)
    if isinstance(penalty, NonNegative):
        outside = f"x has a negative entry, {x.min():.3g}" if (x < 0).any() else ""
        pushed = np.where(v > 0, v, 0.0)
        rest = float(np.sum(np.where(v < 0, x * np.abs(v), 0.0))) * (1 + 4 * len(x) * _EPS)
        return Proximity(pushed / diagonal, rest, outside=outside)
    if isinstance(penalty, PSD):
        return _psd(penalty.side, float(diagonal[0]), x, v)
    raise InvalidInput(f"`penalty` {penalty!r} is not known to the certificate.")


def _l1(kappa: Array, diagonal: Array, x: Array, v: Array) -> Proximity:
    beyond = np.abs(v) - kappa
    bent = diagonal > 0
    x_dual = x.copy()
    x_dual[bent] = np.where(
        beyond[bent] > 0, np.sign(v[bent]) * beyond[bent] / diagonal[bent], 0.0
    )
    aligned = v * np.sign(x)
    inner = np.where(np.abs(v) <= kappa, kappa - aligned, np.where(aligned < 0, 2.0 * kappa, 0.0))
    rest = float(np.sum(np.abs(x[bent]) * inner[bent])) * (1 + 4 * len(x) * _EPS)
    return Proximity(x_dual, rest)


def _psd(side: int, weight: float, x: Array, v: Array) -> Proximity:
    square, force = x.reshape(side, side), v.reshape(side, side)
    if not np.array_equal(square, square.T):
        return Proximity(np.zeros_like(x), np.inf, outside="x is not a symmetric matrix")
    values = np.linalg.eigvalsh(square)
    blur = 32.0 * side * _EPS * float(np.abs(values).max(initial=0.0))
    outside = ""
    if side and values[0] < -blur:
        outside = f"x is not positive semidefinite: smallest eigenvalue {values[0]:.3g}"
    force = 0.5 * (force + force.T)
    levels, frame = np.linalg.eigh(force)
    lifted = np.maximum(levels, 0.0)
    pushed = (frame * lifted) @ frame.T
    pushed = 0.5 * (pushed + pushed.T)
    dual_blur = 32.0 * side * _EPS * float(np.abs(levels).max(initial=0.0))
    pressed = pushed - force  # -s, up to dual_blur
    product = square.astype(np.longdouble) * pressed
    rounding = 4.0 * side**2 * float(np.finfo(np.longdouble).eps) * float(np.abs(product).sum())
    rest = max(float(product.sum()), 0.0) + rounding
    rest += blur * (float(np.trace(np.abs(pressed))) + side * dual_blur)
    rest += dual_blur * float(np.trace(np.abs(square)))
    root = float(np.sqrt(side))
    return Proximity(pushed.ravel() / weight, rest, root * blur, root * dual_blur, outside)
