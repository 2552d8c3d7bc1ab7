"""Certificates of many answers over the same rows, each without one term, in one compiled pass.

As `cvxscreen.certificates.many.certify_weightings` makes them for any weightings: terms near a kink
have slopes of their own, all others those of their pieces around a common point. With one weight
that is 0 the sums over all others are those of all terms but for one, and each answer is looked at
by itself: terms come in the order in which a ball around the point reaches their kinks, so that
only those are looked at that *this* answer may have moved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled, read_only
from cvxscreen.certificates.certificate import EPS, relative_gap
from cvxscreen.certificates.many import (
    Around,
    Rest,
    Weighted,
    gaps_of_answers,
    looked_at_closer,
    margin_rounding,
)
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Beyond(NamedTuple):
    """The terms that are not looked at first, and what all of them sum up to.

    Attributes
    ----------
    A : array, shape (n, d)
        The rows of all terms.
    order : array of int, shape (f,)
        These terms, the nearest to their kinks first.
    room : array, shape (f,)
        How far they provably stay on their pieces, in that order (`Around.room`).
    below, above, sizes : array, shape (n,)
        As in `Around`, and the Euclidean lengths of the rows.
    into, back : array, shape (d, d)
        As in `Around`.
    width, length : float
        The norm of `back` and of the point.
    room_for_u : array, shape (d,)
        To work in.
    At_theta, hessian : array, shape (d,) and (d (d + 1) / 2,)
        ``A' theta`` at the slopes around, and the sum over those on parabolas.
    others : float
        The sum of the conjugate losses.
    sums : array, shape (5,)
        As in `cvxscreen.certificates.many.Rest`.
    """

    A: Array
    order: Index
    room: Array
    below: Array
    above: Array
    sizes: Array
    into: Array
    back: Array
    width: float
    length: float
    room_for_u: Array
    At_theta: Array
    hessian: Array
    others: float
    sums: Array

    @classmethod
    def of(cls, problem: Problem, around: Around, near: Index, nearest: Index) -> Beyond:
        """All but the terms at `near`, of all in the order `nearest` (`by_room`)."""
        d, parts = problem.d, around.parts[near]
        far = np.ones(problem.n, dtype=bool)
        far[near] = False
        order = nearest[far[nearest]]
        total = around.total - parts.sum(axis=0)
        bent = around.place[near]
        hessian = around.hessian - around.hessians[bent[bent >= 0]].sum(axis=0)
        below, above, sizes = read_only(around.below, around.above, problem.sizes)
        return cls(
            around.rows, order, around.room[order], below, above, sizes, around.into, around.back,
            float(np.linalg.norm(around.back)), float(np.linalg.norm(around.x)),
            np.empty(d), total[:d].copy(), hessian, float(total[d + 2]), around.total[d:].copy(),
        )


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def left_their_piece(beyond, X, x, forward, terms, distance, out):  # type: ignore[no-untyped-def]
    """Fill how far each answer is from x, and whether a term beyond those near left its piece.

    The distances as `Around.distance` says; `terms` are those that are left out.
    """
    d, into, back = x.size, beyond.into, beyond.back
    for k in range(len(X)):
        length, size, left, whole, answer = 0.0, 0.0, 0.0, 0.0, X[k]
        for j in range(d):
            u = 0.0
            for i in range(d):
                u += (answer[i] - x[i]) * into[i, j]
            beyond.room_for_u[j] = u
            length += u * u
        for i in range(d):
            v = answer[i] - x[i]
            size += v * v
            whole += answer[i] * answer[i]
            for j in range(d):
                v -= back[i, j] * beyond.room_for_u[j]
            left += v * v
        length, size = np.sqrt(length), np.sqrt(size)
        left = np.sqrt(left) + 2.0 * EPS * (d + 8) * (size + beyond.width * length)
        length = max(length, left / (64.0 * EPS * (d + 8) * beyond.width)) * (1.0 + EPS * (d + 16))
        distance[k], out[k] = length, False
        unit_error = forward * (np.sqrt(whole) + beyond.length)
        for p in range(beyond.order.size):
            if beyond.room[p] >= length * (1.0 + 8.0 * EPS):
                break
            i = beyond.order[p]
            t = 0.0
            for j in range(d):
                t += answer[j] * beyond.A[i, j]
            tiny = unit_error * beyond.sizes[i] + 16.0 * EPS * abs(t)
            stays = t - tiny >= beyond.below[i] and t + tiny <= beyond.above[i]
            if not stays and i != terms[k]:
                out[k] = True
                break


def by_room(around: Around) -> Index:
    """All terms, those that may leave their piece first in front."""
    return np.argsort(around.room)


class LeftOutOfRows:
    """Certificates of answers to one problem of rows without single terms.

    Parameters
    ----------
    problem : Problem
        As `cvxscreen.certificates.many.certify_weightings` takes.
    around : Around
    near : array of int, shape (m,)
        The terms whose slopes are given; every other one has that of its piece.
    nearest : array of int, shape (n,)
        What `by_room` returns.
    """

    def __init__(self, problem: Problem, around: Around, near: Index, nearest: Index) -> None:
        self.problem, self.around = problem, around
        self.beyond = Beyond.of(problem, around, near, nearest)
        self.columns = np.take(around.columns, near, axis=1)
        self.own = looked_at_closer(problem, around, near)

    def certify(
        self, index: Index, own: Index, X: Array, theta: Array, shift: Array | None
    ) -> tuple[Array, Array, Array]:
        """The gap of each answer, the relative one, and how far each has moved.

        Parameters
        ----------
        index, own : array of int, shape (K,)
            The terms that are left out, and where among those near they are; -1 where not.
        X, theta : array, shape (K, d) and (K, m)
            The answers, and the slopes of the terms near.
        shift : array, shape (K,), optional
            As in `cvxscreen.certificates.many.certify_weightings`.
        """
        around, beyond, (K, m), d = self.around, self.beyond, theta.shape, self.problem.d
        far = own < 0
        here = np.flatnonzero(~far)
        W = np.ones((K, m))
        W[here, own[here]] = 0.0
        parts = np.where(far[:, None], around.parts[index], 0.0)
        hessian = np.tile(beyond.hessian, (K, 1))
        bent = np.flatnonzero(far & (around.place[index] >= 0))
        hessian[bent] -= around.hessians[around.place[index[bent]]]
        rest = Rest(
            beyond.At_theta - parts[:, :d], beyond.others - parts[:, d + 2],
            np.tile(beyond.sums, (K, 1)), hessian,
        )
        block = Weighted(self.columns, self.own, W, theta)
        gap, primal = gaps_of_answers(self.problem, around, block, rest, X, shift)
        distance, left = np.empty(K), np.empty(K, dtype=bool)
        forward = margin_rounding(self.problem)
        left_their_piece(beyond, X, around.x, forward, index, distance, left)
        gap[left] = np.inf
        return gap, relative_gap(gap, primal), distance
