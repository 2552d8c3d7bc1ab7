"""An answer of a solver with its certificate, and as a point of the problem once one is needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate import Certificate, Passes, certify
from cvxscreen.duality import Point, reference_point
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """A pair, certified; the certificate has taken nothing from whoever found it.

    Attributes
    ----------
    x, theta, multipliers : arrays
    proof : Certificate
    passes : Passes
        The two products of the certificate: the point takes them over.
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    proof: Certificate
    passes: Passes

    @classmethod
    def of(
        cls, problem: Problem, x: Array, theta: Array, multipliers: Array, tol: float
    ) -> Answer:
        """Certify the pair."""
        passes = Passes()
        proof = certify(problem, x, theta, multipliers, tol=tol, passes=passes)
        return cls(problem, x, theta, multipliers, proof, passes)

    @classmethod
    def known(cls, point: Point, proof: Certificate) -> Answer:
        """A point with its certificate."""
        pair = (point.x, point.theta, point.multipliers)
        answer = cls(point.problem, *pair, proof, Passes())
        answer.__dict__["point"] = point
        return answer

    @property
    def feasible(self) -> bool:
        """Whether theta as given, not only a share of it, is dual feasible under an L1 norm alone.

        With a quadratic term or another penalty nothing but its boxes, clipped to, is asked of it.
        """
        if not self.problem.held:
            return True
        force, penalty = self.passes.force, self.problem.penalty
        return force is not None and bool((np.abs(force) <= penalty.kappa).all())  # type: ignore[union-attr]

    @cached_property
    def point(self) -> Point:
        """The pair, its dual part made feasible."""
        known, passes = None, self.passes
        # A cone would settle x elsewhere.
        plain = self.problem.penalty is None or isinstance(self.problem.penalty, L1)
        if plain and passes.margins is not None and passes.force is not None:
            known = passes.margins, passes.force
        return reference_point(self.problem, self.x, self.theta, self.multipliers, known=known)
