"""Metric learning along lambda: extrapolated starts, screening and a certificate at each.

The reference of every step is not the last solution but ``[M1 + c (M1 - M2)]_+``, extrapolated in
``log lam`` from the last two and evaluated once: its sphere decides most of what is left undecided
by one around the last solution, and iterations start from there.

One pass over all terms can decide some of them for several values of lambda in a row. For a pair
(M, alpha) the midpoint sphere at ``s = 1 / lam`` has its centre at ``(M + s G) / 2``,
``G = K + Gamma``, and ``r^2 = |M - s G|^2 / 4 + s (FY + <M, Gamma>)``: the centre is linear in s,
r^2 is convex. What the two spheres at the ends of an interval, both with the larger radius, put on
one piece is on that piece at every lambda between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Products
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.lambda_max import lambda_max
from cvxscreen.solvers.metric.solver import (
    LISTED,
    MetricOptimisation,
    closed_form,
    solve_plain_hinge,
    task_of,
)
from cvxscreen.solvers.metric.task import (
    CHEAP,
    FactoredMetric,
    MetricIterate,
    MetricTask,
    ScreeningPauses,
    count_decided,
    evaluation_cost,
    reduce_for_interval,
)
from cvxscreen.solvers.solution import LazyNumbers

SHARE = 0.2
"""A reduction for several values of lam is kept if it leaves at most this share of the terms."""

PROMISING = 0.005
"""It is tried if no more than this share was left at the lam whose iterate it is made from."""

LONGEST_SPAN = 16
"""For how many values of lam it is made at most."""


@dataclass
class IntervalReduction:
    """The task with what is decided between two values of lam taken off.

    Attributes
    ----------
    span : int
        For how many values of lam the next one is made; doubled after a success, else halved.
    task : MetricTask or None
        Valid for ``low <= lam <= high``.
    dropped, fixed : int
        Terms it lacks: on the zero piece, on the linear one.
    """

    span: int = 4
    task: MetricTask | None = None
    low: float = 0.0
    high: float = 0.0
    dropped: int = 0
    fixed: int = 0

    def at(self, lam: float) -> MetricTask | None:
        """The reduced task at `lam`, where there is one."""
        if self.task is None or not self.low <= lam <= self.high:
            return None
        return self.task.at(lam)

    def decide_ahead(
        self, task: MetricTask, state: MetricIterate, left: int, coming: Sequence[float]
    ) -> None:
        """Decide terms of `task` from `state` for the values of lam that come next.

        `left` terms were undecided at the lam of `state` itself.
        """
        self.task, values = None, coming[: self.span]
        if len(values) < 2 or left > PROMISING * len(task.terms):
            return
        self.low, self.high = min(values), max(values)
        spheres = [task.at(lam).sphere(state) for lam in (self.low, self.high)]
        radius = max(sphere.radius for sphere in spheres)
        wide = [sphere._replace(radius=radius) for sphere in spheres]
        found = reduce_for_interval(task, wide, state, int(SHARE * len(task.terms)))
        if found is None:
            self.span = max(self.span // 2, 2)
            return
        self.task, self.dropped, self.fixed = found
        self.span = min(2 * self.span, LONGEST_SPAN)


Array = NDArray[np.float64]

LISTED_ON_PATH = 100_000
"""Up to this many terms a path keeps a dual variable of each at every lam."""


class MetricPathPoint(Immutable):
    """One value of lam, solved.

    Attributes
    ----------
    problem : Problem
    x, theta : arrays
        `theta` is empty where there are more than `LISTED_ON_PATH` terms.
    certificate : Certificate
    before : mapping
        Shares of the terms proven zero and linear before anything was solved; where the solver did
        not screen, worked out when asked for, from the reference that it started from.
    screened : bool
        Whether the solver used them.
    kept, iterations, checks : int
        Terms in the smallest reduced task; iterations; evaluations of the gap that were recorded.
    loss : float
        Sum of the losses.
    seconds : float
    status : str
    """

    problem: Problem
    x: Array
    theta: Array
    certificate: Certificate
    before: Mapping[str, float]
    screened: bool
    kept: int
    iterations: int
    checks: int
    loss: float
    seconds: float
    status: str


def iterate_path(
    problem: Problem,
    values: Iterable[float],
    *,
    tol: float = 1e-6,
    screen: bool = True,
    method: str = "auto",
    first: Sequence[tuple[float, Array]] = (),
    limits: Limits = UNLIMITED,
    max_iter: int | None = None,
) -> Iterator[MetricPathPoint]:
    """Solve `problem` at every lam of `values`, in that order.

    Parameters
    ----------
    problem : Problem
    values : iterable of float
    tol : float
        Certified relative gap.
    screen : bool
        Whether to reduce.
    method : {"auto", "bb", "newton", "active_set"}
    first : sequence of (lam, x)
        The points before, in their order; the last two are used.
    limits : Limits
        Of all values together.
    max_iter : int, optional
        Iterations for each value.
    """
    base = task_of(problem)
    fast = isinstance(base.terms, Products)
    last, interval, costs = list(first)[-2:], IntervalReduction(), ScreeningPauses()
    grid = [float(lam) for lam in values]
    for number, lam in enumerate(grid):
        began = perf_counter()
        here = problem.with_(lam=lam)
        known = interval.at(lam)
        task = base.at(lam) if known is None else known
        start, behind = _start(task, last), tuple(last)
        screened = screen and (known is not None or costs.screens())
        run = MetricOptimisation(
            tol=0.5 * tol, screen=screened, method=method, limits=limits.each(max_iter)
        )
        if known is not None:
            run.dropped, run.fixed = interval.dropped, interval.fixed
        proof: list[tuple[Array, Array | None, Certificate]] = []

        def accept(metric: FactoredMetric, here: Problem = here, proof: list = proof) -> bool:  # type: ignore[type-arg]
            x = _in_the_cone(here, metric)
            proof.append((x, None, certify_metric(here, x, tol=tol)))
            return proof[-1][2].ok

        if (task.smoothing == 0.0).any():
            metric, run, _, theta = solve_plain_hinge(task, start, run)
            proof.append(_listed(here, metric, theta, tol))
        else:
            state, _ = run.solve(task, start, accept if fast else None)
            metric = state.metric
            if screened and known is None and run.first_iterate is not None and run.checks:
                interval.decide_ahead(
                    task, run.first_iterate, run.checks[0].kept, grid[number + 1 :]
                )
                if interval.task is None and evaluation_cost(task) > CHEAP:
                    costs.learn(run.saved, run.spent)
            if not proof or not proof[-1][2].ok:
                proof.append(_checked(here, metric, tol, fast))
        x, slopes, certificate = proof[-1]
        last = [*last[-1:], (lam, x)]
        if slopes is None:
            slopes = np.zeros(0)
            if here.n <= LISTED_ON_PATH:
                slopes = here.losses.slope(here.design.forward(x))
        shrunk = run.checks[0] if screened and run.checks and run.iterations else None
        yield MetricPathPoint(
            here, x, slopes, certificate,
            _shares(shrunk.dropped, shrunk.fixed, here.n) if shrunk else (
                LazyNumbers(partial(_proven_at_start, base, lam, behind))
            ),
            shrunk is not None,
            min((step.kept for step in run.checks), default=here.n), run.iterations,
            len(run.checks), certificate.primal - smooth_part(problem, x, lam),
            perf_counter() - began, run.limits.word(certificate.ok),
        )


def _shares(dropped: int, fixed: int, terms: int) -> dict[str, float]:
    return {"zero": dropped / terms, "linear": fixed / terms, "quadratic": 0.0}


def _proven_at_start(
    base: MetricTask, lam: float, last: Sequence[tuple[float, Array]]
) -> dict[str, float]:
    """What the extrapolated start at `lam` proves about all terms."""
    task = base.at(lam)
    state = task.evaluate(_start(task, last))
    return _shares(*count_decided(task, task.sphere(state), state), len(task.terms))


def smooth_part(problem: Problem, x: Array, lam: float) -> float:
    """The objective at `x` and `lam` without the losses."""
    return 0.5 * lam * float(x @ x) + float(problem.linear @ x) + problem.constant


def _start(task: MetricTask, last: Sequence[tuple[float, Array]]) -> FactoredMetric:
    if not last:
        return closed_form(task)
    (lam2, older), (lam1, newer) = last[0], last[-1]
    lead = 0.0
    if lam1 != lam2:
        lead = min(max(float(np.log(task.lam / lam1) / np.log(lam1 / lam2)), 0.0), 2.0)
    return task.cone.project((newer + lead * (newer - older)).reshape(task.minus_linear.shape))


def _in_the_cone(problem: Problem, metric: FactoredMetric) -> Array:
    """The coordinates of a metric, rounded into the cone as the penalty has it."""
    x = metric.value.ravel()
    return x if problem.penalty is None else problem.penalty.project(x)


def _checked(
    problem: Problem, metric: FactoredMetric, tol: float, fast: bool
) -> tuple[Array, Array | None, Certificate]:
    x = _in_the_cone(problem, metric)
    if fast or problem.n > LISTED:
        return x, None, certify_metric(problem, x, tol=tol)
    theta = problem.losses.slope(problem.design.forward(x))
    return x, theta, certify(problem, x, theta, tol=tol)


def _listed(
    problem: Problem, metric: FactoredMetric, theta: Array, tol: float
) -> tuple[Array, Array, Certificate]:
    x = _in_the_cone(problem, metric)
    theta = np.clip(theta, problem.losses.lo, problem.losses.hi)
    return x, theta, certify(problem, x, theta, tol=tol)


STOP = 0.01
"""A path ends where the loss hardly falls any more: see `ends`."""


FLOOR = 5e-7
"""Nor does it go below this share of the largest lambda, as that rule never holds for separable
triplets; the paths in Table 2 of Yoshida et al. (2019) end at 7e-7 to 3e-6 of theirs."""


def ends(before: tuple[float, float] | None, now: tuple[float, float]) -> bool:
    """The stopping rule of a path (Yoshida et al. 2019, section 7), on ``(lam, loss)``.

    Whether the relative fall of the loss, per relative fall of lam, is below `STOP`.
    """
    if before is None:
        return False
    (lam0, loss0), (lam1, loss1) = before, now
    if loss0 <= 0.0:
        return True
    return (loss0 - loss1) / loss0 * lam0 / (lam0 - lam1) < STOP


def metric_grid(problem: Problem) -> Array:
    """0.9 times the value before, from the largest lam that matters down to `FLOOR` times that.

    Raises
    ------
    InvalidInput
        If the problem has no such lam.
    """
    top = lambda_max(problem)
    if not 0.0 < top < np.inf:
        raise InvalidInput("`values` is missing, and this problem has no largest lambda.")
    return np.asarray(top * 0.9 ** np.arange(1, 1 + int(np.log(FLOOR) / np.log(0.9))))


def metric_rows(
    problem: Problem,
    grid: Array,
    tol: float,
    done: Sequence[dict[str, Any]],
    *,
    stop: bool,
    limits: Limits = UNLIMITED,
    max_iter: int | None = None,
    method: str = "auto",
) -> Iterator[dict[str, Any]]:
    """The points of a path after those `done`, each as the fields of its record.

    With `stop` it ends by the rule of `ends`, once the loss has begun to fall. `limits` are of all
    points together, `max_iter` of each.
    """
    decrease = LossDecrease()
    for row in done:
        x, lam = row["x"], row["value"]
        if decrease.over(lam, row["objective"] - smooth_part(problem, x, lam)) and stop:
            return
    first = [(row["value"], row["x"]) for row in done]
    points = iterate_path(
        problem, grid[len(done):], tol=tol, first=first, limits=limits, max_iter=max_iter,
        method=method,
    )
    for point in points:
        proof, lam = point.certificate, float(point.problem.lam or 0.0)
        yield {
            "value": lam,
            "x": point.x,
            "theta": point.theta,
            "objective": proof.primal,
            "gap": proof.gap,
            "relative_gap": proof.relative_gap,
            "status": point.status,
            "before": point.before,
            "screened": point.screened,
            "kept": point.kept,
            "predicted": 0,
            "refuted": 0,
            "rounds": point.checks,
            "seconds": point.seconds,
            "over": "lam",
        }
        if decrease.over(lam, point.loss) and stop:
            return


class LossDecrease:
    """How the loss falls along lambda; near the largest lambda it hardly falls either."""

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None
        self.steep = False

    def over(self, lam: float, loss: float) -> bool:
        """Take in a point; whether it is the last."""
        flat = ends(self.before, (lam, loss))
        last = self.steep and flat
        self.steep = self.steep or (self.before is not None and not flat)
        self.before = lam, loss
        return last
