"""The two stochastic methods of Shibagaki et al. 2016 under an L1 term: proximal SDCA and SPDC.

Both visit the terms in random order. They are slower than `ProxNewton` to high accuracy and are
here for comparison; their duality gap is looked at after 1, 2, 4, ... sweeps, then once in a few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import unsigned
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.problem import Problem
from cvxscreen.designs.columns import by_rows
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.prox_newton.loops import loops
from cvxscreen.solvers.prox_newton.solver import require

Array = NDArray[np.float64]


def _gap(problem: Problem, x: Array, margins: Array, theta: Array, force: Array) -> float:
    """The duality gap of ``(x, theta)`` from ``A x`` and ``A' theta``."""
    penalty, weight = problem.penalty, problem.quadratic.diagonal
    x_theta, s = penalty.prox_and_subgradient(-(force + problem.linear), weight)  # type: ignore[union-attr]
    gap = 0.5 * float(weight @ (x - x_theta) ** 2)
    gap += penalty.fenchel_gap(x, s)  # type: ignore[union-attr]
    return gap + float(problem.losses.fenchel_young(margins, theta).sum())


@dataclass(frozen=True)
class Sdca(SubproblemSolver):
    """Proximal stochastic dual coordinate ascent.

    Parameters
    ----------
    max_epochs : int
        Sweeps over all terms at most.
    every : int
        Sweeps between two looks at the gap at most; a look doubles the sweeps made before.
    seed : int
        Of the order of the terms.
    limits : Limits
        Of the whole call.
    """

    max_epochs: int = 20_000
    every: int = 5
    seed: int = 0
    name: str = "SDCA"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute)."""
        design, penalty = require(problem, "sdca")
        rng, losses = np.random.default_rng(self.seed), problem.losses
        matrix, weight = by_rows(design), problem.quadratic.diagonal
        arrays = *unsigned(matrix.indptr, matrix.indices), matrix.data
        turned = matrix.T
        theta = losses.slope(np.zeros(problem.n)) if start is None else np.array(start.theta)
        theta = np.clip(theta, losses.lo, losses.hi)
        square = problem.norms**2
        best: tuple[float, Array, Array] = (np.inf, np.zeros(problem.d), theta)
        epochs = 0
        while epochs < self.max_epochs:
            force = turned @ theta
            v = -(force + problem.linear)
            x, _ = penalty.prox_and_subgradient(v, weight)
            gap = _gap(problem, x, matrix @ x, theta, force)
            if gap < best[0]:
                best = (gap, x, theta.copy())
            if gap <= target or self.limits.spent():
                break
            sweeps = min(max(epochs, 1), self.every, self.limits.iterations or self.every)
            for _ in range(sweeps):
                loops().ascend(
                    rng.permutation(problem.n), *arrays, square,
                    weight, penalty.kappa, losses.b, losses.e, losses.q, losses.lo, losses.hi,
                    theta, v,
                )
            epochs += sweeps
            self.limits.spent(sweeps)
        status = "optimal" if best[0] <= target else "inaccurate"
        return SubproblemResult(status, best[1], best[2], info={"epochs": epochs, "gap": best[0]})


@dataclass(frozen=True)
class Spdc(SubproblemSolver):
    """The stochastic primal-dual coordinate method (Zhang and Xiao 2015) in mini-batches.

    Parameters as of `Sdca`; `batches` is the number of batches an epoch is made of.
    """

    max_epochs: int = 20_000
    every: int = 10
    batches: int = 20
    seed: int = 0
    name: str = "SPDC"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute)."""
        design, penalty = require(problem, "spdc")
        rng, losses, n = np.random.default_rng(self.seed), problem.losses, problem.n
        matrix, weight = by_rows(design), problem.quadratic.diagonal
        arrays = *unsigned(matrix.indptr, matrix.indices), matrix.data
        turned = matrix.T
        x = np.zeros(problem.d) if start is None else np.array(start.x)
        theta = losses.slope(matrix @ x) if start is None else np.array(start.theta)
        theta = np.clip(theta, losses.lo, losses.hi)
        size = max(n // self.batches, 1)
        steps = self._steps(problem, size)
        pull, bar, fresh = turned @ theta, x.copy(), np.zeros(problem.d)
        best: tuple[float, Array, Array] = (np.inf, x, theta)
        epochs = 0
        while epochs < self.max_epochs:
            # The slopes at x are the better dual point once x is good; both are feasible.
            margins = matrix @ x
            other = np.clip(losses.slope(margins), losses.lo, losses.hi)
            for dual, force in ((theta, pull), (other, turned @ other)):
                gap = _gap(problem, x, margins, dual, force)
                if gap < best[0]:
                    best = (gap, x.copy(), dual.copy())
            if best[0] <= target or self.limits.spent():
                break
            sweeps = min(max(epochs, 1), self.every, self.limits.iterations or self.every)
            for _ in range(sweeps):
                loops().alternate(
                    rng.permutation(n), size, *arrays, weight,
                    penalty.kappa, problem.linear, losses.b, losses.e, losses.q, losses.lo,
                    losses.hi, *steps, theta, x, bar, pull, fresh,
                )
            pull = turned @ theta  # the running sum drifts
            epochs += sweeps
            self.limits.spent(sweeps)
        status = "optimal" if best[0] <= target else "inaccurate"
        return SubproblemResult(status, best[1], best[2], info={"epochs": epochs, "gap": best[0]})

    def _steps(self, problem: Problem, size: int) -> tuple[float, float, float]:
        """``sigma``, ``tau`` and the momentum of Zhang and Xiao 2015, Theorem 2.

        Theirs is a mean of n losses: our slopes are an n-th of theirs, so is our ``sigma``.
        """
        losses, n = problem.losses, problem.n
        radius = float(problem.sizes.max(initial=1e-300))
        curvature = float(losses.q[losses.q > 0].min(initial=np.inf))
        weight = float(problem.quadratic.diagonal.min())
        if not np.isfinite(curvature):
            curvature = 1e-3 / float(np.median(np.abs(losses.lo) + losses.hi))
        sigma = np.sqrt(weight / (size * curvature)) / (2.0 * radius)
        tau = np.sqrt(size * curvature / weight) / (2.0 * radius * n)
        slow = n / size + 2.0 * radius * n / np.sqrt(size * weight * curvature)
        return float(sigma), float(tau), float(1.0 - 1.0 / slow)
