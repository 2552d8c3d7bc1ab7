"""Upper bounds of the norms of all samples in one metric after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]

LIGHT = 1.2
"""Directions within this factor of the least weight are not told apart."""
STALE = 1.3
"""Row norms of an earlier metric are stretched; beyond this factor they are computed anew."""


class RowNorms:
    """The rows around their task's mean with their norms.

    Attributes
    ----------
    rows : list of arrays
    means : array, shape (d, m)
        What was subtracted.
    plain, sizes : array, shape (n,)
        Upper bounds of the Euclidean norms of the samples and of `rows`.
    norms : array, shape (n,)
        Upper bounds of the norms of `rows` in the metric `base`.
    """

    def __init__(self, problem: MultiTask) -> None:
        self.problem = problem
        means = [X.mean(axis=0) for X in problem.X]
        plain = [np.sqrt(np.einsum("ij,ij->i", X, X)) for X in problem.X]
        # Rows about as long as their distance from the mean are left where they are.
        for k, lengths in enumerate(plain):
            if means[k] @ means[k] <= 0.05 * float(lengths @ lengths) / len(lengths):
                means[k] = np.zeros(problem.d)
        self.rows = [
            X - mean if mean.any() else X for X, mean in zip(problem.X, means, strict=True)
        ]
        moved = [
            np.sqrt(np.einsum("ij,ij->i", X, X)) if mean.any() else lengths
            for X, mean, lengths in zip(self.rows, means, plain, strict=True)
        ]
        wide = up(1.0, problem.d + 8)
        self.plain = np.concatenate(plain) * wide
        # Subtracting the mean is rounded too.
        self.sizes = np.concatenate(moved) * wide + 4.0 * UNIT * self.plain
        shifts = np.repeat([float(np.linalg.norm(mean)) for mean in means], problem.sizes)
        self.sizes += 4.0 * UNIT * shifts
        self.means = np.column_stack(means)
        self.base: Metric | None = None
        self.norms = np.zeros(0)
        self.stretched: tuple[Metric, float] | None = None

    def stretch(self, metric: Metric) -> float:
        """A factor from the stored norms to those of `metric`, which are renewed when stale."""
        d = self.problem.d
        if self.stretched is not None and self.stretched[0] is metric:
            return self.stretched[1]
        if self.base is not None:
            root = (self.base.P * (self.base.eta + self.base.g) ** -0.5).T
            ratio = 2.0 * metric.c * (root @ metric.B @ root.T)
            largest = 1.0 + float(np.linalg.norm(ratio - np.eye(d)))  # at least the top eigenvalue
            if largest > STALE**2:
                largest = float(np.linalg.eigvalsh(ratio).max())
            factor = float(np.sqrt(max(largest, 0.0)))
            factor *= 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)
            if factor <= STALE:
                self.stretched = metric, factor
                return factor
        self.base = metric
        # Directions of little weight all get the largest weight among them.
        weights = (metric.eta + metric.g) / (2.0 * metric.c)
        light = weights <= LIGHT * weights.min()
        rest = float(weights[light].max())
        heavy = np.flatnonzero(~light)
        turn = metric.P[:, heavy] * np.sqrt(weights[heavy] - rest)
        turned = np.concatenate([X @ turn for X in self.rows])
        squares = np.einsum("ij,ij->i", turned, turned) + rest * self.sizes**2
        error = 8.0 * gamma(4 * d + 16) * np.sqrt(metric.top()) * self.sizes
        self.norms = up(1.0, d + 8) * np.sqrt(squares) + error
        self.stretched = metric, 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)
        return self.stretched[1]
