"""Dual points that satisfy ``E' theta = -target``, E the unpenalised columns of the design.

Proofs: ``docs/theory.md``, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]

_NEWTON_STEPS = 60
_FAR = 1e150
_HALVINGS = 30
FEW = 3
"""Unpenalised coordinates at most whose columns are copied out of the data."""
COPIED = 20_000_000
"""Entries of these columns at most (160 MB) where there are more coordinates than that."""
STEPS_ON_CONES = 4
"""Steps at most of multipliers in second-order cones: two come down to rounding from close by."""
NEAR = 0.05
"""Terms that are this ready to move are tried first, alone."""


def _ease(problem: Problem, margins: Array | None) -> Array:
    """How readily each slope may move: 1 at a kink of its loss, little far from one."""
    ease = np.ones(problem.n)
    if margins is None:
        return ease
    away = problem.losses.kink_distance(margins)
    known = np.isfinite(away)
    if known.any():
        typical = 1e-3 * float(np.median(away[known])) + 1e-300
        ease[known] = typical / (typical + away[known])
    return ease


@dataclass(frozen=True, eq=False)
class _Trial:
    """The point of the box that belongs to a multiplier, its residual, and the dual's value.

    The value is a `distance` and ``<tau, residual>``.
    """

    point: Array
    residual: Array
    distance: float
    value: float


@dataclass(frozen=True, eq=False)
class _Projection:
    """Onto ``E' theta = -target`` in a box, E the `columns`; `held` is others' ``|E|'|theta|``.

    Damped Newton steps on the m-dimensional concave dual of ``min 1/2 sum_i moved_i^2 / ease_i``.
    """

    theta: Array
    lo: Array
    hi: Array
    columns: Array
    ease: Array
    target: Array
    held: Array

    def at(self, tau: Array) -> _Trial:
        """The point nearest to ``theta - ease E tau``."""
        point = np.clip(self.theta - self.ease * (self.columns @ tau), self.lo, self.hi)
        residual = self.columns.T @ point + self.target
        moved = point - self.theta
        distance = 0.5 * float(np.sum(moved**2 / self.ease))
        return _Trial(point, residual, distance, distance + float(tau @ residual))

    @property
    def hopeless(self) -> bool:
        """Whether not even the corners of the box meet the target, in some column."""
        columns = self.columns.T
        with np.errstate(invalid="ignore"):  # 0 times infinity, in a term that moves nothing
            ends = np.where(columns == 0.0, 0.0, [columns * self.lo, columns * self.hi])
        size = np.abs(ends).max(axis=0).sum(axis=1) + self.held + np.abs(self.target)
        least, most = ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)
        room = self.rounding * size
        return bool(((least + self.target > room) | (most + self.target < -room)).any())

    @property
    def rounding(self) -> float:
        """The residual that counts as none, in units of what was summed."""
        return float(4.0 + np.log2(len(self.ease))) * UNIT

    def solved(self) -> tuple[Array, bool]:
        """The projection, and whether it is one up to rounding."""
        columns, ease = self.columns, self.ease
        shift = np.zeros(columns.shape[1])
        now = self.at(shift)
        sizes = np.abs(columns)
        base = ease @ columns**2 + 1e-300
        rounding = self.rounding
        for _ in range(_NEWTON_STEPS):
            size = sizes.T @ np.abs(now.point) + self.held + np.abs(self.target)
            if (np.abs(now.residual) <= rounding * size).all():
                return now.point, True
            inside = (now.point > self.lo) & (now.point < self.hi)
            hessian = columns[inside].T @ (columns[inside] * ease[inside, None])
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
    if free > FEW:
        theta, done = _repaired(problem, theta, target)
        if done or problem.n * free > COPIED:
            return theta
    losses, columns = problem.losses, problem.free_columns
    ease = _ease(problem, margins)
    near = np.flatnonzero(ease > NEAR)
    if 0 < len(near) <= 0.5 * problem.n:
        away = ease <= NEAR
        rest, still = columns[away], theta[away]
        few = _Projection(
            theta[near], losses.lo[near], losses.hi[near], columns[near], ease[near],
            target + rest.T @ still, np.abs(rest).T @ np.abs(still),
        )
        found, done = (theta, False) if few.hopeless else few.solved()
        if done:
            point = theta.copy()
            point[near] = found
            return _polish(problem, point, target, ease)
    found, _ = _Projection(
        theta, losses.lo, losses.hi, columns, ease, target, np.zeros(columns.shape[1])
    ).solved()
    return _polish(problem, found, target, ease)


def _movable(problem: Problem, theta: Array, most: int) -> tuple[NDArray[np.intp], Array]:
    """Terms with the most room in their boxes, and that room for all terms.

    An infinite box counts as large as the slope is, so that ordinary terms are not passed over.
    """
    losses = problem.losses
    room = np.minimum(theta - losses.lo, losses.hi - theta)
    weight = np.minimum(room, 1.0 + np.abs(theta)) * problem.sizes
    inside = np.flatnonzero(weight > 0)
    if len(inside) > most:
        inside = inside[np.argpartition(-weight[inside], most)[:most]]
    return inside[np.argsort(-weight[inside])], room


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
    most = 4 * int(free.sum())
    best, _ = _movable(problem, theta, most)
    residual = problem.design.adjoint(theta)[free] + target
    size = problem.column_sizes[free] * float(np.linalg.norm(theta)) + np.abs(target)
    rounding = (4.0 + np.log2(problem.n)) * UNIT * size
    if not len(best):
        return theta, bool((np.abs(residual) <= rounding).all())
    rows, lo, hi = _free_rows(problem, best), problem.losses.lo[best], problem.losses.hi[best]
    theta = theta.copy()
    for _ in range(3):
        if (np.abs(residual) <= rounding).all():
            break
        step = np.linalg.lstsq(rows.T, -residual, rcond=None)[0]
        moved = np.clip(theta[best] + step, lo, hi)
        left = residual + rows.T @ (moved - theta[best])
        if not float(np.linalg.norm(left)) < float(np.linalg.norm(residual)):
            break
        theta[best], residual = moved, left
    return theta, bool((np.abs(residual) <= rounding).all())


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
    terms, _ = _movable(problem, theta, 4 * int(free.sum()))
    pressing = np.concatenate([
        np.arange(rows.start, rows.stop)[slice(None) if kind == "zero" else mu[rows] != 0]
        for kind, _, rows in side.blocks() if kind in ("zero", "nonneg", "soc")
    ] or [np.zeros(0, dtype=np.intp)])
    columns = np.vstack([_free_rows(problem, terms), -side.matrix[pressing].toarray()[:, free]])
    if not len(columns):
        return theta, mu
    residual = (problem.design.adjoint(theta) - side.adjoint(mu) + linear)[free]
    for _ in range(STEPS_ON_CONES if any(kind == "soc" for kind, _ in side.dims) else 1):
        step = np.linalg.lstsq(columns.T, -residual, rcond=None)[0]
        moved, pressed = theta.copy(), mu.copy()
        moved[terms] += step[: len(terms)]
        moved = np.clip(moved, losses.lo, losses.hi)
        pressed[pressing] += step[len(terms):]
        pressed = side.project_dual(pressed)
        left = (problem.design.adjoint(moved) - side.adjoint(pressed) + linear)[free]
        if not float(np.linalg.norm(left)) < float(np.linalg.norm(residual)):
            break
        theta, mu, residual = moved, pressed, left
    return theta, mu


def _polish(problem: Problem, theta: Array, target: Array, ease: Array) -> Array:
    """Remove the last residual of `balance` on a few coordinates well inside the box."""
    losses, columns = problem.losses, problem.free_columns
    room = np.minimum(theta - losses.lo, losses.hi - theta) * np.abs(columns).max(axis=1) * ease
    best = np.argsort(-room)[: 4 * columns.shape[1]]
    best = best[room[best] > 0]
    if not len(best):
        return theta
    for _ in range(3):
        residual = columns.T @ theta + target
        if not residual.any():
            break
        step = np.linalg.lstsq(columns[best].T, -residual, rcond=None)[0]
        moved = theta.copy()
        moved[best] = np.clip(theta[best] + step, losses.lo[best], losses.hi[best])
        if np.linalg.norm(columns.T @ moved + target) >= np.linalg.norm(residual):
            break
        theta = moved
    return theta


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
    order, room = _movable(problem, theta, 4 * free)
    rows = _free_rows(problem, order)
    values = np.linalg.svd(rows.T, compute_uv=False) if len(order) else np.zeros(0)
    if len(values) < free or values[-1] <= 1e-8 * values[0]:
        return _if_exact(problem, theta, residual_error, target)
    most = float(np.linalg.norm(np.abs(residual) + residual_error))
    bound = most / float(values[-1]) * (1.0 + 1e-6)
    if (room[order] < bound).any():
        return _if_exact(problem, theta, residual_error, target)
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
            return _if_exact(problem, theta, residual_error, target)
        cost = max(cost, needed * float(rate[able].min()))
    return cost


def _if_exact(problem: Problem, theta: Array, residual_error: Array, target: Array) -> float:
    """0 if the balance holds exactly (and the target is exact), otherwise infinity."""
    if problem.imbalance > 0 or problem.side is not None or len(target) > FEW:
        return float("inf")
    sums = [
        exact_sum(problem.free_columns[:, j], theta, float(target[j]))
        for j in range(len(target))
    ]
    return 0.0 if not any(sums) else float("inf")
