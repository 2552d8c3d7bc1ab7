"""Pairs of points and what a metric says about them.

For a symmetric matrix M the value of a pair is ``(x_i - x_j)' M (x_i - x_j)``; for a diagonal
metric m it is ``sum_k m_k (x_ik - x_jk)^2``. Its adjoint takes one weight a pair to
``sum_p w_p a_p a_p' = X' L X`` with the signed Laplacian L of the weighted graph: no d x d matrix a
pair is ever formed. Arrays of pair values have one more entry, 0: the pair that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dtrmm

from cvxscreen.pair_loops import loops
from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]
Index = NDArray[np.int32]


def centred(points: Any) -> Array:
    """`points` as float64, moved by a vector near their mean: distances stay, rounding shrinks.

    The vector is a float32 number in every coordinate, so that for float32 and integer data of
    moderate range the subtraction is exact.
    """
    dense = np.asarray(points.toarray() if hasattr(points, "toarray") else points)
    dense = dense.astype(np.float64)
    middle = dense.mean(axis=0) if len(dense) else np.zeros(dense.shape[1])
    with np.errstate(over="ignore"):
        short = middle.astype(np.float32).astype(np.float64)
    return np.ascontiguousarray(dense - np.where(np.isfinite(short), short, middle))


@dataclass(frozen=True, eq=False)
class PairTable:
    """Unique pairs of rows of a matrix.

    Attributes
    ----------
    points : array, shape (n, d)
        float64, C order; see `centred`.
    left, right : array of int32, shape (P,)
    diagonal : bool
        Whether the metric is a vector (d,) instead of a symmetric matrix (d * d,).
    """

    points: Array
    left: Index
    right: Index
    diagonal: bool = False

    def __len__(self) -> int:
        return int(self.left.size)

    @property
    def d(self) -> int:
        """Number of coordinates of a point."""
        return int(self.points.shape[1])

    @property
    def size(self) -> int:
        """Number of coordinates of a metric: d * d, or d for a diagonal one."""
        return self.d if self.diagonal else self.d * self.d

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> PairTable:
        """The pairs at `index`."""
        fresh = replace(self, left=self.left[index], right=self.right[index])
        for name in ("squares", "reach", "spread"):
            if name in self.__dict__:
                fresh.__dict__[name] = np.append(self.__dict__[name][:-1][index], 0.0)
        fresh.__dict__["lengths"] = self.lengths
        return fresh

    # -- values and their adjoint ---------------------------------------------------------------

    def values(self, metric: ArrayLike) -> Array:
        """The value of every pair under any (not only a positive) metric, shape (P + 1,)."""
        out = np.zeros(len(self) + 1)
        x = np.asarray(metric, dtype=np.float64)
        if self.diagonal:
            loops().scaled(self.left, self.right, self.points, np.ascontiguousarray(x), out)
        else:
            image = self.points @ x.reshape(self.d, self.d)
            loops().forms(self.left, self.right, self.points, image, out)
        return out

    def distances(self, factor: Array, room: Array | None = None) -> Array:
        """The value of every pair under ``factor factor'`` (full metric only), shape (P + 1,).

        `room` is work space, shape (n, d); fresh memory costs as much as many pairs.
        """
        out = np.zeros(len(self) + 1)
        if factor.shape == (self.d, self.d) and not np.triu(factor, 1).any():
            image = np.empty_like(self.points) if room is None else room
            image[:] = self.points
            # Lower triangular: half the work, and in place.
            image = dtrmm(1.0, factor.T, image.T, overwrite_b=1).T
        else:
            image = np.ascontiguousarray(self.points @ factor)
        loops().distances(self.left, self.right, image, out)
        return out

    def pull(self, omega: Array, room: Array | None = None) -> Array:
        """``sum_p omega_p a_p a_p'`` as a symmetric (d, d) matrix, or its diagonal (d,).

        `room` as in `distances`.
        """
        if self.diagonal:
            out = np.zeros(self.d)
            loops().squares(self.left, self.right, omega, self.points, out)
            return out
        flow = np.empty_like(self.points) if room is None else room
        held = np.empty(len(self.points))
        loops().half_laplacian(self.left, self.right, omega, self.points, flow, held)
        product = self.points.T @ flow
        return np.asarray(product + product.T)

    # -- sizes and rounding ---------------------------------------------------------------------

    @cached_property
    def lengths(self) -> Array:
        """``|x_i|`` rounded up, shape (n,)."""
        square = np.einsum("ij,ij->i", self.points, self.points)
        return np.asarray(np.sqrt(square) * (1.0 + gamma(self.d + 8)))

    @cached_property
    def squares(self) -> Array:
        """``|x_i - x_j|^2`` rounded up, shape (P + 1,)."""
        out = np.zeros(len(self) + 1)
        loops().distances(self.left, self.right, self.points, out)
        return out * (1.0 + gamma(self.d + 8))

    @cached_property
    def reach(self) -> Array:
        """``(|x_i| + |x_j|) |x_i - x_j|`` rounded up, shape (P + 1,)."""
        both = self.lengths[self.left] + self.lengths[self.right]
        return np.append(both * np.sqrt(self.squares[:-1]), 0.0) * (1.0 + 8.0 * UNIT)

    @cached_property
    def spread(self) -> Array:
        """What the rounding of `pull` is relative to, shape (P + 1,).

        ``(|x_i| + |x_j|)^2`` rounded up: the pull is summed as ``F + F'``, ``F = X' H X`` with half
        a Laplacian H, whose rows do not add up to 0. For a diagonal metric `reach`.
        """
        if self.diagonal:
            return self.reach
        both = self.lengths[self.left] + self.lengths[self.right]
        return np.append(both * both, 0.0) * (1.0 + 8.0 * UNIT)

    def value_error(self, size: float) -> Array:
        """Bound of the rounding of `values` for a metric of Frobenius norm `size`, shape (P + 1,).

        ``Y = X M`` is off by ``gamma(d) |M| |x_i|`` in row i, the products of differences by
        ``gamma(d + 2) |M| |a|^2``, and ``|a| <= |x_i| + |x_j|``. The bound also holds for
        `distances`, with ``gamma(d) |W| |x_i|`` twice and ``|W|^2 <= sqrt(d) |M|``, for a factor
        that is off by ``gamma(d + 2) |W|^2`` as well.
        """
        return self.value_factor * size * self.reach

    @cached_property
    def value_factor(self) -> float:
        """See `value_error`."""
        return 2.0 * gamma(2 * self.d + 12) * float(np.sqrt(self.d))

    @cached_property
    def most(self) -> tuple[float, float]:
        """The largest of `squares` and of `reach`."""
        return float(self.squares.max()), float(self.reach.max())

    @cached_property
    def degree(self) -> int:
        """The largest number of pairs of one point."""
        n = len(self.points)
        count = np.bincount(self.left, minlength=n) + np.bincount(self.right, minlength=n)
        return int(count.max(initial=0))

    def pull_factor(self, load: int) -> float:
        """``|computed - exact| <= factor sum |theta_t| (spread of the pairs of t)``.

        For `pull` of weights that sum at most `load` terms a pair: sums of `load` weights, of
        `degree` products in a row of F, and of n rows.
        """
        return gamma(load + self.degree + len(self.points) + 12)

    # -- single pairs ---------------------------------------------------------------------------

    def differences(self, index: NDArray[Any]) -> Array:
        """``x_left - x_right`` of the pairs at `index`, 0 for the missing pair, shape (m, d)."""
        index = np.asarray(index)
        real = index < len(self)
        safe = np.where(real, index, 0)
        if not len(self):
            return np.zeros((len(index), self.d))
        step = self.points[self.left[safe]] - self.points[self.right[safe]]
        return np.asarray(np.where(real[:, None], step, 0.0))
