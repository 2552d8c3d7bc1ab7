"""Dual feasibility where an L1 norm alone holds the coordinates.

Without a quadratic term ``v = -A' theta`` itself must lie in the domain of ``h*``: the constraint
``|A_j' theta| <= kappa_j``. The boxes of the slopes contain 0, so any theta is made feasible by a
factor (Ndiaye et al. 2017, (12)), and feasible in exact arithmetic by a factor rounded down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]


def held_share(
    problem: Problem, theta: Array, force: Array, noise: float = 0.0
) -> tuple[float, Array]:
    """The share of `theta` that is feasible for certain, and what its pulls may be off by.

    Parameters
    ----------
    theta : array, shape (n,)
        In their boxes.
    force : array, shape (d,)
        ``A' theta`` as computed.
    noise : float
        Its relative error beyond that of one pass.

    Returns
    -------
    share : float
        At most 1; ``share * theta``, rounded, satisfies ``|A_j' theta| <= kappa_j``.
    blur : array, shape (d,)
        Bound of the error of ``share * force`` as the pulls of ``share * theta``, both rounded.

    Notes
    -----
    A pass is off by at most ``factor sum_i |a_ij theta_i| <= factor ||A_j|| ||theta||``; rounding
    ``share * theta`` adds a unit of that, rounding ``share * force`` a unit of the pull.
    """
    penalty: L1 = problem.penalty  # type: ignore[assignment]
    reach = up(float(np.linalg.norm(theta)), problem.n + 8)
    reach *= 1.0 + gamma(problem.n + 8)  # of the columns' norms
    blur = (problem.design.adjoint_factor + noise + gamma(8)) * reach * problem.column_sizes
    largest = float(np.max((np.abs(force) + blur) / penalty.kappa, initial=0.0))
    if largest * (1.0 + 8.0 * UNIT) <= 1.0:
        return 1.0, blur
    share = (1.0 - 16.0 * UNIT) / largest
    return share, share * blur * (1.0 + 8.0 * UNIT)
