"""A ball over a cone made smaller before it judges: by a half-space, or by the cone itself."""

from __future__ import annotations

import numpy as np

from cvxscreen.bounds.cones import over_cone
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import choice
from cvxscreen.problem import Problem
from cvxscreen.regions import Ball, ConeBall, CutBall, Place, Region

RULES = ("sphere", "linear", "cone")
"""The ball alone; cut by ``<P, X> >= 0``, P in the cone; cut by the cone (exact, O(d) a term)."""


def cut(problem: Problem, region: Region, rule: str) -> Region:
    """`region` as `rule` wants it.

    ``"linear"`` takes P from what the projection onto the cone takes off the ball's centre, or,
    where the centre is inside, off the dual point's force: both point out of the cone where the
    ball is most likely to leave it.

    Raises
    ------
    UnknownName
        If `rule` is not one of `RULES`.
    InvalidInput
        For ``"linear"`` and ``"cone"`` without a cone.
    """
    choice("rule", rule, RULES)
    if rule == "sphere" or not isinstance(region, Ball):
        return region
    if problem.penalty is None or not over_cone(problem):
        raise InvalidInput(f"`rule` {rule!r} is for problems over a cone (metric learning).")
    if rule == "cone":
        return ConeBall(region)
    diagonal = problem.quadratic.diagonal
    normal = -problem.penalty.split(diagonal * region.centre, diagonal)[1]
    if float(np.linalg.norm(normal)) <= 1e-9 * float(np.linalg.norm(diagonal * region.centre)):
        if region.theta is None:
            return region
        force = problem.design.adjoint(region.theta) + problem.linear
        normal = -problem.penalty.split(-force, diagonal)[1]
    if not normal.any():
        return region
    place = Place(normal, problem.design.forward(normal))
    return CutBall(f"{region.bound}+linear", region, place, 0.0)
