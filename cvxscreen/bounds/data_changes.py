"""How far an optimum can move when terms lose their weight: one ball, known without a solve.

Let ``(x, theta)`` belong to a problem and let the weights of its terms change from ``c_i`` to
``c_i w_i``. The slopes ``w_i theta_i`` are dual feasible for the new problem, its Fenchel-Young
terms are ``w_i FY_i``, and its dual point's primal point differs by ``M^{-1} A' ((1 - w) theta)``.
So the midpoint ball of the new problem is known from the old pair. At an exact optimum

::

    centre  x - 1/2 M^{-1} A' ((w - 1) theta),    radius  1/2 |A' ((w - 1) theta)|_{M^{-1}}

Okumura, Suzuki and Takeuchi (2015) bound incremental changes of the data by such balls; the
midpoint ball halves their radius and needs no exact optimum.

`left_out_margins` is the case of one weight that becomes 0, `left_out_groups` that of several
together, `over_weights` that of a whole set of
weights around 1, where what bounds ``A' ((w - 1) theta)`` is a norm of ``diag(theta) A``. Beside
an unpenalised coordinate terms at a kink of their loss take up what is no longer balanced (`_mix`):
the data are then as if centred there.

Proofs: ``docs/theory.md``, section 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram
from cvxscreen.designs.protocols import Design

__all__ = ["OverWeights", "WeightSet", "left_out_distances", "left_out_groups", "left_out_margins",
           "over_weights", "takes_groups", "takes_left_out", "takes_weights"]

Array = NDArray[np.float64]

EIGENVALUES = 2000
"""Most rows of the symmetric matrix whose largest eigenvalue is computed, 0.5 s; beyond, its trace
bounds it."""

PAIRINGS = 2e10
"""Most multiplications for products of rows with each other, about 5 s; beyond, their lengths bound
them."""

EVALUATION = 100
"""Multiplications that one value of a kernel counts for."""

BLOCK = 2**22
"""Numbers of a block of such products."""

AT_ONCE = 2**12
"""Terms whose intervals beside an intercept are made together: what is in between, some 30 arrays,
stays in the cache."""

ROOM = 4.0
"""How often over terms on parabolas have the room to make up for the largest pull of a term: twice
is what its interval needs, and those that are held back take a part of it from the sum."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""A product below it may lose all its digits, but is off by less."""


def takes_left_out(point: Point) -> bool:
    """Whether `left_out_margins` applies: no side constraints, one unpenalised coordinate at most.

    Where there is one, M is diagonal.
    """
    form = point.problem.quadratic
    count = int(form.free.sum())
    fits = count == 0 or (count == 1 and form.matrix is None)
    return fits and point.problem.side is None and bool(np.isfinite(point.gap))


def takes_weights(point: Point) -> bool:
    """Whether `over_weights` applies: as `takes_left_out`, and M is diagonal."""
    return point.problem.quadratic.matrix is None and takes_left_out(point)


def takes_groups(point: Point) -> bool:
    """Whether `left_out_groups` applies: as `takes_weights`, without an unpenalised coordinate."""
    return takes_weights(point) and not point.problem.quadratic.free.any()


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


def left_out_groups(
    point: Point, groups: Iterable[NDArray[np.intp]]
) -> Iterator[tuple[Array, Array]]:
    """For the terms of each group intervals of their margins at the optimum without all of them.

    With ``r = M^{-1} sum_g theta_i a_i`` over the terms that leave, and G and d as in
    `left_out_margins`, the optimum without the group g lies in the ball

    ::

        centre  (x + x_theta + r) / 2,    radius  sqrt(G + (|d| + |r|)^2 / 4)

    At an exact optimum it is the ball between x and ``x + r``. Single terms as groups have the
    intervals of `left_out_margins`, up to rounding.

    Parameters
    ----------
    point : Point
        Of a problem for which `takes_groups` holds.
    groups : iterable of arrays of int
        Positions of the terms of each group, each once; a term may be in several.

    Yields
    ------
    low, high : arrays, as long as the group
        Rounded outward.
    """
    problem, theta = point.problem, point.theta
    base, error, n_i, distance = _at_the_midpoint(point)
    for rows in groups:
        design, slopes, norms = problem.design.take_rows(rows), theta[rows], n_i[rows]
        x_direction = problem.quadratic.solve(design.adjoint(slopes))
        inexact = 4.0 * UNIT * problem.quadratic.norm(x_direction) + up(
            (problem.design.adjoint_factor + gamma(len(rows)))
            * float(np.abs(slopes) @ problem.rounding_norms[rows]), len(rows)
        )
        along = design.forward(x_direction)
        off = design.forward_error(x_direction, problem.sizes[rows]) + norms * inexact
        away = distance + up(problem.quadratic.norm(x_direction), problem.d + 8) + inexact
        radius = np.sqrt(up(point.terms) + 0.25 * up(away) ** 2) * up(1.0, 16)
        reach = norms * radius + error[rows] + 0.5 * up(1.0) * off + 4.0 * UNIT * np.abs(along)
        yield outward(base[rows] + 0.5 * along, up(1.0, 8) * reach)


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


class _Mix(Immutable):
    """A direction of the slopes that changes ``s = sum_i a_i,free theta_i`` by one, and its cost.

    Attributes
    ----------
    room : float
        How far it may be gone; 0 where there is none.
    slopes : array, shape (n,)
        The direction.
    error : float
        Of the one unit.
    rate, curvature : float
        What a way tau adds to the Fenchel-Young terms: at most ``rate tau + curvature tau^2 / 2``.
    x_direction : array, shape (d,)
        ``M^{-1} A' slopes``, penalised coordinates only, within `inexact` in the norm of M.
    inexact : float
    products, products_error : array, shape (n,)
        ``<a_i, M^{-1} A' slopes>``, penalised coordinates only.
    length : float
        Upper bound of ``|A' slopes|``.
    """

    room: float
    slopes: Array
    error: float
    rate: float
    curvature: float
    x_direction: Array
    inexact: float
    products: Array
    products_error: Array
    length: float


def _mix(point: Point, *signs: float) -> _Mix:
    """The terms at a kink of their loss, or else on a parabola, that move s by the first sign.

    At a kink any slope in the box has the Fenchel-Young term 0, so that moving costs nothing. They
    take part by the room that they have, on all sides that `signs` names; on parabolas, by how
    little it costs, and by the room where that is less than making up for a term takes.
    """
    problem, theta, f = point.problem, point.theta, point.problem.losses
    a = problem.free_columns[:, 0]
    way = signs[0] * np.sign(a)
    room, off = np.full(problem.n, np.inf), np.zeros(problem.n)
    for side in (way * signs[0] * sign for sign in signs):
        end = np.where(side > 0.0, f.hi, f.lo)
        end = np.where((f.e > 0.0) & (side * theta < 0.0), 0.0, end)  # a kink of the conjugate
        room = np.minimum(room, np.where(side == 0.0, 0.0, side * (end - theta)))
        knot = f.b + f.e * np.where(theta == 0.0, side, np.sign(theta)) + f.q * theta
        here = np.maximum(side * (knot - point.margins), 0.0) + point.margin_error
        here = here + 8.0 * UNIT * (np.abs(knot) + np.abs(f.b) + f.e + np.abs(point.margins))
        off = np.maximum(off, here)
    near = np.sqrt(point.terms + 0.5 * point.primal_dual_distance**2) * problem.norms
    able = (room > 0.0) & (off <= near + 16.0 * point.margin_error)
    flat = able & (f.q == 0.0) & np.isfinite(room)
    if flat.any():
        share = np.where(flat, room, 0.0)
    else:
        # The least cost, but no slope is to meet the end of its box before a term is made up for.
        share = np.where(able & (f.q > 0.0), np.abs(a) / np.where(f.q > 0.0, f.q, 1.0), 0.0)
        pull, total = ROOM * float(np.max(np.abs(a * theta))), float(np.abs(a) @ share)
        if pull > 0.0 < total:
            with np.errstate(over="ignore"):
                share = np.minimum(share, np.maximum(room, 0.0) * min(total / pull, 1e300))
    total = float(np.abs(a) @ share)
    if not (0.0 < total < np.inf):
        return _nothing(problem)
    slopes = way * share / total
    used = np.flatnonzero(slopes)
    size = np.abs(slopes[used])
    most = 0.999 * float(np.min(room[used] / size))
    x_direction = problem.quadratic.solve(problem.design.adjoint(slopes))
    inexact = 4.0 * UNIT * problem.quadratic.norm(x_direction) + up(
        problem.design.adjoint_factor * float(size @ problem.rounding_norms[used]), problem.n
    )
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    return _Mix(
        min(most, 1e300), slopes, gamma(problem.n + 8) * 2.0,
        up(float(size @ off[used]), len(used)),
        up(float(np.square(size) @ f.q[used]), len(used) + 8),
        x_direction, inexact,
        problem.design.forward(x_direction), margin_error(problem, x_direction) + n_i * inexact,
        up(problem.quadratic.norm(x_direction), problem.d + 8) + inexact,
    )


def _nothing(problem: Problem) -> _Mix:
    """A mix of no terms, which has no room."""
    none = np.zeros(problem.n)
    return _Mix(0.0, none, 0.0, 0.0, 0.0, np.zeros(problem.d), 0.0, none, none, 0.0)


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
    problem = point.problem
    base, error, n_i, distance = _at_the_midpoint(point)
    unbalanced, mixes = _unbalanced(point), (_mix(point, 1.0), _mix(point, -1.0))
    a, reach = problem.free_columns[:, 0], np.empty((2, problem.n))
    for start in range(0, problem.n, AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        for sign, mix, out in zip((1.0, -1.0), mixes, reach, strict=True):
            out[rows] = _reach_by(
                point, mix, sign, rows, (error[rows], n_i[rows]), distance, unbalanced
            )
    below, above = np.where(a > 0.0, reach[::-1], reach)
    rounding = 8.0 * UNIT * (np.abs(base) + np.abs(point.theta) * n_i**2)
    return base - below - rounding, base + above + rounding


def _reach_by(
    point: Point, mix: _Mix, sign: float, rows: slice, errors: tuple[Array, Array],
    distance: float, unbalanced: float,
) -> Array:
    """How far the margins of some terms reach to the side on which h and a_i,free have that sign.

    As h is no shorter than theta_i, ``theta_i + h`` has the sign of h: to this side a term needs
    only the mix that moves s by `sign`. Where nothing can take its place it is left out alone.
    `errors` are those of the margins at the midpoint, and the norms of the rows.
    """
    d, theta, a = point.problem.d, point.theta[rows], point.problem.free_columns[rows, 0]
    size, side, (error, n_i) = np.abs(a), sign * np.sign(a), errors
    products, products_error = mix.products[rows], mix.products_error[rows]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # What of the mix would be the term's own is not there.
        others = np.maximum(1.0 - mix.slopes[rows] * a * sign, 0.0)
        centred = n_i**2 - 2.0 * a * sign * products + (a * mix.length) ** 2
        h = np.sqrt(theta**2 + 4.0 * point.terms / np.maximum(centred, 1e-12 * n_i**2))
        eta = np.clip(sign * a * (theta + side * h), 0.0, mix.room * others) / (sign * a)
        tau = np.where(others > 0.0, np.abs(a * eta) / others, 0.0)
        gone = theta + tau * mix.slopes[rows]
        h = side * (eta - theta)
        off = (unbalanced + tau * mix.error) / size + 16.0 * UNIT * (
            np.abs(gone) + tau / size + np.abs(theta)
        )
        cross = gone * tau * products
        product = gone * n_i**2 - tau * products
        inexact = gamma(2 * d + 32) * (np.abs(gone) * n_i + tau * mix.length) * n_i
        inexact = inexact + tau * products_error
        square = (gone * n_i) ** 2 - 2.0 * cross + (tau * mix.length) ** 2
        square = square + 2.0 * np.abs(gone) * (inexact + tau * products_error)
        square = square + gamma(2 * d + 32) * (
            (gone * n_i) ** 2 + 2.0 * np.abs(cross) + (tau * mix.length) ** 2
        )
        away = distance + np.sqrt(np.maximum(square, 0.0))
        above = point.terms + tau * mix.rate + 0.5 * tau * tau * mix.curvature
        above = above + 0.25 * away**2
        reach = up(1.0, 32) * (
            above / (h - off) + 0.25 * (h + off) * n_i**2 + 0.5 * inexact + error
        ) + 0.5 * side * product
        return np.where((h - off > 0.0) & np.isfinite(reach), reach, np.inf)


def _unbalanced(point: Point) -> float:
    """An upper bound of ``|sum_i a_i,free theta_i + q_free|``: what rounding leaves of balance."""
    problem = point.problem
    [free] = problem.free_index
    residual = float(point.At_theta[free] + problem.linear[free])
    load = float(np.abs(point.theta) @ np.abs(problem.free_columns[:, 0]))
    return abs(residual) * (1.0 + 4.0 * UNIT) + problem.imbalance + up(
        (problem.design.adjoint_factor + gamma(problem.n)) * load, 8
    )


def left_out_distances(point: Point) -> Array:
    """For every term an upper bound of ``|x - x*|``, x* the optimum without that term.

    In the norm of M, so that an unpenalised coordinate does not count. With ``d = x - x_theta``, G
    the sum of the Fenchel-Young terms and s the length of what the term pulls, the ball of
    `left_out_margins` gives

    ::

        |x - x*|  <=  (|d| + s) / 2 + sqrt(G + (|d| + s)^2 / 4),    s = |theta_i| |a_i|

    at an exact optimum s. Beside an unpenalised coordinate what it adds there is taken up by a
    mix u of other terms (`_mix`), which costs what it adds to G; there s is ``|theta_i| |a_i -
    a_i,free A' u|``, for a term of the mix of its other terms, and infinite where none has room.

    Parameters
    ----------
    point : Point
        Of a problem for which `takes_left_out` holds.

    Returns
    -------
    array, shape (n,)
    """
    problem = point.problem
    size = np.abs(point.theta)
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    if not problem.quadratic.free.any():
        return _farthest(distance, point.terms, size * n_i, problem.d)
    a, unbalanced = problem.free_columns[:, 0], _unbalanced(point)
    most = np.zeros(problem.n)
    for sign in (1.0, -1.0):
        mix = _mix(point, sign)
        # The way is exactly as long as balances the slopes, which rounding leaves an interval.
        wanted = sign * a * point.theta + up(unbalanced, 8)
        others = 1.0 - sign * a * mix.slopes - mix.error
        with np.errstate(divide="ignore", invalid="ignore"):
            tau = up(1.0, 8) * np.maximum(wanted, 0.0) / others
            possible = (others > 0.0) & (tau <= mix.room)
            length = _centred_lengths(n_i, sign * a, mix.products, mix, problem.d)
            pulled = (size + tau * np.abs(mix.slopes)) * length
            pulled = pulled + mix.length * (unbalanced + tau * mix.error) + tau * mix.inexact
            terms = point.terms + tau * mix.rate + 0.5 * tau * tau * mix.curvature
            far = _farthest(distance, terms, pulled, problem.d)
        far = np.where(possible & np.isfinite(far), far, np.inf)
        most = np.where(wanted > 0.0, np.maximum(most, far), most)
    return most


def _farthest(distance: float, terms: float | Array, pulled: Array, d: int) -> Array:
    """What the midpoint ball says of ``|x - x*|`` where a term so long is gone."""
    half = 0.5 * (distance + pulled)
    return np.asarray(up(1.0, d + 32) * (half + np.sqrt(up(1.0) * terms + half * half)))


def _centred_lengths(norms: Array, free: Array, along: Array, mix: _Mix, d: int) -> Array:
    """Upper bounds of ``|z - z_free A' u|``, u the `mix`, for rows of lengths `norms`.

    Parameters
    ----------
    norms, free : arrays, shape (m,)
        ``|z|`` at most, and its unpenalised entry.
    along : array, shape (m,)
        ``<z, M^{-1} A' u>``.
    d : int
        Number of the coordinates.
    """
    square = norms**2 - 2.0 * free * along + (free * mix.length) ** 2
    rounding = gamma(4 * d + 64) * (norms + np.abs(free) * mix.length) ** 2
    lost = 4.0 * np.sqrt(SMALLEST)  # where squares underflow
    return np.asarray(up(1.0, 8) * (np.sqrt(np.maximum(square, 0.0) + rounding) + lost))


class WeightSet(Immutable):
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


class _Balance(Immutable):
    """What balances an unpenalised coordinate under other weights: a mix u of terms, and its costs.

    Attributes
    ----------
    mix : _Mix
        With room on both sides.
    free : array, shape (m,)
        ``|z_free|`` of the functionals.
    load, turn : float
        What one unit of S makes of ``sum_i a_i,free theta_i`` and of ``sum_i a_i,free u_i``.
    unbalanced : float
        The first at the present weights, from rounding.
    x_rate : float
        Largest ``|sum_i v_i u_i (a_i - a_i,free A' u)|``.
    growth : float
        By what share one unit of S may raise a weight.
    """

    mix: _Mix
    free: Array
    load: float
    turn: float
    unbalanced: float
    x_rate: float
    growth: float


class OverWeights(Immutable):
    """Intervals of ``<z, x*>`` for several z, over all weights ``1 + S v`` and for any S.

    Attributes
    ----------
    middle, error : array, shape (m,)
        At the midpoint of the pair as it is, and the rounding there.
    norms : array, shape (m,)
        Upper bounds of ``|z|`` in the metric of ``M^{-1}``; centred beside an unpenalised
        coordinate, as are `down`, `up` and `x_rate`.
    down, up : array, shape (m,)
        Upper bounds of how far one unit of S moves ``<z, x_theta>``, which falls by ``<p, v>``.
    terms, more_terms : float
        Sum of the Fenchel-Young terms, and what one unit of S adds to it.
    distance, x_rate : float
        ``|x - x_theta|``, and what one unit of S moves x_theta.
    balance : _Balance or None
        Where there is an unpenalised coordinate.
    """

    middle: Array
    error: Array
    norms: Array
    down: Array
    up: Array
    terms: float
    more_terms: float
    distance: float
    x_rate: float
    balance: _Balance | None = None

    def at(self, size: float | Array) -> tuple[Array, Array]:
        """The intervals at S = `size`, one number or one for each z; rounded outward."""
        S = np.asarray(size, dtype=np.float64)
        if self.balance is None:
            away = up(1.0, 8) * (self.distance + S * self.x_rate)
            radius = np.sqrt(up(1.0, 16) * (self.terms + S * self.more_terms + 0.25 * away * away))
            reach = self.norms * radius + self.error
        else:
            reach = self._balanced(S, self.balance)
        low, _ = outward(self.middle, up(1.0, 16) * (reach + 0.5 * S * self.down))
        _, high = outward(self.middle, up(1.0, 16) * (reach + 0.5 * S * self.up))
        return low, high

    def _balanced(self, S: Array, by: _Balance) -> Array:
        """The reach beside an unpenalised coordinate: any h > 0 gives one, infinite without room.

        See `over_weights`; the best h at an exact optimum is twice the radius over ``|z|``.
        """
        mix, grown = by.mix, 1.0 + S * by.growth
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            terms = self.terms + S * self.more_terms
            left = (1.0 - mix.error - S * by.turn) * (1.0 - 8.0 * UNIT)
            used = up(1.0, 8) * (by.unbalanced + S * by.load)
            away = self.distance + S * self.x_rate + mix.length * by.unbalanced
            per_step = np.sqrt(self.norms**2 + 2.0 * by.free**2 * mix.curvature * grown) + SMALLEST
            step = 2.0 * np.sqrt(terms + 0.25 * away * away) / per_step
            step = np.fmin(step, 0.999 * (mix.room * left - used) / by.free)
            tau = up(1.0, 8) * (step * by.free + used) / left
            slack = mix.length * (by.unbalanced + tau * mix.error) + tau * mix.inexact
            more = slack + S * tau * by.x_rate
            away = up(1.0, 16) * (self.distance + S * self.x_rate + more)
            terms = terms + grown * (tau * mix.rate + 0.5 * tau * tau * mix.curvature)
            reach = (terms + 0.25 * away * away) / step + 0.25 * step * self.norms**2
            reach = reach + 0.5 * (self.norms * more + by.free * mix.length * self.distance)
            good = (left > 0.0) & (step > 0.0) & (tau <= mix.room) & np.isfinite(reach)
        return np.where(good, up(1.0, 32) * reach + self.error, np.inf)


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
    bound the first of these with the ball of the duality gap). Under an L1 term its subgradient
    stays, so that nothing changes.

    Beside an unpenalised coordinate b the slopes ``(1 + S v)(theta + tau u)``, u a mix of terms
    that have room (`_mix`) with ``sum_i a_i,free u_i = 1``, are brought to ``s = h z_free`` in the
    inequality of `_beside_an_intercept` by

    ::

        tau = (h z_free - S sum_i a_i,free theta_i v_i) / (1 + S sum_i a_i,free u_i v_i)

    With the rows centred, ``a~_i = a_i - a_i,free A' u`` and z likewise, ``r = S sum_i v_i (theta_i
    + tau u_i) a~_i`` and G with what tau adds to it, that is

    ::

        <z, x*>  <=  <z, x> - <z~, d + r> / 2 + (G + |d + r|^2 / 4) / h + h |z~|^2 / 4

    At an exact optimum, where moving slopes at a kink is free, the best h makes it the ball above
    of the centred data, up to the part of r that goes with ``S tau``.

    Parameters
    ----------
    point : Point
        Of a problem for which `takes_weights` holds.
    functionals : Design
        The rows z, with the coordinates of the problem.
    weights : WeightSet
    """
    problem = point.problem
    theta, form = point.theta, problem.quadratic
    used = np.flatnonzero(theta)  # other terms add nothing to A' (v theta), whatever their weights
    changes, slopes = weights.among(used), theta[used]
    norms = form.dual_norms(functionals) * (1.0 + gamma(problem.d + 8))
    sizes = norms * np.sqrt(up(float(form.diagonal.max(initial=0.0))))
    z_free = functionals.forward(form.free.astype(float))
    sizes = sizes + np.abs(z_free)
    at_x, at_dual = functionals.forward(point.x), functionals.forward(point.x_theta)
    error = 0.5 * up(1.0) * (
        functionals.forward_error(point.x, sizes) + functionals.forward_error(point.x_theta, sizes)
    )
    error = error + 0.5 * norms * (point.dual_error + problem.drift)
    error = error + 4.0 * UNIT * (np.abs(at_x) + np.abs(at_dual))
    centred = _Centred.of(point)
    mix, a = centred.mix, centred.free
    along = functionals.forward(mix.x_direction)
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    rounding, whole, bare = _rounding_of_products(problem, functionals, norms, n_i)
    whole, norms = whole + np.abs(z_free) * mix.length, centred.lengths(norms, z_free, along)
    bare = np.abs(slopes) * (bare + np.abs(a) * mix.length)[used]
    around = centred.lengths(n_i, a, mix.products)
    lengths = np.abs(slopes) * around[used]
    x_rate = _longest(centred, used, slopes, lengths, bare, changes)
    down = rise = farthest = up(1.0) * norms * x_rate
    width = EVALUATION if isinstance(problem.design, Gram) else problem.d
    if len(norms) and len(norms) * len(used) * width <= PAIRINGS:
        parts = [
            changes.most(products * slopes)
            for products in centred.pairings(functionals, used, z_free, along)
        ]
        down, rise = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        inexact = rounding * whole * changes.reach(bare)
        down, rise = np.minimum(down + inexact, farthest), np.minimum(rise + inexact, farthest)
    grown = 1.0 if weights.norm != "interval" else float(weights.high.max(initial=0.0))
    terms = up(point.terms)
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    balance = None
    if form.free.any():
        mixed = np.flatnonzero(mix.slopes)
        among, shares = weights.among(mixed), mix.slopes[mixed]
        load = max(float(part[0]) for part in changes.most((a[used] * slopes)[None, :]))
        turn = max(float(part[0]) for part in among.most((a[mixed] * shares)[None, :]))
        balance = _Balance(
            mix, np.abs(z_free), up(load), up(turn), up(_unbalanced(point)),
            among.reach(np.abs(shares) * around[mixed]), grown,
        )
    return OverWeights(
        0.5 * (at_x + at_dual), error, norms, down, rise, terms, grown * terms, distance, x_rate,
        balance,
    )


class _Centred(Immutable):
    """The rows of a problem less their unpenalised entry times ``A' u``, u a mix of the terms.

    Attributes
    ----------
    problem : Problem
    mix : _Mix
        Of length 0 where every coordinate is penalised: the rows are what they were.
    free : array, shape (n,)
        The unpenalised entries.
    """

    problem: Problem
    mix: _Mix
    free: Array

    @classmethod
    def of(cls, point: Point) -> _Centred:
        """Centred at what can balance the slopes of `point` on both sides."""
        problem = point.problem
        if not problem.quadratic.free.any():
            return cls(problem, _nothing(problem), np.zeros(problem.n))
        return cls(problem, _mix(point, 1.0, -1.0), problem.free_columns[:, 0])

    @property
    def scale(self) -> Array:
        """``M^{-1}``, 0 for the unpenalised coordinate, shape (d,)."""
        form = self.problem.quadratic
        return np.where(form.free, 0.0, 1.0 / np.where(form.free, 1.0, form.diagonal))

    def lengths(self, norms: Array, free: Array, along: Array) -> Array:
        """`_centred_lengths` of rows z; the lengths themselves where there is nothing to centre."""
        if not self.mix.length:
            return norms
        return _centred_lengths(norms, free, along, self.mix, self.problem.d)

    def length_of_sum(self, load: Array) -> float:
        """``|A~' load|``."""
        form = self.problem.quadratic
        x_direction = form.solve(self.problem.design.adjoint(load))
        return form.norm(x_direction - self.mix.x_direction * float(self.free @ load))

    def gram(self, used: NDArray[np.intp], weights: Array) -> Array:
        """``M^{-1/2} A~' diag(weights) A~ M^{-1/2}`` of the terms at `used`, shape (d, d)."""
        problem, root = self.problem, np.sqrt(self.scale)
        gram = problem.design.weighted_gram(used, weights) * (root[:, None] * root)
        if self.mix.length:
            load = np.zeros(problem.n)
            load[used] = weights * self.free[used]
            middle = np.sqrt(problem.quadratic.diagonal) * self.mix.x_direction
            cross = np.outer(problem.design.adjoint(load) * root, middle)
            gram = gram - cross - cross.T + float(self.free @ load) * np.outer(middle, middle)
        return np.asarray(gram)

    def pairings(
        self, functionals: Design, used: NDArray[np.intp], free: Array, along: Array,
        block: int | None = None,
    ) -> Iterator[Array]:
        """Products ``<z~_k, M^{-1} a~_i>``, i in `used`: a block of rows z after another.

        `free` and `along` are of the rows z, as in `_centred_lengths`.
        """
        mix, first = self.mix, 0
        form = self.problem.quadratic
        square = form.inner(form.apply(mix.x_direction), mix.x_direction)
        a, mine = self.free[used], mix.products[used]
        for products in _pairings(self.problem, self.scale, functionals, used, block):
            if mix.length:
                rows = slice(first, first + len(products))
                first = rows.stop
                products = products - np.outer(free[rows], mine - square * a)
                products -= np.outer(along[rows], a)
            yield products


def _longest(
    centred: _Centred, used: NDArray[np.intp], slopes: Array, lengths: Array, bare: Array,
    weights: WeightSet,
) -> float:
    """An upper bound of ``|A~' (v theta)|`` in the metric of ``M^{-1}`` over the set of v.

    `lengths` are those of the rows times their slopes, `bare` more than those before centring.
    """
    problem = centred.problem
    if not len(used) or weights.norm == "l1":
        return weights.reach(lengths)
    widest = _largest_singular_value(centred, used, slopes, lengths, bare)
    if weights.norm == "l2":
        return widest
    middle, half = 0.5 * (weights.low + weights.high), 0.5 * (weights.high - weights.low)
    load = np.zeros(problem.n)
    load[used] = middle * slopes
    moved = up(centred.length_of_sum(load), problem.d + 8)
    inexact = problem.design.adjoint_factor + gamma(problem.n + 8)
    sizes = problem.rounding_norms + np.abs(centred.free) * centred.mix.length
    moved += inexact * float(np.abs(load[used]) @ sizes[used])
    together = up(moved + widest * float(np.linalg.norm(half)), len(used) + 16)
    return min(weights.reach(lengths), together)


def _largest_singular_value(
    centred: _Centred, used: NDArray[np.intp], slopes: Array, lengths: Array, bare: Array
) -> float:
    """An upper bound of the largest singular value of ``diag(theta) A~ M^{-1/2}``."""
    problem = centred.problem
    trace = up(float(lengths @ lengths), len(used) + 16)
    small = min(problem.d, len(used))
    if small > EIGENVALUES:
        return float(np.sqrt(trace))
    if problem.d <= len(used) and not isinstance(problem.design, Gram):
        gram = centred.gram(used, slopes**2)
    else:
        free, along = centred.free[used], centred.mix.products[used]
        rows = problem.design.take_rows(used)
        products = next(centred.pairings(rows, used, free, along, len(used)))
        gram = products * (slopes[:, None] * slopes)
    top = float(np.linalg.eigvalsh(gram)[-1])
    # Entries of the matrix, then its eigenvalues (LAPACK: a modest multiple of their number).
    rounding = _rounding_of_products(problem, problem.design, lengths, lengths)[0]
    rounding = up(rounding + gamma(len(used) + 64) + 32.0 * small * UNIT, 8)
    return float(np.sqrt(up(max(top, 0.0) + rounding * up(float(bare @ bare), len(used) + 16))))


def _rounding_of_products(
    problem: Problem, functionals: Design, norms: Array, others: Array
) -> tuple[float, Array, Array]:
    """By how much products of rows z and ``a_i`` are off: a factor of two sizes, of z and of a_i.

    These are their norms, or of a kernel no less.
    """
    if isinstance(problem.design, Gram) and isinstance(functionals, Gram):
        factor = 8.0 * problem.design.forward_factor + gamma(64)
        return factor, functionals.reaches, problem.design.reaches
    return gamma(4 * problem.d + 64), norms, others


def _pairings(
    problem: Problem, scale: Array, functionals: Design, used: NDArray[np.intp],
    block: int | None = None,
) -> Iterator[Array]:
    """Products ``<z_k, M^{-1} a_i>``, i in `used`: a block of rows z after another.

    `scale` is the diagonal of ``M^{-1}``; of a kernel it is the identity.
    """
    count = functionals.shape[0]
    size = block or max(1, BLOCK // max(len(used), problem.d if not functionals.sparse else 1))
    if isinstance(problem.design, Gram) and isinstance(functionals, Gram):
        for start in range(0, count, size):
            some = np.arange(start, min(start + size, count))
            yield functionals.inner_products(some, problem.design, used)
        return
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
