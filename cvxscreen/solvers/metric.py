"""Metric learning solved through its own reduction: the door from a `Problem` to `metric_run`.

Where the generic loop keeps arrays over the terms, this one keeps pairs and windows, so a set of
triplets far too large to be listed is solved and certified all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound, midpoint_ball
from cvxscreen.certificate import Certificate, certify
from cvxscreen.duality import reference_point
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import choice
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.metric_certificate import certify_metric
from cvxscreen.problem import Problem
from cvxscreen.screening import Screening
from cvxscreen.solvers.evaluate import Answer
from cvxscreen.solvers.inner import InnerResult, Start
from cvxscreen.solvers.metric_cone import Metric
from cvxscreen.solvers.metric_kink import solve_kinked
from cvxscreen.solvers.metric_run import Run, Step
from cvxscreen.solvers.metric_start import closed_form, is_metric, lam_max, task_of
from cvxscreen.solvers.metric_streamed import StreamedSolution
from cvxscreen.solvers.metric_task import Sphere, Task
from cvxscreen.solvers.solution import Round, Solution

__all__ = ["LISTED", "MetricSolver", "is_metric", "lam_max", "solve_metric"]

Array = NDArray[np.float64]

LISTED = 20_000_000
"""Up to this many terms a solution holds a dual variable for each of them."""

MODES = ("safe", "certified")


@dataclass(frozen=True)
class MetricSolver:
    """The built-in solver of (reduced) metric learning problems, for the generic loop.

    Parameters
    ----------
    method : {"auto", "bb", "apg", "newton"}
    limits : Limits
        Of the whole call.
    """

    method: str = "auto"
    limits: Limits = field(default=UNLIMITED, compare=False)

    @property
    def name(self) -> str:
        """``"metric"``."""
        return "metric"

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> InnerResult:
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
        return InnerResult(word, x, theta, info={"iterations": found.run.iterations})


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
        return task.cone.project(np.asarray(x, dtype=np.float64).reshape(task.push.shape))
    return closed_form(task)


def _solve(task: Task, begin: Metric, run: Run) -> Found:
    if (task.bend == 0.0).any():
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
    choice("mode", mode, MODES)
    if not (isinstance(tol, int | float) and 0 < tol < 1):
        raise InvalidInput(f"`tol` is {tol!r}; a number strictly between 0 and 1 is needed.")
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
        x = problem.penalty.settle(x)
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
