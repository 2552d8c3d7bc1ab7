"""First-order methods on the joint problem: ADMM, accelerated gradients on (U, M) and on (U, b).

References for `cvxscreen.multitask.bcd`; all keep the best point and stop on the joint duality gap.

*ADMM* on a copy of U, ``min sum_l f_l(u_l, b_l) + c Omega(W)`` with ``U = W``: every task's own
prox, then the prox of the spectral box norm; M is eliminated, so its set is never left. The tasks'
quadratic term is ``rho/2 ||u - w + l||^2`` throughout: no metric changes. The weight rho follows
the two residuals (Boyd et al. 2011, 3.4.1).

*Smooth losses*: M eliminated, accelerated proximal gradient on (U, b). What is left of the penalty
is the spectral box norm of U, whose prox has a closed form; the smooth part is the sum of the
losses, so neither its Lipschitz constant nor its domain depends on eta. The features are centred
task by task, which the free intercepts absorb.

*Accelerated projected gradient on (U, M) together*, the loss in the prox. The smooth part is
``c tr(U' (eta I + M)^{-1} U)``; the prox is one quadratic program a task and the projection of M
onto the Fantope (Chen et al. 2013, Appendix B.2). Its gradient has no global Lipschitz constant and
is defined for ``eta I + M > 0`` only, so the form whose search point stays in the set is the
default: with the printed one the search point leaves the domain for small eta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.bounds import Intercepts
from cvxscreen.multitask.gap import Algorithm, RunRecord
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.prox import fantope, spectral_box_norm_prox
from cvxscreen.multitask.task_solver import Stacked, cold, solve_tasks
from cvxscreen.solvers.apg import auslender_teboulle, fista

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Admm(Algorithm):
    """Settings of the alternating direction method.

    Parameters
    ----------
    max_rounds : int
    adapt : float
        Ratio of the residuals beyond which rho is doubled or halved.
    """

    max_rounds: int = 5000
    adapt: float = 3.0

    def run(self, record: RunRecord, start: object) -> None:
        """Iterate until the gap is small enough."""
        problem = record.problem
        rho = problem.c / problem.eta
        W = scaled = np.zeros((problem.d, problem.m))
        points = [cold(X) for X in problem.X]
        while not record.done and len(record.rounds) < self.max_rounds:
            metric = Metric.plain(problem.d, rho)
            points = solve_tasks(problem, metric, points, W - scaled)
            U, _, b, p, theta = Stacked.of(points)
            before = W
            W = spectral_box_norm_prox(U + scaled, problem.c / rho, problem.eta, problem.h)
            scaled = scaled + U - W
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


@dataclass(frozen=True)
class SmoothFista(Algorithm):
    """Settings of the accelerated gradient on (U, b).

    Parameters
    ----------
    max_rounds : int
    check : int
        Iterations between two evaluations of the joint gap.
    """

    max_rounds: int = 20_000
    check: int = 10

    def run(self, record: RunRecord, start: object) -> None:
        """Iterate until the gap is small enough."""
        problem = record.problem
        if not problem.smooth:
            raise InvalidInput(
                f"`solver` is 'fista', which needs a smooth loss; {problem.loss!r} has kinks."
            )
        run = _Losses(problem, record, self.check)
        zero = np.zeros((problem.d + 1, problem.m))
        fista(
            run, run.prox, zero, run.stop, lipschitz=run.guess(), max_iterations=self.max_rounds
        )


class _Losses:
    """The losses in ``Z = [U; b / scale]``, features centred."""

    def __init__(self, problem: MultiTask, record: RunRecord, check: int) -> None:
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


@dataclass(frozen=True)
class ApgJoint(Algorithm):
    """Settings of the joint accelerated gradient.

    Parameters
    ----------
    printed : bool
        Use Algorithm 1 as printed (no restart, the search point may leave the set).
    max_rounds : int
    """

    printed: bool = False
    max_rounds: int = 10_000

    def run(self, record: RunRecord, start: object) -> None:
        """Iterate until the gap is small enough."""
        problem = record.problem
        run = Coupling(problem, record)
        origin = np.hstack([np.zeros((problem.d, problem.m)), problem.start_metric().M])
        first = 2.0 * problem.c / (problem.eta + problem.h / problem.d)
        settings = {"lipschitz": first, "max_iterations": self.max_rounds}
        if self.printed:
            fista(run, run.prox, origin, run.stop, restart=False, **settings)  # type: ignore[arg-type]
        else:
            auslender_teboulle(run, run.prox, origin, run.stop, **settings)  # type: ignore[arg-type]


class Coupling:
    """The coupling of ``Z = [U, M]`` and the prox of the rest.

    Attributes
    ----------
    outside : int
        Evaluations at a point where ``eta I + M`` is not positive definite.
    """

    def __init__(self, problem: MultiTask, record: RunRecord) -> None:
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
        self.points = solve_tasks(problem, metric, self.points, Z[:, :m])
        U = Stacked.of(self.points).U
        return np.hstack([U, fantope(Z[:, m:], problem.h)])

    def stop(self, Z: Array, k: int) -> bool:
        """The joint gap of Z with the slopes of the last prox."""
        problem = self.problem
        U = Z[:, : problem.m]
        scores = problem.predictions(U, np.zeros(problem.m))
        b = self.best_intercepts(scores)
        theta = Stacked.of(self.points).theta
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
