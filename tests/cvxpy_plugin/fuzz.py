"""Random problems through CVXPY: ``method="screen"`` gives what a plain solve gives.

    python tests/cvxpy_plugin/fuzz.py OUT.jsonl --problems 1000 --first 5000

Eight grammars: under a squared norm and other regularisers (`Curved`), losses with kinks, order
statistics, budgets and rows of inequalities that nothing curved holds (`Flat`; data may be integers
(degenerate vertices), have duplicated rows, columns of zeros or of very different scales; some
problems are infeasible or unbounded), sums of the largest losses (`Largest`), norms and squares of
residuals (`Lengths`), curved losses below a level (`Levels`), far more columns than rows that an L1
norm or bounds hold at 0 (`Wide`), several outputs, with norms of their residuals (`Outputs`), and
several losses that share a level (`Budgets`). Compared are the exception's type, the status, the
value, the objective at the variables that were written, feasibility, the variables where they are
unique, and the dual values, by the lower bound that they prove. One line a problem is appended to
OUT.jsonl; a second call goes on where the first one ended.
The exit status is 0 only if nothing differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import cvxpy as cp  # noqa: E402
import numpy as np  # noqa: E402

from cvxscreen import cvxpy_plugin  # noqa: E402
from cvxscreen.cvxpy_plugin import request  # noqa: E402

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
DUAL = 1e-5
"""What the bound that dual values prove may lack, relative to 1 and the value: solvers of CVXPY
leave some 1e-8 of a multiplier at their default tolerances, times the variables' size."""


class Drawn:
    """What both grammars have: data, margins, residuals, and a problem made of parts."""

    SHARES: tuple[float, float]
    """Of the problems that are screened: more than the first, at most the second."""
    TOLERANCE: float
    FLOOR: float
    """What a value is compared with: its own size and this."""

    rng: np.random.Generator
    constraints: list[Any]
    w: cp.Variable

    def pick(self, options: list[Callable[[], Any]]) -> Any:
        return options[int(self.rng.integers(len(options)))]()

    def objective(self) -> Any:
        raise NotImplementedError

    def problem(self) -> cp.Problem:
        total = self.objective()
        if self.rng.random() < 0.2:
            return cp.Problem(cp.Maximize(-total), self.constraints)
        return cp.Problem(cp.Minimize(total), self.constraints)


class Curved(Drawn):
    """A regulariser, one or two losses in random spellings, perhaps something else beside them."""

    SHARES = (0.3, 0.9)
    TOLERANCE, FLOOR = 3e-6, 1.0

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.n, self.d = int(rng.integers(6, 40)), int(rng.integers(1, 5))
        self.X = rng.standard_normal((self.n, self.d)) * 10.0 ** rng.uniform(-1, 1)
        self.y = np.where(rng.random(self.n) < 0.5, -1.0, 1.0)
        self.r = rng.standard_normal(self.n)
        self.w, self.b = cp.Variable(self.d, name="w"), cp.Variable(name="b")
        self.constraints = []
        fitted = self.X @ self.w + (self.b if rng.random() < 0.4 else 0)
        self.margin, self.residual = cp.multiply(self.y, fitted), fitted - self.r

    def weight(self) -> Any:
        value = float(10.0 ** self.rng.uniform(-1.5, 1))
        return self.pick([lambda: value, lambda: cp.Parameter(nonneg=True, value=value)])

    def weigh(self, vector: Any) -> Any:
        """A weighted sum of non-negative entries."""
        counts = self.rng.integers(0, 3, self.n).astype(float)
        return self.pick([
            lambda: cp.sum(vector),
            lambda: cp.mean(vector),
            lambda: counts @ vector,
            lambda: cp.norm1(vector),
            lambda: cp.sum(vector[: self.n // 2]) + 2 * cp.sum(vector[self.n // 2 :]),
        ])

    def regulariser(self) -> Any:
        w, A = self.w, self.rng.standard_normal((self.d, self.d))
        return self.pick([
            lambda: 0.5 * cp.sum_squares(w),
            lambda: cp.norm(w, 2) ** 2,
            lambda: cp.square(cp.norm(w)),
            lambda: cp.quad_form(w, A @ A.T + np.eye(self.d)),
            lambda: cp.sum_squares(w - 1) + w[0],
            lambda: cp.sum(cp.square(w)) / 3,
            lambda: cp.sum_squares(A @ w) + 0.1 * cp.sum_squares(w),
            lambda: cp.norm(w, 2),
            lambda: cp.norm1(w),
        ])

    def loss(self) -> Any:
        m, e, n = self.margin, self.residual, self.n
        return self.pick([
            lambda: self.weigh(cp.pos(1 - m)),
            lambda: self.weigh(cp.maximum(0, 1 - m)),
            lambda: self.slack([m], 1.0),
            lambda: cp.sum(cp.max(cp.vstack([1 - m, np.zeros(n)]), axis=0)),
            lambda: sum(cp.pos(1 - m[i]) for i in range(min(n, 8))),
            lambda: cp.sum_squares(cp.pos(1 - m)),
            lambda: self.weigh(cp.abs(e)),
            lambda: self.weigh(cp.maximum(0.3 * e, -0.7 * e)),
            lambda: self.weigh(cp.pos(cp.abs(e) - 0.2)),
            lambda: cp.sum(cp.maximum(0, e - 0.3, -e - 0.1)),
            lambda: self.slack([e, -e], -0.2),
            lambda: cp.sum(cp.huber(e, 0.5)),
            lambda: 0.3 * cp.sum(cp.pos(e)) + 0.6 * cp.sum(cp.neg(e)),
            lambda: cp.sum(cp.maximum(e, self.X[::-1] @ self.w)),
            lambda: cp.sum(cp.maximum(e, self.X[::-1] @ self.w, 0)),
            lambda: self.weigh(cp.max(cp.vstack([e, 2 * m, 1 - self.X @ self.w, -e]), axis=0)),
            lambda: cp.sum(cp.logistic(-m)),
            lambda: cp.sum_largest(cp.abs(e), 3),
        ])

    def slack(self, arguments: list[Any], target: float) -> Any:
        xi = cp.Variable(self.n, name="xi", nonneg=bool(self.rng.random() < 0.3))
        self.constraints += [argument + xi >= target for argument in arguments]
        if not xi.attributes["nonneg"]:
            self.constraints.append(xi >= self.pick([lambda: 0.0, lambda: 0.0, lambda: 0.1]))
        return self.pick([lambda: cp.sum(xi), lambda: cp.sum_squares(xi)])

    def more(self) -> Any:
        w, e = self.w, self.residual
        return self.pick([
            lambda: 0.0, lambda: 0.0, lambda: 0.0,
            lambda: 0.3 * cp.norm1(w),
            lambda: 0.1 * cp.sum_squares(e),
            lambda: cp.sum(w) + 2.0,
            lambda: 0.2 * cp.norm(w),
            lambda: 0.1 * cp.sum(cp.exp(0.1 * w)),
            lambda: 2 * (cp.log_sum_exp(w) / 3 - (1 - 0.2 * cp.norm_inf(w))),
            self.epigraph,
        ])

    def epigraph(self) -> Any:
        """An L1 norm by its bounds."""
        t = cp.Variable(self.d, name="t")
        self.constraints += [-t <= self.w, self.w <= t]
        return 0.5 * cp.sum(t)

    def constrain(self) -> None:
        w, d = self.w, self.d
        self.constraints += self.pick([
            list, list, list,
            lambda: [w <= 0.3],
            lambda: [w >= -0.5, w <= 0.5],
            lambda: [cp.sum(w) == 0.2],
            lambda: [cp.norm(w) <= 0.7],
            lambda: [cp.norm1(w) <= 0.6],
            lambda: [cp.abs(w) <= 0.4],
            lambda: [w[0] == 0.1, w >= -0.2],
            lambda: [cp.sum_squares(w) <= 0.4],
            lambda: [cp.sum(w) >= 1, w <= 0.1 / d],  # infeasible
        ])

    def objective(self) -> Any:
        total = self.regulariser() + self.weight() * self.loss()
        if self.rng.random() < 0.3:
            total = total + self.weight() * self.loss()
        total = total + self.more()
        self.constrain()
        return total


class Flat(Drawn):
    """One or two losses without curvature, perhaps a norm, perhaps constraints."""

    SHARES = (0.4, 1.0)
    TOLERANCE, FLOOR = 2e-6, 1e-3
    SMALL, LEAST, MOST = 0.5, 450, 1500
    """Share of problems of few terms; how many others have. From 450 on they are treated as large.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng([seed, 47])
        small = rng.random() < self.SMALL
        self.n = int(rng.integers(8, 60) if small else rng.integers(self.LEAST, self.MOST))
        self.d = int(rng.integers(1, 7))
        self.X, self.r = self.data(), rng.standard_normal(self.n)
        if rng.random() < 0.3:
            self.r = np.round(self.r)
        self.y = np.where(self.X[:, 0] + rng.standard_normal(self.n) > 0, 1.0, -1.0)
        self.w, self.b = cp.Variable(self.d, name="w"), cp.Variable(name="b")
        self.constraints = []
        fitted = self.X @ self.w + (self.b if rng.random() < 0.5 else 0)
        self.margin, self.residual = cp.multiply(self.y, fitted), fitted - self.r

    def data(self) -> np.ndarray:
        rng, shape = self.rng, (self.n, self.d)

        def repeated() -> np.ndarray:
            X = rng.standard_normal(shape)
            X[self.n // 2 :] = X[: self.n - self.n // 2]
            return X

        def holes() -> np.ndarray:
            X = rng.standard_normal(shape)
            X[:, int(rng.integers(self.d))] = 0.0
            return X

        def plain() -> np.ndarray:
            return rng.standard_normal(shape)

        return np.asarray(self.pick([
            plain, plain, repeated, holes,
            lambda: rng.integers(-2, 3, shape).astype(float),
            lambda: rng.standard_normal(shape) * 10.0 ** rng.uniform(-1.5, 1.5, self.d),
        ]))

    def loss(self) -> Any:
        e, m, n = self.residual, self.margin, self.n
        tau = float(self.rng.uniform(0.05, 0.95))
        few = int(self.rng.integers(1, max(2, n // 3)))
        weights = self.rng.integers(0, 3, n).astype(float)

        def slacks() -> Any:
            xi = cp.Variable(n)
            self.constraints += [xi >= 1 - m, xi >= 0]
            return cp.sum(xi) / n

        def split() -> Any:
            up, down = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
            self.constraints.append(e == up - down)
            return (tau * cp.sum(up) + (1 - tau) * cp.sum(down)) / n

        return self.pick([
            lambda: cp.sum(cp.maximum(tau * e, (tau - 1) * e)) / n,
            lambda: cp.norm1(e) / n,
            lambda: weights @ cp.abs(e) / n,
            lambda: cp.sum(cp.huber(e, 0.5)) / n,
            lambda: cp.sum(cp.pos(cp.abs(e) - 0.2)) / n,
            lambda: cp.sum(cp.pos(1 - m)) / n,
            lambda: cp.sum_squares(cp.pos(1 - m)) / n,
            slacks, split,
            lambda: cp.cvar(e, tau),
            lambda: cp.sum_largest(-m, few) / few,
            lambda: cp.max(e),
            lambda: cp.norm_inf(e),
            lambda: cp.sum_squares(e) / n,
        ])

    def norm(self) -> Any:
        w, d = self.w, self.d
        weight = float(10.0 ** self.rng.uniform(-2, 0.5))
        return self.pick([
            lambda: 0.0, lambda: 0.0,
            lambda: weight * cp.norm1(w),
            lambda: weight * cp.norm(w),
            lambda: weight * cp.norm_inf(w),
            lambda: weight * cp.sum_squares(cp.diff(w)) if d > 1 else 0.0,
            lambda: weight * cp.square(cp.sum(w)),
            lambda: weight * cp.sum(w),
            lambda: weight * (cp.norm(w[: d // 2 + 1]) + cp.norm1(w[d // 2 :])),
        ])

    def constrain(self) -> None:
        w, d, n, rng = self.w, self.d, self.n, self.rng
        A = rng.standard_normal((n, d))
        few = int(rng.integers(1, max(2, n // 3)))
        self.constraints += self.pick([
            list, list, list,
            lambda: [cp.sum(w) == 1, w >= 0],
            lambda: [w >= -0.3, w <= 0.5],
            lambda: [cp.norm1(w) <= 0.7],
            lambda: [cp.norm(w) <= 0.7],
            lambda: [A @ w <= 1 + rng.random(n)],
            lambda: [A @ w <= -1, A @ w >= 1],  # infeasible
            lambda: [cp.sum(w) == 1, cp.norm1(w - 1 / d) <= 0.5],
            lambda: [cp.sum(w) == 1, cp.sum(w) <= 1, 2 * cp.sum(w) == 2],
            lambda: [cp.cvar(A @ w, 0.9) <= 0.4],
            lambda: [cp.sum_largest(A @ w, few) <= 0.5 * few, w <= 1],
            lambda: [cp.sum(cp.pos(A @ w - 0.5)) / n <= 0.05],
        ])

    def objective(self) -> Any:
        total = self.loss() + self.norm()
        if self.rng.random() < 0.2:
            total = total + self.loss()
        if self.rng.random() < 0.15:
            total = total - 0.3 * cp.sum(self.w)  # may be unbounded
        self.constrain()
        return total


class Largest(Flat):
    """Sums of the largest losses, in the objective and in constraints, with and without squares."""

    SHARES = (0.5, 1.0)
    MOST = 700  # plain solves of these take long

    def largest(self, e: Any, m: Any) -> Any:
        """The mean of the largest losses."""
        rng, n = self.rng, self.n
        few = float(rng.uniform(1, n)) if rng.random() < 0.5 else int(rng.integers(1, n + 1))
        tau, width = float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.0, 1.0))
        return cp.sum_largest(self.pick([
            lambda: cp.abs(e),
            lambda: cp.maximum(tau * e, (tau - 1) * e),
            lambda: cp.multiply(rng.integers(1, 3, n).astype(float), cp.abs(e)) + width,
            lambda: cp.pos(cp.abs(e) - width),
            lambda: cp.pos(1 - m),
            lambda: cp.neg(m),
        ]), few) / few

    def loss(self) -> Any:
        return self.largest(self.residual, self.margin)

    def norm(self) -> Any:
        return 0.1 * cp.sum_squares(self.w) if self.rng.random() < 0.3 else super().norm()

    def constrain(self) -> None:
        super().constrain()
        if self.rng.random() < 0.3:
            away = self.data() @ self.w - np.round(self.rng.standard_normal(self.n), 1)
            most = float(self.rng.uniform(0.5, 3.0))
            self.constraints.append(self.largest(away, away) <= most)


class Lengths(Flat):
    """Norms of residuals, and squares of them in constraints, alone and beside losses."""

    SHARES = (0.5, 1.0)
    MOST = 700

    def loss(self) -> Any:
        weight = float(10.0 ** self.rng.uniform(-1, 1))
        length = cp.norm(self.residual) if self.rng.random() < 0.5 else cp.pnorm(self.residual, 2)
        return weight * length / self.n**0.5 if self.rng.random() < 0.5 else super().loss()

    def constrain(self) -> None:
        super().constrain()
        away = self.data() @ (self.w - 0.1) - self.rng.standard_normal(self.n)
        most, n = float(self.rng.uniform(0.9, 1.5)), self.n
        self.constraints += self.pick([
            list,
            lambda: [cp.norm(away) <= most * n**0.5],
            lambda: [cp.sum_squares(away) / n <= most**2],
            lambda: [cp.mean(cp.square(away)) <= most**2],
            lambda: [cp.square(cp.norm(away / n**0.5)) <= most**2],
            lambda: [cp.norm(away) + cp.norm1(self.w) <= most * n**0.5],
        ])


class Levels(Flat):
    """Curved losses below a level, beside a linear, convex or curved objective and constraints."""

    SHARES = (0.15, 0.8)  # one of three names a solver, and many levels are met by all or by none
    SMALL, LEAST, MOST = 0.0, 500, 700

    def curved(self, e: Any, m: Any) -> Any:
        rng, n = self.rng, self.n
        width, weights = float(10.0 ** rng.uniform(-1, 0.5)), rng.integers(0, 3, n).astype(float)
        return self.pick([
            lambda: cp.sum(cp.huber(e, width)) / n,
            lambda: weights @ cp.huber(e, width),
            lambda: cp.sum_squares(cp.pos(1 - m)),
            lambda: cp.mean(cp.square(cp.neg(e))),
            lambda: cp.norm(cp.pos(e - width)),
            lambda: cp.norm(cp.pos(1 - m), 2) / n**0.5,
            lambda: cp.sum_squares(cp.pos(cp.abs(e) - 0.3)) / n,
            lambda: cp.sum(cp.huber(cp.pos(1 - m), width)),
            lambda: cp.sum(cp.huber(e)) / n + 0.1 * cp.sum(cp.abs(e)) / n,
            lambda: cp.norm(cp.pos(1 - m)) ** 2 / n,
            lambda: cp.sum(cp.huber(e, width)) / n - 0.2 * self.w[0],
        ])

    def objective(self) -> Any:
        rng, w, d = self.rng, self.w, self.d
        loss = self.curved(self.residual, self.margin)
        w.value, self.b.value = 0.3 * rng.standard_normal(d), 0.0
        level = float(np.squeeze(loss.value)) * rng.uniform(0.6, 1.3)
        w.value = self.b.value = None
        self.constraints += self.pick([
            lambda: [loss <= level],
            lambda: [cp.Parameter(value=level) >= loss],
            lambda: [2 * loss - level <= level],
        ])
        slope = rng.standard_normal(d)
        total = self.pick([
            lambda: cp.norm1(w), lambda: cp.norm1(w) + slope @ w / 3,
            lambda: cp.sum_squares(w), lambda: cp.sum_squares(w - 1) + slope @ w,
            lambda: slope @ w, lambda: slope @ w,
            lambda: cp.norm(w), lambda: self.loss() + 0.1 * cp.norm1(w),
        ])
        self.constraints += self.pick([
            list, list,
            lambda: [w >= -1, w <= 1],
            lambda: [cp.sum(w) == 1, w >= 0],
            lambda: [w[0] == 0.1],
            lambda: [cp.norm1(w) <= 1],
        ])
        return total


class Wide(Flat):
    """Far more columns than rows, held by an L1 norm or bounds, beside squares and constraints."""

    SHARES = (0.4, 0.9)  # one in five is in the safe mode, and little there has squares

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng = np.random.default_rng([seed, 53])
        self.n, self.d = int(rng.integers(8, 25)), int(rng.integers(300, 340))
        self.X = self.data()
        few = np.where(np.arange(self.d) < 4, rng.standard_normal(self.d), 0.0)
        self.r = self.X @ few + rng.standard_normal(self.n)
        if rng.random() < 0.3:
            self.r = np.round(self.r)
        self.y = np.where(self.r + rng.standard_normal(self.n) > 0, 1.0, -1.0)
        self.w, self.constraints = cp.Variable(self.d, name="w"), []
        fitted = self.X @ self.w + (self.b if rng.random() < 0.5 else 0)
        self.margin, self.residual = cp.multiply(self.y, fitted), fitted - self.r

    def loss(self) -> Any:
        e, m, tau = self.residual, self.margin, float(self.rng.uniform(0.1, 0.9))
        return self.pick([
            lambda: cp.sum(cp.maximum(tau * e, (tau - 1) * e)),
            lambda: cp.norm1(e),
            lambda: cp.sum(cp.huber(e, 0.5)),
            lambda: cp.sum(cp.pos(1 - m)),
            lambda: cp.sum_squares(cp.pos(1 - m)),
            lambda: cp.sum_squares(e), lambda: cp.sum_squares(e) / 2,
            lambda: cp.norm(e),
        ])

    def norm(self) -> Any:
        w, rng, d = self.w, self.rng, self.d
        weight = float(10.0 ** rng.uniform(-1, 1))

        def slack() -> Any:
            t = cp.Variable(d)
            self.constraints += self.pick([lambda: [t >= cp.abs(w)], lambda: [-t <= w, w <= t]])
            return weight * cp.sum(t)

        def split() -> Any:
            u, v = cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True)
            self.constraints.append(w == u - v)
            return weight * cp.sum(u + v)

        def signs() -> Any:
            self.constraints.append(w >= 0)
            return weight * cp.sum(w)

        def blocks() -> Any:
            size = int(rng.integers(2, 9))
            own = weight * float(rng.uniform(0.1, 1.0)) * cp.norm1(w) if rng.random() < 0.3 else 0.0
            if rng.random() < 0.5:
                rows = cp.reshape(w[: d - d % size], (d // size, size), order="C")
                rest = cp.norm(w[d - size:]) if d % size else 0.0
                return weight * (cp.mixed_norm(rows, 2, 1) + rest) + own
            starts = range(0, d, size)
            scales = rng.uniform(1.0, 2.0, len(starts))
            parts = [s * cp.norm(w[i: i + size]) for s, i in zip(scales, starts, strict=True)]
            return weight * sum(parts) + own

        found = self.pick([
            lambda: weight * cp.norm1(w), lambda: weight * cp.norm1(w),
            lambda: rng.uniform(1.0, 3.0, d) @ cp.abs(w) * weight,
            slack, split, signs, blocks, blocks,
        ])
        curved = rng.random() < 0.3
        return found + float(10.0 ** rng.uniform(-2, 0)) * cp.sum_squares(w) if curved else found

    def constrain(self) -> None:
        w, d, rng = self.w, self.d, self.rng
        A = rng.standard_normal((3, d))
        self.constraints += self.pick([
            list, list,
            lambda: [cp.sum(w) == 0], lambda: [cp.sum(w) == 1],
            lambda: [cp.sum(w) == 1, w >= 0], lambda: [cp.sum(w) == 1, w >= 0, w <= 0.05],
            lambda: [w >= -0.3, w <= 0.5], lambda: [w <= 0.2],
            lambda: [A @ w <= 0.1], lambda: [A @ w == rng.standard_normal(3)],
            lambda: [A[0] @ w >= 1, A[0] @ w <= 0.5],  # infeasible
            lambda: [cp.norm(self.residual) <= 2 * self.n**0.5],
        ])


class Outputs(Flat):
    """Several outputs: norms of rows of residuals, distances, losses of entries and of rows."""

    SHARES = (0.4, 1.0)
    SMALL, LEAST, MOST = 0.3, 100, 300  # each row is a cone

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng = np.random.default_rng([seed, 59])
        self.k = k = int(rng.integers(2, 4))
        self.W, self.c = cp.Variable((self.d, k), name="W"), cp.Variable(k, name="c")
        self.w, self.constraints = cp.vec(self.W, order="F"), []
        self.Y = self.X @ rng.standard_normal((self.d, k)) + rng.standard_t(2, (self.n, k))
        self.pick([
            list, list,
            lambda: self.Y.round(out=self.Y),
            lambda: self.Y.__setitem__(slice(None, None, 2), (self.X @ np.ones((self.d, k)))[::2]),
        ])
        offset = np.ones((self.n, 1)) @ cp.reshape(self.c, (1, k), order="C")
        self.bare = self.X @ self.W - self.Y
        self.E = self.bare + offset if rng.random() < 0.5 else self.bare

    def norms(self, E: Any) -> Any:
        weights = self.rng.integers(0, 3, self.n).astype(float)
        return self.pick([
            lambda: cp.sum(cp.norm(E, 2, axis=1)),
            lambda: cp.mixed_norm(E, 2, 1),
            lambda: weights @ cp.norm(E, axis=1),
            lambda: cp.sum(cp.multiply(weights + 1, cp.pnorm(E, 2, axis=1))),
            lambda: cp.sum(cp.norm(E.T, axis=0)),
            lambda: sum(cp.norm(E[i]) for i in range(self.n)),
        ]) / self.n

    def loss(self) -> Any:
        E, n, y = self.E, self.n, self.Y
        labels = np.argmax(y, axis=1)
        own = np.eye(self.k)[labels]
        scores = self.X @ self.W
        distances = cp.Variable((1, self.k), name="point") - y
        return self.pick([
            lambda: self.norms(E), lambda: self.norms(E), lambda: self.norms(E),
            lambda: self.norms(distances),
            lambda: cp.sum(cp.abs(E)) / n,
            lambda: cp.sum(cp.huber(E)) / n,
            lambda: cp.sum(cp.max(cp.abs(E), axis=1)) / n,
            lambda: cp.sum(cp.norm1(E, axis=1)) / n,
            lambda: cp.sum(
                cp.max(scores + 1 - own, axis=1) - cp.sum(cp.multiply(scores, own), axis=1)) / n,
            lambda: cp.sum_squares(E) / n,
            lambda: cp.max(cp.abs(E)),
        ])

    def norm(self) -> Any:
        W, weight = self.W, float(10.0 ** self.rng.uniform(-2, 0.5))
        return self.pick([
            lambda: 0.0, lambda: 0.0,
            lambda: weight * cp.sum(cp.abs(W)),
            lambda: weight * cp.norm(W, "fro"),
            lambda: weight * cp.sum_squares(W),
            lambda: weight * cp.mixed_norm(W, 2, 1),
            lambda: weight * cp.sum(cp.norm(W, axis=0)),
            lambda: weight * cp.sum_squares(W[:, 0] - W[:, 1]),
            lambda: weight * cp.norm_inf(W),
        ])

    def constrain(self) -> None:
        W, E, n = self.W, self.bare, self.n
        self.constraints += self.pick([
            list, list, list,
            lambda: [cp.sum(W, axis=0) == 1, W >= 0],
            lambda: [W >= -0.3, W <= 0.5],
            lambda: [cp.norm1(W) <= 0.7],
            lambda: [cp.norm(W, "fro") <= 0.7],
            lambda: [W[:, 0] == W[:, 1]],
            lambda: [W[:, 0] >= W[:, 1]],
            lambda: [self.X @ W <= 3.0],
            lambda: [cp.sum(cp.norm(E, axis=1)) <= 3.0 * n],
            lambda: [cp.sum(cp.abs(E)) / n <= 4.0, W <= 2.0],
        ])


class Budgets(Flat):
    """Losses below a level, alone, several, the largest of several; a short objective beside."""

    SHARES = (0.3, 1.0)
    SMALL, LEAST, MOST = 0.2, 400, 700

    def level(self, loss: Any, low: float = 0.7, high: float = 1.6) -> float:
        """About what `loss` is at a point nearby."""
        variables = loss.variables()
        for variable in variables:
            variable.value = 0.3 * self.rng.standard_normal(variable.shape)
        found = float(np.squeeze(loss.value)) * self.rng.uniform(low, high)
        for variable in variables:
            variable.value = None
        return found

    def groups(self, loss: Callable[[Any, Any], Any]) -> list[Any]:
        """The losses of each of a few groups of the samples."""
        group = self.rng.integers(0, int(self.rng.integers(2, 5)), self.n)
        parts = [np.flatnonzero(group == k) for k in np.unique(group)]
        return [loss(self.residual[part], self.margin[part]) / len(part) for part in parts]

    def entrywise(self) -> Callable[[Any, Any], Any]:
        tau = float(self.rng.uniform(0.1, 0.9))
        return self.pick([
            lambda: lambda e, m: cp.sum(cp.abs(e)),
            lambda: lambda e, m: cp.sum(cp.maximum(tau * e, (tau - 1) * e)),
            lambda: lambda e, m: cp.sum(cp.pos(1 - m)),
            lambda: lambda e, m: cp.sum(cp.pos(cp.abs(e) - 0.3)),
            lambda: lambda e, m: cp.norm1(e),
        ])

    def objective(self) -> Any:
        rng, w, d = self.rng, self.w, self.d
        parts = self.groups(self.entrywise())
        slope, t = rng.standard_normal(d), cp.Variable(name="t")

        def short() -> Any:
            return self.pick([
                lambda: cp.norm1(w), lambda: cp.sum_squares(w), lambda: slope @ w,
                lambda: cp.norm(w), lambda: cp.norm1(w) + slope @ w, lambda: self.loss(),
                lambda: self.loss() + 0.1 * cp.sum_squares(w), lambda: cp.norm_inf(w),
            ])

        def below() -> Any:
            self.constraints += [part <= self.level(part) for part in parts]
            return short()

        def one() -> Any:
            total = sum(float(rng.uniform(0.5, 2.0)) * part for part in parts)
            self.constraints.append(total <= self.level(total))
            return short()

        def shared() -> Any:
            self.constraints += [part <= t for part in parts]
            return t + self.norm()

        def risky() -> Any:
            rate = float(rng.uniform(0.5, 0.95))
            for loss in (self.residual, -self.residual)[: int(rng.integers(1, 3))]:
                total = cp.cvar(loss, rate)
                self.constraints.append(total <= abs(self.level(total)))
            return short()

        total = self.pick([
            below, one, shared, risky,
            lambda: cp.max(cp.hstack(parts)) + self.norm(),
            lambda: cp.maximum(*parts) + self.norm(),
        ])
        self.constraints += self.pick([
            list, list, list,
            lambda: [w >= -1, w <= 1],
            lambda: [cp.sum(w) == 1, w >= 0],
            lambda: [cp.norm1(w) <= 1],
            lambda: [w[0] == 0.1],
        ])
        return total


GRAMMARS: dict[str, type[Any]] = {
    "curved": Curved, "flat": Flat, "largest": Largest, "lengths": Lengths, "levels": Levels,
    "wide": Wide, "outputs": Outputs, "budgets": Budgets,
}


def outcome(problem: cp.Problem, **options: Any) -> str:
    """The status, or the exception's name."""
    try:
        problem.solve(**options)
    except (cp.error.SolverError, cp.error.DCPError, ValueError) as error:
        return type(error).__name__
    return str(problem.status)


def lacking(problem: cp.Problem) -> float:
    """What the dual values fail to prove: the optimum less the least value of the Lagrangian.

    Multipliers are right if and only if nothing near the answer has a smaller Lagrangian than the
    optimal value; that holds for every optimal one of them where they are not unique. Far away the
    rounding of a multiplier counts for much, so the variables are kept to a box of their own size.
    """
    sign = 1.0 if isinstance(problem.objective, cp.Minimize) else -1.0
    total, near = sign * problem.objective.expr, []
    for variable in problem.variables():
        size = 1.0 + np.abs(variable.value)
        near += [variable <= variable.value + size, variable >= variable.value - size]
    for constraint in problem.constraints:
        dual = np.asarray(constraint.dual_value, dtype=float)
        if not isinstance(constraint, cp.constraints.Zero | cp.constraints.Equality):
            if dual.min(initial=0.0) < -DUAL * (1.0 + np.abs(dual).max(initial=0.0)):
                return np.inf
            dual = np.maximum(dual, 0.0)
        total = total + cp.sum(cp.multiply(dual, constraint.expr))
    value, relaxed = problem.value, cp.Problem(cp.Minimize(total), near)
    answer = [(variable, variable.value) for variable in problem.variables()]
    # The two problems have the same variables. CVXPY cannot solve `cvar` where these have values.
    for variable, _ in answer:
        variable.value = None
    status = outcome(relaxed, solver="CLARABEL", **TIGHT)
    for variable, entries in answer:
        variable.value = entries
    if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return 0.0  # the check's own solve failed
    return float(sign * value - relaxed.value)


def difference(kind: str, seed: int) -> tuple[str, bool]:
    """What differs between the two solves of problem `seed`, and whether it was screened.

    Both solves name the same solver; of the flat problems two of three name none, so that ours is
    a built-in one where the problem is recognised.
    """
    grammar = GRAMMARS[kind]
    ours, truth = grammar(seed), grammar(seed)
    problem, plain_problem = ours.problem(), truth.problem()
    named = kind == "curved" or seed % 3 == 0
    options: dict[str, Any] = {"solver": "CLARABEL", **TIGHT} if named else {}
    mode = "safe" if seed % 5 == 0 else "certified"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = outcome(plain_problem, solver="CLARABEL", **TIGHT)
        found = outcome(problem, method="screen", mode=mode, **options)
        stats = problem.solver_stats
        screened = stats is not None and stats.extra_stats["cvxscreen"].recognised
        word = compared(problem, plain_problem, grammar, (found, plain), screened or named)
        if not word and screened and kind == "curved" and found == plain == cp.OPTIMAL and (
                not np.allclose(ours.w.value, truth.w.value, atol=2e-2)):
            word = f"w {ours.w.value} for {truth.w.value}"
    return word, bool(screened)


def compared(problem: cp.Problem, truth: cp.Problem, grammar: type[Drawn],
             outcomes: tuple[str, str], accurate: bool) -> str:
    """What differs ("" for nothing); `accurate` where ours was solved as tightly as the truth."""
    found, plain = outcomes
    if plain not in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED, "DCPError", "ValueError"):
        return ""  # no truth to compare with
    if not accurate and found not in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
        return ""  # of another solver, that CVXPY has chosen
    if found != plain:
        return f"{found} for {plain}"
    if not accurate or plain != cp.OPTIMAL:
        return ""  # as accurate as CVXPY's solver is by default
    scale = grammar.FLOOR + abs(truth.value)
    if not abs(problem.value - truth.value) <= grammar.TOLERANCE * scale:
        return f"value {problem.value!r} for {truth.value!r}"
    if not abs(problem.objective.value - truth.value) <= 2.0 * grammar.TOLERANCE * scale:
        return f"objective {problem.objective.value!r} for {truth.value!r}"
    worst = max([0.0, *(float(np.max(c.violation())) for c in problem.constraints)])
    if worst > 1e-6 * (1.0 + max(np.abs(v.value).max() for v in problem.variables())):
        return f"a constraint is violated by {worst:.2g}"
    if any(c.dual_value is None for c in problem.constraints):
        return "a dual value is missing"
    lost = lacking(problem) if problem.constraints else 0.0
    if lost > DUAL * (1.0 + abs(truth.value)) and lost > 10.0 * lacking(truth):
        return f"dual values prove {lost:.2g} less than {truth.value!r}"
    return ""


def campaign(out: Path, first: int, problems: int, kinds: list[str]) -> list[dict[str, Any]]:
    """Problems `first` to ``first + problems`` in turn of each kind; lines of earlier calls count.

    A half-written last line does no harm.
    """
    lines: list[dict[str, Any]] = []
    for text in out.read_text().splitlines() if out.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = {(line["kind"], line["seed"]) for line in lines}
    with out.open("a") as file:
        for seed in range(first, first + problems):
            for kind in kinds:
                if (kind, seed) in done:
                    continue
                start = time.process_time()
                try:
                    word, screened = difference(kind, seed)
                except Exception as error:  # plain CVXPY has none
                    word, screened = f"{type(error).__name__}: {error}", True
                line = {"kind": kind, "seed": seed, "screened": screened, "difference": word,
                        "seconds": round(time.process_time() - start, 3)}
                file.write(json.dumps(line) + "\n")
                file.flush()
                lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--problems", type=int, default=1000, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="*", choices=list(GRAMMARS), default=list(GRAMMARS))
    given = parser.parse_args(arguments)
    request.STEP_ASIDE = False  # these problems are small
    request.ALREADY_SAID.append("plain solves are meant")
    lines = campaign(given.out, given.first, given.problems, given.kinds)
    for line in lines:
        if line["difference"]:
            print(f"{line['kind']} {line['seed']}: {line['difference']}")
    count = Counter((line["kind"], line["screened"]) for line in lines)
    for kind in given.kinds:
        print(f"{kind}: {count[kind, True] + count[kind, False]} problems, "
              f"{count[kind, True]} screened")
    return int(any(line["difference"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
