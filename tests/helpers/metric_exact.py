"""Small metric learning problems solved to some forty digits, and their margins."""

from __future__ import annotations

import mpmath as mp
import numpy as np

import cvxscreen
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs

DIGITS = 50

Vector = list


def small(
    seed: int, scale: object = 1.0, *, diagonal: bool = False, gamma: float = 0.05,
    dtype: type = np.float64, share: float = 0.05, linear: float | None = None,
) -> Problem:
    """Three coordinates, some forty triplets, at `share` of the largest lam that matters."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(2), 7)
    X = rng.standard_normal((14, 3)) + 0.8 * y[:, None] * np.array([1.0, -0.5, 0.0])
    X = (X * np.asarray(scale)).astype(dtype)
    p = cvxscreen.rtlm(
        X, cvxscreen.triplets(X, y, k=(1, 3)), 1.0, gamma=gamma, diagonal=diagonal, linear=linear
    )
    return p.with_(lam=share * cvxscreen.lambda_max(p))


def rows(problem: Problem) -> list[Vector]:
    """Every H, flat, from the stored points without rounding."""
    design = problem.design
    assert isinstance(design, Pairs)
    table = design.table
    plus, minus = design.terms.index()
    P = [[mp.mpf(float(v)) for v in row] for row in table.points]

    def square(pair: int) -> Vector:
        if pair == len(table):
            return [mp.mpf(0)] * problem.d
        a = [u - v for u, v in zip(P[table.left[pair]], P[table.right[pair]], strict=True)]
        return [u * u for u in a] if design.diagonal else [u * v for u in a for v in a]

    return [[u - v for u, v in zip(square(p), square(m), strict=True)]
            for p, m in zip(plus, minus, strict=True)]


def dot(u: Vector, v: Vector) -> mp.mpf:
    return mp.fdot(u, v)


def _project(problem: Problem, v: Vector) -> Vector:
    design = problem.design
    assert isinstance(design, Pairs)
    if design.diagonal:
        return [max(u, mp.mpf(0)) for u in v]
    d = design.table.d
    values, vectors = mp.eigsy(mp.matrix(d, d) + mp.matrix([v[d * i:d * i + d] for i in range(d)]))
    out = mp.zeros(d)
    for k in range(d):
        if values[k] > 0:
            u = vectors[:, k]
            out += values[k] * (u * u.T)
    return [out[i, j] for i in range(d) for j in range(d)]


def optimum(problem: Problem) -> tuple[Vector, Vector]:
    """The metric (flat) and every margin; those of a problem met before are remembered."""
    mp.mp.dps = DIGITS
    design, f = problem.design, problem.losses
    assert isinstance(design, Pairs)
    numbers = (
        design.table.points, design.table.left, design.table.right, *design.terms.index(),
        problem.quadratic.diagonal, problem.linear, f.b, f.e, f.q, f.lo, f.hi,
    )
    key = (design.diagonal, *(np.asarray(part).tobytes() for part in numbers))
    if key not in _FOUND:
        _FOUND[key] = _optimum(problem)
    x, margins = _FOUND[key]
    return list(x), list(margins)


_FOUND: dict[tuple[bool | bytes, ...], tuple[Vector, Vector]] = {}


def _optimum(problem: Problem) -> tuple[Vector, Vector]:
    """By projected gradients in extended precision."""
    H = rows(problem)
    lam = mp.mpf(float(problem.quadratic.diagonal[0]))
    f = problem.losses
    table = [[mp.mpf(float(v)) for v in column] for column in (f.b, -f.lo, f.q)]
    tilt = [mp.mpf(float(v)) for v in problem.linear]

    def gradient(x: Vector) -> Vector:
        apart = [(h, b - dot(h, x), w, q) for h, b, w, q in zip(H, *table, strict=True)]
        near = [(h, min(z / q, w)) for h, z, w, q in apart if z > 0]
        alpha = [slope for _, slope in near]
        return [
            lam * u + c - dot(alpha, [h[j] for h, _ in near])
            for j, (u, c) in enumerate(zip(x, tilt, strict=True))
        ]

    start = cvxscreen.solve(problem, tol=1e-12)
    x = [mp.mpf(float(v)) for v in start.x]
    g, step = gradient(x), None
    for _ in range(3000):
        size = step if step is not None else mp.mpf(1) / lam / 1000
        new = _project(problem, [u - size * v for u, v in zip(x, g, strict=True)])
        moved = [u - v for u, v in zip(new, x, strict=True)]
        if dot(moved, moved) <= mp.mpf(10) ** -64 * dot(new, new):
            break
        fresh = gradient(new)
        bent = [u - v for u, v in zip(fresh, g, strict=True)]
        inner = dot(moved, bent)
        step = (inner / dot(bent, bent) + dot(moved, moved) / inner) / 2
        x, g = new, fresh
    else:
        raise ArithmeticError("the reference was not found")
    return new, [dot(h, new) for h in H]
