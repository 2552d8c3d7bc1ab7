"""The gaps that the loop asks of the solvers inside it."""

from __future__ import annotations

from dataclasses import dataclass

from cvxscreen.duality import Point
from cvxscreen.problem import Problem
from cvxscreen.screening import Screening
from cvxscreen.solvers.choice import BUILTIN
from cvxscreen.solvers.faces import Faces
from cvxscreen.solvers.guess import SMALL, size_of_optimum
from cvxscreen.solvers.inner import Inner, Look
from cvxscreen.solvers.pauses import gap_that_pays, pauses
from cvxscreen.solvers.smo import Smo

AIM, CLOSE, OTHERS = 0.8, 0.95, 0.25
"""Share of the tolerance that a built-in solver uses up; `Faces`, which stops right below it, where
the size of the optimum is known; solvers whose gap is another one."""
LOOSE = 3e-4
"""Relative gap of the first look where there is nothing to predict from."""
WORTH = 0.8
"""A reduction that keeps a larger share of the terms costs more than it saves."""


@dataclass(eq=False)
class Goals:
    """What to ask for in the next round of one call.

    Attributes
    ----------
    problem : Problem
    inner : Inner
    safe : bool
        Whether only what is proven is left out.
    tol : float
        Relative gap asked for.
    factor : float
        Smaller than 1 once a share of `tol` was not enough.
    size : float or None
        About the optimal value, from below, where a start tells it.
    """

    problem: Problem
    inner: Inner
    safe: bool
    tol: float
    factor: float = 1.0
    size: float | None = None

    @property
    def builtin(self) -> bool:
        """Whether the solver's gap is ours."""
        return isinstance(self.inner, BUILTIN)

    @property
    def sees(self) -> bool:
        """Whether the solver finds out by itself which terms matter."""
        return isinstance(self.inner, Faces | Smo)

    def last(self, best: Point | Look | None) -> float:
        """The absolute gap to end with."""
        share, size = OTHERS, self.size if best is None else None
        if self.builtin:
            known = size is not None or best is not None
            share = CLOSE if known and isinstance(self.inner, Faces) else AIM
        scale = size_of_optimum(self.problem, best) if size is None else size
        return self.factor * share * self.tol * max(scale, 1e-300)

    def next(self, best: Point | Look | None, screening: Screening) -> tuple[float, bool]:
        """The gap to ask for, and whether it is the last; loose while nothing can be left out."""
        aim = self.last(best)
        if not self.builtin or self.sees or (self.safe and not pauses(self.problem)):
            return aim, True
        wanted = aim
        if best is None:
            if self.problem.n > SMALL:
                wanted = LOOSE * size_of_optimum(self.problem, None)
        elif self.safe:
            wanted = gap_that_pays(best, screening, 1.0 - WORTH, aim)
        return max(wanted, aim), wanted <= aim
