"""The joint duality gap as a sum of non-negative terms, and how an algorithm brings it down.

With ``v_l = -X_l' theta_l``, ``0 = sum theta_l`` and ``A = eta I + M`` the dual is

::

    D(theta) = -sum f*(theta) - (1 / 4c) max over feasible N of tr(V' (eta I + N) V)

and ``P(U, b, M) - D(theta)`` is the sum of the Fenchel-Young terms, ``c ||U - A V / 2c||^2`` in the
metric of ``A^{-1}``, and what M falls short of the maximum, over ``4c``. Each is non-negative, so
none of it is lost to cancellation, as it is in ``P - D``.

An algorithm offers the points it finds to its `RunRecord`, which keeps the best primal and the best
dual one and ends the run on the gap between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.multitask.problem import Metric, MultiTask

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dual:
    """A dual feasible point.

    Attributes
    ----------
    theta : array, shape (n,)
    V : array, shape (d, m)
    W : array, shape (d, k)
        Left singular vectors of V.
    values : array, shape (k,)
        Eigenvalues of ``VV'``, decreasing; the other ``d - k`` are zero.
    """

    theta: Array
    V: Array
    W: Array
    values: Array

    @classmethod
    def of(cls, theta: Array, V: Array) -> Dual:
        """With the singular values worked out."""
        W, s, _ = np.linalg.svd(V, full_matrices=False)
        return cls(theta, V, W, s**2)

    def value(self, problem: MultiTask) -> float:
        """``D(theta)``."""
        f, theta = problem.losses, self.theta
        conjugate = float(np.sum(f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2))
        top = float(self.values[: problem.h].sum()) + problem.eta * float(self.values.sum())
        return -conjugate - top / (4.0 * problem.c)


@dataclass(frozen=True, eq=False)
class Primal:
    """A feasible point with its predictions ``p`` and its objective."""

    U: Array
    b: Array
    metric: Metric
    p: Array
    value: float

    @classmethod
    def of(cls, problem: MultiTask, U: Array, b: Array, metric: Metric, p: Array) -> Primal:
        """With the objective worked out."""
        value = float(np.sum(problem.losses.value(p))) + metric.penalty(U)
        return cls(U, b, metric, p, value)


def spectral_shortfall(metric: Metric, dual: Dual, h: int) -> float:
    """``max tr(N S) - tr(M S)`` over feasible N, ``S = VV'``, term by term."""
    values, k = dual.values, len(dual.values)
    at = values[h - 1] if h <= k else 0.0
    share = np.clip(np.sum((metric.P.T @ dual.W) ** 2 * metric.g[:, None], axis=0), 0.0, 1.0)
    inside = (values[:h] - at) * (1.0 - share[:h])
    outside = (at - values[h:]) * share[h:]
    rest = at * max(float(metric.g.sum()) - float(share.sum()), 0.0)
    return float(inside.sum()) + float(outside.sum()) + rest


def joint_gap(problem: MultiTask, primal: Primal, dual: Dual) -> float:
    """``P(U, b, M) - D(theta)``."""
    metric = primal.metric
    terms = float(np.sum(problem.losses.fenchel_young(primal.p, dual.theta)))
    coupling = metric.penalty(primal.U - metric.B @ dual.V)
    return terms + coupling + spectral_shortfall(metric, dual, problem.h) / (4.0 * problem.c)


# -- the record of a run ------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """One outer iteration.

    Attributes
    ----------
    number : int
    objective, gap, relative_gap : float
        Of the best primal and the best dual point so far.
    kept : int
        Samples that were not fixed by screening in the U-step.
    steps : int
        Newton steps of the U-step, or iterations since the last record.
    accelerated : bool
        Whether an extrapolated point was accepted.
    seconds : float
        Wall time.
    """

    number: int
    objective: float
    gap: float
    relative_gap: float
    kept: int
    steps: int
    accelerated: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where an algorithm ended: ``(U, b, M)``, slopes ``theta`` and its rounds."""

    U: Array
    b: Array
    metric: Metric
    theta: Array
    rounds: tuple[Round, ...]


class RunRecord:
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


class Algorithm:
    """Base of the algorithms: settings, and a call that runs them on a problem."""

    def __call__(
        self,
        problem: MultiTask,
        target: float,
        start: tuple[Metric, Array, Array] | None = None,
        on_round: Callable[[Round], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> Outcome:
        """Iterate until the joint relative gap is at most `target`.

        `start` is a metric, slopes and intercepts to begin with, for those that take one.
        """
        record = RunRecord(problem, target, on_round, limits)
        self.run(record, start)
        return record.outcome()

    def run(self, record: RunRecord, start: tuple[Metric, Array, Array] | None) -> None:
        """Offer points to `record` until it is done."""
        raise NotImplementedError
