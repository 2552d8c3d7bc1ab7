"""Many small problems over one kernel, and certificates of their answers, all of them at once.

The problems are a class against the rest each, or a class against another.

With ``w = sum_i c_i z_i`` and ``theta = -s c`` the two points of a problem are the same w, whatever
the rounding of c: the duality gap is the sum of the Fenchel-Young terms alone. With an intercept
the coefficients must sum to 0. Their sum r is known exactly but for its last bit; the slope of one
term that has room for it is moved by r, which costs at most ``|r|`` times what its Fenchel-Young
term grows by, and ``r^2 / 2`` times its squared norm. The margins are recomputed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen.certificates.certificate import (
    EPS,
    Certificate,
    columns,
    endless_above,
    gap_above,
    steepness,
    value_above,
    verdict,
)
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram, exact_sum

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class KernelParts(Immutable):
    """K problems ``1/2 ||w||^2 + sum_i f_i(s_i (<z_i, w> + b))``, their terms one after another.

    Attributes
    ----------
    whole : Problem
        Over all N points, whose kernel is `filled`: losses are of points, the same in every problem
        that has them.
    index : array of int, shape (m,)
        The point of each term; no point twice in one problem.
    sign : array, shape (m,)
    first : array of int, shape (K + 1,)
        Where the terms of each problem begin.
    """

    whole: Problem
    index: Index
    sign: Array
    first: Index

    @classmethod
    def of(
        cls, whole: Problem, rows: Sequence[Index], signs: Sequence[Array]
    ) -> KernelParts:
        """From the points and the signs of each problem."""
        first = np.cumsum([0, *map(len, rows)])
        return cls(whole, np.concatenate(rows), np.concatenate(signs), first)

    @property
    def gram(self) -> Gram:
        """The kernel matrix of all N points, that every problem takes its entries from."""
        return cast(Gram, self.whole.design)

    def __len__(self) -> int:
        return len(self.first) - 1

    @cached_property
    def matrix(self) -> Array:
        """The kernel's, of all points."""
        return cast(Array, self.gram.kernel.matrix())

    def problem(self, k: int) -> Problem:
        """Problem k, its coordinates the coefficients of all N points."""
        own = self.terms(k)
        gram = Gram(self.gram.kernel, self.sign[own], self.gram.intercept, self.index[own])
        return replace(self.whole, design=gram, losses=self.whole.losses.take(self.index[own]))

    @cached_property
    def squares(self) -> Array:
        """Squared norms of all points, rounded up, shape (N,)."""
        return Gram(self.gram.kernel).squares

    def terms(self, k: int) -> slice:
        """Where the terms of problem k are."""
        return slice(int(self.first[k]), int(self.first[k + 1]))


@compiled(allocates=False)
def products(matrix: Array, index: Index, c: Array, out: Array) -> None:
    """``<z_i, w>`` at the points of `index`, ``w = sum_j c_j z_j`` over them."""
    for i in range(len(index)):
        out[i] = 0.0
    for j in range(len(index)):
        if c[j] != 0.0:
            row = matrix[index[j]]
            for i in range(len(index)):
                out[i] += c[j] * row[index[i]]


def margins(parts: KernelParts, c: Array, b: Array) -> tuple[Array, Array, Array]:
    """``<z_i, w>`` of every term, its margin, and how far that may be from the exact one."""
    index, sizes = parts.index, np.diff(parts.first)
    u = np.empty(len(c))
    for k in range(len(parts)):
        own = parts.terms(k)
        products(parts.matrix, index[own], c[own], u[own])
    level = np.repeat(b, sizes)
    roots = np.sqrt(parts.squares)[index] * (1.0 + 4.0 * UNIT)
    near = parts.gram.kernel.function.errors[index]
    heavy = np.abs(c) * roots
    depth = gamma(int(sizes.max()) + 8)
    far, of_others = (
        np.repeat(np.add.reduceat(values, parts.first[:-1]), sizes) for values in (
            heavy, heavy * near,
        )
    )
    error = roots * ((depth + near) * far + of_others) * (1.0 + 2.0 * depth)
    return u, parts.sign * (u + level), error + 4.0 * UNIT * (np.abs(u) + np.abs(level))


def certify_parts(parts: KernelParts, c: Array, b: Array, tol: float) -> list[Certificate]:
    """Recompute the optimality of all K answers.

    Parameters
    ----------
    parts : KernelParts
    c : array, shape (m,)
        Coefficients of the terms.
    b : array, shape (K,)
        Intercepts.
    tol : float
        Relative gap asked for.
    """
    u, t, error = margins(parts, c, b)
    f = tuple(column[parts.index] for column in columns(parts.whole.losses))
    theta, (at, e, q, lo, hi) = -parts.sign * c, f
    values = np.asarray(value_above(t, at, e, q, lo, hi, steepness(q)))
    gaps = gap_above(t, theta, error, values, *f) + endless_above(values, error, q, lo, hi)
    gaps = np.where((theta < lo) | (theta > hi) | ~np.isfinite(gaps), np.inf, gaps)
    starts, longest = parts.first[:-1], int(np.diff(parts.first).max())
    gap = np.add.reduceat(gaps, starts) * (1.0 + longest * EPS)
    if parts.gram.intercept:
        gap = gap + _balance(parts, c, f, np.abs(t) + error)
    primal = np.add.reduceat(values + 0.5 * c * u, starts)
    return [verdict(float(g), float(p), tol) for g, p in zip(gap, primal, strict=True)]


def _balance(parts: KernelParts, c: Array, f: tuple[Array, ...], t: Array) -> Array:
    """What it costs each problem that its coefficients do not sum to 0; `t` are margins at most.

    Infinite where no term has room.
    """
    sizes, starts = np.diff(parts.first), parts.first[:-1]
    short = np.array([exact_sum(c[parts.terms(k)]) for k in range(len(parts))])
    need = np.abs(short) * (1.0 + 4.0 * UNIT)
    each = np.repeat(need, sizes)
    b, e, q, lo, hi = f
    # The slope -s c is to rise where the sum is above 0 and s is 1, or below and -1.
    theta = -parts.sign * c
    rises = (np.repeat(short, sizes) > 0.0) == (parts.sign > 0.0)
    room = np.where(rises, hi - theta, theta - lo)
    rate = t + np.abs(b) + e + q * (np.abs(theta) + each)
    cost = each * (rate + 0.5 * each * parts.squares[parts.index])
    cost = np.where(room * (1.0 - 4.0 * UNIT) >= each, cost, np.inf)
    return np.where(need > 0.0, np.minimum.reduceat(cost, starts), 0.0) * (1.0 + 16.0 * UNIT)
