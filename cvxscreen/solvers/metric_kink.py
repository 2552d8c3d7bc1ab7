"""The plain hinge: its corner smoothed ever more, then the terms at the kink solved for.

At an optimum of the plain hinge some terms sit exactly at the kink with a dual variable strictly
between 0 and w. Smoothing finds which they may be; for these few the dual is maximised as a box
constrained problem with all others fixed at 0 or w, and the answer's gap is taken on all terms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from cvxscreen.rounding import up
from cvxscreen.solvers.metric_cone import Metric
from cvxscreen.solvers.metric_run import Run
from cvxscreen.solvers.metric_task import Sphere, State, Task

Array = NDArray[np.float64]

WIDTHS = (5e-2, 1e-2, 2e-3, 4e-4, 8e-5, 1e-5, 1e-6)


def solve_kinked(task: Task, begin: Metric, run: Run) -> tuple[Metric, Run, Sphere, Array]:
    """The metric, the record, a sphere (of the smoothed task) and slopes ``theta = -alpha``."""
    scale = float(np.abs(task.b).max(initial=0.0)) or 1.0
    best: tuple[float, Metric, Array, Sphere] | None = None
    metric, goal = begin, run.tol
    for width in WIDTHS:
        smooth = replace(task, bend=np.where(task.bend == 0.0, width * scale, task.bend))
        run.tol = min(1e-3, max(0.02 * width, 0.1 * goal))
        state, sphere = run.solve(smooth, metric)
        metric = state.metric
        alpha = _smoothed_alpha(smooth, state)
        for _ in range(3):
            candidate = (*_improve(task, alpha, metric, 2.0 * width * scale), sphere)
            gap, found, alpha, _ = candidate
            if best is None or gap < best[0]:
                best = candidate
            if best[0] <= goal * abs(_primal(task, best[1])):
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


def _smoothed_alpha(smooth: Task, state: State) -> Array:
    margins = smooth.terms.margins(smooth.pair_values(state.metric))
    return np.asarray(smooth.weight * np.clip((smooth.b - margins) / smooth.bend, 0.0, 1.0))


def _primal(task: Task, metric: Metric) -> float:
    return task.evaluate(metric).primal


def _improve(
    task: Task, alpha: Array, metric: Metric, reach: float
) -> tuple[float, Metric, Array]:
    """The gap on all terms after the dual is maximised over those near their kink."""
    margins = task.terms.margins(task.pair_values(metric))
    z = task.b - margins
    weight = np.broadcast_to(task.weight, z.shape)
    near = np.abs(z) <= reach
    alpha = np.where(near, alpha, np.where(z > 0, weight, 0.0))
    chosen = np.flatnonzero(near)
    fixed = np.where(near, 0.0, alpha)
    push = _force(task, fixed) + task.push
    terms, used = task.terms.take(chosen).compact()
    table, lam = task.table.take(used), task.lam
    level = np.broadcast_to(task.b, z.shape)[chosen]

    def negative_dual(values: Array) -> tuple[float, Array]:
        omega = terms.scatter(values)
        omega[-1] = 0.0
        dual = task.cone.project((push + table.pull(omega)) / lam).value
        slope = level - terms.margins(table.values(dual.ravel()))
        return 0.5 * lam * float(np.vdot(dual, dual)) - float(level @ values), -slope

    if len(chosen):
        top = weight[chosen]
        found = minimize(
            negative_dual, np.clip(alpha[chosen], 0.0, top), jac=True, method="L-BFGS-B",
            bounds=np.column_stack([np.zeros_like(top), top]),
            options={"maxiter": 500, "maxcor": 30, "ftol": 1e-16, "gtol": 1e-12},
        )
        alpha[chosen] = np.clip(found.x, 0.0, top)
    dual = task.cone.project((_force(task, alpha) + task.push) / lam)
    gap = dual_gap(task, dual, alpha)
    own = dual_gap(task, metric, alpha)
    return (gap, dual, alpha) if gap <= own else (own, metric, alpha)


def _force(task: Task, alpha: Array) -> Array:
    omega = task.terms.scatter(alpha)
    omega[-1] = 0.0
    return task.table.pull(omega)


def dual_gap(task: Task, metric: Metric, alpha: Array) -> float:
    """The duality gap of a metric and any ``0 <= alpha <= w``, as a sum of non-negative terms."""
    margins = task.terms.margins(task.pair_values(metric))
    z, p = task.b - margins, alpha / task.weight
    bend = np.broadcast_to(task.bend, z.shape)
    curve = np.where(bend > 0, bend, 1.0)
    tau = np.where(bend > 0, np.clip(z / curve, 0.0, 1.0), z > 0)
    fy = task.weight * (0.5 * bend * (p - tau) ** 2 + (tau - p) * (z - bend * tau))
    split = task.cone.split(_force(task, alpha) + task.push)
    step = metric.value - split.positive / task.lam
    return up(
        float(np.maximum(fy, 0.0).sum()) + 0.5 * task.lam * float(np.vdot(step, step))
        + task.cone.inner_above(metric, split.lift)
    )
