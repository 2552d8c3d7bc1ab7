"""Dual feasible points, and the duality gap as a sum of non-negative terms.

With ``v = -A' theta - q + F' mu`` and ``x_theta = M^{-1} v`` (under a penalty its proximal point,
and one more non-negative term, see `cvxscreen.core.penalty`) the gap of a primal ``x`` and a dual
feasible ``theta`` is, without any cancellation,

::

    P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i FY_i(<a_i, x>, theta_i) + <mu, F x + f>

(Fenchel and Young). Unpenalised coordinates ask for ``(A' theta + q - F' mu)_j = 0``; a dual point
is repaired to satisfy it up to the last rounding (`balance`).

Where an L1 norm alone holds the coordinates, M = 0, there is no ``x_theta`` and ``v`` itself must
lie in the domain of ``h*``: ``|A_j' theta| <= kappa_j``. The boxes of the slopes contain 0, so any
theta is made feasible by a factor (Ndiaye et al. 2017, (12)), in exact arithmetic by one rounded
down (`feasible_share`).

A `Point` is what one evaluation of both sides tells. `reference_point` makes it in two passes over
the data, `rescaled_point` in none where only the parameter has changed.

Proofs: ``docs/theory.md``, section 1; of the balance, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.validation import finite, one_of
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic, relative_gap

__all__ = ["Centre", "Point", "dual_feasible", "margin_error", "reference_point", "rescaled_point"]

Array = NDArray[np.float64]

# -- balance: ``E' theta = -target`` ---------------------------------------------------------------

# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.95 to 1.12 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
_NEWTON_STEPS = 60
"""Of a projection at most; from close by two or three are enough."""
_FAR = 1e150
"""A multiplier this large moves nothing: its coordinate is in none of the terms. (Its square is
about as large as a number can be.)"""
_HALVINGS = 30
"""Of a Newton step at most."""
FEW = 3
"""Unpenalised coordinates at most whose columns are copied out of the data."""
COPIED = 20_000_000
"""Entries of these columns at most (160 MB) where there are more coordinates than that."""
STEPS_ON_CONES = 4
"""Steps at most of multipliers in second-order cones: two come down to rounding from close by."""
SEARCHES = 4
"""Times at most that terms are looked for along directions that those before left out."""
DEPENDENT = 1e-8
"""Singular values of rows, relative to the largest, that are taken for 0."""
ALONG = 32
"""Directions left out up to which they are followed as they are; more than that as coordinates,
without a product of all rows by them."""
NEAR = 0.05
"""Mobility from which on terms are tried first, alone."""


def _mobility(problem: Problem, margins: Array | None) -> Array:
    """How readily each slope may move: 1 at a kink of its loss, near 0 far from one."""
    mobility = np.ones(problem.n)
    if margins is None:
        return mobility
    away = problem.losses.kink_distance(margins)
    known = np.isfinite(away)
    if known.any():
        typical = 1e-3 * float(np.median(away[known])) + 1e-300
        mobility[known] = typical / (typical + away[known])
    return mobility


class _DualTrial(NamedTuple):
    """The point of the box that belongs to a multiplier, its residual, and the dual's value.

    The value is a `distance` and ``<tau, residual>``.
    """

    point: Array
    residual: Array
    distance: float
    value: float


class _Projection(NamedTuple):
    """Onto ``E' theta = -target`` in a box, E the `columns` of the free coordinates.

    `mobility` says how readily each slope moves; `fixed_load` is ``sum |e_i theta_i|`` of the terms
    that are not projected, which the rounding of the residual is relative to.

    Damped Newton steps on the m-dimensional concave dual of
    ``min 1/2 sum_i moved_i^2 / mobility_i``.
    """

    theta: Array
    lo: Array
    hi: Array
    columns: Array
    mobility: Array
    target: Array
    fixed_load: Array

    def at(self, tau: Array) -> _DualTrial:
        """The point nearest to ``theta - mobility E tau``."""
        point = np.clip(self.theta - self.mobility * (self.columns @ tau), self.lo, self.hi)
        residual = self.columns.T @ point + self.target
        moved = point - self.theta
        distance = 0.5 * float(np.sum(moved**2 / self.mobility))
        return _DualTrial(point, residual, distance, distance + float(tau @ residual))

    @property
    def unreachable(self) -> bool:
        """Whether not even the corners of the box meet the target, in some column."""
        columns = self.columns.T
        with np.errstate(invalid="ignore"):  # 0 times infinity, in a term that moves nothing
            ends = np.where(columns == 0.0, 0.0, [columns * self.lo, columns * self.hi])
        size = np.abs(ends).max(axis=0).sum(axis=1) + self.fixed_load + np.abs(self.target)
        least, most = ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)
        room = self.rounding * size
        return bool(((least + self.target > room) | (most + self.target < -room)).any())

    @property
    def rounding(self) -> float:
        """The residual that counts as none, in units of what was summed."""
        return float(4.0 + np.log2(len(self.mobility))) * UNIT

    def solved(self) -> tuple[Array, bool]:
        """The projection, and whether it is one up to rounding."""
        columns, mobility = self.columns, self.mobility
        shift = np.zeros(columns.shape[1])
        now = self.at(shift)
        sizes = np.abs(columns)
        base = mobility @ columns**2 + 1e-300
        rounding = self.rounding
        for _ in range(_NEWTON_STEPS):
            size = sizes.T @ np.abs(now.point) + self.fixed_load + np.abs(self.target)
            if (np.abs(now.residual) <= rounding * size).all():
                return now.point, True
            inside = (now.point > self.lo) & (now.point < self.hi)
            hessian = columns[inside].T @ (columns[inside] * mobility[inside, None])
            step = np.linalg.solve(hessian + 1e-8 * np.diag(base), now.residual)
            if not float(np.abs(step).max()) < _FAR:
                break  # some coordinate is in none of these terms: nothing moves it
            length, slope = 1.0, float(now.residual @ step)
            left = float(np.linalg.norm(now.residual))
            for _ in range(_HALVINGS):
                tau = shift + length * step
                found = self.at(tau)
                gain = found.value - now.value
                # Close to the solution rounding hides what a step gains, the residual does not.
                halved = float(np.linalg.norm(found.residual)) <= 0.5 * left
                least_gain = 8.0 * rounding * (found.distance + float(np.abs(tau) @ size))
                if gain >= 1e-4 * length * slope or (halved and gain >= -least_gain):
                    break
                length *= 0.5
            else:
                break
            shift, now = shift + length * step, found
        return now.point, False


def balance(
    problem: Problem, theta: Array, target: Array, margins: Array | None = None
) -> Array:
    """A point of the box near `theta` with ``E' theta = -target``, E the free columns.

    Beside many unpenalised coordinates the terms strictly inside their boxes are moved by the
    least that does it (`_repaired`); at a vertex that is all there is to do. Else the projection in
    a metric that makes terms far from a kink of `margins` reluctant to move
    (their Fenchel-Young term pays for it), first with those near a kink alone; then a last
    correction on coordinates inside the box. Best effort: what is left over is charged to the gap.
    """
    free = int(problem.quadratic.free.sum())
    if free == 0 or problem.n == 0:
        return theta
    form = problem.quadratic
    if isinstance(form, Quadratic) and form.untouched.sum() > FEW and problem.penalty is None:
        # No slope moves what stands at a coordinate that no term has, as the bound of a norm.
        stays = ~form.untouched | (problem.column_sizes > 0.0)
        if (~stays).sum() > FEW:
            index = np.flatnonzero(stays)
            part = replace(
                problem, design=problem.design.take_columns(index), quadratic=form.take(index),
                linear=problem.linear[index], side=None, layout=None,
            )
            return balance(part, theta, target[stays[form.free]], margins)
    if free > FEW:
        theta, done = _repaired(problem, theta, target)
        # Fewer terms than coordinates, as beside the bounds of thousands of norms, balance none.
        if done or problem.n * free > COPIED or problem.n < free:
            return theta
    losses, columns = problem.losses, problem.free_columns
    mobility = _mobility(problem, margins)
    near = np.flatnonzero(mobility > NEAR)
    if 0 < len(near) <= 0.5 * problem.n:
        away = mobility <= NEAR
        rest, still = columns[away], theta[away]
        few = _Projection(
            theta[near], losses.lo[near], losses.hi[near], columns[near], mobility[near],
            target + rest.T @ still, np.abs(rest).T @ np.abs(still),
        )
        found, done = (theta, False) if few.unreachable else few.solved()
        if done:
            point = theta.copy()
            point[near] = found
            return _correct_residual(problem, point, target, mobility)
    found, _ = _Projection(
        theta, losses.lo, losses.hi, columns, mobility, target, np.zeros(columns.shape[1])
    ).solved()
    return _correct_residual(problem, found, target, mobility)


def _movable(problem: Problem, theta: Array) -> tuple[NDArray[np.intp], Array]:
    """Terms with the most room in their boxes, four for every free coordinate, and all terms' room.

    An infinite box counts as large as the slope is, so that ordinary terms are not passed over.
    """
    room, weight = _room(problem, theta)
    inside = np.flatnonzero(weight > 0)
    most = 4 * len(problem.free_index)
    if len(inside) > most:
        inside = inside[np.argpartition(-weight[inside], most)[:most]]
    return inside[np.argsort(-weight[inside])], room


def _room(problem: Problem, theta: Array) -> tuple[Array, Array]:
    """The room of all terms, and how much that of each is worth."""
    losses = problem.losses
    room = np.minimum(theta - losses.lo, losses.hi - theta)
    return room, np.minimum(room, 1.0 + np.abs(theta)) * problem.sizes


def _spanning(
    problem: Problem, theta: Array
) -> tuple[NDArray[np.intp], Array, float] | None:
    """Terms with room that move the free coordinates in every direction, or None without such.

    Those with the most room of all, and where they leave directions out (all belong to one class or
    level with coordinates of its own, say, or sum and difference of two coordinates are what terms
    have) the four that move most along each of those.

    Returns
    -------
    index : array of int, shape (k,)
    room : array, shape (n,)
        Of all terms.
    least : float
        The smallest singular value of their rows.
    """
    order, room = _movable(problem, theta)
    free = len(problem.free_index)
    _, weight = _room(problem, theta)
    inside = np.flatnonzero(weight > 0)
    inside = inside[:: 1 + len(inside) * free // COPIED]
    for _ in range(SEARCHES):
        if not len(order):
            return None
        triangle = np.linalg.qr(_free_rows(problem, order), mode="r")  # half the time, with axes
        _, values, axes = np.linalg.svd(triangle)
        held = int(np.count_nonzero(values > DEPENDENT * values[0]))
        if held == free:
            return order, room, float(values[-1])
        ways = _free_rows(problem, inside)
        if free - held <= ALONG:
            ways = ways @ axes[held:].T
        more = inside[_largest(ways * weight[inside, None])]
        if np.isin(more, order).all():
            return None
        order = np.union1d(order, more)
    return None


def _largest(rows: Array) -> NDArray[np.intp]:
    """The rows that hold the four largest entries of a column, for some column."""
    sizes = np.abs(rows)
    if not len(sizes):
        return np.zeros(0, dtype=np.intp)
    first = np.argpartition(-sizes, min(4, len(sizes) - 1), axis=0)[:4]
    return np.unique(first[np.take_along_axis(sizes, first, axis=0) > 0])


def _free_rows(problem: Problem, index: NDArray[np.intp]) -> Array:
    """The unpenalised coordinates of the rows at `index`, shape (k, m)."""
    if problem.known.free_columns is not None:
        return problem.known.free_columns[index]
    return problem.design.dense(index)[:, problem.quadratic.free]


def _repaired(problem: Problem, theta: Array, target: Array) -> tuple[Array, bool]:
    """``theta_K - E_K (E_K' E_K)^{-1} (E' theta + target)``, clipped, three times at most.

    K are the terms strictly inside their boxes with the most room. Returns whether the residual is
    down to rounding; it is never made larger.
    """
    free = problem.quadratic.free
    best, _ = _movable(problem, theta)
    residual = problem.design.adjoint(theta)[free] + target
    size = problem.column_sizes[free] * float(np.linalg.norm(theta)) + np.abs(target)
    rounding = (4.0 + np.log2(problem.n)) * UNIT * size
    if len(best):
        rows, start, first = _free_rows(problem, best), theta[best], residual
        theta, residual = _least_moves(
            problem.losses, theta, best, rows, lambda now: first + rows.T @ (now[best] - start),
            rounding,
        )
    return theta, bool((np.abs(residual) <= rounding).all())


def _least_moves(
    losses: LossTerms, theta: Array, best: NDArray[np.intp], rows: Array,
    residual_of: Callable[[Array], Array], rounding: float | Array,
) -> tuple[Array, Array]:
    """`theta` with the least moves of the terms `best`, clipped, and the residual that is left.

    Three times at most, while it falls and is more than `rounding`.
    """
    residual = residual_of(theta)
    for _ in range(3):
        if (np.abs(residual) <= rounding).all():
            break
        moved = theta.copy()
        moved[best] += np.linalg.lstsq(rows.T, -residual, rcond=None)[0]
        moved[best] = np.clip(moved[best], losses.lo[best], losses.hi[best])
        left = residual_of(moved)
        if not float(np.linalg.norm(left)) < float(np.linalg.norm(residual)):
            break
        theta, residual = moved, left
    return theta, residual


def balance_with_multipliers(
    problem: Problem, theta: Array, mu: Array, linear: Array
) -> tuple[Array, Array]:
    """Slopes and multipliers near `theta` and `mu` with ``A' theta - F' mu = -linear`` where free.

    Slopes strictly inside their boxes move, and multipliers of equalities, of inequalities and of
    second-order cones that press; the least that does it. On the boundary of a cone a small step
    leaves it by its square, so that a few steps, each projected, come down to rounding. What does
    not come nearer is left as it was.

    Parameters
    ----------
    theta : array, shape (n,)
    mu : array, shape (k,)
        Of the side constraints, in the dual cone.
    linear : array, shape (d,)
        The slope of everything else at the point.
    """
    side, free = problem.side, problem.quadratic.free
    if side is None or not free.any():
        return theta, mu
    losses = problem.losses
    terms, room = _movable(problem, theta)
    pressing = np.concatenate([
        np.arange(rows.start, rows.stop)[slice(None) if kind == "zero" else mu[rows] != 0]
        for kind, _, rows in side.blocks() if kind in ("zero", "nonneg", "soc")
    ] or [np.zeros(0, dtype=np.intp)])
    columns = np.vstack([_free_rows(problem, terms), -side.matrix[pressing].toarray()[:, free]])
    if not len(columns):
        return theta, mu
    residual = (problem.design.adjoint(theta) - side.adjoint(mu) + linear)[free]
    free_to_move = np.ones(len(mu))
    for kind, _, rows in side.blocks():
        if kind == "nonneg":
            free_to_move[rows] = np.minimum(mu[rows], 1.0)
    of_terms = np.minimum(room[terms], 1.0 + np.abs(theta[terms]))
    ease = np.append(of_terms, free_to_move[pressing])
    for _ in range(STEPS_ON_CONES if side.has("soc") else 1):
        # Moves in proportion to the room there is; the same for all where that does not do.
        for each in (ease, np.ones(len(ease))):
            step = each * np.linalg.lstsq((columns * each[:, None]).T, -residual, rcond=None)[0]
            moved, pressed = theta.copy(), mu.copy()
            moved[terms] += step[: len(terms)]
            moved = np.clip(moved, losses.lo, losses.hi)
            pressed[pressing] += step[len(terms):]
            pressed = side.project_dual(pressed)
            left = (problem.design.adjoint(moved) - side.adjoint(pressed) + linear)[free]
            if float(np.linalg.norm(left)) < float(np.linalg.norm(residual)):
                theta, mu, residual = moved, pressed, left
                break
        else:
            break
    return theta, mu


def _correct_residual(problem: Problem, theta: Array, target: Array, mobility: Array) -> Array:
    """Remove the last residual of `balance` on a few coordinates well inside the box."""
    losses, columns = problem.losses, problem.free_columns
    room = np.minimum(theta - losses.lo, losses.hi - theta) * mobility
    inside = np.flatnonzero(room > 0)
    with np.errstate(invalid="ignore"):  # 0 times infinity, in a term that moves nothing
        weighed = columns[inside] * room[inside, None]
    best = inside[_largest(np.where(columns[inside] == 0.0, 0.0, weighed))]
    if not len(best):
        return theta
    return _least_moves(
        losses, theta, best, columns[best], lambda now: columns.T @ now + target, 0.0
    )[0]


def exact_sum(e: Array, theta: Array, start: float) -> float:
    """``start + sum_i e_i theta_i``, correctly rounded (error-free products, exact sum)."""
    product = e * theta
    split = 134217729.0  # 2^27 + 1, Veltkamp's splitting of a double into two halves
    high_e, high_t = split * e, split * theta
    high_e, high_t = high_e - (high_e - e), high_t - (high_t - theta)
    low_e, low_t = e - high_e, theta - high_t
    rest = ((high_e * high_t - product) + high_e * low_t + low_e * high_t) + low_e * low_t
    return math.fsum([start, *product.tolist(), *rest.tolist()])


def imbalance_cost(
    problem: Problem,
    theta: Array,
    residual: Array,
    residual_error: Array,
    target: Array,
    reach: Array,
) -> float:
    """What an exactly feasible dual point close to `theta` can cost, or infinity if none is near.

    `residual` is ``E' theta + target`` as computed, within `residual_error`. Some coordinates with
    room in the box take it up, and moving ``theta_i`` by ``s`` changes the gap by at most ``|s|
    reach_i``.
    """
    free = int(problem.quadratic.free.sum())
    if free == 0 or not (residual.any() or residual_error.any()):
        return 0.0
    if free == 1:
        return _one_column(problem, theta, residual, residual_error, target, reach)
    if free > FEW and not problem.column_sizes[problem.free_index].all():
        return _if_exact(problem, theta, target)  # what no term has no slope takes up
    found = _spanning(problem, theta)
    if found is None:
        return _if_exact(problem, theta, target)
    order, room, least = found
    most = float(np.linalg.norm(np.abs(residual) + residual_error))
    bound = most / least * (1.0 + 1e-6)
    if (room[order] < bound).any():
        return _if_exact(problem, theta, target)
    return bound * float(np.sum(reach[order]))


def _one_column(
    problem: Problem,
    theta: Array,
    residual: Array,
    residual_error: Array,
    target: Array,
    reach: Array,
) -> float:
    """One unpenalised coordinate: a single term that can move the right way is enough."""
    losses, e = problem.losses, problem.free_columns[:, 0]
    rise, fall = losses.hi - theta, theta - losses.lo
    size = np.abs(e)
    # Room of e_i theta_i upwards and downwards, in its own units.
    upward = np.where(e > 0, rise, fall) * size
    downward = np.where(e > 0, fall, rise) * size
    needed_up = max(float(residual_error[0] - residual[0]), 0.0) * (1.0 + 1e-6)
    needed_down = max(float(residual_error[0] + residual[0]), 0.0) * (1.0 + 1e-6)
    cost = 0.0
    rate = reach / np.maximum(size, 1e-300)
    for room, needed in ((upward, needed_up), (downward, needed_down)):
        if needed == 0.0:
            continue
        able = np.flatnonzero(room >= needed)
        if not len(able):
            return _if_exact(problem, theta, target)
        cost = max(cost, needed * float(rate[able].min()))
    return cost


def _if_exact(problem: Problem, theta: Array, target: Array) -> float:
    """0 if the balance holds exactly (and the target is exact), otherwise infinity."""
    if problem.imbalance > 0 or problem.side is not None or len(target) > FEW:
        return float("inf")
    sums = [
        exact_sum(problem.free_columns[:, j], theta, float(target[j]))
        for j in range(len(target))
    ]
    return 0.0 if not any(sums) else float("inf")


# -- dual feasible points, and the gap ----------------------------------------------------------

REFINED_ROWS = 2000
"""At most so many margins are recomputed in extended precision."""


class Centre(NamedTuple):
    """A point close to ``(x + x_theta)/2`` whose margins are known without a pass.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
        ``<a_i, x>``.
    error : float
        Bound of its distance from the true midpoint, in the norm of ``M``.
    """

    x: Array
    margins: Array
    error: float


class Point(Immutable):
    """A primal point with a dual feasible point, and all that one evaluation of both tells.

    Built by `reference_point` only, so that a region always rests on a consistent pair.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    theta : array, shape (n,)
        Slopes in ``[lo, hi]``; the public dual variable is ``alpha = -theta``.
    multipliers : array, shape (m,)
        Of the side constraints; empty without them.
    margins : array, shape (n,)
        ``<a_i, x>`` as computed; the true value is within `margin_error`.
    x_theta : array, shape (d,)
        ``x_theta``; on unpenalised coordinates equal to `x`.
    primal_dual_distance : float
        ``||x - x_theta||_M`` as computed, within `dual_error`.
    terms : float
        Upper bound of ``sum_i FY_i`` (plus the side constraints' complementarity).
    gap : float
        Upper bound of the duality gap, rounding included.
    primal : float
        Objective at `x`.
    feasible : bool
        Whether `x` provably satisfies the side constraints (always true without them).
    At_theta : array, shape (d,)
        ``A' theta`` as computed (without a quadratic term: of the slopes as they were given,
        before they were shrunk to be feasible).
    penalty_subgradient : array, shape (d,)
        ``s``, the dual point's part in the domain of ``h*``; empty without a penalty.
    centre : Centre or None
        Of a rescaled point; None means that a bound computes the midpoint's margins itself.
    At_theta_error : float
        Relative error of ``A' theta`` beyond that of the pass, where it was not made anew.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> point = cvxscreen.reference_point(solution.problem, solution.x, solution.theta)
    >>> bool(point.relative_gap <= 1e-9), point.margins.shape
    (True, (200,))
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    margins: Array
    margin_error: Array
    x_theta: Array
    dual_error: float
    primal_dual_distance: float
    terms: float
    gap: float
    primal: float
    feasible: bool
    At_theta: Array
    penalty_subgradient: Array
    centre: Centre | None = None
    At_theta_error: float = 0.0

    @property
    def reach(self) -> float:
        """About the radius of its midpoint ball, without the rounding that would prove anything."""
        distance = self.primal_dual_distance
        return float(np.sqrt(self.terms + 0.25 * distance * distance))

    @property
    def relative_gap(self) -> float:
        """``gap / max(|primal|, |dual|)``."""
        return float(relative_gap(self.gap, self.primal))


def reference_point(
    problem: Problem,
    x: ArrayLike,
    theta: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
    *,
    known: tuple[Array, Array] | None = None,
) -> Point:
    """Evaluate a primal and a dual point together: two passes over the data.

    Parameters
    ----------
    x : array_like, shape (d,)
    theta : array_like, shape (n,), optional
        Any slopes; they are made dual feasible. The subgradients at `x` when omitted.
    multipliers : array_like, shape (m,), optional
        Of the side constraints.
    known : pair of arrays, optional
        ``design.forward(x)`` and ``design.adjoint(theta)`` where both have been computed, without a
        penalty that moves x; the second is computed again if `theta` is not feasible as it is.

    Returns
    -------
    Point
        With an upper bound of the duality gap that includes all rounding.

    Raises
    ------
    InvalidInput
        On wrong shapes or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> point = cvxscreen.reference_point(cvxscreen.svm(X, y, C=0.1), np.zeros(3))
    >>> round(point.primal, 4), round(point.gap, 4)             # at 0 every hinge is 1
    (20.0, 336.1691)
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    x = finite("x", x, (problem.d,)).copy()
    if problem.penalty is not None:
        x = problem.penalty.project(x)
    margins = problem.design.forward(x) if known is None else known[0]
    if theta is None:
        theta = problem.losses.slope(margins)
    given = theta = finite("theta", theta, (problem.n,))
    if multipliers is not None:
        m = 0 if problem.side is None else len(problem.side.offset)
        multipliers = finite("multipliers", multipliers, (m,))
    theta, mu = dual_feasible(problem, theta, multipliers, margins, x)
    same = known is not None and np.array_equal(theta, given)
    At_theta = known[1] if known is not None and same else problem.design.adjoint(theta)
    error = margin_error(problem, x)
    return _assemble(problem, x, theta, mu, margins, error, At_theta, 0.0)


def rescaled_point(problem: Problem, point: Point) -> Point:
    """`point` of the same data at another C: its primal point with its dual times ``C / C0``.

    The scaled slopes are dual feasible at the new C. Margins and ``A' theta`` are known up to the
    factor, so no pass over the data is made (where there are side constraints or a linear term, the
    pair is evaluated anew).
    """
    old = point.problem
    factor = problem.C / old.C
    if problem.pure_l1:
        return _rescaled_pure_l1(problem, point)
    same = problem.design is old.design and problem.side is None
    plain = not problem.linear.any() and not old.linear.any()
    same = same and (plain or (factor == 1.0 and np.array_equal(problem.linear, old.linear)))
    if not (same and problem.losses.is_multiple(old.losses, factor)):
        return reference_point(problem, point.x, factor * point.theta, factor * point.multipliers)
    losses, theta = problem.losses, factor * point.theta
    theta = np.where(point.theta == old.losses.lo, losses.lo, theta)
    theta = np.where(point.theta == old.losses.hi, losses.hi, theta)
    theta = np.clip(theta, losses.lo, losses.hi)
    moved = _assemble(
        problem, point.x, theta, point.multipliers, point.margins, point.margin_error,
        factor * point.At_theta, gamma(8),
        up(float(np.abs(theta - factor * point.theta) @ problem.rounding_norms), problem.n + 8),
    )
    if problem.quadratic is not old.quadratic or problem.penalty is not None or not plain:
        return moved
    error = 0.5 * factor * (up(point.primal_dual_distance, problem.d + 8) + point.dual_error)
    if error > 0.02 * moved.primal_dual_distance:
        return moved
    middle = 0.5 * (1.0 + factor)
    return replace(moved, centre=Centre(middle * point.x, middle * point.margins, error))


def dual_feasible(
    problem: Problem,
    theta: ArrayLike,
    multipliers: ArrayLike | None = None,
    margins: Array | None = None,
    x: Array | None = None,
) -> tuple[Array, Array]:
    """Clip `theta` into its box, `multipliers` into K*, and `balance` the unpenalised part.

    `x` is needed where M is singular: the slope of M there is part of what is balanced.
    """
    losses = problem.losses
    linear = problem.linear if x is None else linear_at(problem, x)
    theta = np.clip(np.asarray(theta, dtype=np.float64), losses.lo, losses.hi)
    if problem.side is None:
        mu = np.zeros(0)
        target = linear[problem.quadratic.free]
    else:
        raw = np.zeros(len(problem.side.offset)) if multipliers is None else multipliers
        mu = problem.side.project_dual(raw)
        target = (linear - problem.side.adjoint(mu))[problem.quadratic.free]
    return balance(problem, theta, target, margins), mu


def balanced(
    problem: Problem, x: Array, theta: Array, mu: Array, margins: Array
) -> Iterator[tuple[Array, Array]]:
    """Pairs near slopes and multipliers that balance to a tolerance only, the likelier one first.

    Slopes alone can move, or multipliers of side constraints with them; which comes nearer the
    certificate says. The helpers of norms are balanced by multipliers alone.
    """
    side = problem.side
    cones = side is not None and side.has("soc")
    if not cones:
        yield dual_feasible(problem, theta, mu, margins, x)
    if side is not None:
        yield balance_with_multipliers(problem, theta, side.project_dual(mu), linear_at(problem, x))
    if cones:
        yield dual_feasible(problem, theta, mu, margins, x)


def linear_at(problem: Problem, x: Array) -> Array:
    """``q``, and where M is singular ``M x + q``: there the dual point is a gradient at x.

    For any y in the domain ``1/2 <y, M y> >= 1/2 <x, M x> + <M x, y - x>``, so slopes with
    ``A' theta + M x + q = 0`` give the same gap as an exact dual point.
    """
    quadratic = problem.quadratic
    if not isinstance(quadratic, Quadratic) or not quadratic.singular:
        return problem.linear
    return problem.linear + quadratic.apply(x)


def free_load(problem: Problem, theta: Array) -> Array:
    """``sum_i |a_ij theta_i|`` of the unpenalised coordinates j, or more than that, shape (m,)."""
    free = problem.quadratic.free
    if int(free.sum()) <= FEW:
        return np.asarray(np.abs(problem.free_columns).T @ np.abs(theta))
    size = float(np.linalg.norm(theta)) * (1.0 + gamma(problem.n + 8)) ** 2  # Cauchy and Schwarz
    return np.asarray(problem.column_sizes[free] * size)


def _multipliers_error(problem: Problem, mu: Array) -> Array:
    """Rounding bound of ``F' mu`` on the unpenalised coordinates j, shape (m,).

    None where one multiplier alone presses, by a factor of 1, as a bound of a coordinate does.
    """
    side, free, d = problem.side, problem.free_index, problem.d
    pressing = np.flatnonzero(mu)
    if side is None or not len(pressing):
        return np.zeros(len(free))
    rows, parts = side.matrix[pressing], np.abs(mu[pressing])
    counts = np.bincount(rows.indices, minlength=d)
    rounded = (counts > 1) | (np.bincount(rows.indices, np.abs(rows.data) != 1.0, d) > 0)
    error = gamma(int(counts.max(initial=0)) + 8) * (abs(rows).T @ parts)
    return np.where(rounded, error, 0.0)[free]


def feasible_share(
    problem: Problem, theta: Array, At_theta: Array, At_theta_error: float = 0.0
) -> tuple[float, Array]:
    """The share of `theta` that is feasible for certain, and how far off its ``A' theta`` may be.

    Parameters
    ----------
    theta : array, shape (n,)
        In their boxes.
    At_theta : array, shape (d,)
        ``A' theta`` as computed.
    At_theta_error : float
        Its relative error beyond that of one pass.

    Returns
    -------
    share : float
        At most 1; ``share * theta``, rounded, satisfies ``|A_j' theta| <= kappa_j``.
    error : array, shape (d,)
        Bound of the error of ``share * At_theta`` as ``A' (share * theta)``, both rounded.

    Notes
    -----
    A pass is off by at most ``factor sum_i |a_ij theta_i| <= factor ||A_j|| ||theta||``; rounding
    ``share * theta`` adds a unit of that, rounding ``share * At_theta`` a unit of itself.
    """
    penalty: L1 = problem.penalty  # type: ignore[assignment]
    reach = up(float(np.linalg.norm(theta)), problem.n + 8)
    reach *= 1.0 + gamma(problem.n + 8)  # of the columns' norms
    factor = problem.design.adjoint_factor + At_theta_error + gamma(8)
    error = factor * reach * problem.column_sizes
    largest = float(np.max((np.abs(At_theta) + error) / penalty.kappa, initial=0.0))
    if largest * (1.0 + 8.0 * UNIT) <= 1.0:
        return 1.0, error
    share = (1.0 - 16.0 * UNIT) / largest
    return share, share * error * (1.0 + 8.0 * UNIT)


def margin_error(problem: Problem, x: Array) -> Array:
    """Rounding bound of ``A x``, shape (n,)."""
    return up(1.0) * problem.design.forward_error(x, problem.sizes)


def regulariser_gap(problem: Problem, x: Array, dual_residual: Array) -> float:
    """``1/2 ||x - x_theta||_M^2`` and the penalty's term, up to rounding.

    `dual_residual` is ``A' theta + q``. What an unpenalised coordinate is out of balance by is left
    to the caller.
    """
    x_theta, _, of_penalty = _primal_of(problem, x, dual_residual)
    return 0.5 * problem.quadratic.norm(x - x_theta) ** 2 + of_penalty


def _primal_of(problem: Problem, x: Array, dual_residual: Array) -> tuple[Array, Array, float]:
    """``x_theta``, the penalty's subgradient there, empty without one, and the penalty's term.

    Unpenalised coordinates are those of x.
    """
    quadratic, penalty = problem.quadratic, problem.penalty
    if penalty is None:
        x_theta, s, gap = -quadratic.solve(dual_residual), np.zeros(0), 0.0
    else:
        x_theta, s = penalty.prox_and_subgradient(-dual_residual, quadratic.diagonal)
        gap = penalty.fenchel_gap(x, s)
    x_theta[quadratic.free] = x[quadratic.free]
    return x_theta, s, gap


def estimated_gap(
    problem: Problem, x: Array, theta: Array, margins: Array, At_theta: Array
) -> float:
    """The duality gap of a dual feasible pair up to rounding: to stop by, never to prove from."""
    terms = float(problem.losses.fenchel_young(margins, theta).sum())
    return terms + regulariser_gap(problem, x, At_theta + problem.linear)


def _assemble(
    problem: Problem,
    x: Array,
    theta: Array,
    mu: Array,
    margins: Array,
    error: Array,
    At_theta: Array,
    At_theta_error: float,
    moved: float = 0.0,
) -> Point:
    """The record of a pair whose passes are done.

    `At_theta_error` is a further relative error of `At_theta`, `moved` an absolute one in the dual
    norm.
    """
    if problem.pure_l1:
        return _assemble_pure_l1(problem, x, theta, margins, error, At_theta, At_theta_error)
    losses, quadratic = problem.losses, problem.quadratic
    linear = linear_at(problem, x)
    dual_residual = At_theta + linear
    size = float(np.abs(theta) @ problem.rounding_norms)
    factor = problem.design.adjoint_factor + At_theta_error
    side_gap, side_error, feasible = 0.0, 0.0, problem.side is None
    if problem.side is not None:
        dual_residual = dual_residual - problem.side.adjoint(mu)
        slack = problem.side.slack(x)
        # Rows without a multiplier add zeros to the sums, which rounds nothing.
        held = int(np.count_nonzero(mu))
        matrix, width = abs(problem.side.matrix), gamma(held + problem.d + 8)
        room = matrix @ np.abs(x) + np.abs(problem.side.offset)
        side_gap = max(float(mu @ slack), 0.0) + width * float(np.abs(mu) @ room)
        sum_of_sizes = matrix.T @ np.abs(mu) + np.abs(At_theta + linear)
        side_error = width * quadratic.dual_reach(sum_of_sizes)
        feasible = problem.side.surely_holds(x)
    x_theta, s, penalty_gap = _primal_of(problem, x, dual_residual)
    dual_error = factor * size + _solve_error(problem, x_theta, dual_residual) + problem.drift
    dual_error += side_error + moved
    apart = quadratic.norm(x - x_theta)

    imbalance_gap = 0.0
    if quadratic.free.any():
        reach = np.abs(margins - losses.b) + losses.e + losses.q * np.abs(theta)
        reach = reach + error + problem.norms * (apart + dual_error)
        residual = dual_residual[quadratic.free]
        residual_error = factor * free_load(problem, theta)
        residual_error += UNIT * np.abs(residual)
        if problem.side is not None:
            residual_error += _multipliers_error(problem, mu)
            before = (At_theta + linear)[quadratic.free]
            both = (At_theta[quadratic.free] != 0.0) & (linear[quadratic.free] != 0.0)
            residual_error += UNIT * np.where(both, np.abs(before), 0.0)
        target = linear[quadratic.free]
        imbalance_gap = imbalance_cost(
            problem, theta, residual, residual_error + problem.imbalance, target, reach
        )

    fy, margins, error = _fenchel_young(problem, x, margins, error, theta)
    terms = up(float(np.sum(fy)), 64) + side_gap + penalty_gap + imbalance_gap
    distance = up(apart, problem.d + 8) + dual_error
    return Point(
        problem=problem,
        x=x,
        theta=theta,
        multipliers=mu,
        margins=margins,
        margin_error=error,
        x_theta=x_theta,
        dual_error=dual_error,
        primal_dual_distance=apart,
        terms=terms,
        gap=up(terms + 0.5 * distance * distance),
        primal=problem.primal(x, margins),
        feasible=feasible,
        At_theta=At_theta,
        penalty_subgradient=s,
    )


def _assemble_pure_l1(
    problem: Problem, x: Array, theta: Array, margins: Array, error: Array, At_theta: Array,
    At_theta_error: float,
) -> Point:
    """The same without a quadratic term: `theta` is shrunk until ``|A' theta| <= kappa``.

    With ``s = -A' theta`` in the domain of ``h*`` the gap is ``sum_i FY_i + h(x) - <s, x>``.
    """
    penalty: L1 = problem.penalty  # type: ignore[assignment]
    shrunk, s_error = feasible_share(problem, theta, At_theta, At_theta_error)
    s = np.clip(-shrunk * At_theta, -penalty.kappa, penalty.kappa)
    theta = shrunk * theta
    fy, margins, error = _fenchel_young(problem, x, margins, error, theta)
    penalty_gap = penalty.fenchel_gap(x, s) + up(float(np.abs(x) @ s_error), problem.d + 8)
    terms = up(float(np.sum(fy)), 64) + penalty_gap
    return Point(
        problem=problem, x=x, theta=theta, multipliers=np.zeros(0), margins=margins,
        margin_error=error, x_theta=x.copy(), dual_error=0.0, primal_dual_distance=0.0, terms=terms,
        gap=up(terms), primal=problem.primal(x, margins), feasible=True, At_theta=At_theta,
        penalty_subgradient=s, At_theta_error=At_theta_error,
    )


def _rescaled_pure_l1(problem: Problem, point: Point) -> Point:
    """`rescaled_point` without a quadratic term: no pass where only lam has changed."""
    old = point.problem
    factor = problem.C / old.C
    same = problem.design is old.design and factor == 1.0
    if not (same and problem.losses.is_multiple(old.losses, 1.0)):
        return reference_point(problem, point.x, factor * point.theta)
    return _assemble_pure_l1(
        problem, point.x, point.theta, point.margins, point.margin_error,
        -point.penalty_subgradient, point.At_theta_error + gamma(8),
    )


def _fenchel_young(
    problem: Problem, x: Array, margins: Array, error: Array, theta: Array
) -> tuple[Array, Array, Array]:
    """Upper bounds of the terms; margins whose rounding dominates them are computed better."""
    losses = problem.losses
    fy = losses.fenchel_young_above(margins, error, theta)
    if losses.any_hard and not np.isfinite(fy).all():
        return fy, margins, error  # a violated constraint: infinite, whatever is computed better
    excess = fy - losses.fenchel_young(margins, theta)
    if float(excess.sum()) <= 0.01 * float(fy.sum()) or not problem.n:
        return fy, margins, error
    # Without a kink rounding enters squared: nothing to gain far below any tolerance.
    small = 1e-12 * float(np.abs(theta) @ np.abs(margins - losses.b))
    if problem.penalty is not None and (losses.q > 0).all() and float(excess.sum()) <= small:
        return fy, margins, error
    worst = np.argsort(-excess)[:REFINED_ROWS]
    worst = worst[excess[worst] > 0]
    better, left = problem.design.forward_precise(worst, x)
    margins, error = margins.copy(), error.copy()
    margins[worst], error[worst] = better, np.minimum(left, error[worst])
    return losses.fenchel_young_above(margins, error, theta), margins, error


def _solve_error(problem: Problem, x_theta: Array, dual_residual: Array) -> float:
    """Bound in the norm of M on the error of solving ``M x_theta = -dual_residual``."""
    quadratic = problem.quadratic
    if quadratic.matrix is None:
        return 4.0 * UNIT * quadratic.norm(x_theta)
    kept = ~quadratic.free
    if not kept.any():
        return 0.0
    residual = (quadratic.apply(x_theta) + dual_residual)[kept]
    rounding = 4.0 * problem.d * UNIT * (np.abs(quadratic.dense())[np.ix_(kept, kept)]
                                         @ np.abs(x_theta[kept]) + np.abs(dual_residual[kept]))
    size = float(np.linalg.norm(np.abs(residual) + rounding))
    return size / float(np.sqrt(quadratic.floor))
