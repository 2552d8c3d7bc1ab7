"""The entry: `DualActiveSet`, whose `__call__` is the method (explained in the package)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.face import Face, correct_primal
from cvxscreen.solvers.dual_active_set.iterate import DualIterate, PathCache
from cvxscreen.solvers.dual_active_set.working_set import Array, WorkingSet
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)
from cvxscreen.solvers.newton import Newton

# The numbers below steer the work; no answer depends on them. They were found by trial: CPU seconds
# of examples/benchmarks/sparse_path.py, and of paths over C on farmads.

COLD_SWEEPS, NEW_SWEEPS, ROUND_SWEEPS = 12, 3, 1
"""Sweeps of coordinate descent: at a cold start, on a new working set, in each round."""
GAP_SHARE = 0.95
"""Share of the gap allowed to all terms that is asked of a working set."""
FACE_GAP, LEAST_FACE_GAP = 2.0, 0.25
"""Conjugate gradients stop at so many times the aim: a sweep over the face does the rest. Where it
does not, they go on to half of it, down to the second."""
PROXIMAL_SHARE, LEAST_GAP_SHARE = 0.1, 0.3
"""A working set's gap may be so much of the value of an unpenalised coordinate's proximal term
before the centre moves, but need not be below this share of the gap allowed."""
PROGRESS, PATIENCE, FAILURES = 0.9, 20, 3
"""A gap has fallen if it is at most so many times the least before; so many rounds without that end
the work on a working set, so many working sets without it the whole."""

LEAST_FREE = 1000
"""Free terms from which on a primal correction can pay."""
CORRECTION_COST = 6.0
"""A correction costs about so many times what the dual objective lacks (2 to 7 were met)."""
CORRECTION_SHARE, RETRY = 0.5, 0.3
"""Share of the aim that a correction may be expected to cost when it is tried, and what becomes of
it when one has failed; after a second failure none is tried on this working set."""
EARLY = 1.5
"""Conjugate gradients end at so many times that cost: a sweep comes before the correction."""
FAILED_CORRECTIONS = 3
"""Working sets in a row on which both corrections have failed; after them none is tried again."""


def suits(problem: Problem) -> bool:
    """Whether `DualActiveSet` takes `problem`: CSR, M diagonal, 0 on one coordinate at most."""
    quadratic = problem.quadratic
    return (
        problem.side is None
        and isinstance(problem.design, Rows)
        and problem.design.sparse
        and quadratic.matrix is None
        and int(quadratic.free.sum()) <= 1
    )


@dataclass(frozen=True)
class DualActiveSet(SubproblemSolver):
    """The built-in solver for sparse data.

    What it does not take (see `suits`), and what it has not finished when its rounds are used up or
    no longer help, goes to `Newton`.

    Parameters
    ----------
    max_rounds : int
        Rounds of coordinate descent and conjugate gradients at most.
    max_steps : int
        Newton steps at most, should it come to that.
    limits : Limits
        Of the whole call.
    path_cache : PathCache, optional
        Of the calls before this one, where there are several on the same data. Where they point to
        takes the place of a start that is no better.
    """

    max_rounds: int = 500
    max_steps: int = 500
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    path_cache: PathCache | None = field(default=None, compare=False)

    @property
    def traits(self) -> SolverTraits:
        """Where it follows a path it begins where its last solutions point to."""
        return SolverTraits(
            reaches_target=True, stops_right_below=True, selects_terms=True,
            descends_first=self.path_cache is None,
        )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Returns
        -------
        SubproblemResult
            Status ``"optimal"`` when the target was reached, ``"inaccurate"`` otherwise. Where
            `Newton` has taken over, ``info["dual_active_set"]`` tells what was done before.
        """
        refuse_side(problem)
        newton, rows = Newton(self.max_steps, limits=self.limits), problem.design
        if not isinstance(rows, Rows) or not suits(problem):
            return newton(problem, start, target)
        iterate = DualIterate(problem, rows, start, target, self.path_cache or PathCache())
        run = _Run(iterate, self.max_rounds, self.limits)
        if start is None and run.goes_on():  # only to find out which terms matter
            run.solve_on(iterate.working_set(), COLD_SWEEPS, 1)
        working_set: WorkingSet | None = None
        while run.goes_on():
            if working_set is None:
                working_set = iterate.working_set()
                sweeps = ROUND_SWEEPS if iterate.extrapolated else NEW_SWEEPS
            else:
                working_set, sweeps = iterate.extend(working_set), ROUND_SWEEPS
            run.solve_on(working_set, sweeps, self.max_rounds)
        run.finish(working_set)
        if run.gap <= target:
            return SubproblemResult("optimal", run.x, run.theta, info=run.info)
        if self.limits.spent():
            return SubproblemResult("inaccurate", run.x, run.theta, info=run.info)
        found = newton(problem, Start(run.x, run.theta), target)
        found.info["dual_active_set"] = run.info
        if found.info["gap"] < run.gap:
            return found
        info = {**found.info, "gap": run.gap}
        return SubproblemResult("inaccurate", run.x, run.theta, info=info)


class _Run:
    """The best point so far, whether to go on, and the counts of one call.

    Attributes
    ----------
    gap : float
        Of the best point, on all terms.
    """

    def __init__(self, iterate: DualIterate, max_rounds: int, limits: Limits) -> None:
        self.iterate, self.target, self.limits = iterate, iterate.target, limits
        self.max_rounds = max_rounds
        self.rounds = self.steps = self.correction_steps = self.kept = self.failures = 0
        self.gap, self.least = np.inf, iterate.proximal_gap
        self._keep_best()

    def goes_on(self) -> bool:
        """Whether the target is not reached, there is time, and the work still helps."""
        wanted = self.gap > self.target and self.rounds < self.max_rounds
        return wanted and self.failures < FAILURES and not self.limits.spent()

    def solve_on(self, working_set: WorkingSet, sweeps: int, rounds: int) -> None:
        """Rounds on `working_set` until its gap is small enough; then the gap on all terms."""
        iterate, self.kept = self.iterate, len(working_set.rows)
        local = _LocalSolve(iterate, working_set)
        most = min(self.max_rounds, self.rounds + rounds)
        while local.goes_on() and self.rounds < most and not self.limits.spent(1):
            local.round(sweeps)
            sweeps = ROUND_SWEEPS
            self.rounds += 1
        self.steps += local.steps
        self.correction_steps += local.correction_steps
        local.write_back()
        iterate.evaluate()
        self.failures = 0 if iterate.proximal_gap < PROGRESS * self.least else self.failures + 1
        self.least = min(self.least, iterate.proximal_gap)
        self._keep_best()
        if self.gap > self.target:
            iterate.recentre()

    def finish(self, working_set: WorkingSet | None) -> None:
        """Leave to the next value of C what may help it."""
        iterate = self.iterate
        if working_set is not None:
            iterate.cache.keep(working_set)
        if not np.isfinite(self.gap):
            iterate.balance()
            self._keep_best()
        if iterate.gap <= self.target:
            iterate.remember()

    def _keep_best(self) -> None:
        iterate = self.iterate
        if not self.rounds or iterate.gap < self.gap:
            self.gap = iterate.gap
            self._x, self.theta = iterate.v + iterate.correction, iterate.balanced.copy()

    @property
    def x(self) -> Array:
        """The best point's x, in the coordinates of the problem."""
        return self._x * self.iterate.root

    @property
    def info(self) -> dict[str, object]:
        """What the call has done."""
        return {
            "rounds": self.rounds, "steps": self.steps, "correction_steps": self.correction_steps,
            "passes": round(self.iterate.passes, 1), "kept": self.kept, "gap": self.gap,
        }


class _LocalSolve:
    """Sweeps, face steps and primal corrections on one working set.

    Attributes
    ----------
    theta, v : arrays
        Of the working set's rows and columns.
    gap : float
        On the working set, about.
    aim : float
        What it has to be.
    """

    def __init__(self, iterate: DualIterate, working_set: WorkingSet) -> None:
        self.iterate, self.working_set = iterate, working_set
        self.theta, self.v = iterate.theta[working_set.rows], iterate.v[working_set.columns]
        self._theta_before, self._v_before = self.theta.copy(), self.v.copy()
        self._free = np.flatnonzero(np.isin(working_set.columns, iterate.free))
        self.gap, self.aim = np.inf, GAP_SHARE * iterate.target
        self._face_gap, self._least, self._idle = FACE_GAP, np.inf, 0
        failed = iterate.cache.failed_corrections >= FAILED_CORRECTIONS
        self._share, self._near = 0.0 if failed else CORRECTION_SHARE, False
        self.steps = self.correction_steps = 0
        self._solved = False
        iterate.correction = np.zeros(len(iterate.v))

    def goes_on(self) -> bool:
        """Whether the gap is too large and still falls."""
        return not self._solved and self.gap > self.aim and self._idle < PATIENCE

    def round(self, sweeps: int) -> None:
        """Coordinate descent, then a step to the minimum of the face or a move of x alone."""
        working_set, theta, v = self.working_set, self.theta, self.v
        working_set.sweep(theta, v, sweeps)
        face = Face(working_set, theta, v)
        if len(self._free):
            proximal = self.iterate.proximal_value(v[self._free])
            self.aim = max(LEAST_GAP_SHARE * self.iterate.target, PROXIMAL_SHARE * proximal)
        if self._step_or_correct(face):
            self._solved = True
            return
        self.gap, self._near = face.gap, face.near
        if self.gap <= self._face_gap * self.aim:
            working_set.sweep(theta, v, 1, face.rows)
            margins = working_set.forward(v)
            self.gap = float(working_set.losses.fenchel_young(margins, theta).sum())
            # Where the sweep was not enough, the next face is solved more closely.
            self._face_gap = max(0.5 * self._face_gap, LEAST_FACE_GAP)
        self._idle = 0 if self.gap < PROGRESS * self._least else self._idle + 1
        self._least = min(self._least, self.gap)
        self.steps += face.steps
        read = 2.0 * (face.steps + 1) * len(face.rows) + 2.0 * sweeps * len(working_set.rows)
        self.iterate.passes += read / self.iterate.problem.n

    def write_back(self) -> None:
        """Take the working set's duals over into the iterate."""
        iterate, working_set = self.iterate, self.working_set
        moved = np.flatnonzero(self.theta != self._theta_before)
        change = (self.theta - self._theta_before)[moved]
        iterate.theta[working_set.rows] = self.theta
        # Not the v at hand, in which the rounding of many small steps has added up.
        iterate.v[working_set.columns] = self._v_before - working_set.adjoint(change, moved)

    def _step_or_correct(self, face: Face) -> bool:
        """Move the duals to the face's minimum, or x alone where that may do; whether it did."""
        may = face.flat and not len(self._free) and len(face.rows) >= LEAST_FREE
        close = self._share * self.aim / CORRECTION_COST if may else 0.0
        near_enough = close > 0 and (self._near or face.lacking < close)
        if not near_enough:
            face.move(self.theta, self.v, self._face_gap * self.aim, EARLY * close)
            near_enough = close > 0 and face.near and not face.steps
        if not near_enough:
            return False
        if self._correct(face):
            return True
        self._share = RETRY * self._share if self._share == CORRECTION_SHARE else 0.0
        close = self._share * self.aim / CORRECTION_COST
        self.iterate.cache.failed_corrections += self._share == 0.0
        face.move(self.theta, self.v, self._face_gap * self.aim, EARLY * close)
        return False

    def _correct(self, face: Face) -> bool:
        """Try to close the gap by a move of x alone; whether it succeeded."""
        iterate = self.iterate
        found = correct_primal(self.working_set, face, self.theta, self.v, self.aim)
        self.correction_steps += found.steps
        iterate.passes += found.steps * len(face.rows) / iterate.problem.n
        if found.gap > self.aim:
            return False
        iterate.correction[self.working_set.columns] = found.move
        iterate.cache.failed_corrections = 0
        return True
