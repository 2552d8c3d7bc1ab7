"""The norm of many losses as their squares, at the weight at which both pull alike.

::

    minimise  f(x) + c |l(x)|_2,     l_i(x) = max_k (s_ik <a_i, x> + h_ik), say

A semideviation is of this form. For every ``s > 0``

    c |l(x)|  <=  c/(2 s) |l(x)|^2 + c s/2,     with equality where s = |l(x)|,

so the optimum is the least value of V(s), that of the problem with the squares, and V is convex.
The problem with the squares is one of losses like any other, of which only a weight changes; s is
where ``|l(x_s)| = s``, found by secants from one solution to the next. At that point slopes and
multipliers of both problems are the same.

Slopes theta of the squares that a certificate bounds V(s) from below by, bound all of V: their
conjugates are ``s/(2 c) |theta|^2``, and nothing else in the bound depends on s. So every solve
gives a line below V, and the least value of the largest of these lines is below the optimum.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.reductions.solution import Solution as CvxpySolution

from cvxscreen.certificates.certificate import relative_gap
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.answer import StoredAnswer
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, summands_of
from cvxscreen.cvxpy_plugin.request import Report, with_report
from cvxscreen.cvxpy_plugin.size import NORMS
from cvxscreen.solvers.solution import Solution

FEWEST = 500
"""Losses in a norm for which a few solves with their squares cost less than one with a cone."""

MOST_PARTS = 100
"""A sum of so many parts is a loop over terms, and looked at no further."""

MOST = 20
"""Solves at most; four or five are usual."""

FINE = 1e-9
"""Relative gap at which it ends, and what s may be off by, relative to it."""

ASIDE = 0.05
"""How far from s another line is asked for where none rises, or none falls."""

SLOW, LEAST = 0.5, 1e-6
"""The distance from s to the norm has to fall to such a share in every solve but the first ones,
and no norm may be such a share of s: where nothing is lost at the optimum, s goes to 0."""


class Line(NamedTuple):
    """``height + slope s``, below V everywhere."""

    height: float
    slope: float


def least_of_largest(lines: list[Line]) -> float:
    """The least value over ``s >= 0`` of the largest of some lines; -inf where all of them fall."""
    heights, slopes = np.array(lines).T
    if slopes.max() < 0.0:
        return -np.inf
    rise = slopes[:, None] - slopes
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (heights - heights[:, None]) / rise
    at = np.append(crossings[(rise != 0.0) & (crossings > 0.0)], 0.0)
    return float((heights + slopes * at[:, None]).max(axis=1).min())


@dataclass(eq=False)
class NormAsSquares:
    """A problem with one norm of many losses, and the one with their squares.

    Attributes
    ----------
    term : Term
        The norm with what it is multiplied by, to be minimised.
    inner : cvxpy.Problem
        With the squares; variables and constraints are the user's own.
    weight : cvxpy.Parameter
        Of the squares.
    s : float or None
        Where the last solve has ended.
    """

    term: Term
    inner: Any
    weight: Any
    s: float | None = None

    @classmethod
    def of(cls, problem: Any) -> NormAsSquares | None:
        """The form of `problem`; None where it has no such norm, or several."""
        sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
        parts = list(islice(summands_of(problem.objective.expr, sign), MOST_PARTS))
        norms = [part for part in parts if _is_long_norm(part.expr)]
        if len(norms) != 1 or len(parts) == MOST_PARTS:
            return None
        weight = cp.Parameter(nonneg=True)
        squares = weight * cp.sum_squares(norms[0].expr.args[0])
        rest = [part.written() for part in parts if part is not norms[0]]
        inner = cp.Problem(cp.Minimize(sum(rest, squares)), problem.constraints)
        return cls(norms[0], inner, weight)

    @property
    def descriptions(self) -> tuple[str, ...]:
        """What is solved in place of the norm, for records."""
        return (f"the norm of {self.count} losses, as their squares times {self.weight.value:.6g}",)

    @property
    def count(self) -> int:
        """Number of losses in the norm."""
        return int(self.term.expr.args[0].size)

    def cost(self) -> float:
        """``c``, at the parameters' present values; NaN where one has none."""
        values = [scale.value for scale in self.term.scales]
        if any(value is None for value in values):
            return float("nan")
        return float(self.term.factor * np.prod([float(np.squeeze(v)) for v in values]))

    def first(self) -> float:
        """Somewhere to begin: the last answer's norm, or that where all coordinates are alike."""
        if self.s is not None:
            return self.s
        variables = self.inner.variables()
        with preserved_values(variables):
            for level in (0.0, 1.0):
                for variable in variables:
                    variable.save_value(np.full(variable.shape, level / max(variable.size, 1)))
                value = self.term.expr.value
                if value is not None and np.isfinite(value) and value > 0.0:
                    return float(value)
        return float(np.sqrt(self.count))


def _is_long_norm(expr: Any) -> bool:
    """Whether `expr` is the Euclidean norm of many losses; one of residuals is left a cone."""
    if type(expr).__name__ not in NORMS or expr.size != 1 or float(expr.p) != 2.0:
        return False
    losses = expr.args[0]
    return losses.size >= FEWEST and expr.axis is None and not losses.is_affine()


_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, NormAsSquares | None]] = (
    weakref.WeakKeyDictionary()
)
"""The form of each problem met, with its objective and constraints: these may be replaced."""


def norm_as_squares(problem: Any) -> NormAsSquares | None:
    """The form of `problem`, read once."""
    parts = [problem.objective, *problem.constraints]
    known = _KNOWN.get(problem)
    if known is None or len(known[0]) != len(parts) or any(
        a is not b for a, b in zip(known[0], parts, strict=True)
    ):
        known = _KNOWN[problem] = parts, NormAsSquares.of(problem)
    return known[1]


Solve = Callable[[Any], tuple[Solution, Report] | str]


def line_of(found: Solution, cost: float, s: float, count: int) -> Line | None:
    """The line below V that a solution at `s` gives; None where other losses are squared, too."""
    problem: Problem = found.problem
    squared = problem.losses.q > 0.0
    if int(np.count_nonzero(squared)) != count:
        return None
    conjugates = 0.5 * float(problem.losses.q[squared] @ found.theta[squared] ** 2)
    # What the five numbers have in q goes with s; the lower bound has been charged with it once.
    return Line(found.certificate.dual + conjugates, 0.5 * cost - conjugates / s)


@dataclass(eq=False)
class _Search:
    """The solves so far, and where V may have its least value."""

    made: NormAsSquares
    cost: float
    solve: Solve
    lines: list[Line] = field(default_factory=list)
    norms: list[tuple[float, float]] = field(default_factory=list)

    def at(self, s: float) -> Report | str:
        """Solve with the weight of `s`, and keep the line and the norm of the answer."""
        self.made.weight.value = self.cost / (2.0 * s)
        found = self.solve(self.made.inner)
        if isinstance(found, str):
            return found
        line = line_of(found[0], self.cost, s, self.made.count)
        if line is None:
            return "the losses in its norm are not all that is squared"
        self.lines.append(line)
        self.norms.append((s, float(self.made.term.expr.value)))
        return found[1]

    def vain(self) -> bool:
        """Whether the solves so far lead to no s; see `SLOW`."""
        s, norm = self.norms[-1]
        away = [abs(found - at) / at for at, found in self.norms]
        return norm <= LEAST * s or (len(away) > 2 and away[-1] > SLOW * away[-3])

    def next(self) -> float:
        """Where the last two say that the norm is s; the last norm where these say nothing."""
        s, norm = self.norms[-1]
        low = max((at for at, found in self.norms if found > at), default=0.0)
        high = min((at for at, found in self.norms if found < at), default=np.inf)
        if len(self.norms) > 1:
            before, other = self.norms[-2]
            rise = (norm - s) - (other - before)
            guess = s - (norm - s) * (s - before) / rise if rise != 0.0 else norm
            if low < guess < high:
                return guess
        return norm if low < norm < high else 0.5 * (low + high)

    def away(self) -> float:
        """How far the last s is from the norm there, relative to it."""
        s, norm = self.norms[-1]
        return abs(norm - s) / s


def screened_norm(made: NormAsSquares, problem: Any, solve: Solve, tol: float) -> Report | str:
    """Solve `problem` by the one with squares, and write back; or why that cannot be.

    Parameters
    ----------
    solve : callable
        Solves a ``cvxpy.Problem`` by screening and writes it back; a solution and its report, or
        why there is none.
    tol : float
        Relative gap.
    """
    began, cost = perf_counter(), made.cost()
    if not (np.isfinite(cost) and cost > 0.0):
        return "the weight of its norm is not positive"
    search, s = _Search(made, cost, solve), made.first()
    for _ in range(MOST):
        report = search.at(s)
        if isinstance(report, str):
            return report
        if search.away() <= FINE:
            break
        if search.vain():
            return "no weight of squares was found for its norm"
        s = search.next()
    else:
        return "no weight of squares was found for its norm"
    answer, s = StoredAnswer.of(made.inner), search.norms[-1][0]
    value = float(np.squeeze(problem.objective.expr.value))
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    for side in (1.0 - ASIDE, 1.0 + ASIDE):
        lower = least_of_largest(search.lines)
        if sign * value - lower <= FINE * abs(value):
            break
        other = search.at(side * s)
        if isinstance(other, str):
            return other
    gap = max(sign * value - least_of_largest(search.lines), 0.0)
    relative = float(relative_gap(gap, sign * value))
    if not relative <= tol:
        return f"the answer is not certified: its relative gap is {relative:.3g}"
    made.s = s
    made.weight.value = cost / (2.0 * s)
    report = replace(
        report, beside=made.descriptions, gap=gap, relative_gap=relative, rounds=len(search.norms),
        times={**report.times, "screen": perf_counter() - began},
    )
    found = answer.solution
    written = CvxpySolution(
        found.status, value, found.primal_vars, found.dual_vars, dict(found.attr)
    )
    replace(answer, solution=written, extra=with_report(report, answer.extra)).write(problem)
    problem._compilation_time = made.inner.compilation_time
    return report
