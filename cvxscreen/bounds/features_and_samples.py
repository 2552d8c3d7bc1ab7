"""Features and samples together under an L1 term: what is proven on one side sharpens the other.

With ``theta_x`` the slopes at x, ``F`` features proven 0 and ``S`` samples whose slope is proven::

    1/2 ||x - x*||_M^2 + 1/2 ||x_theta - x*||_M^2
        + 1/2 ||theta - theta*||_q^2 + 1/2 ||theta_x - theta*||_q^2  <=  G

(f* is q-strongly convex, f is 1/q-smooth). Each pair of squares is a midpoint ball; coordinates
whose optimum is known are taken out of the norms, and their share of the left side out of G:

* `dual_ball`: features from the dual ball alone;
* `primal_ball`: samples from the primal ball alone;
* `synergy`: samples known -> dual radius, features known -> primal radius, alternated
  (Shibagaki et al. 2016, Theorems 2 and 3);
* `joint`: what is known on either side reduces both radii.

**Terms without curvature** (q = 0) have no dual ball. Of ``P(x) - P* <= G`` the Fenchel-Young terms
at x against the dual optimum remain, ``sum_i FY_i(<a_i, x>, theta_i*) <= G``, and each is at least
``rho_i |theta_i* - theta_i|`` with ``theta_i`` the slope at x and ``rho_i`` the margin's distance
from the next kink. With an interval for every ``theta_i*`` (from the primal ball) the largest
``-A_j' theta*`` is a fractional knapsack (`v_within_gap`); by duality every multiplier ``mu >= 0``
gives an upper bound of it::

    mu G + sum_i max over theta_i in its interval of  -a_ij (theta_i - theta_i(x)) - mu rho_i |...|

**Without a quadratic term** (M = 0) there is no primal ball, and the dual one stands as it is: with
``s* = -A' theta*`` a subgradient of h at x*, ``P(x) - P* >= sum_i (f_i(t_i) - f_i(t_i*)) +
<s*, x - x*> >= 1/2 ||theta_x - theta*||_q^2``, whether or not ``theta_x`` is dual feasible; the
other half is the strong concavity of the dual. Then ``|v_j*| < kappa_j`` means ``x_j* = 0`` (Ndiaye
et al. 2017). About the terms it says which have a slope strictly inside its box, never that one has
slope 0: at 0 the slope says nothing about how far the margin is.

**In parts.** A loop that reduces between its proofs asks for the `bound_components` one by one: on
the reduced problem what is proven already is out of both norms, out of the point and out of the
gap, so the parts, each on what the one before has left, prove what the alternation does (and x
without the dropped coordinates proves more), with passes over what is left only.

Proofs: ``docs/theory.md``, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen.bounds.regions import Bound
from cvxscreen.bounds.regions.balls import Boxes, Interval, narrower
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.losses import Piece, kinked
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import by_columns, column_squares, row_squares

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
MAX_ROUNDS = 6
"""Of primal and dual in turn, at most; what is found after any of them is proven."""
MOVE = 0.02
"""Share of the dual radius by which its centre may lie off for its pull to be known."""
HOPE = 0.005
"""Share of the terms or features for which another pass is made."""
HALVINGS = 24
"""Of the range of a multiplier; any multiplier is valid, so this is accuracy, not safety."""


def dual_ball(problem: Problem, point: Point) -> Boxes:
    """Features only: ``theta*`` in the ball around ``(theta + theta_x)/2`` (metric q)."""
    return _alternate(problem, point, "dual", primal=False)


def primal_ball(problem: Problem, point: Point) -> Boxes:
    """Samples, and intervals of the coordinates: ``x*`` in the ball around the midpoint."""
    return _alternate(problem, point, "midpoint", dual=False)


def synergy(problem: Problem, point: Point) -> Boxes:
    """Theorems 2 and 3 of Shibagaki et al. 2016 in midpoint form, alternated to a fixed point."""
    return _alternate(problem, point, "synergy")


def joint(problem: Problem, point: Point) -> Boxes:
    """The alternation in which everything known reduces both radii; contains `synergy`."""
    return _alternate(problem, point, "joint", cross=True)


def applies(problem: Problem) -> bool:
    """Whether these bounds say anything: an L1 term, every coordinate with a quadratic one."""
    return isinstance(problem.penalty, L1) and not problem.quadratic.free.any()


def bound_components(problem: Problem, bound: Bound) -> tuple[Bound, ...]:
    """The parts of `bound`, features first; `bound` itself where it has none.

    Without curvature the features' part needs the samples' intervals and is not asked alone.
    """
    losses = problem.losses
    smooth = not kinked(losses.q, losses.lo, losses.hi).any()
    return (dual_ball, primal_ball) if smooth and bound in (joint, synergy) else (bound,)


# -- the alternation --------------------------------------------------------------------------


@dataclass(eq=False)
class _Known:
    """What one alternation has found; intervals only shrink."""

    margins: Interval
    slopes: Interval
    coordinates: Interval
    v: Interval
    zero: Mask
    settled: Mask
    needed: Mask
    radius: float = np.inf
    skipped: int = 0


def _alternate(
    problem: Problem, point: Point, name: str, *, cross: bool = False, primal: bool = True,
    dual: bool = True,
) -> Boxes:
    nothing = Boxes.nothing(problem, name, point.gap)
    primal = primal and not problem.pure_l1  # no ball around any x
    if not applies(problem) or not np.isfinite(point.gap):
        return nothing
    losses = problem.losses
    fixed = losses.lo == losses.hi
    known = _Known(
        nothing.margins, (losses.lo.copy(), losses.hi.copy()),
        (nothing.coordinates[0].copy(), nothing.coordinates[1].copy()), nothing.v,
        np.zeros(problem.d, dtype=bool), fixed, np.zeros(problem.d, dtype=bool),
    )
    state = _State(problem, point, cross)
    rounds = 0
    for _ in range(MAX_ROUNDS if primal and dual else 1):
        rounds += 1
        before = int(known.zero.sum()), int(known.settled.sum())
        if primal and not state.smooth:  # the budget needs the box
            state.primal(known)
        if dual:
            state.dual(known)
        if primal and state.smooth:
            state.primal(known)
        after = int(known.zero.sum()), int(known.settled.sum())
        idle = (known.zero | known.needed).all() and known.settled.all()
        few = sum(after) - sum(before) < HOPE * (problem.n + problem.d)
        if after == before or idle or (rounds > 1 and few):
            break
    return Boxes(
        problem, name, known.margins, known.slopes, known.coordinates, known.v, known.radius,
        point.gap, rounds, known.skipped,
    )


class _State:
    """The parts of the inequality in the module's docstring for one point."""

    def __init__(self, problem: Problem, point: Point, cross: bool) -> None:
        self.problem, self.point, self.cross = problem, point, cross
        losses = problem.losses
        self.penalty: L1 = problem.penalty  # type: ignore[assignment]
        self.weights = problem.quadratic.diagonal
        self.curved = losses.q > 0
        self.smooth = not kinked(losses.q, losses.lo, losses.hi).any()
        self.error = point.dual_error
        at_x = np.clip(losses.slope(point.margins), losses.lo, losses.hi)
        self.at_x = at_x
        with np.errstate(divide="ignore", invalid="ignore"):
            slope_error = np.where(self.curved, point.margin_error / losses.q, 0.0)
        # The slope at the exact margin is within `slope_error` of the one computed.
        self.slope_error = up(1.0) * slope_error + 8.0 * UNIT * np.where(
            self.curved, np.abs(at_x), 0.0
        )

    # -- what is known, taken off G ---------------------------------------------------------

    def saved_by_samples(self, settled: Mask, slopes: Array) -> float:
        """A lower bound of the settled samples' share of the left side."""
        rows = np.flatnonzero(settled & self.curved)
        if not len(rows):
            return 0.0
        away = np.abs(self.point.theta[rows] - slopes[rows])
        other = np.maximum(np.abs(self.at_x[rows] - slopes[rows]) - self.slope_error[rows], 0.0)
        total = float(self.problem.losses.q[rows] @ (away**2 + other**2))
        return 0.5 * total * (1.0 - gamma(len(rows) + 16))

    def budget(self, zero: Mask, settled: Mask, slopes: Array, *, of: str) -> float:
        """``G - 1/4 ||x - x_theta||^2`` (or the whole G for the dual side) less what is known."""
        point, weights = self.point, self.weights
        use_zero = zero if self.cross or of == "primal" else np.zeros_like(zero)
        use_settled = settled if self.cross or of == "dual" else np.zeros_like(settled)
        left = ~use_zero
        step = point.x - point.x_theta
        squared = float(weights[left] @ step[left] ** 2)
        distance = up(float(np.sqrt(squared)), self.problem.d + 8) + self.error
        # Two squares on one side are at least a quarter of the square of their difference.
        share = 0.25 if of == "primal" or self.cross else 0.5
        total = point.terms + share * up(distance * distance)
        if of == "primal" and self.cross:
            total -= 0.25 * square(self.apart(~settled & self.curved)[0])
        if use_zero.any():
            # 1/2 M (x - x_theta)^2 - 1/2 M x^2 - 1/2 M x_theta^2 = -M x x_theta
            x, other = point.x[use_zero], point.x_theta[use_zero]
            products = weights[use_zero] * x * other
            size = up(float(np.sqrt(weights[use_zero] @ x**2)), self.problem.d + 8)
            total += -float(products.sum()) + size * self.error
            total += gamma(self.problem.d + 8) * float(np.abs(products).sum())
        total -= self.saved_by_samples(use_settled, slopes)
        return up(max(total, 0.0))

    def apart(self, rest: Mask) -> tuple[float, float]:
        """A lower bound of ``||theta - theta_x||_q`` over `rest`, and theta_x's own error."""
        q, point = self.problem.losses.q, self.point
        size = float(np.sqrt(q[rest] @ (point.theta[rest] - self.at_x[rest]) ** 2))
        slope_error = up(float(np.sqrt(q[rest] @ self.slope_error[rest] ** 2)), self.problem.n + 8)
        return max(size * (1.0 - gamma(self.problem.n + 8)) - slope_error, 0.0), slope_error

    # -- the two sides ----------------------------------------------------------------------

    def primal(self, known: _Known) -> None:
        """Intervals of the coordinates and of the margins; samples settled by them."""
        problem, point, losses = self.problem, self.point, self.problem.losses
        slopes = known.slopes[0]
        radius = up(float(np.sqrt(self.budget(known.zero, known.settled, slopes, of="primal"))))
        radius = up(radius + 0.5 * self.error + problem.drift)
        known.radius = min(known.radius, radius)
        centre = 0.5 * (point.x + point.x_theta)
        centre[known.zero] = 0.0
        away = (radius / np.sqrt(self.weights)) * (1.0 + 8.0 * UNIT)
        away[known.zero] = 0.0
        known.coordinates = narrower(known.coordinates, outward(centre, away))
        open_rows = np.flatnonzero(~known.settled)
        known.skipped += problem.n - len(open_rows)
        if not len(open_rows):
            return
        some = len(open_rows) < problem.n
        norms = problem.norms[open_rows]
        if not known.zero.any():
            # The margins of the centre are this far from those of x: is a pass worth it?
            apart = 0.5 * problem.quadratic.norm(point.x - point.x_theta)
            room = losses.kink_distance(point.margins)[open_rows]
            if float(np.mean(room > (radius - apart) * norms)) < HOPE:
                return
        if known.zero.any():
            weight = np.where(known.zero, 0.0, 1.0 / self.weights)
            norms = np.sqrt(row_squares(problem.design, weight))[open_rows]
        norms = norms * (1.0 + gamma(problem.d + 8))
        if np.array_equal(centre, point.x):
            margins = point.margins[open_rows]
        else:
            margins = problem.design.forward(centre)[open_rows]
        error = margin_error(problem, centre)[open_rows] + point.margin_error[open_rows]
        low, high = outward(margins, radius * norms + error)
        low = np.maximum(low, known.margins[0][open_rows])
        high = np.minimum(high, known.margins[1][open_rows])
        part = losses.take(open_rows) if some else losses
        spare = part.knot_error + 4.0 * UNIT * (np.abs(part.b) + part.e)
        least, most = part.subgradient(low - spare)[0], part.subgradient(high + spare)[1]
        codes = part.piece_within(low, high)
        flat = (codes == Piece.LOW) | (codes == Piece.ZERO) | (codes == Piece.HIGH)
        exact = part.piece_slope(codes)
        least = np.maximum(least - 8.0 * UNIT * np.abs(least), part.lo)
        most = np.minimum(most + 8.0 * UNIT * np.abs(most), part.hi)
        for side, fresh, take in ((0, low, np.maximum), (1, high, np.minimum)):
            known.margins[side][open_rows] = take(known.margins[side][open_rows], fresh)
        known.slopes[0][open_rows] = np.where(
            flat, exact, np.maximum(known.slopes[0][open_rows], least))
        known.slopes[1][open_rows] = np.where(
            flat, exact, np.minimum(known.slopes[1][open_rows], most))
        known.settled = known.settled.copy()
        known.settled[open_rows[flat]] = True

    def dual(self, known: _Known) -> None:
        """Intervals of the slopes and of the pulls; features that they settle."""
        problem = self.problem
        rest = ~known.settled
        known.skipped += int((known.zero | known.needed).sum())
        if (known.zero | known.needed).all():
            return
        if self.curved[rest].all():
            v = self._from_ball(known, rest)
        else:
            v = v_within_gap(problem, self.point, known.slopes)
        spare = problem.drift * np.sqrt(self.weights) * (1.0 + 8.0 * UNIT)
        known.v = narrower(known.v, (v[0] - spare, v[1] + spare))
        low, high = known.v
        known.zero = known.zero | self.penalty.vanishing(low, high, strict=problem.pure_l1)
        nonzero = (known.coordinates[0] > 0) | (known.coordinates[1] < 0)
        known.needed = known.needed | nonzero | self.penalty.needed(low, high)
        for side in (0, 1):
            known.coordinates[side][known.zero] = 0.0

    def _from_ball(self, known: _Known, rest: Mask) -> Interval:
        problem, point, q = self.problem, self.point, self.problem.losses.q
        total = self.budget(known.zero, known.settled, known.slopes[0], of="dual")
        sure, slope_error = self.apart(rest)
        radius = up(float(np.sqrt(up(max(total - 0.25 * square(sure), 0.0))))) + 0.5 * slope_error
        off = up(0.5 * float(np.sqrt(q @ (point.theta - self.at_x) ** 2)), problem.n + 8)
        if off <= MOVE * radius and not known.settled.any():
            # Around theta itself, whose pull is known: no pass.
            reach = up(radius + off) / np.sqrt(q) * (1.0 + 8.0 * UNIT)
            known.slopes = narrower(known.slopes, outward(point.theta, reach))
            norms = problem.column_norms * (1.0 + gamma(problem.n + 8))
            return around_point(point, up(radius + off) * norms)
        middle = np.where(rest, 0.5 * (point.theta + self.at_x), known.slopes[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(rest, radius / np.sqrt(q), 0.0) * (1.0 + 8.0 * UNIT)
        low, high = outward(middle, reach)
        known.slopes = (
            np.where(rest, np.maximum(low, known.slopes[0]), known.slopes[0]),
            np.where(rest, np.minimum(high, known.slopes[1]), known.slopes[1]),
        )
        if known.settled.any():
            weight = np.divide(1.0, q, out=np.zeros_like(q), where=rest & (q > 0))
            norms = np.sqrt(column_squares(problem.design, weight))
        else:
            norms = problem.column_norms
        norms = norms * (1.0 + gamma(problem.n + 8))
        return around(problem, middle, radius * norms)


# -- intervals of v* = -A' theta* - q ----------------------------------------------------------


def around(problem: Problem, slopes: Array, reach: Array) -> Interval:
    """``-A' slopes - q -+ reach`` with the rounding of the pass."""
    v = -(problem.design.adjoint(slopes) + problem.linear)
    size = float(np.linalg.norm(slopes)) * problem.column_sizes * (1.0 + gamma(problem.n + 8))
    error = (problem.design.adjoint_factor + gamma(8)) * size + 4.0 * UNIT * np.abs(problem.linear)
    return outward(v, reach + error)


def around_point(point: Point, reach: Array) -> Interval:
    """The same at the point's own slopes, whose pull is known: no pass is made."""
    problem = point.problem
    v = -(point.At_theta + problem.linear)
    # The error of ``A' theta`` is part of `dual_error`, in the metric of 1/M.
    error = point.dual_error * np.sqrt(problem.quadratic.diagonal) * (1.0 + 8.0 * UNIT)
    error += 8.0 * UNIT * (np.abs(problem.linear) + np.abs(v))
    return outward(v, reach + error)


def v_within_gap(
    problem: Problem, point: Point, slopes: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Intervals of ``v_j* = -A_j' theta* - q_j`` for slopes in boxes and within the budget."""
    losses = problem.losses
    at_x = np.clip(losses.slope(point.margins), *slopes)
    knot_distance_error = point.margin_error + losses.knot_error
    exact = losses.slope(point.margins)
    # A slope moved into its interval no longer is the one at x: no charge is claimed for it.
    claim = np.maximum(
        losses.kink_distance(point.margins) * (1 - 4 * UNIT) - knot_distance_error, 0.0
    )
    claim = np.where((at_x == exact) & (losses.q == 0), claim, 0.0)
    claim = np.where(np.isfinite(claim), claim, 0.0)
    up_room = np.maximum(slopes[1] - at_x, 0.0) * (1.0 + 4.0 * UNIT)
    down_room = np.maximum(at_x - slopes[0], 0.0) * (1.0 + 4.0 * UNIT)
    matrix = by_columns(problem.design)
    v = -(problem.design.adjoint(at_x) + problem.linear)
    size = np.asarray(abs(matrix).T @ (np.abs(at_x) + up_room + down_room))
    with np.errstate(invalid="ignore"):
        error = (problem.design.adjoint_factor + gamma(problem.n + 16)) * size
    error = error + 4.0 * UNIT * np.abs(problem.linear)
    open_rows = np.flatnonzero((up_room > 0) | (down_room > 0))
    part = sp.csc_matrix(matrix.tocsr()[open_rows])
    rooms = up_room[open_rows], down_room[open_rows], claim[open_rows]
    more = _knapsack(part, *rooms, point.gap, -1.0)
    less = _knapsack(part, *rooms, point.gap, 1.0)
    return v - less - error, v + more + error


def _knapsack(
    matrix: sp.csc_matrix, up_room: Array, down_room: Array, claim: Array, gap: float, sign: float
) -> Array:
    """The largest ``sign A_j' delta`` with ``-down <= delta <= up``, ``claim' |delta| <= gap``.

    Upper bounds for all columns at once: bisection for the multiplier of each, any of which is
    valid.
    """
    d = matrix.shape[1]
    lengths = np.diff(matrix.indptr)
    rows, value = matrix.indices, sign * matrix.data
    room = np.where(value > 0, up_room[rows], down_room[rows])
    cost, gain = claim[rows], np.abs(value)
    column = np.repeat(np.arange(d), lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(cost > 0, gain / np.where(cost > 0, cost, 1.0), 0.0)
    high = np.zeros(d)
    np.maximum.at(high, column, ratio)
    low = np.zeros(d)
    best = np.full(d, np.inf)
    gap = up(gap)

    def bound(mu: Array) -> tuple[Array, Array]:
        rest = gain - mu[column] * cost
        chosen = rest > 0
        with np.errstate(invalid="ignore"):
            total = np.bincount(column, np.where(chosen, rest * room, 0.0), minlength=d)
            spent = np.bincount(column, np.where(chosen, cost * room, 0.0), minlength=d)
        return mu * gap + total * (1.0 + gamma(matrix.shape[0] + 8)), np.asarray(spent, float)

    for mu in (low, high):
        best = np.minimum(best, bound(mu)[0])
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        value_here, spent = bound(middle)
        best = np.minimum(best, np.where(np.isnan(value_here), np.inf, value_here))
        over = spent > gap
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return best * (1.0 + 8.0 * UNIT)
