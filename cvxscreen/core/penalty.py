"""Non-smooth parts of the regulariser: the L1 norm, and the indicators of two cones.

With ``h`` beside ``1/2 <x, M x>`` every dual point has a second part ``s`` in the domain of ``h*``,
and the gap one more non-negative term (Fenchel and Young; ``docs/theory.md``, section 1)::

    P(x) - D(theta, s) = 1/2 ||x - x_theta||_M^2 + sum_i FY_i(t_i, theta_i) + h(x) + h*(s) - <s, x>
    v = -A' theta - q,    x_theta = M^{-1} (v - s)

``h*`` is 0 on its domain for all three, so `prox_and_subgradient` only has to return an ``s`` that
lies in it for certain; the best one makes ``x_theta`` the proximal point of ``v``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]

_LONG = float(np.finfo(np.longdouble).eps)


class Penalty(Protocol):
    """A closed convex ``h`` with ``h(0) = 0`` whose conjugate is 0 wherever it is finite."""

    @property
    def name(self) -> str:
        """What to call it in tables."""
        ...

    def fits(self, diagonal: Array) -> str:
        """Why it cannot stand beside ``M = diag(diagonal)``; empty if it can."""
        ...

    def value(self, x: ArrayLike) -> float:
        """``h(x)`` for x in the domain."""
        ...

    def project(self, x: ArrayLike) -> Array:
        """The nearest point that lies in the domain of h for certain."""
        ...

    def prox_and_subgradient(self, v: ArrayLike, diagonal: Array) -> tuple[Array, Array]:
        """``(x_theta, s)``: the minimiser of ``1/2 <x, M x> - <v, x> + h(x)`` and ``v - M x``."""
        ...

    def fenchel_gap(self, x: ArrayLike, s: ArrayLike) -> float:
        """Upper bound of ``h(x) - <s, x>`` for x and s in their domains, rounding included."""
        ...

    def scaled(self, factor: float) -> Penalty:
        """``factor * h``."""
        ...

    def take(self, index: NDArray[np.intp]) -> Penalty:
        """The function with all coordinates but those at `index` put to 0."""
        ...


class L1(Immutable):
    """``sum_j kappa_j |x_j|``.

    Parameters
    ----------
    kappa : array_like, shape (d,)
        Non-negative; 0 on unpenalised coordinates.
    """

    kappa: Array
    name: str = "L1"

    def __post_init__(self) -> None:
        kappa = np.array(self.kappa, dtype=np.float64)
        if kappa.ndim != 1 or not np.isfinite(kappa).all() or (kappa < 0).any():
            raise InvalidInput("`kappa` must be a vector of finite, non-negative numbers.")
        object.__setattr__(self, "kappa", kappa)

    def fits(self, diagonal: Array) -> str:
        """One weight a coordinate; none on an unpenalised one."""
        if self.kappa.shape != diagonal.shape:
            return f"`kappa` has {len(self.kappa)} entries for {len(diagonal)} coordinates"
        if (self.kappa[diagonal == 0.0] > 0).any():
            return "`kappa` is positive on a coordinate without a quadratic term"
        return ""

    def value(self, x: ArrayLike) -> float:
        """``sum_j kappa_j |x_j|``."""
        return float(self.kappa @ np.abs(np.asarray(x, dtype=np.float64)))

    def project(self, x: ArrayLike) -> Array:
        """`x` itself: every point is in the domain."""
        return np.array(x, dtype=np.float64)

    def prox_and_subgradient(self, v: ArrayLike, diagonal: Array) -> tuple[Array, Array]:
        """Soft thresholding; s is v clipped into the box ``[-kappa, kappa]``."""
        v = np.asarray(v, dtype=np.float64)
        s = np.clip(v, -self.kappa, self.kappa)
        return _divide(v - s, diagonal), s

    def fenchel_gap(self, x: ArrayLike, s: ArrayLike) -> float:
        """``sum_j |x_j| (kappa_j - s_j sign(x_j))``, every term non-negative."""
        x, s = np.asarray(x, dtype=np.float64), np.asarray(s, dtype=np.float64)
        room = np.where(x >= 0, self.kappa - s, self.kappa + s)
        return up(float(np.abs(x) @ np.maximum(room, 0.0)), len(x) + 8)

    def vanishing(
        self, low: Array, high: Array, *, strict: bool = False
    ) -> NDArray[np.bool_]:
        """Coordinates that are 0 at the optimum if v* lies in ``[low, high]``, shape (d,).

        ``|v_j| <= kappa_j`` is enough where M_jj > 0 (Shibagaki et al. 2016, (7)); without a
        quadratic term it must be less (`strict`; Ndiaye et al. 2017).
        """
        if strict:
            return (low > -self.kappa) & (high < self.kappa)
        return (self.kappa > 0) & (low >= -self.kappa) & (high <= self.kappa)

    def needed(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Coordinates that are surely not 0 then (Theorem 10, its rule put right), shape (d,)."""
        return (low > self.kappa) | (high < -self.kappa)

    def scaled(self, factor: float) -> L1:
        """The norm with its weights times `factor`."""
        return L1(factor * self.kappa)

    def take(self, index: NDArray[np.intp]) -> L1:
        """The norm of the coordinates at `index`."""
        return L1(self.kappa[index])


class NonNegative(Immutable):
    """The indicator of ``x >= 0`` (a diagonal metric)."""

    name: str = "x >= 0"

    def fits(self, diagonal: Array) -> str:
        """A quadratic term on every coordinate."""
        return "" if (diagonal > 0).all() else "`x >= 0` needs a quadratic term everywhere"

    def value(self, x: ArrayLike) -> float:
        """0, as x is in the cone."""
        return 0.0

    def project(self, x: ArrayLike) -> Array:
        """`x` with 0 in place of its negative entries."""
        return np.maximum(np.asarray(x, dtype=np.float64), 0.0)

    def prox_and_subgradient(self, v: ArrayLike, diagonal: Array) -> tuple[Array, Array]:
        """The positive and the negative part of v."""
        v = np.asarray(v, dtype=np.float64)
        return _divide(np.maximum(v, 0.0), diagonal), np.minimum(v, 0.0)

    def fenchel_gap(self, x: ArrayLike, s: ArrayLike) -> float:
        """``-<s, x>``, every term non-negative."""
        x, s = np.asarray(x, dtype=np.float64), np.asarray(s, dtype=np.float64)
        return up(float(x @ -s), len(x) + 8)

    def scaled(self, factor: float) -> NonNegative:
        """Itself: a multiple of an indicator is that indicator."""
        return self

    def take(self, index: NDArray[np.intp]) -> NonNegative:
        """Itself: fewer coordinates are held as these are."""
        return self


class PSD(Immutable):
    """The indicator of the positive semidefinite matrices.

    Coordinates are all ``side * side`` entries of a symmetric matrix in row order, so the Euclidean
    norm of x is the Frobenius norm of the matrix; M must be a multiple of the identity.

    Points are rounded into the cone: a sum of squares plus a multiple of the identity as large as
    its rounding error, so that what is stored is positive semidefinite, not only nearly.
    """

    side: int
    name: str = "PSD"

    def fits(self, diagonal: Array) -> str:
        """``side**2`` coordinates with one and the same positive weight."""
        if len(diagonal) != self.side**2:
            return f"`side` {self.side} asks for {self.side**2} coordinates, not {len(diagonal)}"
        if not (diagonal[0] > 0 and (diagonal == diagonal[0]).all()):
            return "a PSD cone needs a quadratic term that is a multiple of the identity"
        return ""

    def value(self, x: ArrayLike) -> float:
        """0, as x is in the cone."""
        return 0.0

    def project(self, x: ArrayLike) -> Array:
        """The projection onto the cone, rounded into it."""
        values, vectors = self._eigen(x)
        return self._inside(values, vectors)

    def prox_and_subgradient(self, v: ArrayLike, diagonal: Array) -> tuple[Array, Array]:
        """The positive and the negative part of v (the latter rounded into the cone)."""
        v = self._symmetric(v).ravel()
        values, vectors = self._eigen(v)
        s = -self._inside(-values, vectors)
        return (v - s) / diagonal, s

    def fenchel_gap(self, x: ArrayLike, s: ArrayLike) -> float:
        """``-<s, x>``, summed in extended precision."""
        x, s = np.asarray(x, dtype=np.longdouble), np.asarray(s, dtype=np.longdouble)
        products = -(x * s)
        error = 2.0 * len(x) * _LONG * float(np.abs(products).sum())
        return up(max(float(products.sum()), 0.0) + error)

    def scaled(self, factor: float) -> PSD:
        """Itself: a multiple of an indicator is that indicator."""
        return self

    def take(self, index: NDArray[np.intp]) -> PSD:
        """Itself; single entries of a matrix cannot be left out."""
        if len(index) != self.side**2:
            raise InvalidInput("single entries of a positive semidefinite matrix cannot be dropped")
        return self

    def _symmetric(self, x: ArrayLike) -> Array:
        square = np.asarray(x, dtype=np.float64).reshape(self.side, self.side)
        return np.asarray(0.5 * (square + square.T))

    def _eigen(self, x: ArrayLike) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(self._symmetric(x))
        return values, vectors

    def _inside(self, values: Array, vectors: Array) -> Array:
        """``sum of the positive values_k u_k u_k'``, surely positive semidefinite."""
        top = float(np.abs(values).max(initial=0.0))
        chosen = values > self.side * UNIT * top
        half = vectors[:, chosen] * np.sqrt(values[chosen])
        square = half @ half.T
        square = 0.5 * (square + square.T)
        square.flat[:: self.side + 1] += up(gamma(self.side + 8) * float(np.sum(half * half)), 64)
        return np.asarray(square.ravel())


@np.errstate(over="ignore")  # by next to nothing: an infinite point, whose gap says so
def _divide(v: Array, diagonal: Array) -> Array:
    return np.divide(v, diagonal, out=np.zeros_like(v), where=diagonal > 0)
