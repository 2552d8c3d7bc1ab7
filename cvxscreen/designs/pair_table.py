"""Pairs of points: their squared distances under a metric, and the adjoint of that map.

For a symmetric matrix M the value of a pair is ``(x_i - x_j)' M (x_i - x_j)``; for a diagonal
metric m it is ``sum_k m_k (x_ik - x_jk)^2``. Its adjoint takes one weight a pair to
``sum_p w_p a_p a_p' = X' L X`` with the signed Laplacian L of the weighted graph: no d x d matrix a
pair is ever formed. Arrays of pair values have one more entry, 0: the pair that is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dtrmm

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled
from cvxscreen._support.rounding import UNIT, gamma

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
            weighted_distances(self.left, self.right, self.points, np.ascontiguousarray(x), out)
        else:
            image = self.points @ x.reshape(self.d, self.d)
            bilinear_forms(self.left, self.right, self.points, image, out)
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
        squared_distances(self.left, self.right, image, out)
        return out

    def adjoint(self, omega: Array, room: Array | None = None) -> Array:
        """``sum_p omega_p a_p a_p'`` as a symmetric (d, d) matrix, or its diagonal (d,).

        `room` as in `distances`.
        """
        if self.diagonal:
            out = np.zeros(self.d)
            weighted_sums(self.left, self.right, omega, self.points, out)
            return out
        flow = np.empty_like(self.points) if room is None else room
        degree = np.empty(len(self.points))
        half_laplacian(self.left, self.right, omega, self.points, flow, degree)
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
        squared_distances(self.left, self.right, self.points, out)
        return out * (1.0 + gamma(self.d + 8))

    @cached_property
    def reach(self) -> Array:
        """``(|x_i| + |x_j|) |x_i - x_j|`` rounded up, shape (P + 1,)."""
        both = self.lengths[self.left] + self.lengths[self.right]
        return np.append(both * np.sqrt(self.squares[:-1]), 0.0) * (1.0 + 8.0 * UNIT)

    @cached_property
    def spread(self) -> Array:
        """What the rounding of `adjoint` is relative to, shape (P + 1,).

        ``(|x_i| + |x_j|)^2`` rounded up: the sum is as ``F + F'``, ``F = X' H X`` with half
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

    def adjoint_factor(self, load: int) -> float:
        """``|computed - exact| <= factor sum |theta_t| (spread of the pairs of t)``.

        For `adjoint` of weights that sum at most `load` terms a pair: sums of `load` weights, of
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


# -- compiled loops: pairs ----------------------------------------------------------------------


@compiled(fastmath=SUMS)
def squared_distances(left, right, z, out):  # type: ignore[no-untyped-def]
    """``out_p = |z_left - z_right|^2``, four pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 3 < left.size and left[p + 1] == i and left[p + 2] == i and left[p + 3] == i:
            b, c, e = right[p + 1], right[p + 2], right[p + 3]
            first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
            for k in range(z.shape[1]):
                here = z[i, k]
                u, v = here - z[a, k], here - z[b, k]
                w, t = here - z[c, k], here - z[e, k]
                first += u * u
                second += v * v
                third += w * w
                fourth += t * t
            out[p], out[p + 1], out[p + 2], out[p + 3] = first, second, third, fourth
            p += 4
        else:
            total = 0.0
            for k in range(z.shape[1]):
                u = z[i, k] - z[a, k]
                total += u * u
            out[p] = total
            p += 1


@compiled(fastmath=SUMS)
def bilinear_forms(left, right, x, y, out):  # type: ignore[no-untyped-def]
    """``out_p = <x_left - x_right, y_left - y_right>``, two pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 1 < left.size and left[p + 1] == i:
            b = right[p + 1]
            first, second = 0.0, 0.0
            for k in range(x.shape[1]):
                here, there = x[i, k], y[i, k]
                first += (here - x[a, k]) * (there - y[a, k])
                second += (here - x[b, k]) * (there - y[b, k])
            out[p], out[p + 1] = first, second
            p += 2
        else:
            total = 0.0
            for k in range(x.shape[1]):
                total += (x[i, k] - x[a, k]) * (y[i, k] - y[a, k])
            out[p] = total
            p += 1


@compiled(fastmath=SUMS)
def weighted_distances(left, right, x, weight, out):  # type: ignore[no-untyped-def]
    """``out_p = sum_k weight_k (x_left,k - x_right,k)^2``, two pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 1 < left.size and left[p + 1] == i:
            b = right[p + 1]
            first, second = 0.0, 0.0
            for k in range(x.shape[1]):
                u, v = x[i, k] - x[a, k], x[i, k] - x[b, k]
                first += weight[k] * u * u
                second += weight[k] * v * v
            out[p], out[p + 1] = first, second
            p += 2
        else:
            total = 0.0
            for k in range(x.shape[1]):
                u = x[i, k] - x[a, k]
                total += weight[k] * u * u
            out[p] = total
            p += 1


@compiled(fastmath=SUMS)
def half_laplacian(left, right, omega, x, out, degree):  # type: ignore[no-untyped-def]
    """``out = F x`` with ``F + F' = L``, the Laplacian of the graph with edge weights `omega`.

    ``(F x)_i = (sum of the weights of i) / 2 x_i - sum of w x_right over the pairs with left i``:
    every pair is read once and from one end only. `degree` is work space, shape (n,).
    """
    for i in range(x.shape[0]):
        degree[i] = 0.0
    for p in range(left.size):
        degree[left[p]] += omega[p]
        degree[right[p]] += omega[p]
    for i in range(x.shape[0]):
        half = 0.5 * degree[i]
        for k in range(x.shape[1]):
            out[i, k] = half * x[i, k]
    p = 0
    while p < left.size:
        i, a, first = left[p], right[p], omega[p]
        if p + 3 < left.size and left[p + 1] == i and left[p + 2] == i and left[p + 3] == i:
            b, c, e = right[p + 1], right[p + 2], right[p + 3]
            second, third, fourth = omega[p + 1], omega[p + 2], omega[p + 3]
            for k in range(x.shape[1]):
                near = first * x[a, k] + second * x[b, k]
                out[i, k] -= near + (third * x[c, k] + fourth * x[e, k])
            p += 4
        else:
            if first != 0.0:
                for k in range(x.shape[1]):
                    out[i, k] -= first * x[a, k]
            p += 1


@compiled(fastmath=SUMS)
def weighted_sums(left, right, omega, x, out):  # type: ignore[no-untyped-def]
    """``out_k = sum_p omega_p (x_left,k - x_right,k)^2``; `out` starts at zero."""
    p = 0
    while p < left.size:
        i, a, first = left[p], right[p], omega[p]
        if p + 1 < left.size and left[p + 1] == i:
            b, second = right[p + 1], omega[p + 1]
            for k in range(x.shape[1]):
                u, v = x[i, k] - x[a, k], x[i, k] - x[b, k]
                out[k] += first * u * u + second * v * v
            p += 2
        else:
            for k in range(x.shape[1]):
                u = x[i, k] - x[a, k]
                out[k] += first * u * u
            p += 1


# -- compiled loops: terms given by two pair numbers


@compiled(fastmath=SUMS)
def indexed_pass(plus, minus, q, b, width, weight, omega):  # type: ignore[no-untyped-def]
    """Sum of smoothed hinges at pair values `q` (the last one is 0); adds their slopes to `omega`.

    The loss is ``weight (z tau - g/2 tau^2)``, ``tau = clip(z / g, 0, 1)``, ``z = b - margin``;
    `width` is g. `b`, `width` and `weight` have one entry a term, or one for all.
    """
    total = 0.0
    one = 0 if b.size == 1 else 1
    for t in range(plus.size):
        g, w = width[one * t], weight[one * t]
        z = b[one * t] - (q[plus[t]] - q[minus[t]])
        if z > 0.0:
            tau = 1.0 if z >= g else z / g
            total += w * tau * (z - 0.5 * g * tau)
            omega[plus[t]] += w * tau
            omega[minus[t]] -= w * tau
    return total


@compiled(fastmath=CONTRACT)
def scatter(plus, minus, theta, omega):  # type: ignore[no-untyped-def]
    """``omega += theta`` on the plus pair of every term, ``-= theta`` on its minus pair."""
    for t in range(plus.size):
        v = theta[t]
        if v != 0.0:
            omega[plus[t]] += v
            omega[minus[t]] -= v


@compiled(fastmath=SUMS)
def frobenius_norms(plus, minus, left, right, x, out):  # type: ignore[no-untyped-def]
    """``|H_t|`` for ``H = a a' - b b'``, a and b the differences of the term's two pairs.

    With ``p = a - b`` and ``s = a + b``: ``|H|^2 = (|p|^2 |s|^2 + (p's)^2) / 2``, all terms
    non-negative. Pair number ``left.size`` is the zero pair. The sign of a difference does not
    matter to H, but it does to p and s: the nearer choice of signs is as good as the other.
    """
    d = x.shape[1]
    for t in range(plus.size):
        pp, ss, ps = 0.0, 0.0, 0.0
        for k in range(d):
            a = 0.0 if plus[t] == left.size else x[left[plus[t]], k] - x[right[plus[t]], k]
            b = 0.0 if minus[t] == left.size else x[left[minus[t]], k] - x[right[minus[t]], k]
            p, s = a - b, a + b
            pp += p * p
            ss += s * s
            ps += p * s
        out[t] = math.sqrt(0.5 * (pp * ss + ps * ps))


@compiled(fastmath=SUMS)
def diagonal_norms(plus, minus, left, right, x, out):  # type: ignore[no-untyped-def]
    """The norm of ``h = a^2 - b^2``, entry by entry ``(|a| - |b|)(|a| + |b|)``."""
    for t in range(plus.size):
        total = 0.0
        for k in range(x.shape[1]):
            a = 0.0 if plus[t] == left.size else abs(x[left[plus[t]], k] - x[right[plus[t]], k])
            b = 0.0 if minus[t] == left.size else abs(x[left[minus[t]], k] - x[right[minus[t]], k])
            h = (a - b) * (a + b)
            total += h * h
        out[t] = math.sqrt(total)
