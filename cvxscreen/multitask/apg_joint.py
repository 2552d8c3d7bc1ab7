"""Accelerated projected gradient on (U, M) together, the loss in the prox: a reference.

The smooth part is ``c tr(U' (eta I + M)^{-1} U)``; the prox is one quadratic program a task and the
projection of M onto the Fantope (Chen et al. 2013, Appendix B.2). Its gradient has no global
Lipschitz constant and is defined for ``eta I + M > 0`` only, so the form whose search point stays
in the set is the default: with the printed one the search point leaves the domain for small eta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.multitask.intercepts import Intercepts
from cvxscreen.multitask.joint import Record
from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.rounds import Outcome, Round
from cvxscreen.multitask.smooth import balancing_shift
from cvxscreen.multitask.ustep import cold, solve_task
from cvxscreen.prox import fantope
from cvxscreen.solvers.apg import auslender_teboulle, fista

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ApgJoint:
    """Settings of the joint accelerated gradient.

    Parameters
    ----------
    printed : bool
        Use Algorithm 1 as printed (no restart, the search point may leave the set).
    max_rounds : int
    """

    printed: bool = False
    max_rounds: int = 10_000

    def __call__(
        self,
        problem: MultiTask,
        target: float,
        on_round: Callable[[Round], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> Outcome:
        """Iterate until the joint relative gap is at most `target`."""
        run = Coupling(problem, Record(problem, target, on_round, limits))
        start = np.hstack([np.zeros((problem.d, problem.m)), problem.start_metric().M])
        first = 2.0 * problem.c / (problem.eta + problem.h / problem.d)
        settings = {"lipschitz": first, "max_iterations": self.max_rounds}
        if self.printed:
            fista(run, run.prox, start, run.stop, restart=False, **settings)  # type: ignore[arg-type]
        else:
            auslender_teboulle(run, run.prox, start, run.stop, **settings)  # type: ignore[arg-type]
        return run.record.outcome()


class Coupling:
    """The coupling of ``Z = [U, M]`` and the prox of the rest.

    Attributes
    ----------
    outside : int
        Evaluations at a point where ``eta I + M`` is not positive definite.
    """

    def __init__(self, problem: MultiTask, record: Record) -> None:
        self.problem, self.record = problem, record
        self.points = [cold(X) for X in problem.X]
        self.intercepts = None if problem.smooth else Intercepts(problem)
        self.outside = 0

    def value(self, Z: Array) -> float:
        """``c tr(U' A^{-1} U)``."""
        return self.value_gradient(Z)[0]

    def value_gradient(self, Z: Array) -> tuple[float, Array]:
        """``c tr(U' A^{-1} U)``, with ``2 c A^{-1} U`` and ``-c A^{-1} U U' A^{-1}``."""
        problem = self.problem
        U, M = Z[:, : problem.m], Z[:, problem.m :]
        A = 0.5 * (M + M.T) + problem.eta * np.eye(problem.d)
        values, vectors = np.linalg.eigh(A)
        if values[0] <= 0:
            self.outside += 1
        inner = vectors @ ((vectors.T @ U) / values[:, None])
        gradient = np.hstack([2.0 * problem.c * inner, -problem.c * (inner @ inner.T)])
        return problem.c * float(np.sum(U * inner)), gradient

    def prox(self, Z: Array, step: float) -> Array:
        """One quadratic program a task, and the Fantope."""
        problem, m = self.problem, self.problem.m
        metric = Metric.plain(problem.d, 1.0 / step)
        tables = zip(problem.X, problem.task_losses, self.points, strict=True)
        self.points = [
            solve_task(X, losses, metric, point, centre=Z[:, k])
            for k, (X, losses, point) in enumerate(tables)
        ]
        U = np.column_stack([point.u for point in self.points])
        return np.hstack([U, fantope(Z[:, m:], problem.h)])

    def stop(self, Z: Array, k: int) -> bool:
        """The joint gap of Z with the slopes of the last prox."""
        problem = self.problem
        U = Z[:, : problem.m]
        scores = problem.predictions(U, np.zeros(problem.m))
        b = self.best_intercepts(scores)
        theta = np.concatenate([point.theta for point in self.points])
        self.record.offer(U, b, scores + np.repeat(b, problem.sizes), theta)
        self.record.note(1)
        return self.record.done

    def best_intercepts(self, scores: Array) -> Array:
        """An optimal intercept of every task for these scores."""
        if self.intercepts is None:
            return balancing_shift(self.problem, scores)
        low, high = self.intercepts.ranges(scores, np.zeros(len(scores)))
        low = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
        high = np.where(np.isfinite(high), high, low)
        return np.asarray(0.5 * (low + high))
