"""The two cones of metric learning: symmetric positive semidefinite matrices, and vectors >= 0.

A `Metric` is a member of its cone by construction: a matrix is the product of a factor with its
transpose, whatever the eigenvalue routine may have rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]


class Metric(NamedTuple):
    """A member of the cone.

    Attributes
    ----------
    value : array, shape (d, d) or (d,)
    factor : array, shape (d, r)
        ``value = factor factor'`` up to rounding; of a diagonal metric the roots, shape (d,).
    """

    value: Array
    factor: Array


class Split(NamedTuple):
    """A symmetric matrix (or vector) and what its projection onto the cone takes away.

    Attributes
    ----------
    positive : array
        The projection, computed as the argument plus ``lift lift'``.
    lift : array, shape (d, s) or (d,)
        ``lift lift'`` lies in the cone exactly; for vectors the lift is the vector added itself.
    factor : array, shape (d, r)
        ``factor factor'`` is close to `positive`; empty for vectors.
    """

    positive: Array
    lift: Array
    factor: Array


@dataclass(frozen=True)
class Semidefinite:
    """Symmetric positive semidefinite matrices, shape (d, d)."""

    d: int

    def project(self, matrix: Array) -> Metric:
        """The nearest member, without eigenvalues that are mere rounding."""
        values, vectors = np.linalg.eigh(matrix)
        floor = self.d * UNIT * max(abs(float(values[0])), abs(float(values[-1])))
        used = values > floor
        factor = np.ascontiguousarray(vectors[:, used] * np.sqrt(values[used]))
        if not factor.shape[1]:
            factor = np.zeros((self.d, 1))
        value = factor @ factor.T
        if factor.shape[1] == self.d:
            factor = _triangular(value, factor)
        return Metric(value, factor)

    def split(self, matrix: Array) -> Split:
        """`matrix` with its negative part taken off."""
        values, vectors = np.linalg.eigh(matrix)
        used = values < 0.0
        lift = vectors[:, used] * np.sqrt(-values[used])
        factor = vectors[:, ~used] * np.sqrt(values[~used])
        return Split(matrix + lift @ lift.T, lift, factor)

    def inner_above(self, metric: Metric, lift: Array) -> float:
        """An upper bound of ``<metric, lift lift'>``, a sum of squares."""
        cross = float(np.linalg.norm(metric.factor.T @ lift)) * (1.0 + gamma(self.d**2))
        sizes = float(np.linalg.norm(metric.factor)) * float(np.linalg.norm(lift))
        return float((cross + gamma(self.d + 2) * sizes) ** 2)

    def metric_error(self, metric: Metric) -> float:
        """Bound of ``|value - factor factor'|``."""
        return gamma(self.d + 2) * float(np.linalg.norm(metric.factor)) ** 2

    def lift_error(self, lift: Array) -> float:
        """Bound of the rounding of ``lift lift'``, and its size."""
        return gamma(self.d + 3) * float(np.linalg.norm(lift)) ** 2

    def zero(self) -> Metric:
        """The zero matrix."""
        return Metric(np.zeros((self.d, self.d)), np.zeros((self.d, 1)))


def _triangular(value: Array, factor: Array) -> Array:
    """The Cholesky factor, cheaper to multiply with, if rounding lets there be one.

    ``|value - L L'| <= gamma(d + 1) |L|^2`` (Higham 2002, Theorem 10.3), as for any other factor.
    """
    try:
        return np.asarray(np.linalg.cholesky(value), dtype=np.float64)
    except np.linalg.LinAlgError:
        return factor


@dataclass(frozen=True)
class Nonnegative:
    """Vectors with non-negative entries, shape (d,)."""

    d: int

    def project(self, vector: Array) -> Metric:
        """The positive part."""
        value = np.maximum(vector, 0.0)
        return Metric(value, np.sqrt(value))

    def split(self, vector: Array) -> Split:
        """`vector` with its negative part taken off."""
        return Split(np.maximum(vector, 0.0), np.maximum(-vector, 0.0), np.zeros(0))

    def inner_above(self, metric: Metric, lift: Array) -> float:
        """An upper bound of the inner product of two non-negative vectors."""
        return float(metric.value @ lift) * (1.0 + gamma(self.d + 2))

    def metric_error(self, metric: Metric) -> float:
        """Nothing is rounded."""
        return 0.0

    def lift_error(self, lift: Array) -> float:
        """Nothing is rounded."""
        return 0.0

    def zero(self) -> Metric:
        """The zero vector."""
        return Metric(np.zeros(self.d), np.zeros(self.d))


Cone = Semidefinite | Nonnegative
