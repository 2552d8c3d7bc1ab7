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

Proofs: ``docs/theory.md``, section 10.
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

__all__ = ["OverWeights", "WeightSet", "left_out_margins", "over_weights", "takes_left_out",
           "takes_weights"]

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
    """Whether `left_out_margins` applies: no side constraints, one unpenalised coordinate at most.

    Where there is one, M is diagonal.
    """
    form = point.problem.quadratic
    count = int(form.free.sum())
    fits = count == 0 or (count == 1 and form.matrix is None)
    return fits and point.problem.side is None and bool(np.isfinite(point.gap))


def takes_weights(point: Point) -> bool:
    """Whether `over_weights` applies: every coordinate penalised, nothing but losses and M."""
    problem = point.problem
    plain = problem.penalty is None and problem.quadratic.matrix is None
    return plain and not problem.quadratic.free.any() and takes_left_out(point)


def left_out_margins(point: Point) -> tuple[Array, Array]:
    """For every term an interval of its margin ``<a_i, x>`` at the optimum without that term.

    With ``G`` the sum of the Fenchel-Young terms, ``d = x - x_theta`` and all norms in the metric
    of ``M^{-1}`` the optimum without term i lies in the ball

    ::

        centre  (x + x_theta + theta_i M^{-1} a_i) / 2
        radius  sqrt(G + |d - theta_i M^{-1} a_i|^2 / 4)  <=  sqrt(G + (|d| + |theta_i| |a_i|)^2/4)

    (`cvxscreen.bounds.midpoint_ball` of the pair with ``theta_i = 0``; under a penalty or in a cone
    too, where ``x_theta`` is the proximal point at the old slopes and G holds the penalty's term.)
    At an exact optimum the interval is from ``t_i`` to ``t_i + theta_i |a_i|^2``, and a term with
    ``theta_i = 0`` changes nothing. Beside an unpenalised coordinate see `_beside_an_intercept`.

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
    if problem.quadratic.free.any():
        return _beside_an_intercept(point)
    base, error, n_i, distance = _at_the_midpoint(point)
    # Both ends grow with the norm, so that an upper bound of it serves a dense M as well.
    pulled = point.theta * n_i**2
    error = error + (gamma(2 * problem.d + 24) + 4.0 * UNIT) * np.abs(pulled)
    away = up(1.0, 16) * (distance + np.abs(point.theta) * n_i)
    radius = up(1.0, 16) * np.sqrt(up(point.terms) + 0.25 * away * away)
    return outward(base + 0.5 * pulled, up(1.0, 8) * (n_i * radius + error))


def _at_the_midpoint(point: Point) -> tuple[Array, Array, Array, float]:
    """Margins of ``(x + x_theta)/2``, their errors, norms rounded up, and ``|x - x_theta|``."""
    problem = point.problem
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    other = problem.design.forward(point.x_theta)
    error = 0.5 * (
        point.margin_error
        + margin_error(problem, point.x_theta)
        + n_i * (point.dual_error + problem.drift)
    ) + 4.0 * UNIT * (np.abs(point.margins) + np.abs(other))
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    return 0.5 * (point.margins + other), error, n_i, distance


@dataclass(frozen=True, eq=False)
class _Mix:
    """A direction of the slopes that changes ``s = sum_i a_i,free theta_i`` by one, and its cost.

    Attributes
    ----------
    room : float
        How far it may be gone; 0 where there is none.
    slopes : array, shape (n,)
        The direction.
    error : float
        Of the one unit.
    rate, bend : float
        What a way tau adds to the Fenchel-Young terms: at most ``rate tau + bend tau^2 / 2``.
    products, products_error : array, shape (n,)
        ``<a_i, M^{-1} A' slopes>``, penalised coordinates only.
    length : float
        Upper bound of ``|A' slopes|``.
    """

    room: float
    slopes: Array
    error: float
    rate: float
    bend: float
    products: Array
    products_error: Array
    length: float


def _mix(point: Point, sign: float) -> _Mix:
    """The terms at a kink of their loss, or else on a parabola, that move s by `sign`.

    At a kink any slope in the box has the Fenchel-Young term 0, so that moving costs nothing. They
    take part by the room that they have; on parabolas, by how little it costs.
    """
    problem, theta, f = point.problem, point.theta, point.problem.losses
    a = problem.free_columns[:, 0]
    way = sign * np.sign(a)
    end = np.where(way > 0.0, f.hi, f.lo)
    end = np.where((f.e > 0.0) & (way * theta < 0.0), 0.0, end)  # a kink of the conjugate
    room = np.where(way == 0.0, 0.0, way * (end - theta))
    knot = f.b + f.e * np.where(theta == 0.0, way, np.sign(theta)) + f.q * theta
    off = np.maximum(way * (knot - point.margins), 0.0) + point.margin_error
    off = off + 8.0 * UNIT * (np.abs(knot) + np.abs(f.b) + f.e + np.abs(point.margins))
    near = np.sqrt(point.terms + 0.5 * point.primal_dual_distance**2) * problem.norms
    able = (room > 0.0) & (off <= near + 16.0 * point.margin_error)
    flat = able & (f.q == 0.0) & np.isfinite(room)
    if flat.any():
        share = np.where(flat, room, 0.0)
    else:
        share = np.where(able & (f.q > 0.0), np.abs(a) / np.where(f.q > 0.0, f.q, 1.0), 0.0)
    total = float(np.abs(a) @ share)
    if not (0.0 < total < np.inf):
        nothing = np.zeros(problem.n)
        return _Mix(0.0, nothing, 0.0, 0.0, 0.0, nothing, nothing, 0.0)
    slopes = way * share / total
    used = np.flatnonzero(slopes)
    size = np.abs(slopes[used])
    most = 0.999 * float(np.min(room[used] / size))
    pull = problem.quadratic.solve(problem.design.adjoint(slopes))
    inexact = 4.0 * UNIT * problem.quadratic.norm(pull) + up(
        problem.design.adjoint_factor * float(size @ problem.rounding_norms[used]), problem.n
    )
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    return _Mix(
        min(most, 1e300), slopes, gamma(problem.n + 8) * 2.0,
        up(float(size @ off[used]), len(used)),
        up(float(np.square(size) @ f.q[used]), len(used) + 8),
        problem.design.forward(pull), margin_error(problem, pull) + n_i * inexact,
        up(problem.quadratic.norm(pull), problem.d + 8) + inexact,
    )


def _beside_an_intercept(point: Point) -> tuple[Array, Array]:
    """`left_out_margins` with one unpenalised coordinate, b, of which no ball knows anything.

    For slopes theta in their boxes, balanced or not, with ``s = sum_i a_i,free theta_i + q_free``
    and w the penalised coordinates

    ::

        (b* - b) s + |w* - (w + w_theta)/2|^2  <=  sum_i FY_i + |w - w_theta|^2 / 4

    as the optimal value lies above that of the dual with b fixed and below that at x, either by
    half a square. At s = 0 it is the midpoint ball. With ``s = h a_i,free`` it bounds the margin of
    term i itself, from above for h > 0 and from below for h < 0:

    ::

        <a_i, x*>  <=  <a_i, (w + w_theta)/2> + a_i,free b + (sum FY + |w - w_theta|^2/4) / h
                       + h |a_i|^2 / 4

    Without the slope of term i, and ``tau = a_i,free (theta_i + h)`` of a mix u of terms at a kink
    in its place, at an exact optimum that is ``t_i + (theta_i + h)^2 |a_i - a_i,free u|^2 / 4h``:
    the interval is from ``t_i`` to ``t_i + theta_i |a_i - a_i,free u|^2``, as if the data were
    centred at u.
    """
    problem, theta = point.problem, point.theta
    [free] = np.flatnonzero(problem.quadratic.free)
    a = problem.free_columns[:, 0]
    size = np.abs(a)
    base, error, n_i, distance = _at_the_midpoint(point)
    residual = float(point.At_theta[free] + problem.linear[free])
    unbalanced = abs(residual) * (1.0 + 4.0 * UNIT) + problem.imbalance + up(
        (problem.design.adjoint_factor + gamma(problem.n)) * float(np.abs(theta) @ size), 8
    )
    mixes = {sign: _mix(point, sign) for sign in (1.0, -1.0)}
    ends = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for side in (-1.0, 1.0):  # of h: the lower end, then the upper one
            best = np.full(problem.n, np.inf)
            for sign, mix in mixes.items():
                own = mix.slopes * a * sign  # what of the mix would be the term's own
                others = 1.0 - own
                centred = n_i**2 - 2.0 * a * sign * mix.products + (a * mix.length) ** 2
                h = np.sqrt(theta**2 + 4.0 * point.terms / np.maximum(centred, 1e-12 * n_i**2))
                # s moves by `sign` only: of the other sign of a (theta + h) nothing is taken.
                eta = np.clip(sign * a * (theta + side * h), 0.0, mix.room * others) / (sign * a)
                tau = np.abs(a * eta) / others
                gone = theta + tau * mix.slopes
                h = side * (eta - theta)
                off = (unbalanced + tau * mix.error) / size + 16.0 * UNIT * (
                    np.abs(gone) + tau / size + np.abs(theta)
                )
                cross = gone * tau * mix.products
                product = gone * n_i**2 - tau * mix.products
                inexact = gamma(2 * problem.d + 32) * (np.abs(gone) * n_i + tau * mix.length) * n_i
                inexact = inexact + tau * mix.products_error
                square = (gone * n_i) ** 2 - 2.0 * cross + (tau * mix.length) ** 2
                square = square + 2.0 * np.abs(gone) * (inexact + tau * mix.products_error)
                square = square + gamma(2 * problem.d + 32) * (
                    (gone * n_i) ** 2 + 2.0 * np.abs(cross) + (tau * mix.length) ** 2
                )
                away = distance + np.sqrt(np.maximum(square, 0.0))
                above = point.terms + tau * mix.rate + 0.5 * tau * tau * mix.bend + 0.25 * away**2
                reach = up(1.0, 32) * (
                    above / (h - off) + 0.25 * (h + off) * n_i**2 + 0.5 * inexact + error
                ) + 0.5 * side * product
                good = (h - off > 0.0) & (others > 0.0) & np.isfinite(reach)
                best = np.where(good, np.minimum(best, reach), best)
            ends.append(best)
    rounding = 8.0 * UNIT * (np.abs(base) + np.abs(theta) * n_i**2)
    return base - ends[0] - rounding, base + ends[1] + rounding


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
        Of a problem for which `takes_weights` holds.
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
