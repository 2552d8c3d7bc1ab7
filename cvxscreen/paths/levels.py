"""Neighbouring quantile levels, solved among the same few terms.

From one level to another a twentieth further a twentieth of the terms change sides, and some that
the optimum's own move takes across. Which these are is predicted from an answer and the direction
in which the quantile process leaves it; all others are replaced by their lines, once for all levels
of the stretch. What is left is a problem of the same kind, whose linear term moves with the level;
each level is solved by the ordinary loop over it, and all are certified on the full data in one
pass (`cvxscreen.certificates.levels`). A level that this refuses is solved again among all terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen.certificates.certificate import Passes
from cvxscreen.certificates.levels import Lines
from cvxscreen.core.losses import Codes, LossTerms, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Answer, Solution

Array = NDArray[np.float64]

SPAN = 0.05
"""How far the levels of a stretch are from the answer that it begins at, at most. 99 levels over
100,000 x 50 took 1.7 s with a twentieth, 2.0 with 0.04 (a stretch costs 20 ms whatever its levels),
1.8 with 0.07 (its problems are larger, and more of its last levels are refused)."""
FEWEST = 3
"""Levels of a stretch at least: what it takes to begin one costs as much as one or two levels."""
BESIDE = 0.04
"""Share of the terms that are kept beside those that are predicted to change sides: at 0.03 the
last level of every third stretch is refused, at 0.04 of every tenth."""
LEAST, A_COORDINATE = 10_000, 500
"""Terms from which on a stretch pays, and how many a coordinate."""
WORTH = 0.4
"""Share of the terms up to which a stretch is worth while."""
ENOUGH = 60
"""Terms that the curvature is summed over, in units of the coordinates."""
FLAT = 1e-9
"""What is added to the diagonal of the curvature, relatively: columns may depend on each other."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """Levels next to each other, and the terms that are kept for all of them.

    Attributes
    ----------
    levels : array, shape (K,)
    lines : Lines
        What the other terms are replaced by.
    trail : list of (float, array)
        Levels and their optima: the one it begins at, and those found since.
    direction : array, shape (d,)
        How the optimum moves for a unit of the level where it begins.
    """

    levels: Array
    lines: Lines
    trail: list[tuple[float, Array]]
    direction: Array

    @classmethod
    def ahead(
        cls, given: Problem, answer: Answer, grid: Array, pull: Array
    ) -> Stretch | None:
        """The first levels of `grid` from `answer` on; None where they are not worth a stretch.

        `pull` is ``A'`` of the jumps of all slopes. The weights are those of the problem as `given`
        to the path: of one at another level they would differ in the last digit.
        """
        problem, margins, layout = answer.problem, answer.passes.margins, answer.problem.layout
        few = problem.n < max(LEAST, A_COORDINATE * problem.d)
        if few or margins is None or layout is None or layout.tau is None or not taken(problem):
            return None
        far = np.abs(grid - layout.tau) > SPAN * (1.0 + 1e-9)
        levels = grid[: int(np.argmax(far)) if far.any() else len(grid)]
        if len(levels) < FEWEST:
            return None
        direction = leaving(problem, margins, pull)
        if direction is None:
            return None
        moved, b, steps = problem.design.forward(direction), problem.losses.b, levels - layout.tau
        low = high = margins
        for step in (min(float(steps.min()), 0.0), max(float(steps.max()), 0.0)):
            if step:
                change = step * moved
                change *= crossed(margins - b, change, abs(step) * problem.n)
                change += margins
                low, high = np.minimum(low, change), np.maximum(high, change)
        away = np.maximum(low - b, b - high)
        beside = np.count_nonzero(away <= 0.0) + int(BESIDE * problem.n) + problem.d
        if beside > WORTH * problem.n:
            return None
        codes = np.where(low > b, Piece.HIGH, Piece.LOW).astype(np.int8)
        codes[away <= np.partition(away, beside)[beside]] = Piece.UNDECIDED
        return cls(levels, Lines.of(given, codes), [(layout.tau, answer.x)], direction)

    def start(self, here: Problem, level: float) -> Start:
        """Where `here`, the problem at `level`, begins: the last two levels' points continued."""
        (last, x), move = self.trail[-1], self.direction
        if len(self.trail) > 1 and self.trail[-2][0] != last:
            before, y = self.trail[-2]
            move = (x - y) / (last - before)
        x = x + (level - last) * move
        margins = here.design.forward(x)
        theta = here.losses.slope(margins)
        return Start(x, theta, passes=(margins, here.design.adjoint(theta)))

    def solve(self, solver: Callable[..., Solution]) -> list[Solution]:
        """Its levels solved one from another, up to the first that is not certified."""
        answers = list[Solution]()
        for level in map(float, self.levels):
            here = self.lines.at(level)
            answer = solver(here, start=self.start(here, level))
            if answer.status != "optimal":
                break
            answers.append(answer)
            self.trail.append((level, answer.x))
        return answers

    def whole(self, here: Problem, answer: Solution, margins: Array) -> Solution:
        """An answer as one of the whole problem `here` at its level, whose `margins` it has."""
        theta = slopes_of(here.losses, self.lines.codes, answer.theta)
        passes = Passes(margins.copy())
        pair = (here, answer.x, theta, answer.multipliers, answer.certificate, passes)
        return replace(
            answer, problem=here, theta=theta, answer=Answer(*pair),
            earlier=Screening.from_definition(here),
        )


def slopes_of(losses: LossTerms, codes: Codes, theta: Array) -> Array:
    """Slopes of all terms from those of the kept ones."""
    out = np.where(codes == Piece.HIGH, losses.hi, losses.lo)
    out[codes < 0] = theta
    return out


def taken(problem: Problem) -> bool:
    """Whether the terms are pinball losses alone, over rows in memory, and nothing else."""
    layout, f = problem.layout, problem.losses
    alone = layout is not None and layout.tau is not None and not layout.penalty_terms
    form = problem.quadratic
    plain = problem.side is None and problem.penalty is None and not problem.linear.any()
    plain = plain and form.matrix is None and bool(form.free.all())
    lines = not (f.any_hard or f.q.any() or f.e.any())
    return bool(alone and plain and lines and isinstance(problem.design, Rows))


def crossed(distance: Array, moved: Array, count: float) -> float:
    """By how much to lengthen a move of the margins for `count` terms to cross their kinks.

    Towards the tails densities fall, and the optimum moves farther than its direction says.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        when = -distance / moved
    when = when[when > 0.0]
    last = min(int(count), len(when) - 1)
    return float(np.partition(when, last)[last]) if last >= 0 else 1.0


def leaving(problem: Problem, margins: Array, pull: Array) -> Array | None:
    """How the optimum moves for a unit of the level: a Newton step with the terms around kinks.

    None where the curvature is not positive definite.
    """
    f = problem.losses
    away = f.kink_distance(margins)
    count = min(max(int(SPAN * problem.n), 20 * problem.d), problem.n - 1)
    edge = float(np.partition(away, count)[count])
    if not edge > 0.0:
        return None
    near = np.flatnonzero(away <= edge)
    near = near[:: max(len(near) // (ENOUGH * problem.d), 1)]
    H = problem.design.weighted_gram(near, (f.hi - f.lo)[near] / (2.0 * edge))
    H *= count / len(near)
    H[np.diag_indices(len(H))] *= 1.0 + FLAT
    try:
        return np.asarray(sla.cho_solve(sla.cho_factor(H), pull))
    except (sla.LinAlgError, ValueError):
        return None
