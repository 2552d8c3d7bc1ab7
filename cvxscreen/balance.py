"""Dual points that satisfy ``E' theta = -target``, E the unpenalised columns of the design."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem
from cvxscreen.rounding import UNIT

Array = NDArray[np.float64]

_NEWTON_STEPS = 60


def balance(
    problem: Problem, theta: Array, target: Array, margins: Array | None = None
) -> Array:
    """A point of the box near `theta` with ``E' theta = -target``, E the free columns.

    The projection in a metric that makes terms far from a kink of `margins` reluctant to move
    (their Fenchel-Young term pays for it): Newton's method on its m-dimensional dual, then a last
    correction on coordinates inside the box. Best effort: what is left over is charged to the gap.
    """
    losses, columns = problem.losses, problem.free_columns
    if columns.shape[1] == 0 or problem.n == 0:
        return theta
    shift = np.zeros(columns.shape[1])
    ease = np.ones(problem.n)
    if margins is not None:
        away = losses.kink_distance(margins)
        typical = 1e-3 * float(np.median(away)) + 1e-300
        ease = typical / (typical + away)

    def trial(tau: Array) -> Array:
        return np.clip(theta - ease * (columns @ tau), losses.lo, losses.hi)

    current = trial(shift)
    residual = columns.T @ current + target
    scale = np.abs(columns).T @ np.abs(current) + np.abs(target) + 1e-300
    for _ in range(_NEWTON_STEPS):
        if (np.abs(residual) <= 4.0 * UNIT * scale).all():
            break
        inside = (current > losses.lo) & (current < losses.hi)
        active = columns[inside]
        hessian = active.T @ (active * ease[inside, None])
        hessian += 1e-12 * np.diag(ease @ columns**2 + 1e-300)
        step = np.linalg.solve(hessian, residual)
        size, merit = 1.0, float(residual @ residual)
        for _ in range(40):
            candidate = trial(shift + size * step)
            left = columns.T @ candidate + target
            if float(left @ left) < merit:
                break
            size *= 0.5
        else:
            break
        shift, current, residual = shift + size * step, candidate, left
    return _polish(problem, current, target, ease)


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


def imbalance_charge(problem: Problem, theta: Array, residual: Array, reach: Array) -> float:
    """What an exactly feasible dual point close to `theta` can cost, or infinity if none is near.

    `residual` is ``E' theta + target`` with its rounding; some coordinates with room in the box
    take it up, and moving ``theta_i`` by ``s`` changes the gap by at most ``|s| reach_i``.
    """
    losses, columns = problem.losses, problem.free_columns
    if columns.shape[1] == 0 or not residual.any():
        return 0.0
    room = np.minimum(theta - losses.lo, losses.hi - theta) * np.abs(columns).max(axis=1)
    best = np.argsort(-room)[: 4 * columns.shape[1]]
    best = best[room[best] > 0]
    if not len(best):
        return float("inf")
    block = columns[best].T
    rank_values = np.linalg.svd(block, compute_uv=False)
    if len(rank_values) < len(residual) or rank_values[-1] <= 1e-8 * rank_values[0]:
        return float("inf")
    bound = float(np.linalg.norm(residual)) / float(rank_values[-1]) * (1.0 + 1e-6)
    space = np.minimum(theta - losses.lo, losses.hi - theta)[best]
    if (space < bound).any():
        return float("inf")
    return bound * float(np.sum(reach[best]))
