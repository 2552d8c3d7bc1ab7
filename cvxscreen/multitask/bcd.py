"""Block coordinate descent on (U, b) and M, with accelerated steps in M.

Minimising over (U, b) leaves ``J(M)``, convex and differentiable; the two exact block steps are a
majorise-minimise iteration on it (Chen et al. 2013, Algorithm 2, started inside the set: from a
projector directions once given up return slowly). Anderson's extrapolation of M is kept only where
J, which the next U-step gives for free, has not grown. The loop ends on the joint duality gap, not
on the change of the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.bounds import LEAST, Screen
from cvxscreen.multitask.gap import Algorithm, Dual, Primal, RunRecord
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.task_solver import Fixed, Stacked, TaskPoint, cold, solve_task

Array = NDArray[np.float64]

MEMORY = 6
_CONDITION = 1e-10


class Anderson:
    """Least-squares combination of the last few images of ``x -> G(x)``.

    Type II: with residuals ``r_k = G(x_k) - x_k`` the combination of the ``r_k`` with coefficients
    summing to 1 that is smallest, applied to the ``G(x_k)`` (Walker and Ni 2011).
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self.memory = memory
        self.images: list[Array] = []
        self.residuals: list[Array] = []

    def clear(self) -> None:
        """Forget everything."""
        self.images, self.residuals = [], []

    def push(self, x: Array, image: Array) -> Array | None:
        """RunRecord ``G(x) = image``; an extrapolated point, or None while there is no history."""
        self.images.append(image.ravel().copy())
        self.residuals.append((image - x).ravel())
        if len(self.images) > self.memory + 1:
            del self.images[0], self.residuals[0]
        if len(self.images) < 2:
            return None
        last = self.residuals[-1]
        steps = np.column_stack([r - last for r in self.residuals[:-1]])
        moves = np.column_stack([g - self.images[-1] for g in self.images[:-1]])
        weights = np.linalg.lstsq(steps, -last, rcond=_CONDITION)[0]
        return np.asarray((self.images[-1] + moves @ weights).reshape(image.shape))


WAIT = 3
"""U-steps without screening after one that fixed less than a quarter of the samples."""

Watch = Callable[[Metric, list[TaskPoint], NDArray[np.int8] | None], None]


@dataclass(frozen=True)
class Bcd(Algorithm):
    """Settings of the block coordinate descent.

    Parameters
    ----------
    accelerate : bool
        Whether to extrapolate M.
    screening : bool
        Whether to fix in the U-steps what the midpoint ball proves for their M.
    max_rounds : int
    watch : callable, optional
        Gets the metric, the points and the decisions of every U-step (for tests).
    """

    accelerate: bool = True
    screening: bool = True
    max_rounds: int = 5000
    watch: Watch | None = None

    def run(self, record: RunRecord, start: tuple[Metric, Array, Array] | None) -> None:
        """U-steps and M-steps until the gap is small enough, from `start` where there is one."""
        run = _Run(record.problem, self, record)
        run.begin(start)
        while not run.record.done and len(run.record.rounds) < self.max_rounds:
            run.round()


class _Run:
    """The state of one call."""

    def __init__(self, problem: MultiTask, settings: Bcd, record: RunRecord) -> None:
        self.problem, self.settings, self.record = problem, settings, record
        self.points = [cold(X) for X in problem.X]
        screened = settings.screening and not problem.smooth
        self.screen = Screen(problem) if screened else None
        self.anderson = Anderson()
        self.tried: Metric | None = None  # the plain next metric while an extrapolated one is tried
        self.level = np.inf
        self.wait = 1  # before the first U-step there is nothing to screen with

    def begin(self, start: tuple[Metric, Array, Array] | None) -> None:
        """Take over a start."""
        problem = self.problem
        if start is None:
            plain = not self.settings.accelerate
            self.metric = problem.flat_metric() if plain else problem.start_metric()
            return
        self.metric, theta, b = start
        V = problem.pull(theta)
        U = self.metric.B @ V
        p, parts = problem.split(problem.predictions(U, b)), problem.split(theta)
        self.points = [
            TaskPoint(parts[k], V[:, k], U[:, k], float(b[k]), p[k]) for k in range(problem.m)
        ]
        self.wait = 0

    def round(self) -> None:
        """U-step, M-step, gap, extrapolation."""
        problem, metric = self.problem, self.metric
        kept, faces = self.u_step(metric)
        U, V, b, p, theta = Stacked.of(self.points)
        loss = float(np.sum(problem.losses.value(p)))
        level = loss + metric.penalty(U)
        plain = Metric.best(U, problem.h, problem.eta, problem.c)
        primal = Primal(U, b, plain, p, loss + plain.penalty(U))
        self.record.judge(primal, Dual.of(theta, V))
        extrapolated = self.tried is not None
        accepted = not extrapolated or level <= self.level * (1.0 + 1e-14)
        if accepted:
            self.level = level
            self.advance(metric, plain)
        else:
            self.metric, self.tried = self.tried or plain, None
            self.anderson.clear()
        self.record.note(faces, kept=kept, accelerated=extrapolated and accepted)

    def u_step(self, metric: Metric) -> tuple[int, int]:
        """Solve every task at `metric`; the terms not fixed, and the Newton steps taken."""
        problem = self.problem
        codes = None
        fixings: list[Fixed | None] = [None] * problem.m
        if self.screen is not None and self.wait == 0:
            codes, fixings = self.screen.decide(metric, self.points)
        self.wait = max(self.wait - 1, 0)
        kept = faces = 0
        for k, (X, losses) in enumerate(zip(problem.X, problem.task_losses, strict=True)):
            fixed = fixings[k]
            self.points[k] = solve_task(X, losses, metric, self.points[k], fixed=fixed)
            kept += len(losses) if fixed is None else len(fixed.kept)
            faces += self.points[k].faces
        if codes is not None and kept > (1.0 - LEAST) * problem.n:
            self.wait = WAIT  # M still moves too fast
        if self.settings.watch is not None:
            self.settings.watch(metric, list(self.points), codes)
        return kept, faces

    def advance(self, metric: Metric, plain: Metric) -> None:
        """The next metric: the plain one or an extrapolation of the last few."""
        problem = self.problem
        self.metric, self.tried = plain, None
        if not self.settings.accelerate:
            return
        guess = self.anderson.push(metric.M, plain.M)
        if guess is not None and np.isfinite(guess).all():
            self.metric, self.tried = problem.metric(guess), plain
