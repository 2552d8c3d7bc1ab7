"""Rows of a symmetric matrix that come when a compiled loop wants them.

Coordinate descent with the choice of LIBSVM asks for little more than the rows of the support
vectors (1.05 to 1.15 times as many), one or two a step. A row is copied from a larger matrix, or
evaluated from the points, and stays. Rows lie one after another in the order in which they came, so
that what nobody wants takes no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled, read_only

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class KernelPoints(NamedTuple):
    """What rows of ``exp(-gamma ||x_i - x_j||^2)`` are evaluated from.

    Attributes
    ----------
    points : array, shape (m, d)
    squares : array, shape (m,)
        Their squared norms.
    gamma : float
    """

    points: Array
    squares: Array
    gamma: float

    @classmethod
    def of(cls, points: Array, squares: Array, gamma: float) -> KernelPoints:
        """Of an array of points."""
        points, squares = read_only(points, squares)
        return cls(points, squares, float(gamma))

    def take(self, rows: Index) -> KernelPoints:
        """A copy of some points."""
        return KernelPoints.of(self.points[rows], self.squares[rows], self.gamma)


NO_MATRIX, NOWHERE = read_only(np.zeros((0, 0)), np.zeros(0, dtype=np.intp))
NO_POINTS = KernelPoints.of(NO_MATRIX, np.zeros(0), 0.0)


class RowsOnDemand(NamedTuple):
    """A symmetric matrix (m, m), and where its rows come from.

    Attributes
    ----------
    K : array, shape (room, m)
        The rows that have come, one after another.
    slot : array of int, shape (m,)
        Where each row is in K; -1 where it has not come.
    arrived : array of int, shape (1,)
        How many have.
    larger : array, shape (N, N)
        The matrix that rows are copied from; of no size where they are evaluated.
    places : array of int, shape (m,)
        Where the rows and columns are in it.
    source : KernelPoints
        What rows are evaluated from.
    """

    K: Array
    slot: Index
    arrived: Index
    larger: Array
    places: Index
    source: KernelPoints

    @classmethod
    def of(cls, K: Array) -> RowsOnDemand:
        """The matrix `K`, all rows of which are there."""
        there = np.arange(len(K)), np.array([len(K)])
        return cls(K, *there, NO_MATRIX, NOWHERE, NO_POINTS)

    @classmethod
    def copied(cls, larger: Array, places: Index, room: Array) -> RowsOnDemand:
        """The part of `larger` at `places`, in `room` for at least ``len(places)**2`` numbers."""
        m = len(places)
        K = room[: m * m].reshape(m, m)
        K[:1] = 0.0  # loops read it before they want a row, with weight 0
        larger, places = read_only(larger, places)
        return cls(K, np.full(m, -1), np.array([0]), larger, places, NO_POINTS)

    @classmethod
    def evaluated(cls, source: KernelPoints, K: Array, slot: Index, arrived: int) -> RowsOnDemand:
        """Of these points, in the room K where some rows are already, in the places `slot`."""
        if not arrived:
            K[:1] = 0.0  # see `copied`
        return cls(K, slot, np.array([arrived]), NO_MATRIX, NOWHERE, source)

    @classmethod
    def without_room(cls, m: int) -> RowsOnDemand:
        """No rows, nor room for any."""
        return cls.evaluated(NO_POINTS, np.zeros((1, m)), np.full(m, -1), 1)

    @property
    def full(self) -> bool:
        """Whether there is no room for another row, and not all are there."""
        return len(self.K) <= self.arrived[0] and bool((self.slot < 0).any())


@compiled(allocates=False, inline=True)
def exponent(inner: float, gamma: float, own: float, other: float) -> float:
    """``-gamma ||x - z||^2`` from ``<x, z>``, ``own = gamma ||x||^2``, ``other = ||z||^2``."""
    value = 2.0 * gamma * inner - own - gamma * other
    return 0.0 if value > 0.0 else value  # NaN stays


@compiled(fastmath=SUMS, allocates=False)
def evaluate_row(k: int, source: KernelPoints, out: Array) -> None:
    """``exp(-gamma ||x_k - x_j||^2)`` for all j."""
    points, squares, gamma = source
    for j in range(len(out)):
        inner = 0.0
        for p in range(points.shape[1]):
            inner += points[k, p] * points[j, p]
        out[j] = np.exp(exponent(inner, gamma, gamma * squares[k], squares[j]))


@compiled(allocates=False)
def want_row(k: int, rows: RowsOnDemand) -> int:
    """Where row k is in K, after it has come if need be; -1 where there is no room for it."""
    place = rows.slot[k]
    if place < 0:
        place = rows.arrived[0]
        if place >= len(rows.K):
            return -1
        row = rows.K[place]
        if rows.larger.size:
            whole, places = rows.larger[rows.places[k]], rows.places
            for j in range(len(row)):
                row[j] = whole[places[j]]
        else:
            evaluate_row(k, rows.source, row)
        rows.slot[k], rows.arrived[0] = place, place + 1
    return place
