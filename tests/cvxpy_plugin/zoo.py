"""CVXPY problems as people write them, each spelling once, for the tests of the reducer.

`SPELLINGS` are recognised (as what, and for which solvers, each says), `REFUSED` are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy_plugin.data import Data

Maker = Callable[[Data], Any]


@dataclass(frozen=True)
class Spelling:
    """A way to write a problem.

    Attributes
    ----------
    name : str
    make : callable
        From the data to a cvxpy.Problem.
    kind : str
        The loss (or losses) it is recognised as.
    qp : bool
        Whether a solver of quadratic programs takes it.
    """

    name: str
    make: Maker
    kind: str
    qp: bool = True


SPELLINGS: list[Spelling] = []


def spelling(kind: str, *, qp: bool = True) -> Callable[[Maker], Maker]:
    """Enrol a function of the data that returns (objective, constraints)."""

    def enrol(make: Maker) -> Maker:
        def problem(data: Data) -> Any:
            objective, constraints = make(data)
            minimise = isinstance(objective, cp.Maximize)
            return cp.Problem(objective if minimise else cp.Minimize(objective), constraints)

        SPELLINGS.append(Spelling(make.__name__, problem, kind, qp))
        return make

    return enrol


def _plain(name: str, kind: str, make: Maker, *, qp: bool = True) -> None:
    make.__name__ = name
    spelling(kind, qp=qp)(make)


for _name, _kind, _make in [
    ("pos", "hinge", lambda s: s.ridge + s.hinge),
    ("maximum", "hinge", lambda s: s.ridge + 0.7 * cp.sum(cp.maximum(0, 1 - s.margin))),
    ("norm_squared", "hinge", lambda s: 0.5 * cp.norm(s.w, 2) ** 2 + s.hinge),
    ("square_of_norm", "hinge", lambda s: 0.5 * cp.square(cp.norm(s.w)) + s.hinge),
    ("quad_form", "hinge", lambda s: 0.5 * cp.quad_form(s.w, np.eye(s.d)) + s.hinge),
    ("sum_of_squares", "hinge", lambda s: 0.5 * cp.sum(cp.square(s.w)) + s.hinge),
    ("shifted_norm", "hinge", lambda s: 0.5 * cp.sum_squares(s.w - 1) + s.w[0] + 3 + s.hinge),
    ("pnorm", "hinge", lambda s: 0.5 * cp.pnorm(s.w, 2) ** 2 + s.hinge),
    ("quad_over_lin", "hinge", lambda s: 0.5 * cp.quad_over_lin(s.w, 1) + s.hinge),
    ("factor_inside", "hinge", lambda s: s.ridge + cp.sum(cp.pos(3 * (1 - s.margin)))),
    ("maximum_of_pair", "hinge", lambda s: s.ridge + sum(
        cp.max(cp.hstack([0, 1 - s.y[i] * (s.X[i] @ s.w + s.b)])) for i in range(s.n))),
    ("neg", "hinge", lambda s: s.ridge + 20 * cp.mean(cp.neg(s.margin - 1))),
    ("ranking", "hinge", lambda s: s.ridge + cp.sum(
        cp.pos(1 - (s.X - np.roll(s.X, 1, axis=0)) @ s.w))),
    ("one_against_rest", "hinge", lambda s: 0.5 * cp.sum_squares(W := cp.Variable((s.d, 3)))
     + cp.sum(cp.pos(1 - cp.multiply(
         2 * np.eye(3)[np.arange(12) % 3] - 1, s.X[:12] @ W)))),
    ("pinball_scalene", "pinball", lambda s: s.ridge + cp.sum(cp.scalene(s.residual, 0.3, 0.7))),
    ("least_squares_too", "hinge", lambda s: s.ridge + s.hinge + 0.1 * cp.sum_squares(
        s.residual)),
    ("norm1_of_pos", "hinge", lambda s: s.ridge + cp.norm1(cp.pos(1 - s.margin))),
    ("maximum_of_stack", "hinge", lambda s: s.ridge + cp.sum(
        cp.max(cp.vstack([1 - s.margin, np.zeros(s.n)]), axis=0))),
    ("python_sum", "hinge", lambda s: s.ridge + sum(
        cp.pos(1 - s.y[i] * (s.X[i] @ s.w + s.b)) for i in range(s.n))),
    ("class_weights", "hinge", lambda s: s.ridge + np.where(s.y > 0, 2.0, 0.5) @ cp.pos(
        1 - s.margin)),
    ("zero_weights", "hinge", lambda s: s.ridge + (np.arange(s.n) % 3) @ cp.pos(1 - s.margin)),
    ("label_on_rows", "hinge", lambda s: s.ridge + cp.sum(cp.pos(1 - (s.y[:, None] * s.X) @ s.w))),
    ("minus_label", "hinge", lambda s: s.ridge + cp.sum(cp.pos(1 + (-s.y[:, None] * s.X) @ s.w))),
    ("two_matrices", "hinge", lambda s: s.ridge + cp.sum(cp.pos(1 - (s.X[s.y > 0] @ s.w + s.b)))
     + cp.sum(cp.pos(1 + s.X[s.y < 0] @ s.w + s.b))),
    ("different_rows", "hinge", lambda s: s.ridge + cp.sum(
        cp.maximum(s.X @ s.w, s.r - s.X[::-1] @ s.w))),
    ("sparse_data", "hinge", lambda s: cp.sum_squares(v := cp.Variable(9)) + cp.sum(
        cp.pos(1 - cp.multiply(s.y, s.S @ v)))),
    ("squared_hinge", "squared hinge", lambda s: s.ridge + cp.sum_squares(cp.pos(1 - s.margin))),
    ("norm_of_pos", "squared hinge", lambda s: s.ridge + cp.norm(cp.pos(1 - s.margin)) ** 2),
    ("norm1", "absolute", lambda s: s.ridge + cp.norm1(s.residual)),
    ("absolute", "absolute", lambda s: s.ridge + cp.sum(cp.abs(s.residual + s.b))),
    ("pinball_maximum", "pinball", lambda s: s.ridge + cp.sum(
        cp.maximum(0.3 * s.residual, -0.7 * s.residual))),
    ("pinball_pos_neg", "pinball", lambda s: s.ridge + cp.sum(
        0.3 * cp.pos(s.residual) + 0.7 * cp.neg(s.residual))),
    ("pinball_tilted", "pinball", lambda s: s.ridge + cp.sum(
        0.5 * cp.abs(s.residual) + 0.2 * s.residual)),
    ("epsilon_nested", "epsilon-insensitive", lambda s: s.ridge + cp.sum(
        cp.pos(cp.abs(s.residual + s.b) - 0.3))),
    ("epsilon_maximum", "epsilon-insensitive", lambda s: s.ridge + cp.sum(
        cp.maximum(0, s.residual - 0.3, -s.residual - 0.3))),
    ("epsilon_squared", "squared epsilon-insensitive", lambda s: s.ridge + cp.sum_squares(
        cp.pos(cp.abs(s.residual) - 0.3))),
    ("huber", "Huber", lambda s: s.ridge + cp.sum(cp.huber(s.residual, 0.8))),
    ("elastic_net", "hinge", lambda s: s.ridge + 2 * cp.norm1(s.w) + cp.sum(
        cp.pos(1 - cp.multiply(s.y, s.X @ s.w)))),
    ("elastic_norm", "squared hinge", lambda s: s.ridge + 3 * cp.norm(s.w, 1) + cp.sum_squares(
        cp.pos(1 - cp.multiply(s.y, s.X @ s.w)))),
    ("elastic_abs", "Huber", lambda s: s.ridge + 9 * cp.sum(cp.abs(s.w)) + cp.sum(
        cp.huber(s.residual, 0.8))),
    ("elastic_weights", "absolute", lambda s: s.ridge + np.arange(s.d) * 5 @ cp.abs(s.w)
     + cp.norm1(s.residual)),
    ("elastic_two_sided", "epsilon-insensitive", lambda s: s.ridge + cp.sum(
        9 * cp.pos(s.w) + 5 * cp.neg(s.w)) + cp.sum(cp.pos(cp.abs(s.residual) - 0.3))),
    ("lasso", "squared", lambda s: 9 * cp.norm1(s.w) + cp.sum_squares(s.residual)),
    ("lasso_norm", "squared", lambda s: 9 * cp.norm(s.w, 1) + 0.5 * cp.norm(s.residual, 2) ** 2),
    ("lasso_weights", "squared", lambda s: (3 * np.arange(1, s.d + 1)) @ cp.abs(s.w) + cp.sum(
        cp.multiply(1 + np.arange(s.n) % 3, cp.square(s.residual)))),
    ("elastic_squares", "squared", lambda s: s.ridge + 9 * cp.norm1(s.w) + cp.sum_squares(
        s.residual)),
    ("elastic_intercept", "hinge and absolute", lambda s: s.ridge + 2 * cp.norm1(s.w) + s.hinge),
]:
    _plain(_name, _kind, lambda s, make=_make: (make(s), []))

for _name, _kind, _make in [
    ("slack", "hinge", lambda s: (s.ridge + cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0])),
    ("slack_norm", "hinge", lambda s: (
        0.5 * cp.norm(s.w) ** 2 + cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0])),
    ("slack_attribute", "hinge", lambda s: (
        s.ridge + 2 * cp.sum(v := cp.Variable(s.n, nonneg=True)), [s.margin >= 1 - v])),
    ("slack_loop", "hinge", lambda s: (s.ridge + cp.sum(s.xi), [
        *(s.y[i] * (s.X[i] @ s.w + s.b) >= 1 - s.xi[i] for i in range(s.n)), s.xi >= 0])),
    ("slack_scalars", "hinge", lambda s: (
        s.ridge + sum(v := [cp.Variable(nonneg=True) for _ in range(s.n)]),
        [s.y[i] * (s.X[i] @ s.w + s.b) >= 1 - v[i] for i in range(s.n)])),
    ("slack_classes", "hinge", lambda s: (
        s.ridge + cp.sum(u := cp.Variable(int((s.y > 0).sum()), nonneg=True))
        + 2 * cp.sum(v := cp.Variable(int((s.y < 0).sum()), nonneg=True)),
        [s.X[s.y > 0] @ s.w + s.b >= 1 - u, s.X[s.y < 0] @ s.w + s.b <= v - 1])),
    ("slack_smoothed", "smoothed hinge", lambda s: (
        s.ridge + cp.sum(s.xi) + cp.sum_squares(s.zeta),
        [s.margin + s.zeta >= 1 - s.xi, s.xi >= 0])),
    ("slack_twice", "hinge", lambda s: (
        s.ridge + cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0, s.xi >= -1])),
    ("slack_squared", "squared hinge", lambda s: (
        s.ridge + cp.sum_squares(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0])),
    ("slack_squared_free", "squared hinge", lambda s: (s.ridge + cp.sum_squares(s.xi), [
        s.margin >= 1 - s.xi])),
    ("slack_absolute", "absolute", lambda s: (
        s.ridge + cp.sum(s.xi), [s.residual <= s.xi, -s.residual <= s.xi])),
    ("slack_epsilon", "epsilon-insensitive", lambda s: (
        s.ridge + cp.sum(s.xi), [cp.abs(s.residual) <= 0.3 + s.xi, s.xi >= 0])),
    ("slacks_epsilon", "epsilon-insensitive", lambda s: (
        s.ridge + cp.sum(s.xi) + cp.sum(s.zeta),
        [-s.residual <= 0.3 + s.xi, s.residual <= 0.3 + s.zeta, s.xi >= 0, s.zeta >= 0])),
    ("residual_variable", "absolute", lambda s: (s.ridge + cp.norm1(s.xi), [s.xi == s.residual])),
    ("difference", "pinball", lambda s: (
        s.ridge + cp.sum(s.xi) + 2 * cp.sum(s.zeta),
        [s.residual == s.xi - s.zeta, s.xi >= 0, s.zeta >= 0])),
    ("difference_above", "pinball", lambda s: (s.ridge + cp.sum(s.xi + 2 * s.zeta), [
        s.residual == s.xi - s.zeta, s.xi >= 0.1, s.zeta >= 0.2])),
    ("uneven_zone", "epsilon-insensitive", lambda s: (
        s.ridge + cp.norm1(s.residual + s.xi), [s.xi >= -0.2, s.xi <= 0.5])),
    ("defined_cost", "hinge", lambda s: (s.ridge + s.hinge + (r := cp.Variable()), [r == s.b + 3])),
    ("surplus", "hinge", lambda s: (
        s.ridge + cp.sum(s.xi), [s.margin == 1 - s.xi + s.zeta, s.xi >= 0, s.zeta >= 0])),
    ("largest_entry", "hinge", lambda s: (s.ridge + s.hinge, [cp.norm_inf(s.w) <= 0.3])),
    ("nonnegative", "hinge", lambda s: (
        0.5 * cp.sum_squares(v := cp.Variable(s.d, nonneg=True)) + cp.sum(
            cp.pos(1 - cp.multiply(s.y, s.X @ v))), [])),
    ("huber_slacks", "Huber", lambda s: (
        s.ridge + cp.sum_squares(s.zeta) + 2 * cp.norm1(s.xi), [s.residual == s.xi + s.zeta])),
    ("elastic_epigraph", "hinge", lambda s: (
        s.ridge + cp.sum(s.xi) + 2 * cp.sum(t := cp.Variable(s.d)),
        [cp.multiply(s.y, s.X @ s.w) >= 1 - s.xi, s.xi >= 0, -t <= s.w, s.w <= t])),
    ("elastic_nonnegative", "hinge and absolute", lambda s: (
        s.ridge + 2 * cp.norm1(s.w) + s.hinge, [s.w >= -0.1])),
    ("elastic_maximise", "Huber", lambda s: (cp.Maximize(
        -s.ridge - 9 * cp.norm1(s.w) - cp.sum(cp.huber(s.residual, 0.8))), [])),
    ("least_squares", "squared", lambda s: (s.ridge + cp.sum_squares(s.residual), [])),
    ("least_squares_bounds", "squared", lambda s: (
        cp.sum_squares(s.residual + s.b), [s.w >= -0.1, cp.sum(s.w) == 1])),
    ("lasso_intercept", "squared and absolute", lambda s: (
        cp.sum_squares(s.residual + s.b) + 2 * cp.norm1(s.w), [])),
    ("sum_fixed", "hinge", lambda s: (s.ridge + s.hinge, [cp.sum(s.w) == 1])),
    ("bounds", "hinge", lambda s: (s.ridge + s.hinge, [s.w >= -0.2, s.w <= 0.6])),
    ("absolute_bound", "hinge", lambda s: (s.ridge + s.hinge, [cp.abs(s.w) <= 0.5])),
    ("bounded_slack_problem", "hinge", lambda s: (
        s.ridge + cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0, s.w[0] == 0.1, s.w >= -0.2])),
    ("maximise", "hinge", lambda s: (cp.Maximize(-s.ridge - s.hinge), [s.w <= 0.6])),
]:
    _plain(_name, _kind, _make)

for _name, _kind, _make in [
    ("norm_ball", "hinge", lambda s: (s.ridge + s.hinge, [cp.norm(s.w) <= 0.8])),
    ("several_cones", "absolute", lambda s: (
        s.ridge + cp.norm1(s.residual), [cp.norm(s.w) <= 1, cp.sum(s.w) == 0.5, s.w >= -0.3])),
    ("metric", "hinge", lambda s: (
        0.5 * cp.sum_squares(s.kept(m := cp.Variable((3, 3), PSD=True))) + cp.sum(
            cp.pos(1 - s.H.reshape(s.n, -1) @ cp.vec(m, order="F"))) / s.n, [])),
    ("metric_trace", "hinge", lambda s: (
        0.5 * cp.norm(m := cp.Variable((3, 3), symmetric=True), "fro") ** 2
        + sum(cp.pos(1 - cp.trace(s.H[i] @ m)) for i in range(s.n)) / s.n,
        [m >> 0, cp.trace(m) == 1])),
]:
    _plain(_name, _kind, _make, qp=False)


@spelling("hinge")
def parameters(s: Data) -> Any:
    """The textbook form: mean loss plus ``lambd`` times the squared norm."""
    lambd = cp.Parameter(nonneg=True, value=0.1, name="lambd")
    return s.hinge / s.n + lambd * cp.sum_squares(s.w), []


@spelling("squared hinge")
def elastic_parameters(s: Data) -> Any:
    """The weights of both norms as parameters."""
    first, second = (cp.Parameter(nonneg=True, value=value) for value in (3.0, 0.5))
    loss = cp.sum_squares(cp.pos(1 - cp.multiply(s.y, s.X @ s.w)))
    return first * cp.norm1(s.w) + second * cp.sum_squares(s.w) + loss, []


@spelling("hinge")
def data_parameters(s: Data) -> Any:
    """The data themselves as parameters."""
    X, y = cp.Parameter((s.n, s.d), value=s.X), cp.Parameter(s.n, value=s.y)
    return s.ridge + cp.sum(cp.pos(1 - cp.multiply(y, X @ s.w + s.b))), []


@spelling("hinge")
def column_vectors(s: Data) -> Any:
    """Everything of shape (n, 1) and (d, 1)."""
    w, xi = cp.Variable((s.d, 1)), cp.Variable((s.n, 1))
    rows = cp.multiply(s.y[:, None], s.X @ w + s.b) >= 1 - xi
    return 0.5 * cp.norm(w, "fro") ** 2 + cp.sum(xi), [rows, xi >= 0]


@spelling("hinge")
def intercept_in_theta(s: Data) -> Any:
    """The intercept as the last, unpenalised entry of one vector."""
    theta = cp.Variable(s.d + 1)
    X = np.column_stack([s.X, np.ones(s.n)])
    return 0.5 * cp.sum_squares(theta[:-1]) + cp.sum(cp.pos(1 - cp.multiply(s.y, X @ theta))), []


def _cut(make: Maker) -> Callable[[], Any]:
    return lambda: make(Data())


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    name: (_cut(lambda s, make=make: cp.Problem(cp.Minimize(make(s)[0]), make(s)[1])), words)
    for name, make, words in [
        ("budget", lambda s: (s.ridge, [s.margin >= 1 - s.xi, s.xi >= 0, cp.sum(s.xi) <= 5]),
         "variable xi has no cost but a shared budget"),
        ("budget_and_cost", lambda s: (
            s.ridge + cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0, cp.sum(s.xi) <= 5]),
         "variable xi is shared or bounded from above in the constraint"),
        ("logistic", lambda s: (s.ridge + cp.sum(cp.logistic(-s.margin)), []), "logistic"),
        ("three_rows", lambda s: (s.ridge + cp.sum(
            cp.maximum(s.X @ s.w, s.r - s.X[::-1] @ s.w, 0)), []), "different data"),
        ("integers", lambda s: (
            cp.sum_squares(s.whole) + cp.sum(cp.pos(1 - s.X @ s.whole)), []),
         "integer"),
        ("not_dcp", lambda s: (s.hinge - s.ridge, []), "DCP"),
    ]
}
