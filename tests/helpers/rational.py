"""Vectors of fractions: products, sums and linear systems without rounding.

In GMP's arithmetic, several times as quick as Python's `fractions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from gmpy2 import mpq as Fraction

Vector = list[Fraction]


def exact(values: object) -> Vector:
    """The rational numbers that the floats `values` are."""
    return [Fraction(float(value)) for value in np.asarray(values).ravel()]


def total(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def dot(u: Vector, v: Vector) -> Fraction:
    return total(a * b for a, b in zip(u, v, strict=True))


def solve(matrix: list[Vector], right: Vector, base: Vector | None = None) -> Vector | None:
    """A solution of ``matrix z = right`` (0, or `base`, where it is not determined), or None.

    Rows are eliminated as whole numbers without a common factor: fractions would look for one in
    every entry.
    """
    m, n = len(matrix), len(matrix[0]) if matrix else 0
    base = [Fraction(0)] * n if base is None else base
    rows = [
        _whole([*row, value - dot(row, base)]) for row, value in zip(matrix, right, strict=True)
    ]
    pivots: list[tuple[int, int]] = []
    for column in range(n):
        start = len(pivots)
        found = next((i for i in range(start, m) if rows[i][column]), None)
        if found is None:
            continue
        rows[start], rows[found] = rows[found], rows[start]
        head = rows[start]
        for i in range(start + 1, m):
            if rows[i][column]:
                rows[i] = _without(rows[i], head, column)
        pivots.append((start, column))
    if any(row[n] for row in rows[len(pivots):]):
        return None
    step = [Fraction(0)] * n
    for i, column in reversed(pivots):
        known = dot([Fraction(value) for value in rows[i][:n]], step)
        step[column] = (rows[i][n] - known) / rows[i][column]
    return [a + b for a, b in zip(base, step, strict=True)]


def _whole(row: Vector) -> list[int]:
    """A multiple of `row` in whole numbers."""
    common = math.lcm(*(value.denominator for value in row))
    return [value.numerator * (common // value.denominator) for value in row]


def _without(row: list[int], head: list[int], column: int) -> list[int]:
    """A combination of both that is 0 at `column`, divided by what its entries have in common."""
    common = math.gcd(row[column], head[column])
    ours, theirs = head[column] // common, row[column] // common
    out = [ours * a - theirs * b for a, b in zip(row, head, strict=True)]
    common = math.gcd(*out)
    return [value // common for value in out] if common > 1 else out
