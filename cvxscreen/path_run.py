"""One path over a parameter as it goes: compiled stretches where they suit, else point by point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen import bounds
from cvxscreen.doors import named_solver, warm_start
from cvxscreen.duality import reference_point
from cvxscreen.path_record import PathPoint, Points
from cvxscreen.problem import Problem
from cvxscreen.shares import Shares
from cvxscreen.solvers.inner import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.small_path import SmallPath, Stretch, suits
from cvxscreen.solvers.solution import Solution, shares_proven

Array = NDArray[np.float64]
Pair = tuple[float, Array, Array]

COMPILED = ("auto", "builtin")
"""Names of solvers that leave the choice to us."""

PATIENCE = 3
"""Points that the compiled solver may miss before the ordinary one takes the rest."""

NOTHING = {"zero": 0.0, "linear": 0.0, "quadratic": 0.0}


class Run:
    """The state of one call: its points so far, and what the next one starts from."""

    def __init__(
        self,
        problem: Problem,
        points: Points,
        tol: float,
        mode: str,
        solver: str,
        over: str = "C",
    ) -> None:
        self.problem, self.points, self.over = problem, points, over
        self.tol, self.mode, self.solver = tol, mode, solver
        self.previous: Solution | None = None
        self.small: SmallPath | None = None
        self.missed, self.note = 0, ""
        if over == "C" and solver.lower() in COMPILED and suits(problem):
            self.small = SmallPath(problem, mode, tol)
            if points:
                self.small.restart(points[-1].value, points[-1].x, points[-1].theta)

    def advance(self, grid: Array) -> None:
        """Add one point or, compiled, the first few of those left on the grid."""
        if self.small is not None:
            asked = grid[: self.small.length(len(grid))]
            stretch = self.small.solve(asked)
            self.take(stretch)
            if len(stretch) == len(asked):
                return
            grid = grid[len(stretch):]  # it missed the first of these
        self.one(float(grid[0]))

    def take(self, stretch: Stretch) -> None:
        """The points of a stretch; those that their certificate refuses are solved again."""
        before, ok = None, stretch.proofs.ok
        if self.points:
            before = partial(_last, self.points, len(self.points) - 1)
        for k in range(len(stretch)):
            if not ok[k]:
                self.one(float(stretch.values[k]))
                before = partial(_last, self.points, len(self.points) - 1)
                continue
            self.points.append(partial(_point, self.problem, stretch, k, before))
            before = partial(_pair, stretch, k)
            self.previous = None
        if len(stretch):
            self.note = f"C={stretch.values[-1]:.3g}, kept {stretch.record[-1, 0]:.0f}, gap "
            self.note += f"{stretch.proofs.relative_gap[-1]:.1e}"

    def one(self, value: float) -> None:
        """The next point by the ordinary loop."""
        previous = self.previous
        if previous is None and len(self.points):
            previous = self.resume(self.points[-1])
        here = self.problem.with_(**{self.over: value})
        point, self.previous = _one(here, previous, self.tol, self.mode, self.solver)
        if isinstance(point.before, Shares):  # from the records, which are kept anyway
            last = partial(_last, self.points, len(self.points) - 1)
            point = replace(point, before=Shares(
                partial(_proven_before, self.problem, value, last, self.over)
            ))
        self.points.append(replace(point, value=value, over=self.over))
        self.note = f"{self.over}={value:.3g}, kept {point.kept:,}, gap {point.relative_gap:.1e}"
        if self.small is not None:
            self.missed += 1
            self.small.restart(value, point.x, point.theta)
            if self.missed > PATIENCE:
                self.small = None

    def resume(self, last: PathPoint) -> Solution:
        """A finished point as a warm start."""
        here = self.problem.with_(**{self.over: last.value})
        return solve_screened(here, start=Start(last.x, last.theta), tol=1e-3)


def _last(points: Points, index: int) -> Pair:
    """``(C, x, theta)`` of a record."""
    return points[index].value, points[index].x, points[index].theta


def _pair(stretch: Stretch, k: int) -> Pair:
    """``(C, x, theta)`` of a point whose record may not exist yet."""
    return float(stretch.values[k]), stretch.X[k].copy(), stretch.theta.row(k)


def _point(
    problem: Problem, stretch: Stretch, k: int, before: Callable[[], Pair] | None
) -> PathPoint:
    """The record of point k of a stretch."""
    value, x, theta = _pair(stretch, k)
    kept, predicted, refuted, rounds = (int(number) for number in stretch.record[k, :4])
    return PathPoint(
        value=value,
        x=x,
        theta=theta,
        objective=float(stretch.proofs.primal[k]),
        gap=float(stretch.proofs.gap[k]),
        relative_gap=float(stretch.proofs.relative_gap[k]),
        status="optimal",
        before=Shares(partial(_proven_before, problem, value, before)),
        kept=kept,
        predicted=predicted,
        refuted=refuted,
        rounds=rounds,
        seconds=stretch.seconds / len(stretch),
    )


def _proven_before(
    problem: Problem, value: float, before: Callable[[], Pair] | None, over: str = "C"
) -> dict[str, float]:
    """What the midpoint ball of the point before proves at `value`, as in `solve_screened`."""
    if before is None:
        return dict(NOTHING)
    last, x, theta = before()
    here = problem.with_(**{over: value})
    point = bounds.moved(here, reference_point(problem.with_(**{over: last}), x, theta))
    shares = shares_proven(here, (bounds.midpoint_ball,), point)
    return {kind: shares[kind] for kind in NOTHING}


def _one(
    here: Problem, previous: Solution | None, tol: float, mode: str, solver: str
) -> tuple[PathPoint, Solution]:
    began = perf_counter()
    start = None if previous is None else warm_start(here, previous)
    found = solve_screened(
        here, named_solver(solver, here), mode=mode, tol=tol, start=start
    )
    last = found.rounds[-1] if found.rounds else None
    point = PathPoint(
        value=here.C,
        x=found.x,
        theta=found.theta if isinstance(found.theta, np.ndarray) else np.zeros(0),
        objective=found.value,
        gap=found.certificate.gap,
        relative_gap=found.certificate.relative_gap,
        status=found.status,
        before=found.before if isinstance(found.before, Shares) else NOTHING | {
            k: v for k, v in found.before.items() if k in (*NOTHING, "dropped")
        },
        kept=last.kept if last else here.n,
        predicted=last.predicted if last else 0,
        refuted=sum(r.refuted for r in found.rounds),
        rounds=len(found.rounds),
        seconds=perf_counter() - began,
        features=last.features if last else None,
    )
    return point, found
