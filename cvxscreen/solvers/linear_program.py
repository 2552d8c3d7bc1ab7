"""The L1-penalised SVM without a quadratic term (LP-SVM), a linear program in a few features.

::

    min_w sum_j kappa_j |w_j| + sum_i c_i max(0, 1 - <a_i, w>)

No ball is there to predict by. In the certified mode features are let in as the dual point asks for
them (column generation), until none does; in the safe mode what `cvxscreen.bounds.linear_program`
proves from the start is left out, both terms and features.

With more terms than features the linear program goes to the interior point method, its L1 norm
written as terms. With more features the simplex method of HiGHS is up to 80 times faster, and takes
it (`Highs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.rounding import gamma
from cvxscreen.bounds.linear_program import ON_EDGE, weights
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Layout, Problem, Quadratic, norm_as_terms
from cvxscreen.designs.rows import Rows, by_columns
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    call_checked,
)
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.screened import ProblemInMemory, Times
from cvxscreen.solvers.solution import Answer, LazyNumbers, Solution, shares_from

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEAR = 0.7
"""Features with ``|v_j|`` above this share of its bound at the start are let in at once."""
ASKED = 1e-9
"""A feature asks to be let in where ``|v_j|`` exceeds its bound by more than this share of it:
HiGHS is asked for 1e-10."""
MAX_ROUNDS = 60
"""Rounds of letting features in after which what is there is the answer."""
WIDEST = 500
"""Features up to which, if there are as many terms, the interior point method takes it.

Seconds of HiGHS and of it, lambda at 0.02 of its largest value: 1.4 and 0.1 at 2,000 terms and 100
features, 3.0 and 0.12 at 10,000 and 50; the 1-norm SVM 2.7 and 0.48 at 600 and 400, 1.9 and 0.55 at
400 and 400; with 1,000 terms for 3,000 features HiGHS is the faster.
"""
SMALL = 200
"""Terms up to which it takes two a feature: 90 and 80 take 18 ms by HiGHS, 39 by it, 200 and 50 62
and 48."""
FEWER = 0.5
"""Where more than this share of the features may matter, and the interior point method takes them,
all are let in: most rounds but the first are then saved. CPU ms with and without, at 2,000 terms
and 100 features: 55 and 35 where 34 may matter, 79 and 117 where 54 may, 62 and 156 where 74 may.
"""
VERTEX = 1e-10
"""Relative gap asked of it, as of HiGHS; where it ends above (dependent rows), HiGHS is asked."""


def tall(problem: Problem) -> bool:
    """Whether the interior point method is the faster one."""
    few = 1 if problem.n > SMALL else 2
    return 0 < few * problem.d <= problem.n and problem.d <= WIDEST


class ScreenedLinearProgram(
    ProblemInMemory[Selection, Problem, SubproblemResult, tuple[Array, Array], Answer]
):
    """An LP-SVM with what is proven of it, and the features that are solved for.

    Parameters as of `ProblemInMemory`.
    """

    def set_up(self) -> None:
        """Every feature is solved for, unless there is a point that tells which may matter."""
        self.working_set = np.ones(self.problem.d, dtype=bool)
        self.missing: Mask = ~self.working_set

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Prove from the start, or from 0; in the certified mode choose the first features by it.

        There nothing is proven before: from 0, or from a neighbouring lambda, hardly a term is
        decided, and it takes as long as the linear program.
        """
        problem, self.whole_loop = self.problem, solve
        if start is None:
            x = np.zeros(problem.d)
            start = Start(x, problem.losses.slope(np.zeros(problem.n)))
        else:
            self.before = LazyNumbers(partial(shares_from, problem, self.bounds, start))
        self.first = start
        if self.mode == "safe":
            point = start.point or reference_point(problem, start.x, start.theta)
            self.screening = self.screening.proven_from(self.bounds, point)
            return
        v = np.abs(problem.design.adjoint(start.theta)) / weights(problem)
        self.working_set = (v >= NEAR * min(1.0, float(v.max(initial=0.0)))) | (start.x != 0)
        if tall(problem) and self.working_set.sum() > FEWER * problem.d:
            self.working_set[:] = True

    def select(self) -> Selection:
        """What is proven; features outside of the working set are predicted 0."""
        known = self.screening
        return Selection(known.codes, known.dropped | ~self.working_set)

    def reduce(
        self, selection: Selection
    ) -> tuple[Problem, Callable[[SubproblemResult], tuple[Array, Array]]]:
        """The linear program in the features that stay."""
        problem, reduced = self.problem, selection.reduce(self.problem)
        return reduced, lambda found: selection.lift(problem, reduced, found.x, found.theta)

    def solve(self, reduced: Problem, selection: Selection) -> SubproblemResult | None:
        """The optimum at a vertex: by the interior point method, or by the solver."""
        found = None
        if tall(reduced) and self.inner.traits.interchangeable:
            found = self.by_interior_point(reduced)
        if found is None and not (self.rounds and self.limits.spent()):
            found = call_checked(self.inner, reduced)
        self.result = found or SubproblemResult("failed", np.zeros(0), np.zeros(0))
        return self.result if self.result.usable else None

    def by_interior_point(self, problem: Problem) -> SubproblemResult | None:
        """The ordinary problem without a quadratic term, its L1 norm as terms; None off a vertex.

        Terms are left out as of every problem without strong convexity (`relaxation`).
        """
        design, (n, k) = problem.design, problem.design.shape
        rows = Rows(design.rows_csr(np.arange(n)) if design.sparse else design.dense(), known=True)
        kappa, f = weights(problem), problem.losses
        whole = Problem(
            *norm_as_terms(rows, f, kappa), Quadratic(np.zeros(k)), np.zeros(k),
            layout=Layout(penalty_terms=k),
        )
        found = self.whole_loop(whole, InteriorPoint(limits=self.limits), tol=VERTEX)
        if found.status != "optimal":
            return None
        # What is not at its bound for certain is 0, unless that is rounding and costs something.
        inside = np.abs(found.theta[n:]) < (1.0 - ON_EDGE) * kappa
        w, sparse = found.x, np.where(inside, 0.0, found.x)
        if problem.primal(sparse) <= problem.primal(w) * (1.0 + 8.0 * gamma(n + k)):
            w = sparse
        return SubproblemResult("optimal", w, np.clip(found.theta[:n], f.lo, f.hi))

    def evaluate(self, lifted: tuple[Array, Array], selection: Selection) -> Answer:
        """The certificate on all terms and features, with the products that it takes."""
        return Answer.of(self.problem, *lifted, np.zeros(0), self.tol)

    def put_back(self, selection: Selection, point: Answer | None) -> int:
        """Let in the features that the dual point asks for; without one the start is the answer."""
        if point is None:
            self.finished = True
            if self.answer is None:
                self.answer = self.evaluate((self.first.x, self.first.theta), selection)
            return 0
        self.answer = point
        v = point.passes.At_theta
        if v is None:  # the certificate has refused the point before it came to this
            v = self.problem.design.adjoint(point.theta)
        asked = np.abs(v) > weights(self.problem) * (1 + ASKED)
        self.missing = asked & ~self.working_set & ~self.screening.dropped
        return int(self.missing.sum())

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record the round; the reduction is solved when no feature asks to be let in."""
        kept, features = len(selection.kept), len(selection.features(self.problem))
        proof = None if self.answer is None else self.answer.proof
        self.record(kept, proof, (self.problem.n - kept, 0, refuted), times, features)
        self.finished = self.finished or refuted == 0 or len(self.rounds) >= MAX_ROUNDS
        self.working_set = self.working_set | self.missing


@dataclass(frozen=True)
class Highs(SubproblemSolver):
    """The simplex method of HiGHS for linear programs, in ``w = p - m`` and the hinges.

    Parameters
    ----------
    limits : Limits
        Of the whole call.
    """

    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    # It ends at a vertex; where the interior point method is faster, that takes its place.
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True, interchangeable=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem`, an LP-SVM, from nothing to a vertex."""
        from scipy.optimize import linprog  # a sixth of a second of every model's first call

        n, k = problem.design.shape
        if not (n and k):
            return SubproblemResult("optimal", np.zeros(k), problem.losses.lo)
        matrix, kappa, c = by_columns(problem.design), weights(problem), -problem.losses.lo
        cost = np.concatenate([kappa, kappa, c])
        table = sp.hstack([-matrix, matrix, -sp.eye(n)], format="csc")
        options: dict[str, float] = {
            "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10
        }
        if self.limits.seconds is not None:
            options["time_limit"] = self.limits.seconds
        if self.limits.iterations is not None:
            options["maxiter"] = self.limits.iterations
        found = linprog(
            cost, A_ub=table, b_ub=-np.ones(n), bounds=(0, None), method="highs", options=options
        )
        self.limits.spent(int(found.nit))
        if found.x is None or found.status != 0:
            return SubproblemResult("failed", np.zeros(0), np.zeros(0))
        theta = np.clip(found.ineqlin.marginals, -c, 0.0)
        return SubproblemResult("optimal", found.x[:k] - found.x[k : 2 * k], theta)
