"""Data and variables of the problems that are written in a Python loop."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from cvxscreen.cvxpy_plugin.recognise.standard import SAFE, version


class Looped:
    """A data set and fresh variables.

    With `plain` the square of the metric is spelled so that CVXPY's own solve is right on versions
    that drop it for a symmetric variable.
    """

    SEED = 0

    def __init__(self, n: int = 60, d: int = 3, plain: bool = False) -> None:
        rng = np.random.default_rng(self.SEED)
        self.n, self.d = n, d
        self.X = rng.normal(size=(n, d))
        self.y = np.where(self.X.sum(axis=1) + rng.normal(size=n) > 0, 1.0, -1.0)
        self.r = self.X.sum(axis=1) + rng.normal(size=n)
        half = rng.normal(size=(n, d, d))
        self.H = half + half.transpose(0, 2, 1)
        self.w, self.b = cp.Variable(d, name="w"), cp.Variable(name="b")
        self.xi, self.e = cp.Variable(n, name="xi"), cp.Variable(n, name="e")
        self.M = cp.Variable((d, d), PSD=True, name="M")
        self.ridge = 0.5 * cp.sum_squares(self.w)
        kept = 1.0 * self.M if plain and version() < SAFE else self.M
        self.metric = 0.5 * n * cp.sum_squares(kept)

    def margin(self, i: int) -> Any:
        """Of sample i."""
        return self.y[i] * (self.X[i] @ self.w + self.b)
