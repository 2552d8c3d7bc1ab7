"""What one pass over data in chunks tells.

A look says what a round needs: the objective, the dual residual, which terms are hard to decide,
and with them the reduced problem of the next round; nothing of it is proven, that is the business
of `cvxscreen.certificates.streamed`. A pass along a segment gives the objective at many steps at
once. A last pass counts how many terms the answer proves decided, by the gap ball.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.rounding import gamma, up
from cvxscreen.core.losses import FIELDS, Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.core.streamed import Unit, in_chunks
from cvxscreen.designs.chunks import Chunk, Listed

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


@dataclass(frozen=True, eq=False)
class Kept:
    """Terms that were not decided, gathered in pieces in the order of the rows.

    Attributes
    ----------
    index, blocks, scale : lists of arrays
        Which rows, the rows, their factors (None where there are none).
    losses : list of tuples of arrays
        The five columns of `Losses`.
    margins, theta : lists of arrays
        At the point looked at.
    """

    index: list[NDArray[np.intp]]
    blocks: list[Any]
    scale: list[Any]
    losses: list[tuple[Array, ...]]
    margins: list[Array]
    theta: list[Array]

    def __add__(self, other: Kept) -> Kept:
        return Kept(*(getattr(self, name) + getattr(other, name) for name in vars(self)))

    def rows(self) -> Any:
        """All rows in one array or CSR matrix."""
        if sp.issparse(self.blocks[0]):
            return sp.vstack(self.blocks, format="csr")
        return np.concatenate(self.blocks)

    def factors(self) -> Array | None:
        """The factors of all rows."""
        return None if self.scale[0] is None else np.concatenate(self.scale)

    def table(self) -> Losses:
        """Their losses."""
        return Losses(*(np.concatenate(column) for column in zip(*self.losses, strict=True)))


@dataclass(frozen=True, eq=False)
class Seen:
    """What one look saw.

    Attributes
    ----------
    value, decided_value : float
        Sum of the losses: of all terms, and of those decided.
    fy : float
        Sum of the Fenchel-Young terms of the listed slopes.
    At_theta, decided_At_theta : array, shape (d,)
        ``A' theta``: with the listed slopes, and of the decided terms at their own.
    gram : array, shape (d, d), or None
        ``A_Q' diag(1/q) A_Q`` of the terms decided on a parabola; None where there are none.
    load : float
        ``sum_i |theta_i|``.
    counts : array, shape (3,)
        Terms decided on a zero, linear and quadratic piece.
    refuted : int
        Terms without a listed slope that lie on another piece than at the point looked at before.
    kept : Kept
    """

    value: float
    decided_value: float
    fy: float
    At_theta: Array
    decided_At_theta: Array
    gram: Array | None
    load: float
    counts: NDArray[np.int64]
    refuted: int
    kept: Kept

    def __add__(self, other: Seen) -> Seen:
        gram = self.gram if other.gram is None else other.gram
        if self.gram is not None and other.gram is not None:
            gram = self.gram + other.gram
        summed = {
            name: mine + getattr(other, name) for name, mine in vars(self).items() if name != "gram"
        }
        return Seen(gram=gram, **summed)

    @classmethod
    def nothing(cls, other: Seen) -> Seen:
        """What takes the place of `other` while its rows are not needed any more."""
        return replace(other, kept=Kept([], [], [], [], [], []))

    @cached_property
    def index(self) -> NDArray[np.intp]:
        """The rows that are kept."""
        return np.concatenate(self.kept.index)


@dataclass(frozen=True, eq=False)
class PassTask:
    """The task of one look.

    Parameters
    ----------
    x : array, shape (d,)
    width : float
        A term whose margin is within ``width |(a_i, 1)|`` of a kink is not decided.
    unit, factor
        Of the loss terms.
    intercept : bool
    fold : bool
        Whether terms may be decided on a parabola.
    before : array, shape (d,), or None
        The point looked at before, where what has changed since is to be counted.
    """

    x: Array
    width: float
    unit: Unit
    factor: float
    intercept: bool
    fold: bool
    before: Array | None = None

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any, listed: Any
    ) -> Seen:
        """Look at one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        t = chunk.margins(self.x)
        if np.isinf(self.width):
            codes = np.full(len(chunk), Piece.UNDECIDED, dtype=np.int8)
        else:
            reach = self.width * np.sqrt(chunk.squares(np.ones(chunk.width)))
            codes = losses.piece_within(t - reach, t + reach)
        curved = (codes == Piece.LEFT) | (codes == Piece.RIGHT)
        if not self.fold:
            codes[curved] = Piece.UNDECIDED
            curved = np.zeros_like(curved)
        slope = losses.slope(t)
        value = t - losses.b
        value = value * slope - losses.e * np.abs(slope) - 0.5 * losses.q * slope * slope
        kept = np.flatnonzero(codes == Piece.UNDECIDED)

        theta, fy, refuted = slope, 0.0, 0
        at, known = listed
        if len(at):
            theta = slope.copy()
            theta[at] = known
            fy = float(losses.take(at).fenchel_young(t[at], known).sum())
        if self.before is not None:
            then = chunk.margins(self.before)
            other = losses.piece_within(t, t) != losses.piece_within(then, then)
            other[at] = False
            refuted = int(other.sum())
        pull = chunk.adjoint(theta)
        own = slope.copy()
        own[kept] = 0.0
        other = np.flatnonzero(theta != own)
        decided = pull - chunk.take(other).adjoint((theta - own)[other])
        linear = int(((codes == Piece.LOW) | (codes == Piece.HIGH)).sum())
        bent = int(curved.sum())
        counts = np.array([len(chunk) - len(kept) - linear - bent, linear, bent])
        taken = losses.take(kept)
        return Seen(
            value=float(value.sum()),
            decided_value=float(value.sum()) - float(value[kept].sum()),
            fy=fy,
            At_theta=pull,
            decided_At_theta=decided,
            gram=chunk.gram(np.where(curved, 1.0 / np.where(curved, losses.q, 1.0), 0.0))
            if bent else None,
            load=float(np.abs(theta).sum()),
            counts=counts,
            refuted=refuted,
            kept=Kept(
                [kept + start], [chunk.block[kept]],
                [None if chunk.scale is None else chunk.scale[kept]],
                [tuple(getattr(taken, name) for name in FIELDS)], [t[kept]], [theta[kept]],
            ),
        )

    def merge(self, left: Seen, right: Seen) -> Seen:
        """Both together."""
        return left + right


def look(
    problem: Problem,
    x: Array,
    width: float,
    listed: Listed,
    fold: bool,
    before: Array | None = None,
) -> Seen:
    """One pass over `problem`, whose design is `Chunks` and whose losses are `ChunkTerms`."""
    design, terms = in_chunks(problem)
    task = PassTask(x, width, terms.unit, terms.factor, design.intercept, fold, before)
    columns = (design.scale, terms.target, terms.weight, listed)
    seen: Seen = design.engine.run(task, design.source, columns)
    return seen


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
