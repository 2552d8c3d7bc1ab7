"""Random problems from a grammar of atoms, recognised and not: both ways of solving agree.

A problem is a regulariser, one or two losses in random spellings, perhaps something else in the
objective, and perhaps constraints. What is compared is what CVXPY promises: status, value,
feasibility of the variables, and (where the objective is strictly convex in ``w``) ``w`` itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fuzzing import both_ways_agree

import cvxscreen
from cvxscreen import cvxpy_plugin

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
COUNT, LONG, PART = 250, 2000, 50
SHARES = (0.3, 0.9)
"""Of the problems that are screened: more than the first, at most the second."""


class Draw:
    """One random problem."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.n, self.d = int(rng.integers(6, 40)), int(rng.integers(1, 5))
        self.X = rng.standard_normal((self.n, self.d)) * 10.0 ** rng.uniform(-1, 1)
        self.y = np.where(rng.random(self.n) < 0.5, -1.0, 1.0)
        self.r = rng.standard_normal(self.n)
        self.w, self.b = cp.Variable(self.d, name="w"), cp.Variable(name="b")
        self.constraints: list[Any] = []
        self.intercept = bool(rng.random() < 0.4)
        fitted = self.X @ self.w + (self.b if self.intercept else 0)
        self.margin, self.residual = cp.multiply(self.y, fitted), fitted - self.r

    def pick(self, options: list[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def weight(self) -> Any:
        value = float(10.0 ** self.rng.uniform(-1.5, 1))
        return self.pick([value, cp.Parameter(nonneg=True, value=value)])

    def weigh(self, vector: Any) -> Any:
        """A weighted sum of non-negative entries."""
        counts = self.rng.integers(0, 3, self.n).astype(float)
        return self.pick([
            lambda: cp.sum(vector),
            lambda: cp.mean(vector),
            lambda: counts @ vector,
            lambda: cp.norm1(vector),
            lambda: cp.sum(vector[: self.n // 2]) + 2 * cp.sum(vector[self.n // 2 :]),
        ])()

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
        ])()

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
        ])()

    def slack(self, arguments: list[Any], target: float) -> Any:
        xi = cp.Variable(self.n, name="xi", nonneg=bool(self.rng.random() < 0.3))
        self.constraints += [argument + xi >= target for argument in arguments]
        if not xi.attributes["nonneg"]:
            self.constraints.append(xi >= self.pick([0.0, 0.0, 0.1]))
        return self.pick([lambda: cp.sum(xi), lambda: cp.sum_squares(xi)])()

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
        ])()

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
        ])()

    def problem(self) -> Any:
        total = self.regulariser() + self.weight() * self.loss()
        if self.rng.random() < 0.3:
            total = total + self.weight() * self.loss()
        total = total + self.more()
        self.constrain()
        if self.rng.random() < 0.2:
            return cp.Problem(cp.Maximize(-total), self.constraints)
        return cp.Problem(cp.Minimize(total), self.constraints)


def disagreement(seed: int) -> tuple[str, bool]:
    """What differs between the two solves of problem `seed`, and whether it was screened."""
    ours, plain = Draw(seed), Draw(seed)
    problem, truth = ours.problem(), plain.problem()
    if not truth.is_dcp():
        return "", False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            truth.solve(solver="CLARABEL", **TIGHT)
        except cp.error.SolverError:
            return "", False  # CVXPY cannot solve it either way
        mode = "safe" if seed % 5 == 0 else "certified"
        problem.solve(method="screen", solver="CLARABEL", mode=mode, **TIGHT)
    screened = problem.solver_stats.extra_stats["cvxscreen"].recognised
    if truth.status not in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
        return "", screened  # no truth to compare with
    if problem.status != truth.status:
        return f"status {problem.status} for {truth.status}", screened
    if truth.status != cp.OPTIMAL:
        return "", screened
    scale = 1.0 + abs(truth.value)
    if not abs(problem.value - truth.value) <= 3e-6 * scale:
        return f"value {problem.value!r} for {truth.value!r}", screened
    worst = max([0.0, *(float(np.max(c.violation())) for c in problem.constraints)])
    if worst > 1e-5:
        return f"a constraint is violated by {worst:.2g}", screened
    if screened and not np.allclose(ours.w.value, plain.w.value, atol=2e-2):
        return f"w {ours.w.value} for {plain.w.value}", screened
    missing = [c for c in problem.constraints if c.dual_value is None]
    return ("a dual value is missing" if missing else ""), screened


@pytest.mark.parametrize("first", range(0, COUNT, PART))
def test_both_ways_agree(first: int) -> None:
    both_ways_agree(disagreement, range(first, first + PART), SHARES)


@pytest.mark.long
def test_both_ways_agree_on_many() -> None:
    both_ways_agree(disagreement, range(COUNT, COUNT + LONG), SHARES)


def test_the_comparison_notices_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screened solve that answers another problem is found by this test."""
    from cvxscreen.cvxpy_plugin import plugin

    original = plugin.run

    def wrong(recognition: Any, request: Any) -> Any:
        found, cvxpy_solver = original(recognition, request)
        return cvxscreen.Solution(**{**vars(found), "x": found.x + 0.05}), cvxpy_solver

    monkeypatch.setattr(plugin, "run", wrong)
    words = [disagreement(seed)[0] for seed in range(20)]
    assert sum(bool(word) for word in words) >= 5
