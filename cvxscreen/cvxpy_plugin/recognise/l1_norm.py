"""Absolute values of single coordinates are the L1 norm of the regulariser, not losses.

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
from cvxscreen.cvxpy_plugin.recognise.row_stack import Stack

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def find_l1_norm(rows: Stack, numbers: Array, core: Index, quadratic: Any) -> L1Terms | None:
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
    found = L1Terms(
        index,
        np.flatnonzero(~terms),
        place[rows.sparse.indices[spot]],
        np.asarray(rows.sparse.data[spot], dtype=np.float64),
        low[index],
        high[index],
    )
    return found if not absent or _needs_no_square(found, q[~terms], len(core)) else None


def _needs_no_square(found: L1Terms, q: Array, size: int) -> bool:
    """Whether the L1 norm can do without a quadratic term: on every coordinate, beside smooth f."""
    everywhere = (found.coordinates >= 0).all() and (found.total(found.weights, size) > 0).all()
    return bool(everywhere and (q > 0).all() and not found.total(found.linear_slopes, size).any())


@dataclass(frozen=True, eq=False)
class L1Terms:
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
    def linear_slopes(self) -> Array:
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
        term_slopes = self.linear_slopes + self.weights * share[self.coordinates]
        out[self.terms] = np.clip(term_slopes / self.factors, self.low, self.high)
        return out

    def reordered(self, order: Index) -> L1Terms:
        """The same with coordinate ``order[i]`` at place i."""
        place = np.argsort(order)
        return replace(self, coordinates=place[self.coordinates])

    def scaled(self, factor: Array) -> L1Terms:
        """The terms times their entries of `factor`, shape (k + n,)."""
        own = factor[self.terms]
        return replace(self, low=self.low * own, high=self.high * own)


def l1_subgradient(problem: Problem, theta: Array) -> Array:
    """The subgradient of the L1 norm that goes with the slopes `theta`, shape (d,)."""
    if problem.penalty is None:
        return np.zeros(problem.d)
    gradient = problem.design.adjoint(theta) + problem.linear
    return problem.penalty.prox_and_subgradient(-gradient, problem.quadratic.diagonal)[1]
