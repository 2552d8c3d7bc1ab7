"""Problems with a convex part that is no sum of losses, for the tests of the reducer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from cvxscreen.cvxpy_plugin.recognise.standard import version


class Data:
    """Two classes, four classes, and a regression."""

    def __init__(self, n: int = 50, d: int = 4, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.d, self.cost = n, d, 50 / n
        self.X = rng.normal(size=(n, d))
        self.y = np.where(self.X @ rng.normal(size=d) + 0.6 * rng.normal(size=n) > 0, 1.0, -1.0)
        self.r = self.X @ rng.normal(size=d) + rng.normal(size=n)
        self.w, self.b = cp.Variable(d, name="w"), cp.Variable(name="b")
        self.xi, self.t = cp.Variable(n, name="xi"), cp.Variable(n, name="t")
        self.plain = cp.multiply(self.y, self.X @ self.w)
        self.margin = self.plain + self.b * self.y
        self.ridge = 0.5 * cp.sum_squares(self.w)
        self.hinge = cp.sum(cp.pos(1 - self.plain))
        label = rng.integers(0, 4, n)
        self.Y = np.eye(4)[label]
        self.Z = 2.0 * rng.normal(size=(4, d))[label] + 1.5 * rng.normal(size=(n, d))
        self.W = cp.Variable((d, 4), name="W")
        self.square = 0.5 * cp.sum_squares(self.W)
        self.scores = self.Z @ self.W
        self.own = cp.sum(cp.multiply(self.Y, self.scores), axis=1)
        self.rows = [
            self.t >= self.scores[:, k] + (1 - self.Y[:, k]) - self.own for k in range(4)
        ]


def tall(vector: Any) -> Any:
    """`vector`, as a column where CVXPY has no gradient of `sum_largest` of anything else."""
    return cp.reshape(vector, (vector.size, 1), order="F") if version() < (1, 9) else vector


Maker = Callable[[Data], tuple[Any, list[Any]]]

VERBATIM: dict[str, Maker] = {
    "norm": lambda s: (s.ridge + s.hinge + 3 * cp.norm(s.w), []),
    "norm_at_its_kink": lambda s: (s.ridge + s.hinge + 1e4 * cp.norm(s.w), []),
    "logistic": lambda s: (s.ridge + s.hinge + cp.sum(cp.logistic(-s.X[:9] @ s.w)), []),
    "logistic_intercept": lambda s: (
        s.ridge + cp.sum(cp.pos(1 - s.margin)) + cp.sum(cp.logistic(-s.margin[:9])), []),
    "sum_largest": lambda s: (s.ridge + s.hinge + cp.sum_largest(tall(-s.plain), 5), []),
    "quad_over_lin": lambda s: (
        s.ridge + s.hinge + cp.quad_over_lin(s.X[:9] @ s.w - 1, 2 + 0.1 * cp.sum(s.w)), []),
    "exponential": lambda s: (
        s.ridge + cp.sum(s.xi) + cp.sum(cp.exp(0.3 * s.w)),
        [s.margin >= 1 - s.xi, s.xi >= 0, s.w <= 0.5]),
    "maximise": lambda s: (
        cp.Maximize(-(s.ridge + s.hinge) - 2 * cp.norm(s.w)), [s.w[0] == 0.1]),
    "factors": lambda s: (s.ridge + 2 * (s.hinge / 3 + cp.log_sum_exp(s.w)), []),
    "nuclear": lambda s: (
        s.square + cp.sum(cp.pos(1 - cp.multiply(2 * s.Y - 1, s.scores))) + 9 * cp.normNuc(s.W),
        []),
    "parameter": lambda s: (
        s.ridge + s.hinge + cp.Parameter(nonneg=True, value=3.0) * cp.norm(s.w), []),
}

MAXIMA: dict[str, Maker] = {
    "crammer_singer": lambda s: (
        s.square + cp.sum(cp.max(s.scores + 1 - s.Y, axis=1) - s.own), []),
    "slack": lambda s: (s.square + 0.3 * s.cost * cp.sum(s.t), s.rows),
    "slack_sum_fixed": lambda s: (s.square + cp.sum(s.t), [*s.rows, cp.sum(s.W, axis=1) == 0]),
    "python_loop": lambda s: (s.square + sum(
        cp.max(s.scores[i] + 1 - s.Y[i]) - s.own[i] for i in range(12)), []),
    "three_rows": lambda s: (
        s.ridge + s.cost * cp.sum(cp.maximum(s.X @ s.w, s.r - s.X[::-1] @ s.w, 0)), []),
    "largest_entry": lambda s: (s.ridge + s.hinge + 4 * cp.norm_inf(s.w), []),
}

ALL = {**VERBATIM, **MAXIMA}
BOTH = {**ALL, "both": lambda s: (
    ALL["three_rows"](s)[0] + cp.sum(cp.pos(1 - s.margin)) + cp.norm(s.w), [])}


def problem_of(name: str, data: Data | None = None) -> Any:
    objective, constraints = BOTH[name](Data() if data is None else data)
    least = objective if isinstance(objective, cp.Maximize) else cp.Minimize(objective)
    return cp.Problem(least, constraints)
