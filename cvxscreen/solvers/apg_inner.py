"""Accelerated proximal gradient as a solver of any `Problem` with smooth losses.

The losses are the smooth part; the quadratic and linear terms go into the prox (a division, or one
eigendecomposition where the quadratic has a dense part), and so does a penalty (L1, a cone), whose
``split`` at another diagonal is just that prox.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.gram import Gram
from cvxscreen.duality import dual_feasible, reference_point
from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.pieces import kinked
from cvxscreen.problem import Problem
from cvxscreen.solvers.apg import Momentum, auslender_teboulle, fista
from cvxscreen.solvers.inner import InnerResult, Start

Array = NDArray[np.float64]

FORMS = ("fista", "monotone", "auslender_teboulle")


@dataclass(frozen=True)
class Apg:
    """Accelerated proximal gradient (Chen et al. 2013, Appendix A) on smooth problems.

    Parameters
    ----------
    form : {"fista", "monotone", "auslender_teboulle"}
    max_iterations : int
    check : int
        Iterations between two evaluations of the duality gap.
    limits : Limits
        Of the whole call.
    """

    form: str = "fista"
    max_iterations: int = 20_000
    check: int = 10
    name: str = "APG"
    limits: Limits = field(default=UNLIMITED, compare=False)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> InnerResult:
        """Solve until the duality gap is at most `target` (absolute).

        Returns
        -------
        InnerResult
            Status ``"optimal"`` when the target was reached, ``"inaccurate"`` otherwise.

        Raises
        ------
        InvalidInput
            If a loss has a kink, the problem has side constraints or is a kernel problem.
        """
        refuse(problem)
        run = _Run(problem, target, self.check, self.limits)
        first = np.zeros(problem.d) if start is None else np.array(start.x, dtype=np.float64)
        first = first / run.scale
        onward = None if start is None else start.state
        if self.form == "auslender_teboulle":
            result = auslender_teboulle(
                run, run.prox, first, run.stop, lipschitz=run.guess(),
                max_iterations=self.max_iterations,
            )
        else:
            result = fista(
                run, run.prox, first, run.stop, lipschitz=run.guess(),
                max_iterations=self.max_iterations,
                monotone=run.penalty if self.form == "monotone" else None,
                onward=onward if isinstance(onward, Momentum) else None,
            )
        info = {
            "steps": result.iterations, "passes": run.passes, "gap": run.gap,
            "restarts": result.restarts, "lipschitz": result.lipschitz,
        }
        status = "optimal" if run.gap <= target else "inaccurate"
        return InnerResult(status, run.x, run.theta, info=info, state=result.momentum)


def refuse(problem: Problem) -> None:
    """Raise where the method does not apply."""
    f = problem.losses
    if kinked(f.q, f.lo, f.hi).any():
        raise InvalidInput(
            "`solver` is 'apg', which needs smooth losses (squared or smoothed hinge, Huber, "
            "smoothed epsilon); this problem has kinks."
        )
    if problem.side is not None:
        raise InvalidInput("`solver` is 'apg', which takes no side constraints.")
    if isinstance(problem.design, Gram):
        raise InvalidInput("`solver` is 'apg', which takes no kernel problems.")


class _Run:
    """The smooth part, the prox, and the best point so far."""

    def __init__(self, problem: Problem, target: float, check: int, limits: Limits) -> None:
        self.problem, self.target, self.check = problem, target, check
        self.limits = limits
        self.passes = 0
        self.gap = np.inf
        self.x, self.theta = np.zeros(problem.d), np.zeros(problem.n)
        free = problem.quadratic.free
        self.scale = np.ones(problem.d)
        if free.any() and problem.n and problem.penalty is None:
            # An unpenalised coordinate is given columns about as long as the others.
            usual = float(np.mean(problem.sizes**2)) / problem.d
            own = np.mean(problem.free_columns**2, axis=0)
            self.scale[free] = np.sqrt(max(usual, 1e-300) / np.maximum(own, 1e-300))
        self.linear = problem.linear * self.scale
        quadratic = problem.quadratic
        if quadratic.matrix is not None:
            self.values, self.vectors = np.linalg.eigh(quadratic.dense())
            self.values = np.maximum(self.values, 0.0)

    def guess(self) -> float:
        """A first L: the average curvature per coordinate, a lower bound of the largest."""
        f, problem = self.problem.losses, self.problem
        used = f.q > 0
        trace = float(np.sum(problem.sizes[used] ** 2 / f.q[used]))
        return max(trace / max(problem.d, 1), 1e-300)

    def value(self, x: Array) -> float:
        """The sum of the losses."""
        self.passes += 1
        margins = self.problem.design.forward(x * self.scale)
        return float(np.sum(self.problem.losses.value(margins)))

    def value_gradient(self, x: Array) -> tuple[float, Array]:
        """The sum of the losses and its gradient."""
        self.passes += 2
        margins = self.problem.design.forward(x * self.scale)
        losses = self.problem.losses
        gradient = self.problem.design.adjoint(losses.slope(margins)) * self.scale
        return float(np.sum(losses.value(margins))), gradient

    def penalty(self, x: Array) -> float:
        """The quadratic and linear terms."""
        x, penalty = x * self.scale, self.problem.penalty
        value = float((0.5 * self.problem.quadratic.apply(x) + self.problem.linear) @ x)
        return value if penalty is None else value + penalty.value(x)

    def prox(self, z: Array, step: float) -> Array:
        """Prox of the quadratic and linear terms."""
        quadratic, penalty = self.problem.quadratic, self.problem.penalty
        if penalty is not None:
            return penalty.split(z / step - self.linear, quadratic.diagonal + 1.0 / step)[0]
        z = z - step * self.linear
        if quadratic.matrix is None:
            return np.asarray(z / (1.0 + step * quadratic.diagonal))
        turned = self.vectors.T @ z / (1.0 + step * self.values)
        return np.asarray(self.vectors @ turned)

    def stop(self, x: Array, k: int) -> bool:
        """Evaluate the gap now and then, and at a limit; True when it is small enough, or there."""
        over = self.limits.spent(int(k > 0))
        if k % self.check and not over:
            return False
        problem, x = self.problem, x * self.scale
        if problem.penalty is not None:
            point = reference_point(problem, problem.penalty.settle(x))
            self.passes += 2
            if point.gap < self.gap:
                self.gap, self.x, self.theta = point.gap, point.x, point.theta
            return over or self.gap <= self.target
        margins = problem.design.forward(x)
        theta, _ = dual_feasible(problem, problem.losses.slope(margins), None, margins)
        pull = problem.design.adjoint(theta) + problem.linear
        self.passes += 2
        step = x + problem.quadratic.solve(pull)
        step[problem.quadratic.free] = 0.0
        fy = float(problem.losses.fenchel_young(margins, theta).sum())
        gap = fy + 0.5 * problem.quadratic.norm(step) ** 2
        if gap < self.gap:
            self.gap, self.x, self.theta = gap, x, theta
        return over or self.gap <= self.target
