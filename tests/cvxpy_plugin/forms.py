"""Forty-seven problems as people write them in CVXPY, each with its size as an argument.

`FORMS` holds them all. ``form.make(n, d)`` gives the problem with about n terms and d coordinates;
data are drawn from the seed. What the name of a form does not say, its spelling does. `ASIDE` names
the forms that are not to be screened: they have as many coordinates as terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

Objective = tuple[Any, list[Any]]


class Data:
    """Two classes, a response with outliers, and daily returns, from one seed."""

    def __init__(self, n: int, d: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.n, self.d = rng, n, d
        self.X = rng.standard_normal((n, d))
        truth = rng.standard_normal(d) * (np.arange(d) < max(3, d // 3))
        score = self.X @ truth
        noise = 0.7 * float(np.std(score))
        self.y = np.where(score + noise * rng.standard_normal(n) > 0, 1.0, -1.0)
        self.r = score + 0.3 * rng.standard_t(3, n)
        market = rng.standard_t(4, n)[:, None]
        own = rng.standard_normal((n, d)) * rng.uniform(0.5, 1.5, d)
        self.returns = 0.01 * (own + market) + rng.uniform(0.0, 0.002, d)
        self.w, self.b = cp.Variable(d, name="w"), cp.Variable(name="b")
        self.fit = self.X @ self.w + self.b
        self.residual = self.fit - self.r
        self.margin = cp.multiply(self.y, self.fit)
        self.hinge = cp.sum(cp.pos(1 - self.margin))
        self.slack = cp.Variable(n, name="xi")
        self.ridge = 0.5 * cp.sum_squares(self.w)
        self.long_only = [cp.sum(self.w) == 1, self.w >= 0]

    def pinball(self, tau: float) -> Any:
        """The quantile loss of the residual."""
        return cp.sum(cp.maximum(-tau * self.residual, (1 - tau) * self.residual))


@dataclass(frozen=True)
class Form:
    """A way to write a problem.

    Attributes
    ----------
    name : str
    written : callable
        From the data to the objective (a minimum unless it is a `Maximize`) and the constraints.
    """

    name: str
    written: Callable[[Data], Objective]

    def make(self, n: int, d: int, seed: int = 0) -> cp.Problem:
        """The problem with about `n` terms and `d` coordinates."""
        objective, constraints = self.written(Data(n, d, seed))
        whole = isinstance(objective, cp.Maximize)
        return cp.Problem(objective if whole else cp.Minimize(objective), constraints)


FORMS: list[Form] = []

ASIDE = frozenset(("total_variation", "trend_filter", "isotonic"))
"""Forms that a plain solve is right for."""


def form(written: Callable[[Data], Objective]) -> Callable[[Data], Objective]:
    """Enrol a form."""
    FORMS.append(Form(written.__name__, written))
    return written


# -- fits without a ridge ----------------------------------------------------------------------


@form
def quantile(s: Data) -> Objective:
    return s.pinball(0.9), []


@form
def quantile_split(s: Data) -> Objective:
    """The linear program of Koenker and Bassett."""
    up, down = cp.Variable(s.n, nonneg=True), cp.Variable(s.n, nonneg=True)
    return 0.7 * cp.sum(up) + 0.3 * cp.sum(down), [s.r - s.fit == up - down]


@form
def least_absolute(s: Data) -> Objective:
    return cp.norm1(s.residual), []


@form
def least_absolute_slack(s: Data) -> Objective:
    return cp.sum(s.slack), [s.residual <= s.slack, -s.slack <= s.residual]


@form
def huber(s: Data) -> Objective:
    return cp.sum(cp.huber(s.residual, 0.5)), []


@form
def epsilon_insensitive(s: Data) -> Objective:
    return cp.sum(cp.pos(cp.abs(s.residual) - 0.3)), []


@form
def least_absolute_simplex(s: Data) -> Objective:
    return cp.norm(s.X @ s.w - s.r, 1), s.long_only


@form
def minimax(s: Data) -> Objective:
    return cp.norm_inf(s.residual), []


@form
def minimax_maximum(s: Data) -> Objective:
    return cp.max(cp.abs(s.residual)) + 0.01 * cp.norm1(s.w), []


@form
def largest_errors(s: Data) -> Objective:
    return cp.sum_largest(cp.abs(s.residual), max(1, s.n // 20)), []


@form
def spline(s: Data) -> Objective:
    """Absolute residuals and squares of second differences of the heights at the knots."""
    knots, at = np.linspace(0, 1, s.d), np.sort(s.rng.uniform(0, 1, s.n))
    right = np.clip(np.searchsorted(knots, at), 1, s.d - 1)
    share = (at - knots[right - 1]) / (knots[right] - knots[right - 1])
    B = np.zeros((s.n, s.d))
    B[np.arange(s.n), right - 1], B[np.arange(s.n), right] = 1 - share, share
    y = np.sin(7 * at) + 0.2 * s.rng.standard_t(2, s.n)
    return cp.norm1(B @ s.w - y) + 3.0 * cp.sum_squares(cp.diff(s.w, 2)), []


# -- with an L1 norm ---------------------------------------------------------------------------


@form
def quantile_l1(s: Data) -> Objective:
    return s.pinball(0.3) / s.n + 0.02 * cp.norm1(s.w), []


@form
def least_absolute_l1(s: Data) -> Objective:
    return cp.sum(cp.abs(s.residual)) + 0.03 * s.n * cp.norm(s.w, 1), []


@form
def huber_l1(s: Data) -> Objective:
    return cp.sum(cp.huber(s.X @ s.w - s.r)) + 0.05 * s.n * cp.norm1(s.w), []


@form
def epsilon_insensitive_l1(s: Data) -> Objective:
    loss = cp.sum(cp.maximum(0, cp.abs(s.residual) - 0.2))
    return loss + 0.02 * s.n * cp.norm1(s.w), []


@form
def svm_l1(s: Data) -> Objective:
    """CVXPY's own example."""
    lambd = cp.Parameter(nonneg=True, value=0.02)
    return s.hinge / s.n + lambd * cp.norm(s.w, 1), []


@form
def svm_l1_slacks(s: Data) -> Objective:
    """The linear program, the norm by its bounds."""
    u = cp.Variable(s.d)
    rows = [s.margin >= 1 - s.slack, s.slack >= 0, -u <= s.w, s.w <= u]
    return cp.sum(u) + 50 / s.n * cp.sum(s.slack), rows


@form
def one_against_rest_l1(s: Data) -> Objective:
    Y = np.where(s.rng.integers(0, 3, s.n)[:, None] == np.arange(3), 1.0, -1.0)
    X = s.X.copy()
    X[:, :3] += Y
    W, c = cp.Variable((s.d, 3)), cp.Variable((1, 3))
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ W + np.ones((s.n, 1)) @ c)))
    return loss / s.n + 0.02 * cp.sum(cp.abs(W)), []


@form
def ranking_l1(s: Data) -> Objective:
    """Pairs of documents."""
    first, second = s.rng.integers(0, s.n, (2, s.n))
    apart = s.X[first] - s.X[second]
    sign = np.where(s.r[first] > s.r[second], 1.0, -1.0)[:, None]
    return cp.sum(cp.pos(1 - (sign * apart) @ s.w)) + 0.02 * s.n * cp.norm1(s.w), []


@form
def lasso(s: Data) -> Objective:
    fit = cp.sum_squares(s.X @ s.w - s.r)
    return 0.5 / s.n * fit + 0.1 * cp.norm1(s.w), []


@form
def elastic_net(s: Data) -> Objective:
    fit = cp.sum_squares(s.X @ s.w - s.r) / s.n
    return fit + 0.2 * cp.norm1(s.w) + 0.1 * cp.sum_squares(s.w), []


@form
def lasso_wide(s: Data) -> Objective:
    """More coordinates than samples."""
    X = s.rng.standard_normal((max(s.d, s.n // 25), s.n))
    y = X[:, :5] @ np.array([3.0, -2.0, 1.5, 1.0, -1.0]) + 0.1 * s.rng.standard_normal(len(X))
    w, lam = cp.Variable(s.n), 0.3 * float(np.abs(X.T @ y).max())
    return 0.5 * cp.norm(X @ w - y, 2) ** 2 + lam * cp.norm1(w), []


# -- hinges without a squared norm ---------------------------------------------------------------


@form
def hinge_alone(s: Data) -> Objective:
    return s.hinge, []


@form
def hinge_norm(s: Data) -> Objective:
    return cp.norm(s.w) + 20 / s.n * s.hinge, []


@form
def hinge_group_lasso(s: Data) -> Objective:
    groups = np.array_split(np.arange(s.d), max(2, s.d // 5))
    return s.hinge / s.n + 0.03 * sum(cp.norm(s.w[g]) for g in groups), []


@form
def hinge_l1_ball(s: Data) -> Objective:
    return s.hinge, [cp.norm1(s.w) <= 1.0]


@form
def metric_trace(s: Data) -> Objective:
    """Large margin nearest neighbours: pull by the trace, push by hinges."""
    side = max(3, int(np.sqrt(s.d)))
    Z = s.rng.standard_normal((2, s.n, side))
    Z[1, :, 0] += 2.0
    i, j = s.rng.integers(0, s.n, (2, s.n))
    near, far = Z[0][i] - Z[0][j], Z[0][i] - Z[1][j]
    H = far[:, :, None] * far[:, None, :] - near[:, :, None] * near[:, None, :]
    M = cp.Variable((side, side), PSD=True)
    push = cp.sum(cp.pos(1 - H.reshape(s.n, -1) @ cp.vec(M, order="F")))
    return 0.3 * cp.trace(M) + push / s.n, []


# -- risk ----------------------------------------------------------------------------------------


@form
def cvar_program(s: Data) -> Objective:
    """Rockafellar and Uryasev's linear program."""
    alpha, goal = cp.Variable(), float(np.mean(s.returns))
    loss = -s.returns @ s.w
    rows = [s.slack >= loss - alpha, s.slack >= 0, s.returns.mean(axis=0) @ s.w >= goal]
    return alpha + cp.sum(s.slack) / (0.05 * s.n), [*rows, *s.long_only]


@form
def cvar_atom(s: Data) -> Objective:
    return cp.cvar(-s.returns @ s.w, 0.95), s.long_only


@form
def cvar_constraint(s: Data) -> Objective:
    """The best mean return at a bounded risk."""
    equal = np.sort(-s.returns.mean(axis=1))[-max(1, s.n // 20):].mean()
    risk = cp.cvar(-s.returns @ s.w, 0.95) <= 1.05 * float(equal)
    return cp.Maximize(s.returns.mean(axis=0) @ s.w), [risk, *s.long_only]


@form
def mean_absolute_deviation(s: Data) -> Objective:
    away = (s.returns - s.returns.mean(axis=0)) @ s.w
    goal = s.returns.mean(axis=0) @ s.w >= float(np.mean(s.returns))
    return cp.sum(cp.abs(away)) / s.n, [goal, *s.long_only]


@form
def worst_scenario(s: Data) -> Objective:
    return cp.Maximize(cp.min(s.returns @ s.w)), s.long_only


@form
def newsvendor(s: Data) -> Objective:
    """Orders that depend on features; what is short costs more than what is left."""
    demand = 20 + s.r
    short, left = cp.pos(demand - s.fit), cp.pos(s.fit - demand)
    return cp.sum(8.0 * short + 2.0 * left) / s.n, []


@form
def portfolio_turnover(s: Data) -> Objective:
    """Mean and downside risk with costs of trading."""
    before = np.full(s.d, 1 / s.d)
    gain = s.returns.mean(axis=0) @ s.w
    risk = cp.sum(cp.pos(-s.returns @ s.w)) / s.n
    return -gain + 2 * risk + 0.002 * cp.norm1(s.w - before), [
        *s.long_only, cp.norm1(s.w - before) <= 0.5]


# -- programs ------------------------------------------------------------------------------------


@form
def many_rows(s: Data) -> Objective:
    """A quadratic program with many inequality rows."""
    A = s.X / np.linalg.norm(s.X, axis=1, keepdims=True)
    cost = s.rng.standard_normal(s.d)
    return 0.5 * cp.sum_squares(s.w) - 3 * cost @ s.w, [A @ s.w <= 1 + s.rng.uniform(0, 1, s.n)]


@form
def many_rows_linear(s: Data) -> Objective:
    A = s.X / np.linalg.norm(s.X, axis=1, keepdims=True)
    return s.rng.standard_normal(s.d) @ s.w, [A @ s.w <= 1, cp.abs(s.w) <= 10]


@form
def svdd(s: Data) -> Objective:
    """The smallest ball around most of the points."""
    X, R = s.X[: max(60, s.n // 4)], cp.Variable()
    xi = cp.Variable(len(X), nonneg=True)
    far = [cp.sum_squares(X[i] - s.w) <= R + xi[i] for i in range(len(X))]
    return R + 0.1 * cp.sum(xi), far


@form
def total_variation(s: Data) -> Objective:
    y = np.repeat(s.rng.standard_normal(8), -(-s.n // 8))[: s.n] + 0.2 * s.rng.standard_normal(s.n)
    x = cp.Variable(s.n)
    return 0.5 * cp.sum_squares(x - y) + cp.tv(x), []


@form
def trend_filter(s: Data) -> Objective:
    y = np.cumsum(np.cumsum(s.rng.standard_normal(s.n))) / s.n + s.rng.standard_normal(s.n)
    x = cp.Variable(s.n)
    return 0.5 * cp.sum_squares(x - y) + 20 * cp.norm1(cp.diff(x, 2)), []


@form
def isotonic(s: Data) -> Objective:
    y = np.linspace(0, 3, s.n) + s.rng.standard_normal(s.n)
    x = cp.Variable(s.n)
    return cp.sum_squares(x - y), [cp.diff(x) >= 0]


# -- with a ridge ----------------------------------------------------------------------------------


@form
def svm(s: Data) -> Objective:
    return s.ridge + s.hinge, []


@form
def svm_slacks(s: Data) -> Objective:
    return s.ridge + 0.5 * cp.sum(s.slack), [s.margin >= 1 - s.slack, s.slack >= 0]


@form
def svm_squared(s: Data) -> Objective:
    return s.ridge + cp.sum_squares(cp.pos(1 - s.margin)), []


@form
def ridge_quantile(s: Data) -> Objective:
    return s.ridge + s.pinball(0.5), []


@form
def support_vector_regression(s: Data) -> Objective:
    return s.ridge + cp.sum(cp.pos(cp.abs(s.residual) - 0.3)), []


@form
def squared_hinge_l1(s: Data) -> Objective:
    margin = cp.multiply(s.y, s.X @ s.w)
    return cp.sum_squares(cp.pos(1 - margin)) + 0.1 * s.n * cp.norm1(s.w), []


@form
def crammer_singer(s: Data) -> Objective:
    label = s.rng.integers(0, 3, s.n)
    Y = np.eye(3)[label]
    X = s.X.copy()
    X[:, :3] += 2 * Y
    W = cp.Variable((s.d, 3))
    own = cp.sum(cp.multiply(Y, X @ W), axis=1)
    return 0.5 * cp.sum_squares(W) + 0.1 * cp.sum(cp.max(X @ W + 1 - Y, axis=1) - own), []
