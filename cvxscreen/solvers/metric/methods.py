"""Iterative methods for metric learning: projected gradients, and a second-order finish.

Each is a generator of evaluated states, so that whoever drives it can look at a gap, shrink the
task and go on from the last state.

The second-order finish is a proximal augmented Lagrangian with a semismooth Newton method inside.
For ``min P~(M) over M in the cone`` with P~ everything but the cone, the augmented Lagrangian

::

    L(M; Gam, s) = P~(M) + 1/(2 s) |[Gam - s M]_+|^2,      Gam <- [Gam - s M]_+

is smooth and strongly convex in M. Its generalised Hessian is ``lam I + sum_C (w/g) H<H, .> +
s J``, C the terms on the curved piece, J the derivative of the projection at ``Gam - s M``. Newton
directions come from conjugate gradients: a product costs one pass over the pairs of C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.term_sets import Indexed
from cvxscreen.solvers.metric.task import Iterate, Task

Array = NDArray[np.float64]


def first_step(task: Task, state: Iterate) -> float:
    """A cautious first step: as long as the metric, or as the one that ``v`` would make alone."""
    gradient = float(np.linalg.norm(state.gradient(task.lam)))
    target = max(
        float(np.linalg.norm(state.v)) / task.lam, float(np.linalg.norm(state.metric.value))
    )
    return 1.0 / max(task.lam, gradient / max(target, 1e-300))


def projected_gradient(
    task: Task, state: Iterate, memory: dict[str, float] | None = None
) -> Iterator[Iterate]:
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


def accelerated(task: Task, state: Iterate) -> Iterator[Iterate]:
    """Accelerated projected gradient with backtracking and restarts (O'Donoghue & Candes 2015)."""
    cone, lam = task.cone, task.lam
    slope = 1.0 / first_step(task, state)
    momentum_point, momentum = state, 1.0
    while True:
        gradient = momentum_point.gradient(lam)
        while True:
            new = task.evaluate(cone.project(momentum_point.metric.value - gradient / slope))
            step = new.metric.value - momentum_point.metric.value
            square = float(np.vdot(step, step))
            model = momentum_point.primal + float(np.vdot(gradient, step)) + 0.5 * slope * square
            if new.primal <= model + 1e-12 * abs(model):
                break
            slope *= 2.0
        slope = max(0.9 * slope, lam)
        moved = new.metric.value - state.metric.value
        if not moved.any():
            return
        if float(np.vdot(step, moved)) < 0.0:  # the momentum points uphill
            momentum = 1.0
        following = 0.5 * (1.0 + float(np.sqrt(1.0 + 4.0 * momentum**2)))
        lead = (momentum - 1.0) / following
        state, momentum = new, following
        momentum_point = state
        if lead > 0.0:
            momentum_point = task.evaluate(cone.project(state.metric.value + lead * moved))
        yield state


Operator = Callable[[Array], Array]


def newton(task: Task, state: Iterate) -> Iterator[Iterate]:
    """States of the method, each projected onto the cone; see the module's docstring."""
    cone, lam = task.cone, task.lam
    split = cone.split(state.v)
    gam = split.positive - state.v
    sigma = 10.0 * lam
    value = state.metric.value.copy()
    while True:
        scale = float(np.linalg.norm(value)) * lam + 1e-300
        for _ in range(30):
            gradient, hessian, level = _local(task, value, gam, sigma)
            size = float(np.linalg.norm(gradient))
            apart = float(np.linalg.norm(cone.split(gam - sigma * value).positive - gam))
            if size <= max(0.1 * lam / sigma * apart, 1e-13 * scale):
                break
            direction = _conjugate_gradients(
                hessian, -gradient, min(0.1, size / scale) * size, 4 * value.size
            )
            value, moved = _search(task, value, direction, gradient, gam, sigma, level)
            if not moved:
                break
        gam = cone.split(gam - sigma * value).positive
        sigma = min(3.0 * sigma, 1e6 * lam)
        new = task.evaluate(cone.project(value))
        yield new
        # The projected metric's own dual point may already be the better multiplier.
        other = cone.split(new.v)
        if np.linalg.norm(other.positive / lam - new.metric.value) < 1e-3 * np.linalg.norm(
            new.metric.value
        ):
            gam = other.positive - new.v


def _pieces(
    task: Task, value: Array
) -> tuple[float, Array, NDArray[np.intp], Array]:
    """Loss, ``sum alpha H``, margins' curvature and its terms at any symmetric `value`."""
    q = task.table.values(value.ravel())
    total, omega = task.losses(q)
    margins = task.terms.margins(q)
    curved = (margins < task.b) & (margins > task.b - task.smoothing)
    weight = np.broadcast_to(task.weight / np.maximum(task.smoothing, 1e-300), margins.shape)
    return total, omega, np.flatnonzero(curved), weight


def _local(
    task: Task, value: Array, gam: Array, sigma: float
) -> tuple[Array, Operator, float]:
    """Gradient, generalised Hessian and level of the augmented Lagrangian at `value`."""
    total, omega, curved, weight = _pieces(task, value)
    lam = task.lam
    inner = gam - sigma * value
    slope, derivative = _projection(inner)
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


def _projection(inner: Array) -> tuple[Array, Operator]:
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


def _search(
    task: Task, value: Array, direction: Array, gradient: Array, gam: Array, sigma: float,
    level: float,
) -> tuple[Array, bool]:
    """Halve the step until the augmented Lagrangian falls enough."""
    slope = float(np.vdot(direction, gradient))
    size = 1.0
    for _ in range(20):
        new = value + size * direction
        total, _ = task.losses(task.table.values(new.ravel()))
        hinge = task.cone.split(gam - sigma * new).positive
        fresh = total + float(np.vdot(0.5 * task.lam * new - task.minus_linear, new))
        fresh += 0.5 / sigma * float(np.vdot(hinge, hinge))
        if fresh <= level + 1e-4 * size * slope + 1e-14 * abs(level):
            return new, True
        size *= 0.5
    return value, False
