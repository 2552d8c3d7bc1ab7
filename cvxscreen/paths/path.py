"""Solutions along a grid of C or lambda, each from its neighbour and certified in full.

`path` is the entry. Below it stand the ways along a grid that it chooses from: compiled segments
where they suit, else point by point (`PathFollower`); metric learning over lambda, one point at a
time (`MetricPathFollower`); a path that places its values of C itself (`EpsPathFollower`); tasks
that share a subspace (`TasksPathFollower`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.limits import TIME, UNLIMITED, Limits, Progress, with_threads
from cvxscreen._support.validation import (
    check_request,
    choice,
    finite,
    one_of,
    tolerance,
    word,
)
from cvxscreen.api import chosen_bounds
from cvxscreen.bounds import Bound, default_bounds, moved
from cvxscreen.certificates.certificate import Certificate, Passes, certify
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Codes
from cvxscreen.core.problem import Problem
from cvxscreen.core.streamed import Slopes
from cvxscreen.designs.chunks import ListedValues
from cvxscreen.designs.comparisons import Pairs, Products
from cvxscreen.errors import InvalidInput, NotSaved
from cvxscreen.multitask import MultiTask, MultiTaskSolution, solve_multitask
from cvxscreen.paths.levels import LevelBlock, all_slopes, is_quantile_process
from cvxscreen.paths.record import Checkpoint, Path, PathPoint, Points, load_path, points_of
from cvxscreen.screening.ranges import eps_interval
from cvxscreen.solvers.compiled_path.segments import PARTS, CompiledPath, PathSegment, ready
from cvxscreen.solvers.dual_active_set import DualActiveSet, PathCache
from cvxscreen.solvers.interface import Start, SubproblemSolver
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.lasso_path import LassoPath
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.metric.sequence import metric_grid, metric_rows
from cvxscreen.solvers.metric.solver import MetricSolver, is_metric
from cvxscreen.solvers.reformulations import KeptForm
from cvxscreen.solvers.registry import (
    NEEDED,
    builtin_takes,
    compiled_path,
    left_to_us,
    named_solver,
)
from cvxscreen.solvers.solution import (
    LazyNumbers,
    Solution,
    moved_start,
    shares_proven,
    warm_start,
)
from cvxscreen.solvers.solve import solve_problem

Array = NDArray[np.float64]

__all__ = ["Path", "PathPoint", "load_path", "path"]


PARAMETERS = ("C", "lam", "tau")
OF_TASKS = ("alpha", "beta")


def listed_values(values: ArrayLike | None) -> Array:
    """The values of a parameter, shape (m,), all finite."""
    grid = finite("values", values).copy()
    if grid.ndim != 1 or not len(grid):
        raise InvalidInput(f"`values` has shape {grid.shape}; a non-empty list is needed.")
    return grid


def checked_values(values: ArrayLike | None) -> Array:
    """The values of a parameter, shape (m,), all positive."""
    grid = listed_values(values)
    if not (grid > 0).all():
        raise InvalidInput(f"`values` goes down to {grid.min():g}; all must be positive.")
    return grid


@or_cvxpy("cvxpy.path")
@with_threads
def path(
    problem: Problem | MultiTask,
    *,
    over: str = "C",
    values: ArrayLike | None = None,
    eps: float | None = None,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str | SubproblemSolver = "auto",
    bounds: str | Bound | Sequence[str | Bound] | None = None,
    progress: bool = False,
    checkpoint: str | FilePath | None = None,
    time_limit: float | None = None,
    max_iter: int | None = None,
    threads: int | None = None,
) -> Path:
    """Solve `problem` at every value of one parameter, each from the solution before it.

    A small problem does not wait for a compiler (see `solve`): last digits, within `tol`, may
    differ between a machine that has compiled the loops and one that has not.

    Parameters
    ----------
    problem : Problem or MultiTask
    over : {"C", "lam", "tau", "alpha", "beta"}
        The parameter that changes; ``"tau"`` for quantile regression, whose level it is; ``"lam"``
        (or ``"lambda"``) for problems that have one;
        ``"alpha"`` and ``"beta"`` for tasks that share a subspace (`raso`), which keep no
        checkpoint either: `PathPoint.solution` has the subspace at each.
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
        dense with few coordinates, one of its own for a lasso of dense data over C, and the
        ordinary loop for any point that their certificates refuse; ``"newton"`` is the ordinary
        loop from the start.
    bounds : str, Bound or a sequence of them, optional
        As in `solve`, for every point; they are what ``before`` records as well. The ordinary loop
        follows them. Tasks and metric learning over lambda have rules of their own.
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
    threads : int, optional
        Of the passes over large data, as in `solve`; the same bits whatever the number.

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
        "problem", problem, (Problem, MultiTask), "a path is for a problem from `svm`, "
        "`regression`, `sparse_svm`, `rtlm` or `raso`, and for a cvxpy.Problem with a parameter; "
        "solve others value by value"
    )
    over = choice("over", over, (*PARAMETERS, *OF_TASKS, "lambda"))
    over = "lam" if over == "lambda" else over
    tol = tolerance(tol)
    mode = check_request(mode, tol)
    limits = Limits(time_limit)
    # Everything is refused here, before the first of many solves.
    if not isinstance(solver, SubproblemSolver):
        word("solver", solver, NEEDED)
    metric = over == "lam" and isinstance(problem, Problem) and is_metric(problem)
    asked: tuple[Bound, ...] | None = None
    if bounds is not None and isinstance(problem, Problem) and not metric:
        asked = chosen_bounds(problem, bounds)
    elif bounds is not None:
        raise InvalidInput(
            f"`bounds` is {bounds!r}; a path over C or tau takes bounds, and one over lambda for "
            "features and samples. This one is screened by rules of its own."
        )
    if values is None and (eps is not None or not metric):
        raise InvalidInput(f"`values` is missing: give the values of {over}.")
    if isinstance(problem, MultiTask):
        for name, given in (("eps", eps), ("checkpoint", checkpoint)):
            if given is not None:
                raise InvalidInput(f"`{name}`: a path of tasks that share a subspace takes none.")
        if over not in OF_TASKS:
            raise InvalidInput(
                f"`problem` is a MultiTask, which has {' and '.join(map(repr, OF_TASKS))} to go "
                f"along; `over` is {over!r}."
            )
        tasks = TasksPathFollower(problem, over, tol, mode, solver, limits, max_iter)
        grid = checked_values(values)
        return _follow(tasks, grid, Checkpoint(None, ""), problem.n, progress, one=False)
    if over in OF_TASKS:
        raise InvalidInput(f"`over` is {over!r}, which tasks from `raso` have; use 'C'.")
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
        # How far the next value may lie follows from the gap of this point: it is well below eps.
        run = PathFollower(problem, points, min(tol, EXACT * eps), mode, solver, limits=limits,
                  max_iter=max_iter, bounds=asked)
        steps = EpsPathFollower(run, first, last, eps)
        return _follow(steps, None, Checkpoint(None, ""), problem.n, progress, one=True)
    grid = checked_values(metric_grid(problem) if values is None else values)
    if over == "lam" and problem.lam is None:
        raise InvalidInput("`over`: this problem has no lambda (as metric learning has); use 'C'.")
    if over == "tau" and (problem.layout is None or problem.layout.tau is None):
        raise InvalidInput("`over`: this problem has no quantile level; use 'C'.")
    if over == "tau" and not (grid < 1.0).all():
        raise InvalidInput(f"`values` goes up to {grid.max():g}; quantile levels are below 1.")
    saved = Checkpoint.open(checkpoint, problem, grid, tol, over)
    points = Points(known_points(saved, problem, grid, tol, over))
    followed: PathFollower | MetricPathFollower = MetricPathFollower(
        problem, points, grid, tol, saved.rows, stop=values is None, limits=limits,
        max_iter=max_iter, method=method,
    ) if metric else PathFollower(
        problem, points, tol, mode, solver, over, limits=limits, max_iter=max_iter,
        recorded=checkpoint is not None,
        alone=len(grid) == 1 and time_limit is None,
        bounds=asked,
    )
    return _follow(followed, grid, saved, problem.n, progress, one=checkpoint is not None)


def _follow(
    run: PathFollower | MetricPathFollower | EpsPathFollower | TasksPathFollower,
    grid: Array | None,
    saved: Checkpoint,
    terms: int,
    progress: bool,
    *,
    one: bool,
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


class MetricPathFollower:
    """The same for metric learning over lambda, whose points `metric_rows` solves one by one.

    With `stop` the path is at its end once the loss hardly falls any more.
    """

    def __init__(
        self, problem: Problem, points: Points, grid: Array, tol: float,
        done: tuple[dict[str, Any], ...], *, stop: bool, limits: Limits, max_iter: int | None,
        method: str = "auto",
    ) -> None:
        self.points, self.limits = points, limits
        self.ended, self.note = False, ""
        self._rows = metric_rows(
            problem, grid, tol, done, stop=stop, limits=limits, max_iter=max_iter, method=method
        )

    def advance(self, _: Array) -> None:
        """Add one point; none at the end, or where the time is up."""
        row = next(self._rows, None)
        if row is None:
            self.ended = True
        elif row["status"] == TIME:
            self.limits.spent()  # this point is not finished, so it does not count
        else:
            point = PathPoint(**row)
            self.points.append(point)
            self.note = f"lam={point.value:.3g}, kept {point.kept:,}"


Pair = tuple[float, Array, Array]

PATIENCE = 3
"""Points that the compiled solver may miss before the ordinary one takes the rest; blocks of
levels that may end early before each level is solved by itself."""

AGREEMENT = 1e-9
"""Of a stored objective with the one computed again, relative: sums of nine million terms may
differ by as much where they are summed in another order, those of another problem by far more."""

NOTHING = {"zero": 0.0, "linear": 0.0, "quadratic": 0.0}


class PathFollower:
    """What goes along a grid point by point: the points so far, and what the next one starts from.

    With `recorded`, every point starts from the record of the one before and from nothing else, so
    that a path that is cut off and resumed from its file goes the way it would have gone.
    """

    def __init__(
        self,
        problem: Problem,
        points: Points,
        tol: float,
        mode: str,
        solver: str | SubproblemSolver,
        over: str = "C",
        *,
        recorded: bool = False,
        alone: bool = False,
        limits: Limits = UNLIMITED,
        max_iter: int | None = None,
        bounds: tuple[Bound, ...] | None = None,
    ) -> None:
        self.problem, self.points, self.over = problem, points, over
        self.tol, self.mode, self.solver, self.bounds = tol, mode, solver, bounds
        self.recorded, self.limits, self.max_iter = recorded, limits, max_iter
        self.previous: Solution | None = None
        self.margins: Array | None = None  # of the point before the last, without curvature
        self.At_jumps: Array | None = None  # A' of the jumps of the slopes, likewise
        self.compiled: CompiledPath | LassoPath | None = None
        self.path_cache, self.kept_form = PathCache(), KeptForm()
        self.missed, self.note, self.ended = 0, "", False
        self.blocks_missed = 0  # of levels, none of whose vertices was found with the others
        # The compiled loop counts no iterations, and has a bound of its own.
        plain = over == "C" and max_iter is None and bounds is None
        # A value alone is a solve, by whichever engine `solve` takes.
        self.alone = alone and plain and not recorded
        self.waiting = plain and not self.alone and compiled_path(problem, solver, many=True)
        self.compiling_pays = False
        self.compile(at_once=recorded)
        lassos = over in ("C", "lam") and max_iter is None and bounds is None and not self.alone
        if lassos and not recorded and mode == "certified" and left_to_us(solver):
            self.compiled = self.compiled or LassoPath.of(problem, over, tol, limits)

    def compile(self, at_once: bool = False) -> None:
        """Take the compiled path where that suits and is ready, or `at_once`.

        The latter where a path has to go the same way in every process. Asked where a call begins,
        and again only where what is left of it costs as much as compiling: `ready` compiles one
        part and leaves the others to the next that asks, which so is the next call.
        """
        if not self.waiting or not (at_once or ready()):
            return
        self.waiting, points = False, self.points
        self.compiled = CompiledPath(self.problem, self.mode, self.tol)
        if points:
            self.compiled.restart(points[-1].value, points[-1].x, points[-1].theta)

    def advance(self, grid: Array) -> None:
        """Add one point or, compiled, the first few of those left; none where the time is up."""
        if self.recorded and len(self.points):
            self.restore(self.points[-1])
        if self.compiling_pays:
            self.compile()
        if self.compiled is not None:
            asked = grid[: self.compiled.length(len(grid))]
            segment = self.compiled.solve(asked)
            self.take_segment(segment)
            if len(segment) == len(asked) or self.limits.reached:
                return
            grid = grid[len(segment):]  # it missed the first of these
        if self.over == "tau" and self.solve_levels(grid):
            return
        # The first point starts cold, in a process that may have to import what it takes: it says
        # little about the cost of those to come.
        coming = len(grid) - 1 if self.points else 0
        with PARTS.rent(coming) if self.waiting else nullcontext():
            self.solve_point(float(grid[0]))
        self.compiling_pays = self.waiting and PARTS.pays

    def restore(self, last: PathPoint) -> None:
        """Forget all but the record `last`, and go on from there as a resumed path would."""
        self.previous, self.missed = None, int(last.warm.get("missed", 0))
        if self.compiled is not None and self.missed > PATIENCE:
            self.compiled = None
        if self.compiled is not None:
            self.compiled.recall(last.warm.get("memory"))
            self.compiled.restart(last.value, last.x, last.theta)

    def warm_state(self, found: Solution | None = None) -> dict[str, Any]:
        """What the record of a point keeps for `restore` and `start_from_record`."""
        if not self.recorded:
            return {}
        kept: dict[str, Any] = {"missed": self.missed}
        if self.compiled is not None:
            kept["memory"] = self.compiled.memory
        if found is not None and found.rounds:
            kept["weight"] = found.rounds[-1].solver_info.get("weight")
        if found is not None and len(found.multipliers):
            kept["multipliers"] = found.multipliers.tolist()
        if found is not None and isinstance(found.theta, Slopes):
            kept["listed"] = [part.tolist() for part in (found.theta.listed.index,
                                                         found.theta.listed.values)]
        return kept

    def take_segment(self, segment: PathSegment) -> None:
        """Add the points of a compiled segment; those that their certificate refuses anew."""
        before, ok = None, segment.proofs.ok
        if self.points:
            before = partial(_pair_of_point, self.points, len(self.points) - 1)
        for k in range(len(segment)):
            if not ok[k]:
                self.solve_point(float(segment.values[k]))
                if self.limits.reached:
                    return
                before = partial(_pair_of_point, self.points, len(self.points) - 1)
                continue
            warm = self.warm_state()
            self.points.append(partial(_point_of_segment, self.problem, segment, k, before, warm))
            before = partial(_pair_of_segment, segment, k)
            self.previous = None
        if len(segment):
            self.note = f"{self.over}={segment.values[-1]:.3g}, "
            self.note += f"kept {segment.record[-1, 0]:.0f}, gap "
            self.note += f"{segment.proofs.relative_gap[-1]:.1e}"

    def solve_point(self, value: float) -> None:
        """The next point by the ordinary loop."""
        same = value == getattr(self.problem, self.over, None)
        here = self.problem if same else self.problem.with_(**{self.over: value})
        began = perf_counter()
        if self.alone:
            found = solve_problem(here, tol=self.tol, mode=self.mode, solver=self.solver)
        else:
            found = self.solved_from_previous(here, value)
        point = _point_of_solution(found, perf_counter() - began)
        if point.status == TIME:
            self.limits.spent()  # this point is not finished, so it does not count
            return
        # An infeasible problem has no point to go on from.
        self.previous = found if np.isfinite(found.x).all() else None
        if isinstance(point.before, LazyNumbers):  # from the records, which are kept anyway
            last = partial(_pair_of_point, self.points, len(self.points) - 1)
            point = replace(point, before=LazyNumbers(
                partial(_proven_before, self.problem, value, last, self.over, self.bounds)
            ))
        self.note = f"{self.over}={value:.3g}, kept {point.kept:,}, gap {point.relative_gap:.1e}"
        if self.compiled is not None:
            self.missed += 1
            self.compiled.restart(value, point.x, point.theta)
            if self.missed > PATIENCE:
                self.compiled = None
        self.points.append(replace(point, value=value, over=self.over, warm=self.warm_state(found)))

    def solved_from_previous(self, here: Problem, value: float) -> Solution:
        """The solution of `here`, the problem at `value`, begun at the point before it."""
        limits = self.limits.each(self.max_iter)
        start, inner = None, named_solver(self.solver, here, limits)
        if self.previous is not None:
            light = isinstance(inner, DualActiveSet) and self.mode == "certified"
            plain = partial(warm_start, here, self.previous, light)
            start = self.extrapolated(here, plain, value) if self.over == "tau" else plain()
        elif len(self.points):
            start = self.start_from_record(here, self.points[-1])
        if isinstance(inner, DualActiveSet) and not self.recorded:
            inner = replace(inner, path_cache=self.path_cache)
        # A path that may be resumed goes one way, whatever is compiled, and keeps no other form.
        free = not self.recorded and left_to_us(self.solver) and builtin_takes(here)
        free = free and not isinstance(inner, DualActiveSet)
        return solve_screened(
            here, None if free else inner, mode=self.mode, tol=self.tol, start=start,
            bounds=self.bounds, limits=limits,
            kept=None if self.recorded else self.kept_form,
        )

    def solve_levels(self, grid: Array) -> bool:
        """Add the next levels of a quantile process, solved among the same terms; whether any."""
        previous = self.previous
        found = None if previous is None else previous.answer
        plain = self.mode == "certified" and self.bounds is None and not self.recorded
        plain = plain and self.missed <= PATIENCE
        if previous is None or found is None or not plain or not is_quantile_process(found.problem):
            return False
        # How the slope of every term at an end moves with the level is the same for all levels.
        if self.At_jumps is None:
            f = found.problem.losses
            self.At_jumps = found.problem.design.adjoint(f.hi - f.lo)
        began = perf_counter()
        block = LevelBlock.predicted_from(self.problem, found, grid, self.At_jumps)
        if block is None:
            return False
        inner = named_solver(self.solver, block.linearised.kept, self.limits.each(self.max_iter))
        fast = isinstance(inner, InteriorPoint) and self.blocks_missed < 2
        # Pivots from one vertex to the next first; where they have missed twice they are not tried
        # again on this path.
        answers = block.at_vertices() if fast else []
        if not answers:
            self.blocks_missed += fast
            answers = block.solve(
                partial(solve_screened, inner=inner, mode=self.mode, tol=self.tol)
            )
        proofs, answers, margins, At_theta = block.certified(answers, self.tol)
        count, terms, codes = len(proofs), self.problem.n, block.linearised.codes
        if not count:
            self.missed += 1
            return False
        seconds = (perf_counter() - began) / count
        for k, (proof, answer) in enumerate(zip(proofs, answers, strict=True)):
            level = float(block.levels[k])
            # What was proven before is asked for seldom, and costs a pass: it is found when it is.
            last = partial(_pair_of_point, self.points, len(self.points) - 1)
            record = PathPoint(
                value=level, x=answer.x, theta=answer.theta, objective=proof.primal, gap=proof.gap,
                relative_gap=proof.relative_gap, status="optimal", over=self.over,
                before=LazyNumbers(partial(_proven_before, self.problem, level, last, self.over)),
                kept=answer.solved, predicted=terms - answer.solved, refuted=answer.refuted,
                rounds=answer.rounds, seconds=seconds,
            )
            self.points.append(partial(_with_all_slopes, self.problem, codes, record))
            self.note = f"tau={level:.3g}, kept {record.kept:,}, gap {record.relative_gap:.1e}"
        self.margins = margins[0] if count > 1 else found.passes.margins
        passes = Passes(margins[-1].copy(), At_theta)
        self.previous = block.full_solution(count - 1, answers[-1], proofs[-1], passes)
        return True

    def extrapolated(self, here: Problem, plain: Callable[[], Start], value: float) -> Start:
        """The start `plain` with the last two points' x continued to `value`, the level of `here`.

        The quantile process is piecewise constant in x, and its trend is smooth: of what a step
        changes this leaves the noise. Without curvature the two products are continued as well.
        """
        last, share = self.points[-1], 0.0
        before = self.points[-2] if len(self.points) > 1 else last
        if last.value != before.value and np.isfinite(before.x).all():
            share = (value - last.value) / (last.value - before.value)
        x = np.asarray(last.x + share * (last.x - before.x))
        start = self.with_products(here, x, value - last.value, share)
        return plain()._replace(x=x) if start is None else start

    def with_products(
        self, here: Problem, x: Array, lower: float, share: float
    ) -> Start | None:
        """`x` with its margins, slopes and ``A' theta`` from the last points; None without those.

        All but the terms of a penalty get new ends, `lower` by the same share of their jump: slopes
        move with them, and ``A' theta`` by a vector that is known up to a factor.
        """
        previous = self.previous
        found = None if previous is None else previous.answer
        known, self.margins = self.margins, None
        if previous is None or found is None:
            return None
        if not here.without_curvature or here.losses.any_hard:
            return None
        margins, At_theta = found.passes.margins, found.passes.At_theta
        if margins is None or At_theta is None:
            return None
        self.margins = margins
        if share:
            if known is None:
                return None
            ahead = margins + share * (margins - known)
            if here.primal(x, ahead) < here.primal(previous.x, margins):
                margins = ahead
            else:  # in the tails the process bends too much
                x = previous.x
        old, new = found.problem.losses, here.losses
        if not lower:
            return None
        if self.At_jumps is None:
            self.At_jumps = here.design.adjoint((old.lo - new.lo) / lower)
        theta = np.clip(found.theta + (new.lo - old.lo), new.lo, new.hi)
        theta = np.where(found.theta == old.lo, new.lo, theta)
        theta = np.where(found.theta == old.hi, new.hi, theta)
        passes = (margins, At_theta - lower * self.At_jumps)
        return Start(x, theta, multipliers=previous.multipliers, passes=passes)

    def start_from_record(self, here: Problem, last: PathPoint) -> Start | None:
        """A finished point as a start for `here`; None if it is none."""
        if not np.isfinite(last.x).all():
            return None
        if here.design.streamed:  # whose slopes follow from x, and are not kept
            return Start(last.x, np.zeros(0))
        known = self.problem.with_(**{self.over: last.value})
        multipliers = last.warm.get("multipliers")
        point = reference_point(
            known, last.x, last.theta, None if multipliers is None else np.array(multipliers)
        )
        return moved_start(here, point, last.warm.get("weight"))


def _pair_of_point(points: Points, index: int) -> Pair:
    """``(C, x, theta)`` of a record."""
    return points[index].value, points[index].x, points[index].theta


def _with_all_slopes(problem: Problem, codes: Codes, record: PathPoint) -> PathPoint:
    """A point of a quantile process whose record has the slopes of the kept terms only."""
    losses = problem.with_(tau=record.value).losses
    return replace(record, theta=all_slopes(losses, codes, record.theta))


def _pair_of_segment(segment: PathSegment, k: int) -> Pair:
    """``(C, x, theta)`` of a point whose record may not exist yet."""
    return float(segment.values[k]), segment.X[k].copy(), segment.theta.row(k)


def _point_of_segment(
    problem: Problem,
    segment: PathSegment,
    k: int,
    before: Callable[[], Pair] | None,
    warm: Mapping[str, Any],
) -> PathPoint:
    """The record of point k of a segment."""
    value, x, theta = _pair_of_segment(segment, k)
    kept, predicted, refuted, rounds = (int(number) for number in segment.record[k, :4])
    return PathPoint(
        value=value,
        x=x,
        theta=theta,
        objective=float(segment.proofs.primal[k]),
        gap=float(segment.proofs.gap[k]),
        relative_gap=float(segment.proofs.relative_gap[k]),
        status="optimal",
        over=segment.over,
        before=LazyNumbers(partial(_proven_before, problem, value, before, segment.over)),
        kept=kept,
        predicted=predicted,
        refuted=refuted,
        rounds=rounds,
        seconds=segment.seconds / len(segment),
        warm=warm,
        features=None if segment.features is None else int(segment.features[k]),
    )


def _proven_before(
    problem: Problem, value: float, before: Callable[[], Pair] | None, over: str = "C",
    asked: tuple[Bound, ...] | None = None,
) -> dict[str, float]:
    """What the point before proves at `value`, as in `solve_screened`."""
    if before is None:
        return dict(NOTHING)
    last, x, theta = before()
    here = problem.with_(**{over: value})
    point = moved(here, reference_point(problem.with_(**{over: last}), x, theta))
    shares = shares_proven(here, asked or default_bounds(here), point)
    return {kind: shares[kind] for kind in (*NOTHING, "dropped") if kind in shares}


def _point_of_solution(found: Solution, seconds: float) -> PathPoint:
    """A solution as a point of a path."""
    last = found.rounds[-1] if found.rounds else None
    return PathPoint(
        value=found.problem.C,
        x=found.x,
        theta=found.theta if isinstance(found.theta, np.ndarray) else np.zeros(0),
        objective=found.value,
        gap=found.certificate.gap,
        relative_gap=found.certificate.relative_gap,
        status=found.status,
        before=found.before if isinstance(found.before, LazyNumbers) else NOTHING | {
            k: v for k, v in found.before.items() if k in (*NOTHING, "dropped")
        },
        kept=last.kept if last else found.problem.n,
        predicted=last.predicted if last else 0,
        refuted=sum(r.refuted for r in found.rounds),
        rounds=len(found.rounds),
        seconds=seconds,
        features=last.features if last else None,
    )


def known_points(
    saved: Checkpoint, problem: Problem, grid: Array, tol: float, over: str
) -> list[PathPoint]:
    """The points that a checkpoint holds, each certified again: a file proves nothing.

    Raises
    ------
    InvalidInput
        If one of them is not what it says it is.
    """
    if saved.file is None:
        return []
    points = points_of(saved.rows, saved.file, "checkpoint")
    for number, (point, value) in enumerate(zip(points, grid, strict=False)):
        try:
            proof = _recertified(problem.with_(**{over: point.value}), point, tol)
            claimed = abs(point.objective - proof.primal) <= AGREEMENT * abs(proof.primal)
            sound = proof.ok if point.status == "optimal" else True
            fault = "" if sound and claimed and point.value == value else "it is another one's"
        except InvalidInput as error:
            fault = str(error)
        if fault:
            raise InvalidInput(
                f"`checkpoint`: point {number} of {str(saved.file)!r} does not solve the problem "
                f"({fault}); name another file."
            )
    return points


def _recertified(here: Problem, point: PathPoint, tol: float) -> Certificate:
    slack = tol * (1.0 + 1e-3)  # two certificates charge the rounding in two ways
    if len(point.theta):
        kept = point.warm.get("multipliers")
        multipliers = None if kept is None else finite("multipliers", kept)
        return certify(here, point.x, point.theta, multipliers, tol=slack)
    if here.design.streamed:
        slopes = Slopes(here, finite("x", point.x, (here.d,)), _listed(point, here.n))
        return certify(here, point.x, slopes, tol=slack)
    if isinstance(here.design, Pairs) and isinstance(here.design.terms, Products):
        return certify_metric(here, point.x, tol=slack)
    theta = here.losses.slope(here.design.forward(finite("x", point.x, (here.d,))))
    return certify(here, point.x, theta, tol=slack)


def _listed(point: PathPoint, n: int) -> ListedValues:
    """The slopes of a record that do not follow from its x: those of terms at a kink.

    Raises
    ------
    InvalidInput
        If they are not numbers for some of the n terms, in their order.
    """
    found = finite("listed", point.warm.get("listed", np.zeros((2, 0))))
    if found.ndim != 2 or len(found) != 2:
        raise InvalidInput(f"`listed` has shape {found.shape}; (2, k) is needed.")
    rows = found[0].astype(np.intp)
    if (rows != found[0]).any() or (np.diff(rows, prepend=-1, append=n) <= 0).any():
        raise InvalidInput(f"`listed` names other rows than 0 to {n - 1}, each once, upwards.")
    return ListedValues(rows, found[1])


# -- from one C to the farthest that its solution serves ------------------------------------------
#
# The solution at C_k, its dual scaled by C / C_k, is a feasible pair at every C; it is within eps
# of optimal as long as its duality gap there is small enough, which two numbers of the point decide
# (`cvxscreen.screening.ranges.eps_interval`; Ogawa et al. 2014, section 4 and (35)). The next C
# to solve is where that ends, so the grid follows from eps and from the data.


EXACT = 0.1
"""Share of eps to which the points themselves are solved at least: a step is the longer the smaller
a point's own gap. Hinge loss on the heart data, C from 0.001 to 100, eps = 0.001: 84 points with
half of eps, 80 with a tenth as with any smaller share."""


def eps_range(problem: Problem, eps: float, ends: Array) -> tuple[float, float]:
    """The first and the last C of an eps-approximate path.

    Raises
    ------
    InvalidInput
        For an `eps` outside (0, 1), other than two `ends`, and for a problem whose scaled dual
        points are not feasible or have no array over the terms.
    """
    tolerance(eps, "eps")
    if len(ends) != 2:
        raise InvalidInput(
            f"`values` has {len(ends)} numbers; with `eps` the grid follows from the data: give "
            "the first and the last C."
        )
    unfit = (
        "side constraints" if problem.side is not None
        else "a penalty" if problem.penalty is not None
        else "data in chunks" if problem.design.streamed
        else "a linear term on an unpenalised coordinate"
        if problem.linear[problem.quadratic.free].any() else ""
    )
    if unfit:
        raise InvalidInput(f"`eps`: a problem with {unfit} has no scaled dual point at another C.")
    return float(ends[0]), float(ends[1])


class EpsPathFollower:
    """Points from the first C to the last, each solved where the one before stops being enough.

    Parameters
    ----------
    solving : PathFollower
        Solves a value of C.
    first, last : float
        Upwards or downwards.
    eps : float
    """

    def __init__(self, solving: PathFollower, first: float, last: float, eps: float) -> None:
        self.solving, self.last, self.eps = solving, last, eps
        self.points, self.limits = solving.points, solving.limits
        self.next, self.ended, self.note = first, False, ""
        self.up = last >= first

    def advance(self, _: Array) -> None:
        """Add the next point with the range of C that it serves; none where the time is up.

        Raises
        ------
        InvalidInput
            Where rounding keeps a point from being accurate enough for any step.
        """
        value, known = self.next, len(self.points)
        self.solving.advance(np.array([value]))
        if len(self.points) == known:
            return
        point = self.points[known]
        here = self.solving.problem.with_(C=value)
        pair = reference_point(here, point.x, point.theta)
        low, high = eps_interval(here, pair, self.eps)
        reach = high if self.up else low
        if not (reach > value if self.up else reach < value):
            raise InvalidInput(
                f"`eps` is {self.eps:g}; at C = {value:g} the relative gap is "
                f"{point.relative_gap:.1e}, not enough for a step. Give a larger `eps`, or a "
                "smaller `tol`."
            )
        self.points.replace(known, replace(point, serves=(low, high)))
        self.note = f"C={value:.4g}, serves to {reach:.4g}"
        self.ended = reach >= self.last if self.up else reach <= self.last
        self.next = reach


# -- tasks that share a subspace, over alpha or beta --------------------------------------------


class TasksPathFollower:
    """The same for tasks that share a subspace: each value from the metric of the one before.

    Nothing is known about a value from the one before but where to start: the joint objective is
    not strongly convex, so no ball around its optimum moves along (`cvxscreen.multitask.gap`).
    """

    ended = False

    def __init__(
        self, problem: MultiTask, over: str, tol: float, mode: str, solver: str | SubproblemSolver,
        limits: Limits, max_iter: int | None,
    ) -> None:
        if not isinstance(solver, str):
            raise InvalidInput("`solver`: tasks that share a subspace take solvers by name only.")
        self.problem, self.over, self.tol, self.mode = problem, over, tol, mode
        self.solver, self.limits, self.max_iter = solver, limits, max_iter
        self.points, self.note = Points(), ""
        self.previous: MultiTaskSolution | None = None

    def advance(self, grid: Array) -> None:
        """Add one point; none where the time is up."""
        value = float(grid[0])
        alpha, beta = (value, None) if self.over == "alpha" else (None, value)
        warm = self.solver.lower() in ("auto", "builtin", "bcd", "plain")
        found = solve_multitask(
            self.problem.with_(alpha=alpha, beta=beta), tol=self.tol, mode=self.mode,
            solver=self.solver, start=self.previous if warm else None,
            limits=self.limits.each(self.max_iter),
        )
        late = found.status == TIME
        if late:  # not finished, so it does not count
            self.limits.spent()
            return
        proof = found.certificate
        self.points.append(PathPoint(
            value=value, x=found.U.T.ravel(), theta=found.theta, objective=proof.primal,
            gap=proof.gap, relative_gap=proof.relative_gap, status=found.status,
            before=dict(NOTHING), kept=self.problem.n, predicted=0, refuted=0,
            rounds=len(found.rounds), seconds=found.seconds, over=self.over, screened=False,
            solution=found,
        ))
        self.previous, self.note = found, f"{self.over}={value:.3g}, {len(found.rounds)} rounds"
