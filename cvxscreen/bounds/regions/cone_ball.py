"""A ball cut by the cone of metrics: the semidefinite and the exact non-negative rule.

Yoshida et al. 2019, section 4.2 and 6.2, in corrected form. For a term H, a ball of centre Q and
radius r, every N in the (self-dual) cone and every X in the ball and the cone,
``<H, X> >= <H - N, Q> - r |H - N|``. N is searched in floating point by compiled loops, one term at
a time in O(d) a step, and what it proves is evaluated with its rounding, so stopping anywhere is
safe. The search aims at the thresholds of the losses, so an interval is tightened where that can
decide its term.

Proofs: ``docs/theory.md``, section 7.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.bounds.regions.balls import Ball, CutBall
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs

Array = NDArray[np.float64]

_BLOCK = 4096
"""Open terms whose intervals are cut at a time; the memory that takes, not the result."""
_NUMBERS = 2_000_000
"""Entries of the matrices of a block of terms, from a centre outside the cone."""
_OUTSIDE_STEPS = 30
"""Decompositions a term at most: bisection to 1e-6 takes 20 after the first few doublings."""
_ROUNDED = 1e-12
"""Negative eigenvalues of this relative size are rounding: a centre on the cone's boundary."""
_STEPS, _SECULAR = 25, 60
"""Steps of the search for a multiplier, and of each eigenvalue in it, at most."""


class ConeBall(Immutable):
    """A ball of a metric learning problem, cut by the problem's cone.

    Attributes
    ----------
    ball : Ball
    half : CutBall, optional
        The ball cut by one half-space that contains the cone: in closed form, so that it decides
        first and the search is left with the terms that it leaves open.
    """

    ball: Ball
    half: CutBall | None = None

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
        """Radius of the ball, which the cone cuts."""
        return self.ball.radius

    @property
    def gap(self) -> float:
        """Duality gap of the point that the ball is of."""
        return self.ball.gap

    def contains(self, x: Array) -> bool:
        """Whether `x` is in the ball (it is taken to be in the cone)."""
        return self.ball.contains(x)

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, rounded outward."""
        low, high = self.ball.intervals()
        if self.half is not None:
            least, most = self.half.intervals()
            low, high = np.maximum(low, least), np.minimum(high, most)
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
        norms = design.frobenius[rows]
        if not self._outside:
            return self._floor_of_matrices(far, near, norms, level)
        width = max(_NUMBERS // design.table.d**2, 1)
        parts = [slice(i, i + width) for i in range(0, len(rows), width)]
        return np.concatenate([
            self._floor_from_outside(far[s], near[s], norms[s], level[s]) for s in parts
        ])

    @cached_property
    def _outside(self) -> bool:
        """Whether the centre leaves the cone, as that of the gradient bound does."""
        design = self.problem.design
        d = design.table.d if isinstance(design, Pairs) else 0
        values = np.linalg.eigvalsh(self.ball.centre.reshape(d, d))
        return bool(values[0] < -_ROUNDED * max(float(values[-1]), -float(values[0])))

    def _floor_from_outside(self, far: Array, near: Array, norms: Array, level: Array) -> Array:
        """The same from a centre Q outside the cone, where N may have any rank.

        ``D(t) = |[Q - t H]_-|^2 + 2 t (<H, Q> - C) - t^2 |H|^2`` is concave with the slope
        ``2 (<H, [Q - t H]_+> - C)``; ``N = -[Q - t H]_- / t``. One decomposition a term and step.
        """
        d, r = far.shape[1], self._frobenius_radius
        centre = self.ball.centre.reshape(d, d)
        H = np.einsum("ij,ik->ijk", far, far) - np.einsum("ij,ik->ijk", near, near)
        value = np.einsum("ijk,jk->i", H, centre)
        square = np.maximum(norms**2, 1e-300)
        low, high = np.zeros(len(far)), np.full(len(far), np.inf)
        size_q = float(np.linalg.norm(centre))
        t = np.maximum(value - level, 1e-3 * size_q * norms) / square
        best, factor = np.full(len(far), -np.inf), np.zeros_like(H)
        for _ in range(_OUTSIDE_STEPS):
            values, vectors = np.linalg.eigh(centre - t[:, None, None] * H)
            negative, positive = np.minimum(values, 0.0), np.maximum(values, 0.0)
            turned = np.einsum("ijk,ijl->ikl", H, vectors)
            slope = np.einsum("ikl,ikl,il->i", turned, vectors, positive) - level
            dual = (negative**2).sum(axis=1) + 2.0 * t * (value - level) - t**2 * square
            better = dual > best
            best = np.where(better, dual, best)
            made = vectors * np.sqrt(-negative / t[:, None])[:, None, :]
            factor = np.where(better[:, None, None], made, factor)
            low, high = np.where(slope > 0, t, low), np.where(slope > 0, high, t)
            t = np.where(np.isinf(high), 2.0 * t, 0.5 * (low + high))
            if not ((best <= r * r) & (high - low > 1e-6 * high)).any():
                break
        turned_f, turned_n = (np.einsum("ijk,ij->ik", factor, s) for s in (far, near))
        hn = (turned_f**2).sum(axis=1) - (turned_n**2).sum(axis=1)
        nn = np.einsum("ijk,ijl->ikl", factor, factor)
        trace = np.einsum("ijk,ijk->i", factor, factor)
        sums = np.einsum("ij,ij->i", far, far) + np.einsum("ij,ij->i", near, near)
        inner = value - np.einsum("ijk,jl,ilk->i", factor, centre, factor)
        slip = gamma(3 * d * d + 4 * d + 24) * size_q * (sums + trace)
        left = norms**2 - 2.0 * hn + (nn**2).sum(axis=(1, 2))
        left += gamma(2 * d * d + 4 * d + 24) * 2.0 * (sums + trace) ** 2
        reach = r * np.sqrt(np.maximum(left, 0.0))
        return np.asarray(inner - slip - reach - 8.0 * UNIT * (np.abs(inner) + reach))

    def _floor_of_vectors(self, h: Array) -> Array:
        q, r = self.ball.centre, self._frobenius_radius
        tau = np.zeros(len(h))
        with np.errstate(divide="ignore", invalid="ignore"):
            breaks = np.where(q * np.sign(h) > 0, q / h, np.inf)
        order = np.argsort(breaks, axis=1)
        vector_multipliers(q, np.ascontiguousarray(h), order, r, tau)
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
        matrix_multipliers(
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


# -- compiled loops: the search for a multiplier --------------------------------------------------


@compiled(fastmath=CONTRACT, alone=False)
def negative_eigenpair(w, u, v, t, x):  # type: ignore[no-untyped-def]
    """The negative eigenvalue of ``diag(w) - t u u' + t v v'`` (0 if none), its vector in x.

    Rayleigh quotients of ``(diag(w) + t v v' - l)^-1 u``: Newton's method on the secular equation,
    every iterate an upper bound of the eigenvalue.
    """
    d = w.size
    uu = 0.0
    for k in range(d):
        uu += u[k] * u[k]
    low, level = -t * uu, -t * uu
    if low >= 0.0:
        return 0.0
    best = 0.0
    for _ in range(_SECULAR):
        bb, uv = 0.0, 0.0
        for k in range(d):
            s = 1.0 / max(w[k] - level, 1e-300)
            bb += v[k] * v[k] * s
            uv += u[k] * v[k] * s
        kappa = t * uv / (1.0 + t * bb)
        xx, wx, ux, vx = 0.0, 0.0, 0.0, 0.0
        for k in range(d):
            x[k] = (u[k] - kappa * v[k]) / max(w[k] - level, 1e-300)
            xx += x[k] * x[k]
            wx += w[k] * x[k] * x[k]
            ux += u[k] * x[k]
            vx += v[k] * x[k]
        new = (wx - t * ux * ux + t * vx * vx) / max(xx, 1e-300)
        if new >= 0.0:
            level *= 0.1
            if level > 1e-12 * low:
                return 0.0
            continue
        done = abs(new - level) <= 1e-13 * abs(low)
        level = max(new, low)
        best = new
        if done:
            break
    return best


@compiled(fastmath=CONTRACT)
def matrix_multipliers(  # type: ignore[no-untyped-def]
    w, near, far, surplus, square, radius, out_nu, out_x
):
    """For every term a multiplier ``N = nu x x' / |x|^2`` that may lift the minimum above C.

    In the eigenbasis of Q (eigenvalues `w`) the term is ``far far' - near near'``; `surplus` is
    ``<H, Q> - C > 0`` and `square` is ``|H|^2``. ``D(t) = mu(t)^2 + 2 t surplus - t^2 |H|^2``, mu
    the negative eigenvalue of ``Q - t H``, is concave; the rule holds where ``D(t) > radius^2``.
    """
    d = w.size
    x = np.empty(d)
    for i in range(far.shape[0]):
        out_nu[i] = 0.0
        if not (surplus[i] > 0.0 and square[i] > 0.0):
            continue
        u, v = far[i], near[i]
        low, high = surplus[i] / square[i], 0.0  # D grows at `low`, falls at `high` (0: unknown)
        t = low
        for _ in range(_STEPS):
            mu = negative_eigenpair(w, u, v, t, x)
            if mu == 0.0:
                break
            level = mu * mu + 2.0 * t * surplus[i] - t * t * square[i]
            xx, ux, vx = 0.0, 0.0, 0.0
            for k in range(d):
                xx += x[k] * x[k]
                ux += u[k] * x[k]
                vx += v[k] * x[k]
            slope = (vx * vx - ux * ux) / xx
            rise = 2.0 * mu * slope + 2.0 * surplus[i] - 2.0 * t * square[i]
            if level > radius * radius:
                out_nu[i] = -mu / t
                for k in range(d):
                    out_x[i, k] = x[k] / np.sqrt(xx)
                break
            if rise > 0.0:
                low = t
                t = 2.0 * t if high == 0.0 else 0.5 * (low + high)
            else:
                high = t
                t = 0.5 * (low + high)
            if high > 0.0 and high - low <= 1e-6 * high:
                break


@compiled(fastmath=CONTRACT)
def vector_multipliers(q, h, order, radius, out_tau):  # type: ignore[no-untyped-def]
    """For every row h the multiplier tau with ``|[q - tau h]_+ - q| = radius`` (0 if none).

    ``phi(tau) = |[q - tau h]_+ - q|^2`` does not decrease; between its breakpoints, the positive
    ``q_k / h_k`` that a row of `order` takes from the smallest on, it is ``tau^2 A + B``.
    """
    d = q.size
    for i in range(h.shape[0]):
        out_tau[i] = 0.0
        a, b, count = 0.0, 0.0, 0
        for k in range(d):
            g, c = h[i, k], q[k]
            if c > 0.0 or (c == 0.0 and g <= 0.0):
                a += g * g
            else:
                b += c * c
            count += (g > 0.0 and c > 0.0) or (g < 0.0 and c < 0.0)
        if b > radius * radius:
            continue
        for step in range(count + 1):
            k = order[i, min(step, d - 1)]
            if a > 0.0:
                tau = np.sqrt(max(radius * radius - b, 0.0) / a)
                if step == count or tau <= q[k] / h[i, k]:
                    out_tau[i] = tau
                    break
            if step < count:
                if h[i, k] > 0.0:
                    a -= h[i, k] * h[i, k]
                    b += q[k] * q[k]
                else:
                    a += h[i, k] * h[i, k]
                    b -= q[k] * q[k]
                a, b = max(a, 0.0), max(b, 0.0)
