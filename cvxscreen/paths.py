"""Solutions along a grid of C or lambda, each from its neighbour and certified in full."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path as FilePath
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.checkpoint import Checkpoint
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.path_record import Path, PathPoint, Points, load_path
from cvxscreen.path_run import Run
from cvxscreen.problem import Problem
from cvxscreen.progress import Progress
from cvxscreen.solvers.inner import check_request
from cvxscreen.solvers.metric_rows import metric_grid, metric_rows
from cvxscreen.solvers.metric_start import is_metric

Array = NDArray[np.float64]

__all__ = ["Path", "PathPoint", "load_path", "path"]


PARAMETERS = ("C", "lam")


def _grid(values: ArrayLike) -> Array:
    grid = np.array(values, dtype=np.float64)
    if grid.ndim != 1 or not len(grid):
        raise InvalidInput(f"`values` has shape {grid.shape}; a non-empty list is needed.")
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise InvalidInput("`values` must all be positive and finite.")
    return grid


Function = TypeVar("Function", bound=Callable[..., Any])


def _open(function: Function) -> Function:
    """Hand problems of CVXPY to who knows them."""

    @wraps(function)
    def front(problem: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(problem, Problem):
            from cvxscreen import parameters

            if isinstance(problem, parameters.CvxpyProblem):
                return parameters.parameter_path(problem, *args, **options)
        return function(problem, *args, **options)

    return cast(Function, front)


@_open
def path(
    problem: Problem,
    *,
    over: str = "C",
    values: ArrayLike | None = None,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    progress: bool = False,
    checkpoint: str | FilePath | None = None,
) -> Path:
    """Solve `problem` at every value of C or lambda, each from the solution before it.

    Parameters
    ----------
    problem : Problem
    over : {"C", "lam"}
        The parameter that changes; ``"lam"`` for problems that have one.
    values : sequence of float
        In the order to solve them; up or down. For metric learning they may be left out: 0.9 times
        the value before, from the largest that matters until the loss hardly falls (Yoshida et al.
        2019, section 7).
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
    if over not in PARAMETERS:
        raise UnknownName.among("over", over, PARAMETERS)
    check_request(mode, tol)
    if over == "lam" and is_metric(problem):
        return _metric(problem, values, tol, solver, progress, checkpoint)
    if values is None:
        raise InvalidInput(f"`values` is missing: give the values of {over}.")
    grid = _grid(values)
    if over == "lam" and problem.lam is None:
        raise InvalidInput("`over`: this problem has no lambda (as metric learning has); use 'C'.")
    saved = Checkpoint.open(checkpoint, problem, grid, tol)
    points = Points(PathPoint(**row) for row in saved.rows)
    try:
        with Progress(len(grid), "path", shown=progress) as bar:
            for _ in range(len(points)):
                bar.step()
            run = Run(problem, points, tol, mode, solver, over)
            while len(points) < len(grid):
                known = len(points)
                run.advance(grid[known:known + 1] if checkpoint is not None else grid[known:])
                if checkpoint is not None:
                    saved.write([vars(p) for p in points], problem.n)
                for _ in range(known + 1, len(points)):
                    bar.step()
                bar.step(run.note)
    except KeyboardInterrupt:
        return Path(points, problem.n, finished=False)
    return Path(points, problem.n)


def _metric(
    problem: Problem,
    values: ArrayLike | None,
    tol: float,
    solver: str,
    progress: bool,
    checkpoint: str | FilePath | None,
) -> Path:
    """Metric learning along lambda."""
    if solver not in ("auto", "builtin"):
        raise InvalidInput("`over`: 'lam' takes the built-in solver; else call `solve` by value.")
    grid = _grid(metric_grid(problem) if values is None else values)
    saved = Checkpoint.open(checkpoint, problem, grid, tol)
    points = [PathPoint(**row) for row in saved.rows]
    try:
        with Progress(len(grid), "path", shown=progress) as bar:
            for row in metric_rows(problem, grid, tol, saved.rows, stop=values is None):
                points.append(PathPoint(**row))
                saved.write([vars(p) for p in points], problem.n)
                bar.step(f"lam={points[-1].value:.3g}, kept {points[-1].kept:,}")
    except KeyboardInterrupt:
        return Path(tuple(points), problem.n, finished=False)
    return Path(tuple(points), problem.n)
