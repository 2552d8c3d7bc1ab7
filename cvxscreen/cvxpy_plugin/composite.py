"""Losses that can be screened beside a convex part of the objective that is no sum of losses.

::

    minimise  F(x) + g(x),     F a `Problem`,  g = maxima of affine functions + unscreened terms

The objective is split into its summands; those that the recogniser refuses when they stand alone
are put aside (`split`). F is screened by bounds that hold for any convex g (`Minorant`), pieces of
maxima by the same ball; g itself goes into every reduced problem as CVXPY wrote it
(`ScreenedComposite`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from cvxscreen._support.immutable import Immutable
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions import Ball
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.answer import (
    USELESS,
    not_solved,
    restore,
    statistics,
    status_of,
    write_back,
)
from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem, recognise_budgets
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.recognise.changed_costs import at_costs
from cvxscreen.cvxpy_plugin.recognise.check import check, check_points, last_check_point
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima, Minorant, Relaxed, relaxation
from cvxscreen.cvxpy_plugin.recognise.python_loops import vectorised
from cvxscreen.cvxpy_plugin.recognise.recognise import (
    RefusedByRules,
    recognise,
    recognise_in_general,
    recognise_standard,
)
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.rules import has_many_second_order_cones
from cvxscreen.cvxpy_plugin.recognise.standard import Standard, canonicalise, standardise
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.cvxpy_plugin.solution_cache import last_answer, store_answer
from cvxscreen.errors import CvxscreenError, NotScreenable
from cvxscreen.screening.reduction import Prediction, Screening, Selection, judge
from cvxscreen.solvers.interface import Start, call_checked
from cvxscreen.solvers.loop import run
from cvxscreen.solvers.prediction import SMALL, PredictionRadius, accept_reduction, sample
from cvxscreen.solvers.registry import builtin_takes
from cvxscreen.solvers.screened import ScreenedProblem, Times
from cvxscreen.solvers.solution import moved_slopes
from cvxscreen.solvers.solve import solve_problem

# -- a convex term that stays as it is ------------------------------------------------------------
#
# It goes into every reduced problem word for word. What the proofs need of it is an affine
# minorant, from subgradients that CVXPY computes: one where the term is smooth, a convex
# combination of several where it has a kink.


Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

ROUNDING = 1e-11
"""Relative rounding error that values and gradients of CVXPY are charged with."""

STEPS = (1e-8, 1e-7, 1e-6, 1e-5)
"""How far from a kink its other subgradients are looked for, relative to the point."""

TRIES = 12
"""Subgradients asked for at one distance."""


class UnscreenedTerm(Immutable):
    """A convex expression in variables that are core coordinates.

    Attributes
    ----------
    expr : cvxpy.Expression
        To be minimised.
    places : tuple of (cvxpy.Variable, array of int)
        Its variables and the coordinates of their entries, column-major.
    size : int
        Number d of coordinates.
    """

    expr: Any
    places: tuple[tuple[Any, Index], ...]
    size: int

    @classmethod
    def of(cls, expr: Any, recognition: Recognition) -> UnscreenedTerm:
        """`expr` in the coordinates of `recognition`.

        Raises
        ------
        NotScreenable
            If it has variables that are none of them.
        """
        standard = recognition.standard
        place = np.full(standard.size, -1, dtype=np.intp)
        place[recognition.core] = np.arange(len(recognition.core))
        known = {v.id: k for k, v in enumerate(standard.variables)}
        places = []
        for variable in expr.variables():
            index = np.zeros(0, dtype=np.intp)
            if variable.id in known:
                k = known[variable.id]
                index = place[standard.starts[k] : standard.starts[k + 1]]
            if len(index) != variable.size or (index < 0).any():
                raise NotScreenable(
                    f"variable {variable.name()} of a term that cannot be screened is not among "
                    "those that the objective squares and the losses use"
                )
            places.append((variable, index))
        return cls(expr, tuple(places), recognition.problem.d)

    def touched(self) -> NDArray[np.bool_]:
        """Coordinates that occur, shape (d,)."""
        out = np.zeros(self.size, dtype=bool)
        for _, index in self.places:
            out[index] = True
        return out

    def written(self, z: Any) -> Any:
        """The expression in the entries of ``z`` instead of its variables."""
        ids = {
            id(variable): cp.reshape(z[index], variable.shape, order="F")
            for variable, index in self.places
        }
        return self.expr.tree_copy(ids)

    def at(self, x: Array) -> tuple[float, Array]:
        """Value and a subgradient at `x`.

        Raises
        ------
        NotScreenable
            Outside the domain, or where CVXPY knows no subgradient.
        """
        with preserved_values([variable for variable, _ in self.places]):
            for variable, index in self.places:
                variable.save_value(x[index].reshape(variable.shape, order="F"))
            value, found = self.expr.value, self.expr.grad
        slope = np.zeros(self.size)
        for variable, index in self.places:
            part = found.get(variable)
            if part is None:
                raise NotScreenable("CVXPY has no subgradient of a term that cannot be screened")
            dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
            slope[index] += dense.ravel()
        if value is None or not (np.isfinite(value) and np.isfinite(slope).all()):
            raise NotScreenable("a term that cannot be screened is not finite at a solution")
        return float(value), slope

    def value(self, x: Array) -> float:
        """The value at `x`; infinite outside the domain."""
        try:
            return self.at(x)[0]
        except NotScreenable:
            return float("inf")

    def minorant(self, x: Array, target: Array, aim: float, weight: Array) -> Minorant:
        """An affine minorant near `x` whose slope is close to `target`.

        Parameters
        ----------
        x, target : array, shape (d,)
        aim : float
            What ``1/2 |slope - target|^2`` in the metric of `weight`, and the slack, may cost.
        weight : array, shape (d,)
            Positive.
        """
        value, slope = self.at(x)
        slopes, slacks = [slope], [0.0]
        best, slack = slope, 0.0
        root = np.sqrt(weight)
        touched = self.touched()
        size = 1.0 + float(np.abs(x[touched]).max(initial=0.0))

        def cost(found: Array, lost: float) -> float:
            return 0.5 * float(np.sum((root * (found - target))[touched] ** 2)) + lost

        for step in STEPS:
            for _ in range(TRIES):
                if cost(best, slack) <= aim:
                    break
                direction = np.where(touched, target - best, 0.0)
                length = float(np.linalg.norm(direction))
                if length == 0.0:
                    break
                there = x + (step * size / length) * direction
                level, other = self.at(there)
                lost = value - level - float(other @ (x - there))
                self._check(value, level, slope, other, x, there)
                slopes.append(other)
                slacks.append(max(lost, 0.0))
                mixed = _nearest(np.array(slopes) * root, target * root)
                found, spent = mixed @ np.array(slopes), float(mixed @ np.array(slacks))
                if cost(found, spent) >= cost(best, slack) * (1.0 - 1e-3):
                    break
                best, slack = found, spent
        rounding_bound = ROUNDING * (abs(value) + float(np.abs(best) @ np.abs(x)) + size)
        return Minorant(value, best, slack + rounding_bound, ROUNDING * np.abs(best))

    @staticmethod
    def _check(
        value: float, level: float, slope: Array, other: Array, x: Array, there: Array
    ) -> None:
        """Refuse gradients that are no subgradients: a convex function lies above both."""
        step = there - x
        room = 1e-9 * (1.0 + abs(value) + float(np.abs(slope) @ np.abs(x)))
        above = level - value - float(slope @ step)
        below = value - level + float(other @ step)
        if min(above, below) < -room:
            raise NotScreenable("CVXPY's gradient of a term that cannot be screened is wrong")


def _nearest(check_points: Array, target: Array) -> Array:
    """Weights of the convex combination of the rows of `points` nearest to `target`."""
    scale = max(1.0, float(np.abs(check_points).max()), float(np.abs(target).max()))
    heavy = 1e4 * scale
    matrix = np.vstack([check_points.T, np.full(len(check_points), heavy)])
    try:
        found = nnls(matrix, np.append(target, heavy))[0]
    except RuntimeError:
        found = np.zeros(len(check_points))
    total = float(found.sum())
    if not total > 0:
        found, total = np.eye(len(check_points))[0], 1.0
    return np.asarray(found / total)


# -- the problem ----------------------------------------------------------------------------------


GROUPS = 40
"""An objective with more kinds of summands is not taken apart."""


class CompositeProblem(Immutable):
    """A recognised ``F + g``.

    Attributes
    ----------
    recognition : Recognition
        Of F, tied to the user's problem; its maxima are part of g.
    unscreened : UnscreenedTerm or None
    """

    recognition: Recognition
    unscreened: UnscreenedTerm | None

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
    def descriptions(self) -> tuple[str, ...]:
        """What g is made of, for records."""
        out = []
        if self.maxima is not None:
            out.append(f"{self.maxima.n} maxima of {len(self.maxima.heights)} affine pieces")
        if self.unscreened is not None:
            text = " ".join(str(self.unscreened.expr).split())
            out.append(f"kept as it is: {text if len(text) < 80 else text[:77] + '...'}")
        return tuple(out)

    @property
    def provable(self) -> bool:
        """Whether g leaves the unpenalised coordinates alone, so that proofs hold there too."""
        free = self.recognition.problem.quadratic.free
        return self.unscreened is None or not (self.unscreened.touched() & free).any()

    @property
    def standard(self) -> Standard:
        """F's numbers, tied to the user's problem."""
        return self.recognition.standard

    def tied(self, original: Any) -> CompositeProblem:
        """The same of the problem `original` (or a weak reference of it)."""
        return replace(self, recognition=self.recognition.tied(original))

    def at_costs(self, standard: Standard) -> CompositeProblem | None:
        """The same at other costs, checked; None where the rules must run."""
        found = at_costs(self.recognition, standard)
        if found is None:
            return None
        made = replace(self, recognition=found)
        with suppress(NotScreenable):
            _check(made, standard.canonical.original, [last_check_point(found)])
            return made
        return None

    def anew(self, standard: Standard) -> CompositeProblem:
        """The same by all rules, from the numbers of `standard`.

        Raises
        ------
        NotScreenable
            With the reason.
        """
        found = recognise_standard(standard, composite=True)
        unscreened = self.unscreened
        if unscreened is not None:
            unscreened = UnscreenedTerm.of(unscreened.expr, found)
        made = composite_of(found, unscreened)
        _check(made, standard.canonical.original)
        return made

    def value(self, x: Array) -> float:
        """``F(x) + g(x)``."""
        total = self.recognition.problem.primal(x)
        if self.maxima is not None:
            total += self.maxima.value(x)
        return total if self.unscreened is None else total + self.unscreened.value(x)


@np.errstate(invalid="ignore", over="ignore")  # data with NaN or infinity are refused
def recognise_composite(
    problem: Any, refusal: NotScreenable | None = None
) -> CompositeProblem:
    """Read a CVXPY problem that `recognise` refuses as losses beside another convex part.

    Parameters
    ----------
    problem : cvxpy.Problem
    refusal : NotScreenable, optional
        What `recognise` raised; where it holds the problem's numbers, they are not read again.

    Raises
    ------
    NotScreenable
        With the reason.
    """
    unscreened = None
    known = refusal.standard if isinstance(refusal, RefusedByRules) else None
    canonical = canonicalise(problem) if known is None else known.canonical
    try:
        standard = standardise(canonical) if known is None else known
        found = recognise_standard(standard, composite=True)
        check(found)
    except NotScreenable:
        found, expr = split(vectorised(problem))
        check(found)
        unscreened = UnscreenedTerm.of(expr, found)
        found = found.tied(problem)
    made = composite_of(found, unscreened)
    _check(made, problem)
    return made


def recognise_refused(
    problem: Any, refusal: NotScreenable
) -> CompositeProblem | BudgetedProblem | Recognition:
    """A problem that `recognise` refuses: with budgets, beside a convex part, or in general.

    Parameters
    ----------
    problem : cvxpy.Problem
    refusal : NotScreenable
        What `recognise` raised.

    Raises
    ------
    NotScreenable
        `refusal`, where it is neither.
    """
    if isinstance(refusal, RefusedByRules) and refusal.standard.budgets:
        with suppress(Exception):
            return recognise_budgets(refusal.standard)
        try:
            return recognise(problem, budgets=False)
        except NotScreenable as usual:
            refusal = usual
    if isinstance(refusal, RefusedByRules):
        if has_many_second_order_cones(refusal.standard):
            with suppress(Exception):
                return recognise_in_general(refusal)
        with suppress(Exception):  # whatever it is, the first reason is the one to give
            return recognise_budgets(refusal.standard)
    with suppress(Exception):
        return recognise_composite(problem, refusal)
    if isinstance(refusal, RefusedByRules):
        with suppress(Exception):
            return recognise_in_general(refusal)
    raise refusal


def composite_of(found: Recognition, unscreened: UnscreenedTerm | None) -> CompositeProblem:
    """Losses beside the maxima that were found with them, and beside `unscreened`.

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
    if maxima is None and unscreened is None:
        raise NotScreenable("nothing stands beside the losses")
    if not found.problem.n and maxima is None:
        raise NotScreenable("no loss term was found beside the rest")
    return CompositeProblem(found, unscreened)


def _check(
    made: CompositeProblem, problem: Any, points: Iterable[Array] | None = None
) -> None:
    """The recognised objective is the user's, at a few points."""
    recognition = made.recognition
    sign = -1.0 if type(problem.objective).__name__ == "Maximize" else 1.0
    variables = problem.variables()
    with preserved_values(variables):
        for x in check_points(recognition) if points is None else points:
            z = recognition.columns(x)
            values = recognition.standard.canonical.user_values(recognition.standard.split(z))
            if any(v.id not in values for v in variables):
                raise NotScreenable("a term that cannot be screened has variables of its own")
            for variable in variables:
                variable.save_value(values[variable.id])
            truth, model = problem.objective.value, made.value(x)
            if truth is None or not (np.isfinite(model) and np.isfinite(truth)):
                continue  # outside the domain of an unscreened term
            if not abs(sign * float(truth) - model) <= 1e-9 * (1.0 + abs(model)):
                raise NotScreenable("the recognised objective does not agree with the problem's")


def evaluate(
    made: CompositeProblem, x: Array, theta: Array, mu: Array, shares: Array | None, tol: float
) -> tuple[Relaxed, Array]:
    """A point of the full problem, judged through affine minorants of g.

    Parameters
    ----------
    made : CompositeProblem
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
    gradient = problem.design.adjoint(theta) + problem.linear
    if problem.side is not None:
        gradient = gradient - problem.side.adjoint(problem.side.project_dual(mu))
    target = -(gradient + problem.quadratic.apply(x))
    if made.maxima is not None:
        shares = made.maxima.shares(made.maxima.values(x), shares)
        minorants.append(made.maxima.minorant(x, shares))
        target = target - minorants[0].slope
    if made.unscreened is not None:
        aim = 0.1 * tol * max(abs(made.value(x)), 1e-12)
        weight = np.where(problem.quadratic.free, 1.0, 1.0 / problem.quadratic.floor)
        minorants.append(made.unscreened.minorant(x, target, aim, weight))
    relaxed = relaxation(problem, x, theta, mu, minorants)
    return relaxed, np.zeros(0) if shares is None else shares


def split(problem: Any) -> tuple[Recognition, Any]:
    """`problem` without the summands that cannot be screened, and their sum (to be minimised).

    Raises
    ------
    NotScreenable
        If there are none, the objective cannot be taken apart, or no losses are left.
    """
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    parts = list(summands(problem.objective.expr, sign))
    groups: dict[frozenset[str], list[Any]] = {}
    for part in parts:
        if not (part.is_quadratic() or part.is_affine()):
            groups.setdefault(frozenset(a.__name__ for a in part.atoms()), []).append(part)
    if len(groups) > GROUPS or len(parts) < 2:
        raise NotScreenable("the objective is no sum of a few kinds of terms")
    alone = len(groups) == 1  # whether losses are left without it costs less to see
    foreign = [
        part for group in groups.values() if alone or not _screenable(group) for part in group
    ]
    if not foreign:
        raise NotScreenable("every term of the objective can be screened alone")
    aside = {id(part) for part in foreign}
    rest = [part for part in parts if id(part) not in aside]
    if not rest:
        raise NotScreenable("no term of the objective can be screened")
    total, expr = sum(rest[1:], rest[0]), sum(foreign[1:], foreign[0])
    left = cp.Problem(cp.Minimize(total), problem.constraints)
    found = recognise_standard(standardise(canonicalise(left)), composite=True)
    if alone and _screenable(foreign):
        raise NotScreenable("every term of the objective can be screened alone")
    return found, expr


def _screenable(group: list[Any]) -> bool:
    """Whether some terms are recognised beside a plain hinge loss and squares of everything."""
    total = sum(group[1:], group[0])
    rng = np.random.default_rng(len(group))
    margin: Any = 0.0
    ridge: Any = 0.0
    for variable in total.variables():
        ridge = ridge + cp.sum_squares(variable)
        flat = cp.vec(variable, order="F")
        margin = margin + rng.standard_normal((2, variable.size)) @ flat
    try:
        recognise(cp.Problem(cp.Minimize(total + ridge + cp.sum(cp.pos(1 - margin)))))
    except NotScreenable:
        return False
    return True


def summands(expr: Any, factor: float = 1.0) -> Iterator[Any]:
    """The terms of a sum, signs and constant factors multiplied through."""
    kind = type(expr).__name__
    if kind == "AddExpression":
        for arg in expr.args:
            yield from summands(arg, factor)
    elif kind == "NegExpression" and expr.args[0].shape == ():
        yield from summands(expr.args[0], -factor)
    elif kind in ("multiply", "MulExpression", "DivExpression") and expr.shape == ():
        yield from _multiple(expr, factor)
    else:
        yield expr if factor == 1.0 else factor * expr


def _multiple(expr: Any, factor: float) -> Iterator[Any]:
    """A constant times a sum, as the summands times the constant; anything else as it is.

    The constant stays an expression: it may be a parameter.
    """
    first, second = expr.args
    divided = type(expr).__name__ == "DivExpression"
    outer, inner = (second, first) if divided or second.is_constant() else (first, second)
    whole = expr if factor == 1.0 else factor * expr
    if not (outer.is_constant() and outer.shape == () and inner.shape == ()):
        yield whole
        return
    parts = list(summands(inner, factor))
    if len(parts) == 1:
        yield whole
    else:
        yield from (part / outer if divided else outer * part for part in parts)


# -- what is left ---------------------------------------------------------------------------------


class CompositeReduction(Immutable):
    """The smaller problem; see the module's docstring.

    Attributes
    ----------
    made : CompositeProblem
    selection : Selection
        Of the terms of F, folded.
    pieces : array of bool, shape (p,)
        Pieces that may be active.
    reduced : Problem
        F without what is decided, with the maxima of one piece as a linear term.
    rest : Maxima or None
        The others.
    index : array of int
        Positions of their pieces.
    """

    made: CompositeProblem
    selection: Selection
    pieces: Mask
    reduced: Problem
    rest: Maxima | None
    index: Index

    @classmethod
    def of(cls, made: CompositeProblem, selection: Selection, pieces: Mask) -> CompositeReduction:
        """Leave out what is decided."""
        problem, maxima = made.recognition.problem, made.maxima
        selection = selection.folded(problem, written=True)
        reduced, rest, index = selection.reduce(problem), maxima, np.arange(len(pieces))
        if maxima is not None:
            slope, constant, rest, index = maxima.split(pieces)
            reduced = replace(
                reduced, linear=reduced.linear + slope, constant=reduced.constant + constant
            )
        return cls(made, selection, pieces, reduced, rest, index)

    @property
    def kept(self) -> int:
        """Terms and maxima that are left."""
        return len(self.selection.kept) + (0 if self.rest is None else self.rest.n)

    def lift(self, x: Array, theta: Array, found: Array | None) -> tuple[Array, Array, Any]:
        """A solution of what is left on all of the terms and pieces.

        Parameters
        ----------
        x, theta : arrays
        found : array or None
            Slopes of the pieces that are left.

        Returns
        -------
        x, theta : arrays
        shares : array, shape (p,), or None where there are no maxima
        """
        problem, maxima = self.made.recognition.problem, self.made.maxima
        x, theta = self.selection.lift(problem, self.reduced, x, theta, beside=True)
        if maxima is None:
            return x, theta, None
        shares = np.zeros(len(self.pieces))
        if self.rest is not None and found is not None:
            shares[self.index] = found
        alone = self.pieces.copy()
        alone[self.index] = False
        shares[alone] = maxima.cost[maxima.owner][alone]
        return x, theta, shares


@dataclass(eq=False)
class WriteComposite:
    """The part of g that goes into a program of CVXPY, and where its slopes are found there.

    Attributes
    ----------
    maxima : Maxima or None
    unscreened : UnscreenedTerm or None
    """

    maxima: Maxima | None
    unscreened: Any
    _row: Any = field(default=None, init=False)

    def __call__(self, z: Any) -> tuple[Any, list[Any]]:
        """Cost and constraints in terms of the vector variable `z`."""
        cost: Any = 0.0
        constraints: list[Any] = []
        if self.maxima is not None:
            cost, self._row = self.maxima.written(z)
            constraints = [self._row]
        if self.unscreened is not None:
            cost = cost + self.unscreened.written(z)
        return cost, constraints

    def shares(self) -> Array | None:
        """Slopes of the pieces after a solve; None where the solver gave none."""
        if self._row is None or self._row.dual_value is None:
            return None
        return np.asarray(self._row.dual_value, dtype=np.float64).ravel()


# -- the problem that the loop screens ------------------------------------------------------------


MAX_ROUNDS = 12
PROXIMAL_STEPS, PROXIMAL_TOLERANCE = 25, 1e-7
"""Steps at most towards a first point, and the relative progress at which they end: with norms of
half the size of the loss's gradients five to ten are usual."""
FIRST_STEP = 1e-2
"""Relative gap of the first step, which does not know g; later ones are as exact as they gain."""
SPREAD = 100.0
"""How far weights of coordinates may lie from the middle one, as a factor."""
SHARE = 0.05
"""Share of the terms, those nearest to a kink, that a first prediction keeps."""
WORTH = 0.6
"""A prediction that keeps a larger share of the terms costs more than it saves."""


class Outcome(Immutable):
    """What the rounds came to.

    Attributes
    ----------
    status : str
        ``"optimal"``, ``"inaccurate"`` or the solver's own word.
    relaxed : Relaxed or None
        The answer.
    shares : array, shape (p,)
        Slopes of the pieces of maxima.
    certificate : Certificate or None
    kept : int
        Terms in the last reduced problem.
    screening : Screening
    rounds : int
    predicted : int
    solve_seconds, seconds : float
    """

    status: str
    relaxed: Relaxed | None
    shares: Array
    certificate: Certificate | None
    kept: int
    screening: Screening
    rounds: int
    predicted: int
    solve_seconds: float
    seconds: float


class PieceSlopes(NamedTuple):
    """A primal-dual pair, with the slopes of the pieces of maxima (None: not known)."""

    x: Array
    theta: Array
    multipliers: Array
    shares: Array | None


class ScreenedComposite(
    ScreenedProblem[
        CompositeReduction, CompositeReduction, PieceSlopes, PieceSlopes, tuple[Relaxed, Array]
    ]
):
    """``F + g`` with what is known of it: F's terms and the pieces of g's maxima are screened.

    In ``safe`` mode the rounds that predict only give a point; one more round solves what that
    point proves, and its answer is handed out.

    Parameters
    ----------
    made : CompositeProblem
    cvxpy_solver : CvxpySolver
        Solver of the reduced problems, with g as CVXPY wrote it.
    mode : {"certified", "safe"}
    tol : float
        Relative gap on the full problem.
    """

    def __init__(
        self, made: CompositeProblem, cvxpy_solver: CvxpySolver, mode: str, tol: float
    ) -> None:
        self.made, self.cvxpy_solver, self.mode, self.tol = made, cvxpy_solver, mode, tol
        self.limits = cvxpy_solver.limits
        self.problem: Problem = made.recognition.problem
        self.maxima = made.maxima
        self.screening = Screening.empty(self.problem)
        pieces = 0 if self.maxima is None else len(self.maxima.heights)
        self.possible: Mask = np.ones(pieces, dtype=bool)
        self.shares = np.zeros(pieces)
        self.best: Relaxed | None = None
        self.proof: Certificate | None = None
        self.radius: PredictionRadius | None = None
        self.share = 1.0
        self.open_terms: Mask = np.zeros(self.problem.n, dtype=bool)
        self.open_pieces: Mask = np.zeros(pieces, dtype=bool)
        self.rounds = []
        self.kept = self.predicted = 0
        self.confirming = self.hopeless = False
        self.solving = 0.0

    def solved(self, start: PieceSlopes | None = None) -> Outcome:
        """All rounds, from a first point to the record of the call."""
        began = perf_counter()
        self.begin(start)
        run(self)
        if self.best is not None and (self.screening.codes == Piece.UNDECIDED).all():
            self.prove()
        ok = self.proof is not None and self.proof.ok
        status = self.result.status if self.best is None else "optimal" if ok else "inaccurate"
        return Outcome(
            status, self.best, self.shares, self.proof, self.kept, self.screening,
            len(self.rounds), self.predicted, self.solving, perf_counter() - began,
        )

    def begin(self, start: PieceSlopes | None = None) -> None:
        """A first point: `start`, by the built-in engine, or from a sample where terms are many."""
        problem, maxima = self.problem, self.maxima
        if start is not None:
            self.best, self.shares = self.judged(*start)
            return
        with suppress(NotScreenable):  # a point outside the domain of g
            near = self.by_proximal_gradients()
            if near is not None:
                self.best, self.shares = self.judged(*near)
                return
        if self.made.terms <= 5 * SMALL:
            return
        some, fewer = sample(problem) if problem.n > 5 * SMALL else problem, maxima
        if maxima is not None and maxima.n > 5 * SMALL:
            size = min(max(SMALL, 10 * problem.d, maxima.n // 10), maxima.n)
            drawn = np.random.default_rng(0).choice(maxima.n, size=size, replace=False)
            fewer = maxima.sample(np.sort(drawn), maxima.n / size)
        found = self.called(some, fewer)
        if found is not None:
            theta = problem.losses.slope(problem.design.forward(found.x))
            self.best, self.shares = self.judged(found.x, theta, found.multipliers, None)

    def by_proximal_gradients(self) -> PieceSlopes | None:
        """A point near the optimum by the built-in engine; None where it does not take F, or fails.

        A step minimises ``F(x) + <grad g(x_k), x> + 1/2 sum_j c_j (x_j - x_kj)^2``, which lies
        above ``F + g`` up to a constant where c is large enough. For a norm or the norms of groups
        ``c_j = |grad_j| / |x_kj|`` is (the square through the point: de Leeuw and Heiser 1977);
        for anything else it is raised until it has been.
        """
        problem, g = self.problem, self.made.unscreened
        if self.maxima is not None or g is None or not problem.n or not builtin_takes(problem):
            return None
        form, touched, now = problem.quadratic, g.touched(), None
        value, push = np.inf, np.zeros(0)
        least, raised, accuracy = np.inf, 1.0, FIRST_STEP
        for _ in range(PROXIMAL_STEPS):
            stepped, start, above = problem, None, np.inf
            if now is not None:
                if not np.isfinite(value):
                    return None  # the first point lies outside the domain of g
                pull = np.zeros(problem.d)
                ratio = np.abs(push[touched]) / np.maximum(np.abs(now.x[touched]), 1e-300)
                middle = max(float(np.median(ratio)), 1e-300)
                pull[touched] = raised * np.clip(ratio, middle / SPREAD, middle * SPREAD)
                stepped = replace(
                    problem, quadratic=Quadratic(form.diagonal + pull, form.matrix),
                    linear=problem.linear + push - pull * now.x, layout=None,
                )
                start = Start(now.x, now.theta, multipliers=now.multipliers)
            found = solve_problem(stepped, tol=accuracy, start=start, limits=self.limits)
            if not np.isfinite(found.x).all():
                return None
            level, slope = np.inf, push
            with suppress(NotScreenable):
                level, slope = g.at(found.x)
            total = problem.primal(found.x) + level
            if now is not None:
                step = found.x - now.x
                above = value + float(push @ step + 0.5 * pull @ step**2) + 1e-12 * abs(total)
            if level > above:
                raised *= 4.0
                continue
            now = PieceSlopes(found.x, found.theta, found.multipliers, None)
            value, push = level, slope
            gained = (least - total) / max(abs(total), 1e-300)
            if gained <= PROXIMAL_TOLERANCE and accuracy == PROXIMAL_TOLERANCE:
                break
            # No step has to be more exact than what it gains.
            accuracy = max(PROXIMAL_TOLERANCE, min(accuracy, 0.1 * gained))
            least = min(least, total)
        return now

    def called(self, problem: Problem, maxima: Maxima | None) -> PieceSlopes | None:
        """The solver's answer to ``problem + maxima + unscreened``."""
        further = WriteComposite(maxima, self.made.unscreened)
        began = perf_counter()
        self.cvxpy_solver.further = further
        found = call_checked(self.cvxpy_solver, problem)
        self.cvxpy_solver.further = None
        self.solving += perf_counter() - began
        self.result = found
        if not found.usable:
            return None
        return PieceSlopes(found.x, found.theta, found.multipliers, further.shares())

    def judged(
        self, x: Array, theta: Array, mu: Array, shares: Array | None
    ) -> tuple[Relaxed, Array]:
        """A point of the full problem, and the slopes of its maxima.

        Smooth losses have one slope at x. It replaces a solver's multiplier where that is better:
        multipliers are found to a tolerance, of which the gap takes the square over a small weight.
        """
        found = evaluate(self.made, x, theta, mu, shares, self.tol)
        losses, point = self.problem.losses, found[0].point
        smooth = losses.q > 0.0
        if not smooth.any() or point.gap <= 0.01 * self.tol * abs(point.primal):
            return found
        slopes = np.where(smooth, losses.slope(point.margins), theta)
        other = evaluate(self.made, x, slopes, mu, shares, self.tol)
        return other if other[0].point.gap < point.gap else found

    def prove(self) -> None:
        """What the best point proves of the terms and of the pieces."""
        best = self.best
        if best is None or not self.made.provable:
            return
        region = midpoint_ball(best.problem, best.point)
        self.screening = self.screening.tighten(judge(best.problem, region))
        if self.maxima is not None and isinstance(region, Ball):
            self.possible = self.possible & self.maxima.proven(best.problem, region)

    # -- the steps of a round ---------------------------------------------------------------

    def select(self) -> CompositeReduction:
        """What is proven or, as long as a prediction may help, predicted."""
        if self.confirming:
            self.prove()
        trust = not self.confirming and len(self.rounds) < MAX_ROUNDS - 2
        chosen, pieces = self.chosen(trust)
        selected = CompositeReduction.of(self.made, chosen, pieces)
        known = self.screening.codes >= 0
        self.predicted = int(((selected.selection.codes >= 0) & ~known).sum())
        self.predicted += int((self.possible & ~pieces).sum())
        self.kept = selected.kept
        return selected

    def chosen(self, trust: bool) -> tuple[Selection, Mask]:
        """What to reduce by: proven, and on trust predicted."""
        selection, pieces = self.screening.selection, self.possible
        everything = selection, pieces
        if not trust or self.best is None:
            return everything
        relaxed, point = self.best.problem, self.best.point
        if self.problem.n:
            if self.radius is None:
                self.radius = PredictionRadius.near(relaxed, point, SHARE)
            reach = self.radius.reach(relaxed)
            predicted = Prediction.from_margins(relaxed, point.margins, reach, self.radius.keep)
            codes = np.where(self.open_terms, Piece.UNDECIDED, predicted.selection.codes)
            predicted = Prediction(Selection(codes.astype(np.int8)))
            chosen = predicted.beside(self.screening)
            selection = accept_reduction(relaxed, chosen, point, 1.0, written=True)
        if self.maxima is not None:
            count = int(self.share * max(SHARE * self.maxima.n, 4 * self.problem.d, SMALL))
            near = self.maxima.nearest(relaxed, point.x, count)
            pieces = pieces & (near | self.open_pieces)
        left = len(selection.kept)
        if self.maxima is not None:
            left += int((self.maxima.counts(pieces) > 1).sum())
        return (selection, pieces) if left <= WORTH * self.made.terms else everything

    def reduce(
        self, selection: CompositeReduction
    ) -> tuple[CompositeReduction, Callable[[PieceSlopes], PieceSlopes]]:
        """The selection holds what is left of F and of the maxima."""

        def lift(found: PieceSlopes) -> PieceSlopes:
            x, theta, shares = selection.lift(found.x, found.theta, found.shares)
            return PieceSlopes(x, theta, found.multipliers, shares)

        return selection, lift

    def solve(
        self, reduced: CompositeReduction, selection: CompositeReduction
    ) -> PieceSlopes | None:
        """The solver's answer; it takes neither a start nor a target."""
        return self.called(reduced.reduced, reduced.rest)

    def evaluate(
        self, lifted: PieceSlopes, selection: CompositeReduction
    ) -> tuple[Relaxed, Array]:
        """A point of the full problem, and the slopes of its maxima."""
        return self.judged(lifted.x, lifted.theta, lifted.multipliers, lifted.shares)

    def put_back(
        self, selection: CompositeReduction, point: tuple[Relaxed, Array] | None
    ) -> int:
        """Take over a better point; terms and pieces that it refutes stay in from now on."""
        if point is None:
            # A linearised problem may be unbounded where the full one is not.
            self.radius = None if self.radius is None else self.radius.wider(np.inf)
            self.share *= 8.0
            self.hopeless = self.predicted == 0
            return 0
        (here, shares), before, maxima = point, self.best, self.maxima
        chosen, pieces = Prediction(selection.selection), selection.pieces
        off = chosen.refuted(here.problem, here.point.margins, self.screening)
        missed = np.zeros(0, dtype=bool)
        if maxima is not None:
            missed = maxima.refuted(here.point.x, pieces)
        refuted = int(off.sum()) + int(missed.sum())
        if refuted and before is not None:
            here, shares = self.nearer(before, here, shares)
            # What is refuted on the way back as well stays in from now on.
            self.open_terms |= chosen.refuted(here.problem, here.point.margins, self.screening)
            if maxima is not None:
                self.open_pieces |= maxima.refuted(here.point.x, pieces)
        proof = here.certify(self.tol)
        better = before is None or here.point.primal <= before.point.primal
        if self.proof is None or proof.ok or better:
            self.best, self.proof, self.shares = here, proof, shares
        self.share *= 1.5
        self.hopeless = not (proof.ok or refuted)
        return refuted

    def nearer(self, before: Relaxed, here: Relaxed, shares: Array) -> tuple[Relaxed, Array]:
        """The lowest point on the way from `before`, where predictions have led too far."""
        first, last = before.point, here.point
        steps = (1.0, 0.5, 0.25, 0.1)
        values = [self.made.value(first.x + part * (last.x - first.x)) for part in steps]
        part = steps[int(np.argmin(values))]
        if part == 1.0 or not np.isfinite(values).all():
            return here, shares
        theta = first.theta + part * (last.theta - first.theta)
        mu = first.multipliers + part * (last.multipliers - first.multipliers)
        mixed = self.shares + part * (shares - self.shares) if len(shares) else None
        return self.judged(first.x + part * (last.x - first.x), theta, mu, mixed)

    def close(self, selection: CompositeReduction, refuted: int, times: Times) -> None:
        """Record the round; stop when certified (and confirmed), or when nothing else can help."""
        proof = self.proof
        counts = int((self.screening.codes >= 0).sum()), self.predicted, refuted
        self.record(self.kept, proof, counts, times)
        certified = proof is not None and proof.ok
        if certified and self.mode == "safe" and not self.confirming:
            self.confirming = True
            return
        last = self.hopeless or len(self.rounds) >= MAX_ROUNDS
        self.finished = self.confirming or certified or last


def screened_composite(
    made: CompositeProblem, cvxpy_solver: CvxpySolver, mode: str, tol: float, recognised: float
) -> Report | str:
    """Solve losses beside another convex part and write back; or why CVXPY's answer is needed.

    `recognised` is the time of the recognition, in seconds.
    """
    original = made.standard.canonical.original
    began, start, known = perf_counter(), None, last_answer(original)
    if known is not None and cvxpy_solver.warm and isinstance(known.found, CompositeProblem):
        if mode == "certified" and cvxpy_solver.leaves_choice and known.is_of(made):
            pair: PieceSlopes = known.point
            relaxed, _ = evaluate(made, pair.x, pair.theta, pair.multipliers, pair.shares, tol)
            again = relaxed.certify(tol)
            if again.ok:
                return known.written_again(again, recognised, perf_counter() - began)
        start = moved_point(known.found, known.point, made)
    try:
        found = ScreenedComposite(made, cvxpy_solver, mode, tol).solved(start)
    except (CvxscreenError, np.linalg.LinAlgError) as error:
        return f"the screening loop stopped: {error}"
    answer = accepted_answer(found, cvxpy_solver)
    if isinstance(answer, str):
        return answer
    began, point, last = perf_counter(), answer[0].point, cvxpy_solver.problem_solved
    recognition, stats = made.recognition, last.solver_stats
    restored = restore(recognition, point.x, point.theta, point.multipliers, found.shares)
    seconds = perf_counter() - began
    report = report_of(made, found, answer[1], mode, stats.solver_name, recognised, seconds)
    write_back(
        recognition,
        restored,
        status=status_of(answer[1].ok, last.status),
        solver=report.solver,
        statistics=statistics(
            report,
            solve_time=cvxpy_solver.solve_time,
            setup_time=cvxpy_solver.setup_time,
            iterations=stats.num_iters,
            inner=stats.extra_stats,
        ),
    )
    pair = PieceSlopes(point.x, point.theta, point.multipliers, found.shares)
    store_answer(made, pair, recognition, restored, report)
    return report


def moved_point(old: CompositeProblem, point: PieceSlopes, made: CompositeProblem) -> Any:
    """The last answer as a start for `made`, at other costs perhaps; None for another problem."""
    first, second = old.recognition.problem, made.recognition.problem
    sizes = [0 if part.maxima is None else len(part.maxima.heights) for part in (old, made)]
    if (first.n, first.d, sizes[0]) != (second.n, second.d, sizes[1]):
        return None
    if (0 if second.side is None else second.side.matrix.shape[0]) != len(point.multipliers):
        return None
    return point._replace(theta=moved_slopes(point.theta, first.losses, second.losses))


def accepted_answer(found: Outcome, cvxpy_solver: CvxpySolver) -> tuple[Relaxed, Certificate] | str:
    """The answer and its certificate; or why they cannot be handed out."""
    proof = found.certificate
    if found.relaxed is None or proof is None or cvxpy_solver.problem_solved is None:
        return not_solved(found.status)
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    return found.relaxed, proof


def report_of(
    made: CompositeProblem,
    found: Outcome,
    proof: Certificate,
    mode: str,
    solver: str,
    recognised: float,
    restored: float,
) -> Report:
    """What the rounds did, as a record; the last two arguments are seconds."""
    masks = found.screening
    counts = {"zero": masks.zero, "linear": masks.linear, "quadratic": masks.quadratic}
    return Report(
        recognised=True,
        mode=mode,
        solver=solver,
        terms=made.terms,
        kept=found.kept,
        fixed={**{k: int(v.sum()) for k, v in counts.items()}, "predicted": found.predicted},
        beside=made.descriptions,
        gap=proof.gap,
        relative_gap=proof.relative_gap,
        rounds=found.rounds,
        times={
            "recognise": recognised,
            "screen": found.seconds - found.solve_seconds,
            "solve": found.solve_seconds,
            "restore": restored,
        },
    )
