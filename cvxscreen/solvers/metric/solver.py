"""Metric learning at one lambda: from a problem to its task, solved, and back.

A run evaluates, proves, shrinks, iterates, and comes back to the full task.

The reduced task is safe (every decision rests on a sphere that contains the optimum), so its
optimum is the full one; the last state is evaluated on the full task all the same.

The plain hinge is solved through ever less smoothed ones. At its optimum some terms sit exactly at
the kink with a dual variable strictly between 0 and w. Smoothing finds which they may be; for these
few the dual is maximised as a box constrained problem with all others fixed at 0 or w, and the
answer's gap is taken on all terms.

This is not `cvxscreen.solvers.loop`, whose problems list their terms: here a term may be one of a
product set, and a task is shrunk between two iterations. Where the terms can be listed the general
loop over the same solver (``solve_screened(problem, MetricSolver())``) takes 1.9 to 3.3 times as
long: CPU seconds to a relative gap of 1e-6 at 0.1, 0.01 and 0.001 of the largest lambda, 332,640
triplets of segment 0.07, 0.06, 0.08 against 0.18, 0.15, 0.18; 190,350 of vehicle 0.02, 0.03, 0.04
against 0.05, 0.09, 0.07.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.rounding import up
from cvxscreen._support.validation import check_request, one_of
from cvxscreen.bounds import Bound, midpoint_ball
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import PSD, NonNegative
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.designs.comparisons import Indexed, Pairs, Products
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
)
from cvxscreen.solvers.metric.task import (
    FactoredMetric,
    MetricIterate,
    MetricTask,
    Sphere,
    active_terms,
    evaluation_cost,
    reduce_task,
    reduction_cost,
)
from cvxscreen.solvers.solution import Answer, Round, Solution, UnlistedSolution

# -- projected gradients, and a second-order finish -----------------------------------------------
#
# Each method is a generator of evaluated states, so that whoever drives it can look at a gap,
# shrink the task and go on from the last state.
#
# The second-order finish is a proximal augmented Lagrangian with a semismooth Newton method inside.
# For min P~(M) over M in the cone, with P~ everything but the cone, the augmented Lagrangian
#
#     L(M; Gam, s) = P~(M) + 1/(2 s) |[Gam - s M]_+|^2,      Gam <- [Gam - s M]_+
#
# is smooth and strongly convex in M. Its generalised Hessian is lam I + sum_C (w/g) H<H, .> + s J,
# C the terms on the curved piece, J the derivative of the projection at Gam - s M. Newton
# directions come from conjugate gradients: a product costs one pass over the pairs of C.


Array = NDArray[np.float64]


def first_step(task: MetricTask, state: MetricIterate) -> float:
    """A cautious first step: as long as the metric, or as the one that ``v`` would make alone."""
    gradient = float(np.linalg.norm(state.gradient(task.lam)))
    target = max(
        float(np.linalg.norm(state.v)) / task.lam, float(np.linalg.norm(state.metric.value))
    )
    return 1.0 / max(task.lam, gradient / max(target, 1e-300))


def projected_gradient(
    task: MetricTask, state: MetricIterate, memory: dict[str, float] | None = None
) -> Iterator[MetricIterate]:
    """Projected gradient with the averaged Barzilai-Borwein step (Yoshida et al. 2019, sec. 7).

    ``eta = |<dM, dG> / <dG, dG> + <dM, dM> / <dM, dG>| / 2``. Stops when the metric stands still.
    The method is not monotone; where the objective rises far above its lowest value so far, it goes
    back there and takes a cautious step. `memory` keeps the step from one call to the next.
    """
    cone, lam = task.cone, task.lam
    memory = {} if memory is None else memory
    eta = memory.get("step") or first_step(task, state)
    gradient = state.gradient(lam)
    best, caution = state, 1.0
    while True:
        new = task.evaluate(cone.project(state.metric.value - eta * gradient))
        moved = new.metric.value - state.metric.value
        fresh = new.gradient(lam)
        change = fresh - gradient
        inner = float(np.vdot(moved, change))
        if not moved.any():
            return
        if inner > 0.0:
            shorter = inner / float(np.vdot(change, change))
            eta = 0.5 * (shorter + float(np.vdot(moved, moved)) / inner)
        if new.primal < best.primal:
            best = new
        elif new.primal > best.primal + 10.0 * (abs(best.primal) + 1e-300):
            new, fresh, caution = best, best.gradient(lam), 0.1 * caution
            eta = caution * first_step(task, best)
        state, gradient = new, fresh
        memory["step"] = eta
        yield state


CYCLE = 10
"""Steps on one active set (Yoshida et al. 2019, section 7.3, after Weinberger and Saul 2009)."""


def active_set(task: MetricTask, state: MetricIterate) -> Iterator[MetricIterate]:
    """Projected gradients on the terms whose loss is positive, chosen anew after every `CYCLE`.

    Every state is evaluated on the whole task: what the active terms alone say is no bound. Where a
    cycle has not lowered the objective, the set takes in terms ever farther above their threshold,
    in the end all of them, so that it cannot go round in circles.
    """
    slack, best = 0.0, state.primal
    memory: dict[str, float] = {}
    while True:
        small = active_terms(task, state.values, slack)
        metric = state.metric
        for inner in islice(projected_gradient(small, small.evaluate(metric), memory), CYCLE):
            metric = inner.metric
        state = task.evaluate(metric)
        yield state
        if state.primal >= best:
            slack = 2.0 * slack or 0.1 * float(np.abs(task.b).max(initial=0.0)) or 1.0
        best = min(best, state.primal)


Operator = Callable[[Array], Array]


def newton(task: MetricTask, state: MetricIterate) -> Iterator[MetricIterate]:
    """Iterates of the proximal augmented Lagrangian (see above), projected onto the cone."""
    cone, lam = task.cone, task.lam
    split = cone.moreau(state.v)
    gam = split.positive - state.v
    sigma = 10.0 * lam
    value = state.metric.value.copy()
    while True:
        scale = float(np.linalg.norm(value)) * lam + 1e-300
        for _ in range(30):
            gradient, hessian, level = _augmented_lagrangian(task, value, gam, sigma)
            size = float(np.linalg.norm(gradient))
            apart = float(np.linalg.norm(cone.moreau(gam - sigma * value).positive - gam))
            if size <= max(0.1 * lam / sigma * apart, 1e-13 * scale):
                break
            direction = _conjugate_gradients(
                hessian, -gradient, min(0.1, size / scale) * size, 4 * value.size
            )
            value, moved = _line_search(task, value, direction, gradient, gam, sigma, level)
            if not moved:
                break
        gam = cone.moreau(gam - sigma * value).positive
        sigma = min(3.0 * sigma, 1e6 * lam)
        new = task.evaluate(cone.project(value))
        yield new
        # The projected metric's own dual point may already be the better multiplier.
        other = cone.moreau(new.v)
        if np.linalg.norm(other.positive / lam - new.metric.value) < 1e-3 * np.linalg.norm(
            new.metric.value
        ):
            gam = other.positive - new.v


def _losses_at(
    task: MetricTask, value: Array
) -> tuple[float, Array, NDArray[np.intp], Array]:
    """At any symmetric `value` the sum of the losses and ``omega`` (see `MetricIterate`).

    With them the terms on the curved piece of their loss, and the curvature ``w / g`` of all terms.
    """
    q = task.table.values(value.ravel())
    total, omega = task.losses(q)
    margins = task.terms.margins(q)
    curved = (margins < task.b) & (margins > task.b - task.smoothing)
    weight = np.broadcast_to(task.weight / np.maximum(task.smoothing, 1e-300), margins.shape)
    return total, omega, np.flatnonzero(curved), weight


def _augmented_lagrangian(
    task: MetricTask, value: Array, gam: Array, sigma: float
) -> tuple[Array, Operator, float]:
    """Gradient, generalised Hessian and level of the augmented Lagrangian at `value`."""
    total, omega, curved, weight = _losses_at(task, value)
    lam = task.lam
    inner = gam - sigma * value
    slope, derivative = _projection_and_derivative(inner)
    gradient = lam * value - task.minus_linear - task.table.adjoint(omega) - slope
    terms, used = task.terms.take(curved).compact()
    table, weight = task.table.take(used), weight[curved]

    def product(step: Array) -> Array:
        margins = terms.margins(table.values(step.ravel()))
        curvature = table.adjoint(_scattered(terms, weight * margins))
        return np.asarray(lam * step + curvature + sigma * derivative(step))

    level = total + float(np.vdot(0.5 * lam * value - task.minus_linear, value))
    level += 0.5 / sigma * float(np.vdot(slope, slope))
    return gradient, product, level


def _scattered(terms: Indexed, theta: Array) -> Array:
    omega = terms.scatter(theta)
    omega[-1] = 0.0
    return omega


def _projection_and_derivative(inner: Array) -> tuple[Array, Operator]:
    """``[inner]_+`` and the action of a generalised derivative there."""
    if inner.ndim == 1:
        positive = inner > 0.0
        return np.where(positive, inner, 0.0), lambda step: np.where(positive, step, 0.0)
    values, vectors = np.linalg.eigh(inner)
    top = np.maximum(values, 0.0)
    gap = values[:, None] - values[None, :]
    mixed = np.divide(
        top[:, None] - top[None, :], gap, out=np.zeros_like(gap), where=np.abs(gap) > 0
    )
    both = (values[:, None] > 0) & (values[None, :] > 0)
    mixed = np.where(both, 1.0, np.where(np.abs(gap) > 0, mixed, 0.0))

    def derivative(step: Array) -> Array:
        return np.asarray(vectors @ (mixed * (vectors.T @ step @ vectors)) @ vectors.T)

    return (vectors * top) @ vectors.T, derivative


def _conjugate_gradients(apply: Operator, right: Array, tol: float, limit: int) -> Array:
    x = np.zeros_like(right)
    residual, direction = right.copy(), right.copy()
    square = float(np.vdot(residual, residual))
    for _ in range(limit):
        if square <= tol**2:
            break
        image = apply(direction)
        size = square / float(np.vdot(direction, image))
        x += size * direction
        residual -= size * image
        fresh = float(np.vdot(residual, residual))
        direction = residual + fresh / square * direction
        square = fresh
    return x


def _line_search(
    task: MetricTask, value: Array, direction: Array, gradient: Array, gam: Array, sigma: float,
    level: float,
) -> tuple[Array, bool]:
    """Halve the step until the augmented Lagrangian falls enough."""
    slope = float(np.vdot(direction, gradient))
    size = 1.0
    for _ in range(20):
        new = value + size * direction
        total, _ = task.losses(task.table.values(new.ravel()))
        hinge = task.cone.moreau(gam - sigma * new).positive
        fresh = total + float(np.vdot(0.5 * task.lam * new - task.minus_linear, new))
        fresh += 0.5 / sigma * float(np.vdot(hinge, hinge))
        if fresh <= level + 1e-4 * size * slope + 1e-14 * abs(level):
            return new, True
        size *= 0.5
    return value, False


# -- one value of lambda --------------------------------------------------------------------------


SMALL = 20_000
"""A task of fewer terms, already a reduced one, is solved as it is."""

PATIENCE = 8
"""Iterations before a task with less than a tenth of all terms is shrunk again."""

NEWTON_LIMIT = 60
"""It converges in some ten steps, or not at all: at the limit of rounding."""


@dataclass(frozen=True)
class GapCheck:
    """The record of one evaluation of the duality gap.

    Attributes
    ----------
    iterations : int
        Made so far.
    kept, pairs : int
        Terms and pairs of the reduced task after it.
    dropped, fixed : int
        Terms proven so far on the zero piece and on the linear one.
    gap, primal : float
    """

    iterations: int
    kept: int
    pairs: int
    dropped: int
    fixed: int
    gap: float
    primal: float


@dataclass
class MetricOptimisation:
    """The options and the record of a solve.

    Attributes
    ----------
    tol : float
        Relative gap.
    screen : bool
        Whether to shrink the task.
    method : {"auto", "bb", "newton", "active_set"}
        ``"auto"``: projected gradient, then Newton where that is slow.
    check_every : int
        Iterations between two evaluations of the gap.
    limit : int
        Most iterations in all.
    limits : Limits
        Of the whole call.
    dropped, fixed : int
        Terms the task lacks from the start.
    first_iterate : MetricIterate
        The start of a solve, evaluated on the whole task.
    saved, spent : float
        What reducing the task saved the iterations, and what it cost: both in the unit of
        `evaluation_cost`.
    """

    tol: float = 1e-6
    screen: bool = True
    method: str = "auto"
    check_every: int = 2
    limit: int = 20_000
    limits: Limits = UNLIMITED
    on_check: Callable[[GapCheck], None] | None = None
    dropped: int = 0
    fixed: int = 0
    first_iterate: MetricIterate | None = None
    checks: list[GapCheck] = field(default_factory=list)
    iterations: int = 0
    passes: int = 0
    saved: float = 0.0
    spent: float = 0.0
    _whole: int = 0
    _work: float = 0.0
    _dropped: int = 0
    _fixed: int = 0
    _memory: dict[str, float] = field(default_factory=dict)

    def solve(
        self, task: MetricTask, start: FactoredMetric,
        accept: Callable[[FactoredMetric], bool] | None = None,
    ) -> tuple[MetricIterate, Sphere]:
        """The last state on the full task with the sphere it proves.

        With `accept`, a metric it accepts is returned as it is, on the reduced task.
        """
        state = task.evaluate(start)
        sphere = task.sphere(state)
        self.passes += 1
        first, self.first_iterate = (state, sphere), state
        self._whole = len(task.terms) + self.dropped + self.fixed
        self._work = evaluation_cost(task)
        aim = 0.5 * self.tol
        for _ in range(8):
            if sphere.gap <= self.tol * abs(state.primal) or self.limits.spent():
                break
            reduced = task
            self._dropped, self._fixed = self.dropped, self.fixed
            if self.dropped + self.fixed and len(task.terms) < SMALL:
                self._record(task, sphere.gap, state.primal)
            elif self.screen:
                reduced, state = self._shrink(task, state, sphere, sort=True)
            metric = self._iterate(reduced, state, aim, sphere.gap)
            if accept is not None and accept(metric):
                return state._replace(metric=metric), sphere
            state = task.evaluate(metric)
            sphere = task.sphere(state)
            self.passes += 1
            aim *= 0.1
            if self.iterations >= self.limit:
                break
        if sphere.gap > first[1].gap:
            return first
        self._record(task, sphere.gap, state.primal)
        return state, sphere

    def _shrink(
        self, task: MetricTask, state: MetricIterate, sphere: Sphere, *, sort: bool = False
    ) -> tuple[MetricTask, MetricIterate]:
        reduced, state, dropped, fixed = reduce_task(task, sphere, state, sort=sort)
        self.spent += reduction_cost(task, reduced)
        self._dropped += dropped
        self._fixed += fixed
        self._record(reduced, sphere.gap, state.primal)
        return reduced, state

    def _record(self, task: MetricTask, gap: float, primal: float) -> None:
        check = GapCheck(
            self.iterations, len(task.terms), len(task.table), self._dropped, self._fixed, gap,
            primal,
        )
        self.checks.append(check)
        if self.on_check is not None:
            self.on_check(check)

    def _iterate(
        self, task: MetricTask, state: MetricIterate, aim: float, gap: float
    ) -> FactoredMetric:
        """Down to a relative gap of `aim` on `task`, shrinking it on the way."""
        if not len(task.terms):
            return task.cone.project(task.minus_linear / task.lam)
        shrunk_at = last = gap
        begun, many = self.iterations, 0.1 * self._whole
        slow, method, finishing = 0, self.method, 0
        states = self._method(method)(task, state)
        best, best_gap = state, gap
        while self.iterations < self.limit and not self.limits.spent():
            new = next(states, None)
            if new is None:  # no step of this method gets any further
                if method != "auto":
                    break
                method, state = "newton", best
                states = self._method(method)(task, state)
                continue
            state = new
            self.iterations += 1
            self.limits.spent(1)
            self.saved += self._work - evaluation_cost(task)
            finishing += method == "newton"
            if finishing > NEWTON_LIMIT:
                break
            if self.iterations % self.check_every and method != "newton":
                continue
            gap = task.gap(state)
            if gap < best_gap:
                best, best_gap = state, gap
            if gap <= aim * abs(state.primal):
                break
            slow = slow + 1 if gap > 0.1 * last else 0
            last = gap if slow == 0 else last
            # The sphere's radius goes with the root of the gap, so that a gap of a tenth decides
            # more; a task that is small already is cut again only when it has cost something.
            late = self.iterations - begun >= PATIENCE
            if self.screen and gap < 0.1 * shrunk_at and (late or len(task.terms) > many):
                shrunk_at, begun = gap, self.iterations
                before = len(task.terms)
                task, state = self._shrink(task, state, task.sphere(state))
                if not len(task.terms):
                    return task.cone.project(task.minus_linear / task.lam)
                if len(task.terms) < before:
                    best, best_gap = state, task.gap(state)
                    states = self._method(method)(task, state)
            # 200 iterations in which the gap does not fall to a tenth: a gradient method has come
            # as far as the condition of the problem lets it.
            if slow * self.check_every >= 200 and method == "auto":
                method, slow = "newton", 0
                state, last = best, best_gap
                states = self._method(method)(task, state)
        return state.metric if gap <= best_gap else best.metric

    def _method(self, name: str) -> Callable[[MetricTask, MetricIterate], Iterator[MetricIterate]]:
        known = {"active_set": active_set, "newton": newton}
        return known.get(name, partial(projected_gradient, memory=self._memory))


WIDTHS = (5e-2, 1e-2, 2e-3, 4e-4, 8e-5, 1e-5, 1e-6)
"""Smoothed corners that stand for a kink, one after another, in units of the largest threshold; the
last is only reached where no wider one has led to the gap that is asked for."""


def solve_plain_hinge(
    task: MetricTask, begin: FactoredMetric, run: MetricOptimisation
) -> tuple[FactoredMetric, MetricOptimisation, Sphere, Array]:
    """The metric, the record, a sphere (of the smoothed task) and slopes ``theta = -alpha``."""
    scale = float(np.abs(task.b).max(initial=0.0)) or 1.0
    best: tuple[float, FactoredMetric, Array, Sphere] | None = None
    metric, goal = begin, run.tol
    for width in WIDTHS:
        gamma = np.where(task.smoothing == 0.0, width * scale, task.smoothing)
        smooth = replace(task, smoothing=gamma)
        run.tol = min(1e-3, max(0.02 * width, 0.1 * goal))
        state, sphere = run.solve(smooth, metric)
        metric = state.metric
        alpha = _smoothed_alpha(smooth, state)
        for _ in range(3):
            candidate = (*_maximise_dual(task, alpha, metric, 2.0 * width * scale), sphere)
            gap, found, alpha, _ = candidate
            if best is None or gap < best[0]:
                best = candidate
            if best[0] <= goal * abs(task.evaluate(best[1]).primal):
                run.tol = goal
                return best[1], run, best[3], -best[2]
            if gap > 0.5 * best[0] and candidate is not best:
                break
            if run.limits.spent():
                break
            metric = found
        if run.limits.reached:
            break
        metric = state.metric
    run.tol = goal
    if best is None:
        raise ArithmeticError("no width was tried")
    return best[1], run, best[3], -best[2]


def _smoothed_alpha(smooth: MetricTask, state: MetricIterate) -> Array:
    margins = smooth.terms.margins(smooth.pair_values(state.metric))
    return np.asarray(smooth.weight * np.clip((smooth.b - margins) / smooth.smoothing, 0.0, 1.0))


def _maximise_dual(
    task: MetricTask, alpha: Array, metric: FactoredMetric, reach: float
) -> tuple[float, FactoredMetric, Array]:
    """The gap on all terms after the dual is maximised over those near their kink."""
    margins = task.terms.margins(task.pair_values(metric))
    z = task.b - margins
    weight = np.broadcast_to(task.weight, z.shape)
    near = np.abs(z) <= reach
    alpha = np.where(near, alpha, np.where(z > 0, weight, 0.0))
    chosen = np.flatnonzero(near)
    fixed = np.where(near, 0.0, alpha)
    minus_linear = _weighted_sum(task, fixed) + task.minus_linear
    terms, used = task.terms.take(chosen).compact()
    table, lam = task.table.take(used), task.lam
    level = np.broadcast_to(task.b, z.shape)[chosen]

    def negative_dual(values: Array) -> tuple[float, Array]:
        omega = terms.scatter(values)
        omega[-1] = 0.0
        dual = task.cone.project((minus_linear + table.adjoint(omega)) / lam).value
        slope = level - terms.margins(table.values(dual.ravel()))
        return 0.5 * lam * float(np.vdot(dual, dual)) - float(level @ values), -slope

    if len(chosen):
        from scipy.optimize import minimize  # a sixth of a second of every model's first call

        top = weight[chosen]
        found = minimize(
            negative_dual, np.clip(alpha[chosen], 0.0, top), jac=True, method="L-BFGS-B",
            bounds=np.column_stack([np.zeros_like(top), top]),
            options={"maxiter": 500, "maxcor": 30, "ftol": 1e-16, "gtol": 1e-12},
        )
        alpha[chosen] = np.clip(found.x, 0.0, top)
    dual = task.cone.project((_weighted_sum(task, alpha) + task.minus_linear) / lam)
    gap = dual_gap(task, dual, alpha)
    own = dual_gap(task, metric, alpha)
    return (gap, dual, alpha) if gap <= own else (own, metric, alpha)


def _weighted_sum(task: MetricTask, alpha: Array) -> Array:
    omega = task.terms.scatter(alpha)
    omega[-1] = 0.0
    return task.table.adjoint(omega)


def dual_gap(task: MetricTask, metric: FactoredMetric, alpha: Array) -> float:
    """The duality gap of a metric and any ``0 <= alpha <= w``, as a sum of non-negative terms."""
    margins = task.terms.margins(task.pair_values(metric))
    z, p = task.b - margins, alpha / np.where(task.weight > 0.0, task.weight, 1.0)
    smoothing = np.broadcast_to(task.smoothing, z.shape)
    curve = np.where(smoothing > 0, smoothing, 1.0)
    tau = np.where(smoothing > 0, np.clip(z / curve, 0.0, 1.0), z > 0)
    fy = task.weight * (0.5 * smoothing * (p - tau) ** 2 + (tau - p) * (z - smoothing * tau))
    split = task.cone.moreau(_weighted_sum(task, alpha) + task.minus_linear)
    step = metric.value - split.positive / task.lam
    return up(
        float(np.maximum(fy, 0.0).sum()) + 0.5 * task.lam * float(np.vdot(step, step))
        + task.cone.inner_above(metric, split.lift)
    )


def is_metric(problem: Problem) -> bool:
    """Whether `problem` is metric learning with (smoothed) hinges, which this module solves."""
    if not isinstance(problem.design, Pairs) or problem.side is not None:
        return False
    if not isinstance(problem.penalty, PSD | NonNegative) or problem.quadratic.matrix is not None:
        return False
    return _hinges(problem.losses)


def _hinges(losses: LossTerms) -> bool:
    ends = (losses.e, losses.hi, losses.lo)
    some = [row[:1] if row.strides == (0,) else row for row in ends]
    return not some[0].any() and not some[1].any() and bool(np.isfinite(some[2]).all())


def task_of(problem: Problem) -> MetricTask:
    """`problem` in the form its solvers work on."""
    one_of("problem", problem, Problem, "a problem of metric learning, from `rtlm`, is needed")
    design, f = problem.design, problem.losses
    if not isinstance(design, Pairs):
        raise InvalidInput("`problem` is not one of metric learning.")
    b, weight = _shortest_column(f.b), -_shortest_column(f.lo)
    smoothing = _shortest_column(f.q) * weight
    terms: Indexed | Products = design.terms
    if max(b.size, weight.size, smoothing.size) > 1:
        columns = (b, smoothing, weight)
        b, smoothing, weight = (np.array(np.broadcast_to(c, len(terms))) for c in columns)
        # A term without weight, whose loss is 0 however smooth, is none with a kink.
        smoothing[weight == 0.0] = smoothing.max()
        if isinstance(terms, Products):
            terms = Indexed(*terms.index(), terms.pairs)
    lam, table = float(problem.quadratic.diagonal[0]), design.table
    minus_linear = -problem.linear if table.diagonal else -problem.linear.reshape(table.d, table.d)
    drift = problem.drift * float(np.sqrt(lam)) * (1.0 + 1e-15)
    return MetricTask(
        table, terms, b, smoothing, weight, lam, minus_linear, problem.constant, drift
    )


def _shortest_column(column: Array) -> Array:
    """A fresh copy of one column of the losses; a single entry where all entries are the same."""
    if not column.size:
        return np.ones(1)
    same = column.strides == (0,) or bool((column == column[0]).all())
    return np.array(column[:1] if same else column)


def closed_form(task: MetricTask) -> FactoredMetric:
    """``[K(w)]_+ / lam``: the optimum for every large lam, a start for the others."""
    return task.cone.project(v_at_full_weight(task) / task.lam)


def v_at_full_weight(task: MetricTask) -> Array:
    """``K(w) = sum w_t H_t - linear``: `MetricIterate.v` where every term has its largest alpha."""
    flat = replace(task, b=np.full(1, 1.0), smoothing=np.zeros(1))
    if isinstance(task.terms, Indexed) and task.weight.size > 1:
        size = len(task.terms)
        flat = replace(task, b=np.ones(size), smoothing=np.zeros(size))
    # At pair values 0 every margin is 0, below a threshold of 1.
    _, omega = flat.losses(np.zeros(len(task.table) + 1))
    return task.table.adjoint(omega) + task.minus_linear


class StreamedSolution(UnlistedSolution):
    """A solution whose dual variables are known by the metric: ``alpha = -losses.slope(margins)``.

    `theta` is empty, and `decided` counts the terms proven on the zero and on the linear piece.
    """

    decided: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        zero, linear = self.decided
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms, {zero:,} proven zero, "
            f"{linear:,} proven linear\n{self.certificate}"
        )


LISTED = 20_000_000
"""Up to this many terms a solution holds a dual variable for each of them."""


@dataclass(frozen=True)
class MetricSolver(SubproblemSolver):
    """The built-in solver of (reduced) metric learning problems, for the generic loop.

    Parameters
    ----------
    method : {"auto", "bb", "newton", "active_set"}
    limits : Limits
        Of the whole call.
    """

    method: str = "auto"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True)

    @property
    def name(self) -> str:
        """``"metric"``."""
        return "metric"

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem` to an absolute gap of about `target` (as far as rounding allows)."""
        task = task_of(problem)
        begin = _initial_metric(task, None if start is None else start.x)
        scale = max(abs(task.evaluate(begin).primal), 1e-300)
        found = _solve(task, begin, MetricOptimisation(
            tol=max(target / scale, 1e-13), method=self.method, limits=self.limits
        ))
        x = found.metric.value.ravel()
        theta = problem.losses.slope(problem.design.forward(x)) if found.theta is None else (
            np.clip(found.theta, problem.losses.lo, problem.losses.hi)
        )
        word = "inaccurate" if self.limits.reached else "optimal"
        return SubproblemResult(word, x, theta, info={"iterations": found.run.iterations})


class SolvedTask(Immutable):
    """A solved task; `theta` where the dual point is not the slope at the metric (kinks)."""

    metric: FactoredMetric
    run: MetricOptimisation
    sphere: Sphere
    theta: Array | None = None


def _initial_metric(task: MetricTask, x: Array | None) -> FactoredMetric:
    """Where to start: a given point, or the closed form of a large lambda (all alpha = w)."""
    if x is not None:
        return task.cone.project(np.asarray(x, dtype=np.float64).reshape(task.minus_linear.shape))
    return closed_form(task)


def _solve(task: MetricTask, begin: FactoredMetric, run: MetricOptimisation) -> SolvedTask:
    if (task.smoothing == 0.0).any():
        return SolvedTask(*solve_plain_hinge(task, begin, run))
    state, sphere = run.solve(task, begin)
    return SolvedTask(state.metric, run, sphere)


def solve_metric(
    problem: Problem,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    method: str = "auto",
    start: Start | None = None,
    bounds: Sequence[Bound] = (midpoint_ball,),
    screen: bool = True,
    on_round: Callable[[Round], None] | None = None,
    limits: Limits = UNLIMITED,
) -> Solution:
    """Solve metric learning by screening, projected gradients and, where they are slow, Newton.

    Every decision on the way is proven, in both modes.

    Parameters
    ----------
    problem : Problem
        For which `is_metric` holds.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    method : {"auto", "bb", "newton", "active_set"}
    start : Start, optional
    bounds : sequence of Bound
        What `Solution.screening` proves with.
    screen : bool
        Whether to reduce at all.
    on_round : callable, optional
    limits : Limits

    Returns
    -------
    Solution
        Of more than `LISTED` terms a `StreamedSolution`.
    """
    mode = check_request(mode, tol)
    began = perf_counter()
    rounds: list[Round] = []

    def note(check: GapCheck) -> None:
        rounds.append(_round(check, len(rounds) + 1, perf_counter() - began))
        if on_round is not None:
            on_round(rounds[-1])

    task = task_of(problem)
    run = MetricOptimisation(
        tol=0.5 * tol, screen=screen, method=method, on_check=note, limits=limits
    )
    found = _solve(task, _initial_metric(task, None if start is None else start.x), run)
    x = found.metric.value.ravel()
    if problem.penalty is not None:
        x = problem.penalty.project(x)
    if problem.n > LISTED:
        return _streamed(problem, x, tol, found, rounds, perf_counter() - began)
    point = reference_point(problem, x, found.theta)
    proof = certify(problem, point.x, point.theta, tol=tol)
    return Solution(
        problem=problem, x=point.x, theta=point.theta, multipliers=np.zeros(0),
        status=limits.word(proof.ok), certificate=proof,
        earlier=Screening.empty(problem), rounds=tuple(rounds), bounds=tuple(bounds),
        answer=Answer.known(point, proof), solver="metric", mode=mode,
        seconds=perf_counter() - began,
    )


def _round(check: GapCheck, number: int, seconds: float) -> Round:
    info: dict[str, Any] = {"iterations": check.iterations, "pairs": check.pairs}
    relative = float(relative_gap(check.gap, check.primal))
    return Round(
        number, check.kept, check.dropped + check.fixed, 0, 0, check.gap, relative, "optimal", info,
        0.0, seconds,
    )


def _streamed(
    problem: Problem, x: Array, tol: float, found: SolvedTask, rounds: list[Round], seconds: float
) -> StreamedSolution:
    proof: Certificate = certify_metric(problem, x, tol=tol)
    last = found.run.checks[-2] if len(found.run.checks) > 1 else None
    nothing = np.zeros(0)
    return StreamedSolution(
        problem=problem, x=x, theta=nothing, multipliers=nothing,
        status=found.run.limits.word(proof.ok), certificate=proof,
        earlier=None, rounds=tuple(rounds), solver="metric", mode="safe",  # type: ignore[arg-type]
        seconds=seconds, decided=(last.dropped, last.fixed) if last else (0, 0),
    )
