"""How far an optimum can move when terms lose their weight: one ball, known without a solve.

Let ``(x, theta)`` belong to a problem and let the weights of its terms change from ``c_i`` to
``c_i w_i``. The slopes ``w_i theta_i`` are dual feasible for the new problem, its Fenchel-Young
terms are ``w_i FY_i``, and its dual point's primal point differs by ``M^{-1} A' ((1 - w) theta)``.
So the midpoint ball of the new problem is known from the old pair. At an exact optimum

::

    centre  x - 1/2 M^{-1} A' ((w - 1) theta),    radius  1/2 |A' ((w - 1) theta)|_{M^{-1}}

Okumura, Suzuki and Takeuchi (2015) bound incremental changes of the data by such balls; the
midpoint ball halves their radius and needs no exact optimum.

`left_out_margins` is the case of one weight that becomes 0, `over_weights` that of a whole set of
weights around 1, where what bounds ``A' ((w - 1) theta)`` is a norm of ``diag(theta) A``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.problem import Problem
from cvxscreen.designs.protocols import Design

__all__ = ["OverWeights", "WeightSet", "left_out_margins", "over_weights", "takes_left_out"]

Array = NDArray[np.float64]

EIGENVALUES = 2000
"""Most rows of the symmetric matrix whose largest eigenvalue is computed, 0.5 s; beyond, its trace
bounds it."""

PAIRINGS = 2e10
"""Most multiplications for products of rows with each other, about 5 s; beyond, their lengths bound
them."""

BLOCK = 2**22
"""Numbers of a block of such products."""


def takes_left_out(point: Point) -> bool:
    """Whether `left_out_margins` applies: every coordinate penalised, nothing but losses and M."""
    problem = point.problem
    plain = problem.side is None and problem.penalty is None and problem.quadratic.matrix is None
    return plain and not problem.quadratic.free.any() and bool(np.isfinite(point.gap))


def left_out_margins(point: Point) -> tuple[Array, Array]:
    """For every term an interval of its margin ``<a_i, x>`` at the optimum without that term.

    With ``G`` the sum of the Fenchel-Young terms, ``d = x - x_theta`` and all norms in the metric
    of ``M^{-1}`` the optimum without term i lies in the ball

    ::

        centre  (x + x_theta + theta_i M^{-1} a_i) / 2 radius  sqrt(G + |d - theta_i M^{-1} a_i|^2 /
        4)  <=  sqrt(G + (|d| + |theta_i| |a_i|)^2 / 4)

    (`cvxscreen.bounds.midpoint_ball` of the pair with ``theta_i = 0``). At an exact optimum the
    interval is from ``t_i`` to ``t_i + theta_i |a_i|^2``, and a term with ``theta_i = 0`` changes
    nothing.

    Parameters
    ----------
    point : Point
        Any primal and dual feasible point of a problem for which `takes_left_out` holds; the closer
        to its optimum, the shorter the intervals.

    Returns
    -------
    low, high : arrays, shape (n,)
        Rounded outward.
    """
    problem = point.problem
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    size = np.abs(point.theta)
    other = problem.design.forward(point.x_theta)
    pulled = point.theta * problem.norms**2
    middle = 0.5 * (point.margins + other + pulled)
    error = 0.5 * (
        point.margin_error
        + margin_error(problem, point.x_theta)
        + n_i * (point.dual_error + problem.drift)
        + gamma(2 * problem.d + 24) * np.abs(pulled)
    ) + 4.0 * UNIT * (np.abs(point.margins) + np.abs(other) + np.abs(pulled))
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    away = up(1.0, 16) * (distance + size * n_i)
    radius = up(1.0, 16) * np.sqrt(up(point.terms) + 0.25 * away * away)
    return outward(middle, up(1.0, 8) * (n_i * radius + error))


@dataclass(frozen=True, eq=False)
class WeightSet:
    """Weights ``w = 1 + S v`` of the terms, none negative, v in a set that holds 0.

    Attributes
    ----------
    norm : {"l2", "l1", "interval"}
        ``|v|_2 <= 1``, ``|v|_1 <= 1``, or ``low <= v <= high`` for every term.
    low, high : array, shape (n,)
        Of the interval, ``low <= 0 <= high``.
    """

    norm: str
    low: Array
    high: Array

    def most(self, products: Array) -> tuple[Array, Array]:
        """Upper bounds of ``<p, v>`` and ``-<p, v>`` for each row p of `products`, two arrays."""
        rounding = up(1.0, products.shape[1] + 8)
        if self.norm == "l2":
            both = rounding * np.sqrt(np.square(products).sum(axis=1))
            return both, both
        if self.norm == "l1":
            both = np.abs(products).max(axis=1, initial=0.0)
            return both, both
        rise, fall = np.maximum(products, 0.0), np.maximum(-products, 0.0)
        return rounding * (rise @ self.high - fall @ self.low), rounding * (
            fall @ self.high - rise @ self.low
        )

    def reach(self, lengths: Array) -> float:
        """An upper bound of ``sum_i lengths_i |v_i|`` over the set, for non-negative lengths."""
        if self.norm == "interval":
            farthest = np.maximum(-self.low, self.high)
            return float(up(1.0, len(lengths) + 8) * (lengths @ farthest))
        return float(self.most(lengths[None, :])[1][0])

    def among(self, used: NDArray[np.intp]) -> WeightSet:
        """The same for the terms at `used`; the other weights change nothing."""
        return WeightSet(self.norm, self.low[used], self.high[used])


@dataclass(frozen=True, eq=False)
class OverWeights:
    """Intervals of ``<z, x*>`` for several z, over all weights ``1 + S v`` and for any S.

    Attributes
    ----------
    middle, error : array, shape (m,)
        At the midpoint of the pair as it is, and the rounding there.
    norms : array, shape (m,)
        Upper bounds of ``|z|`` in the metric of ``M^{-1}``.
    down, up : array, shape (m,)
        Upper bounds of how far one unit of S moves ``<z, x_theta>``, which falls by ``<p, v>``.
    terms, more_terms : float
        Sum of the Fenchel-Young terms, and what one unit of S adds to it.
    distance, pull : float
        ``|x - x_theta|``, and what one unit of S moves x_theta.
    """

    middle: Array
    error: Array
    norms: Array
    down: Array
    up: Array
    terms: float
    more_terms: float
    distance: float
    pull: float

    def at(self, size: float | Array) -> tuple[Array, Array]:
        """The intervals at S = `size`, one number or one for each z; rounded outward."""
        S = np.asarray(size, dtype=np.float64)
        away = up(1.0, 8) * (self.distance + S * self.pull)
        radius = np.sqrt(up(1.0, 16) * (self.terms + S * self.more_terms + 0.25 * away * away))
        reach = self.norms * radius + self.error
        low, _ = outward(self.middle, up(1.0, 16) * (reach + 0.5 * S * self.down))
        _, high = outward(self.middle, up(1.0, 16) * (reach + 0.5 * S * self.up))
        return low, high


def over_weights(point: Point, functionals: Design, weights: WeightSet) -> OverWeights:
    """Where ``<z, x*>`` is when the weights of the terms are anywhere in a set around 1.

    With ``u(v) = M^{-1} A' (v theta)``, ``d = x - x_theta`` and G the sum of the Fenchel-Young
    terms, the optimum for the weights ``1 + S v`` lies in the ball

    ::

        centre  (x + x_theta - S u(v)) / 2,    radius  sqrt(G(w) + |d + S u(v)|^2 / 4)

    so ``<z, x*>`` is within ``|z| sqrt(G(w) + (|d| + S max|u|)^2 / 4)`` of the centre's, which is
    within ``S/2 max <p, v>`` of the midpoint's, ``p_i = theta_i <a_i, M^{-1} z>``. Over a ball
    ``|v|_2 <= 1`` the first maximum is ``|diag(theta) A M^{-1/2}|_2`` and the second ``|p|_2``,
    over ``|v|_1 <= 1`` they are the largest ``|theta_i| |a_i|`` and ``|p_i|`` (Tabata et al. 2024
    bound the first of these with the ball of the duality gap).

    Parameters
    ----------
    point : Point
        Of a problem for which `takes_left_out` holds.
    functionals : Design
        The rows z, with the coordinates of the problem.
    weights : WeightSet

    Returns
    -------
    OverWeights
    """
    problem = point.problem
    theta, form = point.theta, problem.quadratic
    used = np.flatnonzero(theta)
    changes, slopes = weights.among(used), theta[used]
    norms = form.dual_norms(functionals) * (1.0 + gamma(problem.d + 8))
    sizes = norms * np.sqrt(up(float(form.diagonal.max(initial=0.0))))
    at_x, at_dual = functionals.forward(point.x), functionals.forward(point.x_theta)
    error = 0.5 * up(1.0) * (
        functionals.forward_error(point.x, sizes) + functionals.forward_error(point.x_theta, sizes)
    )
    error = error + 0.5 * norms * (point.dual_error + problem.drift)
    error = error + 4.0 * UNIT * (np.abs(at_x) + np.abs(at_dual))
    lengths = np.abs(slopes) * problem.norms[used] * (1.0 + gamma(problem.d + 8))
    pull = _longest(problem, used, slopes, lengths, changes)
    down = rise = farthest = up(1.0) * norms * pull
    if len(norms) and len(norms) * len(used) * problem.d <= PAIRINGS:
        parts = [
            changes.most(products * slopes) for products in _pairings(problem, functionals, used)
        ]
        down, rise = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        inexact = gamma(problem.d + 8) * norms * changes.reach(lengths)
        down, rise = np.minimum(down + inexact, farthest), np.minimum(rise + inexact, farthest)
    grown = 1.0 if weights.norm != "interval" else float(weights.high.max(initial=0.0))
    terms = up(point.terms)
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    return OverWeights(
        0.5 * (at_x + at_dual), error, norms, down, rise, terms, grown * terms, distance, pull
    )


def _longest(
    problem: Problem, used: NDArray[np.intp], slopes: Array, lengths: Array, weights: WeightSet
) -> float:
    """An upper bound of ``|A' (v theta)|`` in the metric of ``M^{-1}`` over the set of v."""
    if not len(used) or weights.norm == "l1":
        return weights.reach(lengths)
    widest = _largest_singular_value(problem, used, slopes, lengths)
    if weights.norm == "l2":
        return widest
    middle, half = 0.5 * (weights.low + weights.high), 0.5 * (weights.high - weights.low)
    load = np.zeros(problem.n)
    load[used] = middle * slopes
    pulled = problem.design.adjoint(load)
    moved = up(float(np.sqrt(np.sum(pulled**2 / problem.quadratic.diagonal))), problem.d + 8)
    moved += problem.design.adjoint_factor * float(
        np.abs(load[used]) @ problem.rounding_norms[used]
    )
    together = up(moved + widest * float(np.linalg.norm(half)), len(used) + 16)
    return min(weights.reach(lengths), together)


def _largest_singular_value(
    problem: Problem, used: NDArray[np.intp], slopes: Array, lengths: Array
) -> float:
    """An upper bound of the largest singular value of ``diag(theta) A M^{-1/2}``."""
    trace = up(float(lengths @ lengths), len(used) + 16)
    small = min(problem.d, len(used))
    if small > EIGENVALUES:
        return float(np.sqrt(trace))
    if problem.d <= len(used):
        scale = 1.0 / np.sqrt(problem.quadratic.diagonal)
        gram = problem.design.weighted_gram(used, slopes**2) * (scale[:, None] * scale)
    else:
        products = next(_pairings(problem, problem.design.take_rows(used), used, len(used)))
        gram = products * (slopes[:, None] * slopes)
    top = float(np.linalg.eigvalsh(gram)[-1])
    # Entries of the matrix, then its eigenvalues (LAPACK: a modest multiple of their number).
    rounding = gamma(len(used) + problem.d + 16) + 32.0 * small * UNIT
    return float(np.sqrt(up(max(top, 0.0) + rounding * trace)))


def _pairings(
    problem: Problem, functionals: Design, used: NDArray[np.intp], block: int | None = None
) -> Iterator[Array]:
    """Products ``<z_k, M^{-1} a_i>``, i in `used`: a block of rows z after another."""
    scale = 1.0 / problem.quadratic.diagonal
    count = functionals.shape[0]
    size = block or max(1, BLOCK // max(len(used), problem.d if not functionals.sparse else 1))
    if problem.design.sparse:
        rows = problem.design.rows_csr(used).T.tocsr()
        for start in range(0, count, size):
            part = functionals.rows_csr(np.arange(start, min(start + size, count)))
            yield np.asarray((part.multiply(scale[None, :]).tocsr() @ rows).todense())
        return
    columns = problem.design.dense(used).T
    for start in range(0, count, size):
        part = functionals.dense(np.arange(start, min(start + size, count)))
        yield (part * scale) @ columns
