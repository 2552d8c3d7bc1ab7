"""A joint problem solved and certified: block coordinate descent, ADMM, accelerated gradients.

An algorithm offers the points it finds to a `RunRecord`, which keeps the best primal and the best
dual one and ends the run on the gap between them (`cvxscreen.multitask.gap`), never on the change
of the objective.

*Block coordinate descent* on (U, b) and M, with accelerated steps in M. Minimising over (U, b)
leaves ``J(M)``, convex and differentiable; the two exact block steps are a majorise-minimise
iteration on it (Chen et al. 2013, Algorithm 2, started inside the set: from a projector directions
once given up return slowly). Anderson's extrapolation of M is kept only where J, which the next
U-step gives for free, has not grown. The others are references for it.

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
is defined for ``eta I + M > 0`` only, so the search point stays in the set; that of Algorithm 1, as
printed, leaves the domain for small eta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.tables import Record, fields, table
from cvxscreen._support.validation import MODES, choice, finite, one_of, tolerance, word
from cvxscreen.bounds.theorems import midpoint_ball
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.duality import dual_feasible, reference_point
from cvxscreen.core.losses import Codes
from cvxscreen.core.problem import relative_gap
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.gap import (
    DualCandidate,
    PrimalCandidate,
    certify_multitask,
    eigengap,
    joint_gap,
)
from cvxscreen.multitask.problem import MultiTask, TaskMetric
from cvxscreen.multitask.prox import fantope, spectral_box_norm_prox
from cvxscreen.multitask.task_solver import (
    FixedTerms,
    Stacked,
    TaskPoint,
    solve_task,
    solve_tasks,
    zero_point,
)
from cvxscreen.screening.reduction import Verdict, judge
from cvxscreen.solvers.apg import auslender_teboulle, fista

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MultiTaskRound:
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


class AlgorithmResult(Immutable):
    """What an algorithm returns: the best ``(U, b, M)``, the best slopes ``theta``, its rounds."""

    U: Array
    b: Array
    metric: TaskMetric
    theta: Array
    rounds: tuple[MultiTaskRound, ...]


class RunRecord:
    """The best primal and the best dual point so far, and the duality gap between them."""

    def __init__(
        self,
        problem: MultiTask,
        target: float,
        on_round: Callable[[MultiTaskRound], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        self.problem, self.target, self.on_round = problem, target, on_round
        self.limits = limits
        self.best_primal: PrimalCandidate | None = None
        self.best_dual: DualCandidate | None = None
        self.dual_value = -np.inf
        self.gap = np.inf
        self.rounds: list[MultiTaskRound] = []
        self.began = perf_counter()

    def consider_slopes(self, U: Array, b: Array, p: Array, theta: Array) -> None:
        """Evaluate ``(U, b)`` at its best M and the slopes `theta`; keep what is better."""
        problem = self.problem
        metric = TaskMetric.minimiser(U, problem.h, problem.eta, problem.c)
        primal = PrimalCandidate.of(problem, U, b, metric, p)
        dual = DualCandidate.of(theta, problem.minus_adjoint(theta))
        self.consider(primal, dual)

    def consider(self, primal: PrimalCandidate, dual: DualCandidate) -> None:
        """Keep the lower primal and the higher dual objective of those known."""
        value = dual.value(self.problem)
        if self.best_primal is None or primal.value < self.best_primal.value:
            self.best_primal = primal
        if self.best_dual is None or value > self.dual_value:
            self.best_dual, self.dual_value = dual, value
        self.gap = joint_gap(self.problem, self.best_primal, self.best_dual)

    @property
    def relative(self) -> float:
        """The gap over ``max(|primal|, |dual|)``."""
        if self.best_primal is None:
            return float("inf")
        return float(relative_gap(self.gap, self.best_primal.value))

    @property
    def done(self) -> bool:
        """Whether the target is reached, or a limit once there is a point."""
        return self.relative <= self.target or (
            self.best_primal is not None and self.limits.spent()
        )

    def note(self, steps: int, *, kept: int | None = None, accelerated: bool = False) -> None:
        """Add a round to the record."""
        now = perf_counter()
        self.limits.spent(1)
        done = MultiTaskRound(
            number=len(self.rounds) + 1,
            objective=self.best_primal.value if self.best_primal else float("nan"),
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

    def outcome(self) -> AlgorithmResult:
        """The best primal and the best dual point so far, and all rounds."""
        if self.best_primal is None or self.best_dual is None:
            raise RuntimeError("no round was run")
        best = self.best_primal
        return AlgorithmResult(
            best.U, best.b, best.metric, self.best_dual.theta, tuple(self.rounds)
        )


class Algorithm:
    """Base of the algorithms: settings, and a call that runs them on a problem."""

    def __call__(
        self,
        problem: MultiTask,
        target: float,
        start: tuple[TaskMetric, Array, Array] | None = None,
        on_round: Callable[[MultiTaskRound], None] | None = None,
        limits: Limits = UNLIMITED,
    ) -> AlgorithmResult:
        """Iterate until the joint relative gap is at most `target`.

        `start` is a metric, slopes and intercepts to begin with, for those that take one.
        """
        record = RunRecord(problem, target, on_round, limits)
        self.run(record, start)
        return record.outcome()

    def run(self, record: RunRecord, start: tuple[TaskMetric, Array, Array] | None) -> None:
        """Offer points to `record` until it is done."""
        raise NotImplementedError


MEMORY = 6
"""Images that are combined, besides the last one."""
_CONDITION = 1e-10
"""Relative singular value of their differences that counts as 0."""


class Anderson:
    """Least-squares combination of the last few images of ``x -> G(x)``.

    Type II: with residuals ``r_k = G(x_k) - x_k`` the combination of the ``r_k`` with coefficients
    summing to 1 that is smallest, applied to the ``G(x_k)`` (Walker and Ni 2011).
    """

    def __init__(self) -> None:
        self.images: list[Array] = []
        self.residuals: list[Array] = []

    def clear(self) -> None:
        """Forget all earlier steps."""
        self.images, self.residuals = [], []

    def push(self, x: Array, image: Array) -> Array | None:
        """Record ``G(x) = image``; an extrapolated point, or None while there is no history."""
        self.images.append(image.ravel().copy())
        self.residuals.append((image - x).ravel())
        if len(self.images) > MEMORY + 1:
            del self.images[0], self.residuals[0]
        if len(self.images) < 2:
            return None
        last = self.residuals[-1]
        steps = np.column_stack([r - last for r in self.residuals[:-1]])
        moves = np.column_stack([g - self.images[-1] for g in self.images[:-1]])
        weights = np.linalg.lstsq(steps, -last, rcond=_CONDITION)[0]
        return np.asarray((self.images[-1] + moves @ weights).reshape(image.shape))


# -- block coordinate descent -------------------------------------------------------------------


def proven_pieces(problem: MultiTask, metric: TaskMetric, points: list[TaskPoint]) -> Codes:
    """The piece of every sample proven for the optimum at `metric`, -1 where none is, shape (n,).

    Each task is a `Problem` of its own there, and `midpoint_ball` proves from its optimum at the
    metric before. Decisions hold for this metric only: a term decided for one may well be decided
    otherwise at the joint optimum.

    It is there for what it shows, not for speed: the active sets of a U-step touch few samples
    between two metrics anyway (examples/benchmarks/multitask.py).
    """
    codes = []
    for k, point in enumerate(points):
        task = problem.task(k, metric)
        known = reference_point(task, np.append(point.u, point.b), point.theta)
        codes.append(judge(task, midpoint_ball(task, known)).codes)
    return np.concatenate(codes)


LEAST_FIXED = 0.25
"""A task's samples are fixed only if they are at least this share of it: to take out the rows of
the others costs about as much as it saves below."""


def fixed_terms(
    problem: MultiTask, points: list[TaskPoint], codes: Codes
) -> list[FixedTerms | None]:
    """What each task's solver need not look at; None where that is too little.

    A decided sample is fixed only where its slope is there already, so that the sum of the slopes
    stays what it is.
    """
    theta = Stacked.of(points).theta
    undecided = (codes < 0) | (problem.losses.piece_slope(codes) != theta)
    fixings: list[FixedTerms | None] = []
    for k, part in enumerate(problem.parts):
        kept = np.flatnonzero(undecided[part])
        if len(kept) > (1.0 - LEAST_FIXED) * problem.sizes[k]:
            fixings.append(None)
            continue
        f = problem.task_losses[k].take(kept)
        fixings.append(FixedTerms(kept, problem.X[k][kept], (f.b, f.e, f.q, f.lo, f.hi)))
    return fixings


PAUSE = 3
"""U-steps without screening after one that fixed less than a quarter of the samples."""

Inspect = Callable[[TaskMetric, list[TaskPoint], NDArray[np.int8] | None], None]


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
    watch: Inspect | None = None

    def run(self, record: RunRecord, start: tuple[TaskMetric, Array, Array] | None) -> None:
        """U-steps and M-steps until the gap is small enough, from `start` where there is one."""
        run = BlockDescent(record.problem, self, record)
        run.begin(start)
        while not run.record.done and len(run.record.rounds) < self.max_rounds:
            run.round()


class BlockDescent:
    """The state of one run of `Bcd`: the metric, every task's point at it, and what to try next."""

    def __init__(self, problem: MultiTask, settings: Bcd, record: RunRecord) -> None:
        self.problem, self.settings, self.record = problem, settings, record
        self.points = [zero_point(X) for X in problem.X]
        self.screened = settings.screening and not problem.smooth
        self.anderson = Anderson()
        self.tried: TaskMetric | None = (
            None  # the plain next metric while an extrapolated one is tried
        )
        self.level = np.inf
        self.wait = 1  # before the first U-step there is nothing to screen with

    def begin(self, start: tuple[TaskMetric, Array, Array] | None) -> None:
        """Start from a metric, slopes and intercepts; afresh without them."""
        problem = self.problem
        if start is None:
            plain = not self.settings.accelerate
            self.metric = problem.flat_metric() if plain else problem.start_metric()
            return
        self.metric, theta, b = start
        V = problem.minus_adjoint(theta)
        U = self.metric.B @ V
        p, parts = problem.split(problem.predictions(U, b)), problem.split(theta)
        self.points = [
            TaskPoint(parts[k], V[:, k], U[:, k], float(b[k]), p[k]) for k in range(problem.m)
        ]
        self.wait = 0

    def round(self) -> None:
        """One round: U-step, M-step, gap, extrapolation."""
        problem, metric = self.problem, self.metric
        kept, newton_steps = self.u_step(metric)
        U, V, b, p, theta = Stacked.of(self.points)
        loss = float(np.sum(problem.losses.value(p)))
        level = loss + metric.penalty(U)
        plain = TaskMetric.minimiser(U, problem.h, problem.eta, problem.c)
        primal = PrimalCandidate(U, b, plain, p, loss + plain.penalty(U))
        self.record.consider(primal, DualCandidate.of(theta, V))
        extrapolated = self.tried is not None
        accepted = not extrapolated or level <= self.level * (1.0 + 1e-14)
        if accepted:
            self.level = level
            self.advance(metric, plain)
        else:
            self.metric, self.tried = self.tried or plain, None
            self.anderson.clear()
        self.record.note(newton_steps, kept=kept, accelerated=extrapolated and accepted)

    def u_step(self, metric: TaskMetric) -> tuple[int, int]:
        """Solve every task at `metric`; the terms not fixed, and the Newton steps taken."""
        problem = self.problem
        codes = None
        fixings: list[FixedTerms | None] = [None] * problem.m
        if self.screened and self.wait == 0:
            codes = proven_pieces(problem, metric, self.points)
            fixings = fixed_terms(problem, self.points, codes)
        self.wait = max(self.wait - 1, 0)
        kept = newton_steps = 0
        for k, (X, losses) in enumerate(zip(problem.X, problem.task_losses, strict=True)):
            fixed = fixings[k]
            self.points[k] = solve_task(X, losses, metric, self.points[k], fixed=fixed)
            kept += len(losses) if fixed is None else len(fixed.kept)
            newton_steps += self.points[k].newton_steps
        if codes is not None and kept > (1.0 - LEAST_FIXED) * problem.n:
            self.wait = PAUSE  # M still moves too fast
        if self.settings.watch is not None:
            self.settings.watch(metric, list(self.points), codes)
        return kept, newton_steps

    def advance(self, metric: TaskMetric, plain: TaskMetric) -> None:
        """The next metric: the plain one or an extrapolation of the last few."""
        problem = self.problem
        self.metric, self.tried = plain, None
        if not self.settings.accelerate:
            return
        guess = self.anderson.push(metric.M, plain.M)
        if guess is not None and np.isfinite(guess).all():
            self.metric, self.tried = problem.metric(guess), plain


# -- references -----------------------------------------------------------------------------------


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
        points = [zero_point(X) for X in problem.X]
        while not record.done and len(record.rounds) < self.max_rounds:
            metric = TaskMetric.ridge(problem.d, rho)
            points = solve_tasks(problem, metric, points, W - scaled)
            U, _, b, p, theta = Stacked.of(points)
            before = W
            W = spectral_box_norm_prox(U + scaled, problem.c / rho, problem.eta, problem.h)
            scaled = scaled + U - W
            record.consider_slopes(U, b, p, theta)
            record.note(sum(point.newton_steps for point in points))
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
        run = CentredLosses(problem, record, self.check)
        zero = np.zeros((problem.d + 1, problem.m))
        fista(
            run, run.prox, zero, run.stop, lipschitz=run.guess(), max_iterations=self.max_rounds
        )


class CentredLosses:
    """The smooth part for `fista`: the losses in ``Z = [U; b / scale]``, features centred."""

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
        """Predictions of all samples, task after task, shape (n,)."""
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
        self.record.consider_slopes(
            U, Z[-1] * self.scale + shift - moved, p, problem.losses.slope(p)
        )
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
    max_rounds : int
    """

    max_rounds: int = 10_000

    def run(self, record: RunRecord, start: object) -> None:
        """Iterate until the gap is small enough."""
        problem = record.problem
        run = Coupling(problem, record)
        origin = np.hstack([np.zeros((problem.d, problem.m)), problem.start_metric().M])
        first = 2.0 * problem.c / (problem.eta + problem.h / problem.d)
        auslender_teboulle(
            run, run.prox, origin, run.stop, lipschitz=first, max_iterations=self.max_rounds
        )


class Coupling:
    """The coupling of ``Z = [U, M]`` and the prox of the rest.

    Attributes
    ----------
    outside : int
        Evaluations at a point where ``eta I + M`` is not positive definite.
    """

    def __init__(self, problem: MultiTask, record: RunRecord) -> None:
        self.problem, self.record = problem, record
        self.points = [zero_point(X) for X in problem.X]
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
        metric = TaskMetric.ridge(problem.d, 1.0 / step)
        self.points = solve_tasks(problem, metric, self.points, Z[:, :m])
        U = Stacked.of(self.points).U
        return np.hstack([U, fantope(Z[:, m:], problem.h)])

    def stop(self, Z: Array, k: int) -> bool:
        """The joint gap of Z with the slopes of the last prox."""
        problem = self.problem
        U = Z[:, : problem.m]
        scores = problem.predictions(U, np.zeros(problem.m))
        b = balancing_shift(problem, scores)
        theta = Stacked.of(self.points).theta
        self.record.consider_slopes(U, b, scores + np.repeat(b, problem.sizes), theta)
        self.record.note(1)
        return self.record.done


# -- the front ----------------------------------------------------------------------------------

SHOWN = 12
"""Rounds that are printed; of more, the first and the last."""


class MultiTaskSolution(Record, Immutable):
    """An answer with its certificate.

    Attributes
    ----------
    problem : MultiTask
    U : array, shape (d, m)
        One column a task.
    b : array, shape (m,)
        Intercepts.
    M : array, shape (d, d)
    theta : array, shape (n,)
        Slopes of all samples, task after task.
    status : str
        ``"optimal"`` only with a certificate that holds, otherwise ``"inaccurate"``.
    certificate : Certificate
        Of the joint gap, recomputed on all tasks.
    rounds : tuple of Round
    solver, mode : str
    seconds : float
        Wall time of the whole call.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(30, 4)) for _ in range(3)]
    >>> tasks = [(A, np.where(A[:, 0] > 0, 1.0, -1.0)) for A in X]
    >>> problem = cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.01)
    >>> solution = cvxscreen.solve(problem)
    >>> solution.U.shape, solution.b.shape, solution.certificate.ok
    ((4, 3), (3,), True)
    >>> right = [solution.predict(A, t) * b > 0 for t, (A, b) in enumerate(tasks)]
    >>> [int(of_task.sum()) for of_task in right]               # of 30 each
    [30, 30, 28]
    """

    problem: MultiTask
    U: Array
    b: Array
    M: Array
    theta: Array
    status: str
    certificate: Certificate
    rounds: tuple[MultiTaskRound, ...]
    solver: str = ""
    mode: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("U", "b", "M", "theta"):
            fresh = np.array(getattr(self, name), dtype=np.float64)
            fresh.flags.writeable = False
            object.__setattr__(self, name, fresh)

    @property
    def x(self) -> Array:
        """The coefficients ``U``, shape (d, m)."""
        return self.U

    @property
    def intercept(self) -> Array:
        """The intercept of each task, shape (m,)."""
        return self.b

    @property
    def alpha(self) -> tuple[Array, ...]:
        """Dual variables of each task: in [0, 1/n_l] for the hinge, ``-theta`` for regression."""
        return self.problem.split(-self.problem.sign * self.theta)

    @property
    def value(self) -> float:
        """The objective at the answer."""
        return self.certificate.primal

    @cached_property
    def subspace(self) -> Array:
        """Orthonormal basis of the h leading directions of M, shape (d, h)."""
        _, vectors = np.linalg.eigh(self.M)
        return np.asarray(vectors[:, ::-1][:, : self.problem.h])

    @property
    def V(self) -> Array:
        """The tasks' coordinates in the shared subspace, ``subspace' U``, shape (h, m)."""
        return np.asarray(self.subspace.T @ self.U)

    @cached_property
    def screening(self) -> Verdict:
        """What the answer proves about the joint optimum (`eigengap`), samples task after task."""
        return eigengap(self.problem, self.theta, self.certificate.gap)

    def predict(self, X: ArrayLike, task: int) -> Array:
        """``X u + b`` of one task, shape (len(X),)."""
        self.problem.check_task("task", task)
        X = finite("X", X)
        if X.ndim != 2 or X.shape[1] != self.problem.d:
            raise InvalidInput(
                f"`X` has shape {X.shape}; {self.problem.d} columns are needed, one a feature."
            )
        return np.asarray(X @ self.U[:, task] + self.b[task])

    def __str__(self) -> str:
        names = ("round", "objective", "relative gap", "kept", "steps", "accelerated", "seconds")
        shown = self.rounds
        if len(shown) > SHOWN:
            shown = (*shown[: SHOWN // 2], *shown[-SHOWN // 2 :])
        rows = [
            (r.number, float(f"{r.objective:.10g}"), r.relative_gap, r.kept, r.steps,
             r.accelerated, r.seconds)
            for r in shown
        ]
        head = fields(
            [
                ("status", self.status),
                ("objective", float(f"{self.value:.12g}")),
                ("relative gap", self.certificate.relative_gap),
                ("tasks", self.problem.m),
                ("samples", self.problem.n),
                ("rounds", len(self.rounds)),
                ("proven zero", int(self.screening.zero.sum())),
                ("proven linear", int(self.screening.linear.sum())),
                ("mode", self.mode),
                ("solver", self.solver),
                ("seconds", self.seconds),
            ],
            title="MultiTask solution",
        )
        return head + "\n" + table(names, rows)


SOLVERS = ("auto", "builtin", "bcd", "plain", "admm", "apg", "fista")
DENSE = 500
"""Up to so many samples a task smooth losses go to block coordinate descent as well."""

Watch = Callable[[MultiTaskRound], None] | None


def solve_multitask(
    problem: MultiTask,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    screening: bool = False,
    start: MultiTaskSolution | None = None,
    max_rounds: int | None = None,
    on_round: Watch = None,
    limits: Limits = UNLIMITED,
) -> MultiTaskSolution:
    """Solve to a joint relative gap of `tol`, certified on all tasks.

    Parameters
    ----------
    problem : MultiTask
    tol : float
        In (0, 1).
    mode : {"certified", "safe"}
        Nothing is ever guessed here, so both say the same.
    solver : str
        ``"bcd"``: block coordinate descent with accelerated steps (the default but for smooth
        losses on large tasks); ``"plain"``: without them; ``"admm"``; ``"apg"``: accelerated
        projected gradient on (U, M), a reference; ``"fista"``: on U, for smooth losses. Any other
        name is a solver that CVXPY has installed for semidefinite programs (``"SCS"``,
        ``"CLARABEL"``): a reference again, on the whole problem.
    screening : bool
        Whether block coordinate descent screens its U-steps (losses with kinks). The answer is the
        same either way, and it takes longer; see `proven_pieces`.
    start : MultiTaskSolution, optional
        Of the same tasks at other parameters; for block coordinate descent. ``"auto"`` leaves it
        out where it takes another algorithm.
    max_rounds : int, optional
    on_round : callable, optional
        Gets the record of every round.
    limits : Limits

    Raises
    ------
    UnknownName, InvalidInput
    """
    one_of("problem", problem, MultiTask, "a problem from `raso` is needed")
    mode = choice("mode", mode, MODES)
    tol = tolerance(tol)
    name = word("solver", solver, "the name of a solver is needed").lower()
    if start is not None:
        one_of("start", start, MultiTaskSolution, "what `solve` returned for such tasks is needed")
    if name in ("auto", "builtin"):
        name = "fista" if problem.smooth and max(problem.sizes) > DENSE else "bcd"
        start = start if name == "bcd" else None  # nobody chose a solver that takes none
    algorithms: dict[str, Callable[..., Algorithm]] = {
        "bcd": partial(Bcd, screening=screening),
        "plain": partial(Bcd, accelerate=False, screening=screening),
        "admm": Admm, "apg": ApgJoint, "fista": SmoothFista,
    }
    if start is not None and name not in ("bcd", "plain"):
        raise InvalidInput(f"`start` is used by solver 'bcd' only; `solver` is {name!r}.")
    began = perf_counter()
    if name in algorithms:
        limit: dict[str, Any] = {} if max_rounds is None else {"max_rounds": max_rounds}
        first = None if start is None else warm(problem, start)
        outcome = algorithms[name](**limit)(problem, 0.5 * tol, first, on_round, limits)
    else:
        record = RunRecord(problem, 0.5 * tol, on_round, limits)
        outcome = solved_by_cvxpy(record, name, limits)
    M = outcome.metric.M
    proof = certify_multitask(problem, outcome.U, outcome.b, M, outcome.theta, tol=tol)
    return MultiTaskSolution(
        problem=problem,
        U=outcome.U,
        b=outcome.b,
        M=M,
        theta=outcome.theta,
        status=limits.word(proof.ok),
        certificate=proof,
        rounds=outcome.rounds,
        solver=name.upper(),
        mode=mode,
        seconds=perf_counter() - began,
    )


def solved_by_cvxpy(record: RunRecord, name: str, limits: Limits) -> AlgorithmResult:
    """The whole semidefinite program, by the solver of CVXPY called `name`."""
    problem = record.problem
    U, b, M, theta = supplied("cvxpy.multitask_solver")(problem, name, limits, SOLVERS)
    # Each task's slopes must sum to 0 exactly, where a solver leaves a rest.
    tasks = (problem.task(k, M) for k in range(problem.m))
    parts = zip(tasks, problem.split(theta), strict=True)
    theta = np.concatenate([dual_feasible(task, part)[0] for task, part in parts])
    record.consider_slopes(U, b, problem.predictions(U, b), theta)
    record.note(1)
    return record.outcome()


def warm(problem: MultiTask, start: MultiTaskSolution) -> tuple[TaskMetric, Array, Array]:
    """The start's M (projected onto this problem's set), slopes and intercepts."""
    if start.problem.sizes != problem.sizes or start.problem.d != problem.d:
        raise InvalidInput("`start` belongs to other tasks than `problem`.")
    if start.problem.loss != problem.loss:
        raise InvalidInput(
            f"`start` is of a {start.problem.loss!r} problem; this one is {problem.loss!r}."
        )
    theta = np.clip(start.theta, problem.losses.lo, problem.losses.hi)
    return problem.metric(start.M), theta, start.b.copy()
