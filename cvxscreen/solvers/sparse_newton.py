"""The built-in solver under an L1 term: proximal Newton steps on the features that move.

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
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.columns import by_columns, column_major
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.losses import Losses
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import InnerResult, Start
from cvxscreen.solvers.sparse_factor import Known
from cvxscreen.solvers.sparse_loops import loops
from cvxscreen.solvers.sparse_model import Model
from cvxscreen.solvers.sparse_search import best_length

Array = NDArray[np.float64]

SMOOTHINGS = 40
INSIDE = 1e-6
"""A feature whose pull is by this share short of its weight is 0 at the optimum."""
LEAST, FIRST, MOST = 1e-8, 1e-4, 1.0
"""Damping of a step without a quadratic term, as a share of the columns' curvatures: after good
steps, at first, after bad ones."""


def takes(problem: Problem) -> bool:
    """Whether the solvers under an L1 term accept `problem`."""
    fits = isinstance(problem.penalty, L1) and isinstance(problem.design, Rows)
    return fits and (problem.held or bool((problem.quadratic.diagonal > 0).all()))


def require(problem: Problem, name: str) -> tuple[Rows, L1]:
    """The design and penalty of a problem with an L1 term, or a clear refusal."""
    if not takes(problem) or (problem.held and name != "builtin"):
        raise InvalidInput(
            f"`solver` {name!r} needs rows of data, an L1 term and a quadratic term on every "
            "coordinate; use another solver."
        )
    return problem.design, problem.penalty  # type: ignore[return-value]


@dataclass(eq=False)
class _State:
    """A primal point with what one evaluation tells."""

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
    damping: float = 0.0
    theta: Array = field(init=False)
    slope: Array = field(init=False)
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        self.turned = self.matrix.T  # once: scipy checks what it transposes

    def evaluate(self) -> None:
        """Slopes, gradient and gap at x; one pass."""
        self.theta = self.losses.slope(self.t)
        self.slope, self.gap = self.judged(self.theta, self.losses)

    def judged(self, theta: Array, losses: Losses) -> tuple[Array, float]:
        """The pull of `theta` and the gap of (x, theta) under `losses`."""
        pull = np.asarray(self.turned @ theta) + self.problem.linear
        if self.problem.held:  # the share of theta that is feasible
            share = 1.0 / max(float(np.max(np.abs(pull) / self.kappa, initial=0.0)), 1.0)
            gap = float((self.kappa * np.abs(self.x) + share * pull * self.x).sum())
            return pull, gap + float(losses.fenchel_young(self.t, share * theta).sum())
        s = np.clip(-pull, -self.kappa, self.kappa)
        away = self.x - (-pull - s) / self.weight
        gap = 0.5 * float(self.weight @ away**2)
        gap += float(np.abs(self.x) @ np.where(self.x >= 0, self.kappa - s, self.kappa + s))
        gap += float(losses.fenchel_young(self.t, theta).sum())
        return pull, gap

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

    def moved(self, features: NDArray[np.intp], step: Array) -> Array:
        """``A`` times a step on some features."""
        if not sp.issparse(self.matrix):
            full = np.zeros(len(self.x))
            full[features] = step
            return np.asarray(self.matrix @ full)
        out = np.zeros(len(self.t))
        arrays = self.matrix.indptr, self.matrix.indices, self.matrix.data
        loops().add_columns(features, *arrays, step, out)
        return out

    def value(self, x: Array, t: Array) -> float:
        """The objective of the (smoothed) problem."""
        return float(
            self.losses.value(t).sum() + self.problem.linear @ x
            + 0.5 * self.weight @ x**2 + self.kappa @ np.abs(x)
        )


def _model(state: _State, active: NDArray[np.intp]) -> Model:
    """The quadratic model around the state's point on the `active` features."""
    losses, theta = state.losses, state.theta
    inside = (theta > losses.lo) & (theta < losses.hi)
    inside &= (theta != 0) | (losses.e == 0) & (losses.lo < 0) & (losses.hi > 0)
    rows = np.flatnonzero(inside)
    factor = np.zeros(len(theta))
    factor[rows] = 1.0 / np.sqrt(losses.q[rows])
    x, weight = state.x[active], state.weight[active]
    slope = state.slope[active] + weight * x
    if state.damping > 0:
        weight = weight + state.damping * state.problem.column_norms[active] ** 2
    return Model.around(
        state.matrix, active, rows, factor, weight, state.kappa[active], slope, x,
        Known.of(state.problem.design),
    )


def _advance(state: _State, cold: bool) -> bool:
    """One proximal Newton step with a line search; whether the objective decreased."""
    active = np.arange(len(state.x))
    if state.moving:
        active = np.flatnonzero((state.x != 0) | (np.abs(state.slope) > state.kappa))
    if not len(active):
        return False
    model = _model(state, active)
    state.sweeps += model.minimise(cold)
    state.steps += 1
    predicted = model.value(model.d, model.u)
    if not predicted < 0:
        return False
    dt = state.moved(active, model.d)
    here, length = state.value(state.x, state.t), 1.0
    if state.damping > 0:
        place = state.x[active], state.kappa[active], state.t
        length = best_length(*place, state.losses, model.d, dt)
    for _ in range(30):
        x = state.x.copy()
        x[active] += length * model.d
        t = state.t + length * dt
        if state.value(x, t) <= here + 1e-3 * min(length, 1.0) * predicted:
            if state.steps % 20 == 0:
                t = np.asarray(state.matrix @ x)  # the running sum drifts
            state.x, state.t = x, t
            state.damp(length)
            return True
        length *= 0.5
    return False


@dataclass(frozen=True)
class ProxNewton:
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
    quick: ClassVar[bool] = True
    """A solve takes a handful of passes: it is not interrupted for proofs."""

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> InnerResult:
        """Solve until the duality gap is at most `target` (absolute).

        Raises
        ------
        InvalidInput
            If the problem has no L1 term, or a coordinate without a quadratic one.
        """
        design, penalty = require(problem, "builtin")
        x = np.zeros(problem.d) if start is None else np.array(start.x, dtype=np.float64)
        matrix = by_columns(design) if design.sparse else column_major(design)
        state = _State(problem, matrix, penalty.kappa, problem.quadratic.diagonal, x,
                       np.asarray(matrix @ x), problem.losses, self.moving,
                       damping=FIRST if problem.held else 0.0)
        sharp = (problem.losses.q == 0) & (problem.losses.lo < problem.losses.hi)
        if sharp.any():
            theta = self._kinked(state, sharp, start, target)
        else:
            self._smooth(state, target, start is None)
            theta = state.theta
        status = "optimal" if state.gap <= target else "inaccurate"
        info = {"steps": state.steps, "sweeps": state.sweeps, "gap": state.gap}
        return InnerResult(status, state.x, theta, info=info)

    def _smooth(self, state: _State, target: float, cold: bool) -> None:
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
        if state.problem.held:
            state.dust(target)

    def _kinked(
        self, state: _State, sharp: NDArray[np.bool_], start: Start | None, target: float
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
