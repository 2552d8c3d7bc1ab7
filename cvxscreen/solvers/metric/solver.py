"""Metric learning solved through its own reduction: from a `Problem` to its task and back.

Where the general loop keeps arrays over the terms, this one keeps pairs and windows, so a set of
triplets far too large to be listed is solved and certified all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.validation import check_request, one_of
from cvxscreen.bounds import Bound, midpoint_ball
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.certificates.metric import certify_metric
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import PSD, NonNegative
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs
from cvxscreen.designs.term_sets import Indexed, Products
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
)
from cvxscreen.solvers.metric.run import Run, Step, solve_kinked
from cvxscreen.solvers.metric.task import Metric, Sphere, Task
from cvxscreen.solvers.solution import Answer, Round, Solution

__all__ = ["LISTED", "MetricSolver", "is_metric", "solve_metric"]

Array = NDArray[np.float64]


def is_metric(problem: Problem) -> bool:
    """Whether `problem` is metric learning with (smoothed) hinges, which this module solves."""
    if not isinstance(problem.design, Pairs) or problem.side is not None:
        return False
    if not isinstance(problem.penalty, PSD | NonNegative) or problem.quadratic.matrix is not None:
        return False
    return _hinges(problem.losses)


def _hinges(losses: Losses) -> bool:
    ends = (losses.e, losses.hi, losses.lo)
    some = [row[:1] if row.strides == (0,) else row for row in ends]
    return not some[0].any() and not some[1].any() and bool(np.isfinite(some[2]).all())


def task_of(problem: Problem) -> Task:
    """`problem` in the form its solvers work on."""
    one_of("problem", problem, Problem, "a problem of metric learning, from `rtlm`, is needed")
    design, f = problem.design, problem.losses
    if not isinstance(design, Pairs):
        raise InvalidInput("`problem` is not one of metric learning.")
    b, weight = _short(f.b), -_short(f.lo)
    smoothing = _short(f.q) * weight
    terms: Indexed | Products = design.terms
    if max(b.size, weight.size, smoothing.size) > 1:
        columns = (b, smoothing, weight)
        b, smoothing, weight = (np.array(np.broadcast_to(c, len(terms))) for c in columns)
        if isinstance(terms, Products):
            terms = Indexed(*terms.index(), terms.pairs)
    lam, table = float(problem.quadratic.diagonal[0]), design.table
    minus_linear = -problem.linear if table.diagonal else -problem.linear.reshape(table.d, table.d)
    drift = problem.drift * float(np.sqrt(lam)) * (1.0 + 1e-15)
    return Task(table, terms, b, smoothing, weight, lam, minus_linear, problem.constant, drift)


def _short(column: Array) -> Array:
    """One entry where all are the same, a fresh array."""
    if not column.size:
        return np.ones(1)
    same = column.strides == (0,) or bool((column == column[0]).all())
    return np.array(column[:1] if same else column)


def closed_form(task: Task) -> Metric:
    """``[K(w)]_+ / lam``: the optimum for every large lam, a start for the others."""
    return task.cone.project(v_at_full_weight(task) / task.lam)


def v_at_full_weight(task: Task) -> Array:
    """``K(w)``: every term pulling with its whole weight."""
    flat = replace(task, b=np.full(1, 1.0), smoothing=np.zeros(1))
    if isinstance(task.terms, Indexed) and task.weight.size > 1:
        size = len(task.terms)
        flat = replace(task, b=np.ones(size), smoothing=np.zeros(size))
    # At pair values 0 every margin is 0, below a threshold of 1.
    _, omega = flat.losses(np.zeros(len(task.table) + 1))
    return task.table.adjoint(omega) + task.minus_linear


@dataclass(frozen=True, eq=False, repr=False)
class StreamedSolution(Solution):
    """A solution whose dual variables are known by the metric: ``alpha = -losses.slope(margins)``.

    `theta` is empty, and `screening` counts instead of listing.
    """

    decided: tuple[int, int] = (0, 0)

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; `decided` counts the terms proven on the zero and on the linear piece.
        """
        raise InvalidInput(
            f"a set of {self.problem.n:,} terms is not listed one by one; `decided` counts them."
        )

    def point(self) -> Point:
        """Not available without arrays over the terms.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput("a streamed solution is no reference for bounds; start from its `x`.")

    def __str__(self) -> str:
        zero, linear = self.decided
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms, {zero:,} proven zero, "
            f"{linear:,} proven linear\n{self.certificate}"
        )


LISTED = 20_000_000
"""Up to this many terms a solution holds a dual variable for each of them."""


@dataclass(frozen=True)
class MetricSolver(SubproblemSolver):
    """The built-in solver of (reduced) metric learning problems, for the generic loop.

    Parameters
    ----------
    method : {"auto", "bb", "apg", "newton"}
    limits : Limits
        Of the whole call.
    """

    method: str = "auto"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True)

    @property
    def name(self) -> str:
        """``"metric"``."""
        return "metric"

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem` to an absolute gap of about `target` (as far as rounding allows)."""
        task = task_of(problem)
        begin = _begin(task, None if start is None else start.x)
        scale = max(abs(task.evaluate(begin).primal), 1e-300)
        found = _solve(task, begin, Run(
            tol=max(target / scale, 1e-13), method=self.method, limits=self.limits
        ))
        x = found.metric.value.ravel()
        theta = problem.losses.slope(problem.design.forward(x)) if found.theta is None else (
            np.clip(found.theta, problem.losses.lo, problem.losses.hi)
        )
        word = "inaccurate" if self.limits.reached else "optimal"
        return SubproblemResult(word, x, theta, info={"iterations": found.run.iterations})


@dataclass(frozen=True, eq=False)
class Found:
    """A solved task; `theta` where the dual point is not the slope at the metric (kinks)."""

    metric: Metric
    run: Run
    sphere: Sphere
    theta: Array | None = None


def _begin(task: Task, x: Array | None) -> Metric:
    """Where to start: a given point, or the metric of all terms pulling with full weight."""
    if x is not None:
        return task.cone.project(np.asarray(x, dtype=np.float64).reshape(task.minus_linear.shape))
    return closed_form(task)


def _solve(task: Task, begin: Metric, run: Run) -> Found:
    if (task.smoothing == 0.0).any():
        return Found(*solve_kinked(task, begin, run))
    state, sphere = run.solve(task, begin)
    return Found(state.metric, run, sphere)


def solve_metric(
    problem: Problem,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    method: str = "auto",
    start: Start | None = None,
    bounds: Sequence[Bound] = (midpoint_ball,),
    screen: bool = True,
    on_round: Callable[[Round], None] | None = None,
    limits: Limits = UNLIMITED,
) -> Solution:
    """Solve metric learning by screening, projected gradients and, where they are slow, Newton.

    Every decision on the way is proven, in both modes.

    Parameters
    ----------
    problem : Problem
        For which `is_metric` holds.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    method : {"auto", "bb", "apg", "newton"}
    start : Start, optional
    bounds : sequence of Bound
        What `Solution.screening` proves with.
    screen : bool
        Whether to reduce at all.
    on_round : callable, optional
    limits : Limits

    Returns
    -------
    Solution
        Of more than `LISTED` terms a `StreamedSolution`.
    """
    check_request(mode, tol)
    began = perf_counter()
    rounds: list[Round] = []

    def note(step: Step) -> None:
        rounds.append(_round(step, len(rounds) + 1, perf_counter() - began))
        if on_round is not None:
            on_round(rounds[-1])

    task = task_of(problem)
    run = Run(tol=0.5 * tol, screen=screen, method=method, on_step=note, limits=limits)
    found = _solve(task, _begin(task, None if start is None else start.x), run)
    x = found.metric.value.ravel()
    if problem.penalty is not None:
        x = problem.penalty.project(x)
    if problem.n > LISTED:
        return _streamed(problem, x, tol, found, rounds, perf_counter() - began)
    point = reference_point(problem, x, found.theta)
    proof = certify(problem, point.x, point.theta, tol=tol)
    return Solution(
        problem=problem, x=point.x, theta=point.theta, multipliers=np.zeros(0),
        status=limits.word(proof.ok), certificate=proof,
        earlier=Screening.empty(problem), rounds=tuple(rounds), bounds=tuple(bounds),
        answer=Answer.known(point, proof), solver="metric", mode=mode,
        seconds=perf_counter() - began,
    )


def _round(step: Step, number: int, seconds: float) -> Round:
    info: dict[str, Any] = {"iterations": step.iterations, "pairs": step.pairs}
    relative = step.gap / max(abs(step.primal), 1e-300)
    return Round(
        number, step.kept, step.dropped + step.fixed, 0, 0, step.gap, relative, "optimal", info,
        0.0, seconds,
    )


def _streamed(
    problem: Problem, x: Array, tol: float, found: Found, rounds: list[Round], seconds: float
) -> StreamedSolution:
    proof: Certificate = certify_metric(problem, x, tol=tol)
    last = found.run.steps[-2] if len(found.run.steps) > 1 else None
    nothing = np.zeros(0)
    return StreamedSolution(
        problem=problem, x=x, theta=nothing, multipliers=nothing,
        status=found.run.limits.word(proof.ok), certificate=proof,
        earlier=None, rounds=tuple(rounds), solver="metric", mode="safe",  # type: ignore[arg-type]
        seconds=seconds, decided=(last.dropped, last.fixed) if last else (0, 0),
    )
