"""Losses that can be screened beside a convex part of the objective that is no sum of losses.

::

    minimise  F(x) + g(x),     F a `Problem`,  g = maxima with different data + terms kept verbatim

F is screened by bounds that hold for any convex g (`minorant`), pieces of maxima by the same ball;
g itself goes into every reduced problem. Decisions are predicted and certified, or proven (safe).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.borrowing import borrowed
from cvxscreen.reducer.check import check, points
from cvxscreen.reducer.elements import recognise_standard
from cvxscreen.reducer.largest import Maxima
from cvxscreen.reducer.minorant import Minorant, Relaxed, relaxation
from cvxscreen.reducer.recognition import Recognition
from cvxscreen.reducer.standard import standardise
from cvxscreen.reducer.symbolic import canonicalise
from cvxscreen.reducer.vectorise import vectorised
from cvxscreen.reducer.verbatim import Verbatim, split

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Beside:
    """A recognised ``F + g``.

    Attributes
    ----------
    recognition : Recognition
        Of F, tied to the user's problem; its maxima are part of g.
    verbatim : Verbatim or None
    """

    recognition: Recognition
    verbatim: Verbatim | None

    @property
    def maxima(self) -> Maxima | None:
        """The maxima in g."""
        return self.recognition.maxima

    @property
    def terms(self) -> int:
        """Loss terms and maxima together."""
        more = 0 if self.maxima is None else self.maxima.n
        return self.recognition.problem.n + more

    @property
    def words(self) -> tuple[str, ...]:
        """What g is made of, for records."""
        out = []
        if self.maxima is not None:
            out.append(f"{self.maxima.n} maxima of {len(self.maxima.heights)} affine pieces")
        if self.verbatim is not None:
            text = " ".join(str(self.verbatim.expr).split())
            out.append(f"kept as it is: {text if len(text) < 80 else text[:77] + '...'}")
        return tuple(out)

    @property
    def anchored(self) -> bool:
        """Whether g leaves the unpenalised coordinates alone, so that proofs hold there too."""
        free = self.recognition.problem.quadratic.free
        return self.verbatim is None or not (self.verbatim.touched() & free).any()

    def value(self, x: Array) -> float:
        """``F(x) + g(x)``."""
        total = self.recognition.problem.primal(x)
        if self.maxima is not None:
            total += self.maxima.value(x)
        return total if self.verbatim is None else total + self.verbatim.value(x)


@np.errstate(invalid="ignore", over="ignore")  # data with NaN or infinity are refused
def recognise_beside(problem: Any) -> Beside:
    """Read a CVXPY problem that `recognise` refuses as losses beside another convex part.

    Raises
    ------
    NotScreenable
        With the reason.
    """
    canonical = canonicalise(problem)
    verbatim = None
    try:
        found = recognise_standard(standardise(canonical), beside=True)
        check(found)
    except NotScreenable:
        rest, expr = split(vectorised(problem))
        found = recognise_standard(standardise(canonicalise(rest)), beside=True)
        check(found)
        verbatim = Verbatim.of(expr, found)
        tied = replace(found.standard.canonical, original=problem)
        found = replace(found, standard=replace(found.standard, canonical=tied))
    made = beside_of(found, verbatim)
    _check(made, problem)
    return made


def beside_of(found: Recognition, verbatim: Verbatim | None) -> Beside:
    """Losses beside the maxima that were found with them, and beside `verbatim`.

    Raises
    ------
    NotScreenable
        If there are none of either, or proofs could not be completed.
    """
    maxima, free = found.maxima, found.problem.quadratic.free
    if maxima is not None and (maxima.touched() & free).any():
        raise NotScreenable(
            "a maximum of pieces with different data uses a coordinate that the objective does "
            "not square"
        )
    if maxima is None and verbatim is None:
        raise NotScreenable("nothing stands beside the losses")
    if not found.problem.n and maxima is None:
        raise NotScreenable("no loss term was found beside the rest")
    return Beside(found, verbatim)


def judged(
    made: Beside, x: Array, theta: Array, mu: Array, shares: Array | None, tol: float
) -> tuple[Relaxed, Array]:
    """A point of the full problem, judged through affine minorants of g.

    Parameters
    ----------
    made : Beside
    x, theta, mu : arrays
        Point, slopes of the terms, multipliers of the side constraints.
    shares : array, shape (p,), or None
        Slopes of the pieces of maxima, those of the largest ones when None.
    tol : float
        Relative gap that is aimed at.

    Returns
    -------
    Relaxed
    array, shape (p,)
        The slopes of the pieces, feasible.
    """
    problem = made.recognition.problem
    minorants: list[Minorant] = []
    pull = problem.design.adjoint(theta) + problem.linear
    if problem.side is not None:
        pull = pull - problem.side.adjoint(problem.side.project_dual(mu))
    target = -(pull + problem.quadratic.apply(x))
    if made.maxima is not None:
        shares = made.maxima.shares(made.maxima.values(x), shares)
        minorants.append(made.maxima.minorant(x, shares))
        target = target - minorants[0].slope
    if made.verbatim is not None:
        aim = 0.1 * tol * max(abs(made.value(x)), 1e-12)
        weight = np.where(problem.quadratic.free, 1.0, 1.0 / problem.quadratic.floor)
        minorants.append(made.verbatim.minorant(x, target, aim, weight))
    relaxed = relaxation(problem, x, theta, mu, minorants)
    return relaxed, np.zeros(0) if shares is None else shares


def _check(made: Beside, problem: Any) -> None:
    """The recognised objective is the user's, at a few points."""
    recognition = made.recognition
    sign = -1.0 if type(problem.objective).__name__ == "Maximize" else 1.0
    variables = problem.variables()
    with borrowed(variables):
        for x in points(recognition):
            z = recognition.columns(x)
            values = recognition.standard.canonical.user_values(recognition.standard.split(z))
            if any(v.id not in values for v in variables):
                raise NotScreenable("a term that cannot be screened has variables of its own")
            for variable in variables:
                variable.save_value(values[variable.id])
            truth, model = problem.objective.value, made.value(x)
            if truth is None or not (np.isfinite(model) and np.isfinite(truth)):
                continue  # outside the domain of a verbatim term
            if not abs(sign * float(truth) - model) <= 1e-9 * (1.0 + abs(model)):
                raise NotScreenable("the recognised objective does not agree with the problem's")
