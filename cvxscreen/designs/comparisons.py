"""Margins of metric learning: pairs of points, the terms over them, and the design of the terms.

Term t has the symmetric matrix ``H_t = a a' - b b'`` (a, b differences of points; either may be
missing) and the margin ``<H_t, M>``. The coordinates are all d * d entries of M in C order, so that
the Euclidean norm is Frobenius'; for a diagonal metric the d diagonal entries. A pass costs
``O(n d^2 + P d + T)`` for P unique pairs; no H is formed.

*Pairs.* For a symmetric matrix M the value of a pair is ``(x_i - x_j)' M (x_i - x_j)``; for a
diagonal metric m it is ``sum_k m_k (x_ik - x_jk)^2``. Its adjoint takes one weight a pair to
``sum_p w_p a_p a_p' = X' L X`` with the signed Laplacian L of the weighted graph: no d x d matrix a
pair is ever formed. Arrays of pair values have one more entry, 0: the pair that is missing.

*Terms.* A margin is the value of a *plus* pair less the value of a *minus* pair; pair number P is
missing and counts 0. `Indexed` stores both numbers of every term. `Products` holds the triplets of
an anchor as (near list) x (far list) and never stores an index of a triplet: each near pair (a
*row*) is combined with a window ``lo <= l < hi`` of the anchor's far list.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dtrmm

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled, read_only
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.int32]

UNDERFLOW = 1e-150
"""What squares of norms that underflow may take off a norm, at most: 10^4 times the root of the
smallest number that has all its digits."""


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


class PairTable(Immutable):
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

    def norms(self, plus: Index, minus: Index) -> Array:
        """``|H_t|`` of the terms with these pairs, rounded up, shape (T,)."""
        out = np.empty(len(plus))
        found = diagonal_norms if self.diagonal else frobenius_norms
        found(plus, minus, self.left, self.right, self.points, out)
        # p and s come from differences rounded once more: 4u (|p| + |s|)(|a| + |b|) at most.
        tiny = 16.0 * UNIT * (self.squares[plus] + self.squares[minus])
        return out * (1.0 + gamma(2 * self.d + 8)) + tiny + UNDERFLOW

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


Pointer = NDArray[np.int64]

SHORT = 48
"""Pairs of a list that is sorted by insertion: it is nearly in order most of the time."""


class Indexed(Immutable):
    """Terms given by the numbers of their two pairs.

    Attributes
    ----------
    plus, minus : array of int32, shape (T,)
    pairs : int
        P; the number that stands for a missing pair.
    """

    plus: Index
    minus: Index
    pairs: int

    def __len__(self) -> int:
        return int(self.plus.size)

    def margins(self, values: Array) -> Array:
        """``values[plus] - values[minus]``, shape (T,)."""
        return np.asarray(values[self.plus] - values[self.minus])

    def scatter(self, theta: Array) -> Array:
        """The sum of `theta` over the terms of every pair, signed, shape (P + 1,)."""
        omega = np.zeros(self.pairs + 1)
        scatter(self.plus, self.minus, *read_only(theta), omega)
        return omega

    def index(self) -> tuple[Index, Index]:
        """``(plus, minus)``."""
        return self.plus, self.minus

    @cached_property
    def load(self) -> int:
        """The largest number of terms of one pair."""
        both = np.bincount(self.plus, minlength=1)
        other = np.bincount(self.minus, minlength=len(both))
        both = np.pad(both, (0, len(other) - len(both)))
        return int((both + other)[: self.pairs].max(initial=0))

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Indexed:
        """The terms at `index`."""
        return Indexed(self.plus[index], self.minus[index], self.pairs)

    def compact(self) -> tuple[Indexed, NDArray[np.intp]]:
        """The same terms over the pairs they use only, and which these are."""
        used = np.zeros(self.pairs + 1, dtype=bool)
        used[self.plus] = used[self.minus] = True
        used[-1] = False
        kept = np.flatnonzero(used)
        place = np.full(self.pairs + 1, len(kept), dtype=np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        return Indexed(place[self.plus], place[self.minus], len(kept)), kept


class ProductArrays(NamedTuple):
    """The arrays of `Products`, as the compiled loops take them."""

    near_ptr: Pointer
    near: Index
    far_ptr: Pointer
    far: Index
    lo: Pointer
    hi: Pointer


class Products(Immutable):
    """For every anchor, each near pair with a window of its far pairs.

    Attributes
    ----------
    near_ptr, near
        Block b has the near pairs ``near[near_ptr[b]:near_ptr[b + 1]]``.
    far_ptr, far
        And the far pairs ``far[far_ptr[b]:far_ptr[b + 1]]``.
    lo, hi : array of int64, shape (len(near),)
        Row r is combined with the far pairs number ``lo_r <= l < hi_r`` of its block.
    pairs : int
        P.
    """

    near_ptr: Pointer
    near: Index
    far_ptr: Pointer
    far: Index
    lo: Pointer
    hi: Pointer
    pairs: int

    @classmethod
    def full(
        cls, near_ptr: Pointer, near: Index, far_ptr: Pointer, far: Index, pairs: int
    ) -> Products:
        """Every near pair with the whole far list of its block."""
        rows = np.diff(near_ptr)
        hi = np.repeat(np.diff(far_ptr), rows)
        return cls(near_ptr, near, far_ptr, far, np.zeros_like(hi), hi, pairs)

    @cached_property
    def _count(self) -> int:
        return int((self.hi - self.lo).sum())

    def __len__(self) -> int:
        return self._count

    @property
    def arrays(self) -> ProductArrays:
        """What the compiled loops take."""
        return ProductArrays(
            self.near_ptr, self.near, self.far_ptr, self.far, self.lo, self.hi
        )

    @cached_property
    def widest(self) -> int:
        """Length of the longest far list."""
        return int(np.diff(self.far_ptr).max(initial=0))

    def margins(self, values: Array) -> Array:
        """``values[plus] - values[minus]``, shape (T,)."""
        out = np.empty(len(self))
        product_margins(self.arrays, values, out)
        return out

    def scatter(self, theta: Array) -> Array:
        """The sum of `theta` over the terms of every pair, signed, shape (P + 1,)."""
        omega = np.zeros(self.pairs + 1)
        product_scatter(self.arrays, *read_only(theta), omega)
        return omega

    @cached_property
    def _index(self) -> tuple[Index, Index]:
        plus, minus = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        product_index(self.arrays, plus, minus)
        return plus, minus

    def index(self) -> tuple[Index, Index]:
        """``(plus, minus)`` of every term; made on demand."""
        return self._index

    @cached_property
    def load(self) -> int:
        """An upper bound of the number of terms of one pair."""
        rows = int(np.diff(self.near_ptr).max(initial=0))
        twice = np.bincount(self.near, minlength=1).max(initial=0)
        thrice = np.bincount(self.far, minlength=1).max(initial=0)
        return int(twice) * self.widest + int(thrice) * rows

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Indexed:
        """The terms at `index`, by index arrays."""
        plus, minus = self.index()
        return Indexed(plus[index], minus[index], self.pairs)

    def ordered(self, values: Array) -> Products:
        """The same terms, in another order: every far list by increasing value.

        Only for rows that still use the whole list.
        """
        last = self.last_order
        far = np.empty_like(last)
        sort_short_lists(self.far_ptr, last, values, far)
        for block in np.flatnonzero(np.diff(self.far_ptr) > SHORT):
            mine = slice(self.far_ptr[block], self.far_ptr[block + 1])
            far[mine] = last[mine][np.argsort(values[last[mine]])]
        last[:] = far
        return replace(self, far=far)

    @cached_property
    def last_order(self) -> Index:
        """The order that `ordered` has found last, nearly right the next time."""
        return self.far.copy()

    def compact(self) -> tuple[Products, NDArray[np.intp]]:
        """The same terms without empty rows, unused far pairs at the ends, and unused pairs."""
        place = np.zeros(self.pairs, dtype=np.int32)
        made = ProductArrays(*map(np.zeros_like, self.arrays))
        blocks, rows, fars = copy_used_rows(self.arrays, place, made)
        kept = np.flatnonzero(place)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        near_ptr, near, far_ptr, far, lo, hi = made
        small = Products(
            near_ptr[: blocks + 1], place[near[:rows]], far_ptr[: blocks + 1], place[far[:fars]],
            lo[:rows], hi[:rows], len(kept),
        )
        return small, kept


Terms = Indexed | Products


# -- compiled loops over product sets -------------------------------------------------------------


@compiled(fastmath=SUMS)
def product_pass(terms, q, threshold, width, weight, omega, work):  # type: ignore[no-untyped-def]
    """The sum of the smoothed hinges of a product set; adds their slopes to `omega`, by pair.

    The loss is that of `indexed_pass`, with one threshold, width and weight for all terms. `work`
    has shape (2, longest far list) or more.
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    values, slopes = work[0], work[1]
    inverse = 1e300 if width == 0.0 else 1.0 / width
    half = 0.5 * width
    total = 0.0
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        for j in range(mine.size):
            values[j] = q[mine[j]]
            slopes[j] = 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            top = threshold + q[near[r]]
            row, part = 0.0, 0.0
            # Slices start at 0, so that no access asks whether it counts from the end.
            away, back = values[lo[r]:hi[r]], slopes[lo[r]:hi[r]]
            for j in range(away.size):
                z = top - away[j]
                tau = min(max(z * inverse, 0.0), 1.0)
                part += tau * (z - half * tau)
                back[j] += tau
                row += tau
            total += part
            omega[near[r]] -= weight * row
        for j in range(mine.size):
            omega[mine[j]] += weight * slopes[j]
    return weight * total


@compiled(fastmath=CONTRACT)
def product_margins(terms, q, out):  # type: ignore[no-untyped-def]
    """``q_far - q_near`` of every term, row by row."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base = q[near[r]]
            for j in range(lo[r], hi[r]):
                out[t] = q[far[first + j]] - base
                t += 1


@compiled(fastmath=CONTRACT)
def product_scatter(terms, theta, omega):  # type: ignore[no-untyped-def]
    """``omega += theta`` on the far pair of every term, ``-= theta`` on its near pair."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            row = 0.0
            for j in range(lo[r], hi[r]):
                omega[far[first + j]] += theta[t]
                row += theta[t]
                t += 1
            omega[near[r]] -= row


@compiled(fastmath=CONTRACT)
def product_index(terms, plus, minus):  # type: ignore[no-untyped-def]
    """The far and the near pair of every term."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            for j in range(lo[r], hi[r]):
                plus[t] = far[first + j]
                minus[t] = near[r]
                t += 1


@compiled(fastmath=CONTRACT)
def close_windows(  # type: ignore[no-untyped-def]
    terms, q, error, squares, radius, above, below, increasing, work
):
    """Close the window ``[lo, hi)`` of every row from both ends while the end terms are decided.

    A margin lies within ``radius |H| + error`` of ``q_far - q_near``, and ``|H|^2 <= a^4 + b^4``
    for the squared lengths `squares` of the two pairs. Terms surely above `above` are taken off
    from the upper end, terms surely below `below` from the lower one. Where the far lists are
    `increasing` in q, most ends are found by bisection. `work` has shape (3, longest far list).
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    values, power, errors = work[0], work[1], work[2]
    unit = 2.0**-50
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        widest, loosest, tallest, least = 0.0, 0.0, -math.inf, math.inf
        for j in range(mine.size):
            f = mine[j]
            values[j], power[j], errors[j] = q[f], squares[f] * squares[f], error[f]
            widest = max(widest, power[j])
            loosest = max(loosest, errors[j])
            tallest = max(tallest, values[j])
            least = min(least, values[j])
        size = max(abs(tallest), abs(least)) if mine.size else 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base, off = q[near[r]], error[near[r]]
            square = squares[near[r]] * squares[near[r]]
            start, stop = lo[r], hi[r]
            i, j = start, stop
            # All terms of a row at once, where that is enough.
            reach = radius * math.sqrt(square + widest) + off + loosest
            reach += unit * (reach + abs(base) + size)
            if tallest - base + reach < below:
                i = stop
            elif least - base - reach > above:
                j = start
            elif increasing:
                high, low = above + base + reach, below + base - reach
                room = 4.0 * unit * (abs(above) + abs(below) + abs(base) + reach)
                left, right = i, j  # the first far value above `high`
                while left < right:
                    middle = (left + right) // 2
                    if values[middle] > high + room:
                        right = middle
                    else:
                        left = middle + 1
                j = left
                right = j
                left = i  # the first far value not below `low`
                while left < right:
                    middle = (left + right) // 2
                    if values[middle] < low - room:
                        left = middle + 1
                    else:
                        right = middle
                i = left
            while j > i:
                reach = radius * math.sqrt(square + power[j - 1]) + off + errors[j - 1]
                reach += unit * (reach + abs(base) + abs(values[j - 1]))
                if values[j - 1] - base - reach > above:
                    j -= 1
                else:
                    break
            while i < j:
                reach = radius * math.sqrt(square + power[i]) + off + errors[i]
                reach += unit * (reach + abs(base) + abs(values[i]))
                if values[i] - base + reach < below:
                    i += 1
                else:
                    break
            lo[r], hi[r] = i, j


@compiled(fastmath=CONTRACT)
def sort_short_lists(far_ptr, far, q, out):  # type: ignore[no-untyped-def]
    """Every far list of at most `SHORT` pairs by increasing q, by insertion."""
    for block in range(far_ptr.size - 1):
        first = far_ptr[block]
        mine = far[first:far_ptr[block + 1]]
        into = out[first:far_ptr[block + 1]]
        if mine.size <= SHORT:
            for j in range(mine.size):
                f = mine[j]
                value = q[f]
                k = j
                while k > 0 and q[into[k - 1]] > value:
                    into[k] = into[k - 1]
                    k -= 1
                into[k] = f


@compiled(fastmath=CONTRACT)
def copy_used_rows(terms, place, made):  # type: ignore[no-untyped-def]
    """Copy the rows that are not empty, the far lists cut to what they use, and mark the pairs.

    They go to `made`; returns its numbers of blocks, near pairs and far pairs. `place` is 1 on the
    pairs used.
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    new_near_ptr, new_near, new_far_ptr, new_far, new_lo, new_hi = made
    blocks, rows, fars = 0, 0, 0
    for block in range(near_ptr.size - 1):
        first, last = far_ptr[block + 1] - far_ptr[block], 0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            if hi[r] > lo[r]:
                first, last = min(first, lo[r]), max(last, hi[r])
        if last == 0:
            continue
        for r in range(near_ptr[block], near_ptr[block + 1]):
            if hi[r] > lo[r]:
                new_near[rows] = near[r]
                new_lo[rows], new_hi[rows] = lo[r] - first, hi[r] - first
                place[near[r]] = 1
                rows += 1
        for j in range(first, last):
            f = far[far_ptr[block] + j]
            new_far[fars] = f
            place[f] = 1
            fars += 1
        blocks += 1
        new_near_ptr[blocks], new_far_ptr[blocks] = rows, fars
    return blocks, rows, fars


# -- the design ------------------------------------------------------------------------------------

Chosen = NDArray[np.intp] | NDArray[np.bool_]

_BLOCK_BYTES = 2**24
"""Of rows that are written out at a time."""


def _rows(index: Chosen) -> NDArray[np.intp]:
    chosen = np.asarray(index)
    return np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.intp)


class Pairs:
    """The design of T terms over a table of pairs; shape (T, d * d), or (T, d) when diagonal.

    Parameters
    ----------
    table : PairTable
    terms : Indexed or Products
    """

    streamed, centred = False, False

    def __init__(self, table: PairTable, terms: Terms) -> None:
        self.table, self.terms = table, terms
        self.shape: tuple[int, int] = (len(terms), table.size)

    @property
    def sparse(self) -> bool:
        """False: there are no rows of numbers to store."""
        return False

    @property
    def diagonal(self) -> bool:
        """Whether the metric is a vector."""
        return self.table.diagonal

    # -- the two passes -----------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """``<H_t, M>``, shape (T,)."""
        return self.terms.margins(self.table.values(x))

    def adjoint(self, theta: ArrayLike) -> Array:
        """``sum_t theta_t H_t`` in C order, a symmetric matrix; shape of x."""
        omega = self.terms.scatter(np.asarray(theta, dtype=np.float64))
        return self.table.adjoint(omega).ravel()

    @cached_property
    def reach(self) -> Array:
        """What the rounding of a term is relative to, at least ``|a|^2 + |b|^2``, shape (T,)."""
        plus, minus = self.terms.index()
        return (self.table.spread[plus] + self.table.spread[minus]) * (1.0 + 4.0 * UNIT)

    @property
    def forward_factor(self) -> float:
        """``|computed - exact| <= forward_factor |M| reach_t`` of `forward`."""
        return 2.0 * gamma(2 * self.table.d + 12) * float(np.sqrt(self.table.d)) + 4.0 * UNIT

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (T,)."""
        plus, minus = self.terms.index()
        reach = (self.table.reach[plus] + self.table.reach[minus]) * (1.0 + 4.0 * UNIT)
        return self.forward_factor * float(np.linalg.norm(np.asarray(x))) * reach

    @cached_property
    def adjoint_factor(self) -> float:
        """``|computed - exact| <= adjoint_factor sum_t |theta_t| reach_t`` in Frobenius norm."""
        return self.table.adjoint_factor(self.terms.load)

    def offset(self, x: ArrayLike) -> float:
        """There is no intercept: 0."""
        return 0.0

    def forward_precise(self, index: Chosen, x: ArrayLike) -> tuple[Array, Array]:
        """A few margins in extended precision, and a bound of the error left."""
        wide = np.longdouble
        metric = np.asarray(x, dtype=wide)
        rows = _rows(index)
        chosen = self.terms.take(rows)
        total = np.zeros(len(rows), dtype=wide)
        size = np.zeros(len(rows), dtype=wide)
        points, table = self.table.points, self.table
        for sign, pairs in ((1, chosen.plus), (-1, chosen.minus)):
            real = np.flatnonzero(pairs < len(table))
            at = pairs[real]
            a = points[table.left[at]].astype(wide) - points[table.right[at]].astype(wide)
            if self.diagonal:
                total[real] += sign * ((a * a) @ metric)
                size[real] += (a * a) @ np.abs(metric)
            else:
                square = metric.reshape(table.d, table.d)
                total[real] += sign * ((a @ square) * a).sum(axis=1)
                size[real] += ((np.abs(a) @ np.abs(square)) * np.abs(a)).sum(axis=1)
        unit = float(np.finfo(wide).eps)
        rounded = np.asarray(total, dtype=np.float64)
        error = 2.0 * (2 * table.d + 10) * unit * np.asarray(size, dtype=np.float64)
        return rounded, 1.01 * error + UNIT * np.abs(rounded)

    # -- norms and small matrices -------------------------------------------------------------

    @cached_property
    def frobenius(self) -> Array:
        """``|H_t|`` rounded up, shape (T,)."""
        return self.table.norms(*self.terms.index())

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j h_tj^2``, shape (T,)."""
        weights = np.asarray(weights, dtype=np.float64)
        if weights.size and (weights == weights[0]).all():
            return weights[0] * self.frobenius**2
        out = np.empty(len(self.terms))
        for rows in self._blocks():
            out[rows] = self.dense(np.arange(rows.start, rows.stop)) ** 2 @ weights
        return out

    def _blocks(self) -> list[slice]:
        step = max(_BLOCK_BYTES // (8 * max(self.shape[1], 1)), 1)
        n = len(self.terms)
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def dense(self, index: Chosen | None = None) -> Array:
        """The H at `index` (all when omitted), one row each."""
        rows = None if index is None else _rows(index)
        count, width = len(self.terms if rows is None else rows), self.shape[1]
        require(
            (16 if self.diagonal else 24) * count * width,
            f"the matrix of {count:,} comparisons x {width:,} entries of the metric, which only "
            "other solvers and exports need,",
            "use the built-in solver, which never forms it, fewer comparisons, or `diagonal=True`",
        )
        chosen = self.terms.take(np.arange(count) if rows is None else rows)
        a = self.table.differences(chosen.plus)
        b = self.table.differences(chosen.minus)
        if self.diagonal:
            # (a - b)(a + b) has no cancellation where a and b are close.
            return np.asarray((np.abs(a) - np.abs(b)) * (np.abs(a) + np.abs(b)))
        outer = a[:, :, None] * a[:, None, :] - b[:, :, None] * b[:, None, :]
        return outer.reshape(len(a), -1)

    def rows_csr(self, index: Chosen) -> sp.csr_matrix:
        """The rows at `index` as CSR."""
        return sp.csr_matrix(self.dense(index))

    def weighted_gram(self, index: Chosen | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J``, dense."""
        block = self.dense(index) * np.sqrt(np.asarray(weights, dtype=np.float64))[:, None]
        return np.asarray(block.T @ block)

    def column(self, j: int) -> Array:
        """Coordinate `j` of every term, shape (T,)."""
        unit = np.zeros(self.shape[1])
        unit[j] = 1.0
        return self.forward(unit)

    def take_rows(self, index: Chosen) -> Pairs:
        """The design made of the terms at `index`, over the pairs they use."""
        terms, kept = self.terms.take(index).compact()
        return Pairs(self.table.take(kept), terms)

    def take_columns(self, index: Chosen) -> Pairs:
        """The design itself; a metric cannot lose single entries.

        Raises
        ------
        InvalidInput
            For any proper subset.
        """
        mask = np.zeros(self.shape[1], dtype=bool)
        mask[index] = True
        if mask.all():
            return self
        if not self.diagonal:
            raise InvalidInput("single entries of a full metric cannot be dropped.")
        table = PairTable(
            np.ascontiguousarray(self.table.points[:, mask]), self.table.left, self.table.right,
            True,
        )
        return Pairs(table, self.terms)
