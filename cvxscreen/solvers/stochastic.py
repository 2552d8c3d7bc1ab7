"""The two stochastic methods of Shibagaki et al. 2016 under an L1 term: proximal SDCA and SPDC.

Both visit the terms in random order. They are slower than `ProxNewton` to high accuracy and are
here for comparison. An epoch visits every term once; the duality gap is computed after 1, 2, 4, ...
epochs, then once in a few, and the best pair seen is returned.

References
----------
Shalev-Shwartz and Zhang, "Accelerated proximal stochastic dual coordinate ascent for regularized
loss minimization", Math. Program. 155 (2016).
Zhang and Xiao, "Stochastic primal-dual coordinate method for regularized empirical risk
minimization", ICML 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import estimated_gap
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import by_rows
from cvxscreen.solvers.column_systems import compressed
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.prox_newton import LossColumns, require

Array = NDArray[np.float64]


class Regulariser(NamedTuple):
    """``sum_j weight_j x_j^2 / 2 + kappa_j |x_j| + linear_j x_j``, shape (d,) each."""

    weight: Array
    kappa: Array
    linear: Array


class StepSizes(NamedTuple):
    """Of SPDC: of dual and of primal steps, and the share of a primal step that is extrapolated."""

    sigma: float
    tau: float
    momentum: float


class Primal(NamedTuple):
    """SPDC's primal variables, shape (d,) each: x, its extrapolation, and ``A' theta``."""

    x: Array
    extrapolated: Array
    At_theta: Array


@dataclass(frozen=True)
class Sdca(SubproblemSolver):
    """Proximal stochastic dual coordinate ascent.

    Parameters
    ----------
    max_epochs : int
        Epochs at most.
    every : int
        Epochs between two computations of the gap at most.
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
        rows, terms = compressed(matrix), LossColumns.of(losses)
        regulariser = Regulariser(weight, penalty.kappa, problem.linear)
        theta = losses.slope(np.zeros(problem.n)) if start is None else np.array(start.theta)
        theta = np.clip(theta, losses.lo, losses.hi)
        squares = problem.norms**2
        best: tuple[float, Array, Array] = (np.inf, np.zeros(problem.d), theta)
        epochs = 0
        while epochs < self.max_epochs:
            At_theta = matrix.T @ theta
            v = -(At_theta + problem.linear)
            x, _ = penalty.prox_and_subgradient(v, weight)
            gap = estimated_gap(problem, x, theta, matrix @ x, At_theta)
            if gap < best[0]:
                best = (gap, x, theta.copy())
            if gap <= target or self.limits.spent():
                break
            more = _epochs_to_go(epochs, self.every, self.limits)
            for _ in range(more):
                sdca_epoch(
                    rng.permutation(problem.n), rows, squares, regulariser, terms, theta, v
                )
            epochs += more
            self.limits.spent(more)
        return _result(best, target, epochs)


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
        matrix = by_rows(design)
        rows, terms = compressed(matrix), LossColumns.of(losses)
        regulariser = Regulariser(problem.quadratic.diagonal, penalty.kappa, problem.linear)
        x = np.zeros(problem.d) if start is None else np.array(start.x)
        theta = losses.slope(matrix @ x) if start is None else np.array(start.theta)
        theta = np.clip(theta, losses.lo, losses.hi)
        batch = max(n // self.batches, 1)
        sizes = step_sizes(problem, batch)
        primal = Primal(x, x.copy(), matrix.T @ theta)
        best: tuple[float, Array, Array] = (np.inf, x, theta)
        epochs = 0
        while epochs < self.max_epochs:
            # The slopes at x are the better dual point once x is good; both are feasible.
            margins = matrix @ x
            slopes = np.clip(losses.slope(margins), losses.lo, losses.hi)
            for dual, At_dual in ((theta, primal.At_theta), (slopes, matrix.T @ slopes)):
                gap = estimated_gap(problem, x, dual, margins, At_dual)
                if gap < best[0]:
                    best = (gap, x.copy(), dual.copy())
            if best[0] <= target or self.limits.spent():
                break
            more = _epochs_to_go(epochs, self.every, self.limits)
            for _ in range(more):
                spdc_epoch(
                    rng.permutation(n), batch, rows, regulariser, terms, sizes, theta, primal
                )
            primal.At_theta[:] = matrix.T @ theta  # the running sum drifts
            epochs += more
            self.limits.spent(more)
        return _result(best, target, epochs)


def step_sizes(problem: Problem, batch: int) -> StepSizes:
    """Those of Zhang and Xiao 2015, Theorem 2, for batches of so many terms.

    Theirs is a mean of n losses: our slopes are an n-th of theirs, so is our ``sigma``.
    """
    losses, n = problem.losses, problem.n
    radius = float(problem.sizes.max(initial=1e-300))
    width = float(losses.q[losses.q > 0].min(initial=np.inf))
    weight = float(problem.quadratic.diagonal.min())
    if not np.isfinite(width):  # kinks alone: as if smoothed a little
        width = 1e-3 / float(np.median(np.abs(losses.lo) + losses.hi))
    sigma = np.sqrt(weight / (batch * width)) / (2.0 * radius)
    tau = np.sqrt(batch * width / weight) / (2.0 * radius * n)
    slow = n / batch + 2.0 * radius * n / np.sqrt(batch * weight * width)
    return StepSizes(float(sigma), float(tau), float(1.0 - 1.0 / slow))


def _epochs_to_go(made: int, every: int, limits: Limits) -> int:
    """Epochs until the gap is computed again."""
    return min(max(made, 1), every, limits.iterations or every)


def _result(best: tuple[float, Array, Array], target: float, epochs: int) -> SubproblemResult:
    gap, x, theta = best
    status = "optimal" if gap <= target else "inaccurate"
    return SubproblemResult(status, x, theta, info={"epochs": epochs, "gap": gap})


# -- compiled loops -------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def sdca_epoch(order, rows, squares, regulariser, terms, theta, v):  # type: ignore[no-untyped-def]
    """One epoch of SDCA: an exact step on the model of each dual coordinate.

    The dual is bounded below by its quadratic model with ``||a_i||^2_{M^-1}`` (`squares`);
    ``v = -(A' theta + q)`` follows theta.
    """
    indptr, indices, data = rows
    weight, kappa, _ = regulariser
    b, e, q, lo, hi = terms
    for k in range(order.size):
        i = order[k]
        t = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            z = v[j]
            if z > kappa[j]:
                t += data[p] * (z - kappa[j]) / weight[j]
            elif z < -kappa[j]:
                t += data[p] * (z + kappa[j]) / weight[j]
        curvature = squares[i] + q[i]
        z = t - b[i] + squares[i] * theta[i]
        z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
        if curvature > 0.0:
            new = min(max(z / curvature, lo[i]), hi[i])
        else:
            new = hi[i] if z > 0.0 else (lo[i] if z < 0.0 else 0.0)
        step = new - theta[i]
        if step != 0.0:
            theta[i] = new
            for p in range(indptr[i], indptr[i + 1]):
                v[indices[p]] -= step * data[p]


@compiled(fastmath=SUMS)
def spdc_epoch(  # type: ignore[no-untyped-def]
    order, batch, rows, regulariser, terms, sizes, theta, primal
):
    """One epoch of SPDC in batches of terms: dual steps on a batch, then a primal step."""
    indptr, indices, data = rows
    weight, kappa, linear = regulariser
    b, e, q, lo, hi = terms
    sigma, tau, momentum = sizes
    x, extrapolated, At_theta = primal
    n, change = order.size, np.empty(x.size)  # of A' theta by a batch
    for start in range(0, n, batch):
        stop = min(start + batch, n)
        share = n / (stop - start)
        for j in range(x.size):
            change[j] = 0.0
        for k in range(start, stop):
            i = order[k]
            t = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                t += data[p] * extrapolated[indices[p]]
            z = t - b[i] + theta[i] / sigma
            z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
            new = min(max(z / (q[i] + 1.0 / sigma), lo[i]), hi[i])
            step = new - theta[i]
            if step != 0.0:
                theta[i] = new
                for p in range(indptr[i], indptr[i + 1]):
                    change[indices[p]] += step * data[p]
        for j in range(x.size):
            gradient = At_theta[j] + share * change[j] + linear[j]
            z = x[j] / tau - gradient
            threshold = kappa[j]
            z = z - threshold if z > threshold else (z + threshold if z < -threshold else 0.0)
            new = z / (weight[j] + 1.0 / tau)
            extrapolated[j] = new + momentum * (new - x[j])
            x[j] = new
            At_theta[j] += change[j]
