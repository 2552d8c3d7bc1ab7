"""Metric learning along lambda: extrapolated starts, screening at each, a certificate at each.

The reference of every step is not the last solution but ``[M1 + c (M1 - M2)]_+``, extrapolated in
``log lam`` from the last two and evaluated once: its sphere decides most of what is left undecided
by one around the last solution, and iterations start from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate import Certificate, certify
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.metric_certificate import certify_metric
from cvxscreen.problem import Problem
from cvxscreen.solvers.metric import LISTED
from cvxscreen.solvers.metric_ahead import Ahead
from cvxscreen.solvers.metric_cone import Metric
from cvxscreen.solvers.metric_kink import solve_kinked
from cvxscreen.solvers.metric_run import Run
from cvxscreen.solvers.metric_start import closed_form, task_of
from cvxscreen.solvers.metric_task import Task
from cvxscreen.solvers.metric_thrift import SMALL, Thrift, work
from cvxscreen.term_sets import Products

Array = NDArray[np.float64]

KEPT = 100_000
"""Up to this many terms a path keeps a dual variable of each at every lam."""


@dataclass(frozen=True, eq=False)
class Station:
    """One value of lam, solved.

    Attributes
    ----------
    problem : Problem
    x, theta : arrays
        `theta` is empty where there are more than `KEPT` terms.
    certificate : Certificate
    dropped, fixed : float
        Shares of the terms proven zero and linear before anything was solved.
    kept, iterations, looks : int
        Terms in the smallest reduced task; iterations; looks at the gap that were recorded.
    loss : float
        Sum of the losses.
    seconds : float
    status : str
    """

    problem: Problem
    x: Array
    theta: Array
    certificate: Certificate
    dropped: float
    fixed: float
    kept: int
    iterations: int
    looks: int
    loss: float
    seconds: float
    status: str


def along(
    problem: Problem,
    values: Iterable[float],
    *,
    tol: float = 1e-6,
    screen: bool = True,
    method: str = "auto",
    first: Sequence[tuple[float, Array]] = (),
    limits: Limits = UNLIMITED,
    max_iter: int | None = None,
) -> Iterator[Station]:
    """Solve `problem` at every lam of `values`, in that order.

    Parameters
    ----------
    problem : Problem
    values : iterable of float
    tol : float
        Certified relative gap.
    screen : bool
        Whether to reduce.
    method : {"auto", "bb", "apg", "newton"}
    first : sequence of (lam, x)
        The points before, in their order; the last two are used.
    limits : Limits
        Of all values together.
    max_iter : int, optional
        Iterations for each value.
    """
    base = task_of(problem)
    fast = isinstance(base.terms, Products)
    base.share()
    last, ahead, thrift = list(first)[-2:], Ahead(), Thrift()
    grid = [float(lam) for lam in values]
    for number, lam in enumerate(grid):
        began = perf_counter()
        here = problem.with_(lam=lam)
        known = ahead.at(lam)
        task = base.at(lam) if known is None else known
        start = _start(task, last)
        screened = screen and (known is not None or thrift.screens())
        run = Run(tol=0.5 * tol, screen=screened, method=method, limits=limits.each(max_iter))
        if known is not None:
            run.dropped, run.fixed = ahead.dropped, ahead.fixed
        proof: list[tuple[Array, Array | None, Certificate]] = []

        def accept(metric: Metric, here: Problem = here, proof: list = proof) -> bool:  # type: ignore[type-arg]
            x = _settled(here, metric)
            proof.append((x, None, certify_metric(here, x, tol=tol)))
            return proof[-1][2].ok

        if (task.bend == 0.0).any():
            metric, run, _, theta = solve_kinked(task, start, run)
            proof.append(_listed(here, metric, theta, tol))
        else:
            state, _ = run.solve(task, start, accept if fast else None)
            metric = state.metric
            if screened and known is None and run.opening is not None and run.steps:
                ahead.look(task, run.opening, run.steps[0].kept, grid[number + 1:])
                if ahead.task is None and work(task) > SMALL:
                    thrift.learn(run.saved, run.spent)
            if not proof or not proof[-1][2].ok:
                proof.append(_checked(here, metric, tol, fast))
        x, slopes, certificate = proof[-1]
        last = [*last[-1:], (lam, x)]
        if slopes is None:
            slopes = np.zeros(0)
            if here.n <= KEPT:
                slopes = here.losses.slope(here.design.forward(x))
        shrunk = run.steps[0] if screened and run.steps and run.iterations else None
        yield Station(
            here, x, slopes, certificate,
            shrunk.dropped / here.n if shrunk else 0.0, shrunk.fixed / here.n if shrunk else 0.0,
            min((step.kept for step in run.steps), default=here.n), run.iterations,
            len(run.steps), certificate.primal - smooth_part(problem, x, lam),
            perf_counter() - began, run.limits.word(certificate.ok),
        )


def smooth_part(problem: Problem, x: Array, lam: float) -> float:
    """The objective at `x` and `lam` without the losses."""
    return 0.5 * lam * float(x @ x) + float(problem.linear @ x) + problem.constant


def _start(task: Task, last: list[tuple[float, Array]]) -> Metric:
    if not last:
        return closed_form(task)
    (lam2, older), (lam1, newer) = last[0], last[-1]
    lead = 0.0
    if lam1 != lam2:
        lead = min(max(float(np.log(task.lam / lam1) / np.log(lam1 / lam2)), 0.0), 2.0)
    return task.cone.project((newer + lead * (newer - older)).reshape(task.push.shape))


def _settled(problem: Problem, metric: Metric) -> Array:
    x = metric.value.ravel()
    return x if problem.penalty is None else problem.penalty.settle(x)


def _checked(
    problem: Problem, metric: Metric, tol: float, fast: bool
) -> tuple[Array, Array | None, Certificate]:
    x = _settled(problem, metric)
    if fast or problem.n > LISTED:
        return x, None, certify_metric(problem, x, tol=tol)
    theta = problem.losses.slope(problem.design.forward(x))
    return x, theta, certify(problem, x, theta, tol=tol)


def _listed(
    problem: Problem, metric: Metric, theta: Array, tol: float
) -> tuple[Array, Array, Certificate]:
    x = _settled(problem, metric)
    theta = np.clip(theta, problem.losses.lo, problem.losses.hi)
    return x, theta, certify(problem, x, theta, tol=tol)
