"""ADMM on a copy of U: every task's own prox, then the prox of the spectral box norm.

``min sum_l f_l(u_l, b_l) + c Omega(W)`` with ``U = W``; M is eliminated, so its set is never left.
The tasks' quadratic term is ``rho/2 ||u - w + l||^2`` throughout: no metric changes. The weight rho
follows the two residuals (Boyd et al. 2011, 3.4.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.multitask.joint import Record
from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.rounds import Outcome, Round
from cvxscreen.multitask.ustep import cold, solve_task
from cvxscreen.prox import spectral_box_norm_prox


@dataclass(frozen=True)
class Admm:
    """Settings of the alternating direction method.

    Parameters
    ----------
    max_rounds : int
    adapt : float
        Ratio of the residuals beyond which rho is doubled or halved.
    """

    max_rounds: int = 5000
    adapt: float = 3.0

    def __call__(
        self,
        problem: MultiTask,
        target: float,
        on_round: Callable[[Round], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> Outcome:
        """Iterate until the joint relative gap is at most `target`."""
        record = Record(problem, target, on_round, limits)
        rho = problem.c / problem.eta
        W = scaled = np.zeros((problem.d, problem.m))
        points = [cold(X) for X in problem.X]
        tables = problem.task_losses
        while not record.done and len(record.rounds) < self.max_rounds:
            metric = Metric.plain(problem.d, rho)
            centre = W - scaled
            points = [
                solve_task(X, losses, metric, point, centre=centre[:, k])
                for k, (X, losses, point) in enumerate(zip(problem.X, tables, points, strict=True))
            ]
            U = np.column_stack([point.u for point in points])
            before = W
            W = spectral_box_norm_prox(U + scaled, problem.c / rho, problem.eta, problem.h)
            scaled = scaled + U - W
            b = np.array([point.b for point in points])
            p = np.concatenate([point.p for point in points])
            theta = np.concatenate([point.theta for point in points])
            record.offer(U, b, p, theta)
            record.note(sum(point.faces for point in points))
            primal, dual = np.linalg.norm(U - W), rho * np.linalg.norm(W - before)
            if len(record.rounds) % 5 == 0:
                factor = 1.0
                if primal * rho > self.adapt * dual:
                    factor = 2.0
                elif dual > self.adapt * primal * rho:
                    factor = 0.5
                rho, scaled = rho * factor, scaled / factor
        return record.outcome()
