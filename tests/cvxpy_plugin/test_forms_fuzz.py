"""Random problems without strong convexity: ``method="screen"`` gives what a plain solve gives.

A problem is one or two losses with kinks, order statistics or rows of inequalities, perhaps a norm,
perhaps constraints; data may be integers (degenerate vertices), have duplicated rows, columns of
zeros or of very different scales; some problems are infeasible or unbounded. Compared are status,
exception, value, the objective at the variables that were written, and feasibility.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fuzzing import both_ways_agree

from cvxscreen import cvxpy_plugin

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
COUNT, LONG, PART = 200, 1000, 50
SHARES = (0.4, 1.0)
"""Of the problems that are screened: more than the first, at most the second."""


class Draw:
    """One random problem."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng([seed, 47])
        small = rng.random() < 0.5
        self.n = int(rng.integers(8, 60) if small else rng.integers(450, 1500))
        self.d = int(rng.integers(1, 7))
        self.X, self.r = self.data(), rng.standard_normal(self.n)
        if rng.random() < 0.3:
            self.r = np.round(self.r)
        self.y = np.where(self.X[:, 0] + rng.standard_normal(self.n) > 0, 1.0, -1.0)
        self.w, self.b = cp.Variable(self.d, name="w"), cp.Variable(name="b")
        self.constraints: list[Any] = []
        fitted = self.X @ self.w + (self.b if rng.random() < 0.5 else 0)
        self.margin, self.residual = cp.multiply(self.y, fitted), fitted - self.r

    def pick(self, options: list[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]()

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
        w, d, rng = self.w, self.d, self.rng
        A = rng.standard_normal((self.n, d))
        self.constraints += self.pick([
            list, list, list,
            lambda: [cp.sum(w) == 1, w >= 0],
            lambda: [w >= -0.3, w <= 0.5],
            lambda: [cp.norm1(w) <= 0.7],
            lambda: [cp.norm(w) <= 0.7],
            lambda: [A @ w <= 1 + rng.random(self.n)],
            lambda: [A @ w <= -1, A @ w >= 1],  # infeasible
            lambda: [cp.sum(w) == 1, cp.norm1(w - 1 / d) <= 0.5],
            lambda: [cp.sum(w) == 1, cp.sum(w) <= 1, 2 * cp.sum(w) == 2],
        ])

    def problem(self) -> cp.Problem:
        total = self.loss() + self.norm()
        if self.rng.random() < 0.2:
            total = total + self.loss()
        if self.rng.random() < 0.15:
            total = total - 0.3 * cp.sum(self.w)  # may be unbounded
        self.constrain()
        if self.rng.random() < 0.15:
            return cp.Problem(cp.Maximize(-total), self.constraints)
        return cp.Problem(cp.Minimize(total), self.constraints)


def outcome(problem: cp.Problem, **options: Any) -> str:
    """The status, or the exception's name."""
    try:
        problem.solve(**options)
    except (cp.error.SolverError, cp.error.DCPError, ValueError) as error:
        return type(error).__name__
    return str(problem.status)


def disagreement(seed: int) -> tuple[str, bool]:
    """What differs between the two solves of problem `seed`, and whether it was screened."""
    truth, problem = Draw(seed).problem(), Draw(seed).problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = outcome(truth, solver="CLARABEL", **TIGHT)
        ours = outcome(problem, method="screen", mode="safe" if seed % 10 == 0 else "certified")
    stats = problem.solver_stats
    screened = stats is not None and stats.extra_stats["cvxscreen"].recognised
    if plain in (cp.OPTIMAL_INACCURATE, "infeasible_inaccurate", "unbounded_inaccurate"):
        return "", screened  # no truth to compare with
    if not screened and ours not in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
        return "", screened  # of another solver, that CVXPY has chosen
    if ours != plain:
        return f"{ours} for {plain}", screened
    if not screened:
        return "", screened  # as accurate as CVXPY's solver is by default
    if plain != cp.OPTIMAL:
        return "", screened
    scale = 1e-3 + abs(truth.value)
    if not abs(problem.value - truth.value) <= 2e-6 * scale:
        return f"value {problem.value!r} for {truth.value!r}", screened
    if not abs(problem.objective.value - truth.value) <= 4e-6 * scale:
        return f"objective {problem.objective.value!r} for {truth.value!r}", screened
    worst = max([0.0, *(float(np.max(c.violation())) for c in problem.constraints)])
    if worst > 1e-6 * (1.0 + max(np.abs(v.value).max() for v in problem.variables())):
        return f"a constraint is violated by {worst:.2g}", screened
    missing = [c for c in problem.constraints if c.dual_value is None]
    return ("a dual value is missing" if missing else ""), screened


@pytest.mark.parametrize("first", range(0, COUNT, PART))
def test_both_ways_agree(first: int) -> None:
    both_ways_agree(disagreement, range(first, first + PART), SHARES)


@pytest.mark.long
def test_both_ways_agree_on_many() -> None:
    both_ways_agree(disagreement, range(COUNT, COUNT + LONG), SHARES)
