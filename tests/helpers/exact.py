"""Problems in rational arithmetic: floats are rational numbers, so nothing here is rounded.

The optimum is found on the pieces that a floating-point solution suggests: the optimality
conditions on these pieces are linear and solved by Gaussian elimination in fractions;
then every inequality is verified exactly. What comes out is the optimum, not an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rational import Fraction, Vector, dot, exact, solve, total

from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem

Number = Fraction | float  # a float only where a slope is infinite


def _bound(value: float) -> Number:
    return Fraction(value) if np.isfinite(value) else value


@dataclass(frozen=True)
class Term:
    """One loss term by its five numbers."""

    b: Fraction
    e: Fraction
    q: Fraction
    lo: Number
    hi: Number

    def slope(self, t: Fraction) -> Fraction:
        """A subgradient at `t`."""
        z = t - self.b
        soft = max(z - self.e, Fraction(0)) + min(z + self.e, Fraction(0))
        if self.q == 0:
            return Fraction(0) if soft == 0 else Fraction(self.lo if soft < 0 else self.hi)
        return Fraction(min(max(soft / self.q, self.lo), self.hi))

    def conjugate(self, theta: Fraction) -> Fraction:
        if not self.lo <= theta <= self.hi:
            raise ValueError("theta lies outside its box")
        return self.b * theta + self.e * abs(theta) + self.q / 2 * theta**2

    def value(self, t: Fraction) -> Fraction:
        s = self.slope(t)
        return t * s - self.conjugate(s)

    def fenchel_young(self, t: Fraction, theta: Fraction) -> Fraction:
        s = self.slope(t)
        if s == theta:
            return Fraction(0)
        return t * (s - theta) - self.conjugate(s) + self.conjugate(theta)

    def ends(self, piece: int) -> tuple[Number, Number]:
        """The closed interval of arguments on which the loss is this piece."""
        inf = float("inf")
        left, right = self.b - self.e, self.b + self.e
        first = left + self.q * self.lo if np.isfinite(float(self.lo)) else -inf
        last = right + self.q * self.hi if np.isfinite(float(self.hi)) else inf
        bowl = self.e == 0 and self.lo < 0 < self.hi and self.q > 0
        return {
            Piece.LOW: (-inf, first),
            Piece.LEFT: (first, last if bowl else left),
            Piece.ZERO: (left if self.lo < 0 else -inf, right if self.hi > 0 else inf),
            Piece.RIGHT: (right, last),
            Piece.HIGH: (last, inf),
        }[Piece(int(piece))]


def terms(losses: Losses) -> list[Term]:
    columns = zip(losses.b, losses.e, losses.q, losses.lo, losses.hi, strict=True)
    return [
        Term(Fraction(b), Fraction(e), Fraction(q), _bound(lo), _bound(hi))
        for b, e, q, lo, hi in (map(float, column) for column in columns)
    ]


class Exact:
    """A problem with a diagonal or dense quadratic term and no side constraints."""

    def __init__(self, problem: Problem) -> None:
        design = problem.design
        matrix = design.matrix.toarray() if design.sparse else design.matrix
        raw = np.hstack([np.asarray(matrix, dtype=np.float64), design.extra])
        scale = np.ones(len(raw)) if design.scale is None else design.scale
        self.rows = [
            exact(row) if s == 1.0 else [Fraction(float(s)) * value for value in exact(row)]
            for s, row in zip(scale, raw, strict=True)
        ]
        self.terms = terms(problem.losses)
        diagonal = exact(problem.quadratic.diagonal)
        dense = problem.quadratic.matrix
        d = len(diagonal)
        self.M = [exact(dense[j]) if dense is not None else [Fraction(0)] * d for j in range(d)]
        for j in range(d):
            self.M[j][j] += diagonal[j]
        self.free = [bool(free) for free in problem.quadratic.free]
        self.linear = exact(problem.linear)
        self.constant = Fraction(float(problem.constant))

    @cached_property
    def ends(self) -> list[list[tuple[Number, Number]]]:
        """The closed intervals of the five pieces of every term."""
        return [[term.ends(code) for code in range(5)] for term in self.terms]

    def margins(self, x: Vector) -> Vector:
        return [dot(row, x) for row in self.rows]

    def apply(self, x: Vector) -> Vector:
        return [dot(row, x) for row in self.M]

    def primal(self, x: Vector) -> Fraction:
        loss = total(f.value(t) for f, t in zip(self.terms, self.margins(x), strict=True))
        return loss + dot(x, self.apply(x)) / 2 + dot(self.linear, x) + self.constant

    def pull(self, theta: Vector) -> Vector:
        """``A' theta + q``."""
        columns = [list(column) for column in zip(*self.rows, strict=True)]
        return [q + dot(column, theta) for q, column in zip(self.linear, columns, strict=True)]

    def hessian(self, curvature: Vector) -> list[Vector]:
        """``M + A' diag(curvature) A``."""
        bent = [(row, c) for row, c in zip(self.rows, curvature, strict=True) if c]
        columns = [[row[j] for row, _ in bent] for j in range(len(self.linear))]
        heavy = [[c * a for a, (_, c) in zip(column, bent, strict=True)] for column in columns]
        return [
            [m + dot(part, column) for m, column in zip(line, columns, strict=True)]
            for line, part in zip(self.M, heavy, strict=True)
        ]

    def dual_point(self, x: Vector, theta: Vector) -> Vector:
        """``x_theta``, equal to `x` on unpenalised coordinates."""
        pull = self.pull(theta)
        bent = [j for j, free in enumerate(self.free) if not free]
        block = [[self.M[i][j] for j in bent] for i in bent]
        values = solve(block, [-pull[j] for j in bent])
        assert values is not None
        out = list(x)
        for j, value in zip(bent, values, strict=True):
            out[j] = value
        return out

    def gap(self, x: Vector, theta: Vector) -> Fraction:
        """``P(x) - D(theta)``; `theta` must be balanced exactly."""
        pull = self.pull(theta)
        if any(pull[j] for j, free in enumerate(self.free) if free):
            raise ValueError("theta is not balanced")
        fy = total(
            f.fenchel_young(t, s)
            for f, t, s in zip(self.terms, self.margins(x), theta, strict=True)
        )
        step = [a - b for a, b in zip(x, self.dual_point(x, theta), strict=True)]
        return fy + dot(step, self.apply(step)) / 2


@dataclass(frozen=True)
class Optimum:
    """An exact solution."""

    x: Vector
    theta: Vector
    margins: Vector
    value: Fraction
    model: Exact


def _candidates(
    model: Exact, losses: Losses, t: np.ndarray, theta: np.ndarray, fine: float
) -> list[object]:
    """For every term the `Piece` it seems to be on, or the knot (a Fraction) it seems to sit at."""
    guesses: list[object] = []
    for i, f in enumerate(model.terms):
        span = min(max(abs(float(f.lo)), abs(float(f.hi))), 1e300) * fine
        s = float(theta[i])
        if f.q == 0 and f.lo < f.hi:
            low, zero, high = abs(s - float(f.lo)), abs(s), abs(s - float(f.hi))
            if f.lo < 0 and low <= span:
                guesses.append(Piece.LOW)
            elif f.hi > 0 and high <= span:
                guesses.append(Piece.HIGH)
            elif zero <= span and (f.e > 0 or f.lo == 0 or f.hi == 0):
                guesses.append(Piece.ZERO)
            else:
                guesses.append(f.b - f.e if s < 0 or (s == 0 and f.e == 0) else f.b + f.e)
        else:
            inside = [
                piece for piece in Piece if piece >= 0 and losses.exists[i, piece]
                and model.ends[i][piece][0] <= t[i] <= model.ends[i][piece][1]
            ]
            guesses.append(inside[0] if inside else Piece.ZERO)
    return guesses


def optimum(problem: Problem, x: np.ndarray, theta: np.ndarray) -> Optimum | None:
    """The exact optimum near a floating-point one, or None if the pieces were not identified."""
    model, t = Exact(problem), problem.design.forward(x)
    for fine in (1e-9, 1e-6, 1e-4):
        guesses = _candidates(model, problem.losses, t, theta, fine)
        found = _on_pieces(model, x, theta, guesses)
        if found is not None:
            return found
    return None


def _on_pieces(
    model: Exact, x: np.ndarray, theta: np.ndarray, guesses: list[object]
) -> Optimum | None:
    d = len(model.linear)
    n = len(model.terms)
    curvature, pulls = [Fraction(0)] * n, [Fraction(0)] * n
    slopes: list[Fraction | None] = []
    kinks = []
    for i, (f, guess) in enumerate(zip(model.terms, guesses, strict=True)):
        if isinstance(guess, Fraction):
            kinks.append((i, guess))
            slopes.append(None)
        elif guess in (Piece.LEFT, Piece.RIGHT):
            centre = f.b + f.e if guess == Piece.RIGHT else f.b - f.e
            curvature[i], pulls[i] = 1 / f.q, -centre / f.q
            slopes.append(None)
        else:
            pulls[i] = Fraction({Piece.LOW: f.lo, Piece.HIGH: f.hi}.get(guess, 0))
            slopes.append(pulls[i])
    right = [-value for value in model.pull(pulls)]
    H = model.hessian(curvature)
    columns = [model.rows[i] for i, _ in kinks]
    zero = [Fraction(0)] * len(kinks)
    matrix = [H[j] + [column[j] for column in columns] for j in range(d)]
    matrix += [column + zero for column in columns]
    base = exact(x) + [Fraction(float(theta[i])) for i, _ in kinks]
    z = solve(matrix, right + [knot for _, knot in kinks], base)
    if z is None:
        return None
    point, multipliers = z[:d], dict(zip((i for i, _ in kinks), z[d:], strict=True))
    margins = model.margins(point)
    final = [
        multipliers[i] if i in multipliers else model.terms[i].slope(t) if s is None else s
        for i, (s, t) in enumerate(zip(slopes, margins, strict=True))
    ]
    return _verified(model, point, final, margins)


def _verified(model: Exact, x: Vector, theta: Vector, margins: Vector) -> Optimum | None:
    """The optimality conditions, every one of them, exactly."""
    for f, t, s in zip(model.terms, margins, theta, strict=True):
        if not f.lo <= s <= f.hi or f.fenchel_young(t, s) != 0:
            return None
    residual = [a + b for a, b in zip(model.apply(x), model.pull(theta), strict=True)]
    if any(residual):
        return None
    return Optimum(x, theta, margins, model.primal(x), model)
