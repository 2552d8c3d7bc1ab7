"""The gap where an L1 norm alone holds the coordinates, by formulas of its own.

Serves the certificate only. Without a quadratic term the dual has the constraints
``|A_j' theta| <= kappa_j``; the largest share of theta that satisfies them for certain is judged::

    P(x) - D(s theta) = sum_i (f_i(t_i) + f_i*(s theta_i) - s theta_i t_i)
                        + sum_j (kappa_j |x_j| + s x_j A_j' theta)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate_terms import EPS, endless_above, gaps_above
from cvxscreen.problem import Problem

Array = NDArray[np.float64]


def held_parts(
    problem: Problem, x: Array, theta: Array, t: Array, values: Array, force: Array
) -> float:
    """The gap of `x` and the feasible share of `theta`, rounding included.

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
        Within the boxes.
    t, values : array, shape (n,)
        ``A x`` and the terms' values, as computed.
    force : array, shape (d,)
        ``A' theta`` as computed.
    """
    kappa, f = problem.penalty.kappa, problem.losses  # type: ignore[union-attr]
    size = float(np.sqrt(np.sum(theta * theta))) * (1.0 + 4 * (problem.n + 8) * EPS)
    off = (problem.design.adjoint_factor + 8.0 * EPS) * size * problem.column_sizes
    room = kappa - off
    if not (room > 0).all():
        return float("inf")  # rounding hides whether any multiple of theta is feasible
    beyond = float(np.max(np.abs(force) / room, initial=0.0)) * (1.0 + 8.0 * EPS)
    share = 1.0 if beyond <= 1.0 else (1.0 - 8.0 * EPS) / beyond
    slopes = share * theta
    noise = problem.design.forward_error(x, problem.sizes)
    fy = gaps_above(t, slopes, noise, values, f) + endless_above(
        values, noise, f.q, f.lo, f.hi
    )
    rest = np.abs(x) * (kappa + share * np.sign(x) * force + off + 4.0 * EPS * kappa)
    return float(fy.sum() + np.maximum(rest, 0.0).sum()) * (1 + (problem.n + problem.d) * EPS)
