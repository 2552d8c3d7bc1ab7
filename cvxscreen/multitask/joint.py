"""What the first-order methods on the joint problem share: best point, proof and stopping."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.multitask.gap import Dual, Primal, joint_gap
from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.rounds import Outcome, Round

Array = NDArray[np.float64]


class Record:
    """The lowest objective and the highest bound so far, and the gap between them."""

    def __init__(
        self,
        problem: MultiTask,
        target: float,
        on_round: Callable[[Round], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        self.problem, self.target, self.on_round = problem, target, on_round
        self.limits = limits
        self.best: Primal | None = None
        self.proof: Dual | None = None
        self.floor = -np.inf
        self.gap = np.inf
        self.rounds: list[Round] = []
        self.began = perf_counter()

    def offer(self, U: Array, b: Array, p: Array, theta: Array) -> None:
        """Consider a primal point, at its best M, and a dual one."""
        problem = self.problem
        metric = Metric.best(U, problem.h, problem.eta, problem.c)
        primal = Primal.of(problem, U, b, metric, p)
        dual = Dual.of(theta, problem.pull(theta))
        self.judge(primal, dual)

    def judge(self, primal: Primal, dual: Dual) -> None:
        """The same for points that are evaluated already."""
        floor = dual.value(self.problem)
        if self.best is None or primal.value < self.best.value:
            self.best = primal
        if self.proof is None or floor > self.floor:
            self.proof, self.floor = dual, floor
        self.gap = joint_gap(self.problem, self.best, self.proof)

    @property
    def relative(self) -> float:
        """The gap over ``max(|primal|, |dual|)``."""
        if self.best is None:
            return float("inf")
        value = self.best.value
        return self.gap / max(abs(value), abs(value - self.gap), 1e-300)

    @property
    def done(self) -> bool:
        """Whether the target is reached, or a limit once there is a point."""
        return self.relative <= self.target or (self.best is not None and self.limits.spent())

    def note(self, steps: int, *, kept: int | None = None, accelerated: bool = False) -> None:
        """Add a round to the record."""
        now = perf_counter()
        self.limits.spent(1)
        done = Round(
            number=len(self.rounds) + 1,
            objective=self.best.value if self.best else float("nan"),
            gap=self.gap,
            relative_gap=self.relative,
            kept=self.problem.n if kept is None else kept,
            steps=steps,
            accelerated=accelerated,
            seconds=now - self.began,
        )
        self.began = now
        self.rounds.append(done)
        if self.on_round is not None:
            self.on_round(done)

    def outcome(self) -> Outcome:
        """What was found."""
        if self.best is None or self.proof is None:
            raise RuntimeError("no round was run")
        best = self.best
        return Outcome(best.U, best.b, best.metric, self.proof.theta, tuple(self.rounds))
