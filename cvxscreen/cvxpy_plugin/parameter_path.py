"""Paths of a CVXPY problem over one of its parameters: `cvxscreen.path(prob, parameter, values)`.

Where the parameter only weighs losses against the regulariser (C, lambda), the recognised problem
at each value is that of one C, up to a factor, and the whole path is one path over C. With the
regulariser times ``sigma(v)`` and the losses times ``rho(v)`` at the parameter's value ``v``, the
problem is ``sigma(v)`` times that of ``C = rho(v) / sigma(v)``. Under CVXPY's DPP rules both
factors are affine in a scalar parameter of the objective, so two values of it give all.

Otherwise each value is a solve of its own, from the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.tables import table
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.recognise.changed_costs import factors
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import with_current_costs
from cvxscreen.cvxpy_plugin.request import Request, solve
from cvxscreen.cvxpy_plugin.solution_cache import (
    LastSolution,
    cached_recognition,
    changes_only_costs,
    store_solution,
)
from cvxscreen.errors import InvalidInput, NotScreenable, quoted
from cvxscreen.paths import path as over_c
from cvxscreen.paths.record import PathRecord
from cvxscreen.solvers.solve import InUnits

Array = NDArray[np.float64]


class ParameterPoint(Immutable):
    """One value of the parameter.

    Attributes
    ----------
    value : float
        Of the parameter.
    objective : float
        As ``prob.value``.
    status : str
        CVXPY's word.
    relative_gap : float or None
        Of the certificate on the full problem; None where CVXPY solved plainly, which gives none.
    kept : int
        Loss terms in the last reduced solve; 0 where there was none.
    seconds : float
    before : mapping of str to float
        Share of the terms proven before anything was solved, by kind of piece.
    """

    value: float
    objective: float
    status: str
    relative_gap: float | None
    kept: int
    seconds: float
    before: Mapping[str, float]
    _read: Callable[[], Mapping[int, Any]] = field(repr=False)

    def of(self, variable: Any) -> Any:
        """The value of a variable of the problem at this point.

        Raises
        ------
        InvalidInput
            For a variable that is not in the problem.
        """
        values = self._read()
        if variable.id not in values:
            raise InvalidInput(f"`variable` {variable.name()!r} is not in the problem.")
        return values[variable.id]


class ParameterPath(PathRecord, Immutable):
    """Solutions of a CVXPY problem along values of a parameter.

    Attributes
    ----------
    points : tuple of ParameterPoint
        In the order they were solved.
    terms : int
        Loss terms of the problem; 0 where it was not recognised.
    name : str
        Of the parameter.
    finished : bool
        False when the run was cut off.
    stopped : str
        By what: ``"interrupted"`` or ``"time_limit"``; empty when finished.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w, C = cp.Variable(3), cp.Parameter(nonneg=True, name="C")
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * loss))
    >>> found = cvxscreen.path(prob, C, [0.1, 1.0])
    >>> found.name, found.terms, [point.status for point in found.points]
    ('C', 200, ['optimal', 'optimal'])
    """

    points: tuple[ParameterPoint, ...]
    terms: int
    name: str
    finished: bool = True
    stopped: str = ""

    @property
    def _over(self) -> str:
        return self.name

    def of(self, variable: Any) -> Array:
        """The values of a variable along the path, shape (number of points,) and the variable's."""
        return np.array([point.of(variable) for point in self.points])

    def table(self) -> str:
        """A readable table, one line a point."""
        header = (self.name, "status", "objective", "relative gap", "kept", self._milliseconds)
        rows = [
            (p.value, p.status, float(f"{p.objective:.8g}"), p.relative_gap, p.kept,
             round(1e3 * p.seconds, 2))
            for p in self.points
        ]
        return table(header, rows, title=self._title)


def parameter_path(
    problem: Any,
    parameter: Any = None,
    values: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: Any = "auto",
    progress: bool = False,
    time_limit: float | None = None,
    **options: Any,
) -> ParameterPath:
    """Solve `problem` at every value of `parameter`, each from the solution before it.

    What `cvxscreen.path` does for a CVXPY problem.

    Parameters
    ----------
    problem : cvxpy.Problem
        Holds the solution at the last value afterwards.
    parameter : cvxpy.Parameter
        One of its scalar parameters; keeps its last value.
    values : sequence of float
        In the order to solve them.
    tol, mode, solver
        As in ``prob.solve(method="screen")``; ``"auto"`` is the built-in solver where it applies.
    progress : bool
        Show a bar with the time left.
    time_limit : float, optional
        Seconds of wall time for the whole path; a solve by CVXPY is not cut off, it is the last.
    **options
        For the solver.

    Returns
    -------
    ParameterPath
        On Ctrl-C and when the time is up the points finished so far, with ``finished`` False.

    Raises
    ------
    InvalidInput
        For values that are no list of numbers, or a parameter that is not in the problem.
    """
    grid, limits = _checked(problem, parameter, values), Limits(time_limit)
    auto = isinstance(solver, str) and solver.lower() == "auto"
    Request(None if auto else solver, mode, tol, False, options).check()
    if auto and not options:
        with _kept(parameter):
            scale = as_path_over_c(problem, parameter, grid)
        if scale is not None:
            return _as_one(problem, parameter, grid, scale, tol, mode, progress, limits)
    if auto:
        with _kept(parameter):
            parameter.value = float(grid[0])
            solver = "builtin" if builtin_suits(problem) and not options else None
    asked = {"solver": solver, "mode": mode, "tol": tol, **options}
    return _one_by_one(problem, parameter, grid, progress, limits, asked)


@contextmanager
def _kept(parameter: Any) -> Iterator[None]:
    """Give a parameter its value back on the way out."""
    value = parameter.value
    try:
        yield
    finally:
        parameter.value = value


def _checked(problem: Any, parameter: Any, values: ArrayLike | None) -> Array:
    known = {p.id: p.name() for p in problem.parameters()}
    if getattr(parameter, "id", None) not in known:
        names = ", ".join(sorted(known.values())) or "it has none"
        raise InvalidInput(
            f"`parameter` must be one of `problem.parameters()` ({names}), not {quoted(parameter)}."
        )
    if parameter.size != 1:
        raise InvalidInput(f"`parameter` has shape {parameter.shape}; a scalar one is needed.")
    grid = over_c.listed_values(values)
    with _kept(parameter):
        for value in grid:  # one that the parameter refuses is found before anything is solved
            try:
                parameter.value = float(value)
            except ValueError as error:
                raise InvalidInput(f"`values` holds {value:g}: {error}") from None
    return grid


def _as_one(
    problem: Any,
    parameter: Any,
    grid: Array,
    scale: PathOverC,
    tol: float,
    mode: str,
    progress: bool,
    limits: Limits,
) -> ParameterPath:
    """The path as one over C, and the last point written onto the problem."""
    left = None if limits.seconds is None else max(limits.seconds, 1e-9)
    found = over_c.path(
        scale.problem, values=scale.C, tol=tol, mode=mode, progress=progress, time_limit=left
    )
    points = [
        ParameterPoint(
            value=float(grid[k]),
            objective=scale.sign * float(scale.factor[k]) * point.objective,
            status="optimal" if point.status == "optimal" else "optimal_inaccurate",
            relative_gap=point.relative_gap,
            kept=point.kept,
            seconds=point.seconds,
            before=point.before,
            _read=partial(scale.variables, point.x),
        )
        for k, point in enumerate(found.points)
    ]
    if found.points:
        last = len(points) - 1
        parameter.value = float(grid[last])
        scale.remember(found.points[last].x, found.points[last].theta, last)
        solve(problem, "builtin", mode=mode, tol=tol)
    return ParameterPath(
        tuple(points), scale.problem.n, parameter.name(), found.finished, found.stopped
    )


def _one_by_one(
    problem: Any, parameter: Any, grid: Array, progress: bool, limits: Limits,
    options: dict[str, Any],
) -> ParameterPath:
    """One solve a value, each from the solution before it."""
    points: list[ParameterPoint] = []
    terms = 0
    try:
        with Progress(len(grid), "path", shown=progress) as bar:
            for value in grid:
                if limits.spent():
                    break
                began = perf_counter()
                parameter.value = float(value)
                solve(problem, **options)
                stats = problem.solver_stats
                report = None if stats is None else stats.extra_stats["cvxscreen"]
                screened = report is not None and report.recognised
                terms = report.terms if report is not None and screened else terms
                copies = {
                    v.id: None if v.value is None else np.array(v.value)
                    for v in problem.variables()
                }
                points.append(
                    ParameterPoint(
                        value=float(value),
                        objective=float("nan") if problem.value is None else float(problem.value),
                        status=problem.status,
                        relative_gap=report.relative_gap if report and screened else None,
                        kept=report.kept if report and screened else 0,
                        seconds=perf_counter() - began,
                        before=report.before if report and screened else {},
                        _read=partial(dict, copies),
                    )
                )
                bar.step(f"{parameter.name()}={value:.3g}, kept {points[-1].kept:,}")
    except KeyboardInterrupt:
        return ParameterPath(tuple(points), terms, parameter.name(), False, "interrupted")
    finished = len(points) == len(grid)
    cut = "" if finished else limits.reached
    return ParameterPath(tuple(points), terms, parameter.name(), finished, cut)


class PathOverC(Immutable):
    """A path over a parameter as a path over C.

    Attributes
    ----------
    problem : Problem
        With ``C = 1`` at costs where both factors are 1, in units.
    recognition : Recognition
        At the same costs.
    C : array, shape (k,)
        One for each value of the parameter.
    factor : array, shape (k,)
        ``sigma`` times the unit: objective, slopes and multipliers are those of `problem` times it.
    sign : float
        -1 for a maximisation.
    """

    problem: Problem
    recognition: Recognition
    C: Array
    factor: Array
    sign: float

    def variables(self, x: Array) -> Mapping[int, Any]:
        """Values of the user's variables for the core coordinates `x`, by identifier."""
        standard = self.recognition.standard
        columns = self.recognition.columns(x)
        return standard.canonical.user_values(standard.split(columns))

    def remember(self, x: Array, theta: Array, k: int) -> None:
        """Make point `k` the reference of the user's next solve."""
        here = self.problem.with_(C=float(self.C[k]))
        point = reference_point(here, x, theta)
        original = self.recognition.standard.canonical.original
        store_solution(original, LastSolution(here, point.x, point.theta, point.multipliers))


def as_path_over_c(problem: Any, parameter: Any, values: Array) -> PathOverC | None:
    """The path of `problem` over `values` of `parameter` as one over C; None where it is not.

    The parameter's value is changed on the way.

    Parameters
    ----------
    problem : cvxpy.Problem
    parameter : cvxpy.Parameter
        A scalar.
    values : array, shape (k,)
    """
    first, second = float(values[0]), float(values[0]) * 2.0
    try:
        parameter.value = first
        found = cached_recognition(problem, recognise_any)
        parameter.value = second
        if not isinstance(found, Recognition) or not changes_only_costs(problem, parameter):
            return None
        there = with_current_costs(found.standard)
        if there is None:
            return None
        change = factors(found, there)
    except (NotScreenable, ValueError):
        return None
    parts = found.parts
    plain = not parts.loss_slope.any() and found.problem.side is None and found.l1_terms is None
    plain = plain and not any((found.standard.constant, there.constant, parts.base, parts.level))
    if first == 0.0 or change is None or change.squares is None or change.losses is None:
        return None
    apart = change.slopes is None or (parts.slope.any() and change.slopes != change.squares)
    if not plain or apart:
        return None
    step = (values - first) / first
    rho, sigma = 1.0 + step * (change.losses - 1.0), 1.0 + step * (change.squares - 1.0)
    if not ((rho > 0) & (sigma > 0)).all():
        return None
    # In units: paths over C are compiled for them.
    base = InUnits.of(replace(found.problem, C=1.0))
    sign = found.standard.canonical.sign
    return PathOverC(base.unit, found, rho / sigma, sigma * base.size, sign)


def builtin_suits(problem: Any) -> bool:
    """Whether `problem` is recognised, and without side constraints."""
    try:
        found = cached_recognition(problem, recognise_any)
        return isinstance(found, Recognition) and found.problem.side is None
    except Exception:  # whatever is wrong with it, its solve will say so
        return False
