"""Losses that users write with slack variables: read as they stand, or left to the cone form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.constraint_forms import in_two_forms
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import Slack, SplitSlack, read_losses
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

N, P = 120, 4
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
rng = np.random.default_rng(20)
X = rng.standard_normal((N, P))
y = np.sign(X[:, 0] + rng.standard_normal(N))
target = X @ rng.standard_normal(P) + rng.standard_normal(N)
weights = rng.uniform(0.5, 2.0, N)

Form = tuple[Any, list[Any]]


class Variables:
    """The variables of one problem, made anew for each."""

    def __init__(self) -> None:
        self.w, self.b = cp.Variable(P, name="w"), cp.Variable(name="b")
        self.xi, self.u, self.v = (cp.Variable(N, name=name) for name in ("xi", "u", "v"))
        self.pos = cp.Variable(N, nonneg=True, name="pos")
        self.margin = cp.multiply(y, X @ self.w + self.b)
        self.residual = target - X @ self.w - self.b
        self.ridge = 0.5 * cp.sum_squares(self.w)


def minimise(*parts: Any) -> Any:
    return cp.Minimize(sum(parts[1:], parts[0]))


TAKEN: dict[str, Callable[[Variables], Form]] = {
    "hinge": lambda s: (
        minimise(s.ridge, 2.0 * cp.sum(s.xi)), [s.xi >= 0, s.xi >= 1 - s.margin]),
    "hinge, margin first": lambda s: (
        minimise(s.ridge, cp.sum(s.xi) / N), [s.margin >= 1 - s.xi, s.xi >= 0]),
    "hinge, sum on the left": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.margin + s.xi >= 1, -s.xi <= 0]),
    "hinge, a non-negative slack": lambda s: (
        minimise(s.ridge, weights @ s.pos), [s.margin >= 1 - s.pos]),
    "hinge, weighted": lambda s: (
        minimise(s.ridge, cp.sum(cp.multiply(weights, s.xi))),
        [s.xi >= 1 - s.margin, s.xi >= 0]),
    "hinge, a maximisation": lambda s: (
        cp.Maximize(-s.ridge - cp.sum(s.xi)), [s.xi >= 0, s.xi >= 1 - s.margin]),
    "hinge as one bound": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [cp.pos(1 - s.margin) <= s.xi]),
    "hinge with bounds that cannot bind": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, s.xi >= -1, s.xi >= 1 - s.margin]),
    "absolute value": lambda s: (minimise(s.ridge, cp.sum(s.xi)), [cp.abs(s.residual) <= s.xi]),
    "absolute value in two bounds": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.residual <= s.xi, -s.xi <= s.residual]),
    "tube": lambda s: (
        minimise(s.ridge, cp.sum(s.u + s.v)),
        [s.u >= 0, s.v >= 0, s.residual <= 0.3 + s.u, -s.residual <= 0.3 + s.v]),
    "tube with one slack": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= cp.abs(s.residual) - 0.3, s.xi >= 0]),
    "tube with other costs": lambda s: (
        minimise(s.ridge, 0.7 * cp.sum(s.u), 0.2 * cp.sum(s.v)),
        [s.u >= 0, s.v >= 0, s.residual <= 0.3 + s.u, -s.residual <= 0.3 + s.v]),
    "pinball in two bounds": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0.8 * s.residual, s.xi >= -0.2 * s.residual]),
    "hinge beside a constraint": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.xi >= 0, s.xi >= 1 - s.margin, cp.sum(s.w) == 0.1, s.w[0] >= 0]),
    "hinge beside another slack": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), 0.1 * cp.sum(s.u)),
        [s.xi >= 0, s.xi >= 1 - s.margin, cp.abs(s.residual) <= s.u]),
    "squared hinge": lambda s: (
        minimise(s.ridge, 0.7 * cp.sum_squares(s.xi)), [s.xi >= 1 - s.margin]),
    "squared hinge with its zero": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi) / N), [s.xi >= 0, s.margin >= 1 - s.xi]),
    "squared hinge, a non-negative slack": lambda s: (
        minimise(s.ridge, cp.quad_over_lin(s.pos, 3.0)), [s.pos >= 1 - s.margin]),
    "squared hinge, weighted": lambda s: (
        minimise(s.ridge, weights @ cp.square(s.xi), 0.5 * cp.sum(s.xi**2)),
        [s.xi >= 1 - s.margin, s.xi >= -2]),
    "squared hinge, a maximisation": lambda s: (
        cp.Maximize(-s.ridge - cp.sum_squares(s.xi)), [s.xi >= 1 - s.margin]),
    "squared hinge, the other way": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi >= 2.0 * s.residual - 0.1]),
    "squared tube with one slack": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)),
        [s.residual <= 0.3 + s.xi, -s.residual <= 0.3 + s.xi]),
    "squared distance": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [cp.abs(s.residual) <= s.xi]),
    "squared and linear slacks": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 0.3 * cp.sum_squares(s.xi)),
        [s.u >= 0, s.u >= 1 - s.margin, s.xi >= s.residual]),
    "parts of a residual": lambda s: (
        minimise(s.ridge, cp.sum(0.3 * s.u + 0.7 * s.v)),
        [X @ s.w + s.b + s.u - s.v == target, s.u >= 0, -s.v <= 0]),
    "parts of a residual, non-negative": lambda s: (
        minimise(s.ridge, 0.2 * cp.sum(s.pos), 0.9 * cp.sum(s.v)),
        [s.residual == s.pos - s.v, -s.v <= 0]),
    "parts of a residual, the other way": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 0.2 * cp.sum(s.v)),
        [s.residual - s.v == -s.u, s.u >= 0, s.v >= 0]),
    "parts of a residual, on one side": lambda s: (
        minimise(s.ridge, weights @ (s.u + s.v)),
        [target - (X @ s.w + (s.u - s.v)) - s.b == 0, s.u >= 0, s.v >= 0]),
    "parts of a residual, weighted": lambda s: (
        cp.Maximize(-weights @ s.u - weights[::-1] @ s.v - s.ridge),
        [s.u >= 0, s.v >= 0, s.residual[::-1] == s.u - s.v, cp.sum(s.w) == 0.1]),
    "twice the slack": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, 2 * s.xi >= 1 - s.margin]),
    "all on another scale": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.residual * 50 <= s.xi * cp.Constant(50), -s.xi / 0.02 <= 50 * s.residual]),
    "squares on another scale": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.pos)), [0.3 * (1 - s.margin) + -s.pos * 0.3 <= 0]),
    "parts, one without a cost": lambda s: (
        minimise(s.ridge, cp.sum(s.u)), [s.margin == 1 - s.u + s.v, s.u >= 0, s.v >= 0]),
    "parts, one squared and one without a cost": lambda s: (
        minimise(s.ridge, 0.7 * cp.sum_squares(s.v)),
        [s.margin - 1 - s.pos + s.v == 0, s.v >= 0]),
    "parts, the other squared": lambda s: (
        minimise(s.ridge, weights @ cp.square(s.u)),
        [1 - s.margin == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts of a margin": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 0.0 * cp.sum(s.v)),
        [s.u >= 0, s.v >= 0, s.u - s.v == 1 - s.margin]),
    "parts of a residual beside another slack": lambda s: (
        minimise(s.ridge, cp.sum(s.u + s.v), 0.5 * cp.sum(s.xi)),
        [s.u >= 0, s.v >= 0, s.residual == s.u - s.v, s.xi >= 1 - s.margin, s.xi >= 0]),
    "parts, both squared": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), 3.0 * cp.sum_squares(s.v)),
        [-s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, both squared alike": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, squares weighted": lambda s: (
        cp.Maximize(-weights @ cp.square(s.pos) - cp.quad_over_lin(s.v, 0.4) - s.ridge),
        [s.residual - s.pos + s.v == 0, -s.v <= 0, s.w >= -1, cp.sum(s.w) == 0.1]),
    "parts, squares of multiples": lambda s: (
        minimise(s.ridge, cp.sum_squares(-2 * s.u), cp.sum(cp.square(cp.multiply(weights, s.v)))),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, one doubled": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == 2 * s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, squared and multiplied": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), cp.sum_squares(s.v), 0.3 * cp.sum(s.v)),
        [s.v / 3 + s.residual == 0.5 * s.u, s.u >= 0, s.v >= 0]),
    "parts, their difference multiplied": lambda s: (
        minimise(s.ridge, 0.3 * cp.sum_squares(s.u), cp.sum_squares(s.v)),
        [-2 * (s.u - s.v) - s.residual == 0, s.u >= 0, s.v >= 0]),
    "parts, one squared": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v), cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, a line and a square": lambda s: (
        minimise(s.ridge, 0.4 * cp.sum(s.u), 0.2 * cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, lines and squares": lambda s: (
        minimise(s.ridge, weights @ (s.u + 0.5 * s.v), cp.sum(0.1 * s.u**2 + 0.4 * s.v**2)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "squared as well": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), 0.1 * cp.sum_squares(s.xi)),
        [s.xi >= 0, s.xi >= 1 - s.margin]),
    "squared as well, on another scale": lambda s: (
        minimise(s.ridge, cp.sum(s.pos), weights @ cp.square(s.pos)),
        [3 * s.pos >= 1 - s.margin]),
    "squared as well, without a floor": lambda s: (
        minimise(s.ridge, 0.3 * cp.sum(s.xi), cp.sum_squares(s.xi)),
        [s.xi >= s.residual, -s.residual <= s.xi]),
    "squares in two bounds": lambda s: (
        minimise(s.ridge, 0.7 * cp.sum(s.u), cp.sum_squares(s.u), 0.2 * cp.sum_squares(s.v)),
        [s.u >= 0, s.residual <= 0.1 + s.u, -s.residual <= 0.3 + s.v]),
    "a form as squares": lambda s: (
        minimise(s.ridge, 0.5 * cp.quad_form(s.xi, np.eye(N))), [s.xi >= 1 - s.margin]),
    "a sparse form with weights as squares": lambda s: (
        minimise(s.ridge, cp.quad_form(2 * s.u, sp.diags_array(weights)), cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "a wrapped form as squares": lambda s: (
        minimise(s.ridge, cp.quad_form(s.pos, cp.psd_wrap(3.0 * np.eye(N))), cp.sum(s.pos)),
        [s.pos >= 1 - s.margin]),
    "constraints as objects": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [cp.NonNeg(s.xi), cp.NonNeg(s.margin + s.xi - 1)]),
    "constraints as objects, of the other sign": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [cp.NonPos(-s.xi), cp.NonPos(1 - s.margin - s.xi)]),
    "parts of a residual in objects": lambda s: (
        minimise(s.ridge, cp.sum(0.3 * s.u + 0.7 * s.v)),
        [cp.Zero(s.residual - s.u + s.v), cp.NonNeg(s.u), cp.NonPos(-s.v)]),
    "parts of a residual in an object, the other way": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 0.2 * cp.sum_squares(s.v)),
        [cp.Zero(s.u - s.v - s.residual), cp.NonNeg(3 * s.u), cp.NonNeg(s.v / 2)]),
    "parts with multiples of their bounds": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 0.2 * cp.sum(s.v)),
        [s.residual == s.u - s.v, 2 * s.u >= 0, -s.v / 3 <= 0]),
    "slacks side by side in the costs": lambda s: (
        minimise(s.ridge, cp.sum(cp.hstack([s.u, 0.4 * s.v]))),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "slacks above each other in the costs": lambda s: (
        minimise(s.ridge, cp.sum_squares(cp.vstack([s.u, 0.4 * s.v]))),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "slacks side by side in a bound": lambda s: (
        minimise(s.ridge, weights @ (s.u + s.v)),
        [s.residual == s.u - s.v, cp.hstack([s.u, s.v]) >= 0]),
    "slacks above each other in bounds": lambda s: (
        minimise(s.ridge, 0.7 * cp.sum(s.u), 0.2 * cp.sum(s.v)),
        [cp.NonNeg(cp.vstack([s.u, s.v])),
         -cp.vstack([s.u, s.v]) <= cp.vstack([0.3 - s.residual, 0.3 + s.residual])]),
    "slacks above each other over numbers": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), cp.sum(s.u)),
        [cp.hstack([s.margin + s.xi, 2 * s.u + s.residual]) >= np.r_[np.ones(N), weights],
         cp.vstack([s.xi, s.u]) >= 0]),
}

LEFT: dict[str, Callable[[Variables], Form]] = {
    "bounded above": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, s.xi <= 50, s.xi >= 1 - s.margin]),
    "bounded above by an attribute": lambda s: (
        minimise(s.ridge, cp.sum(s.u)), [s.u >= 0, s.u >= 1 - s.margin, cp.max(s.u) <= 50]),
    "a budget": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.xi >= 0, s.xi >= 1 - s.margin, cp.sum(s.xi) <= 1e4]),
    "one entry held twice": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, s.xi >= 1 - s.margin, s.xi[3] >= 0.5]),
    "some entries only": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.xi >= -1, s.xi[: N // 2] >= 0, s.xi >= 1 - s.margin, s.xi[N // 2 :] >= 0]),
    "a weight of zero": lambda s: (
        minimise(s.ridge, np.r_[0.0, weights[1:]] @ s.xi), [s.xi >= 0, s.xi >= 1 - s.margin]),
    "the wrong side": lambda s: (
        cp.Minimize(s.ridge - cp.sum(s.xi)), [s.xi <= 0, s.xi <= s.margin - 1]),
    "slacks on other scales": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, cp.multiply(weights, s.xi) >= 1 - s.margin]),
    "a scaled slack on the wrong side": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, -2 * s.xi >= s.margin - 1 - 50]),
    "another order": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)), [s.xi >= 0, s.xi[::-1] >= 1 - s.margin]),
    "one slack for all": lambda s: (
        minimise(s.ridge, 5.0 * s.b, cp.sum(cp.pos(1 - cp.multiply(y, X @ s.w)))),
        [s.b >= target - X @ s.w]),
    "two slacks in one bound": lambda s: (
        minimise(s.ridge, cp.sum(s.u), 2.0 * cp.sum(s.v)),
        [s.u >= 0, s.v >= 0, s.u + s.v >= 1 - s.margin]),
    "shared with a coordinate": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.xi >= 0, s.xi >= 1 - s.margin, s.xi >= cp.sum(s.xi) / N - 2.0]),
    "unlike kinks": lambda s: (
        minimise(s.ridge, cp.sum(s.xi)),
        [s.xi >= 0, s.xi >= cp.abs(s.residual) - np.where(np.arange(N) < 9, 0.0, 0.3)]),
    "in another loss": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), cp.sum(cp.pos(X[:, :1] @ s.xi[:1] - 1))),
        [s.xi >= 0, s.xi >= 1 - s.margin]),
    "squared, above a floor": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi >= 0.2, s.xi >= 1 - s.margin]),
    "squared, above some floors": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)),
        [s.xi >= np.where(np.arange(N) < 9, 0.4, 0.0), s.xi >= 1 - s.margin]),
    "squared, the wrong side": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi <= s.margin - 1]),
    "squared, two slopes": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)),
        [s.xi >= 2 * s.residual - 0.1, s.xi >= -s.residual - 0.1]),
    "squared, bounded above": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi <= 50, s.xi >= 1 - s.margin]),
    "squared, one entry held twice": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi >= 1 - s.margin, s.xi[3] >= 0.5]),
    "squared, two slacks in one bound": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi), 2.0 * cp.sum_squares(s.u)),
        [s.u + s.xi >= 1 - s.margin]),
    "squared, some entries": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi[:60]), 2.0 * cp.sum_squares(s.xi[60:])),
        [s.xi >= 1 - s.margin]),
    "squared, a shifted square": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi + 1)), [s.xi >= 1 - s.margin]),
    "squared, in an equality": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.xi)), [s.xi == 1 - s.margin]),
    "parts, of one sign": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual + 50.0 == s.u + s.v, s.u >= 0, s.v >= 0]),
    "parts, without a cost and shared": lambda s: (
        minimise(s.ridge, cp.sum(s.u)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0, s.v[0] + s.v[1] <= 5.0]),
    "parts, without a cost and a floor": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u)), [s.residual == s.u - s.v, s.u >= 0]),
    "parts, some without a cost": lambda s: (
        minimise(s.ridge, np.r_[0.0, weights[1:]] @ (s.u + s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, one with a gain": lambda s: (
        minimise(s.ridge, cp.sum(s.u), -0.1 * cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0, s.b == 0.5]),
    "parts, one with another floor": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0.1]),
    "parts, one bounded above": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0, s.v <= 50]),
    "parts, one held twice": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0, s.u[3] <= 0.2]),
    "parts, one in another order as well": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == s.u - s.v + 0.1 * s.u[::-1], s.u >= 0, s.v >= 0]),
    "three parts": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v), 2.0 * cp.sum(s.pos)),
        [s.residual == s.u - s.v + s.pos, s.u >= 0, s.v >= 0]),
    "parts, squared, without floors": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), 3.0 * cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0]),
    "parts, squared, some without a cost": lambda s: (
        minimise(s.ridge, np.r_[0.0, weights[1:]] @ cp.square(s.u), cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, squared, one with a gain": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), 2.0 * cp.sum_squares(s.v), -0.1 * cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, the square of their sum": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u + s.v), cp.sum_squares(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]),
    "parts, of one sign, multiplied": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), cp.sum_squares(s.v)),
        [s.residual + 50.0 == 2 * (s.u + s.v), s.u >= 0, s.v >= 0]),
    "parts, multiplied by vectors": lambda s: (
        minimise(s.ridge, cp.sum_squares(s.u), cp.sum_squares(s.v)),
        [s.residual == cp.multiply(weights, s.u) - s.v, s.u >= 0, s.v >= 0]),
    "squared as well, without its floor": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), 0.1 * cp.sum_squares(s.xi)), [s.xi >= 1 - s.margin]),
    "squared as well, a lower floor": lambda s: (
        minimise(s.ridge, cp.sum(s.xi), 0.1 * cp.sum_squares(s.xi)),
        [s.xi >= -1, s.xi >= 1 - s.margin]),
    "a form that is more than squares": lambda s: (
        minimise(s.ridge, cp.quad_form(s.xi, np.eye(N) + 0.3 * np.eye(N)[::-1])),
        [s.xi >= 1 - s.margin]),
    "a form without some of the squares": lambda s: (
        minimise(s.ridge, cp.quad_form(s.xi, np.diag(np.r_[0.0, weights[1:]]))),
        [s.xi >= 0, s.xi >= 1 - s.margin]),
    "parts in two equalities": lambda s: (
        minimise(s.ridge, cp.sum(s.u), cp.sum(s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0, s.u[:2] == s.v[:2]]),
}


def slacks(problem: Any) -> list[str]:
    found = [group.slack for group in read_losses(in_two_forms(problem)[0]) if group.slack]
    return [variable.name() for slack in found for variable in slack.variables]


def compared(make: Callable[[Variables], Form], unique: tuple[str, ...], **options: Any) -> None:
    """Solve a problem with and without screening; everything that is unique must agree."""
    problem, plain = (cp.Problem(*make(Variables())) for _ in range(2))
    problem.solve(method="screen", tol=1e-10, **options)
    plain.solve(solver="CLARABEL", **TIGHT)
    assert problem.status == plain.status == cp.OPTIMAL
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    ours, theirs = ({v.name(): v.value for v in p.variables()} for p in (problem, plain))
    for name in unique:
        if name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-4)
    for mine, other in zip(problem.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-8
        assert np.shape(mine.dual_value) == np.shape(other.dual_value)
        np.testing.assert_allclose(mine.dual_value, other.dual_value, atol=2e-3)


@pytest.mark.table
@pytest.mark.filterwarnings("ignore:\\s*Explicitly invoking:Warning")  # of cp.NonPos, by CVXPY
@pytest.mark.parametrize("name", TAKEN)
def test_forms_that_are_read_as_they_stand(name: str) -> None:
    made = cp.Problem(*TAKEN[name](Variables()))
    assert slacks(made)
    recognition = recognise(made)
    assert len(recognition.core) == P + 1
    compared(TAKEN[name], ("w", "xi", "u", "v", "pos"), solver="builtin")


@pytest.mark.table
@pytest.mark.parametrize("name", LEFT)
def test_near_misses_are_left_to_the_cone_form(name: str) -> None:
    assert not slacks(cp.Problem(*LEFT[name](Variables())))
    partly = ("a weight of zero", "a form without some of the squares")
    unique = ("w",) if name in partly else ("w", "xi")
    compared(LEFT[name], unique, solver="CLARABEL", **TIGHT)


def test_other_powers_are_no_squares() -> None:
    s = Variables()
    for norm in (cp.norm(s.pos, 3), cp.norm1(s.pos)):
        assert not slacks(cp.Problem(minimise(s.ridge, norm**2), [s.pos >= 1 - s.margin]))
    for power in (1.5, 3, 4):
        cost = cp.sum(cp.power(s.pos, power))
        assert not slacks(cp.Problem(minimise(s.ridge, cost), [s.pos >= 1 - s.margin]))


def test_squared_norms_are_squares() -> None:
    s = Variables()
    parted = [s.residual == s.u - s.v, s.u >= 0, s.v >= 0]
    norms = cp.Problem(
        minimise(s.ridge, 2.0 * cp.norm(s.u) ** 2, cp.square(cp.norm(s.v / 3.0))), parted)
    squares = cp.Problem(
        minimise(s.ridge, 2.0 * cp.sum_squares(s.u), cp.sum_squares(s.v) / 9.0), parted)
    assert len(slacks(norms)) == 4
    for ours, other in zip(read_losses(norms), read_losses(squares), strict=True):
        np.testing.assert_allclose(ours.weight, other.weight)
    value = norms.solve(method="screen", solver="builtin")
    assert value == pytest.approx(squares.solve(solver="CLARABEL"), rel=1e-7)


def test_numbers_in_parameters() -> None:
    """Costs, kinks and data that are parameters: each solve is of their present values."""
    s = Variables()
    C, eps, labels = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True), cp.Parameter(N)
    tube = cp.Problem(
        minimise(s.ridge, C * cp.sum(s.u + s.v)),
        [s.u >= 0, s.v >= 0, s.residual <= eps + s.u, -s.residual <= eps + s.v])
    hinge = cp.Problem(
        minimise(s.ridge, C * cp.sum(s.xi)),
        [s.xi >= 0, s.xi >= 1 - cp.multiply(labels, X @ s.w + s.b)])
    squared = cp.Problem(
        minimise(s.ridge, C * cp.sum_squares(s.xi)),
        [s.residual <= eps + s.xi, -s.residual <= eps + s.xi])
    expectile = cp.Problem(
        minimise(s.ridge, C * cp.sum_squares(s.u), cp.sum_squares(s.v), eps * cp.sum(s.u + s.v)),
        [s.u >= 0, s.v >= 0, s.residual == s.u - s.v])
    labels.value = y
    steps = ((1.0, 0.3, 1.0), (2.0, 0.3, 1.0), (2.0, 0.1, -1.0), (0.0, 0.1, 1.0), (1.0, 0.0, 1.0))
    for C.value, eps.value, sign in steps:
        labels.value = sign * y
        for problem in (tube, hinge, squared, expectile):
            problem.solve(method="screen", tol=1e-9, solver="builtin")
            value, duals = problem.value, [c.dual_value for c in problem.constraints]
            assert value == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), abs=1e-6)
            for ours, constraint in zip(duals, problem.constraints, strict=True):
                if eps.value == 0.0:  # then two bounds of one kink share its multiplier anyhow
                    continue
                np.testing.assert_allclose(ours, constraint.dual_value, atol=2e-3)


def test_a_matrix_of_slacks() -> None:
    W, Xi = cp.Variable((P, 3)), cp.Variable((N, 3))
    Y = np.sign(rng.standard_normal((N, 3)))
    problem = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(W) + cp.sum(Xi)),
        [Xi >= 0, Xi >= 1 - cp.multiply(Y, X @ W)])
    assert len(slacks(problem)) == 1
    problem.solve(method="screen", tol=1e-10)
    value, Z, dual = problem.value, Xi.value, problem.constraints[1].dual_value
    assert value == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
    np.testing.assert_allclose(Z, Xi.value, atol=1e-5)
    np.testing.assert_allclose(dual, problem.constraints[1].dual_value, atol=1e-4)


def test_matrices_of_slacks_that_are_turned() -> None:
    """In a bound, an equation and the costs, and as rows: dual values are of the user's shapes."""
    W, U, V = cp.Variable((P, 2)), cp.Variable((N, 2)), cp.Variable((N, 2))
    Y = X @ rng.standard_normal((P, 2)) + rng.standard_normal((N, 2))
    cost = cp.sum(cp.multiply(np.c_[weights, weights[::-1]].T, U.T)) + 0.3 * cp.sum(V.T)
    problem = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(W) + cost),
        [(Y - X @ W).T == U.T - V.T, U.T >= 0, cp.NonNeg(2 * V.T)])
    assert len(slacks(problem)) == 2
    assert len(recognise(problem).core) == 2 * P
    row, u = cp.Variable((1, P)), cp.Variable((N, 1))
    rows = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(row) + cp.sum(u)),
        [cp.multiply(y[None, :], row @ X.T) + u.T >= 1, cp.transpose(u) * 2 >= 0])
    assert len(slacks(rows)) == 1
    for made in (problem, rows):
        made.solve(method="screen", tol=1e-10, solver="builtin")
        value, duals = made.value, [c.dual_value for c in made.constraints]
        values = [v.value for v in made.variables()]
        assert value == pytest.approx(made.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
        for ours, constraint in zip(duals, made.constraints, strict=True):
            assert ours.shape == constraint.shape
            np.testing.assert_allclose(ours, constraint.dual_value, atol=1e-3)
        for one, variable in zip(values, made.variables(), strict=True):
            np.testing.assert_allclose(one, variable.value, atol=1e-4)


def test_matrices_that_part_residuals() -> None:
    """Costs by column and by row, summed along an axis; each entry has its own."""
    W, U, V = cp.Variable((P, 3)), cp.Variable((N, 3)), cp.Variable((N, 3), nonneg=True)
    Y = X @ rng.standard_normal((P, 3)) + rng.standard_normal((N, 3))
    cost = np.array([1.0, 2.0, 0.5]) @ cp.sum(cp.square(U), axis=0)
    rows = weights @ cp.sum(V, axis=1, keepdims=True)
    for more in (cp.sum(rows), 0.3 * cp.sum_squares(V) + cp.sum(rows)):
        problem = cp.Problem(
            cp.Minimize(0.5 * cp.sum_squares(W) + cost + more), [Y == X @ W + U - V, U >= 0])
        assert len(slacks(problem)) > 2
        problem.solve(method="screen", tol=1e-10, solver="builtin")
        value, parts = problem.value, (W.value, U.value, V.value)
        duals = [constraint.dual_value for constraint in problem.constraints]
        assert value == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
        for ours, variable in zip(parts, (W, U, V), strict=True):
            np.testing.assert_allclose(ours, variable.value, atol=1e-4)
        for ours, constraint in zip(duals, problem.constraints, strict=True):
            np.testing.assert_allclose(ours, constraint.dual_value, atol=2e-3)


def test_multipliers_are_shares_of_the_slope() -> None:
    """They are not negative, sum to the cost, and give the slope of the loss, on all its pieces."""
    t, c = np.linspace(-3.0, 3.0, 13), np.linspace(1.0, 2.0, 13)
    made = [cp.Variable(13) >= 0 for _ in range(3)]
    lines = ((0, 1.0, -0.5), (1, 0.0, 0.0), (2, -1.0, -0.5))
    slack = Slack(cp.Variable(13), tuple(made), lines, np.array([[2], [1], [0]]), (1.0,) * 3)
    for slope in (-c, -0.3 * c, 0.0 * c, 0.6 * c, c):
        shares = np.array(list(slack.multipliers(slope, c).values()))
        assert (shares >= 0).all()
        np.testing.assert_allclose(shares.sum(axis=0), c)
        np.testing.assert_allclose(shares[0] - shares[2], slope, atol=1e-15)
    np.testing.assert_allclose(slack.bound(t), np.maximum(np.abs(t) - 0.5, 0.0))


def test_multipliers_of_squares_are_their_slopes() -> None:
    """``sum_k lambda_k = 2 c xi`` and ``sum_k lambda_k s_k = slope`` with ``s = -2, 0, 2``."""
    t, c = np.linspace(-3.0, 3.0, 13), np.linspace(1.0, 2.0, 13)
    made = [cp.Variable(13) >= 0 for _ in range(2)]
    lines = ((-1, 0.0, 0.0), (0, 2.0, -0.5), (1, -2.0, -0.5))
    active = np.array([[2], [0], [1]])
    slack = Slack(cp.Variable(13), tuple(made), lines, active, (1.0, 4.0), squared=True)
    xi = slack.bound(t)
    shares = np.array(list(slack.multipliers(4.0 * c * xi * np.sign(t), c).values()))
    np.testing.assert_allclose(shares[0], np.where(t > 0, 2.0 * c * xi, 0.0))
    np.testing.assert_allclose(4.0 * shares[1], np.where(t < 0, 2.0 * c * xi, 0.0))


def test_multipliers_of_parts_of_a_residual() -> None:
    """``c_u - lambda`` and ``c_v + lambda`` for the bounds, if the equality is t = u - v."""
    t, c = np.linspace(-3.0, 3.0, 13), np.linspace(1.0, 2.0, 13)
    u, v = cp.Variable(13), cp.Variable(13)
    made = (t == u - v, u >= 0, v >= 0, v >= -0.0)
    slack = SplitSlack((u, v), made, (-1, 0, 1, 1), 4 * (1.0,), -1.0, (0.25, 0.75))
    slope = np.where(t > 0, 0.25 * c, -0.75 * c)
    equality, first, second, more = slack.multipliers(slope, c).values()
    np.testing.assert_allclose(equality, slope)
    np.testing.assert_allclose(first, np.where(t > 0, 0.0, c))
    np.testing.assert_allclose(second, np.where(t > 0, c, 0.0))
    assert not more.any()
    u.value, v.value = slack.values(t)
    for constraint, excess in zip(made, slack.excesses(t), strict=True):
        np.testing.assert_allclose(constraint.args[0].value - constraint.args[1].value, excess)


def test_multipliers_of_parts_add_up() -> None:
    """Of ``c_u u + d_u u^2 + d_v v^2`` with ``2 u - v/2 = t``: what each part costs at the margin
    less what the equality pays for it."""
    t, c = np.linspace(-3.0, 3.0, 13), np.linspace(1.0, 2.0, 13)
    u, v = cp.Variable(13), cp.Variable(13)
    made, factors = (2 * u - v / 2 == t, u >= 0, v >= 0), (2.0, 0.5)
    first = SplitSlack((u, v), made, (-1, 0, 1), 3 * (1.0,), 1.0, (1.0, 0.0), factors)
    second = SplitSlack((u, v), made, (-1, 0, 1), 3 * (1.0,), 1.0, (0.0, 0.0), factors)
    u.value, v.value = first.values(t)
    assert max(constraint.violation().max() for constraint in made) <= 1e-15
    line, square = np.where(t > 0, c, 0.0), np.where(t > 0, 3.0 * t, 5.0 * t)
    found = [list(part.multipliers(slope, c).values())
             for part, slope in ((first, line), (second, square))]
    equality, of_u, of_v = (sum(pair) for pair in zip(*found, strict=True))
    np.testing.assert_allclose(equality, -(line + square))
    marginal = np.where(t > 0, 2.0 * (c + 3.0 * t), 2.0 * c), np.where(t < 0, -0.5 * 5.0 * t, 0.0)
    np.testing.assert_allclose(of_u, marginal[0] + 2.0 * equality, atol=1e-14)
    np.testing.assert_allclose(of_v, marginal[1] - 0.5 * equality, atol=1e-14)


def test_parts_that_may_be_negative_are_left() -> None:
    """Their problem is unbounded below, or infeasible for another reason: CVXPY says which."""
    s = Variables()
    for bounds in ([], [s.u >= 0], [s.u >= 0, s.v <= 0]):
        made = cp.Problem(
            minimise(s.ridge, cp.sum(s.u + s.v)), [s.residual == s.u - s.v, *bounds])
        assert not slacks(made)
    with_reason = cp.Problem(made.objective, made.constraints[:2])
    with_reason.solve(method="screen")
    assert with_reason.status == cp.UNBOUNDED


def test_a_weight_that_is_a_parameter_only_rescales() -> None:
    """Its shares in the two costs are rounded; another weight is no other loss for that."""
    s, C = Variables(), cp.Parameter(nonneg=True)
    made = cp.Problem(
        minimise(s.ridge, C * cp.sum(0.3 * s.u + 0.7 * s.v)),
        [s.residual == s.u - s.v, s.u >= 0, s.v >= 0])
    C.value = 0.7
    first = read_losses(made)[0]
    for C.value in (0.1, 1.3, 2.7):
        np.testing.assert_allclose(first.factor(read_losses(made)[0]), C.value / 0.7)
    C.value = 0.7
    tilted = replace(first, numbers=(*first.numbers[:4], first.numbers[4] * (1.0 + 1e-14)))
    assert first.factor(tilted) is None


def test_a_misread_equality_is_refused() -> None:
    s = Variables()
    recognition = recognise(cp.Problem(*TAKEN["parts of a residual"](s)))
    slack = next(recognition.standard.slacks())[1]
    object.__setattr__(slack, "owners", (0, -1, 1))
    with pytest.raises(NotScreenable, match="no bound of a slack variable"):
        check(recognition)


def test_a_misread_bound_is_refused() -> None:
    """The check compares every constraint with what was read of it."""
    s = Variables()
    recognition = recognise(cp.Problem(*TAKEN["hinge"](s)))
    slack = next(recognition.standard.slacks())[1]
    owners = [line[0] for line in slack.lines]
    other = tuple((k, *line[1:]) for k, line in zip(owners[::-1], slack.lines, strict=True))
    object.__setattr__(slack, "lines", other)
    with pytest.raises(NotScreenable, match="no bound of a slack variable"):
        check(recognition)
