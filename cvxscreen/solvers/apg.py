"""Accelerated proximal gradient: the method, and the solver of a `Problem` with smooth losses.

The method minimises ``f + g``, f smooth and g with a proximal operator, over arrays of any shape.
Two forms of the same scheme:

* `fista` with a gradient restart (Chen et al. 2013, Algorithm 1; O'Donoghue and Candes 2015 for the
  restart), for f that is finite and convex everywhere: its search point leaves the domain of g;
* `auslender_teboulle`, whose search point is a convex combination of points of the domain, for f
  that must not be evaluated outside (Tseng 2008, Algorithm 1).

The step comes from a backtracking search on ``f(x+) <= f(x) + <f'(x), x+ - x> + L/2 ||x+ - x||^2``
with a slack for rounding; near the optimum, where the two sides agree to all digits, on
``<f'(x+) - f'(x), x+ - x> <= L ||x+ - x||^2``, which is the same for a quadratic f.
L decreases at restarts only, as the proof asks. Whether to stop is the caller's business: by the
duality gap, not by the change of the objective.

`Apg` is the solver: the losses are f; the quadratic and linear terms go into the prox (a division,
or one eigendecomposition where the quadratic has a dense part), and so does a penalty (L1, a cone),
whose `Penalty.prox_and_subgradient` at another diagonal is just that prox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import dual_feasible, estimated_gap, reference_point
from cvxscreen.core.losses import kinked
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver

Array = NDArray[np.float64]

FLAT = 1e-10
"""Below this share of the value the quadratic part of the model is lost in the value's rounding."""
VALUE_ROUNDING = 1e-13
"""Relative rounding of a value of f that the line search forgives."""
RELAX = 0.7
"""At a restart L is tried this much smaller: smaller values cost a doubling each time."""
MOST_DOUBLINGS = 100
"""Of L in one search: a factor of 1e30 above any sensible guess."""


class SmoothFunction(Protocol):
    """A convex function with a Lipschitz gradient."""

    def value(self, x: Array) -> float:
        """``f(x)``."""
        ...

    def value_gradient(self, x: Array) -> tuple[float, Array]:
        """``f(x)`` and its gradient."""
        ...


Prox = Callable[[Array, float], Array]
"""``(z, step) -> argmin_x g(x) + ||x - z||^2 / (2 step)``."""

Stop = Callable[[Array, int], bool]
"""Called with every iterate and its number; True ends the run."""


class Momentum(Immutable):
    """What a run of `fista` holds beside its iterate: its search point, the weight of its past, L.

    Another run, of the same or a slightly different problem, that goes on with it loses nothing.
    """

    search: Array
    weight: float
    lipschitz: float

    def take(self, index: NDArray[np.intp]) -> Momentum:
        """What a run over the coordinates at `index` alone goes on with."""
        return replace(self, search=self.search[index])


class ApgResult(Immutable):
    """Where a run ended.

    Attributes
    ----------
    x : array
    iterations : int
    lipschitz : float
        The last L, for a warm start.
    restarts : int
    stopped : bool
        Whether `stop` ended it, rather than the limit of iterations.
    momentum : Momentum or None
        For `fista` to go on with.
    """

    x: Array
    iterations: int
    lipschitz: float
    restarts: int
    stopped: bool
    momentum: Momentum | None = None


def _inner(a: Array, b: Array) -> float:
    return float(np.vdot(a, b))


def _backtrack(
    smooth: SmoothFunction, take: Callable[[float], tuple[Array, Array]], base: Array, value: float,
    gradient: Array, lipschitz: float,
) -> tuple[Array, Array, float]:
    """Double L until the quadratic model at `base` lies above f at the new point.

    `take` maps L to the prox point and the new iterate.
    """
    for _ in range(MOST_DOUBLINGS):
        point, new = take(lipschitz)
        move = new - base
        found, rise = smooth.value(new), 0.5 * lipschitz * _inner(move, move)
        size = max(abs(value), abs(found))
        if rise <= FLAT * size:
            # Values agree to too many digits to tell; gradients along the move still differ.
            if (
                _inner(smooth.value_gradient(new)[1] - gradient, move)
                <= 2.0 * rise + VALUE_ROUNDING * rise
            ):
                break
        elif found <= value + _inner(gradient, move) + rise + VALUE_ROUNDING * size:
            break
        lipschitz *= 2.0
    return point, new, lipschitz


def fista(
    smooth: SmoothFunction,
    prox: Prox,
    start: Array,
    stop: Stop,
    *,
    lipschitz: float = 1.0,
    max_iterations: int = 10_000,
    restart: bool = True,
    momentum: Momentum | None = None,
) -> ApgResult:
    """FISTA from `start`.

    Parameters
    ----------
    smooth : Smooth
    prox : callable
    start : array
    stop : callable
    lipschitz : float
        First guess of L; it only grows between restarts.
    max_iterations : int
    restart : bool
        Whether momentum is dropped when it points uphill.
    momentum : Momentum, optional
        To go on with from `start`; its L takes the place of `lipschitz`.
    """
    z = s = np.array(start, dtype=np.float64)
    t, restarts = 1.0, 0
    if momentum is not None:
        s, t, lipschitz = momentum.search, momentum.weight, momentum.lipschitz
    for k in range(max_iterations):
        if stop(z, k):
            return ApgResult(z, k, lipschitz, restarts, True, Momentum(s, t, lipschitz))
        value, gradient = smooth.value_gradient(s)

        def take(L: float, s: Array = s, gradient: Array = gradient) -> tuple[Array, Array]:
            point = prox(s - gradient / L, 1.0 / L)
            return point, point

        new, _, lipschitz = _backtrack(smooth, take, s, value, gradient, lipschitz)
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        if restart and _inner(s - new, new - z) > 0.0:
            t, s, z, restarts = 1.0, new, new, restarts + 1
            lipschitz *= RELAX
        else:
            s = new + ((t - 1.0) / grown) * (new - z)
            t, z = grown, new
    return ApgResult(z, max_iterations, lipschitz, restarts, bool(stop(z, max_iterations)))


def auslender_teboulle(
    smooth: SmoothFunction,
    prox: Prox,
    start: Array,
    stop: Stop,
    *,
    lipschitz: float = 1.0,
    max_iterations: int = 10_000,
    restart: bool = True,
) -> ApgResult:
    """The form whose search point stays in the domain; arguments as of `fista`.

    A function restart would never fire here (the scheme is monotone); the gradient test does.
    """
    z = w = np.array(start, dtype=np.float64)
    theta, restarts = 1.0, 0
    for k in range(max_iterations):
        if stop(z, k):
            return ApgResult(z, k, lipschitz, restarts, True)
        y = (1.0 - theta) * z + theta * w
        value, gradient = smooth.value_gradient(y)

        def take(
            L: float, z: Array = z, w: Array = w, gradient: Array = gradient, theta: float = theta
        ) -> tuple[Array, Array]:
            step = 1.0 / (theta * L)
            point = prox(w - step * gradient, step)
            return point, (1.0 - theta) * z + theta * point

        point, new, lipschitz = _backtrack(smooth, take, y, value, gradient, lipschitz)
        if restart and _inner(y - new, new - z) > 0.0:
            z = w = new
            theta, restarts = 1.0, restarts + 1
            lipschitz *= RELAX
        else:
            z, w = new, point
            theta = 0.5 * (np.sqrt(theta**4 + 4.0 * theta**2) - theta**2)
    return ApgResult(z, max_iterations, lipschitz, restarts, bool(stop(z, max_iterations)))


@dataclass(frozen=True)
class Apg(SubproblemSolver):
    """Accelerated proximal gradient (Chen et al. 2013, Appendix A) on smooth problems.

    Parameters
    ----------
    max_iterations : int
    check : int
        Iterations between two evaluations of the duality gap.
    limits : Limits
        Of the whole call.
    """

    max_iterations: int = 20_000
    check: int = 10
    name: str = "APG"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Raises
        ------
        InvalidInput
            If a loss has a kink, the problem has side constraints or is a kernel problem.
        """
        refuse(problem)
        run = SmoothPart(problem, target, self.check, self.limits)
        first = np.zeros(problem.d) if start is None else np.array(start.x, dtype=np.float64)
        first = first / run.scale
        momentum = None if start is None else start.state
        result = fista(
            run, run.prox, first, run.stop, lipschitz=run.guess(),
            max_iterations=self.max_iterations,
            momentum=momentum if isinstance(momentum, Momentum) else None,
        )
        info = {
            "steps": result.iterations, "passes": run.passes, "gap": run.gap,
            "restarts": result.restarts, "lipschitz": result.lipschitz,
        }
        status = "optimal" if run.gap <= target else "inaccurate"
        return SubproblemResult(status, run.x, run.theta, info=info, state=result.momentum)


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


class SmoothPart:
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

    def prox(self, z: Array, step: float) -> Array:
        """Prox of the quadratic and linear terms."""
        quadratic, penalty = self.problem.quadratic, self.problem.penalty
        if penalty is not None:
            return penalty.prox_and_subgradient(
                z / step - self.linear, quadratic.diagonal + 1.0 / step
            )[0]
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
            point = reference_point(problem, problem.penalty.project(x))
            self.passes += 2
            if point.gap < self.gap:
                self.gap, self.x, self.theta = point.gap, point.x, point.theta
            return over or self.gap <= self.target
        margins = problem.design.forward(x)
        theta, _ = dual_feasible(problem, problem.losses.slope(margins), None, margins)
        gap = estimated_gap(problem, x, theta, margins, problem.design.adjoint(theta))
        self.passes += 2
        if gap < self.gap:
            self.gap, self.x, self.theta = gap, x, theta
        return over or self.gap <= self.target
