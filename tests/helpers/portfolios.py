"""The conditional value at risk of a portfolio, as a problem with side constraints."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows


def portfolio(n: int = 200, d: int = 8, ridge: float = 0.1, seed: int = 0) -> Problem:
    """CVaR of a portfolio on the simplex; the threshold is the last coordinate."""
    rng = np.random.default_rng(seed)
    returns = 0.01 + 0.1 * rng.standard_t(4, (n, d))
    losses = Losses(
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, 1.0 / (0.1 * n))
    )
    F = sp.vstack([
        sp.csr_matrix(np.r_[np.ones(d), 0.0]),
        sp.hstack([sp.identity(d), sp.csr_matrix((d, 1))]),
    ])
    side = SideConstraints(F, np.r_[-1.0, np.zeros(d)], (("zero", 1), ("nonneg", d)))
    diagonal = np.r_[np.full(d, ridge), 0.0]
    return Problem(
        Rows(np.c_[-returns, -np.ones(n)]), losses, Quadratic(diagonal),
        np.r_[np.zeros(d), 1.0], side=side,
    )
