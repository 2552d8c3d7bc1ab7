"""First-order methods for metric learning: projected gradients with two kinds of steps.

Each is a generator of evaluated states, so that whoever drives it can look at a gap, shrink the
task and go on from the last state.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cvxscreen.solvers.metric_task import State, Task

Array = NDArray[np.float64]


def first_step(task: Task, state: State) -> float:
    """A cautious first step: as long as the metric, or as the one the forces would make alone."""
    gradient = float(np.linalg.norm(state.gradient(task.lam)))
    target = max(
        float(np.linalg.norm(state.force)) / task.lam, float(np.linalg.norm(state.metric.value))
    )
    return 1.0 / max(task.lam, gradient / max(target, 1e-300))


def projected_gradient(
    task: Task, state: State, memory: dict[str, float] | None = None
) -> Iterator[State]:
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
        bent = fresh - gradient
        inner = float(np.vdot(moved, bent))
        if not moved.any():
            return
        if inner > 0.0:
            eta = 0.5 * (inner / float(np.vdot(bent, bent)) + float(np.vdot(moved, moved)) / inner)
        if new.primal < best.primal:
            best = new
        elif new.primal > best.primal + 10.0 * (abs(best.primal) + 1e-300):
            new, fresh, caution = best, best.gradient(lam), 0.1 * caution
            eta = caution * first_step(task, best)
        state, gradient = new, fresh
        memory["step"] = eta
        yield state


def accelerated(task: Task, state: State) -> Iterator[State]:
    """Accelerated projected gradient with backtracking and restarts (O'Donoghue & Candes 2015)."""
    cone, lam = task.cone, task.lam
    slope = 1.0 / first_step(task, state)
    ahead, momentum = state, 1.0
    while True:
        gradient = ahead.gradient(lam)
        while True:
            new = task.evaluate(cone.project(ahead.metric.value - gradient / slope))
            step = new.metric.value - ahead.metric.value
            square = float(np.vdot(step, step))
            model = ahead.primal + float(np.vdot(gradient, step)) + 0.5 * slope * square
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
        ahead = state
        if lead > 0.0:
            ahead = task.evaluate(cone.project(state.metric.value + lead * moved))
        yield state
