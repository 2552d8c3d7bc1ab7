"""Losses at a weight that is searched: their norm in the objective, or a level for them.

::

    minimise  f(x) + c |l(x)|_2                                   (semideviations)
    minimise  f(x)   subject to   sum_i l_i(x) <= level,  or  |l(x)|_2 <= level

Both are solved as ``minimise f(x) + w sum_i l_i(x)``, or with the squares of the losses: a problem
of losses like any other, of which only a weight changes from one solve to the next. The search ends
where the weight is right; slopes and multipliers of both problems are then the same.

**A norm.** For every ``s > 0``, and with the weight ``w = c/(2 s)``,

    c |l(x)|  <=  c/(2 s) |l(x)|^2 + c s/2,     with equality where s = |l(x)|,

so the optimum is the least value of V(s), that of the problem with the squares, and V is convex.
Slopes theta of the squares that a certificate bounds V(s) from below by, bound all of V: their
conjugates are ``s/(2 c) |theta|^2``, and nothing else in the bound depends on s. So every solve
gives a line below V, and the least value of the largest of these lines is below the optimum.

**A level.** The weight is the constraint's multiplier: what a certificate bounds the problem at any
``w >= 0`` from below by, minus ``w level``, is below the optimum (Lagrange). Between a point above
the level and one below it lies one at the level, whose objective is no more than on their chord: it
is the answer where that is close enough to the bound, also where the points jump with the weight.
A norm below a level are squares below that of the level.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from math import exp, log
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.constraints.nonpos import Inequality
from cvxpy.reductions.solution import Solution as CvxpySolution

from cvxscreen._support.rounding import gamma
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.cvxpy_plugin.answer import StoredAnswer
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import (
    EpigraphVariable,
    without_epigraph_variables,
)
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import slack_variables
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, Unreadable, sum_of, summands_of
from cvxscreen.cvxpy_plugin.request import Report, with_report
from cvxscreen.cvxpy_plugin.size import KINKED, LEVEL, NORMS, SQUARES, measured, measured_as
from cvxscreen.solvers.solution import Solution

MOST_PARTS = 100
"""A sum of so many parts, or so many constraints, is a loop, and looked at no further."""

MOST = 20
"""Solves at most; four to seven are usual."""

FINE, ENOUGH = 1e-9, 1e-7
"""Relative gap at which it ends, and what a norm or a level may be off by, relative to it; and a
gap that will do where no more solves are left."""

ABOVE = 0.5 * FINE
"""How far above the norm s is aimed at, so that the line there rises in spite of rounding: it is
then below V by no more than this share of the norm's cost, down to s = 0."""

ASIDE, LOOSE = 0.05, 1e-8
"""How far from s another line is asked for where the lines leave such a relative gap: none rises,
or none falls."""

SLOW, LEAST = 0.5, 1e-6
"""The distance has to fall to such a share in every solve but the first ones; and no norm may be
such a share of s: where nothing is lost at the optimum, s goes to 0."""

STEP, MOST_STEP, LEAP, FARTHEST = log(1.5), log(10.0), log(1e3), log(1e14)
"""Logarithms of what a weight is multiplied by at first, at least and at most, where nothing says
where the right one is; of the farthest that two solves say; and of the farthest from the first one:
from there on a level is met by nothing, or by everything."""

USUAL = 2.5
"""By how much the logarithm of the weight usually differs for each 1 that of the losses is to
differ by (squared hinges, Huber's loss, downside risk, 20,000 x 15: 1.4 to 8)."""

NEAR, CLOSE, STALLED = 1e-5, 1e-3, 10.0
"""Logarithm of the least step from the weight of an earlier answer; and that of weights that are
near each other: how many times as far the next step goes where the solver, so close, has not moved.
"""

BLIND = 3
"""Solves after which a level that none has reached is taken for one that none will."""

ENDLESS, ENDLESS_TRIES = "(unbounded)", 3
"""How the refusal of a problem without an optimum ends, and how many more weights are tried then.
"""

SLACK = 1e-6
"""A level that is missed by more than this share of it has no multiplier."""

SHARE, LOADING = 2.0, 0.3
"""How many times as long as a plain solve is estimated to take, rather too little, all solves may
take together, and what is loaded for the first of a process."""


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


# -- the two forms --------------------------------------------------------------------------------


@dataclass(eq=False)
class WeighedLosses:
    """A problem with a norm or a level of many losses, and the one with the losses at a weight.

    Attributes
    ----------
    term : Term
        The norm, or the losses, with what they are multiplied by.
    losses : cvxpy.Expression
        What the weight multiplies: the squares of a norm, or the losses.
    inner : cvxpy.Problem
        With the weight; variables and the other constraints are the user's own.
    weight : cvxpy.Parameter
    limit : Limit or None
        The constraint; without one the norm is a cost.
    last : float or None
        The multiplier of the last answer; where the norm is a cost, the norm.
    objective : cvxpy objective
        The user's, with functions in the place of `epigraphs`.
    epigraphs : tuple of EpigraphVariable
        Variables of the user's that `inner` does not have.
    """

    term: Term
    losses: Any
    inner: Any
    weight: Any
    limit: Limit | None = None
    last: float | None = None
    objective: Any = None
    epigraphs: tuple[EpigraphVariable, ...] = ()

    @classmethod
    def of(cls, problem: Any) -> WeighedLosses | None:
        """The form of `problem`; None where it has no such losses, or in several places."""
        try:
            direct, epigraphs = without_epigraph_variables(problem)
            made = _norm_in_objective(direct) or _below_a_level(direct) or _of_slacks(direct)
        except Unreadable:
            return None
        if made is not None:  # solves with the weight may take as long as the problem itself
            measured_as(made.inner, problem)
            made.objective, made.epigraphs = direct.objective, epigraphs
        return made

    @property
    def squared(self) -> bool:
        """Whether a norm is solved by its squares."""
        return _is_long_norm(self.term.expr)

    @property
    def descriptions(self) -> tuple[str, ...]:
        """What is solved in place of the norm or the constraint, for records."""
        what = "the norm" if self.limit is None else "a level"
        how = "squares" if self.squared else "sum"
        return (f"{what} of {self.count} losses, as their {how} times {self.weight.value:.6g}",)

    @property
    def count(self) -> int:
        """Number of losses."""
        return max(_losses_in(self.losses), default=0)

    def cost(self) -> float:
        """What the norm or the losses are multiplied by now; NaN where a parameter has no value."""
        values = [scale.value for scale in self.term.scales]
        if any(value is None for value in values):
            return float("nan")
        return float(self.term.factor * np.prod([float(np.squeeze(v)) for v in values]))

    def level(self) -> float:
        """What `losses` have to be at most now; NaN where it is not known, or no norm's."""
        if self.limit is None:
            return np.inf
        fixed = [part.written().value for part in self.limit.fixed]
        if any(value is None for value in fixed):
            return float("nan")
        level = -sum(float(np.squeeze(value)) for value in fixed) / self.cost()
        if self.squared:
            return level**2 if level > 0.0 else float("nan")
        return level

    def multiplier(self, weight: float) -> float:
        """Of the constraint, at a weight of the losses."""
        slope = 2.0 * np.sqrt(self.level()) if self.squared else 1.0
        return float(weight * slope / self.cost())

    def first(self) -> float:
        """A weight to begin with: the last answer's, or one by what is usual."""
        if self.limit is None and self.last is not None:
            return self.cost() / (2.0 * self.last)
        if self.last is not None:
            return self.last
        none, alike = self._values_at(0.0), self._values_at(1.0)
        if self.limit is None:
            known = [value for _, value in (none, alike) if np.isfinite(value) and value > 0.0]
            return self.cost() / (2.0 * float(np.sqrt([*known, self.count][0])))
        rest, losses = (abs(b - a) for a, b in zip(none, alike, strict=True))
        usual = rest / losses if losses > 0.0 else rest
        return usual if np.isfinite(usual) and usual > 0.0 else 1.0

    def _values_at(self, height: float) -> tuple[float, float]:
        """The objective without the losses, and these, where all coordinates are alike."""
        variables = self.inner.variables()
        exprs = (None if self.limit is None else self.limit.rest, self.losses)
        with preserved_values(variables):
            for variable in variables:
                variable.save_value(np.full(variable.shape, height / max(variable.size, 1)))
            values = [None if expr is None else expr.value for expr in exprs]
        rest, losses = (float("nan") if v is None else float(np.squeeze(v)) for v in values)
        return rest, losses


class Limit(NamedTuple):
    """A constraint that holds losses below a level.

    Attributes
    ----------
    constraint : cvxpy constraint
        The user's own.
    fixed : tuple of Term
        What of its two sides is constant.
    rest : cvxpy.Expression
        The objective, to be minimised.
    """

    constraint: Any
    fixed: tuple[Term, ...]
    rest: Any

    def dual_value(self, multiplier: float) -> Any:
        """`multiplier` as CVXPY has it."""
        shape = self.constraint.shape
        return multiplier if shape == () else np.full(shape, multiplier)


def _norm_in_objective(problem: Any) -> WeighedLosses | None:
    """The form of a problem with one norm of many losses in its objective."""
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    parts = list(islice(summands_of(problem.objective.expr, sign), MOST_PARTS))
    norms = [part for part in parts if _is_long_norm(part.expr)]
    if len(norms) != 1 or len(parts) == MOST_PARTS:
        return None
    weight, squares = cp.Parameter(nonneg=True), cp.sum_squares(norms[0].expr.args[0])
    rest = [part for part in parts if part is not norms[0]]
    inner = cp.Problem(cp.Minimize(weight * squares + sum_of(rest)), problem.constraints)
    return WeighedLosses(norms[0], squares, inner, weight)


def _below_a_level(problem: Any) -> WeighedLosses | None:
    """The form of a problem one of whose constraints holds curved losses below a level."""
    if len(problem.constraints) > MOST_PARTS:
        return None
    found = [c for c in problem.constraints if type(c) is Inequality and _has_curved_losses(c)]
    if len(found) != 1:
        return None
    parts = [part for arg, sign in zip(found[0].args, (1.0, -1.0), strict=True)
             for part in islice(summands_of(arg, sign), MOST_PARTS)]
    fixed = tuple(part for part in parts if part.expr.is_constant())
    moving = [part for part in parts if not part.expr.is_constant()]
    if len(parts) >= MOST_PARTS or any(part.expr.parameters() for part in moving):
        return None
    if len(moving) == 1:
        term = moving[0]
    elif any(part.scales or _is_long_norm(part.expr) for part in moving):
        return None
    else:
        term = Term(1.0, (), sum_of(moving))
    norm = _is_long_norm(term.expr)
    losses = cp.sum_squares(term.expr.args[0]) if norm else term.expr
    weight, sense = cp.Parameter(nonneg=True), problem.objective
    rest = -sense.expr if isinstance(sense, cp.Maximize) else sense.expr
    others = [constraint for constraint in problem.constraints if constraint is not found[0]]
    inner = cp.Problem(cp.Minimize(rest + weight * losses), others)
    return WeighedLosses(term, losses, inner, weight, Limit(found[0], fixed, rest))


def _of_slacks(problem: Any) -> WeighedLosses | None:
    """The form of a problem with a norm, or a level, of a slack variable's entries.

    Its least entries in size are ``max(p_1, ..., p_n, 0)`` for lower bounds p_k, which is looked at
    in its place; what is solved has the variable and its bounds as they are.
    """
    if len(problem.constraints) > MOST_PARTS:
        return None
    own = {c.id: c for c in problem.constraints}
    for slack, bounds in slack_variables(problem, LEVEL).items():
        least = cp.maximum(0.0, *bounds)
        anew, back = {id(slack): least}, {id(least): slack}
        others = [
            c.tree_copy(anew) if c.size == 1 and any(v is slack for v in c.variables()) else c
            for c in problem.constraints
        ]
        written = cp.Problem(problem.objective.tree_copy(anew), others)
        made = _norm_in_objective(written) or _below_a_level(written)
        if made is None:
            continue
        left = [own[c.id] for c in made.inner.constraints]
        made.inner = cp.Problem(made.inner.objective.tree_copy(back), left)
        if made.limit is not None:
            made.limit = made.limit._replace(constraint=own[made.limit.constraint.id])
        return made
    return None


def _is_long_norm(expr: Any) -> bool:
    """Whether `expr` is the Euclidean norm of many losses; one of residuals is left a cone."""
    if type(expr).__name__ not in NORMS or expr.size != 1 or float(expr.p) != 2.0:
        return False
    losses = expr.args[0]
    return losses.size >= LEVEL and expr.axis is None and not losses.is_affine()


def _has_curved_losses(constraint: Any) -> bool:
    """Whether a scalar constraint has many losses that are not piecewise linear, and known."""
    if constraint.size != 1 or constraint.expr.is_pwl():
        return False
    atoms = {atom for atom in constraint.expr.atoms() if not issubclass(atom, AffAtom)}
    names = {atom.__name__ for atom in atoms}
    known = names <= KINKED | SQUARES | NORMS and bool(names & KINKED)
    return known and max(_losses_in(constraint.expr), default=0) >= LEVEL


def _losses_in(expr: Any) -> Iterator[int]:
    """How many values the outermost atoms with kinks take."""
    if type(expr).__name__ in KINKED:
        yield max(expr.size, expr.args[0].size)
    else:
        for arg in expr.args:
            yield from _losses_in(arg)


_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, WeighedLosses | None]] = (
    weakref.WeakKeyDictionary()
)
"""The form of each problem met, with its objective and constraints: these may be replaced."""


def weighed_losses(problem: Any) -> WeighedLosses | None:
    """The form of `problem`, read once."""
    parts = [problem.objective, *problem.constraints]
    known = _KNOWN.get(problem)
    if known is None or len(known[0]) != len(parts) or any(
        a is not b for a, b in zip(known[0], parts, strict=True)
    ):
        known = _KNOWN[problem] = parts, WeighedLosses.of(problem)
    return known[1]


# -- the search -----------------------------------------------------------------------------------


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


class Trial(NamedTuple):
    """What a solve at a weight has found.

    Attributes
    ----------
    at : float
        Logarithm of the weight.
    away : float
        Logarithm of what the weight should fall by, about: negative where it is too small.
    losses, rest : float
        The weighed losses, not yet times the weight, and the objective without them.
    answer : StoredAnswer
    """

    at: float
    away: float
    losses: float
    rest: float
    answer: StoredAnswer


@dataclass(eq=False)
class _Search(ABC):
    """The solves so far, and where the right weight may be; `most` CPU seconds may be spent."""

    made: WeighedLosses
    solve: Solve
    most: float
    began: float = field(default_factory=thread_time)
    trials: list[Trial] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def at(self, logarithm: float) -> str:
        """Solve with a weight; why that was in vain, or an empty text."""
        weight = exp(logarithm)
        if thread_time() - self.began > self.most:
            return "the search for the weight of its losses took as long as a plain solve may take"
        self.made.weight.value = weight
        found = self.solve(self.made.inner)
        if isinstance(found, str):
            return found
        losses = float(np.squeeze(self.made.losses.value))
        away = self.away(weight, losses)
        self.reports.append(found[1])
        rest = float(self.made.inner.value) - weight * losses
        self.trials.append(Trial(logarithm, away, losses, rest, StoredAnswer.of(self.made.inner)))
        return self.bound(found[0], weight)

    @abstractmethod
    def away(self, weight: float, losses: float) -> float:
        """What `Trial` says of it."""

    @abstractmethod
    def bound(self, found: Solution, weight: float) -> str:
        """Keep what a solution says of the optimum; why it says nothing, or an empty text."""

    @abstractmethod
    def blind(self) -> float:
        """The next step where the last solves do not tell."""

    @abstractmethod
    def run(self, value: Callable[[], float]) -> Ending | str:
        """Search from the first weight on; `value` is that of the user's objective."""

    def between(self, low: Trial, high: Trial) -> float:
        """A logarithm between those of a weight that is too small, and of one too large."""
        return 0.5 * (low.at + high.at)

    def ends(self) -> tuple[Trial | None, Trial | None]:
        """The largest weight that is too small, and the least that is too large."""
        low = max((p for p in self.trials if p.away < 0.0), key=lambda p: p.at, default=None)
        high = min((p for p in self.trials if p.away > 0.0), key=lambda p: p.at, default=None)
        return low, high

    def slow(self) -> bool:
        """Whether the last solves have not come closer; see `SLOW`."""
        away = [abs(point.away) for point in self.trials]
        return len(away) > 2 and away[-1] > SLOW * away[-3]

    def next(self) -> float:
        """Where the last two solves say that the weight is right, or a step where they do not."""
        low, high = self.ends()
        last = self.trials[-1]
        if len(self.trials) > 1 and not (low and high and self.slow()):
            before = self.trials[-2]
            rise, run = last.away - before.away, last.at - before.at
            if rise * run > 0.0:
                guess = last.at - last.away * run / rise
                above = low is None or guess > low.at
                below = high is None or guess < high.at
                if above and below and abs(guess - last.at) <= LEAP:
                    return guess
        if low and high:
            return self.between(low, high)
        return last.at + self.blind()


@dataclass(eq=False)
class _ForNorm(_Search):
    """``c |l|``: the weight ``c/(2 s)`` is right where ``|l(x)| = s``."""

    lines: list[Line] = field(default_factory=list)

    def away(self, weight: float, losses: float) -> float:
        """``log(|l| / s)``."""
        s = self.made.cost() / (2.0 * weight)
        return log(max(np.sqrt(losses), LEAST**2 * s) / s)

    def bound(self, found: Solution, weight: float) -> str:
        """A line below V."""
        cost = self.made.cost()
        line = line_of(found, cost, cost / (2.0 * weight), self.made.count)
        if line is None:
            return "the losses in its norm are not all that is squared"
        self.lines.append(line)
        return ""

    def blind(self) -> float:
        """To where s is the last norm."""
        return -self.trials[-1].away

    def vain(self) -> bool:
        """Whether the solves so far lead to no weight."""
        return self.slow() or self.trials[-1].away <= log(LEAST)

    def run(self, value: Callable[[], float]) -> Ending | str:
        """Search from the first weight on."""
        at = log(self.made.first())
        for _ in range(MOST):
            why = self.at(at)
            if why:
                return why
            if abs(self.trials[-1].away) <= FINE:
                break
            if self.vain():
                return "no weight of squares was found for its norm"
            at = self.next() - ABOVE
        else:
            return "no weight of squares was found for its norm"
        last, found = self.trials[-1], value()
        for side in (1.0 + ASIDE, 1.0 - ASIDE):
            lower = least_of_largest(self.lines)
            if found - lower <= LOOSE * abs(found):
                break
            why = self.at(last.at + log(side))
            if why:
                return why
        return Ending(found, least_of_largest(self.lines), exp(last.at), last.answer)


@dataclass(eq=False)
class _ForLevel(_Search):
    """Losses below a level: the weight is right where they are at it."""

    lower: float = -np.inf
    proof: Trial | None = None

    def away(self, weight: float, losses: float) -> float:
        """``log(level / losses)``, or the like where one of them is not positive."""
        level = self.made.level()
        if losses > 0.0 < level:
            return log(level / losses)
        return (level - losses) / max(abs(level) + abs(losses), 1e-300)

    def bound(self, found: Solution, weight: float) -> str:
        """What the Lagrangian bounds the optimum from below by, with the rounding of that."""
        lower, charge = found.certificate.dual, weight * self.made.level()
        lower -= charge + gamma(4) * (abs(lower) + abs(charge))
        if lower > self.lower:
            self.lower, self.proof = lower, self.trials[-1]
        return ""

    def next(self) -> float:
        """As for any other, and farther where the solver has not moved at all."""
        if len(self.trials) > 1:
            before, last = self.trials[-2:]
            if last.losses == before.losses and abs(last.away) < CLOSE:
                return last.at + STALLED * (last.at - before.at)
        return super().next()

    def blind(self) -> float:
        """By what is missing, and four times as far each time.

        The third time down to where a level that is not reached costs nothing.
        """
        last = self.trials[-1]
        if len(self.trials) == BLIND and last.away > 0.0 and last.rest:
            slack = FINE * abs(last.rest) / (2.0 * (self.made.level() - last.losses))
            return min(log(slack) - last.at, -MOST_STEP)
        least = STEP if self.made.last is None else NEAR
        step = float(np.clip(USUAL * abs(self.trials[0].away), least, MOST_STEP))
        step *= 4.0 ** (len(self.trials) - 1)
        return -step if last.away > 0.0 else step

    def between(self, low: Trial, high: Trial) -> float:
        """Where the lines that two solves lay above the dual function meet.

        ``rest + w (losses - level)``; their slopes have different signs.
        """
        if low.losses > high.losses:
            weight = (high.rest - low.rest) / (low.losses - high.losses)
            if exp(low.at) < weight < exp(high.at):
                return log(weight)
        return super().between(low, high)

    def run(self, value: Callable[[], float]) -> Ending | str:
        """Search from the first weight on."""
        at = first = log(self.made.first())
        floor, endless = -np.inf, 0
        for _ in range(MOST):
            why = self.at(at)
            low, high = self.ends()
            if why:
                if not why.endswith(ENDLESS) or (high is None and endless == ENDLESS_TRIES):
                    return why
                # Losses that grow like lines have to outweigh the rest.
                floor, endless = at, endless + 1
                at = at + MOST_STEP * 2.0 ** (endless - 1) if high is None else 0.5 * (at + high.at)
                continue
            last = self.trials[-1]
            if abs(last.away) <= FINE:
                return Ending(last.rest, self.lower, exp(last.at), last.answer)
            found = self.ending(low, high)
            if found is not None and found.value - self.lower <= FINE * abs(found.value):
                return found
            at = self.next()
            if high is not None and at <= floor:
                at = 0.5 * (floor + high.at)
            if abs(at - first) > FARTHEST:
                break
        found = self.ending(*self.ends())
        if found is not None and found.value - self.lower <= ENOUGH * abs(found.value):
            return found
        return "no multiplier was found for the level of its losses"

    def ending(self, low: Trial | None, high: Trial | None) -> Ending | None:
        """The best point at the level, or below it, so far."""
        if low is not None and high is not None:
            return self.chord(low, high)
        if high is None:
            return None
        multiplier = exp(high.at) if high.away <= SLACK else 0.0
        return Ending(high.rest, self.lower, multiplier, high.answer)

    def chord(self, low: Trial, high: Trial) -> Ending:
        """Between the ends, below the level since the losses are convex.

        Multipliers are between theirs, too, if these are near each other; else the points jump at
        the weight that has given the bound.
        """
        share = (low.losses - self.made.level()) / (low.losses - high.losses)
        first, second = low.answer.solution, high.answer.solution
        if self.proof is None or high.at - low.at < CLOSE:
            duals = _between(first.dual_vars, second.dual_vars, share)
            weight = (1.0 - share) * exp(low.at) + share * exp(high.at)
        else:
            duals, weight = self.proof.answer.solution.dual_vars, exp(self.proof.at)
        primal = _between(first.primal_vars, second.primal_vars, share)
        mixed = CvxpySolution(first.status, None, primal, duals, dict(second.attr))
        value = (1.0 - share) * low.rest + share * high.rest
        return Ending(value, self.lower, weight, replace(high.answer, solution=mixed))


def _between(first: dict[Any, Any], second: dict[Any, Any], share: float) -> dict[Any, Any]:
    """Values between those of two dictionaries, with a `share` of the second."""
    return {
        key: other if first.get(key) is None or other is None
        else (1.0 - share) * first[key] + share * other
        for key, other in second.items()
    }


class Ending(NamedTuple):
    """Where a search has ended.

    Attributes
    ----------
    value, lower : float
        Of the objective, to be minimised, and a lower bound of the optimum.
    weight : float
    answer : StoredAnswer
        Of the problem with weights.
    """

    value: float
    lower: float
    weight: float
    answer: StoredAnswer


def screened_by_weight(
    made: WeighedLosses, problem: Any, solve: Solve, tol: float, limited: bool = True
) -> Report | str:
    """Solve `problem` by the one with a weight, and write back; or why that cannot be.

    Parameters
    ----------
    solve : callable
        Solves a ``cvxpy.Problem`` by screening and writes it back; a solution and its report, or
        why there is none.
    tol : float
        Relative gap.
    limited : bool
        Whether a plain solve follows where all of them take longer than that.
    """
    began, limit = perf_counter(), made.limit
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    if not (np.isfinite(made.cost()) and made.cost() > 0.0):
        return "the weight of its losses is not positive"
    if np.isnan(made.level()):
        return "the level of its losses is no number, or not positive"

    def value() -> float:
        return sign * float(np.squeeze(made.objective.expr.value))

    most = SHARE * (measured(problem).at_least() + LOADING) if limited else np.inf
    search: _Search = (_ForNorm if limit is None else _ForLevel)(made, solve, most)
    ending = search.run(value)
    if isinstance(ending, str):
        return ending
    found, report = ending.answer.solution, search.reports[-1]
    duals = dict(found.dual_vars)
    for one in made.epigraphs:
        one.write(found.primal_vars, duals)
    for variable in problem.variables():
        variable.save_value(found.primal_vars[variable.id])
    reached = value()
    gap = max(reached - ending.lower, 0.0)
    relative = float(relative_gap(gap, reached))
    if not relative <= tol:
        return f"the answer is not certified: its relative gap is {relative:.3g}"
    if limit is not None:
        duals[limit.constraint.id] = limit.dual_value(made.multiplier(ending.weight))
    made.weight.value = ending.weight
    made.last = ending.weight or None if limit else made.cost() / (2.0 * ending.weight)
    report = replace(
        report, beside=made.descriptions, gap=gap, relative_gap=relative,
        rounds=len(search.trials),
        times={**report.times, "screen": perf_counter() - began},
    )
    written = CvxpySolution(
        found.status, sign * reached, found.primal_vars, duals, dict(found.attr)
    )
    extra = with_report(report, ending.answer.extra)
    replace(ending.answer, solution=written, extra=extra).write(problem)
    problem._compilation_time = made.inner.compilation_time
    return report
