"""Hinges that are two halves of one loss, and absolute values that are the L1 norm.

Two hinges that look at one argument from both sides are one loss with a dead zone.

``c_1 max(0, l - t) + c_2 max(0, t - r)`` with ``l <= r`` is an epsilon-insensitive loss (pinball
for ``l = r``), and so it is with two squares. This is what regression with two slack variables, and
sums of ``pos(e)`` and ``neg(e)``, come to; together they are one term instead of two.

Absolute values of single coordinates are the L1 norm of the regulariser, not losses.

A term ``f(gamma x_j)`` with its kink at 0 is ``kappa |x_j| + tilt x_j``. Taken out of the losses it
lets coordinates be screened: those proven zero leave the reduced problem altogether. On the way
back the slope of every such term is its share of the subgradient of the L1 norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.standard import Stack

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SEED = 19790401
CLOSE = 1e-11


@dataclass(frozen=True, eq=False)
class Pairing:
    """Which of the terms found are which of the problem's terms.

    Attributes
    ----------
    first : array of int, shape (n,)
        The found term whose row the problem's term has.
    second : array of int, shape (n,)
        The found term on the other side, with the opposite row; -1 for a term of its own.
    found : int
        Number of terms found.
    """

    first: Index
    second: Index
    found: int

    def split(self, theta: Array) -> Array:
        """Slopes of the problem's terms as slopes of the terms found, shape (found,)."""
        out = np.zeros(self.found)
        paired = self.second >= 0
        out[self.first] = np.where(paired, np.minimum(theta, 0.0), theta)
        out[self.second[paired]] = -np.maximum(theta[paired], 0.0)
        return out


def pair(rows: Stack, numbers: Array) -> tuple[Pairing, Array]:
    """Join opposite hinges.

    Parameters
    ----------
    rows : Stack, shape (found, N)
        Arguments of the terms found.
    numbers : array, shape (found, 5)
        Their five numbers.

    Returns
    -------
    Pairing
    array, shape (n, 5)
        The five numbers of the joined terms.
    """
    count = len(numbers)
    b, e, q, lo, hi = numbers.T
    plain = np.flatnonzero((e == 0) & (hi == 0) & (lo < 0))
    second = np.full(count, -1, dtype=np.intp)
    if len(plain) > 1:
        points = np.random.default_rng(SEED).standard_normal((rows.shape[1], 3))
        left, right = _opposite(plain, rows.apply(points)[plain])
        apart = (b[left] <= -b[right]) & (q[left] == q[right])
        second[left[apart]] = right[apart]
    taken = np.zeros(count, dtype=bool)
    taken[second[second >= 0]] = True
    first = np.flatnonzero(~taken)
    joined, other = numbers[first].copy(), second[first]
    both = other >= 0
    near, far = numbers[first[both], 0], -numbers[other[both], 0]
    joined[both, 0], joined[both, 1] = (near + far) / 2, (far - near) / 2
    joined[both, 4] = -numbers[other[both], 3]
    return Pairing(first, other, count), joined


def _opposite(index: Index, images: Array) -> tuple[Index, Index]:
    """Neighbours by size whose images are each other's negative."""
    order = np.argsort(np.abs(images[:, 0]), kind="stable")
    sorted_images, names = images[order], index[order]
    size = np.abs(sorted_images).max(axis=1)
    gap = np.abs(sorted_images[1:] + sorted_images[:-1]).max(axis=1)
    match = (gap <= CLOSE * size[1:]) & (size[1:] > 0)
    # Every term belongs to one pair at most: take every other one of a run of matches.
    run = np.flatnonzero(match)
    keep: list[int] = []
    for place in run:
        if not keep or place > keep[-1] + 1:
            keep.append(int(place))
    spot = np.array(keep, dtype=np.intp)
    one, two = names[spot], names[spot + 1]
    return np.minimum(one, two), np.maximum(one, two)


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Which of the recognised terms are absolute values of single coordinates.

    Attributes
    ----------
    terms : array of int, shape (k,)
        Their positions among all terms.
    rest : array of int, shape (n,)
        Positions of the others, which are the problem's losses.
    coordinates : array of int, shape (k,)
        ``j``.
    factors : array, shape (k,)
        ``gamma``, not 0.
    low, high : array, shape (k,)
        Box of the slopes.
    """

    terms: Index
    rest: Index
    coordinates: Index
    factors: Array
    low: Array
    high: Array

    @property
    def weights(self) -> Array:
        """``kappa`` of each term, shape (k,)."""
        return np.asarray(np.abs(self.factors) * (0.5 * self.high - 0.5 * self.low))

    @property
    def tilts(self) -> Array:
        """Slope of the linear part of each term, shape (k,)."""
        return np.asarray(self.factors * (0.5 * self.high + 0.5 * self.low))

    def total(self, values: Array, size: int) -> Array:
        """Sum of `values`, shape (k,), by coordinate, shape (size,)."""
        out = np.zeros(size)
        np.add.at(out, self.coordinates, values)
        return out

    def penalty(self, size: int) -> L1:
        """The L1 norm over `size` coordinates."""
        return L1(self.total(self.weights, size))

    def slopes(self, theta: Array, penalty_subgradient: Array) -> Array:
        """Slopes of all terms.

        Parameters
        ----------
        theta : array, shape (n,)
            Of the losses.
        penalty_subgradient : array, shape (d,)
            A subgradient of the L1 norm.
        """
        out = np.zeros(len(self.terms) + len(self.rest))
        out[self.rest] = theta
        kappa = self.total(self.weights, len(penalty_subgradient))
        with np.errstate(invalid="ignore", over="ignore"):
            share = penalty_subgradient / np.where(kappa > 0, kappa, 1.0)
        pulled = self.tilts + self.weights * share[self.coordinates]
        out[self.terms] = np.clip(pulled / self.factors, self.low, self.high)
        return out

    def reordered(self, order: Index) -> Shrinkage:
        """The same with coordinate ``order[i]`` at place i."""
        place = np.argsort(order)
        return replace(self, coordinates=place[self.coordinates])

    def scaled(self, factor: Array) -> Shrinkage:
        """The terms times their entries of `factor`, shape (k + n,)."""
        own = factor[self.terms]
        return replace(self, low=self.low * own, high=self.high * own)


def find(rows: Stack, numbers: Array, core: Index, quadratic: Any) -> Shrinkage | None:
    """The terms that are absolute values of single coordinates, where features can be screened.

    Parameters
    ----------
    rows : Stack, shape (k + n, N)
        Arguments of all terms, without their offsets.
    numbers : array, shape (k + n, 5)
    core : array of int, shape (d,)
        Columns of the coordinates.
    quadratic : CSR array, shape (d, d)

    Returns
    -------
    Shrinkage or None
        None as well where nothing but such terms is left, or where the quadratic term is not a
        positive diagonal.
    """
    b, e, q, low, high = numbers.T
    terms = (b == 0) & (e == 0) & (q == 0) & np.isfinite(low) & np.isfinite(high)
    terms &= (np.diff(rows.sparse.indptr) == 1) & ~rows.dense_rows()
    if not terms.any() or terms.all():
        return None
    diagonal = quadratic.diagonal()
    absent = quadratic.nnz == 0
    if not absent and ((diagonal <= 0).any() or quadratic.nnz > len(diagonal)):
        return None
    index = np.flatnonzero(terms)
    spot = rows.sparse.indptr[index]
    place = np.full(rows.shape[1], -1, dtype=np.intp)
    place[core] = np.arange(len(core))
    found = Shrinkage(
        index,
        np.flatnonzero(~terms),
        place[rows.sparse.indices[spot]],
        np.asarray(rows.sparse.data[spot], dtype=np.float64),
        low[index],
        high[index],
    )
    return found if not absent or _holds(found, q[~terms], len(core)) else None


def _holds(found: Shrinkage, q: Array, size: int) -> bool:
    """Whether the L1 norm can do without a quadratic term: on every coordinate, beside smooth f."""
    everywhere = (found.coordinates >= 0).all() and (found.total(found.weights, size) > 0).all()
    return bool(everywhere and (q > 0).all() and not found.total(found.tilts, size).any())


def subgradient(problem: Problem, theta: Array) -> Array:
    """The subgradient of the L1 norm that goes with the slopes `theta`, shape (d,)."""
    if problem.penalty is None:
        return np.zeros(problem.d)
    pull = problem.design.adjoint(theta) + problem.linear
    return problem.penalty.prox_and_subgradient(-pull, problem.quadratic.diagonal)[1]
