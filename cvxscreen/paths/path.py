"""Solutions along a grid of C or lambda, each from its neighbour and certified in full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.validation import (
    check_request,
    choice,
    choice_in_any_case,
    finite,
    one_of,
    tolerance,
    word,
)
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, NotSaved
from cvxscreen.paths.checkpoint import Checkpoint
from cvxscreen.paths.record import Path, PathPoint, Points, load_path
from cvxscreen.paths.run import (
    EXACT,
    EpsRun,
    LpRun,
    MetricRun,
    Run,
    eps_range,
    known_points,
    lambda_only,
)
from cvxscreen.solvers.interface import SubproblemSolver
from cvxscreen.solvers.lp_svm import LP_SOLVERS, LpSvm
from cvxscreen.solvers.metric.sequence import metric_grid
from cvxscreen.solvers.metric.solver import MetricSolver, is_metric
from cvxscreen.solvers.registry import NEEDED, named_solver

Array = NDArray[np.float64]

__all__ = ["Path", "PathPoint", "load_path", "path"]


PARAMETERS = ("C", "lam", "tau")


def checked_values(values: ArrayLike | None) -> Array:
    """The values of a parameter, shape (m,), all positive."""
    grid = finite("values", values).copy()
    if grid.ndim != 1 or not len(grid):
        raise InvalidInput(f"`values` has shape {grid.shape}; a non-empty list is needed.")
    if not (grid > 0).all():
        raise InvalidInput(f"`values` goes down to {grid.min():g}; all must be positive.")
    return grid


@or_cvxpy("cvxpy.path")
def path(
    problem: Problem | LpSvm,
    *,
    over: str = "C",
    values: ArrayLike | None = None,
    eps: float | None = None,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str | SubproblemSolver = "auto",
    progress: bool = False,
    checkpoint: str | FilePath | None = None,
    time_limit: float | None = None,
    max_iter: int | None = None,
) -> Path:
    """Solve `problem` at every value of C, lambda or tau, each from the solution before it.

    A small problem does not wait for a compiler (see `solve`): last digits, within `tol`, may
    differ between a machine that has compiled the loops and one that has not.

    Parameters
    ----------
    problem : Problem or LpSvm
    over : {"C", "lam", "tau"}
        The parameter that changes; ``"tau"`` for quantile regression, whose level it is; ``"lam"``
        (or ``"lambda"``) for problems that have one (an LP-SVM has no other, and keeps no
        checkpoint).
    values : sequence of float
        In the order to solve them; up or down. For metric learning they may be left out: 0.9 times
        the value before, from the largest that matters until the loss hardly falls (Yoshida et al.
        2019, section 7), at most 137 values. With `eps` the first and the last value.
    eps : float, optional
        Choose the values of C between two ends so that at every C between them one of the points is
        optimal to this relative accuracy (Ogawa et al. 2014, section 4): `PathPoint.serves` says
        over which C. Takes no checkpoint.
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
        the same file, data and grid goes on from there, the way the first would have gone: to the
        same numbers, bit by bit.
    time_limit : float, optional
        Seconds of wall time for the whole path.
    max_iter : int, optional
        Iterations of the solver for each point, as in `solve`.

    Returns
    -------
    Path
        On Ctrl-C and when the time is up the points finished so far, with ``finished`` False.

    Raises
    ------
    InvalidInput
        For values that are not positive, for an `eps` where there are side constraints, a penalty
        or data in chunks, or that is out of reach, or a checkpoint of another problem, or with
        points that their certificates, computed again, do not bear out.
    NotSaved
        If the checkpoint cannot be written; the exception's `path` has the points.

    Notes
    -----
    The solution at ``C0`` gives the pair ``(x0, C/C0 theta0)`` at C, whose midpoint ball is the DVI
    ball (Wang et al. 2014, Theorem 6), safe for the approximate solution it rests on.

    The compiled solver knows the same two modes: ``"certified"`` solves for the terms within a
    share of that ball's reach of a kink and puts back what the answer refutes; ``"safe"`` leaves
    out only what the ball proves, rounding included, and with an unpenalised coordinate nothing.
    Each of its points is accepted on a certificate recomputed on the full data; records, and the
    shares proven before a solve, are made when they are looked at.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> path = cvxscreen.path(cvxscreen.svm(X, y), over="C", values=[0.01, 0.1, 1.0], tol=1e-9)
    >>> [round(point.objective, 4) for point in path.points]
    [0.894, 5.3957, 41.6543]
    >>> all(point.relative_gap <= 1e-9 for point in path.points)
    True
    """
    one_of(
        "problem", problem, (Problem, LpSvm), "a path is for a problem from `svm`, `regression`, "
        "`sparse_svm` or `rtlm`, and for a cvxpy.Problem with a parameter; solve others value by "
        "value"
    )
    over = choice("over", over, (*PARAMETERS, "lambda"))
    over = "lam" if over == "lambda" else over
    tol = tolerance(tol)
    check_request(mode, tol)
    limits = Limits(time_limit)
    if not isinstance(solver, SubproblemSolver):
        word("solver", solver, NEEDED)
    metric = over == "lam" and isinstance(problem, Problem) and is_metric(problem)
    if values is None and (eps is not None or not metric):
        raise InvalidInput(f"`values` is missing: give the values of {over}.")
    if isinstance(problem, LpSvm):
        if eps is not None:
            raise InvalidInput("`eps` is for a path over C; an LP-SVM has no C.")
        lambda_only(over, checkpoint)
        choice_in_any_case("solver", solver, LP_SOLVERS)
        lp = LpRun(problem, tol, mode, limits, max_iter)
        grid = checked_values(values)
        return _followed(lp, grid, Checkpoint(None, ""), problem.n, progress, one=False)
    ours = isinstance(solver, str) and solver.lower() in ("auto", "builtin")
    method = "auto"
    if metric and not ours:
        chosen = named_solver(solver, problem)
        if not isinstance(chosen, MetricSolver):
            raise InvalidInput("`over`: 'lam' takes a built-in solver; else call `solve` by value.")
        method = chosen.method
    if eps is not None:
        if over != "C" or checkpoint is not None:
            raise InvalidInput("`eps` is for a path over C without a checkpoint.")
        first, last = eps_range(problem, eps, checked_values(values))
        points = Points()
        run = Run(problem, points, min(tol, EXACT * eps), mode, solver, limits=limits,
                  max_iter=max_iter)
        steps = EpsRun(run, first, last, eps)
        return _followed(steps, None, Checkpoint(None, ""), problem.n, progress, one=True)
    grid = checked_values(metric_grid(problem) if values is None else values)
    if over == "lam" and problem.lam is None:
        raise InvalidInput("`over`: this problem has no lambda (as metric learning has); use 'C'.")
    if over == "tau" and (problem.layout is None or problem.layout.tau is None):
        raise InvalidInput("`over`: this problem has no quantile level; use 'C'.")
    if over == "tau" and not (grid < 1.0).all():
        raise InvalidInput(f"`values` goes up to {grid.max():g}; quantile levels are below 1.")
    saved = Checkpoint.open(checkpoint, problem, grid, tol, over)
    points = Points(known_points(saved, problem, grid, tol, over))
    followed: Run | MetricRun = MetricRun(
        problem, points, grid, tol, saved.rows, stop=values is None, limits=limits,
        max_iter=max_iter, method=method,
    ) if metric else Run(
        problem, points, tol, mode, solver, over, limits=limits, max_iter=max_iter,
        recorded=checkpoint is not None,
    )
    return _followed(followed, grid, saved, problem.n, progress, one=checkpoint is not None)


def _followed(
    run: Run | MetricRun | LpRun | EpsRun, grid: Array | None, saved: Checkpoint, terms: int,
    progress: bool, *, one: bool,
) -> Path:
    """Let `run` go along `grid`, `one` value at a time or as many as it likes, and save.

    Without a grid the run finds its values itself, and says when it has ended.
    """
    points, limits = run.points, run.limits
    total = None if grid is None else len(grid)
    values = np.zeros(0) if grid is None else grid
    try:
        with Progress(total, "path", shown=progress) as bar:
            for _ in range(len(points)):
                bar.step()
            while len(points) != total and not run.ended and not limits.spent():
                known = len(points)
                run.advance(values[known:known + 1] if one else values[known:])
                if len(points) == known:
                    continue
                _save(saved, points, terms)
                for _ in range(known + 1, len(points)):
                    bar.step()
                bar.step(run.note)
    except KeyboardInterrupt:
        return Path(points, terms, finished=False, stopped="interrupted")
    finished = run.ended or len(points) == total
    return Path(points, terms, finished, "" if finished else limits.reached)


def _save(saved: Checkpoint, points: Sequence[PathPoint], terms: int) -> None:
    """Write the points; what cannot be written goes with the exception."""
    if saved.file is None:
        return
    try:
        saved.write([vars(p) for p in points], terms)
    except NotSaved as error:
        error.path = Path(points, terms, finished=False, stopped="interrupted")
        raise
