"""The optimum of a small problem to some forty digits, with a certified error of its own.

A floating-point solution suggests pieces and non-zero features; on these the optimality conditions
are linear and solved in extended precision; what they contradict is corrected and solved again (a
primal-dual active set method). However good the result, its duality gap G, summed from non-negative
terms in extended precision, proves ``||x - x*||_M <= sqrt(2 G)``: this is the error.
Nothing here is shared with the package's own evaluation of points, regions or gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp
import numpy as np
from linear import DIGITS, Vector, apply, solved
from terms import OPEN, Real, Term, real, terms_of

from cvxscreen.core.penalty import L1, NonNegative
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs


@dataclass(frozen=True, eq=False)
class Reference:
    """An optimum and what it says: tables of RIGHT, WRONG, OPEN for every possible decision."""

    problem: Problem
    x: np.ndarray
    theta: np.ndarray
    margins: np.ndarray
    gap: float
    states: np.ndarray
    kept: np.ndarray
    dropped: np.ndarray
    needed: np.ndarray

    @property
    def resolved(self) -> float:
        """Share of the terms whose piece is beyond doubt."""
        return float((self.states != OPEN).all(axis=1).mean()) if len(self.states) else 1.0


def floats(values: Vector) -> np.ndarray:
    return np.array([float(value) for value in values])


def rows_of(problem: Problem) -> list[Vector]:
    """The rows ``a_i`` without rounding."""
    design = problem.design
    if isinstance(design, Pairs):
        return pair_rows(design)
    matrix = design.matrix.toarray() if design.sparse else np.asarray(design.matrix)
    full = np.hstack([matrix.astype(np.float64), design.extra])
    scale = np.ones(len(full)) if design.scale is None else design.scale
    return [[real(s) * real(v) for v in row] for s, row in zip(scale, full, strict=True)]


def pair_rows(design: Pairs) -> list[Vector]:
    """``H = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)'``, flat, or its diagonal."""
    table = design.table
    points = [[real(v) for v in row] for row in table.points]
    squares = []
    for left, right in zip(table.left, table.right, strict=True):
        step = [u - v for u, v in zip(points[left], points[right], strict=True)]
        squares.append([u * u for u in step] if design.diagonal
                       else [u * v for u in step for v in step])
    squares.append([mp.mpf(0)] * design.shape[1])  # one past the last stands for no pair
    plus, minus = design.terms.index()
    return [[u - v for u, v in zip(squares[p], squares[m], strict=True)]
            for p, m in zip(plus, minus, strict=True)]


class Model:
    """A problem without side constraints, all of its numbers exact.

    `rows` stand in for a design that has none of its own (a kernel).
    """

    def __init__(self, problem: Problem, rows: list[Vector] | None = None) -> None:
        mp.mp.dps = DIGITS
        self.problem = problem
        self.rows = rows_of(problem) if rows is None else rows
        self.columns = [list(column) for column in zip(*self.rows, strict=True)]
        self.terms: list[Term] = terms_of(problem.losses)
        quadratic = problem.quadratic
        self.diagonal = [real(v) for v in quadratic.diagonal]
        self.dense = quadratic.matrix is not None
        self.free = [j for j, free in enumerate(quadratic.free) if free]
        d = range(len(self.diagonal))
        if self.dense:
            self.M = [[real(v) for v in row] for row in quadratic.matrix]
            for j in d:
                self.M[j][j] += self.diagonal[j]
        self.linear = [real(v) for v in problem.linear]
        kappa = problem.penalty.kappa if isinstance(problem.penalty, L1) else np.zeros(len(d))
        self.kappa = [real(v) for v in kappa]
        self.cone = isinstance(problem.penalty, NonNegative)

    def norms(self) -> Vector:
        """``||a_i||`` in the metric of the inverse of M (dense M: the package's, a little more)."""
        if self.dense:
            return [real(v) * (1 + mp.mpf(10) ** (-9)) for v in self.problem.norms]
        bent = [j for j, m in enumerate(self.diagonal) if m]
        return [mp.sqrt(mp.fsum(row[j] ** 2 / self.diagonal[j] for j in bent)) for row in self.rows]

    def times(self, x: Vector) -> Vector:
        return apply(self.M, x) if self.dense else [m * v for m, v in
                                                    zip(self.diagonal, x, strict=True)]

    def start(self, x: np.ndarray) -> Vector:
        """A floating-point solution, inside the domain."""
        point = [real(v) for v in x]
        return [max(v, mp.mpf(0)) for v in point] if self.cone else point

    def pull(self, theta: Vector) -> Vector:
        """``v = -A' theta - q``."""
        return [-mp.fdot(column, theta) - q
                for column, q in zip(self.columns, self.linear, strict=True)]

    def split(self, v: Vector) -> Vector:
        """The part s of `v` in the domain of h*."""
        if self.cone:
            return [min(u, mp.mpf(0)) for u in v]
        return [min(max(u, -k), k) for u, k in zip(v, self.kappa, strict=True)]

    def dual_point(self, x: Vector, v: Vector, s: Vector) -> Vector:
        out = list(x)
        bent = [j for j in range(len(x)) if j not in self.free]
        if self.dense:
            block = [[self.M[i][j] for j in bent] for i in bent]
            values = solved(block, [v[j] - s[j] for j in bent])
        else:
            values = [(v[j] - s[j]) / self.diagonal[j] for j in bent]
        for j, value in zip(bent, values, strict=True):
            out[j] = value
        return out

    def balanced(self, t: Vector, theta: Vector) -> Vector | None:
        """`theta` with ``(A' theta + q)_j = 0`` exactly on the one unpenalised coordinate."""
        if not self.free:
            return theta
        if len(self.free) > 1:
            return None
        column, q = self.columns[self.free[0]], self.linear[self.free[0]]
        with mp.workprec(6000):  # sums of binary numbers, exact
            rest = mp.fdot(column, theta) + q
            if rest == 0:
                return theta
            for i in self._movable(t, theta):
                moved = theta[i] - rest / column[i]
                if abs(column[i]) == 1 and self.terms[i].lo <= moved <= self.terms[i].hi:
                    return [*theta[:i], moved, *theta[i + 1:]]
        return None

    def _movable(self, t: Vector, theta: Vector) -> list[int]:
        """Terms by how far inside their box they are."""
        room = [min(s - f.lo, f.hi - s) for f, s in zip(self.terms, theta, strict=True)]
        return sorted(range(len(t)), key=lambda i: -room[i])[:8]

    def gap(self, x: Vector, t: Vector, theta: Vector) -> tuple[Real, Vector, Vector]:
        """The duality gap, v and the pair's dual; infinite where theta cannot be balanced."""
        theta_ = self.balanced(t, theta)
        if theta_ is None:
            return mp.inf, [], theta
        v = self.pull(theta_)
        s = self.split(v)
        step = [a - b for a, b in zip(x, self.dual_point(x, v, s), strict=True)]
        total = mp.fdot(step, self.times(step)) / 2
        total += mp.fsum(f.fenchel_young(*pair) for f, *pair in
                         zip(self.terms, t, theta_, strict=True))
        total += mp.fsum(k * abs(u) - w * u for k, u, w in zip(self.kappa, x, s, strict=True))
        return max(total, mp.mpf(0)), v, theta_
