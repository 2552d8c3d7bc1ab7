"""Terms are screened where nothing is strongly convex: a relaxation a round, exact at the end.

Replace the terms of a set S by the linear (or quadratic) pieces that the best point so far
suggests. Each piece lies below its loss, so the smaller problem is a relaxation,

::

    P_S(x) <= P(x) for every x,

and if its minimiser has every margin of S on the piece that was assumed, then ``P(x) = P_S(x) <=
P_S(y) <= P(y)``: it minimises P, whatever the curvature. No ball and no dual point is needed
(globbing: Portnoy and Koenker 1997, section 5; constraint generation for linear programs). What the
margins refute is put back and stays until the end, so that there are finitely many rounds.

Without curvature a relaxation can be unbounded, and one that is bounded can be far off. Three
things keep it close:

- the first guess is the optimum of a sample, found from the optimum of a smaller sample, and so on;
  how many terms its error leaves undecided falls with the root of the sample's size. Kinks alone,
  over rows, are not solved in samples: Newton's method over smoothed losses comes closer
  (`cvxscreen.solvers.smoothing`);
- where a relaxation ran away (the objective has risen, or there was no minimum) the next one is
  that of a proximal step ``P(y) + weight/2 ||y - x||_W^2`` (Rockafellar 1976), W the mean squares
  of the columns, until a round goes well; it is then taken off again;
- after `MAX_ROUNDS` nothing is left out.

In ``safe`` mode nothing is assumed (`ProximalSteps`). The problem of a proximal step is strongly
convex, so that the bounds of `cvxscreen.bounds` prove terms for *that step*; for a polyhedral P
finitely many steps end at an optimum of P (Rockafellar 1976, Proposition 8; Ferris 1991). What is
proven of a step is nothing about P itself: the rounds report it, the solution's `screening` does
not. Terms that are constraints have no Fenchel-Young term at a point that violates them by an ulp,
so that nothing is proven beside them: safe mode then solves the whole problem once.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.duality import balanced
from cvxscreen.core.losses import Codes, Losses, LossTerms, Piece, lowest_kink
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import KnownSlopes, Prediction, Screening, Selection
from cvxscreen.solvers.interface import Start, SubproblemResult, call_checked
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.screened import Estimate, ProblemInMemory, Times
from cvxscreen.solvers.smoothing import (
    ALL,
    FEW,
    SETTLED,
    TIES,
    WITHIN,
    NearOptimum,
    applies,
    least_squares,
    near_optimum,
    repeats,
)
from cvxscreen.solvers.solution import Answer, Solution

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.85 to 1.1 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1). But for
# `FEWEST` (2,000 takes 1.2, 8,000 1.1 times as long on five problems), `NESTED` (5: 1.2 on one) and
# `KEEP` (4: 1.45 on one).
FEWEST, NESTED = 4_000, 10
"""Problems with fewer terms (or fewer than forty a coordinate) are handed over whole; a sample is
one part in `NESTED`, and is begun with a sample itself."""
AROUND = 0.03
"""Share of the terms that is kept around a start that is not a sample's optimum."""
KEEP = 2.0
"""The same around a sample's optimum, in units of ``n sqrt(d / s)`` for s of n terms: twice two
deviations of its margins hold at most this many (`cvxscreen.solvers.smoothing`)."""
LEAST = 10
"""Terms kept at least, in units of the coordinates."""
REFUTED = 10
"""Terms that the next relaxation keeps, in units of those that this one was wrong about: these were
a twentieth of the ones within reach of its error, or fewer."""
WORTH = 0.8
"""A relaxation that keeps a larger share of the terms costs more than it saves."""
FIRST_GAP, LAST_GAP, OF_KEPT = 1e-8, 1e-13, 1e-13
"""Relative gap that relaxations are solved to: at first; from which on nothing is asked again; and
what is asked for at the end, relative to the kept terms alone, so that a vertex is reached."""
SAMPLE_TOLERANCE = 1e-6
"""Relative gap asked of a sample's certificate; its optimum is off by much more."""
FASTER = 10.0
"""By how much the weight of a proximal step rises after a bad round, and falls after a good one.
"""
ROUNDED = 16.0 * UNIT
"""Residual, in units of ``||theta|| ||a column||``, and violation that are but rounding."""
OUTSIDE = 1e-9
"""Violation of the side constraints, in their own units, from which on a point is outside."""
ASIDE = 0.01
"""How far repeated kinks are moved, in units of their distance from the next: the vertex that is
found then was that of kinks as they are in 13 of 20 fits of whole numbers, zeros and marks with
0.01, in 10 with 0.3, and in all eight where hundreds of terms were at their kinks."""
MAX_ROUNDS = 30
"""Rounds at most before everything is kept; two to five are usual."""
STEPS = 40
"""Proximal steps at most in safe mode; polyhedral problems take two to five."""
ASTRAY = 0.1
"""Relative gap above which a step's answer is none: those that were 1 led to 40 steps, each farther
away (75 hinges and largest values beside a norm: 22 s for an answer that CVXPY has in 0.02)."""


class Candidate(Immutable):
    """A point with its margins, its slopes and the objective there (hard terms apart)."""

    x: Array
    known: Array | None
    multipliers: Array
    margins: Array
    value: float
    losses: LossTerms

    @cached_property
    def theta(self) -> Array:
        """The slopes that are known, or those at the margins."""
        return self.losses.slope(self.margins) if self.known is None else self.known

    def slopes(self, kept: NDArray[np.intp], losses: LossTerms) -> Array:
        """The same of some of the terms, whose `losses` these are."""
        return losses.slope(self.margins[kept]) if self.known is None else self.known[kept]


class ScreenedRelaxation(
    ProblemInMemory[Selection, Problem, SubproblemResult, tuple[Array, Array], Candidate]
):
    """A problem without strong convexity whose terms are predicted; see the module's docstring.

    Parameters as of `ProblemInMemory`; `bounds` prove nothing here.
    """

    def set_up(self) -> None:
        """What the rounds need beside what every problem in memory keeps."""
        problem, self.bounds = self.problem, ()
        self.centre: Candidate | None = None
        self.known: KnownSlopes | None = None
        self.held: Mask = np.zeros(problem.n, dtype=bool)
        self.screening = Screening.from_definition(problem)
        self.proven = self.predicted = 0
        self.keep = problem.n
        self.weight = 0.0
        self.lower = -np.inf
        self.accuracy = FIRST_GAP
        self.whole = self.mode == "safe"  # nothing may be assumed
        self.reduced: Problem | None = None
        self.anew: Callable[[], None] | None = None

    # -- where a call begins ----------------------------------------------------------------

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Evaluate the start, or find a sample's optimum by `solve`, which is the whole loop."""
        problem = self.problem
        if few_terms(problem, int((self.screening.codes < 0).sum())):
            self.whole = self.whole or start is None
        if not self.whole:
            self.held |= of_few_coordinates(problem)
        if start is not None:
            margins = None
            if start.passes is not None:
                margins, self.known = start.passes[0], KnownSlopes(start.theta, start.passes[1])
            self.centre = self.candidate(start.x, start.theta, start.multipliers, margins)
            self.keep = int(max(AROUND * problem.n, LEAST * problem.d))
            if not self.whole and applies(problem):
                began, at = perf_counter(), (self.centre.x, self.centre.margins)
                self.closer(near_optimum(problem, *at, self.keep), began, solve)
            elif not self.whole:
                self.anew = lambda: self.from_sample(solve)
            return
        began = perf_counter()
        if self.whole:
            short = problem.n * problem.d <= ALL and not problem.quadratic.dense().any()
            short = short and self.mode != "safe" and applies(problem)
            if short and not self.limits.spent():
                if problem.n > problem.d:
                    self.at_vertex(foreseen(problem), began)
                else:
                    self.fitted(began)
            return
        if applies(problem) and self.closer(foreseen(problem), began, solve):
            return
        self.from_sample(solve)

    def from_sample(self, solve: Callable[..., Solution]) -> None:
        """Go to the optimum of a sample, or keep everything where there are few terms."""
        problem = self.problem
        if few_terms(problem, int((self.screening.codes < 0).sum())):
            self.whole = True
            return
        began, chosen = perf_counter(), draw(problem)
        part = chosen.of(problem)
        if part.n > 0.5 * problem.n:
            self.whole = True
            return
        found = solve(part, self.inner, tol=SAMPLE_TOLERANCE)
        if not np.isfinite(found.x).all():
            return
        self.centre = self.candidate(at_best_level(problem, found.x), None, found.multipliers)
        self.keep = int(KEEP * problem.n * np.sqrt(problem.d / part.n))
        if of_zero(found.certificate) or self.tied(self.centre):
            self.try_at_once(chosen, found, Times(began, perf_counter()))

    def apart(self, solve: Callable[..., Solution]) -> bool:
        """Whether the vertex of slightly different kinks, all of them different, is the optimum.

        Whole numbers and zeros put hundreds of terms to their kinks at once. The slopes of a vertex
        balance whatever the kinks are, and any slope will do at a kink: what is left to see is
        whether the vertex with the kinks as they are has the margins of the others on the same
        sides. The certificate does.
        """
        problem, f, began = self.problem, self.problem.losses, perf_counter()
        kinks = spread(f.b)
        if kinks is None:
            return False
        losses = Losses(kinks, f.e, f.q, f.lo, f.hi)
        found = solve(replace(problem, losses=losses), self.inner, tol=SAMPLE_TOLERANCE)
        vertex = np.flatnonzero((found.theta > f.lo) & (found.theta < f.hi))
        if not 0 < len(vertex) <= problem.d:
            return False
        rows, x = problem.design.dense(vertex), found.x
        for _ in range(2):  # fewer terms than coordinates where the optimum is an edge
            x = x + np.linalg.lstsq(rows, f.b[vertex] - rows @ x, rcond=None)[0]
        answer = Answer.of(problem, x, found.theta, np.zeros(0), self.tol)
        return self.ends(answer, found.rounds[-1].kept if found.rounds else problem.n, began)

    def tied(self, centre: Candidate) -> bool:
        """Whether so many terms are at a kink that distances from kinks tell nothing."""
        problem, away = self.problem, self.problem.losses.kink_distance(centre.margins)
        last = min(self.keep, problem.n) - 1
        reach = float(np.abs(problem.losses.b).mean())
        reach += float(problem.sizes.mean()) * float(np.linalg.norm(centre.x))
        return bool(np.partition(away, last)[last] <= TIES * reach)

    def try_at_once(self, chosen: Drawn, found: Solution, times: Times) -> None:
        """Certify a sample's optimum as that of the whole problem; over if it is.

        In a fit without noise, or where no direction gains anything, all terms are at their kinks
        together, and no relaxation is closer than another.
        """
        problem, best = self.problem, self.centre
        if best is None:
            return
        slopes = np.zeros(problem.n)
        slopes[chosen.index] = found.theta[: len(chosen.index)] / chosen.factor
        slopes[chosen.stay] = found.theta[len(chosen.index):]
        hard = problem.losses.hard[chosen.index]
        slopes[chosen.index[hard]] *= chosen.factor
        losses = problem.losses
        slopes = np.clip(slopes, losses.lo, losses.hi)
        self.answer = self.certified_answer(replace(best, known=slopes))
        if not self.answer.proof.ok:
            self.answer = None
            return
        answer, left_out = self.answer, problem.n - len(found.theta)
        self.result = SubproblemResult("optimal", answer.x, answer.theta, answer.multipliers)
        self.record(len(found.theta), answer.proof, (0, left_out, 0), times)
        self.finished = True

    def fitted(self, began: float) -> None:
        """End where terms, no more than the coordinates, are all at their kinks."""
        problem = self.problem
        if self.inner.traits.reaches_target:
            x = np.asarray(np.linalg.lstsq(problem.design.dense(), problem.losses.b)[0])
            answer = Answer.of(problem, x, np.zeros(problem.n), np.zeros(0), self.tol)
            self.ends(answer, problem.n, began)

    def at_vertex(self, found: NearOptimum | None, began: float) -> bool:
        """Whether pivots lead from there to a vertex that is certified.

        A solver that was named is not passed over: it gets what is left by the rounds.
        """
        vertex = None
        if found is not None and self.inner.traits.reaches_target:
            vertex = found.vertex()
        if vertex is None:
            return False
        x, theta, kept = vertex
        answer = Answer.of(self.problem, x, theta, np.zeros(0), self.tol)
        return self.ends(answer, kept, began)

    def ends(self, answer: Answer, kept: int, began: float) -> bool:
        """Whether an answer that took `kept` terms is certified, and all is done."""
        if answer.proof.ok:
            self.answer, self.finished = answer, True
            self.result = SubproblemResult("optimal", answer.x, answer.theta, np.zeros(0))
            times = Times(began, perf_counter())
            self.record(kept, answer.proof, (0, self.problem.n - kept, 0), times)
        return self.finished

    def closer(
        self, found: NearOptimum | None, began: float, solve: Callable[..., Solution]
    ) -> bool:
        """Go to what Newton steps over smoothed losses have found, if anything, or to a vertex."""
        if self.at_vertex(found, began):
            return True
        if (found is None or not found.near.form.any()) and self.apart(solve):
            return True
        if found is None:
            return False
        at = (found.margins, found.value, self.problem.losses)
        self.centre, self.known = Candidate(found.x, None, np.zeros(0), *at), found.known
        self.keep = max(LEAST * self.problem.d, found.reach)
        return True

    def candidate(
        self, x: Array, theta: Array | None, multipliers: Array | None,
        margins: Array | None = None,
    ) -> Candidate:
        """Evaluate x on all terms: one pass, where its margins are not known."""
        problem = self.problem
        margins = problem.design.forward(x) if margins is None else margins
        m = 0 if problem.side is None else len(problem.side.offset)
        mu = np.zeros(m) if multipliers is None else multipliers
        return Candidate(x, theta, mu, margins, problem.primal(x, margins), problem.losses)

    # -- the steps of a round ---------------------------------------------------------------

    def select(self) -> Selection:
        """Predict the terms that are far from a kink at the best point, but those put back."""
        problem, centre = self.problem, self.centre
        nothing = Selection(self.screening.codes).folded(problem)
        self.proven, self.predicted = problem.n - len(nothing.kept), 0
        if centre is None or self.whole or len(self.rounds) >= MAX_ROUNDS:
            return nothing
        keep = max(self.keep, LEAST * problem.d)
        codes = far_from_kinks(problem.losses, centre.margins, keep, self.held)
        chosen = Selection(codes).folded(problem)
        if len(chosen.kept) > WORTH * len(nothing.kept):
            return nothing
        self.predicted = len(nothing.kept) - len(chosen.kept)
        return chosen

    def reduce(
        self, selection: Selection
    ) -> tuple[Problem, Callable[[SubproblemResult], tuple[Array, Array]]]:
        """The relaxation, as a proximal step after one that ran away."""
        reduced = selection.reduce(self.problem, self.known)
        self.reduced = reduced
        stepped = self.proximal(reduced)
        return stepped, lambda result: selection.lift(
            self.problem, reduced, result.x, result.theta
        )

    def proximal(self, problem: Problem) -> Problem:
        """`problem` with ``weight/2 ||x - centre||_W^2``; itself where the weight is 0."""
        if self.weight == 0.0 or self.centre is None:
            return problem
        form, curvature = problem.quadratic, self.weight * self.metric()
        x = self.centre.x
        return replace(
            problem,
            quadratic=Quadratic(form.diagonal + curvature, form.matrix),
            linear=problem.linear - curvature * x,
            constant=problem.constant + 0.5 * float(curvature @ (x * x)),
            imbalance=0.0,
            drift=np.inf if problem.imbalance > 0 else problem.drift,
            layout=None,
        )

    def metric(self) -> Array:
        """W: mean squares of the columns, so that a unit is a change of a usual margin by 1."""
        squares = self.problem.column_sizes**2 / max(self.problem.n, 1)
        top = float(squares.max(initial=0.0))
        return np.maximum(squares, 1e-12 * top) if top > 0 else np.ones(self.problem.d)

    def solve(self, reduced: Problem, selection: Selection) -> SubproblemResult | None:
        """The solver's answer, loose at first."""
        centre, kept = self.centre, selection.kept
        exact = self.accuracy == LAST_GAP or not self.predicted or len(kept) <= FEWEST
        start, target = None, 0.0
        if centre is not None:
            start = Start(centre.x, centre.slopes(kept, reduced.losses), None, centre.multipliers)
            target = self.accuracy * abs(centre.value)
            if exact:
                values = reduced.losses.value(centre.margins[kept])
                target = OF_KEPT * float(values[np.isfinite(values)].sum())
        found = self.result = call_checked(self.inner, reduced, start, target)
        if found.status == "infeasible" and len(found.theta):
            theta = np.zeros(self.problem.n)  # what is left out of constraints asks for nothing
            theta[kept] = found.theta[: len(kept)]
            self.result = replace(found, theta=theta)
        return self.result if self.result.usable else None

    def evaluate(self, lifted: tuple[Array, Array], selection: Selection) -> Candidate:
        """Margins and objective on all terms."""
        return self.candidate(lifted[0], lifted[1], self.result.multipliers)

    def put_back(self, selection: Selection, point: Candidate | None) -> int:
        """Put back what is on another piece than assumed, and judge how well the round went."""
        problem, centre = self.problem, self.centre
        if point is None:
            hopeless = self.result.status == "infeasible" or (
                not self.predicted and self.weight == 0.0
            )
            self.finished = hopeless
            if not hopeless:
                self.retreat()
            return 0
        if self.weight == 0.0 and self.reduced is not None:
            value = self.reduced.primal(point.x) - float(self.result.info.get("gap", 0.0))
            self.lower = max(self.lower, value)
        off = Prediction(selection).refuted(problem, point.margins, self.screening)
        count = int(off.sum())
        hard = problem.losses.any_hard
        worse = centre is not None and point.value > centre.value + 1e-12 * abs(centre.value)
        if count and worse and not hard and self.feasible(centre):
            if count <= self.keep:
                self.held |= off
            self.retreat()
            return count
        self.centre = point
        self.held |= off
        if count:
            self.keep = min(self.keep, REFUTED * max(count, 4 * problem.d))
            self.weight /= FASTER
        return count

    def feasible(self, centre: Candidate | None) -> bool:
        """Whether the side constraints hold there; values of a point outside compare with none.

        Such a start comes from another right side: of a smaller return, of a larger budget.
        """
        side = self.problem.side
        if side is None or centre is None:
            return True
        units = 1.0 + float(np.abs(side.offset).max(initial=0.0))
        return side.violation(centre.x) <= OUTSIDE * units

    def retreat(self) -> None:
        """After a relaxation that ran away: a proximal step, and more terms.

        The first time from a start that others gave, as the optimum of another problem: a sample's
        optimum instead. Steps from far away took twice as long as that, or more.
        """
        losses, centre = self.problem.losses, self.centre
        if self.anew is not None:
            anew, self.anew = self.anew, None
            return anew()
        if centre is None:
            self.whole = True
            return
        self.keep = min(max(2 * self.keep, int(AROUND * self.problem.n)), self.problem.n)
        if self.weight > 0.0:
            self.weight *= FASTER
            return
        # At a distance where the kept terms reach, the step pulls as hard as they do together.
        away = losses.kink_distance(centre.margins)
        near = np.argpartition(away, min(self.keep, len(away)) - 1)[: self.keep]
        near = near[np.isfinite(away[near])]
        jump = losses.hi[near] - losses.lo[near]
        slope = float(jump[np.isfinite(jump)].sum())
        reach = float(away[near].max(initial=0.0))
        if not reach > 0.0:  # all of them are at a kink: as far as the coordinates are from 0
            square = self.metric() @ np.square(centre.x)
            reach = float(np.sqrt(square)) if square > 0.0 else 1.0
        self.weight = (slope if slope > 0.0 else 1.0) / reach

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record the round; certify where nothing was refuted, and stop if that holds."""
        gap = float("inf") if self.centre is None else max(self.centre.value - self.lower, 0.0)
        size = 1e-300 if self.centre is None else max(abs(self.centre.value), 1e-300)
        kept = len(selection.kept)
        shown = Estimate(gap, gap / size)
        self.record(kept, shown, (self.proven, self.predicted, refuted), times)
        if self.finished or not self.result.usable or refuted:
            return
        if self.weight > 0.0:
            self.weight = 0.0  # a step that went well: now without it
        elif self.accuracy > LAST_GAP and not self.exact(size):
            self.accuracy = LAST_GAP
            self.narrow()
            if not self.predicted and self.centre is not None:
                answer = self.certified_answer(self.centre)
                self.finished = answer.proof.ok and of_zero(answer.proof)
                self.answer = answer if self.finished else None
        else:
            self.conclude(not self.predicted)

    def exact(self, size: float) -> bool:
        """Whether the solver is at the end of what it can do."""
        info = self.result.info
        at_vertex = bool(info.get("face", True))
        return at_vertex and float(info.get("gap", 0.0)) <= LAST_GAP * size

    def narrow(self) -> None:
        """Keep few terms: the point is close, and what is wrong then is put back."""
        self.keep = int(max(LEAST * self.problem.d, 0.1 * self.keep))

    def conclude(self, exhausted: bool) -> None:
        """Certify the best point; where that fails nothing is left out in the next round.

        Nor is it where all that is left to charge is the rounding of the certificate's own sums:
        what nothing refutes at a vertex is the optimum of the whole problem, to the same digits.
        """
        best = self.centre
        if best is None:
            return
        self.answer = self.certified_answer(best)
        if self.answer.proof.ok or exhausted or self.exact_to_rounding(self.answer):
            self.finished = True
        else:
            self.whole = True

    def exact_to_rounding(self, answer: Answer) -> bool:
        """Whether a point at the end of what the solver can do is feasible, and balanced."""
        proof = answer.proof
        if not (np.isfinite(proof.gap) and self.exact(max(abs(proof.primal), 1e-300))):
            return False
        terms = float(np.linalg.norm(answer.theta)) * float(self.problem.column_sizes.max())
        return proof.residual <= ROUNDED * terms and proof.violation <= ROUNDED

    def certified_answer(self, best: Candidate) -> Answer:
        """`best` with its certificate; slopes that balance to a tolerance only are balanced."""
        problem = self.problem
        answer = Answer.of(problem, best.x, best.theta, best.multipliers, self.tol)
        if answer.proof.ok:
            return answer
        for pair in balanced(problem, best.x, best.theta, best.multipliers, best.margins):
            repaired = Answer.of(problem, best.x, *pair, self.tol)
            answer = repaired if repaired.proof.gap < answer.proof.gap else answer
            if answer.proof.ok:
                return answer
        # A perfect fit, maybe by zeros alone: slopes of 0 prove it, whatever the solver found.
        origin, zeros = np.zeros(problem.d), np.zeros(problem.n)
        x = origin if problem.primal(origin, zeros) <= best.value else best.x
        if x is best.x and best.value > 0.0:
            return answer
        for pair in ((zeros, np.zeros(len(best.multipliers))), (best.theta, best.multipliers)):
            fitted = Answer.of(problem, x, *pair, self.tol)
            if fitted.proof.ok:
                return fitted
        return answer

    def solution(self, began: float) -> Solution:
        """As of every problem; where a limit came first the best point is certified."""
        if self.answer is None and self.centre is not None and not self.finished:
            self.conclude(True)
        return super().solution(began)


class ProximalSteps(ScreenedRelaxation):
    """Proximal steps, each a strongly convex problem that is screened by proof alone.

    Parameters as of `ScreenedRelaxation`.
    """

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """From the start, or from the optimum of a sample: any point will do."""
        self.step_solver = solve
        problem, x = self.problem, np.zeros(self.problem.d)
        if start is not None:
            x = start.x
        else:
            found = solve(sample(problem), self.inner, tol=SAMPLE_TOLERANCE)
            x = found.x if np.isfinite(found.x).all() else x
        self.centre = self.candidate(x, None, None)
        self.keep = max(1, problem.n // 2)
        self.retreat()

    def select(self) -> Selection:
        """Fix no term here: each step's problem is screened by the loop that solves it."""
        return Selection(np.full(self.problem.n, Piece.UNDECIDED, dtype=np.int8))

    def solve(self, reduced: Problem, selection: Selection) -> SubproblemResult | None:
        """The step's problem by the whole loop, in safe mode; `reduced` is strongly convex.

        Where rounding leaves it singular nothing is proven, and the solver takes all of it.
        """
        if reduced.without_curvature:
            self.proven = 0
            return super().solve(reduced, selection)
        centre = self.centre
        inner, start = self.inner, None
        if reduced.side is None and inner.traits.reaches_target:
            inner = Newton(limits=self.limits)  # takes a start better than an interior point method
            if centre is not None:
                start = Start(centre.x, centre.theta)
        found = self.step_solver(
            reduced, inner, mode="safe", tol=max(0.01 * self.tol, 1e-12), start=start
        )
        self.proven = int(np.count_nonzero(found.earlier.codes >= 0))
        word = "optimal" if found.status == "optimal" else "inaccurate"
        if not np.isfinite(found.x).all():
            word = found.status
        self.result = SubproblemResult(
            word, found.x, found.theta, found.multipliers, {"gap": found.certificate.gap}
        )
        near = found.certificate.relative_gap <= ASTRAY
        return self.result if self.result.usable and near else None

    def put_back(self, selection: Selection, point: Candidate | None) -> int:
        """Go on from the new point, with longer steps."""
        if point is None:
            self.finished = True
        else:
            self.centre = point
        return 0

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Certify the step's answer as one of the problem itself; else another step."""
        best = self.centre
        if best is not None and not self.finished:
            self.answer = self.certified_answer(best)
            self.finished = self.answer.proof.ok or len(self.rounds) + 1 >= STEPS
        proof = None if self.answer is None else self.answer.proof
        self.record(self.problem.n - self.proven, proof, (self.proven, 0, 0), times)
        self.weight /= FASTER


def few_terms(problem: Problem, bent: int | None = None) -> bool:
    """Whether a problem, so many of whose terms are bent (None: all), is handed over whole."""
    return (problem.n if bent is None else bent) <= max(FEWEST, 40 * problem.d)


def of_zero(proof: Certificate) -> bool:
    """Whether the objective is no more than its gap, so that no relative accuracy is reached."""
    return abs(proof.primal) <= proof.gap


def spread(b: Array) -> Array | None:
    """Kinks that are all different, each less than the next value off; None where few repeat."""
    some = b[:: max(len(b) // FEWEST, 1)]
    if len(np.unique(some)) > FEW * len(some):
        return None
    values, at, count = np.unique(b, return_inverse=True, return_counts=True)
    if len(values) < 2:
        return None
    between = np.diff(values)
    room = np.minimum(np.append(between, np.inf), np.append(np.inf, between))
    off = np.random.default_rng(0).uniform(-ASIDE, ASIDE, len(b)) * room[at]
    return b + np.where(count[at] > 1, off, 0.0)


def far_from_kinks(losses: LossTerms, margins: Array, keep: int, held: Mask) -> Codes:
    """The pieces of the terms, undecided for the `keep` nearest to a kink and those `held`."""
    codes = losses.piece_within(margins, margins)
    away = losses.kink_distance(margins)
    last = min(max(keep, 1), len(away)) - 1
    edge = float(np.partition(away, last)[last])
    codes[(away <= edge) | held] = Piece.UNDECIDED
    return codes


class Drawn(Immutable):
    """Terms that stand for all.

    Attributes
    ----------
    index : array of int
        Those that were drawn.
    stay : array of int
        Those that stay as they are.
    factor : float
        How many terms each of the drawn ones stands for.
    """

    index: NDArray[np.intp]
    stay: NDArray[np.intp]
    factor: float

    def of(self, problem: Problem) -> Problem:
        """The problem of these terms, the drawn ones first."""
        taken = problem.losses.take(np.concatenate([self.index, self.stay]))
        scale = np.concatenate([np.full(len(self.index), self.factor), np.ones(len(self.stay))])
        return replace(
            problem,
            design=problem.design.take_rows(np.concatenate([self.index, self.stay])),
            losses=taken.weighted(scale),
        )


def sample(problem: Problem) -> Problem:
    """One part in `NESTED` of the terms, standing for all; see `draw`."""
    return draw(problem).of(problem)


def foreseen(problem: Problem, enough: float = SETTLED) -> NearOptimum | None:
    """A point near the optimum, by Newton steps from one near that of a sample, and so on.

    They end with one that takes `enough` terms a coordinate across their kinks.
    """
    if problem.n <= max(FEWEST, 40 * problem.d):
        x = None if repeats(problem) else least_squares(problem)
        wide = problem.n // 2
    else:
        part = sample(problem)
        below = foreseen(part, np.sqrt(part.n / problem.d))
        if below is None:
            return None
        x, wide = below.x, int(WITHIN * problem.n * np.sqrt(problem.d / part.n))
    if x is None:
        return None
    margins, settled = problem.design.forward(x), int(enough * problem.d)
    return near_optimum(problem, x, margins, min(wide, problem.n // 2), settled)


def of_few_coordinates(problem: Problem) -> Mask:
    """Terms of a penalty, or of two coordinates at most, where they are few; shape (n,).

    Such as ``|w_j - v_j|``: no other term stands for them in a sample, and without one of them a
    relaxation goes as far as the others let it.
    """
    own = 0 if problem.layout is None else problem.layout.penalty_terms
    found = np.arange(problem.n) >= problem.n - own
    if isinstance(problem.design, Rows):
        found[problem.design.light[0]] = True
    return found if found.sum() <= problem.n // NESTED else np.zeros(problem.n, dtype=bool)


def at_best_level(problem: Problem, x: Array) -> Array:
    """`x`, a sample's optimum, with what all terms have beside the data at its best for them.

    An intercept, or a level. Above that of a sample's largest term lie all that are larger: taken
    for lines each of them pulls it up as hard as it costs, and relaxations have no end.
    """
    design, side = problem.design, problem.side
    if not isinstance(design, Rows) or design.beside.shape[1] != 1:
        return x
    j = design.stored - 1
    held = side is not None and bool((side.matrix.indices == j).any())
    column = design.column(j)
    if held or problem.penalty is not None or j not in problem.free_index or not column.all():
        return x
    away = lowest_kink(problem.losses, column, design.forward(x), float(problem.linear[j]))
    if away is None or not np.isfinite(away):
        return x
    moved = x.copy()
    moved[j] += away
    return moved


def draw(problem: Problem) -> Drawn:
    """One part in `NESTED` of the terms; hard ones and those of few coordinates stay.

    The same ones for the same problem.
    """
    losses = problem.losses
    fixed = of_few_coordinates(problem)
    if losses.any_hard:
        fixed |= losses.hard
    if fixed.sum() > problem.n // NESTED:  # too many constraints: they are drawn like all others
        fixed[:] = False
    drawn = np.flatnonzero(~fixed)
    size = max(min(FEWEST, len(drawn)) // 2, 20 * problem.d, len(drawn) // NESTED)
    size = min(size, len(drawn))
    # One of each stretch: as if drawn from all, and the others need not be shuffled for it.
    ends = len(drawn) * np.arange(size + 1) // max(size, 1)
    chosen = ends[:-1] + np.random.default_rng(0).integers(0, np.diff(ends))
    return Drawn(drawn[chosen], np.flatnonzero(fixed), len(drawn) / max(size, 1))
