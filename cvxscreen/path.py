"""Solutions along a grid of C, each warm-started from its neighbour and certified in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.checkpoint import Checkpoint, read_points
from cvxscreen.doors import named_solver, warm_start
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.plots import rejection
from cvxscreen.problem import Problem
from cvxscreen.progress import Progress
from cvxscreen.solvers.inner import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.solution import Solution
from cvxscreen.tables import table

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One value of the parameter.

    Attributes
    ----------
    value : float
        C at this point.
    x, theta : arrays
        The solution, shapes (d,) and (n,).
    objective, gap, relative_gap : float
        Certified on the full problem.
    status : str
    before : dict of str to float
        Share of the terms proven on each kind of piece from the neighbouring solution alone, before
        anything was solved ("zero", "linear", "quadratic").
    kept : int
        Terms in the last reduced solve.
    predicted, refuted, rounds : int
    seconds : float
        Wall time.
    """

    value: float
    x: Array
    theta: Array
    objective: float
    gap: float
    relative_gap: float
    status: str
    before: dict[str, float]
    kept: int
    predicted: int
    refuted: int
    rounds: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Path:
    """Finished points in the order they were solved.

    Attributes
    ----------
    points : tuple of PathPoint
    terms : int
        n of the full problem.
    finished : bool
        False when the run was interrupted; the points are then those that were ready.
    """

    points: tuple[PathPoint, ...]
    terms: int
    finished: bool = True

    @property
    def values(self) -> Array:
        """The values of C that are finished."""
        return np.array([point.value for point in self.points])

    def table(self) -> str:
        """A readable table, one line a point."""
        header = (
            "C", "status", "objective", "relative gap", "zero %", "linear %", "quadratic %",
            "kept", "refuted", "rounds", "ms",
        )
        rows = [
            (
                p.value, p.status, float(f"{p.objective:.8g}"), p.relative_gap,
                *(round(100.0 * p.before.get(k, 0.0), 1) for k in ("zero", "linear", "quadratic")),
                p.kept, p.refuted, p.rounds, round(1e3 * p.seconds, 2),
            )
            for p in self.points
        ]
        state = "" if self.finished else f", interrupted after {len(self.points)} points"
        return table(header, rows, title=f"Path over C, {self.terms:,} terms{state}")

    def plot(self, title: str = "Proven before solving, along the path") -> Any:
        """Stacked rejection rates per piece, certified gap and kept terms; a matplotlib Figure."""
        names = [
            k for k in ("linear", "quadratic", "zero")
            if any(p.before.get(k, 0.0) > 0 for p in self.points)
        ] or ["zero"]
        return rejection(
            self.values,
            {k: np.array([p.before.get(k, 0.0) for p in self.points]) for k in names},
            gaps=np.array([p.relative_gap for p in self.points]),
            kept=np.array([float(p.kept) for p in self.points]),
            title=title,
        )

    def save(self, file: str | FilePath) -> None:
        """Write the points to `file` (.npz), whole or not at all; `load_path` reads them back.

        Raises
        ------
        InvalidInput
            If the folder does not exist.
        """
        place = FilePath(file)
        if not place.parent.is_dir():
            raise InvalidInput(f"`file`: the folder {str(place.parent)!r} does not exist.")
        Checkpoint(place, "").write([vars(point) for point in self.points], self.terms)

    def __str__(self) -> str:
        return self.table()


def load_path(file: str | FilePath) -> Path:
    """The path that `Path.save` (or a checkpoint) wrote.

    Raises
    ------
    InvalidInput
        If `file` is missing or holds something else.
    """
    place = FilePath(file)
    if not place.is_file():
        raise InvalidInput(f"`file`: {str(place)!r} is not a file.")
    head, rows = read_points(place, "file")
    return Path(tuple(PathPoint(**row) for row in rows), int(head["terms"]))


def _grid(values: ArrayLike) -> Array:
    grid = np.array(values, dtype=np.float64)
    if grid.ndim != 1 or not len(grid):
        raise InvalidInput(f"`values` has shape {grid.shape}; a non-empty list of C is needed.")
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise InvalidInput("`values` must all be positive and finite.")
    return grid


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
    tol, mode, solver
        As in `solve`.
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
    """
    if over != "C":
        raise UnknownName.among("over", over, ("C",))
    grid = _grid(values)
    saved = Checkpoint.open(checkpoint, problem, grid, tol)
    points = [PathPoint(**row) for row in saved.rows]
    previous = _resume(problem, points)
    try:
        with Progress(len(grid), "path", shown=progress) as bar:
            for _ in points:
                bar.step()
            for value in grid[len(points):]:
                point, previous = _one(problem.with_(C=float(value)), previous, tol, mode, solver)
                points.append(point)
                saved.write([vars(p) for p in points], problem.n)
                bar.step(f"C={value:.3g}, kept {point.kept:,}, gap {point.relative_gap:.1e}")
    except KeyboardInterrupt:
        return Path(tuple(points), problem.n, finished=False)
    return Path(tuple(points), problem.n)


def _resume(problem: Problem, points: Sequence[PathPoint]) -> Solution | None:
    """The last finished point as a warm start."""
    if not points:
        return None
    last = points[-1]
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
        before={k: found.before.get(k, 0.0) for k in ("zero", "linear", "quadratic")},
        kept=last.kept if last else here.n,
        predicted=last.predicted if last else 0,
        refuted=sum(r.refuted for r in found.rounds),
        rounds=len(found.rounds),
        seconds=perf_counter() - began,
    )
    return point, found
