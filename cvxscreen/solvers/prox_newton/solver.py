"""The built-in solver under an L1 term: proximal Newton steps on the features that move.

Where `ProxNewton` stands: a point, its margins and slopes, and the model around it.

The losses are piecewise quadratic, so around the current margins only the terms on a quadratic
piece bend, ``B = diag(q)^{-1/2} A`` over these, and the model

::

    g'd + 1/2 ||B d||^2 + 1/2 d'M d + kappa' |x + d|

is exact until a term changes its piece. Coordinate descent on it finds the signs, a linear system
on the surviving signs (by Cholesky on the smaller side, or by conjugate gradients) the values.
Losses with a kink are smoothed around the last dual point (proximal point method on the dual): a
smoothed term is again a row of the table of losses, with ``b - s theta0`` and ``q + s``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import unsigned
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.columns import by_columns, column_major
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.prox_newton.loops import loops
from cvxscreen.solvers.prox_newton.model import Model, best_length, table, terms
from cvxscreen.solvers.prox_newton.systems import Known

Array = NDArray[np.float64]
Index = NDArray[np.intp]

INSIDE = 1e-6
"""A feature whose pull is by this share short of its weight is 0 at the optimum."""
ROUNDED = 1.0 - 1e-14
"""So much of what is feasible still is when its pulls are summed in another order, mostly."""
LEAST, FIRST, MOST = 1e-8, 1e-4, 1.0
"""Damping of a step without a quadratic term, as a share of the columns' curvatures: after good
steps, at first, after bad ones."""


@dataclass(eq=False)
class State:
    """A primal point with what one evaluation tells.

    `matrix` is the design by columns; `moving` says whether a step only moves the features that are
    not 0 or pull to leave it.
    """

    problem: Problem
    matrix: Any
    kappa: Array
    weight: Array
    x: Array
    t: Array
    losses: Losses
    moving: bool = True
    steps: int = 0
    sweeps: int = 0
    damping: float = field(init=False)
    theta: Array = field(init=False)
    slope: Array = field(init=False)
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        self.sparse = bool(sp.issparse(self.matrix))
        self.every = np.arange(len(self.x))
        if self.sparse:
            m = self.matrix
            self.columns = *unsigned(m.indptr, m.indices), m.data
        self.damping = FIRST if self.problem.pure_l1 else 0.0

    def evaluate(self) -> None:
        """Slopes, gradient and gap at x; one pass."""
        self.theta = np.empty(len(self.t))
        terms().slopes(self.t, *table(self.losses), self.theta)
        self.slope, self.gap = self.judged(self.theta, self.losses)

    def judged(self, theta: Array, losses: Losses) -> tuple[Array, float]:
        """The pull of `theta` and the gap of (x, theta) under `losses`."""
        pull = self.pull(theta)
        rest = pull, self.t, theta, *table(losses)
        if self.problem.pure_l1:  # of the share of theta that is feasible
            return pull, float(terms().held_gap(self.x, self.kappa, *rest))
        return pull, float(terms().bent_gap(self.x, self.kappa, self.weight, *rest))

    def pull(self, theta: Array) -> Array:
        """``A' theta`` and the linear term."""
        if not self.sparse:
            return np.asarray(self.matrix.T @ theta) + self.problem.linear
        pull = np.empty(len(self.x))
        loops().pull_columns(self.every, *self.columns, theta, pull)
        pull += self.problem.linear
        return pull

    @property
    def share(self) -> float:
        """The share of theta that is feasible, to rounding: all of it with a quadratic term."""
        if not self.problem.pure_l1:
            return 1.0
        return ROUNDED / max(1.0, float(np.max(np.abs(self.slope) / self.kappa, initial=0.0)))

    def active(self) -> Index:
        """The features that the next step moves."""
        if not self.moving:
            return self.every
        found = np.empty(len(self.x), dtype=np.intp)
        return found[: terms().moving(self.x, self.slope, self.kappa, found)]

    def model(self, active: Index) -> Model:
        """The quadratic model around the point on the `active` features."""
        losses, rows = self.losses, np.empty(len(self.t), dtype=np.intp)
        factor = np.empty(len(self.t))
        rows = rows[: terms().bending(self.theta, *table(losses)[1:], rows, factor)]
        x, weight = self.x[active], self.weight[active]
        slope = self.slope[active] + weight * x
        if self.damping > 0:
            weight = weight + self.damping * self.problem.column_norms[active] ** 2
        known = Known.of(self.problem.design)
        return Model.around(
            self.matrix, active, rows, factor, weight, self.kappa[active], slope, x, known
        )

    def moved(self, features: Index, step: Array) -> Array:
        """``A`` times a step on some features."""
        if not self.sparse:
            full = np.zeros(len(self.x))
            full[features] = step
            return np.asarray(self.matrix @ full)
        out = np.zeros(len(self.t))
        loops().add_columns(features, *self.columns, step, out)
        return out

    def change(self, features: Index, d: Array, dt: Array, length: float) -> float:
        """By how much a step on some features changes the objective of the (smoothed) problem."""
        place = self.x[features], d, self.kappa[features], self.weight[features]
        linear = self.problem.linear[features]
        return float(terms().change(*place, linear, self.t, dt, length, *table(self.losses)))

    def dust(self, target: float) -> None:
        """Put to 0 what shortened steps have left of features that pull too little."""
        short = self.slope * np.sign(self.x) > -(1.0 - INSIDE) * self.kappa
        short &= self.x != 0
        if short.any():
            before = self.x, self.t, self.gap
            self.x = np.where(short, 0.0, self.x)
            self.t = np.asarray(self.matrix @ self.x)
            self.evaluate()
            if self.gap > max(target, before[2]):
                self.x, self.t = before[:2]
                self.evaluate()

    def damp(self, length: float) -> None:
        """Less damping after a whole step, more after a part of one."""
        if self.damping > 0:
            share = self.damping * (0.1 if length >= 0.9 else 1.0 if length > 0.3 else 10.0)
            self.damping = min(max(share, LEAST), MOST)


SMOOTHINGS = 40


def takes(problem: Problem) -> bool:
    """Whether the solvers under an L1 term accept `problem`."""
    fits = isinstance(problem.penalty, L1) and isinstance(problem.design, Rows)
    return fits and (problem.pure_l1 or bool((problem.quadratic.diagonal > 0).all()))


def require(problem: Problem, name: str) -> tuple[Rows, L1]:
    """The design and penalty of a problem with an L1 term, or a clear refusal."""
    if not takes(problem) or (problem.pure_l1 and name != "builtin"):
        raise InvalidInput(
            f"`solver` {name!r} needs rows of data, an L1 term and a quadratic term on every "
            "coordinate; use another solver."
        )
    return problem.design, problem.penalty  # type: ignore[return-value]


def _advance(state: State, cold: bool) -> bool:
    """One proximal Newton step with a line search; whether the objective decreased."""
    active = state.active()
    if not len(active):
        return False
    model = state.model(active)
    state.sweeps += model.minimise(cold)
    state.steps += 1
    predicted = model.value(model.d, model.u)
    if not predicted < 0:
        return False
    dt, length = state.moved(active, model.d), 1.0
    if state.damping > 0:
        place = model.x, model.kappa, state.t
        length = best_length(*place, state.losses, model.d, dt)
    for _ in range(30):
        least = 1e-3 * min(length, 1.0) * predicted
        if state.change(active, model.d, dt, length) <= least:
            state.x = state.x.copy()
            state.x[active] += length * model.d
            state.t = state.t + length * dt
            if state.steps % 20 == 0:
                state.t = np.asarray(state.matrix @ state.x)  # the running sum drifts
            state.damp(length)
            return True
        length *= 0.5
    return False


@dataclass(frozen=True)
class ProxNewton(SubproblemSolver):
    """Proximal Newton under an L1 term; see the module's docstring.

    Parameters
    ----------
    max_steps : int
        Newton steps at most.
    moving : bool
        Whether a step only moves the features that are not 0 or pull to leave it; else all of
        them, every time (for comparison: what a solver pays that does not look).
    limits : Limits
        Of the whole call.
    """

    max_steps: int = 500
    moving: bool = True
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)

    @property
    def traits(self) -> SolverTraits:
        """It takes a handful of passes; it looks for its own features where it may."""
        return SolverTraits(
            reaches_target=True, few_iterations=True, selects_features=self.moving
        )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Raises
        ------
        InvalidInput
            If the problem has no L1 term, or a coordinate without a quadratic one.
        """
        design, penalty = require(problem, "builtin")
        x = np.zeros(problem.d) if start is None else np.array(start.x, dtype=np.float64)
        matrix = by_columns(design) if design.sparse else column_major(design)
        state = State(problem, matrix, penalty.kappa, problem.quadratic.diagonal, x,
                      np.asarray(matrix @ x), problem.losses, self.moving)
        sharp = (problem.losses.q == 0) & (problem.losses.lo < problem.losses.hi)
        if sharp.any():
            theta = self._kinked(state, sharp, start, target)
        else:
            self._smooth(state, target, start is None)
            theta = state.theta * state.share
        status = "optimal" if state.gap <= target else "inaccurate"
        info = {"steps": state.steps, "sweeps": state.sweeps, "gap": state.gap}
        return SubproblemResult(status, state.x, theta, info=info)

    def _smooth(self, state: State, target: float, cold: bool) -> None:
        """Newton steps until the gap of the state's losses is small enough or stands still."""
        state.evaluate()
        best, failures = (state.gap, state.x, state.t), 0
        while state.gap > target and state.steps < self.max_steps and failures < 3:
            if self.limits.spent() or not _advance(state, cold):
                break
            self.limits.spent(1)
            state.evaluate()
            failures = 0 if state.gap < 0.9 * best[0] else failures + (best[0] < 1e-9)
            if state.gap < best[0]:
                best = (state.gap, state.x, state.t)
        if state.gap > best[0]:
            _, state.x, state.t = best
            state.evaluate()
        if state.problem.pure_l1:
            state.dust(target)

    def _kinked(
        self, state: State, sharp: NDArray[np.bool_], start: Start | None, target: float
    ) -> Array:
        """Proximal point steps on the dual; each is a smooth problem of the same form."""
        true = state.losses
        span = np.maximum(true.hi - true.lo, 1e-300)
        width = np.where(sharp, 1.0 / np.where(np.isfinite(span), span, 1.0), 0.0)
        theta = true.slope(state.t) if start is None else start.theta
        theta = np.clip(theta, true.lo, true.hi)
        best = (np.inf, state.x, state.t, theta)
        scale, cold, stuck = 0.5, start is None, 0
        for _ in range(SMOOTHINGS):
            soft = scale * width
            state.losses = Losses(true.b - soft * theta, true.e, true.q + soft, true.lo, true.hi)
            self._smooth(state, max(target, 0.1 * min(best[0], 1e300)) * 0.3, cold)
            cold, theta = False, state.theta
            _, gap = state.judged(theta, true)
            stuck = 0 if gap < 0.9 * best[0] else stuck + 1
            if gap < best[0]:
                best = (gap, state.x, state.t, theta)
            if gap <= target or state.steps >= self.max_steps or stuck > 6:
                break
            if self.limits.spent():
                break
            scale = max(0.3 * scale, 1e-6)
        state.gap, state.x, state.t, theta = best
        return theta
