"""The support function of two balls, or of a ball and a half-space, through their pencil.

Where ``||x - c2||^2 <= r2^2`` and a second inequality of the same kind (a ball) or a linear one (a
half-space) hold, every combination of the two with non-negative weights holds: a ball with centre
``c + y u`` and squared radius ``a0 + a1 y + a2 y^2``, for ``0 <= y <= top``. The best of these is
exact for a linear functional (Lagrangian duality; Ogawa et al. 2014, Theorem 8; Wang et al. 2014,
Lemma 20). Each one is valid, so `y` may be computed carelessly: only the ball itself is rounded.

Worked instances. Two balls: ``c = c2``, ``u = c1 - c2``, ``y`` in [0, 1], ``a0 = r2^2``,
``a0 + a1 + a2 = r1^2``, ``a2 = ||u||^2``. A half-space ``<v, x> >= delta``: ``u = v``, ``y >= 0``,
``a0 = r^2``, ``a1 = -2 (delta - <v, c>)``, ``a2 = ||v||^2``. A nested or tangent ball: the end of
the range of ``y`` wins, with no case for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.rounding import UNIT

Array = NDArray[np.float64]
Values = tuple[Array, Array]

_LARGE = 1e7


@dataclass(frozen=True, eq=False)
class Pencil:
    """Balls with squared radius ``a0 + a1 y + a2 y^2``, ``0 <= y <= top``, all valid.

    Attributes
    ----------
    a0, a1, a2 : float
        Rounded so that the squared radius is not underestimated.
    end : float or None
        The squared radius at ``y = 1`` where that is the top (two balls); None for a half-space,
        whose balls grow without bound.
    """

    a0: float
    a1: float
    a2: float
    end: float | None = None

    @property
    def top(self) -> float:
        """The largest y."""
        return float("inf") if self.end is None else 1.0

    def radius(self, y: Array) -> Array:
        """Radius at `y`, rounded outward; at the ends with no cancellation at all."""
        if self.end is None:
            square = self.a0 + y * (self.a1 + y * self.a2)
            size = self.a0 + y * abs(self.a1) + y * y * self.a2
        else:
            rest = 1.0 - y
            outer, bend = rest * self.a0 + y * self.end, y * rest * self.a2
            square, size = outer - bend, outer + bend
        return np.sqrt(np.maximum(square, 0.0) + 8.0 * UNIT * size) * (1.0 + 4.0 * UNIT)

    @property
    def narrowest(self) -> float:
        """The ``y`` of the smallest ball."""
        if self.a2 <= 0.0:
            return 1.0 if self.end is not None and self.end < self.a0 else 0.0
        return float(np.clip(-0.5 * self.a1 / self.a2, 0.0, self.top))

    @property
    def smallest(self) -> float:
        """Radius of the smallest ball, rounded outward."""
        ends = [0.0, self.narrowest] if self.end is None else [0.0, self.narrowest, 1.0]
        return float(self.radius(np.array(ends)).min())

    def upper(self, start: Values, other: Values, norms: Array) -> Array:
        """The largest value of every functional over all of the region.

        Parameters
        ----------
        start : tuple of arrays (n,)
            Values at ``c`` and bounds of their errors.
        other : tuple of arrays (n,)
            The same at the centre for ``y = 1`` (two balls) or at ``u`` (a half-space).
        norms : array, shape (n,)
            Upper bounds of the functionals' norms.
        """
        (first, first_error), (second, second_error) = start, other

        def value(y: Array) -> Array:
            rest = np.ones_like(y) if self.end is None else 1.0 - y
            middle = rest * first + y * second
            slack = rest * first_error + y * second_error + norms * self.radius(y)
            return middle + slack + 4.0 * UNIT * (rest * np.abs(first) + y * np.abs(second) + slack)

        rate = second if self.end is None else second - first
        zero = np.zeros_like(first)
        best = value(zero)
        if self.end is not None:
            best = np.minimum(best, value(zero + 1.0))
        if self.a2 <= 0.0:
            return best
        span = float(np.sqrt(self.a2))
        zeta, along = -0.5 * self.a1 / span, rate / span
        kappa = float(np.sqrt(max(self.a0 - zeta**2, 0.0)))
        across = np.sqrt(np.maximum(norms**2 - along**2, 0.0))
        # d/dy (along y + norm sqrt((y - zeta)^2 + kappa^2)) = 0, in units of ||u||.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            stationary = zeta - along * kappa / across
        stationary = np.where(np.isnan(stationary), zeta, stationary) / span
        # Where the best ball is infinitely large, one this large is as good up to rounding.
        limit = min(self.top, (abs(zeta) + _LARGE * float(np.sqrt(self.a0))) / span)
        for y in (np.clip(stationary, 0.0, limit), zero + self.narrowest):
            best = np.minimum(best, value(y))
        return best

    def spans(self, start: Values, other: Values, norms: Array) -> tuple[Array, Array]:
        """The range of every functional, rounded outward; parameters as in `upper`."""
        low = -self.upper((-start[0], start[1]), (-other[0], other[1]), norms)
        return low, self.upper(start, other, norms)
