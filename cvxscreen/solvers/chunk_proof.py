"""How many terms of data in chunks an answer proves decided: the gap ball, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.chunk_rows import Chunk
from cvxscreen.chunk_slopes import in_chunks
from cvxscreen.chunk_terms import Unit
from cvxscreen.losses import Piece
from cvxscreen.problem import Problem
from cvxscreen.rounding import gamma, up

Array = NDArray[np.float64]
Codes = NDArray[np.int8]

_KINDS = (
    (Piece.ZERO,), (Piece.LOW, Piece.HIGH), (Piece.LEFT, Piece.RIGHT),
)


@dataclass(frozen=True, eq=False)
class Proof:
    """The task: terms proven on a zero, a linear, a quadratic piece, shape (3,).

    Parameters
    ----------
    x : array, shape (d,)
    weights : array, shape (d,)
        ``1 / M_jj``.
    radius : float
        ``||x* - x||_M`` at most.
    noise : float
        Error of a margin over the size of its row.
    unit, factor
        Of the loss terms.
    """

    x: Array
    weights: Array
    radius: float
    noise: float
    unit: Unit
    factor: float

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any
    ) -> NDArray[np.int64]:
        """Count the terms of one chunk."""
        codes = self.codes(block, scale, target, weight)
        return np.array([np.isin(codes, kind).sum() for kind in _KINDS])

    def codes(self, block: Any, scale: Any, target: Any, weight: Any) -> Codes:
        """The proven piece of each term, -1 where none is."""
        chunk = Chunk.of(block, scale, intercept=False)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        t = chunk.margins(self.x)
        outward = 1.0 + gamma(chunk.width + 8)
        reach = self.radius * np.sqrt(chunk.squares(self.weights)) * outward
        reach += self.noise * np.sqrt(chunk.squares(np.ones(chunk.width))) * outward
        # The ends of the interval are rounded as well.
        reach += 4.0 * gamma(1) * (np.abs(t) + reach)
        return losses.piece_within(t - reach, t + reach)

    def merge(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum."""
        return left + right


def proof_task(problem: Problem, x: Array, gap: float) -> Proof | None:
    """The task for an x with ``P(x) - P* <= gap``; None where that bounds no margin.

    P is strongly convex in the norm of M, so ``1/2 ||x - x*||_M^2 <= P(x) - P*`` (the gap ball). An
    unpenalised intercept is not bounded by it.
    """
    design, terms = in_chunks(problem)
    if problem.quadratic.free.any() or not np.isfinite(gap):
        return None
    weights = 1.0 / problem.quadratic.diagonal
    noise = up(design.forward_factor * float(np.linalg.norm(x)), problem.d + 8)
    radius = up(float(np.sqrt(2.0 * gap)))
    return Proof(x, weights, radius, noise, terms.unit, terms.factor)


def proven(problem: Problem, x: Array, gap: float) -> tuple[int, int, int]:
    """Terms proven on a zero, a linear, a quadratic piece; one pass."""
    (design, terms), task = in_chunks(problem), proof_task(problem, x, gap)
    if task is None:
        return 0, 0, 0
    counts = design.engine.run(
        task, design.source, (design.scale, terms.target, terms.weight)
    )
    zero, linear, quadratic = (int(count) for count in counts)
    return zero, linear, quadratic
