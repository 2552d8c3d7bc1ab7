"""Kernel functions on pairs of points, with a bound of their own rounding.

* `Rbf`, `Polynomial`: evaluated here, blocks at a time, from one matrix product;
* `Precomputed`: a Gram matrix, held by reference;
* `Called`: any function of two blocks of points.

Each says how far a computed value may be from the exact one, point by point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import array
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class KernelFunction(Protocol):
    """What a cache of kernel rows asks of a function on pairs of points."""

    @property
    def size(self) -> int:
        """Number of points."""
        ...

    @property
    def diagonal(self) -> Array:
        """``k(x_i, x_i)``, shape (N,)."""
        ...

    @property
    def errors(self) -> Array:
        """``|computed - exact| <= (errors_i + errors_j) sqrt(k_ii k_jj)``, shape (N,)."""
        ...

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """``k(x_i, x_j)``, i in `rows`, j in `columns` (all when omitted).

        A fresh matrix, or `into` where that is given (C-contiguous and of this shape).
        """
        ...

    def cross(self, points: Any) -> Array:
        """``k(p, x_j)`` for new points p, shape (len(points), N)."""
        ...


def _times(left: Any, right: Any, into: Array | None = None) -> Array:
    """``left right'`` as a dense array."""
    if sp.issparse(left) or sp.issparse(right):
        product = left @ right.T
        return _placed(np.asarray(product.toarray() if sp.issparse(product) else product), into)
    return np.asarray(np.dot(left, right.T, out=into))


def _placed(found: Array, into: Array | None) -> Array:
    """`found`, in `into` where that is given."""
    if into is None:
        return found
    into[:] = found
    return into


@compiled(allocates=False)
def exponents(out: Array, gamma: float, left: Array, right: Array) -> None:
    """From inner products to ``-gamma ||x - z||^2``, in place; `left`, `right` squared norms."""
    for i in range(out.shape[0]):
        own = gamma * left[i]
        for j in range(out.shape[1]):
            value = 2.0 * gamma * out[i, j] - own - gamma * right[j]
            out[i, j] = 0.0 if value > 0.0 else value  # NaN stays


class Rbf(Immutable):
    """``exp(-gamma ||x - z||^2)``; `points` is a float64 array or CSR."""

    points: Any
    gamma: float

    def __post_init__(self) -> None:
        # Distances do not change, and their rounding shrinks with the points.
        middle = np.zeros(self.points.shape[1])
        if not sp.issparse(self.points):
            middle = self.points.mean(axis=0)
            object.__setattr__(self, "points", np.ascontiguousarray(self.points - middle))
        object.__setattr__(self, "_middle", middle)

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @property
    def diagonal(self) -> Array:
        """Ones: ``k(x, x) = 1`` for every point."""
        return np.ones(self.size)

    @cached_property
    def _squares(self) -> Array:
        return _row_squares(self.points)

    @cached_property
    def errors(self) -> Array:
        """Of the squared distance (cancellation included), through the exponential."""
        return 2.0 * self.gamma * gamma(self.points.shape[1] + 12) * self._squares + 4.0 * UNIT

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        squares = self._squares if columns is None else self._squares[columns]
        found = _times(self.points[rows], other, into)
        return self._finish(found, self._squares[rows], squares)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        if not sp.issparse(self.points):
            points = np.asarray(points, dtype=np.float64) - self._middle  # type: ignore[attr-defined]
        return self._finish(_times(points, self.points), _row_squares(points), self._squares)

    def _finish(self, out: Array, left: Array, right: Array) -> Array:
        exponents(out, self.gamma, left, right)
        return np.exp(out, out=out)


class Polynomial(Immutable):
    """``(gamma <x, z> + coef0)^degree``; the linear kernel is its first degree."""

    points: Any
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 1

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @cached_property
    def diagonal(self) -> Array:
        """``(gamma ||x||^2 + coef0)^degree``."""
        return np.asarray((self.gamma * _row_squares(self.points) + self.coef0) ** self.degree)

    @cached_property
    def errors(self) -> Array:
        """By Cauchy-Schwarz: the rounding of ``<x, z>``, `degree` times."""
        rounding = self.degree * gamma(self.points.shape[1] + 8) + 8.0 * UNIT
        return np.full(self.size, 0.5 * rounding)

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return self._finish(_times(self.points[rows], other, into))

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._finish(_times(points, self.points))

    def _finish(self, out: Array) -> Array:
        out *= self.gamma
        out += self.coef0
        return out if self.degree == 1 else np.power(out, self.degree, out=out)


class Precomputed(Immutable):
    """A symmetric Gram matrix, held by reference; `error` bounds its relative asymmetry."""

    matrix: NDArray[Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.matrix.shape[0])

    @cached_property
    def errors(self) -> Array:
        """Half of what bounds the asymmetry: either of two entries may be meant."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of the matrix as given."""
        return np.array(np.diagonal(self.matrix), dtype=np.float64)

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        part = self.matrix[rows] if columns is None else self.matrix[np.ix_(rows, columns)]
        return _placed(part.astype(np.float64), into)

    def cross(self, points: Any) -> Array:
        """`points` are rows of kernel values already."""
        return np.asarray(points, dtype=np.float64)


class Called(Immutable):
    """Any ``function(A, B) -> matrix`` of two blocks of points; its values count as given."""

    points: Any
    function: Callable[[Any, Any], Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @cached_property
    def errors(self) -> Array:
        """Half of what bounds the asymmetry: either of two entries may be meant."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """From blocks of 64 points."""
        parts = [np.arange(s, min(s + 64, self.size)) for s in range(0, self.size, 64)]
        return np.concatenate([np.diagonal(self.block(part, part)) for part in parts])

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return _placed(self._checked(self.points[rows], other), into)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._checked(points, self.points)

    def _checked(self, left: Any, right: Any) -> Array:
        out = array("kernel", self.function(left, right)).copy()
        shape = (left.shape[0], right.shape[0])
        if out.shape != shape or not np.isfinite(out).all():
            raise InvalidInput(
                f"`kernel` returned shape {out.shape} or NaN for blocks of {shape[0]} and "
                f"{shape[1]} points; a finite matrix {shape} is needed."
            )
        return out


def _row_squares(points: Any) -> Array:
    if sp.issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", points, points)
