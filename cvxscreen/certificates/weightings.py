"""Certificates of one problem under many weightings of its terms, most of which nothing moves.

A bootstrap asks for the same terms with other counts, again and again. Around a common point x0
most terms stay on one linear piece for all of the answers: there the Fenchel-Young term is 0 and
``A' theta`` and the value are linear in the weights, which is two matrix products for a block of
weightings. Which terms these are is proven here, from margins at x0 made anew and the distance of
the answers from it; every other term is looked at under each weighting.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen.certificates.certificate import EPS, columns, relative_gap
from cvxscreen.certificates.path import Certificates, _gap_above, _steepness, _value_above
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows

__all__ = ["Linear", "certify_weightings", "linear_around"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Linear(NamedTuple):
    """A point that many answers are near, and the slopes of the pieces that the terms are on there.

    Attributes
    ----------
    x : array, shape (d,)
    slopes : array, shape (n,)
        Any slope in the box of the term; only those that prove to belong to a linear piece count.
    columns : array, shape (d, n)
        The rows of the data as columns.
    room : array, shape (n,)
        How far from `x` a term provably stays on the linear piece of its slope; negative where it
        is on none.
    pulls : array, shape (n, d)
        The rows, each times its slope.
    sums : array, shape (n, 3)
        ``|slope| norm``, ``|slope a_free|``, and ``f*(slope)``, which is minus the loss's value
        where its line meets 0.
    """

    x: Array
    slopes: Array
    columns: Array
    room: Array
    pulls: Array
    sums: Array

    @classmethod
    def at(cls, problem: Problem, x: Array, slopes: Array) -> Linear:
        """Of dense rows."""
        A = cast(Rows, problem.design).dense()
        pulls, size, f = slopes[:, None] * A, np.abs(slopes), problem.losses
        free = np.flatnonzero(problem.quadratic.free)
        conjugate = f.b * slopes + f.e * size + 0.5 * f.q * slopes * slopes
        sums = [size * problem.norms, np.abs(pulls[:, free]).sum(axis=1), conjugate]
        room = _room(problem, x, slopes, A @ x)
        return cls(x, slopes, np.ascontiguousarray(A.T), room, pulls, np.column_stack(sums))


def _room(problem: Problem, x: Array, s: Array, t: Array) -> Array:
    """How far from x each term provably stays on the linear piece that has slope s."""
    b, e, q, lo, hi = columns(problem.losses)
    with np.errstate(invalid="ignore"):
        low = np.where((s == lo) & np.isfinite(lo), b - e + q * lo - t, -np.inf)
        high = np.where((s == hi) & np.isfinite(hi), t - (b + e + q * hi), -np.inf)
    left, right = np.where(lo == 0.0, np.inf, t - b + e), np.where(hi == 0.0, np.inf, b + e - t)
    flat = np.where(s == 0.0, np.minimum(left, right), -np.inf)
    away = np.maximum(np.maximum(low, high), flat)
    knots = np.where(np.isfinite(lo), -lo, 0.0) + np.where(np.isfinite(hi), hi, 0.0)
    away = away - 16.0 * EPS * (np.abs(t) + np.abs(b) + e + q * knots)
    noise = problem.design.forward_factor * float(np.linalg.norm(x)) * (1.0 + 8.0 * EPS)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(problem.sizes > 0, away / problem.sizes, np.where(away > 0, np.inf, -1.0))
    # A negative distance is not made less so by the factor, and none is taken for a proof.
    return np.asarray(far * (1.0 - EPS * (problem.d + 40)) - noise)


def linear_around(around: Linear, distance: float) -> Mask:
    """Terms that have ``around.slopes`` wherever ``|x - around.x| <= distance``; proven."""
    return np.asarray((around.room >= distance * (1.0 + 8.0 * EPS)) & (around.room > 0.0))


class Block(NamedTuple):
    """The terms that are looked at, and the weightings.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    sizes, norms : array, shape (m,)
    b, e, q, lo, hi : array, shape (m,)
        The losses at weight 1.
    W, theta : array, shape (K, m)
        Weights, and slopes under them.
    """

    A: Array
    sizes: Array
    norms: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array
    W: Array
    theta: Array


@compiled(fastmath=frozenset({"reassoc"}), nogil=True, allocates=False)
def weighted_sums(block, X, forward, free, room, out):  # type: ignore[no-untyped-def]
    """Sums over the terms of a block, one row of `out` a weighting.

    Value, gap, ``sum |theta| norm``, ``sum |theta a_free|``, the count of slopes outside their box.
    `forward` is the relative rounding of a margin; the margins are left in `room`, shape (K, m).
    """
    A = block.A
    d, m = A.shape
    for k in range(X.shape[0]):
        length, t = 0.0, room[k]
        for i in range(m):
            t[i] = 0.0
        for j in range(d):
            length += X[k, j] * X[k, j]
            for i in range(m):
                t[i] += X[k, j] * A[j, i]
        noise = forward * np.sqrt(length)
        values, gap, load, size, outside = 0.0, 0.0, 0.0, 0.0, 0
        for i in range(m):
            w, theta = block.W[k, i], block.theta[k, i]
            if w == 0.0:  # without its loss a term has no slope
                outside += theta != 0.0
                continue
            low, high, bend = block.lo[i] * w, block.hi[i] * w, block.q[i] / w
            b, e = block.b[i], block.e[i]
            value = _value_above(t[i], b, e, bend, low, high, _steepness(bend))
            values += value
            gap += _gap_above(
                t[i], theta, noise * block.sizes[i], value, b, e, bend, low, high
            )
            load += abs(theta) * block.norms[i]
            if free >= 0:
                size += abs(theta * A[free, i])
            outside += not ((theta >= low) & (theta <= high))
        out[k, 0], out[k, 1], out[k, 2], out[k, 3] = values, gap, load, size
        out[k, 4] = outside


@compiled(allocates=False)
def weighted_takers(block, margins, needed, distance, free, out):  # type: ignore[no-untyped-def]
    """What it costs to balance each dual point by the cheapest single term of a block."""
    A, m = block.A, block.A.shape[1]
    for k in range(out.size):
        up, down = np.inf, np.inf
        for both in (True, False):  # those with room both ways are few, and mostly enough
            for i in range(m):
                w, s, size = block.W[k, i], block.theta[k, i], abs(A[free, i])
                rise, fall = block.hi[i] * w - s, s - block.lo[i] * w
                if both and not (rise > 0.0 and fall > 0.0):
                    continue
                if A[free, i] < 0.0:
                    rise, fall = fall, rise
                fits_up, fits_down = rise * size >= needed[k], fall * size >= needed[k]
                if w == 0.0 or size == 0.0 or not (fits_up or fits_down):
                    continue
                rate = abs(margins[k, i]) + abs(block.b[i]) + block.e[i]
                rate += block.q[i] / w * abs(s) + block.norms[i] * distance[k]
                if fits_up:
                    up = min(up, rate / size)
                if fits_down:
                    down = min(down, rate / size)
            if max(up, down) < np.inf:
                break
        out[k] = needed[k] * max(up, down) if needed[k] > 0.0 else 0.0


def certify_weightings(
    problem: Problem,
    around: Linear,
    W: Array,
    X: Array,
    rows: NDArray[np.intp],
    theta: Array,
    *,
    tol: float,
) -> Certificates:
    """Recompute the optimality of K answers, each under weights of its own, on all of the data.

    Parameters
    ----------
    problem : Problem
        Dense rows, a diagonal M, at most one unpenalised coordinate.
    around : Linear
    W : array, shape (K, n)
        Weights, not negative.
    X : array, shape (K, d)
    rows : array of int, shape (m,)
        The terms whose slopes are given; every other one has ``around.slopes`` times its weight.
    theta : array, shape (K, m)
        Slopes under the weights.
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificates
        As those of `certify` on each weighted problem, by the same formulas; no margin is computed
        in extended precision.
    """
    (K, n), d = W.shape, problem.d
    reach = float(np.sqrt(np.square(X - around.x).sum(axis=1).max())) * (1.0 + EPS * (d + 8))
    given = np.zeros(n, dtype=bool)
    given[rows] = True
    more = np.flatnonzero(~(linear_around(around, reach) | given))
    s, f = around.slopes, columns(problem.losses)
    if len(more):
        theta = np.hstack([theta, np.take(W, more, axis=1) * s[more]])
        rows = np.concatenate([rows, more])
    w, A = np.take(W, rows, axis=1), np.take(around.columns, rows, axis=1)
    b, e, q, lo, hi = (column[rows] for column in f)
    theta = np.ascontiguousarray(theta)
    block = Block(
        A, problem.sizes[rows], problem.norms[rows], b, e, q, lo, hi, w, theta
    )
    indices = np.flatnonzero(problem.quadratic.free)
    free = int(indices[0]) if len(indices) else -1
    out, margins = np.zeros((K, 5)), np.empty(w.shape)
    weighted_sums(block, X, float(problem.design.forward_factor), free, margins, out)
    values, fy, load, size, outside = out.T
    # All terms at the slopes around, and what the looked-at ones have instead.
    pulled, there = W @ around.pulls, w * s[rows]
    far = pulled - there @ A.T
    pull = far + block.theta @ A.T + problem.linear
    everywhere = W @ around.sums
    load = load + 3.0 * everywhere[:, 0]
    size = size + 3.0 * everywhere[:, 1]
    constant = everywhere[:, 2] - w @ around.sums[rows, 2]
    primal = values + np.einsum("kj,kj->k", far, X) - constant + X @ problem.linear
    diagonal, rounding = problem.quadratic.diagonal, EPS * (n + 16)
    bent, root = diagonal > 0.0, np.sqrt(diagonal)
    primal += 0.5 * np.square(X * root).sum(axis=1) + problem.constant
    x_theta = np.where(bent, -pull / np.where(bent, diagonal, 1.0), X)
    distance = np.linalg.norm((X - x_theta) * root, axis=1) + rounding * load
    distance += problem.drift + 8 * EPS * np.linalg.norm(x_theta * root, axis=1)
    gap = fy * (1 + n * EPS) + 0.5 * distance**2
    if free >= 0:
        needed = (np.abs(pull[:, free]) + problem.imbalance + rounding * size) * (1.0 + 1e-6)
        moves = np.empty(K)
        weighted_takers(block, margins, needed, distance, free, moves)
        gap += moves
    unfit = (outside > 0) | ~np.isfinite(gap) | (W < 0).any(axis=1)
    gap = np.where(unfit, np.inf, gap)
    return Certificates(gap, relative_gap(gap, primal), primal, tol)

