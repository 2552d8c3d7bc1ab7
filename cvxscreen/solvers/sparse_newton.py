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
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen.columns import by_columns, column_major
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.losses import Losses
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import InnerResult, Start
from cvxscreen.solvers.sparse_search import best_length
from cvxscreen.solvers.sparse_state import State

Array = NDArray[np.float64]

SMOOTHINGS = 40


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
        return InnerResult(status, state.x, theta, info=info)

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
        if state.problem.held:
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
