"""The joint problem of rASO as a semidefinite program, for any conic solver of CVXPY."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from cvxscreen.losses import Losses
from cvxscreen.multitask.problem import MultiTask


def joint_sdp(problem: MultiTask) -> Any:
    """``min losses + c tr T`` over ``[[eta I + M, U], [U', T]] >= 0, 0 <= M <= I, tr M = h``.

    Parameters
    ----------
    problem : MultiTask

    Returns
    -------
    cvxpy.Problem
        With variables named ``U`` (d, m), ``b`` (m,), ``M`` (d, d) and ``T`` (m, m).
    """
    d, m, f = problem.d, problem.m, problem.losses
    U, b = cp.Variable((d, m), name="U"), cp.Variable(m, name="b")
    M = cp.Variable((d, d), symmetric=True, name="M")
    T = cp.Variable((m, m), symmetric=True, name="T")
    p = cp.hstack([X @ U[:, k] + b[k] for k, X in enumerate(problem.X)])
    eye = np.eye(d)
    block = cp.bmat([[problem.eta * eye + M, U], [U.T, T]])
    constraints = [block >> 0, M >> 0, eye - M >> 0, cp.trace(M) == problem.h]
    losses, more = _joint_losses(p - f.b, f)
    constraints += more
    objective = cp.sum(losses) + problem.c * cp.trace(T)
    return cp.Problem(cp.Minimize(objective), constraints)


def _joint_losses(z: Any, f: Losses) -> tuple[Any, list[Any]]:
    """The losses of the distances ``z`` from their centres, and constraints they need."""
    n = len(f)
    if f.q.any():
        # f(z) = min over r, w, |w| <= e of r^2 / 2q + the lines beyond, z = r + w + the rest.
        r, extra = cp.Variable(n, name="r"), []
        rest = z - r
        for bounded, side in ((np.isfinite(f.lo), -1.0), (np.isfinite(f.hi), 1.0)):
            if not bounded.all():  # no line on this side: the parabola never ends
                extra.append(side * rest[~bounded] <= f.e[~bounded])
        curve = cp.multiply(0.5 / np.where(f.q > 0, f.q, 1.0), cp.square(r))
        if (f.q == 0).any():
            extra.append(r[f.q == 0] == 0)
    else:
        rest, extra, curve = z, [], 0.0
    high = np.where(np.isfinite(f.hi), f.hi, 0.0)
    low = np.where(np.isfinite(f.lo), -f.lo, 0.0)
    lines = []
    if high.any():
        lines.append(cp.multiply(high, cp.pos(rest - f.e)))
    if low.any():
        lines.append(cp.multiply(low, cp.pos(-rest - f.e)))
    return sum(lines, curve), extra
