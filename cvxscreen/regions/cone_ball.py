"""A ball cut by the cone of metrics: the semidefinite and the exact non-negative rule.

Yoshida et al. 2019, section 4.2 and 6.2, in corrected form. For every N in the (self-dual) cone and
every X in the ball and the cone, ``<H, X> >= <H - N, Q> - r |H - N|``; N is searched in floating
point and what it proves evaluated with its rounding, so stopping anywhere is safe. The search aims
at the thresholds of the losses, so an interval is tightened where that can decide its term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.cone_loops import cone_loops
from cvxscreen.designs.pairs import Pairs
from cvxscreen.problem import Problem
from cvxscreen.regions.ball import Ball
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class ConeBall:
    """A ball of a metric learning problem, cut by the problem's cone.

    Attributes
    ----------
    ball : Ball
    """

    ball: Ball

    @property
    def problem(self) -> Problem:
        """The problem whose optimum is inside."""
        return self.ball.problem

    @property
    def bound(self) -> str:
        """The ball's name, with the cone."""
        return f"{self.ball.bound}+cone"

    @property
    def radius(self) -> float:
        """Of the ball."""
        return self.ball.radius

    @property
    def gap(self) -> float:
        """Of the point behind the ball."""
        return self.ball.gap

    def contains(self, x: Array) -> bool:
        """Whether `x` is in the ball (it is taken to be in the cone)."""
        return self.ball.contains(x)

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, rounded outward."""
        low, high = self.ball.intervals()
        problem = self.problem
        design, losses = problem.design, problem.losses
        if not isinstance(design, Pairs):
            return low, high
        open_terms = np.flatnonzero(losses.piece_within(low, high) < 0)
        first, _, third, last = losses.knots
        del third
        top = np.where(losses.lo < 0, losses.b - losses.e, last)
        for start in range(0, len(open_terms), _BLOCK):
            rows = open_terms[start:start + _BLOCK]
            low[rows] = np.maximum(low[rows], self.floor(rows, top[rows], 1.0))
            high[rows] = np.minimum(high[rows], -self.floor(rows, -first[rows], -1.0))
        return low, high

    @cached_property
    def _frobenius_radius(self) -> float:
        root = float(np.sqrt(self.problem.quadratic.diagonal.min()))
        return up(up(self.ball.radius) / root)

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        design = self.problem.design
        d = design.table.d if isinstance(design, Pairs) else 0
        values, vectors = np.linalg.eigh(self.ball.centre.reshape(d, d))
        return np.maximum(values, 0.0), vectors

    def floor(self, rows: NDArray[np.intp], level: Array, sign: float) -> Array:
        """Lower bounds of ``<sign H, X>`` over ball and cone, aiming at `level`, shape (m,)."""
        design = self.problem.design
        if not isinstance(design, Pairs):
            return np.full(len(rows), -np.inf)
        if design.diagonal:
            return self._floor_of_vectors(design.dense(rows) * sign)
        chosen = design.terms.take(rows)
        far = design.table.differences(chosen.plus)
        near = design.table.differences(chosen.minus)
        if sign < 0:
            far, near = near, far
        return self._floor_of_matrices(far, near, design.frobenius[rows], level)

    def _floor_of_vectors(self, h: Array) -> Array:
        q, r = self.ball.centre, self._frobenius_radius
        tau = np.zeros(len(h))
        cone_loops().nonnegative(q, np.ascontiguousarray(h), r, tau)
        with np.errstate(divide="ignore", invalid="ignore"):
            pressed = np.where(tau[:, None] > 0, np.maximum(h - q / tau[:, None], 0.0), 0.0)
        rest = h - pressed
        size = np.linalg.norm(rest, axis=1)
        reach = r * size * (1.0 + gamma(h.shape[1] + 8))
        # h itself is a difference of squares computed to a few units.
        error = gamma(h.shape[1] + 16) * (np.abs(rest) + np.abs(h)) @ np.abs(q)
        error += r * gamma(16) * np.linalg.norm(h, axis=1)
        return np.asarray(rest @ q - reach - error - 8.0 * UNIT * (np.abs(rest @ q) + reach))

    def _floor_of_matrices(self, far: Array, near: Array, norms: Array, level: Array) -> Array:
        """The certificate of section 6.2: ``N = nu v v'`` from the loop, evaluated outward."""
        values, vectors = self._eigen
        d, r = len(values), self._frobenius_radius
        centre = self.ball.centre.reshape(d, d)
        value = np.einsum("ij,jk,ik->i", far, centre, far) - np.einsum(
            "ij,jk,ik->i", near, centre, near
        )
        nu, v = np.zeros(len(far)), np.zeros((len(far), d))
        cone_loops().semidefinite(
            values, np.ascontiguousarray(near @ vectors), np.ascontiguousarray(far @ vectors),
            value - level, norms**2, r, nu, v,
        )
        v = v @ vectors.T
        aa, bb = (np.einsum("ij,ij->i", s, s) for s in (far, near))
        vv, av, bv = (np.einsum("ij,ij->i", s, v) for s in (v, far, near))
        size, sums = float(np.linalg.norm(centre)), aa + bb
        inner = value - nu * np.einsum("ij,jk,ik->i", v, centre, v)
        # Every difference is rounded once more than in its own size.
        slip = gamma(2 * d + 18) * size * (sums + nu * vv)
        square = norms**2 - 2.0 * nu * (av**2 - bv**2) + nu**2 * vv**2
        square += gamma(4 * d + 24) * (2.0 * sums**2 + 2.0 * nu * sums * vv + nu**2 * vv**2)
        reach = r * np.sqrt(np.maximum(square, 0.0))
        return np.asarray(inner - slip - reach - 8.0 * UNIT * (np.abs(inner) + reach))
