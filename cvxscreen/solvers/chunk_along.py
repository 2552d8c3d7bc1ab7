"""The objective along a segment, over data in chunks: many steps in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.chunk_rows import Chunk
from cvxscreen.chunk_slopes import in_chunks
from cvxscreen.chunk_terms import Unit
from cvxscreen.problem import Problem

Array = NDArray[np.float64]

STEPS = np.concatenate([[0.0], 2.0 ** np.arange(-24.0, -3.0, 3.0), np.arange(0.25, 1.01, 0.125)])
"""Shares of the segment that are tried."""


@dataclass(frozen=True, eq=False)
class Along:
    """The task: the sum of the losses at ``x + s step`` for every s of `STEPS`."""

    x: Array
    step: Array
    unit: Unit
    factor: float
    intercept: bool

    def __call__(self, block: Any, start: int, scale: Any, target: Any, weight: Any) -> Array:
        """The sums of one chunk, shape (len(STEPS),)."""
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        t, dt = chunk.margins(self.x), chunk.margins(self.step)
        return np.array([losses.value(t + s * dt).sum() for s in STEPS])

    def merge(self, left: Array, right: Array) -> Array:
        """The sum."""
        return left + right


def lowest_along(problem: Problem, x: Array, end: Array) -> Array:
    """The point where the objective is lowest among `STEPS` on the segment from `x` to `end`."""
    (design, terms), step = in_chunks(problem), end - x
    task = Along(x, step, terms.unit, terms.factor, design.intercept)
    values = design.engine.run(
        task, design.source, (design.scale, terms.target, terms.weight)
    )
    for k, s in enumerate(STEPS):
        at = x + s * step
        values[k] += problem.quadratic.inner(
            0.5 * problem.quadratic.apply(at) + problem.linear, at
        )
        if problem.penalty is not None:
            values[k] += problem.penalty.value(at)
    found: Array = x + STEPS[int(np.argmin(values))] * step
    return found
