"""The linear functionals whose range over a region is wanted, and vectors with their margins.

Worked instances. Without an intercept the functionals are the rows, ``z_i = a_i``. With one, the
rows are centred, ``z_i = a_i - e_i x0``: a region bounds them tighter, and ``<x0, w>`` is absorbed
by the intercept. In `tightened` (the cut of the margins with an intercept) the pivot ``x0`` is a
mean of the rows that changed piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, square
from cvxscreen.core.duality import margin_error
from cvxscreen.core.problem import Problem, Quadratic

Array = NDArray[np.float64]


def outward(middle: Array, reach: Array) -> tuple[Array, Array]:
    """``middle -+ reach`` with the two subtractions rounded outward."""
    rounding = 2.0 * UNIT * (np.where(np.isfinite(middle), np.abs(middle), 0.0) + reach)
    return middle - reach - rounding, middle + reach + rounding


@dataclass(frozen=True, eq=False)
class Place:
    """A vector of the primal space with its margins ``A x`` as computed.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
    """

    x: Array
    margins: Array


def inner(problem: Problem, u: Array, v: Array) -> tuple[float, float]:
    """``<u, M v>`` over the penalised coordinates and a bound of its rounding error."""
    form = problem.quadratic
    value = form.inner(form.apply(u), v)
    if isinstance(form, Quadratic):
        size = float(np.abs(u) @ (form.diagonal * np.abs(v)))
        if form.matrix is not None:
            size += float(np.abs(u) @ (np.abs(form.matrix) @ np.abs(v)))
        return value, gamma(2 * problem.d + 8) * size
    # A norm is rounded up by what its square may be off; the error of a product is their mean.
    excess = [max(square(form.norm(w)) - form.inner(form.apply(w), w), 0.0) for w in (u, v)]
    return value, 1.01 * float(np.sqrt(excess[0] * excess[1]))


def length(problem: Problem, u: Array) -> tuple[float, float]:
    """A lower and an upper bound of ``||u||_M`` over the penalised coordinates."""
    squared, error = inner(problem, u, u)
    low = float(np.sqrt(max(squared - error, 0.0))) * (1.0 - 2.0 * UNIT)
    return low, float(np.sqrt(squared + error)) * (1.0 + 2.0 * UNIT)


def lifted(problem: Problem, pivot: Array, x: Array) -> tuple[float, float]:
    """``<pivot, x>`` over the penalised coordinates and a bound of its rounding error."""
    bent = np.where(problem.quadratic.free, 0.0, x)
    if isinstance(problem.quadratic, Quadratic):
        size = float(np.abs(pivot) @ np.abs(bent))
        return float(pivot @ bent), gamma(problem.d + 8) * size
    return inner(problem, pivot, bent)


def condition(problem: Problem) -> float:
    """An upper bound of the condition number of ``M`` where solving with it is not a division."""
    if problem.quadratic.matrix is None:
        return 1.0
    return float(np.abs(problem.quadratic.dense()).sum()) / problem.quadratic.floor + 1.0


@dataclass(frozen=True, eq=False)
class Functionals:
    """``z_i``: the penalised part of the rows, each moved by ``e_i`` times a pivot.

    Attributes
    ----------
    problem : Problem
    norms : array, shape (n,)
        Upper bounds of ``||z_i||_{M^-1}``.
    pivot : array, shape (d,), optional
        ``x0`` in ``z_i = a_i - e_i x0``; without it the functionals are the rows themselves.
    """

    problem: Problem
    norms: Array
    pivot: Array | None = None

    @classmethod
    def rows(cls, problem: Problem) -> Functionals:
        """The rows themselves."""
        return cls(problem, problem.norms * (1.0 + gamma(problem.d + 8)))

    @classmethod
    def around(cls, problem: Problem, pivot: Array) -> Functionals:
        """The rows moved by ``e_i pivot``, for a problem with one unpenalised coordinate."""
        e, form = problem.free_columns[:, 0], problem.quadratic
        represented = form.solve(pivot)
        cross, cross_error = problem.design.forward(represented), margin_error(problem, represented)
        squared, squared_error = inner(problem, represented, represented)
        size = float(np.sqrt(max(squared, 0.0) + squared_error))
        total = problem.norms**2 - 2.0 * e * cross + e**2 * squared
        # The cancellation in this sum is charged in full.
        rounding = 4.0 * gamma(problem.d + 16) * (problem.norms + np.abs(e) * size) ** 2
        rounding = rounding + 2.0 * np.abs(e) * cross_error + e**2 * squared_error
        if form.matrix is not None:
            reach = problem.sizes + np.abs(e) * float(np.linalg.norm(pivot))
            solved = 4.0 * gamma(4 * problem.d + 16) * condition(problem) / form.floor
            rounding = rounding + solved * reach**2
        norms = np.sqrt(np.maximum(total, 0.0) + rounding) * (1.0 + gamma(problem.d + 8))
        return cls(problem, norms, pivot)

    def at(self, place: Place) -> tuple[Array, Array]:
        """``<z_i, x>`` over the penalised coordinates and bounds of the errors, arrays (n,)."""
        problem, margins = self.problem, place.margins
        error = margin_error(problem, place.x)
        free = np.flatnonzero(problem.quadratic.free)
        if len(free) == 0:
            return margins, error
        # The unpenalised part and the pivot's part are taken off.
        rest = problem.free_columns @ place.x[free]
        rounding = gamma(len(free) + 4) * (np.abs(problem.free_columns) @ np.abs(place.x[free]))
        if self.pivot is not None:
            e = problem.free_columns[:, 0]
            lift, error_of_lift = lifted(problem, self.pivot, place.x)
            rest, rounding = rest + e * lift, rounding + np.abs(e) * error_of_lift
        return margins - rest, error + rounding + 4.0 * UNIT * (np.abs(margins) + np.abs(rest))
