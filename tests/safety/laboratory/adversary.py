"""Points that tempt a bound: attained regions, gaps of the size of rounding, and plain bad ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from references import Reference

from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Piece

FACTORS = (0.5, 0.9, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.1, 2.0)


def box(ref: Reference) -> tuple[np.ndarray, np.ndarray]:
    losses = ref.problem.losses
    size = np.abs(ref.theta) + 1e-3 * (np.abs(ref.theta).max(initial=0.0) + 1e-300)
    return np.maximum(losses.lo, -2.0 * size), np.minimum(losses.hi, 2.0 * size)


def near(ref: Reference, rng: np.random.Generator) -> Point:
    """At a relative distance of 1 to 1e-15, in one of four combinations."""
    problem = ref.problem
    blur = 10.0 ** -rng.uniform(0, 15)
    width = np.abs(ref.x) + float(np.abs(ref.x).max(initial=0.0)) * 10.0 ** -rng.uniform(0, 8)
    x = ref.x + blur * width * rng.standard_normal(problem.d)
    low, high = box(ref)
    theta = ref.theta + blur * (high - low) * rng.standard_normal(problem.n)
    kind = rng.integers(0, 6)
    if kind == 0:
        return reference_point(problem, x)
    if kind == 1:
        return reference_point(problem, ref.x, theta)
    if kind == 2:
        return reference_point(problem, x, ref.theta)
    pair = reference_point(problem, x, theta)
    return pair if kind < 5 else reference_point(problem, pair.x_theta, pair.theta)


def on_face(ref: Reference, rng: np.random.Generator) -> Point:
    """On the optimal face, where the midpoint inequality holds with equality.

    x moves along directions that no kink or curved term sees, theta on the terms at a kink only:
    there ``P(x) - P* = 1/2 ||x - x*||^2`` and ``D* - D(theta) = 1/2 ||x_theta - x*||^2``. The step
    is chosen so that the ball just reaches, or just misses, the kink of one term.
    """
    problem, losses = ref.problem, ref.problem.losses
    inside = (ref.theta > losses.lo) & (ref.theta < losses.hi) & (ref.theta != 0.0)
    rows = np.flatnonzero(inside)
    step = rng.standard_normal(problem.d) * (np.abs(ref.x).max(initial=0.0) + 1e-300)
    if problem.penalty is not None:
        step[ref.x == 0.0] = 0.0
    if len(rows) and problem.d:
        A = problem.design.take_rows(rows).forward
        matrix = np.column_stack([A(unit) for unit in np.eye(problem.d)])
        matrix[:, step == 0.0] = 0.0
        _, s, vt = np.linalg.svd(matrix)
        seen = vt[: int((s > 1e-12 * s.max(initial=0.0)).sum())]
        step -= seen.T @ (seen @ step)
    low, high = box(ref)
    push = np.where(inside & (losses.q == 0.0), (high - low) * rng.standard_normal(problem.n), 0.0)
    reach = max(problem.quadratic.norm(step), 1e-100)
    distance = losses.kink_distance(ref.margins)
    clear = (distance > 0) & (problem.norms > 1e-100)
    if clear.any() and rng.random() < 0.7:
        i = rng.choice(np.flatnonzero(clear))
        aim = distance[i] / float(problem.norms[i]) / reach
        aim *= 1.0 + rng.choice([-1.0, 0.0, 1.0]) * 10.0 ** -rng.uniform(3, 16)
    else:
        aim = 10.0 ** -rng.uniform(0, 12)
    aim = min(aim, 1e6)
    return reference_point(problem, ref.x + aim * step, ref.theta + min(aim, 1.0) * push)


def bad(ref: Reference, rng: np.random.Generator) -> Point:
    """Zero, huge, or the slopes' ends."""
    problem, losses = ref.problem, ref.problem.losses
    low, high = box(ref)
    kind = rng.integers(0, 4)
    if kind == 0:
        return reference_point(problem, np.zeros(problem.d))
    if kind == 1:
        return reference_point(problem, 1e3 * ref.x, low)
    if kind == 2:
        ends = np.where(rng.random(problem.n) < 0.5, low, high)
        return reference_point(problem, ref.x, ends)
    codes = losses.piece_within(ref.margins, ref.margins)
    return reference_point(problem, ref.x, np.where(codes == Piece.ZERO, 0.0, low))


def points(ref: Reference, rng: np.random.Generator, count: int) -> Iterator[Point]:
    """The optimum as floats have it, then `count` points of all kinds."""
    yield reference_point(ref.problem, ref.x, ref.theta)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.08:
            yield bad(ref, rng)
        elif kind < 0.4:
            yield on_face(ref, rng)
        else:
            yield near(ref, rng)
