"""Bounds on features and samples together, in the parts a loop asks for that reduces between them.

On the reduced problem what is proven already is out of both norms, out of the point and out of the
gap: the parts, each on what the one before has left, prove what the alternation does (and x without
the dropped coordinates proves more), with passes over what is left only.
"""

from __future__ import annotations

from collections.abc import Callable

from cvxscreen.bounds.synergy import dual_ball, joint, primal_ball, synergy
from cvxscreen.duality import Point
from cvxscreen.pieces import kinked
from cvxscreen.problem import Problem
from cvxscreen.regions import Region

Bound = Callable[[Problem, Point], Region]


def stages(problem: Problem, bound: Bound) -> tuple[Bound, ...]:
    """The parts of `bound`, features first; `bound` itself where it has none.

    Without curvature the features' part needs the samples' intervals and is not asked alone.
    """
    losses = problem.losses
    smooth = not kinked(losses.q, losses.lo, losses.hi).any()
    return (dual_ball, primal_ball) if smooth and bound in (joint, synergy) else (bound,)
