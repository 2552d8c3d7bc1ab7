"""How a cold solve over rows in memory begins, before its solver: cheap passes, the choice of them.

Dual coordinate descent is done with an easy problem before anything else has begun. Where its
epochs will be many, Newton's method with conjugate gradients is the quicker one if every loss has a
parabola; it begins with one epoch at a smaller C, for which coordinate descent is the right one,
and also goes on where that gives up. What both leave is the solver's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.designs.shift import left_about_centre
from cvxscreen.solvers.dual_coordinate_descent import WIDE, DualCoordinateDescent, one_epoch
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    call_checked,
)
from cvxscreen.solvers.newton import DENSE_LIMIT
from cvxscreen.solvers.reformulations import Centred
from cvxscreen.solvers.truncated_newton import CLOCK, TruncatedNewton, takes
from cvxscreen.solvers.working_set import Array

HARD = 20.0
"""Mean of ``||a_i||^2 / q_i`` over the smaller side, the mean of the eigenvalues that the dual is
conditioned by, from which on coordinate descent is left out. Squared hinge, C from 0.01 to 100,
epochs to 1e-6: phishing 6 at 1.6 and 50 at 160, mushrooms 12 at 15 and 555 at 1,500, dna 13 at 8
and 574 at 800, 20,000 x 1,000 6 at 2 and 122 at 200, with 40 entries a row 10 at 8 and 313 at 800,
text-like rows 17 at 20."""
EPOCHS, PRODUCTS = 25.0, 80.0
"""Passes of coordinate descent where Newton's method can go on; and passes of that at most where
its systems are too large for a matrix."""
ROWS = 2
"""Rows a column from which on Newton's method pays. Squared hinge, C = 100, of the time of
`DualActiveSet` after coordinate descent: 3,000 x 3,000 200, 12,000 x 8,000 4, 20,000 x 20,000 1 to
2.6, 8,000 x 3,000 9, and 0.2 to 0.5 for C from 0.01 to 1; 50,000 x 2,000 0.03."""


@dataclass(frozen=True)
class Continued(SubproblemSolver):
    """One solver, and another one from where it was given up.

    Parameters
    ----------
    first, second : SubproblemSolver
    """

    first: SubproblemSolver
    second: SubproblemSolver
    name: str = "CONTINUED"
    traits = SolverTraits(reaches_target=True, selects_terms=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute)."""
        found = call_checked(self.first, problem, start, target)
        if found.status == "optimal":
            return found
        if found.usable:
            start = found.state if isinstance(found.state, Start) else Start(found.x, found.theta)
        return call_checked(self.second, problem, start, target).after(found)


@dataclass(frozen=True)
class FirstEpoch(SubproblemSolver):
    """One epoch of coordinate descent at the C up to which that is the way to begin.

    Newton's first steps from 0 are its dearest, as all rows have curvature there. An epoch at C
    itself leads astray where C is large, as what the last rows ask for is then all that is left.
    Squared hinge, C from 0.3 to 100, 35 problems on ten sets, of the time of Newton's method from
    0: 0.67 to 1.07, 0.90 in the geometric mean; after an epoch at C itself 0.57 to 1.30. Beside an
    unpenalised coordinate, passes of 15 problems on four sets: 0.64 to 0.97, one 1.07.
    """

    name: str = "FIRST_EPOCH"

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """A point to go on from: `start`, if there is one."""
        if start is not None:
            return SubproblemResult("inaccurate", start.x, start.theta, state=start)
        x, theta = one_epoch(problem, min(1.0, HARD / hardness(problem)))
        return SubproblemResult("inaccurate", x, theta, info={"steps": 0, "passes": 2.0})


@dataclass(frozen=True)
class AboutCentre(SubproblemSolver):
    """A solver of a problem about the centre of its features, for the problem as it is.

    Rows far from 0 are alike, and coordinate descent takes many epochs, or is given up: squared
    hinge, 1,000 x 500, C = 0.01, features one, three and twenty spreads off 0, 16, 63 and 56 ms,
    and about their centre 7, 7 and 10. The intercept takes up the centre.

    Parameters
    ----------
    solver : SubproblemSolver
    form : Centred
        Of the problem that it is called for.
    """

    solver: SubproblemSolver
    form: Centred
    name: str = "ABOUT_CENTRE"

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute)."""
        form = self.form
        begun = None if start is None else form.apply(start)
        found = self.solver(form.equivalent, begun, target)
        if not found.usable:
            return found
        x, state = form.restored(found.x), found.state
        if isinstance(state, Start):
            state = Start(x, state.theta, size=state.size)
        return replace(found, x=x, state=state, snapshot=None)


def beginning(
    problem: Problem, then: SubproblemSolver | None, tol: float
) -> SubproblemSolver:
    """What makes the first passes of a cold solve to a relative gap `tol`.

    `then` goes on where they do not get there; None is the compiled path.
    """
    form = Centred.shortest(problem)
    if form is None:
        return _beginning(problem, then, tol)
    return AboutCentre(_beginning(form.equivalent, then, tol), form)


def _beginning(
    problem: Problem, then: SubproblemSolver | None, tol: float
) -> SubproblemSolver:
    """The same for the problem as it is."""
    descent = DualCoordinateDescent.beginning(problem, then, tol)
    if not (newton_pays(problem) and CLOCK.bought):
        return descent
    passes = PRODUCTS if problem.d > DENSE_LIMIT else np.inf
    newton = TruncatedNewton(tol=tol, budget=passes, limits=descent.limits)
    if is_hard(problem):
        return Continued(FirstEpoch(), newton)
    return Continued(DualCoordinateDescent(budget=EPOCHS, tol=tol, limits=descent.limits), newton)


def newton_follows(problem: Problem, values: Array) -> bool:
    """Whether Newton's method with conjugate gradients is the quickest over so many values of C.

    Where coordinate descent has a hard dual at most of them, and the compiled path many columns.
    """
    if problem.d < WIDE or not (newton_pays(problem) and CLOCK.bought):
        return False
    return is_hard(problem.with_(C=float(np.sqrt(values[0] * values[-1]))))


def newton_pays(problem: Problem) -> bool:
    """Whether Newton's method is for `problem`, and its steps are few: of many more rows."""
    return problem.n >= ROWS * problem.d and takes(problem)


def is_hard(problem: Problem) -> bool:
    """Whether the epochs of coordinate descent will be many."""
    return hardness(problem) > HARD


def hardness(problem: Problem) -> float:
    """The mean of the eigenvalues that the dual is conditioned by; it grows as C does."""
    total = float(problem.norms**2 @ (1.0 / problem.losses.q))
    return total / min(problem.n, problem.d)


def hardness_about_centre(problem: Problem) -> float:
    """About the same of the problem as `beginning` solves it."""
    left, free, rows = 1.0, problem.free_index, problem.design
    if len(free) == 1 and isinstance(rows, Rows) and not rows.sparse:
        left = left_about_centre(rows, problem.free_columns[:, 0], int(free[0]))
    return left * hardness(problem)
