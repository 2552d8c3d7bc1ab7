"""The reduced problem of a pass, and a cold start from samples of growing size.

Kept terms stay in memory, all others collapse onto their pieces. With ``g = A' theta`` and ``H =
A_Q' diag(1/q) A_Q`` of the decided terms at the point z looked at, their part of the objective is,
as long as they stay on their pieces, exactly

::

    value + g'(x - z) + 1/2 (x - z)' H (x - z)

The linear part joins the linear term. H joins as up to d further *terms*, ``1/2 <r_k, x>^2`` with
``R'R = H``: so the quadratic term stays as it was, and an intercept or an L1 term beside it.

A sample's solution is off by a statistical error. Two nested samples, one four times the other,
show how large it is: the smaller one's error is about twice the larger one's, and their difference
is what they disagree by. From that comes the first width of the band around the kinks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.losses import FIELDS, Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.core.streamed import in_chunks
from cvxscreen.designs.chunks import Chunk, Sample, entries
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.streamed.passes import Seen

Array = NDArray[np.float64]

POLISH = 6
"""Newton steps at most."""


@dataclass(frozen=True, eq=False)
class Model:
    """A look turned into a problem.

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
    def of(cls, problem: Problem, seen: Seen, x: Array, hold: float = 0.0) -> Model:
        """The reduced problem of what was `seen` from x.

        With `hold` unpenalised coordinates get a term ``hold/2 (x_j - z_j)^2`` of its own: where
        too much is linearised, the problem would be unbounded in them.
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
        if hold:
            gram = np.diag(hold * problem.quadratic.free) + (0.0 if gram is None else gram)
        if gram is not None:
            push, roots = gram @ x, _root(gram)
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

    def pull(self, x: Array) -> Array:
        """``q + A' theta`` of the decided terms at x, if they are on their pieces there."""
        return self.linear if self.gram is None else self.linear + self.gram @ (x - self.centre)

    def lifted(self, x: Array, theta: Array) -> tuple[Array, float]:
        """Slopes of the kept terms beside x, made dual feasible; and the gap they promise.

        The decided terms take the slopes of their pieces at x itself, so this gap is that of the
        full problem if all of them were decided rightly.
        """
        full = replace(self.kept, linear=self.pull(x))
        margins = full.design.forward(x)
        theta, _ = dual_feasible(full, theta[: full.n], None, margins)
        force = full.design.adjoint(theta) + full.linear
        fy = float(full.losses.fenchel_young(margins, theta).sum())
        return theta, fy + regulariser_gap(full, x, force)

    def polished(self, x: Array, theta: Array, promised: float) -> tuple[Array, Array, float]:
        """Newton steps on the smooth model, as long as they lower what `lifted` promises.

        Under an L1 term they move the coordinates that it leaves. Slopes at x itself leave a gap of
        ``1/2 |gradient|^2`` in the metric of ``M^{-1}``, which asks more of x than the gap of the
        reduced problem does where the data are badly scaled.
        """
        gram, problem = self.gram, self.kept
        if gram is None:
            return x, theta, promised
        losses, kappa = problem.losses, getattr(problem.penalty, "kappa", np.zeros(len(x)))
        for _ in range(POLISH):
            slope = losses.slope(problem.design.forward(x))
            free = (x != 0) | (kappa == 0)
            force = problem.quadratic.apply(x) + self.pull(x) + problem.design.adjoint(slope)
            force += kappa * np.sign(x)
            bends = (slope > losses.lo) & (slope < losses.hi) & ((losses.e == 0) | (slope != 0))
            rows = np.flatnonzero(bends & (losses.q > 0))
            matrix = np.diag(problem.quadratic.diagonal) + gram
            matrix += problem.design.weighted_gram(rows, 1.0 / losses.q[rows])
            size = np.sqrt(np.diag(matrix)[free])
            scaled = matrix[np.ix_(free, free)] / np.outer(size, size)
            step = np.zeros(len(x))
            step[free] = np.linalg.lstsq(scaled, -force[free] / size, rcond=None)[0] / size
            other, gap = self.lifted(x + step, losses.slope(problem.design.forward(x + step)))
            if not gap < promised:
                break
            x, theta, promised = x + step, other, gap
        return x, theta, promised


def regulariser_gap(problem: Problem, x: Array, force: Array) -> float:
    """``1/2 ||x - x_theta||_M^2`` and the penalty's term, up to rounding; ``force = A' theta + q``.

    What an unpenalised coordinate is out of balance by is left to the caller.
    """
    quadratic, rest = problem.quadratic, 0.0
    if problem.penalty is None:
        x_theta = -quadratic.solve(force)
    else:
        x_theta, s = problem.penalty.prox_and_subgradient(-force, quadratic.diagonal)
        rest = problem.penalty.fenchel_gap(x, s)
    x_theta = np.where(quadratic.free, x, x_theta)
    return 0.5 * quadratic.norm(x - x_theta) ** 2 + rest


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


def _root(gram: Array) -> Array:
    """``R`` with ``R'R = gram``, up to rounding."""
    values, frame = sla.eigh(gram)
    there = values > 1e-15 * values[-1]
    return np.ascontiguousarray((frame[:, there] * np.sqrt(values[there])).T)


STEP = 4
"""How much larger the second sample is."""
QUANTILE, MARGIN = 0.999, 1.2
"""Which of the sample's moves, relative to the size of the row, the band must hold."""
TOLERANCE = 1e-6
VAGUE = 0.01
"""Coordinates a row of the sample from which on its margins are off by more than a tenth."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Where to look first.

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
        part = sampled(problem, 1)
        ratio, curved = _distances(part, x)
        return replace(self, x=x, ratio=ratio, curved=curved)


def sample_of(problem: Problem) -> Sample:
    """The rows that are in memory; drawn by the survey, or gathered where there was none."""
    design, _ = in_chunks(problem)
    if design.sample is None:
        n = design.shape[0]
        index = np.arange(0, n, max(1, n // 10_000))
        design.sample = Sample(index, design.engine.gather(design.source, index))
    return design.sample


def sampled(problem: Problem, every: int) -> Problem:
    """Each `every`-th row of the sample, weighted up to the whole."""
    sample = sample_of(problem)
    design, _ = in_chunks(problem)
    index = sample.index[::every]
    block = sample.block if every == 1 else sample.block[::every]
    rows: Rows = Chunk.of(block, entries(design.scale, index), design.intercept).rows()
    losses: Losses = problem.losses.take(index).scaled(problem.n / len(index))
    return replace(problem, design=rows, losses=losses)


def sizes(design: Any) -> Array:
    """Euclidean lengths of the rows."""
    return np.sqrt(np.maximum(design.weighted_squares(np.ones(design.shape[1])), 1e-300))


def _distances(part: Problem, x: Array) -> tuple[Array, float]:
    t = part.design.forward(x)
    codes = part.losses.piece_within(t, t)
    curved = float(((codes == Piece.LEFT) | (codes == Piece.RIGHT)).mean())
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
    if rows >= problem.n or (budget >= problem.n and problem.d > VAGUE * rows):
        x = np.zeros(problem.d) if start is None else start
        return Pilot(x, np.zeros(1), np.inf, 0.0)
    small = sampled(problem, STEP)
    begin = None if start is None else _from(small, start)
    first = solve(small, tol=TOLERANCE, start=begin).x
    large = sampled(problem, 1)
    second = solve(large, tol=TOLERANCE, start=_from(large, first)).x
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return Pilot(np.zeros(problem.d), np.zeros(1), np.inf, 0.0)
    moved = np.abs(large.design.forward(second - first)) / sizes(large.design)
    off = float(np.quantile(moved, QUANTILE)) / np.sqrt(STEP - 1.0)
    ratio, curved = _distances(large, second)
    return Pilot(second, ratio, MARGIN * off, curved)


def _from(part: Problem, x: Array) -> Start:
    return Start(x, part.losses.slope(part.design.forward(x)))
