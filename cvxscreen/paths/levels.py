"""Neighbouring quantile levels, solved among the same few terms.

From one level to another a twentieth further a twentieth of the terms change sides, and some that
the optimum's own move takes across. Which these are is predicted from an answer and the direction
in which the quantile process leaves it; all others are replaced by their lines, once for all levels
of the block. What is left is a problem of the same kind, whose linear term moves with the level.
The optimum of each level is predicted on the way that it leaves by, a few Newton steps bring it
closer, and the terms that are then near their kinks make a linear program of a few hundred terms:
those of all levels are solved together (`cvxscreen.solvers.vertices`), and where that does not do
the levels are solved one by one by the ordinary loop. All are certified on the full data in one
pass (`cvxscreen.certificates.many`). A level that this refuses is solved again among all terms.
Of the two passes that this takes the other tells where the margins go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.certificates.certificate import Certificate, Passes
from cvxscreen.certificates.many import certify_levels
from cvxscreen.core.losses import Codes, LossTerms, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Answer, Solution
from cvxscreen.solvers.vertices import vertices

Array = NDArray[np.float64]

SPAN = 0.12
"""How far the levels of a block are from the answer that it begins at, at most: beginning one
costs as much as two to four levels. 99 levels took, with 0.08 and 0.12, 1.96 and 1.84 s over
100,000 x 50, 0.50 and 0.46 s over 20,000 x 20."""
TAIL = 3.0
"""By which factor the share beyond a level changes within a block, at most: so do densities."""
NOISE_ROOM, LEAST_ROOM = 11.0, 0.02
"""Share of the terms that is kept beside those that are predicted to change sides, in units of
``sqrt(d |step| / n)``, the deviation of a share that the noise of a step of the level moves margins
by (Koenker 2005, section 4.2): five at either end of what is kept; and that share at least, as the
process is no straight line."""
LEAST_TERMS, A_COORDINATE = 10_000, 500
"""Terms from which on a block pays, and how many a coordinate."""
LARGEST_SHARE = 0.4
"""Share of the terms up to which a block is worth while."""
CURVATURE_TERMS, LEAST_CURVATURE_TERMS = 60, 5000
"""Terms that the curvature is summed over, in units of the coordinates, and at least."""
SAMPLE = 50_000
"""Terms that shares are read off."""
REGULAR = 1e-9
"""What is added to the diagonal of the curvature, relatively: columns may depend on each other."""
CORRECTIONS = 6
"""Newton steps at most from where an optimum is predicted."""
VERTEX_TERMS, LEAST_VERTEX_TERMS, MOST_VERTEX_TERMS = 10, 300, 2
"""Terms of the linear program of a level, in units of the coordinates, and at least. Where the last
correction took more than half as many across their kinks it is of twice those; a level where that
are more than `MOST_VERTEX_TERMS` times the usual number is left to another block."""
TIES, TIE_WIDTH = 4, 1e-7
"""A vertex has as many terms at their kinks as there are coordinates. Where it has so many times
more, since rows and responses repeat, levels are solved alone: 20,000 x 5 whole numbers, 149 tied,
take half the time so. The second: how near counts, relative to the usual distance."""

DENSE = 2**24
"""Entries of the kept terms up to which they are written out (128 MB)."""


class LinearisedTerms(Immutable):
    """A quantile regression with most of its terms replaced by their lines, at any level.

    Attributes
    ----------
    problem : Problem
        Pinball losses alone over rows, at any level.
    codes : array, shape (n,)
        `Piece.LOW` or `Piece.HIGH`, the line of a term; -1 for the others.
    kept : Problem
        The others; its linear term is that of no level.
    level : float
        At which `At_theta` and `value` are.
    At_theta, value : array, shape (d,), and float
        ``A_S' theta_S`` and ``<b_S, theta_S>`` there, S the terms that are lines.
    rates : array, shape (d,), and float
        By how much both fall for a unit of the level.
    """

    problem: Problem
    codes: Codes
    kept: Problem
    level: float
    At_theta: Array
    value: float
    rates: tuple[Array, float]

    @classmethod
    def of(cls, problem: Problem, answer: Answer, codes: Codes, At_jumps: Array) -> LinearisedTerms:
        """The terms of `codes` on their lines, at an answer whose ``A' theta`` is known.

        `At_jumps` is ``A'`` of the jumps of all slopes. The weights are those of the problem as
        given to the path: of one at another level they would differ in the last digit.
        """
        f, here, layout = problem.losses, answer.problem, answer.problem.layout
        kept, jumps, At_theta = np.flatnonzero(codes < 0), f.hi - f.lo, answer.passes.At_theta
        if At_theta is None or layout is None or layout.tau is None:
            raise TypeError("the answer is not one of a quantile regression with its two products")
        small = replace(problem, design=problem.design.take_rows(kept), losses=f.take(kept))
        small.known.inherit_rows(problem.known, kept)
        few, theta, b = jumps[kept], answer.theta[kept], f.b[kept]
        lines = np.where(codes == Piece.HIGH, here.losses.hi, here.losses.lo)
        value = float(lines @ f.b) - float(lines[kept] @ b)
        change = At_jumps - small.design.adjoint(few), float(jumps @ f.b) - float(few @ b)
        of_lines = At_theta - small.design.adjoint(theta)
        return cls(problem, codes, small, layout.tau, of_lines, value, change)

    def linear(self, level: float) -> Array:
        """The linear term at `level`."""
        return self.problem.linear + self.At_theta - (level - self.level) * self.rates[0]

    def at(self, level: float) -> Problem:
        """The problem of the other terms at `level`."""
        here = self.kept.with_(tau=level)
        value = self.value - (level - self.level) * self.rates[1]
        known, here = here.known, replace(
            here, linear=self.linear(level), constant=self.problem.constant - value
        )
        here.known.inherit_rows(known)
        here.known.inherit_columns(known)
        return here


class LevelAnswer(Immutable):
    """An answer at a level: x, the slopes of the kept terms, how many were solved for, rounds."""

    x: Array
    theta: Array
    solved: int
    rounds: int = 1
    refuted: int = 0


class LevelBlock(Immutable):
    """Neighbouring levels that are solved together, and the terms that are kept for all of them.

    Attributes
    ----------
    levels : array, shape (K,)
    linearised : LinearisedTerms
        What the other terms are replaced by.
    predicted : array, shape (K, d)
        Where the optima are expected.
    curvature : array, shape (d, d)
        The inverse of the curvature where the block begins.
    distance : array, shape (m,)
        How far the kept terms are from their kinks there.
    """

    levels: Array
    linearised: LinearisedTerms
    predicted: Array
    curvature: Array
    distance: Array

    @classmethod
    def predicted_from(
        cls, given: Problem, answer: Answer, grid: Array, At_jumps: Array
    ) -> LevelBlock | None:
        """The first levels of `grid` from `answer` on; None where they are not worth a block.

        `given` and `At_jumps` as for `LinearisedTerms.of`.
        """
        problem, margins, layout = answer.problem, answer.passes.margins, answer.problem.layout
        few = problem.n < max(LEAST_TERMS, A_COORDINATE * problem.d)
        if (
            few
            or margins is None
            or layout is None
            or layout.tau is None
            or not is_quantile_process(problem)
        ):
            return None
        tail = np.minimum(grid, 1.0 - grid) / min(layout.tau, 1.0 - layout.tau)
        far = np.abs(grid - layout.tau) > SPAN * (1.0 + 1e-9)
        far |= np.maximum(tail, 1.0 / tail) > TAIL * (1.0 + 1e-9)
        levels = grid[: int(np.argmax(far)) if far.any() else len(grid)]
        if not len(levels):
            return None
        distance = margins - problem.losses.b
        if count_at_kinks(distance) > TIES * problem.d:
            return None
        some = slice(None, None, max(problem.n // max(SAMPLE, A_COORDINATE * problem.d), 1))
        curvature = inverse_curvature(problem, distance, some)
        if curvature is None:
            return None
        # To first order x moves along this direction as the level does, at the speed of the density
        # of terms around the kinks.
        direction = curvature @ At_jumps
        moved = problem.design.forward(direction)
        lengths = crossing_lengths(distance[some], moved[some], levels - layout.tau)
        back, on = min(float(lengths.min()), 0.0) * moved, max(float(lengths.max()), 0.0) * moved
        low, high = np.minimum(back, on), np.maximum(back, on)
        low += distance
        high += distance
        away = np.maximum(low, np.negative(high, out=high))
        # Left open are the terms that any of the levels may take to their kink, and as many more as
        # the noise in a sum over n random terms may.
        noise = np.sqrt(problem.d * np.abs(levels - layout.tau).max() / problem.n)
        share = float(np.mean(away[some] <= 0.0) + max(NOISE_ROOM * noise, LEAST_ROOM))
        if share > LARGEST_SHARE:
            return None
        kept = away <= np.quantile(away[some], share)
        codes = np.where(low > 0.0, np.int8(Piece.HIGH), np.int8(Piece.LOW))
        codes[kept] = Piece.UNDECIDED
        predicted = answer.x + lengths[:, None] * direction
        linearised = LinearisedTerms.of(given, answer, codes, At_jumps)
        return cls(levels, linearised, predicted, curvature, distance[kept])

    def solve(self, solver: Callable[..., Solution]) -> list[LevelAnswer]:
        """Its levels solved one after another, up to the first that is not certified."""
        answers = list[LevelAnswer]()
        for level, x in zip(map(float, self.levels), self.predicted, strict=True):
            here = self.linearised.at(level)
            margins = here.design.forward(x)
            theta = here.losses.slope(margins)
            start = Start(x, theta, passes=(margins, here.design.adjoint(theta)))
            found = solver(here, start=start)
            if found.status != "optimal":
                break
            solved = found.rounds[-1].kept if found.rounds else here.n
            refuted = sum(one.refuted for one in found.rounds)
            answers.append(LevelAnswer(found.x, found.theta, solved, len(found.rounds), refuted))
        return answers

    def at_vertices(self) -> list[LevelAnswer]:
        """The first levels whose vertices are found together."""
        small = self.linearised.kept
        if small.n * small.d > DENSE:
            return []
        X, theta, solved, found = self.solve_vertices()
        count = len(found) if found.all() else int(np.argmin(found))
        return [LevelAnswer(X[k], theta[k], int(solved[k])) for k in range(count)]

    def certified(
        self, answers: list[LevelAnswer], tol: float
    ) -> tuple[list[Certificate], list[LevelAnswer], Array, Array]:
        """Certificates of the whole problem; their answers, last two margins, last ``A' theta``.

        Up to the first level that is not certified.
        """
        if not answers:
            return [], [], np.zeros((0, self.linearised.problem.n)), np.zeros(0)
        f, levels = self.linearised.kept.losses, self.levels[: len(answers)]
        width = f.hi - f.lo
        low = -levels[:, None] * width
        theta = np.clip([answer.theta for answer in answers], low, (1.0 - levels[:, None]) * width)
        X = np.array([answer.x for answer in answers])
        proofs, margins, At_theta = certify_levels(
            self.linearised.problem, self.linearised.codes, levels, X, theta, tol=tol
        )
        count = len(proofs)
        if 0 < count < len(answers):
            forward = self.linearised.problem.design.forward
            margins = np.array([forward(x) for x in X[:count][-2:]])
        answers = [replace(one, theta=own) for one, own in zip(answers, theta, strict=True)]
        return proofs, answers[:count], margins, At_theta[max(count, 1) - 1]

    def solve_vertices(self) -> tuple[Array, Array, NDArray[np.intp], NDArray[np.bool_]]:
        """Points and slopes of the kept terms, (K, d) and (K, m); terms solved for; which hold."""
        f, d, K = self.linearised.kept.losses, self.linearised.kept.d, len(self.levels)
        rows, jumps = self.linearised.kept.design.dense(), f.hi - f.lo
        linear = np.array([self.linearised.linear(float(level)) for level in self.levels])
        X, z, moved = self.newton_corrected(rows, jumps, linear)
        theta, held = np.zeros_like(z), np.zeros(z.shape, dtype=bool)
        solved, ok = np.zeros(K, dtype=np.intp), np.zeros(K, dtype=bool)
        count = max(VERTEX_TERMS * d, LEAST_VERTEX_TERMS)
        # Those that are predicted too badly, and what is behind them, wait for another block.
        wild = moved > MOST_VERTEX_TERMS * count
        at = np.arange(int(np.argmax(wild)) if wild.any() else K)
        count = max(count, 2 * int(moved[at].max(initial=0)))
        for more in (1, 1, 3):
            if more * count >= len(f) or not len(at):
                break
            here, levels = z[at], self.levels[at, None]
            score = np.where(held[at], 0.0, np.abs(here))
            near = np.argpartition(score, more * count, axis=1)[:, : more * count]
            slopes = jumps * ((here > 0.0) - levels)
            rest = slopes.copy()
            np.put_along_axis(rest, near, 0.0, axis=1)
            width = jumps[near]
            low, fixed = -levels * width, linear[at] + rest @ rows
            got = vertices(rows[near], f.b[near], low, low + width, fixed, X[at])
            after = got.x @ rows.T - f.b
            off = (after > 0.0) != (here > 0.0)
            np.put_along_axis(off, near, False, axis=1)
            np.put_along_axis(slopes, near, got.theta, axis=1)
            good = got.found & ~off.any(axis=1)
            done, again = at[good], at[got.found & ~good]
            X[done], theta[done], ok[done] = got.x[good], slopes[good], True
            solved[done] = more * count
            z[again], X[again] = after[got.found & ~good], got.x[got.found & ~good]
            held[again] |= off[got.found & ~good]
            at = at[~good]
        return X, theta, solved, ok

    def newton_corrected(
        self, rows: Array, jumps: Array, linear: Array
    ) -> tuple[Array, Array, NDArray[np.intp]]:
        """The predicted points some Newton steps on, as long as these descend; ``A x - b`` there.

        The curvature is that at the beginning, times how much denser the kinks are here. And how
        many terms the last step of each took across their kinks.
        """
        f, X = self.linearised.kept.losses, self.predicted.copy()
        d = X.shape[1]
        count = min(20 * d, len(f) - 1)
        usual = np.partition(np.abs(self.distance), count)[count]
        z = X @ rows.T - f.b
        value, moved = np.full(len(X), np.inf), np.full(len(X), len(f), dtype=np.intp)
        tried, z_tried = X, z
        for step in range(CORRECTIONS + 1):
            slopes = jumps * ((z_tried > 0.0) - self.levels[:, None])
            now = np.einsum("ki,ki->k", slopes, z_tried) + np.einsum("kj,kj->k", linear, tried)
            better = now < value
            if step:
                moved[better] = np.count_nonzero((z_tried > 0.0) != (z > 0.0), axis=1)[better]
            X[better], z[better], value[better] = tried[better], z_tried[better], now[better]
            if step == CORRECTIONS or not better.any() or moved.max() <= 3 * d:
                break
            edge = np.partition(np.abs(z_tried), count, axis=1)[:, count] / usual
            gradient = linear + slopes @ rows
            tried = tried - edge[:, None] * (gradient @ self.curvature)
            z_tried = tried @ rows.T - f.b
        return X, z, moved

    def full_solution(
        self, k: int, answer: LevelAnswer, proof: Certificate, passes: Passes
    ) -> Solution:
        """The answer at level k as one of the whole problem, whose two products are `passes`."""
        here = self.linearised.problem.with_(tau=float(self.levels[k]))
        theta, none = all_slopes(here.losses, self.linearised.codes, answer.theta), np.zeros(0)
        earlier = Screening.from_definition(here)
        return Solution(
            here, answer.x, theta, none, "optimal", proof, earlier, (),
            answer=Answer(here, answer.x, theta, none, proof, passes),
        )


def all_slopes(losses: LossTerms, codes: Codes, theta: Array) -> Array:
    """Slopes of all terms from those of the kept ones."""
    out = np.where(codes == Piece.HIGH, losses.hi, losses.lo)
    out[codes < 0] = theta
    return out


def count_at_kinks(distance: Array) -> int:
    """How many terms are at their kinks, for all that rounding tells."""
    away = np.abs(distance)
    return int(np.count_nonzero(away <= TIE_WIDTH * np.median(away)))


def is_quantile_process(problem: Problem) -> bool:
    """Whether the terms are pinball losses alone, over rows in memory, and nothing else."""
    layout, f = problem.layout, problem.losses
    alone = layout is not None and layout.tau is not None and not layout.penalty_terms
    form = problem.quadratic
    plain = problem.side is None and problem.penalty is None and not problem.linear.any()
    plain = plain and form.matrix is None and bool(form.free.all())
    lines = not (f.any_hard or f.q.any() or f.e.any())
    return bool(alone and plain and lines and isinstance(problem.design, Rows))


def crossing_lengths(distance: Array, moved: Array, steps: Array) -> Array:
    """How far to go along a move of the margins for the share ``|steps|`` of them to cross kinks.

    Towards the tails densities fall, and the optimum moves farther than its direction says. The
    `steps` that no term crosses are made as they are.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        when = -distance / moved
    lengths = steps.astype(np.float64)
    for way in (1.0, -1.0):
        along = steps * way > 0.0
        met = np.sort(way * when[way * when > 0.0])
        if along.any() and len(met):
            last = np.minimum((np.abs(steps[along]) * len(when)).astype(int), len(met) - 1)
            lengths[along] = way * met[last]
    return lengths


def inverse_curvature(problem: Problem, distance: Array, some: slice) -> Array | None:
    """The inverse of the curvature that the terms around kinks amount to, read off `some` of them.

    Times ``A'`` of the jumps it is how the optimum moves for a unit of the level, a Newton step.
    None where it is not positive definite.
    """
    f, away = problem.losses, np.abs(distance[some])
    count = min(max(int(SPAN * len(away)), 20 * problem.d), len(away) - 1)
    edge = float(np.partition(away, count)[count])
    if not edge > 0.0:
        return None
    near = np.flatnonzero(away <= edge)
    near = near[:: max(len(near) // max(CURVATURE_TERMS * problem.d, LEAST_CURVATURE_TERMS), 1)]
    share = count / len(near) * (problem.n / len(away))
    near = np.arange(problem.n)[some][near]
    H = problem.design.weighted_gram(near, (f.hi - f.lo)[near] * (share / (2.0 * edge)))
    H[np.diag_indices(len(H))] *= 1.0 + REGULAR
    try:
        return np.asarray(sla.cho_solve(sla.cho_factor(H), np.eye(len(H))))
    except (sla.LinAlgError, ValueError):
        return None
