"""Smooth losses: M eliminated, accelerated proximal gradient on (U, b).

What is left of the penalty is the spectral box norm of U, whose prox has a closed form; the smooth
part is the sum of the losses, so neither its Lipschitz constant nor its domain depends on eta. The
features are centred task by task, which the free intercepts absorb.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.multitask.joint import Record
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.rounds import Outcome, Round
from cvxscreen.prox import spectral_box_norm_prox
from cvxscreen.solvers.apg import fista

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SmoothFista:
    """Settings of the accelerated gradient on (U, b).

    Parameters
    ----------
    max_rounds : int
    check : int
        Iterations between two evaluations of the joint gap.
    """

    max_rounds: int = 20_000
    check: int = 10

    def __call__(
        self,
        problem: MultiTask,
        target: float,
        on_round: Callable[[Round], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> Outcome:
        """Iterate until the joint relative gap is at most `target`."""
        if not problem.smooth:
            raise InvalidInput(
                f"`solver` is 'fista', which needs a smooth loss; {problem.loss!r} has kinks."
            )
        run = _Losses(problem, Record(problem, target, on_round, limits), self.check)
        start = np.zeros((problem.d + 1, problem.m))
        fista(
            run, run.prox, start, run.stop, lipschitz=run.guess(), max_iterations=self.max_rounds
        )
        return run.record.outcome()


class _Losses:
    """The losses in ``Z = [U; b / scale]``, features centred."""

    def __init__(self, problem: MultiTask, record: Record, check: int) -> None:
        self.problem, self.record, self.check = problem, record, check
        self.means = [X.mean(axis=0) for X in problem.X]
        self.X = [X - mean for X, mean in zip(problem.X, self.means, strict=True)]
        squares = sum(float(np.vdot(X, X)) for X in self.X)
        usual = np.sqrt(squares / (problem.n * problem.d))
        self.scale = float(usual) if usual > 0 else 1.0

    def guess(self) -> float:
        """A first L: curvature of the losses at the scale of one feature."""
        return self.scale**2 * float(np.max(1.0 / self.problem.losses.q)) * min(self.problem.sizes)

    def predictions(self, Z: Array) -> Array:
        """Of every sample, shape (n,)."""
        b = Z[-1] * self.scale
        return np.concatenate([X @ Z[:-1, k] + b[k] for k, X in enumerate(self.X)])

    def value(self, Z: Array) -> float:
        """The sum of the losses."""
        return float(np.sum(self.problem.losses.value(self.predictions(Z))))

    def value_gradient(self, Z: Array) -> tuple[float, Array]:
        """The sum of the losses and its gradient."""
        p, f = self.predictions(Z), self.problem.losses
        slopes = self.problem.split(f.slope(p))
        gradient = np.empty_like(Z)
        for k, (X, theta) in enumerate(zip(self.X, slopes, strict=True)):
            gradient[:-1, k] = theta @ X
            gradient[-1, k] = self.scale * float(theta.sum())
        return float(np.sum(f.value(p))), gradient

    def prox(self, Z: Array, step: float) -> Array:
        """The spectral box norm on U; the intercepts are free."""
        problem = self.problem
        U = spectral_box_norm_prox(Z[:-1], problem.c * step, problem.eta, problem.h)
        return np.vstack([U, Z[-1:]])

    def stop(self, Z: Array, k: int) -> bool:
        """The joint gap now and then, at the best intercepts for U."""
        if k % self.check:
            return False
        problem = self.problem
        p = self.predictions(Z)
        shift = balancing_shift(problem, p)
        p = p + np.repeat(shift, problem.sizes)
        U = Z[:-1]
        moved = np.array([float(mean @ U[:, k]) for k, mean in enumerate(self.means)])
        self.record.offer(U, Z[-1] * self.scale + shift - moved, p, problem.losses.slope(p))
        self.record.note(self.check)
        return self.record.done


def balancing_shift(problem: MultiTask, p: Array) -> Array:
    """What to add to every task's predictions so that its slopes sum to 0, by bisection.

    Where one sign of slope is all there is (one class), the least shift that silences it.
    """
    f, sizes = problem.losses, np.array(problem.sizes)
    starts = [part.start for part in problem.parts]
    centre = f.b - p
    reach = np.maximum.reduceat(np.abs(centre) + f.e, starts) + 1.0
    low, high = -reach, reach
    for _ in range(70):
        middle = 0.5 * (low + high)
        total = np.add.reduceat(f.slope(p + np.repeat(middle, sizes)), starts)
        low, high = np.where(total < 0, middle, low), np.where(total < 0, high, middle)
    return np.asarray(high)
