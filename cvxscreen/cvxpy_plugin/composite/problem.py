"""Losses that can be screened beside a convex part of the objective that is no sum of losses.

::

    minimise  F(x) + g(x),     F a `Problem`,  g = maxima of affine functions + unscreened terms

The objective is split into its summands; those that the recogniser refuses when they stand alone
are put aside (`split`). F is screened by bounds that hold for any convex g, pieces of maxima by the
same ball; g itself goes into every reduced problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from cvxscreen.cvxpy_plugin.recognise.budgets import BudgetedProblem, recognise_budgets
from cvxscreen.cvxpy_plugin.recognise.check import check, check_points
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
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.errors import NotScreenable

# -- a convex term that stays as it is ------------------------------------------------------------
#
# It goes into every reduced problem word for word. What the proofs need of it is an affine
# minorant, from subgradients that CVXPY computes: one where the term is smooth, a convex
# combination of several where it has a kink.


Array = NDArray[np.float64]
Index = NDArray[np.intp]

ROUNDING = 1e-11
"""Relative rounding error that values and gradients of CVXPY are charged with."""

STEPS = (1e-8, 1e-7, 1e-6, 1e-5)
"""How far from a kink its other subgradients are looked for, relative to the point."""

TRIES = 12
"""Subgradients asked for at one distance."""


@dataclass(frozen=True, eq=False)
class UnscreenedTerm:
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


@dataclass(frozen=True, eq=False)
class CompositeProblem:
    """A recognised ``F + g``.

    Attributes
    ----------
    recognition : Recognition
        Of F, tied to the user's problem; its maxima are part of g.
    unscreened : Verbatim or None
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
        rest, expr = split(vectorised(problem))
        found = recognise_standard(standardise(canonicalise(rest)), composite=True)
        check(found)
        unscreened = UnscreenedTerm.of(expr, found)
        tied = replace(found.standard.canonical, original=problem)
        found = replace(found, standard=replace(found.standard, canonical=tied))
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
    if isinstance(refusal, RefusedByRules):
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


def _check(made: CompositeProblem, problem: Any) -> None:
    """The recognised objective is the user's, at a few points."""
    recognition = made.recognition
    sign = -1.0 if type(problem.objective).__name__ == "Maximize" else 1.0
    variables = problem.variables()
    with preserved_values(variables):
        for x in check_points(recognition):
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


def split(problem: Any) -> tuple[Any, Any]:
    """`problem` without the summands that cannot be screened, and their sum (to be minimised).

    Raises
    ------
    NotScreenable
        If there are none, or the objective cannot be taken apart.
    """
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    parts = list(summands(problem.objective.expr, sign))
    groups: dict[frozenset[str], list[Any]] = {}
    for part in parts:
        if not (part.is_quadratic() or part.is_affine()):
            groups.setdefault(frozenset(a.__name__ for a in part.atoms()), []).append(part)
    if len(groups) > GROUPS or len(parts) < 2:
        raise NotScreenable("the objective is no sum of a few kinds of terms")
    foreign = [part for group in groups.values() if not _screenable(group) for part in group]
    if not foreign:
        raise NotScreenable("every term of the objective can be screened alone")
    aside = {id(part) for part in foreign}
    rest = [part for part in parts if id(part) not in aside]
    if not rest:
        raise NotScreenable("no term of the objective can be screened")
    total, expr = sum(rest[1:], rest[0]), sum(foreign[1:], foreign[0])
    return cp.Problem(cp.Minimize(total), problem.constraints), expr


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
