"""What is known of the primal and of the dual optimum at once: a product of intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem

Array = NDArray[np.float64]
Interval = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Intervals of margins, coordinates, slopes and pulls at the optimum, rounded outward.

    Attributes
    ----------
    problem : Problem
    bound : str
        Name of the theorem behind it.
    margins : pair of arrays, shape (n,)
        Of ``<a_i, x*>``.
    slopes : pair of arrays, shape (n,)
        Of ``theta*``.
    coordinates : pair of arrays, shape (d,)
        Of ``x*``.
    pulls : pair of arrays, shape (d,)
        Of ``v* = -A' theta* - q``: ``v_j* - M_jj x_j*`` is a subgradient of ``kappa_j |.|``.
    radius, gap : float
        Of the primal ball, of the point.
    rounds, skipped : int
        How often primal and dual were alternated, and the rule evaluations that safe keeping saved.
    """

    problem: Problem
    bound: str
    margins: Interval
    slopes: Interval
    coordinates: Interval
    pulls: Interval
    radius: float
    gap: float
    rounds: int = 1
    skipped: int = 0

    @classmethod
    def nothing(cls, problem: Problem, bound: str, gap: float) -> Boxes:
        """No information but the boxes of the slopes."""
        whole = (np.full(problem.n, -np.inf), np.full(problem.n, np.inf))
        wide = (np.full(problem.d, -np.inf), np.full(problem.d, np.inf))
        slopes = (problem.losses.lo, problem.losses.hi)
        return cls(problem, bound, whole, slopes, wide, wide, np.inf, gap)

    @property
    def balls(self) -> tuple[()]:
        """None: it is not an intersection of balls."""
        return ()

    def intervals(self) -> Interval:
        """``[low, high]`` of every margin at the optimum."""
        return self.margins

    def contains(self, x: Array) -> bool:
        """Whether `x` satisfies the intervals of the coordinates."""
        low, high = self.coordinates
        return bool(((x >= low) & (x <= high)).all())
