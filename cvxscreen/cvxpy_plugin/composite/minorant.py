"""Affine functions below a convex one, which make a problem with any convex part certifiable.

Let ``m <= g`` be affine. Then ``F + m`` is a relaxation of ``F + g``, its dual bounds the optimum
from below, and at a point x the gap of ``F + g`` is that of ``F + m`` plus ``g(x) - m(x)``. With F
strongly convex, the optimum x* of ``F + g`` satisfies for every dual point of ``F + m``

    1/2 ||x* - x||^2 + 1/2 ||x* - x_theta||^2 + sum_i FY_i(t_i*, theta_i) <= gap,

because ``(F + m)(x*) <= (F + g)(x*) <= (F + g)(x) - 1/2 ||x* - x||^2``. That is what the midpoint
ball rests on, so it holds for x* whatever g is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import up
from cvxscreen.certificates.certificate import Certificate, certify, relative_gap
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Minorant:
    """``m(y) = value - slack + <slope, y - x>`` for a point x.

    Attributes
    ----------
    value : float
        ``g(x)``.
    slope : array, shape (d,)
    slack : float
        Upper bound of ``g(x) - m(x)``, rounding included.
    error : array, shape (d,)
        Bound of the rounding error of `slope`.
    """

    value: float
    slope: Array
    slack: float
    error: Array


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A point of ``F + g``, judged through ``F + m``.

    Attributes
    ----------
    problem : Problem
        ``F + m``.
    point : Point
        On `problem`, with the slack among its terms: whatever rests on it holds for ``F + g``.
    slack : float
        ``g(x) - m(x)``.
    """

    problem: Problem
    point: Point
    slack: float

    def certify(self, tol: float) -> Certificate:
        """The certificate of the point for ``F + g``, all of the gap computed anew."""
        point = self.point
        proof = certify(self.problem, point.x, point.theta, point.multipliers, tol=tol)
        gap, primal = up(proof.gap + self.slack), proof.primal + self.slack
        relative = float(relative_gap(gap, primal))
        ok, reason = proof.ok and relative <= tol, proof.reason
        if proof.ok and not ok:
            reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
        return replace(
            proof, gap=gap, relative_gap=relative, primal=primal, dual=primal - gap, ok=ok,
            reason=reason,
        )


def relaxation(
    problem: Problem,
    x: Array,
    theta: Array,
    multipliers: Array,
    minorants: Sequence[Minorant],
) -> Relaxed:
    """Evaluate a pair of F beside convex parts.

    Parameters
    ----------
    problem : Problem
        ``F``.
    x, theta, multipliers : arrays
    minorants : sequence of Minorant
        One for each part, all at `x`.
    """
    slope, error = np.zeros(problem.d), np.zeros(problem.d)
    value, slack = 0.0, 0.0
    for part in minorants:
        slope, error = slope + part.slope, error + part.error
        value, slack = value + part.value, slack + part.slack
    error = error + 4.0 * np.finfo(float).eps * (np.abs(slope) + np.abs(problem.linear))
    free = problem.quadratic.free
    # The constant puts F + m at value - slack above F in x; its own rounding moves no minimiser.
    size = np.finfo(float).eps * (len(x) + 8) * (float(np.abs(slope) @ np.abs(x)) + abs(value))
    slack = up(slack + 4.0 * size)
    relaxed = replace(
        problem,
        linear=problem.linear + slope,
        constant=problem.constant + value - slack - float(slope @ x),
        drift=up(problem.drift + up(problem.quadratic.dual_reach(error))),
        imbalance=problem.imbalance + float(error[free].max(initial=0.0)),
    )
    problem.compute_row_norms()
    relaxed.known.inherit_rows(problem.known)
    point = reference_point(relaxed, x, theta, multipliers)
    point = replace(
        point,
        terms=up(point.terms + slack),
        gap=up(point.gap + slack),
        primal=point.primal + slack,
    )
    return Relaxed(relaxed, point, slack)
