"""Linear systems in extended precision, singular ones included."""

from __future__ import annotations

import mpmath as mp

DIGITS = 100
"""Working precision: data over 32 orders of magnitude still leave some sixty digits."""

Vector = list


def apply(matrix: list[Vector], x: Vector) -> Vector:
    return [mp.fdot(row, x) for row in matrix]


def solved(matrix: list[Vector], right: Vector) -> Vector:
    """A solution of ``matrix z = right``; undetermined and contradicting parts are left at 0."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    top = max((abs(v) for row in matrix for v in row), default=mp.mpf(0))
    level = top * mp.mpf(10) ** (-70)
    pivots: list[tuple[int, int]] = []
    for column in range(n):
        start = len(pivots)
        if start == len(rows):
            break
        best = max(range(start, len(rows)), key=lambda i: abs(rows[i][column]))
        if abs(rows[best][column]) <= level:
            continue
        rows[start], rows[best] = rows[best], rows[start]
        head = rows[start]
        for i in range(start + 1, len(rows)):
            if rows[i][column]:
                factor = rows[i][column] / head[column]
                pairs = zip(rows[i][column:], head[column:], strict=True)
                rows[i] = rows[i][:column] + [a - factor * b for a, b in pairs]
        pivots.append((start, column))
    out = [mp.mpf(0)] * n
    for i, column in reversed(pivots):
        rest = mp.fdot(rows[i][column + 1:n], out[column + 1:]) if column + 1 < n else mp.mpf(0)
        out[column] = (rows[i][n] - rest) / rows[i][column]
    return out
