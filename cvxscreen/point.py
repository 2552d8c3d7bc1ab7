"""What one evaluation of a primal and a dual point tells; built by `cvxscreen.duality` only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centre:
    """A point close to ``(x + x_theta)/2`` whose margins are known without a pass.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
        ``<a_i, x>``.
    slack : float
        Bound of its distance from the true midpoint, in the norm of ``M``.
    """

    x: Array
    margins: Array
    slack: float


@dataclass(frozen=True, eq=False)
class Point:
    """A primal point with a dual feasible point, and all that one evaluation of both tells.

    Built by `reference_point` only, so that a region always rests on a consistent pair.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    theta : array, shape (n,)
        Slopes in ``[lo, hi]``; the public dual variable is ``alpha = -theta``.
    multipliers : array, shape (m,)
        Of the side constraints; empty without them.
    margins : array, shape (n,)
        ``<a_i, x>`` as computed; the true value is within `margin_error`.
    x_dual : array, shape (d,)
        ``x_theta``; on unpenalised coordinates equal to `x`.
    shift : float
        ``||x - x_theta||_M`` as computed, within `dual_error`.
    terms : float
        Upper bound of ``sum_i FY_i`` (plus the side constraints' complementarity).
    gap : float
        Upper bound of the duality gap, rounding included.
    primal : float
        Objective at `x`.
    feasible : bool
        Whether `x` provably satisfies the side constraints (always true without them).
    pull : array, shape (d,)
        ``A' theta`` as computed (without a quadratic term: of the slopes as they were given,
        before they were shrunk to be feasible).
    leaning : array, shape (d,)
        ``s``, the dual point's part in the domain of ``h*``; empty without a penalty.
    centre : Centre or None
        Of a rescaled point; None means that a bound computes the midpoint's margins itself.
    noise : float
        Relative error of ``A' theta`` beyond that of the pass, where it was not made anew.
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    margins: Array
    margin_error: Array
    x_dual: Array
    dual_error: float
    shift: float
    terms: float
    gap: float
    primal: float
    feasible: bool
    pull: Array
    leaning: Array
    centre: Centre | None = None
    noise: float = 0.0

    @property
    def reach(self) -> float:
        """About the radius of its midpoint ball, ``r^2 = gap - shift^2 / 4``; proves nothing."""
        return float(np.sqrt(self.terms + 0.25 * self.shift * self.shift))

    @property
    def relative_gap(self) -> float:
        """``gap / max(|primal|, |dual|)``."""
        dual = self.primal - self.gap
        return self.gap / max(abs(self.primal), abs(dual), 1e-300)
