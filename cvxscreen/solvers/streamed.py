"""Data in chunks as a problem for the loop: one pass judges a point and reduces around it.

*Passes.* A reduction pass says what a round needs: the objective, the dual residual, which terms
are hard to decide, and with them the reduced problem of the next round; nothing of it is proven,
that is the business of `cvxscreen.certificates.one_pass`. A pass along a segment gives the
objective at many steps at once. A last pass counts how many terms the answer proves decided, by the
gap ball.

*Rounds.* A pilot on samples gives the first point and width. A pass collapses every term whose
margin is farther than that from a kink onto its piece, and gathers the others into memory; their
problem is solved by the loop for data in memory, and the next pass both judges the answer and
prepares the next round. Collapsing is a prediction: what it gets wrong shows as a gap, and the band
is widened by how far the margins moved. Only the certificate, a pass of its own, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma, up
from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core import streamed as chunk_survey
from cvxscreen.core.duality import dual_feasible, estimated_gap, regulariser_gap
from cvxscreen.core.losses import FIELDS, Losses, LossTerms, Piece, on_parabola
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.core.streamed import Slopes, UnitLoss, in_chunks
from cvxscreen.designs.chunks import Chunk, ListedValues, SampledRows, entries
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Task
from cvxscreen.screening.reduction import FOLD_LIMIT
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.registry import builtin_solver
from cvxscreen.solvers.screened import ScreenedProblem, Times
from cvxscreen.solvers.solution import Round, UnlistedSolution

Array = NDArray[np.float64]

STEPS = np.concatenate([[0.0], 2.0 ** np.arange(-24.0, -3.0, 3.0), np.arange(0.25, 1.01, 0.125)])
"""Shares of the segment that are tried."""


class SegmentTask(Task, Immutable):
    """The task: the sum of the losses at ``x + s step`` for every s of `STEPS`."""

    x: Array
    step: Array
    unit: UnitLoss
    factor: float
    intercept: bool

    def __call__(self, block: Any, start: int, scale: Any, target: Any, weight: Any) -> Array:
        """The sums of one chunk, shape (len(STEPS),)."""
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        t, dt = chunk.margins(self.x), chunk.margins(self.step)
        return np.array([losses.value(t + s * dt).sum() for s in STEPS])


def lowest_along(problem: Problem, x: Array, end: Array) -> Array:
    """The point where the objective is lowest among `STEPS` on the segment from `x` to `end`."""
    (design, terms), step = in_chunks(problem), end - x
    task = SegmentTask(x, step, terms.unit, terms.factor, design.intercept)
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


class GatheredTerms(Immutable):
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

    def __add__(self, other: GatheredTerms) -> GatheredTerms:
        return GatheredTerms(*(getattr(self, name) + getattr(other, name) for name in vars(self)))

    def rows(self) -> Any:
        """All rows in one array or CSR matrix."""
        if sp.issparse(self.blocks[0]):
            return sp.vstack(self.blocks, format="csr")
        return np.concatenate(self.blocks)

    def factors(self) -> Array | None:
        """The factors of all rows."""
        return None if self.scale[0] is None else np.concatenate(self.scale)

    def table(self) -> Losses:
        """The losses of the gathered rows."""
        return Losses(*(np.concatenate(column) for column in zip(*self.losses, strict=True)))


class PassResult(Immutable):
    """What one pass over the data says of a point, and the reduced problem around it.

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
    kept : GatheredTerms
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
    kept: GatheredTerms

    def __add__(self, other: PassResult) -> PassResult:
        gram = self.gram if other.gram is None else other.gram
        if self.gram is not None and other.gram is not None:
            gram = self.gram + other.gram
        summed = {
            name: mine + getattr(other, name) for name, mine in vars(self).items() if name != "gram"
        }
        return PassResult(gram=gram, **summed)

    @classmethod
    def nothing(cls, other: PassResult) -> PassResult:
        """What takes the place of `other` while its rows are not needed any more."""
        return replace(other, kept=GatheredTerms([], [], [], [], [], []))

    @cached_property
    def index(self) -> NDArray[np.intp]:
        """The rows that are kept."""
        return np.concatenate(self.kept.index)


class ReductionTask(Task, Immutable):
    """The task of a pass that evaluates a point and gathers the terms close to a kink.

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
    unit: UnitLoss
    factor: float
    intercept: bool
    fold: bool
    before: Array | None = None

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any, listed: Any
    ) -> PassResult:
        """The pass over one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        t = chunk.margins(self.x)
        if np.isinf(self.width):
            codes = np.full(len(chunk), Piece.UNDECIDED, dtype=np.int8)
        else:
            reach = self.width * np.sqrt(chunk.squares(np.ones(chunk.width)))
            codes = losses.piece_within(t - reach, t + reach)
        curved = on_parabola(codes)
        # Parabolas are summed into one matrix, d x d, or where that is too large solved for.
        if not self.fold:
            codes[curved] = Piece.UNDECIDED
            curved = np.zeros_like(curved)
        slope = losses.slope(t)
        # The losses at x from their slopes: f = (t - b) s - e |s| - q s^2 / 2 on every piece.
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
        # The sum over decided terms alone is that of all, less the rows that differ: few, where a
        # second pass over the chunk would be of most.
        At_theta = chunk.adjoint(theta)
        own = slope.copy()
        own[kept] = 0.0
        other = np.flatnonzero(theta != own)
        decided = At_theta - chunk.take(other).adjoint((theta - own)[other])
        linear = int(((codes == Piece.LOW) | (codes == Piece.HIGH)).sum())
        bent = int(curved.sum())
        counts = np.array([len(chunk) - len(kept) - linear - bent, linear, bent])
        taken = losses.take(kept)
        return PassResult(
            value=float(value.sum()),
            decided_value=float(value.sum()) - float(value[kept].sum()),
            fy=fy,
            At_theta=At_theta,
            decided_At_theta=decided,
            gram=chunk.gram(np.where(curved, 1.0 / np.where(curved, losses.q, 1.0), 0.0))
            if bent else None,
            load=float(np.abs(theta).sum()),
            counts=counts,
            refuted=refuted,
            kept=GatheredTerms(
                [kept + start], [chunk.block[kept]],
                [None if chunk.scale is None else chunk.scale[kept]],
                [tuple(getattr(taken, name) for name in FIELDS)], [t[kept]], [theta[kept]],
            ),
        )


def reduction_pass(
    problem: Problem,
    x: Array,
    width: float,
    listed: ListedValues,
    fold: bool,
    before: Array | None = None,
) -> PassResult:
    """One pass over `problem`, whose design is `Chunks` and whose losses are `ChunkTerms`."""
    design, terms = in_chunks(problem)
    task = ReductionTask(x, width, terms.unit, terms.factor, design.intercept, fold, before)
    columns = (design.scale, terms.target, terms.weight, listed)
    seen: PassResult = design.engine.run(task, design.source, columns)
    return seen


Codes = NDArray[np.int8]

_KINDS = (
    (Piece.ZERO,), (Piece.LOW, Piece.HIGH), (Piece.LEFT, Piece.RIGHT),
)


class ProofTask(Task, Immutable):
    """The task: terms proven on a zero, a linear, a quadratic piece, shape (3,).

    Parameters
    ----------
    x : array, shape (d,)
    weights : array, shape (d,)
        ``1 / M_jj``.
    radius : float
        ``||x* - x||_M`` at most.
    unit_error : float
        Error of a margin over the size of its row.
    unit, factor
        Of the loss terms.
    """

    x: Array
    weights: Array
    radius: float
    unit_error: float
    unit: UnitLoss
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
        reach += self.unit_error * np.sqrt(chunk.squares(np.ones(chunk.width))) * outward
        # The ends of the interval are rounded as well.
        reach += 4.0 * gamma(1) * (np.abs(t) + reach)
        return losses.piece_within(t - reach, t + reach)


def proof_task(problem: Problem, x: Array, gap: float) -> ProofTask | None:
    """The task for an x with ``P(x) - P* <= gap``; None where that bounds no margin.

    P is strongly convex in the norm of M, so ``1/2 ||x - x*||_M^2 <= P(x) - P*`` (the gap ball). An
    unpenalised intercept is not bounded by it.
    """
    design, terms = in_chunks(problem)
    if problem.quadratic.free.any() or not np.isfinite(gap):
        return None
    weights = 1.0 / problem.quadratic.diagonal
    unit_error = up(design.forward_factor * float(np.linalg.norm(x)), problem.d + 8)
    radius = up(float(np.sqrt(2.0 * gap)))
    return ProofTask(x, weights, radius, unit_error, terms.unit, terms.factor)


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


# -- the reduced problem of a pass, and a start from samples --------------------------------------
#
# Kept terms stay in memory, all others collapse onto their pieces. With g = A' theta and H = A_Q'
# diag(1/q) A_Q of the decided terms at the point z looked at, their part of the objective is, as
# long as they stay on their pieces, exactly
#
#     value + g'(x - z) + 1/2 (x - z)' H (x - z)
#
# The linear part joins the linear term. H joins as up to d further *terms*, 1/2 <r_k, x>^2 with R'R
# = H: so the quadratic term stays as it was, and an intercept or an L1 term beside it.
#
# A sample's solution is off by a statistical error. Two nested samples, one four times the other,
# show how large it is: the smaller one's error is about twice the larger one's, and their
# difference is what they disagree by. From that comes the first width of the band around the kinks.



POLISH_STEPS = 6
"""Newton steps at most."""


class CollapsedProblem(Immutable):
    """The reduced problem of a pass: the gathered terms, and all others on their pieces.

    Attributes
    ----------
    problem : Problem
        The reduced one; its first terms are the kept ones, its last those of the parabolas.
    kept : Problem
        The kept terms alone, without what is collapsed.
    linear : array, shape (d,)
        ``q + g``.
    gram : array, shape (d, d), or None
        ``H``.
    centre : array, shape (d,)
        ``z``.
    margins, theta : array
        Of the kept terms at the centre.
    """

    problem: Problem
    kept: Problem
    linear: Array
    gram: Array | None
    centre: Array
    margins: Array
    theta: Array

    @classmethod
    def of(
        cls, problem: Problem, seen: PassResult, x: Array, proximal: float = 0.0
    ) -> CollapsedProblem:
        """The reduced problem of what was `seen` from x.

        With `proximal` unpenalised coordinates get a term ``proximal/2 (x_j - z_j)^2``: where too
        much is linearised, the problem would be unbounded in them.
        """
        design, _ = in_chunks(problem)
        rows, scale, losses = seen.kept.rows(), seen.kept.factors(), seen.kept.table()
        linear = problem.linear + seen.decided_At_theta
        constant = problem.constant + seen.decided_value - float(seen.decided_At_theta @ x)
        kept = replace(
            problem, design=_rows(rows, scale, design.intercept, None), losses=losses,
            linear=linear, constant=constant,
        )
        reduced = kept
        gram = seen.gram
        if proximal:
            gram = np.diag(proximal * problem.quadratic.free) + (0.0 if gram is None else gram)
        if gram is not None:
            push, roots = gram @ x, _root_of_gram(gram)
            m = len(roots)
            parabola = {"q": np.ones(m), "lo": np.full(m, -np.inf), "hi": np.full(m, np.inf)}
            columns = (
                np.concatenate([getattr(losses, name), parabola.get(name, np.zeros(m))])
                for name in FIELDS
            )
            reduced = replace(
                kept,
                design=_rows(rows, scale, design.intercept, roots),
                losses=Losses(*columns),
                linear=linear - push,
                constant=constant + 0.5 * float(x @ push),
            )
        return cls(
            reduced, kept, linear, seen.gram, x, np.concatenate(seen.kept.margins),
            np.concatenate(seen.kept.theta),
        )

    @property
    def start(self) -> Array:
        """Slopes of all terms of the reduced problem at the centre."""
        bent = np.arange(self.kept.n, self.problem.n)
        if not len(bent):
            return self.theta
        slopes = self.problem.design.take_rows(bent).forward(self.centre)
        return np.concatenate([self.theta, slopes])

    def linear_at(self, x: Array) -> Array:
        """``q + A' theta`` of the decided terms at x, if they are on their pieces there."""
        return self.linear if self.gram is None else self.linear + self.gram @ (x - self.centre)

    def lifted(self, x: Array, theta: Array) -> tuple[Array, float]:
        """Slopes of the kept terms beside x, made dual feasible; and the gap they promise.

        The decided terms take the slopes of their pieces at x itself, so this gap is that of the
        full problem if all of them were decided rightly.
        """
        full = replace(self.kept, linear=self.linear_at(x))
        margins = full.design.forward(x)
        theta, _ = dual_feasible(full, theta[: full.n], None, margins)
        return theta, estimated_gap(full, x, theta, margins, full.design.adjoint(theta))

    def polished(self, x: Array, theta: Array, promised: float) -> tuple[Array, Array, float]:
        """Newton steps on the smooth model, as long as they lower what `lifted` promises.

        Under an L1 term they move the coordinates that it leaves. Slopes at x itself leave a gap of
        ``1/2 |gradient|^2`` in the metric of ``M^{-1}``, which asks more of x than the gap of the
        reduced problem does where the data are badly scaled.
        """
        gram, problem = self.gram, self.kept
        if gram is None:
            return x, theta, promised
        losses, penalty = problem.losses, problem.penalty
        kappa = penalty.kappa if isinstance(penalty, L1) else np.zeros(len(x))
        for _ in range(POLISH_STEPS):
            slope = losses.slope(problem.design.forward(x))
            free = (x != 0) | (kappa == 0)
            gradient = (
                problem.quadratic.apply(x) + self.linear_at(x) + problem.design.adjoint(slope)
            )
            gradient += kappa * np.sign(x)
            curved = (slope > losses.lo) & (slope < losses.hi) & ((losses.e == 0) | (slope != 0))
            rows = np.flatnonzero(curved & (losses.q > 0))
            matrix = np.diag(problem.quadratic.diagonal) + gram
            matrix += problem.design.weighted_gram(rows, 1.0 / losses.q[rows])
            size = np.sqrt(np.diag(matrix)[free])
            scaled = matrix[np.ix_(free, free)] / np.outer(size, size)
            step = np.zeros(len(x))
            step[free] = np.linalg.lstsq(scaled, -gradient[free] / size, rcond=None)[0] / size
            other, gap = self.lifted(x + step, losses.slope(problem.design.forward(x + step)))
            if not gap < promised:
                break
            x, theta, promised = x + step, other, gap
        return x, theta, promised


def _rows(block: Any, scale: Array | None, intercept: bool, roots: Array | None) -> Rows:
    """Rows of the data and, below them, those of the parabolas (whose last column is `extra`)."""
    n = block.shape[0]
    extra = np.ones((n, 1)) if intercept else np.zeros((n, 0))
    if roots is not None:
        p = block.shape[1]
        head = roots[:, :p]
        if sp.issparse(block):
            block = sp.vstack([block, sp.csr_matrix(head)], format="csr")
        else:
            block = np.concatenate([block, head])
        extra = np.concatenate([extra, roots[:, p:]])
        scale = None if scale is None else np.concatenate([scale, np.ones(len(roots))])
    return Rows(block, scale, extra, known=True)


def _root_of_gram(gram: Array) -> Array:
    """``R`` with ``R'R = gram``, up to rounding."""
    values, frame = sla.eigh(gram)
    there = values > 1e-15 * values[-1]
    return np.ascontiguousarray((frame[:, there] * np.sqrt(values[there])).T)


# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.87 to 1.13 times the time, in up
# to 2 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1). But for
# `VAGUE_RATIO`: of 6,000 x 8 a solve without samples takes half as long, of 20,000 x 8 0.65 to 1,
# of 60,000 x 8 0.6 to 1.5, of 200,000 x 8 1.6 to 1.9.
SAMPLE_RATIO = 4
"""How much larger the second sample is."""
MOVED_QUANTILE, WIDTH_MARGIN = 0.999, 1.2
"""Which of the sample's moves, relative to the size of the row, the band must hold."""
SAMPLE_TOLERANCE = 1e-6
"""Relative gap of the fits of samples, which are off by far more for being samples."""
VAGUE_RATIO = 0.01
"""Coordinates a row of the sample from which on its margins are off by more than a tenth."""


class Pilot(Immutable):
    """The first point and width of the band around the kinks, from solutions of samples.

    Attributes
    ----------
    x : array, shape (d,)
    ratio : array, shape (m,)
        Distance of the sample's margins from a kink, in units of the size of the row.
    width : float
        How far a margin may be off in these units; infinite where the sample is everything.
    curved : float
        Share of the sample on a parabola.
    """

    x: Array
    ratio: Array
    width: float
    curved: float

    def share(self, width: float) -> float:
        """About which share of all terms lies within `width` of a kink."""
        return float((self.ratio <= width).mean())

    def width_for(self, share: float) -> float:
        """The width that about a `share` of all terms lies within."""
        return float(np.quantile(self.ratio, min(max(share, 0.0), 1.0), method="higher"))

    def seen_from(self, x: Array, problem: Problem) -> Pilot:
        """The same sample, its distances measured at another point."""
        part = sample_problem(problem, 1)
        ratio, curved = _kink_distances(part, x)
        return replace(self, x=x, ratio=ratio, curved=curved)


def sample_of(problem: Problem) -> SampledRows:
    """The rows that are in memory; drawn by the survey, or gathered where there was none."""
    design, _ = in_chunks(problem)
    if design.sample is None:
        n = design.shape[0]
        index = np.arange(0, n, max(1, n // 10_000))
        design.sample = SampledRows(index, design.engine.gather(design.source, index))
    return design.sample


def sample_problem(problem: Problem, every: int) -> Problem:
    """Each `every`-th row of the sample, weighted up to the whole."""
    sample = sample_of(problem)
    design, _ = in_chunks(problem)
    index = sample.index[::every]
    block = sample.block if every == 1 else sample.block[::every]
    rows: Rows = Chunk.of(block, entries(design.scale, index), design.intercept).rows()
    losses: LossTerms = problem.losses.take(index).scaled(problem.n / len(index))
    return replace(problem, design=rows, losses=losses)


def sizes(design: Any) -> Array:
    """Euclidean lengths of the rows."""
    return np.sqrt(np.maximum(design.weighted_squares(np.ones(design.shape[1])), 1e-300))


def _kink_distances(part: Problem, x: Array) -> tuple[Array, float]:
    t = part.design.forward(x)
    codes = part.losses.piece_within(t, t)
    curved = float(on_parabola(codes).mean())
    return part.losses.kink_distance(t) / sizes(part.design), curved


def pilot(problem: Problem, solve: Any, start: Array | None, budget: int) -> Pilot:
    """Solve the samples, unless all terms are better taken into memory at once.

    Parameters
    ----------
    problem : Problem
        Of data in chunks.
    solve : callable
        ``solve(problem, tol=..., start=...)``, the loop for problems in memory.
    start : array, shape (d,), or None
        Where to begin.
    budget : int
        Terms that fit in memory.
    """
    rows = len(sample_of(problem).index)
    if rows >= problem.n or (budget >= problem.n and problem.d > VAGUE_RATIO * rows):
        x = np.zeros(problem.d) if start is None else start
        return Pilot(x, np.zeros(1), np.inf, 0.0)
    small = sample_problem(problem, SAMPLE_RATIO)
    begin = None if start is None else _from(small, start)
    first = solve(small, tol=SAMPLE_TOLERANCE, start=begin).x
    large = sample_problem(problem, 1)
    second = solve(large, tol=SAMPLE_TOLERANCE, start=_from(large, first)).x
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return Pilot(np.zeros(problem.d), np.zeros(1), np.inf, 0.0)
    moved = np.abs(large.design.forward(second - first)) / sizes(large.design)
    off = float(np.quantile(moved, MOVED_QUANTILE)) / np.sqrt(SAMPLE_RATIO - 1.0)
    ratio, curved = _kink_distances(large, second)
    return Pilot(second, ratio, WIDTH_MARGIN * off, curved)


def _from(part: Problem, x: Array) -> Start:
    return Start(x, part.losses.slope(part.design.forward(x)))


# -- the problem that the loop screens ------------------------------------------------------------


class ChunkedSolution(UnlistedSolution):
    """The solution over data in chunks.

    `theta` becomes an array where one is asked for (`cvxscreen.core.streamed.Slopes`), and so does
    `alpha`: one pass over the data each.

    Attributes
    ----------
    passes : int
        Passes over the data of this call, the certificate's included.
    """

    passes: int = 0

    @cached_property
    def decided(self) -> tuple[int, int, int]:
        """Terms that this answer *proves* to be on a zero, a linear, a quadratic piece; one pass.

        By the gap ball. It bounds no intercept: with one, nothing is proven.
        """
        return proven(self.problem, self.x, self.certificate.gap)

    def __str__(self) -> str:
        last = self.rounds[-1] if self.rounds else None
        kept = f", {last.kept:,} in the last reduced problem" if last else ""
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms in chunks{kept}; "
            f"{self.passes} passes, {len(self.rounds)} rounds, {self.seconds:.3g} s\n"
            f"{self.certificate}"
        )


Index = NDArray[np.intp]
Pair = tuple[Array, Array]

MAX_ROUNDS = 20
"""Rounds, each at least one pass over the data, after which what is there is the answer."""
GAP_SHARE = 0.5
"""Share of the tolerance that the gap of a reduced problem may use up."""
UNBOUNDED_SHARE = 0.1
"""A reduced problem that promises a gap of more than this share of the lowest objective, and that
was not solved, was unbounded."""
LEAST_KEPT = 400
"""Terms that are kept in any case."""


class PassEstimate(NamedTuple):
    """Gap and objective of a point as a pass over the data saw them, up to rounding."""

    gap: float
    primal: float

    @property
    def relative_gap(self) -> float:
        """The gap relative to the objective."""
        return float(relative_gap(self.gap, self.primal))


class ScreenedChunks(
    ScreenedProblem[float, CollapsedProblem, tuple[Array, Array, float], Pair, PassEstimate]
):
    """A problem over data in chunks, which one pass both judges and reduces.

    What a round fixes is said by a width: every term whose margin is farther than that from a kink
    (in units of the size of its row) is predicted to stay on its piece.

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, `sparse_svm` or `sparse_svr` over data in chunks.
    inner : SubproblemSolver
        What reduced problems are solved with; one that is interchangeable leaves it to each of
        them.
    mode : {"certified"}
    tol : float
        Relative duality gap on all data.
    bounds : sequence of Bound, optional
        What the loop in memory proves with.
    on_round : callable, optional

    Raises
    ------
    InvalidInput
        For ``mode="safe"``.
    """

    pilot: Pilot
    last_pass: PassResult
    slopes: Slopes
    x: Array
    width: float
    lowest: tuple[float, Array]

    def __init__(
        self,
        problem: Problem,
        inner: SubproblemSolver,
        mode: str,
        tol: float,
        bounds: Sequence[Bound] | None,
        on_round: Callable[[Round], None] | None,
    ) -> None:
        if mode != "certified":
            raise InvalidInput(
                '`mode` is "safe", but over data in chunks terms are also left out on prediction '
                'and the answer is certified afterwards: use mode="certified", or load the data '
                "(np.array(X)) for a solve that leaves out nothing unproven."
            )
        self.problem, self.inner, self.tol = problem, inner, tol
        self.bounds, self.on_round, self.limits = bounds, on_round, inner.limits
        self.rounds = []
        self.gap, self.proximal, self.aim = np.inf, 0.0, GAP_SHARE
        self.proof: Certificate | None = None
        self.passes = self.decided = 0
        self.kept: Index = np.zeros(0, dtype=np.intp)
        self.estimated: PassEstimate | None = None

    def begin(self, start: Start | None, solve: Callable[..., Any]) -> None:
        """A pilot, and the first pass; of a start only its `x` counts.

        ``solve(problem, inner, tol=..., start=..., bounds=...)`` is the loop for data in memory.

        Raises
        ------
        InvalidInput
            Where the terms that cannot be collapsed do not fit in memory.
        """

        def again(reduced: Problem, **options: Any) -> Any:
            inner = self.inner
            if inner.traits.interchangeable:
                inner = builtin_solver(reduced, self.limits)
            return solve(reduced, inner, bounds=self.bounds, **options)

        self.in_memory = again
        x = None if start is None else np.array(start.x, dtype=np.float64)
        self.pilot = pilot(self.problem, again, x, self.budget)
        self.x = self.pilot.x
        self.width = self.admissible_width(self.pilot.width)
        self.last_pass = self.reduction_pass(ListedValues.nothing(), None)
        self.slopes = Slopes(self.problem, self.x, ListedValues.nothing())
        self.lowest = (self.estimate().primal, self.x)

    @property
    def fold(self) -> bool:
        """Whether terms on a parabola are collapsed too."""
        return self.problem.d <= FOLD_LIMIT

    @property
    def budget(self) -> int:
        """Terms that a reduced problem may have."""
        sample = sample_of(self.problem).block
        row = 8.0 * self.problem.d
        if self.problem.design.sparse:
            row = 12.0 * sample.nnz / sample.shape[0]
        return int(chunk_survey.MOST_BYTES / (row + chunk_survey.TERM_BYTES))

    def admissible_width(self, width: float) -> float:
        """The nearest width that keeps enough terms and not too many."""
        n, pilot = self.problem.n, self.pilot
        room = self.budget if self.fold else self.budget - pilot.curved * n
        if n <= self.budget and (np.isinf(width) or pilot.share(width) > 0.5):
            return np.inf
        if room < max(LEAST_KEPT, 4 * self.problem.d):
            raise InvalidInput(
                f"about {pilot.curved * n:,.0f} terms lie on a quadratic piece of their loss, and "
                f"with {self.problem.d} features (more than {FOLD_LIMIT}) all of them would have "
                f"to be in memory, where {self.budget:,} fit; choose a loss without quadratic "
                "pieces, fewer features, or a machine with more memory and an ordinary array."
            )
        least = pilot.width_for(max(LEAST_KEPT, 4 * self.problem.d) / n)
        return float(min(max(width, least), pilot.width_for(0.8 * room / n)))

    def reduction_pass(self, listed: ListedValues, before: Array | None) -> PassResult:
        """One pass at the current point."""
        self.passes += 1
        return reduction_pass(self.problem, self.x, self.width, listed, self.fold, before)

    # -- the steps of a round ---------------------------------------------------------------

    def select(self) -> float:
        """The width of the band around the kinks that the last pass has kept."""
        return self.width

    def reduce(
        self, selection: float
    ) -> tuple[CollapsedProblem, Callable[[tuple[Array, Array, float]], Pair]]:
        """The terms that the last pass has gathered, all others collapsed."""
        model = CollapsedProblem.of(self.problem, self.last_pass, self.x, self.proximal)
        self.kept, self.decided = self.last_pass.index, int(self.last_pass.counts.sum())
        self.last_pass = PassResult.nothing(
            self.last_pass
        )  # the model has its own copy of the rows

        def lift(found: tuple[Array, Array, float]) -> Pair:
            x, theta, promised = model.polished(*found)
            rows = model.kept.design
            moved = np.abs(rows.forward(x) - model.margins) / sizes(rows)
            needed = float(np.quantile(moved, MOVED_QUANTILE)) if len(moved) else 0.0
            self.result.info.update(needed=needed, promised=promised)
            return x, theta

        return model, lift

    def solve(
        self, reduced: CollapsedProblem, selection: float
    ) -> tuple[Array, Array, float] | None:
        """The answer of the loop in memory, and the gap that it promises; None if unbounded."""
        begin = Start(self.x, reduced.start) if self.x.any() else None
        found = self.in_memory(reduced.problem, tol=self.aim * self.tol, start=begin)
        self.result = SubproblemResult(
            found.status, found.x, found.theta, info={"width": selection}
        )
        if not np.isfinite(found.x).all():
            return None
        theta, promised = reduced.lifted(found.x, found.theta)
        if found.status != "optimal" and promised > UNBOUNDED_SHARE * abs(self.lowest[0]):
            return None  # too much was linearised
        return found.x, theta, promised

    def evaluate(self, lifted: Pair, selection: float) -> PassEstimate:
        """One pass, which also gathers what the next round keeps."""
        (x, theta), needed = lifted, self.result.info["needed"]
        before, self.x = self.x, x
        if np.isfinite(selection):
            self.pilot = self.pilot.seen_from(x, self.problem)
        wider = min(8 * selection, 2 * needed)
        self.width = self.admissible_width(0.5 * selection if needed <= selection else wider)
        listed = ListedValues(self.kept, theta)
        self.last_pass = self.reduction_pass(listed, before)
        found = self.estimate()
        if found.gap < self.gap or (np.isinf(self.gap) and found.primal <= self.lowest[0]):
            self.gap, self.slopes = found.gap, Slopes(self.problem, x, listed)
        return found

    def put_back(self, selection: float, point: PassEstimate | None) -> int:
        """Terms that have left their piece; the pass has gathered those near a kink already."""
        self.estimated = point
        return 0 if point is None else self.last_pass.refuted

    def estimate(self) -> PassEstimate:
        """Gap and objective at x as the last pass saw them, up to rounding."""
        problem, seen = self.problem, self.last_pass
        primal = seen.value + problem.quadratic.inner(
            0.5 * problem.quadratic.apply(self.x) + problem.linear, self.x
        ) + problem.constant
        if problem.penalty is not None:
            primal += problem.penalty.value(self.x)
        dual_residual = seen.At_theta + problem.linear
        gap = seen.fy + regulariser_gap(problem, self.x, dual_residual)
        free = problem.quadratic.free
        if (np.abs(dual_residual[free]) > 1e-10 * (1e-300 + seen.load)).any():
            gap = np.inf  # refuted terms have left the intercept out of balance
        return PassEstimate(float(gap), float(primal))

    def close(self, selection: float, refuted: int, times: Times) -> None:
        """Record the round; certify, or go back where the objective is lowest."""
        found, lowest = self.estimated, self.lowest[0]
        self.record(len(self.kept), found, (0, self.decided, refuted), times)
        if found is None:
            self.proximal = max(10.0 * self.proximal, 1e-2 * self.last_pass.load)
            self.return_to_lowest(self.x, 2.0 * selection)
            return
        self.certify_if_promising(found.relative_gap)
        if not self.finished and found.primal > lowest + 1e-9 * abs(lowest):
            self.return_to_lowest(self.x, 2.0 * selection)
        elif found.primal < lowest:
            self.lowest = (found.primal, self.x)
            self.proximal = (
                0.1 * self.proximal if self.proximal > 1e-3 * self.last_pass.load else 0.0
            )

    def return_to_lowest(self, end: Array, width: float) -> None:
        """After a step to `end` that went too far: a wider pass where the objective is lowest."""
        self.x = self.lowest[1]
        if end is not self.x:
            self.passes += 1
            self.x = lowest_along(self.problem, self.x, end)
        self.pilot = self.pilot.seen_from(self.x, self.problem)
        self.width = self.admissible_width(width)
        self.finished = self.finished or len(self.rounds) >= MAX_ROUNDS
        if not self.finished:
            self.last_pass = self.reduction_pass(ListedValues.nothing(), None)
            self.lowest = (self.estimate().primal, self.x)

    def certify_if_promising(self, relative: float) -> None:
        """Certify what promises to be good enough; stop when nothing more can be done."""
        if relative <= self.tol:
            self.proof = self.certified()
            self.finished = self.proof.ok
            self.aim *= 0.1
        self.finished = self.finished or len(self.rounds) >= MAX_ROUNDS or self.aim < 1e-4

    def certified(self) -> Certificate:
        """The certificate of the best point."""
        self.passes += 1
        return certify_chunks(self.problem, self.slopes.x, self.slopes, tol=self.tol)

    def solution(self, began: float) -> ChunkedSolution:
        """The record of the call, which began at that `perf_counter`."""
        x, slopes = self.slopes.x, self.slopes
        self.proof = self.certified() if self.proof is None else self.proof
        return ChunkedSolution(
            problem=self.problem, x=x, theta=slopes,  # type: ignore[arg-type]
            multipliers=np.zeros(0), status=self.limits.word(self.proof.ok),
            certificate=self.proof,
            earlier=None,  # type: ignore[arg-type]
            rounds=tuple(self.rounds), solver=self.inner.name, mode="certified",
            seconds=perf_counter() - began,
            passes=self.passes,
        )
