"""Solutions along a grid of C, each warm-started from its neighbour and certified in full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path as FilePath
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen import bounds
from cvxscreen.checkpoint import Checkpoint
from cvxscreen.doors import named_solver, warm_start
from cvxscreen.duality import reference_point
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.path_record import Path, PathPoint, Points, Shares, load_path
from cvxscreen.problem import Problem
from cvxscreen.progress import Progress
from cvxscreen.rules import judge, piece_masks
from cvxscreen.solvers.inner import Start, check_request
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.small_path import SmallPath, Stretch, suits
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Pair = tuple[float, Array, Array]

__all__ = ["Path", "PathPoint", "load_path", "path"]

COMPILED = ("auto", "builtin")
"""Names of solvers that leave the choice to us."""

PATIENCE = 3
"""Points that the compiled solver may miss before the ordinary one takes the rest."""

NOTHING = {"zero": 0.0, "linear": 0.0, "quadratic": 0.0}


def _grid(values: ArrayLike) -> Array:
    grid = np.array(values, dtype=np.float64)
    if grid.ndim != 1 or not len(grid):
        raise InvalidInput(f"`values` has shape {grid.shape}; a non-empty list of C is needed.")
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise InvalidInput("`values` must all be positive and finite.")
    return grid


Function = TypeVar("Function", bound=Callable[..., Any])
_GUESTS: list[tuple[type, Callable[..., Any]]] = []


def register_path(kind: type, walk: Callable[..., Any]) -> None:
    """Let `walk` serve `path` for problems of another `kind`; called once by who knows them."""
    _GUESTS.append((kind, walk))


def _open(function: Function) -> Function:
    """Hand problems of other kinds to whoever registered for them."""

    @wraps(function)
    def front(problem: Any, *args: Any, **options: Any) -> Any:
        for kind, walk in _GUESTS:
            if isinstance(problem, kind):
                return walk(problem, *args, **options)
        return function(problem, *args, **options)

    return cast(Function, front)


@_open
def path(
    problem: Problem,
    *,
    over: str = "C",
    values: ArrayLike,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    progress: bool = False,
    checkpoint: str | FilePath | None = None,
) -> Path:
    """Solve `problem` at every value of C, each from the solution before it.

    Parameters
    ----------
    problem : Problem
    over : {"C"}
        The parameter that changes.
    values : sequence of float
        In the order to solve them; up or down.
    tol, mode
        As in `solve`.
    solver : str
        As in `solve`. ``"auto"`` (or ``"builtin"``) takes the compiled solver where the data are
        dense with few coordinates, and the ordinary loop for any point that its certificate
        refuses; ``"newton"`` is the ordinary loop from the start.
    progress : bool
        Show a bar with the time left.
    checkpoint : str or Path, optional
        File (.npz) that holds the finished points, written atomically after each; a later call with
        the same file, data and grid goes on from there.

    Returns
    -------
    Path
        On Ctrl-C the points finished so far, with ``finished`` False.

    Raises
    ------
    InvalidInput
        For values that are not positive, or a checkpoint of another problem.

    Notes
    -----
    The solution at ``C0`` gives the pair ``(x0, C/C0 theta0)`` at C, whose midpoint ball is the DVI
    ball (Wang et al. 2014, Theorem 6), safe for the approximate solution it rests on.

    The compiled solver knows the same two modes: ``"certified"`` solves for the terms within a
    share of that ball's reach of a kink and puts back what the answer refutes; ``"safe"`` leaves
    out only what the ball proves, rounding included, and with an unpenalised coordinate nothing.
    Each of its points is accepted on a certificate recomputed on the full data; records, and the
    shares proven before a solve, are made when they are looked at.
    """
    if over != "C":
        raise UnknownName.among("over", over, ("C",))
    grid = _grid(values)
    check_request(mode, tol)
    saved = Checkpoint.open(checkpoint, problem, grid, tol)
    points = Points(PathPoint(**row) for row in saved.rows)
    try:
        with Progress(len(grid), "path", shown=progress) as bar:
            for _ in range(len(points)):
                bar.step()
            run = _Run(problem, points, tol, mode, solver)
            while len(points) < len(grid):
                known = len(points)
                run.advance(grid[known:known + 1] if checkpoint is not None else grid[known:])
                if checkpoint is not None:
                    saved.write([vars(p) for p in points], problem.n)
                for _ in range(known, len(points)):
                    bar.step(run.note)
    except KeyboardInterrupt:
        return Path(points, problem.n, finished=False)
    return Path(points, problem.n)


class _Run:
    """The state of one call: its points so far, and what the next one starts from."""

    def __init__(
        self, problem: Problem, points: Points, tol: float, mode: str, solver: str
    ) -> None:
        self.problem, self.points = problem, points
        self.tol, self.mode, self.solver = tol, mode, solver
        self.previous: Solution | None = None
        self.small: SmallPath | None = None
        self.missed, self.note = 0, ""
        if solver.lower() in COMPILED and suits(problem):
            self.small = SmallPath(problem, mode, tol)
            if points:
                self.small.restart(points[-1].value, points[-1].x, points[-1].theta)

    def advance(self, grid: Array) -> None:
        """Add one point or, compiled, the first few of those left on the grid."""
        if self.small is not None:
            stretch = self.small.solve(grid[: self.small.length(len(grid))])
            self.take(stretch)
            if len(stretch) and stretch.proofs.ok[-1]:
                return
            grid = grid[len(stretch):]
            if not len(grid):
                return
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
            previous = _resume(self.problem, self.points[-1])
        point, self.previous = _one(
            self.problem.with_(C=value), previous, self.tol, self.mode, self.solver
        )
        self.points.append(point)
        self.note = f"C={value:.3g}, kept {point.kept:,}, gap {point.relative_gap:.1e}"
        if self.small is not None:
            self.missed += 1
            self.small.restart(value, point.x, point.theta)
            if self.missed > PATIENCE:
                self.small = None


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
    problem: Problem, value: float, before: Callable[[], Pair] | None
) -> dict[str, float]:
    """What the midpoint ball of the point before proves at C = `value`, as in `solve_screened`."""
    if before is None:
        return dict(NOTHING)
    C, x, theta = before()
    here = problem.with_(C=value)
    point = bounds.moved(here, reference_point(problem.with_(C=C), x, theta))
    verdict = judge(here, bounds.midpoint_ball(here, point))
    masks = piece_masks(here.losses, verdict.codes)
    return {kind: float(masks[kind].mean()) for kind in NOTHING}


def _resume(problem: Problem, last: PathPoint) -> Solution:
    """A finished point as a warm start."""
    here = problem.with_(C=last.value)
    return solve_screened(here, start=Start(last.x, last.theta), tol=1e-3)


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
        theta=found.theta,
        objective=found.value,
        gap=found.certificate.gap,
        relative_gap=found.certificate.relative_gap,
        status=found.status,
        before={kind: found.before.get(kind, 0.0) for kind in NOTHING},
        kept=last.kept if last else here.n,
        predicted=last.predicted if last else 0,
        refuted=sum(r.refuted for r in found.rounds),
        rounds=len(found.rounds),
        seconds=perf_counter() - began,
    )
    return point, found
