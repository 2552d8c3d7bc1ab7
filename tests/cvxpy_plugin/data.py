"""One small data set for the tests of the reducer, and the parts of problems made of it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from cvxscreen.cvxpy_plugin.recognise.standard import SAFE, version


class Data:
    """One small classification and regression data set with an intercept that is determined.

    `plain` data are for plain solves: CVXPY before 1.9.3 loses ``sum_squares(M)`` of a symmetric
    variable, but not of ``1.0 * M``.
    """

    def __init__(self, n: int = 36, d: int = 4, seed: int = 7, plain: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.d = n, d
        self.factor = 1.0 if plain and version() < SAFE else None
        self.X = rng.normal(size=(n, d))
        self.y = np.where(self.X @ rng.normal(size=d) + 0.8 * rng.normal(size=n) > 0, 1.0, -1.0)
        self.r = self.X @ rng.normal(size=d) + rng.normal(size=n)
        self.S = sp.random(n, 9, 0.3, random_state=3, format="csr")
        symmetric = rng.normal(size=(n, 3, 3))
        self.H = symmetric + symmetric.transpose(0, 2, 1)
        self.w, self.b = cp.Variable(d, name="w"), cp.Variable(name="b")
        self.xi, self.zeta = cp.Variable(n, name="xi"), cp.Variable(n, name="zeta")
        self.whole = cp.Variable(d, name="whole", integer=True)
        self.margin = cp.multiply(self.y, self.X @ self.w + self.b)
        self.residual = self.X @ self.w - self.r
        self.ridge = 0.5 * cp.sum_squares(self.w)
        self.hinge = cp.sum(cp.pos(1 - self.margin))

    def kept(self, matrix: Any) -> Any:
        """`matrix` so that its square is kept, whatever the version."""
        return matrix if self.factor is None else self.factor * matrix
