"""The records of a path over C or lambda: its points, the path itself, and both on disk."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.files import UNREADABLE, why_unreadable, written_whole
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, data_frame, table
from cvxscreen._support.validation import array, file_path, flag, number, one_of, whole, word
from cvxscreen.core.problem import Problem, fingerprint
from cvxscreen.errors import InvalidInput, NotSaved
from cvxscreen.multitask import MultiTaskSolution
from cvxscreen.plots import rejection

Array = NDArray[np.float64]

__all__ = ["Path", "PathPoint", "Points", "load_path"]


class PathPoint(Immutable):
    """One value of the parameter.

    Attributes
    ----------
    value : float
        C or lambda at this point.
    x, theta : arrays
        The solution, shapes (d,) and (n,); `theta` is left empty for data in chunks, and for metric
        learning over more than 100,000 terms, where it is ``losses.slope(design.forward(x))``.
    objective, gap, relative_gap : float
        Certified on the full problem.
    status : str
    before : mapping of str to float
        Share of the terms proven on each kind of piece from the neighbouring solution alone, before
        anything was solved ("zero", "linear", "quadratic").
    screened : bool
        False where the solver did not use `before`, since that would not have paid.
    kept : int
        Terms in the last reduced solve.
    predicted, refuted, rounds : int
    seconds : float
        Wall time (of points that were solved together: their average).
    over : str
        The parameter's name.
    features : int, optional
        Coordinates in the last reduced solve, where features are screened.
    warm : mapping
        What the solver goes on from besides `x` and `theta`, in a path with a checkpoint.
    serves : pair of float, optional
        On a path to a relative `eps`: the lowest and the highest C at which `x` is within `eps` of
        optimal.
    solution : MultiTaskSolution, optional
        Of tasks that share a subspace the whole answer: its ``U``, ``b``, ``M`` and ``subspace``
        (`x` is ``U``, one task after the other). It is not saved.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> point = cvxscreen.path(cvxscreen.svm(X, y), values=[0.1, 0.2], tol=1e-9).points[1]
    >>> point.value, point.x.shape, round(point.objective, 4), point.status
    (0.2, (3,), 9.6055, 'optimal')
    >>> sorted(point.before)                                    # shares proven from the neighbour
    ['linear', 'quadratic', 'zero']
    """

    value: float
    x: Array
    theta: Array
    objective: float
    gap: float
    relative_gap: float
    status: str
    before: Mapping[str, float]
    kept: int
    predicted: int
    refuted: int
    rounds: int
    seconds: float
    over: str = "C"
    features: int | None = None
    screened: bool = True
    warm: Mapping[str, Any] = field(default_factory=dict)
    serves: tuple[float, float] | None = None
    solution: MultiTaskSolution | None = None


class Points(Sequence[PathPoint]):
    """The points of a path; a record that nobody has looked at yet is made on demand."""

    def __init__(self, made: Iterable[PathPoint | Callable[[], PathPoint]] = ()) -> None:
        self._made = list(made)

    def append(self, point: PathPoint | Callable[[], PathPoint]) -> None:
        """One more point, or what makes it."""
        self._made.append(point)

    def replace(self, index: int, point: PathPoint) -> None:
        """Another record in the place of one."""
        self._made[index] = point

    def __len__(self) -> int:
        return len(self._made)

    def _at(self, index: int) -> PathPoint:
        point = self._made[index]
        if not isinstance(point, PathPoint):
            point = self._made[index] = point()
        return point

    @overload
    def __getitem__(self, index: int) -> PathPoint: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PathPoint]: ...

    def __getitem__(self, index: int | slice) -> PathPoint | Sequence[PathPoint]:
        if isinstance(index, slice):
            return tuple(self._at(i) for i in range(*index.indices(len(self))))
        return self._at(index)

    def __repr__(self) -> str:
        return f"<{len(self)} points of a path>"


LONGEST = 24
"""Points that `print` shows all of; `table` has every one."""


class PathRecord(Record):
    """What is shown of a path, over whatever: its points have a value, a status, a relative gap.

    Whoever derives from it has the fields below, and says in `_over` what the parameter is called.
    """

    points: Sequence[Any]
    terms: int
    finished: bool
    stopped: str

    @property
    @abstractmethod
    def _over(self) -> str:
        """Name of the parameter."""

    @property
    def values(self) -> Array:
        """The values of the parameter that are finished."""
        return np.array([point.value for point in self.points])

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row a point: the numbers of `table`, shares instead of percent.

        Raises
        ------
        MissingDependency
            If pandas is not installed.
        """
        rows = []
        for point in self.points:
            plain = {
                name: value for name, value in vars(point).items()
                if isinstance(value, int | float | str) and name not in ("value", "over")
            }
            first = {name: plain.pop(name)
                     for name in ("status", "objective", "gap", "relative_gap") if name in plain}
            shares = {f"proven {kind}": share for kind, share in point.before.items()}
            rows.append({self._over: point.value, **first, **shares, **plain})
        return data_frame(rows)

    def plot(
        self, title: str = "Proven before solving, along the path", *, ax: Any = None,
        figsize: tuple[float, float] | None = None,
    ) -> Any:
        """Stacked rejection rates per piece, certified gap and kept terms; a matplotlib Figure.

        `ax` are two axes to draw on, `figsize` the inches of a new figure.
        """
        points = self.points
        names = [
            k for k in ("linear", "quadratic", "zero")
            if any(p.before.get(k, 0.0) > 0 for p in points)
        ] or ["zero"]
        figure = rejection(
            self.values,
            {k: np.array([p.before.get(k, 0.0) for p in points]) for k in names},
            gaps=np.array([np.nan if p.relative_gap is None else p.relative_gap for p in points]),
            kept=np.array([float(p.kept) for p in points]),
            title=title,
            parameter=self._over,
            ax=ax,
            figsize=figsize,
        )
        if 1 < len(points) <= 50 and not any(points[0].before.values()):
            top = figure.axes[0] if ax is None else ax[0]
            top.text(points[0].value, 0.5, "the first point: nothing before it", rotation=90,
                     fontsize=6, horizontalalignment="center", verticalalignment="center")
        return figure

    @property
    def _cut(self) -> str:
        """What cut the path short, in words; empty where nothing did."""
        return "" if self.finished else self.stopped.replace("_", " ") or "interrupted"

    @property
    def _title(self) -> str:
        state = f", {self._cut} after {len(self.points)} points" if self._cut else ""
        return f"Path over {self._over}, {self.terms:,} terms{state}"

    @property
    def _milliseconds(self) -> str:
        """The head of the column of times: of points solved together only the average is known."""
        same = len(self.points) > 1 and len({point.seconds for point in self.points}) == 1
        return "ms (average)" if same else "ms"

    def _brief(self) -> str:
        if not len(self.points):
            return f"no points over {self._over}"
        optimal = sum(point.status == "optimal" for point in self.points)
        worst = max(np.inf if p.relative_gap is None else p.relative_gap for p in self.points)
        return (
            f"{len(self.points)} points over {self._over} from {self.points[0].value:g} to "
            f"{self.points[-1].value:g}, {self.terms:,} terms, {optimal} optimal, largest relative "
            f"gap {worst:.1e}{self._cut and f', {self._cut}'}"
        )

    def __str__(self) -> str:
        """The table, the middle left out where it is long."""
        head, *lines = self.table().splitlines()
        if len(lines) <= LONGEST + 2:  # the names and the rule under them
            return "\n".join([head, *lines])
        half = LONGEST // 2
        left = len(lines) - 2 - 2 * half
        middle = f"... {left:,} more points: .table() has all"
        return "\n".join([head, *lines[: half + 2], middle, *lines[-half:]])


class Path(PathRecord, Immutable):
    """Finished points in the order they were solved.

    Attributes
    ----------
    points : sequence of PathPoint
    terms : int
        n of the full problem.
    finished : bool
        False when the run was cut short; the points are then those that were ready.
    stopped : str
        By what: ``"interrupted"`` or ``"time_limit"``; empty when finished.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> path = cvxscreen.path(cvxscreen.svm(X, y), values=[0.01, 0.1, 1.0])
    >>> path.values, path.finished, [point.status for point in path.points]
    (array([0.01, 0.1 , 1.  ]), True, ['optimal', 'optimal', 'optimal'])
    >>> list(path.to_frame().columns)[:4]
    ['C', 'status', 'objective', 'gap']
    """

    points: Sequence[PathPoint]
    terms: int
    finished: bool = True
    stopped: str = ""

    @property
    def _over(self) -> str:
        return self.points[0].over if len(self.points) else "C"

    def table(self) -> str:
        """A readable table, one line a point."""
        header: tuple[str, ...] = (
            self._over, "status", "objective", "relative gap", "zero %", "linear %", "quadratic %",
            "kept", "refuted", "rounds", self._milliseconds,
        )
        screened = any(p.features is not None for p in self.points)  # features, under an L1 term
        if screened:
            header = (*header[:7], "dropped %", "kept", "features", *header[8:])
        shares = ("zero", "linear", "quadratic", *(["dropped"] if screened else []))
        rows = [
            (
                p.value, p.status, float(f"{p.objective:.8g}"), p.relative_gap,
                *(round(100.0 * p.before.get(k, 0.0), 1) for k in shares),
                p.kept, *([p.features] if screened else []), p.refuted, p.rounds,
                round(1e3 * p.seconds, 2),
            )
            for p in self.points
        ]
        unused = sum(not p.screened for p in self.points)
        if unused:
            header = (*header, "used")
            rows = [
                (*row, "yes" if p.screened else "no")
                for row, p in zip(rows, self.points, strict=True)
            ]
        if any(p.serves is not None for p in self.points):
            header = (*header, "serves from", "to")
            rows = [
                (*row, *(p.serves or ("", ""))) for row, p in zip(rows, self.points, strict=True)
            ]
        return table(header, rows, title=self._title)

    def save(self, file: str | FilePath) -> None:
        """Write the points to `file` (.npz), whole or not at all; `load_path` reads them back.

        Raises
        ------
        InvalidInput
            If the folder does not exist.
        NotSaved
            If the file cannot be written.
        """
        place = file_path("file", file)
        if not place.parent.is_dir():
            raise InvalidInput(f"`file`: the folder {str(place.parent)!r} does not exist.")
        if place.is_dir():
            raise InvalidInput(f"`file`: {str(place)!r} is a folder; name a file in it.")
        Checkpoint(place, "").write([vars(point) for point in self.points], self.terms)


# -- on disk: written atomically, read back only for the same problem -----------------------------


def read_points(place: FilePath, argument: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the points of a file written by `Checkpoint.write`.

    Raises
    ------
    InvalidInput
        If it is no such file; the message names `argument`.
    """
    try:
        with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
            head = json.loads(str(data["head"]))
            rows = [
                {**row, "x": data[f"x{i}"], "theta": data[f"theta{i}"]}
                for i, row in enumerate(head["rows"])
            ]
            if not isinstance(head["rows"], list):
                raise TypeError("its rows are no list")
            int(head["terms"])
    except UNREADABLE as error:
        raise InvalidInput(
            f"`{argument}`: {str(place)!r} is not a readable file of path points "
            f"({why_unreadable(error)}); name another file."
        ) from None
    return head, rows


@dataclass(frozen=True)
class Checkpoint:
    """A file of finished points (or none, when no file was asked for)."""

    file: FilePath | None
    digest: str
    rows: tuple[dict[str, Any], ...] = ()

    @classmethod
    def open(
        cls,
        file: str | FilePath | None,
        problem: Problem,
        grid: Array,
        tol: float,
        over: str = "C",
    ) -> Checkpoint:
        """Read what `file` holds, if it exists.

        Raises
        ------
        InvalidInput
            If the file is not such a checkpoint, or belongs to another problem or grid.
        """
        if file is None:
            return cls(None, "")
        place = file_path("checkpoint", file)
        digest = fingerprint(problem, tol, over, grid)
        if not place.parent.is_dir():
            raise InvalidInput(f"`checkpoint`: the folder {str(place.parent)!r} does not exist.")
        if not place.exists():
            return cls(place, digest)
        head, rows = read_points(place, "checkpoint")
        if head.get("digest") != digest:
            raise InvalidInput(
                f"`checkpoint`: {str(place)!r} belongs to other data, another grid or another "
                "tolerance; name another file."
            )
        return cls(place, digest, tuple(rows))

    def write(self, rows: list[dict[str, Any]], terms: int) -> None:
        """Replace the file by one with `rows`; the old one stays whole until the new one is.

        Raises
        ------
        NotSaved
            If it cannot be written (a full disk, say); the old one is then still there.
        """
        if self.file is None:
            return
        arrays: dict[str, Any] = {}
        plain = []
        for i, row in enumerate(rows):
            arrays[f"x{i}"], arrays[f"theta{i}"] = row["x"], row["theta"]
            plain.append({
                k: dict(v) if isinstance(v, Mapping) else v
                for k, v in row.items() if k not in ("x", "theta", "solution")
            })
        head = json.dumps({"digest": self.digest, "terms": terms, "rows": plain})
        try:
            with written_whole(self.file) as stream:
                np.savez(stream, head=np.array(head), **arrays)
        except OSError as error:
            held = f"what it held before is still in {str(self.file)!r}; " * self.file.exists()
            raise NotSaved(
                f"{len(rows)} points could not be written to {str(self.file)!r} ({error}); {held}"
                "make room, or name another file."
            ) from error


def load_path(file: str | FilePath) -> Path:
    """The path that `Path.save` (or a checkpoint) wrote.

    Raises
    ------
    InvalidInput
        If `file` is missing or holds something else.

    Examples
    --------
    >>> import tempfile
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cvxscreen.path(cvxscreen.svm(X, y), values=[0.1, 1.0]).save(f"{folder}/path.npz")
    ...     again = cvxscreen.load_path(f"{folder}/path.npz")
    >>> again.values
    array([0.1, 1. ])
    """
    place = file_path("file", file)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not a file"
        raise InvalidInput(f"`file`: {str(place)!r} is {what}; name one that `save` wrote.")
    head, rows = read_points(place, "file")
    return Path(points_of(rows, place, "file"), int(head["terms"]))


def _check(point: PathPoint) -> None:
    """Refuse fields of another type."""
    for name in ("value", "objective", "gap", "relative_gap", "seconds"):
        number(name, getattr(point, name))
    for name in ("kept", "predicted", "refuted", "rounds"):
        whole(name, getattr(point, name), 0)
    if point.features is not None:
        whole("features", point.features, 0)
    flag("screened", point.screened)
    word("status", point.status, "a word is needed")
    word("over", point.over, "a word is needed")
    if point.serves is not None and array("serves", point.serves, (2,)) is None:
        raise InvalidInput("`serves` is no pair")
    for name in ("x", "theta"):
        if array(name, getattr(point, name)).ndim != 1:
            raise InvalidInput(f"`{name}` is no vector")
    for share in one_of("before", point.before, Mapping, "shares by kind are needed").values():
        number("before", share)


def points_of(rows: Iterable[dict[str, Any]], place: FilePath, argument: str) -> list[PathPoint]:
    """The records of rows as `Checkpoint.write` leaves them.

    Raises
    ------
    InvalidInput
        If a record lacks a field, or has one of another type.
    """
    try:
        points = [PathPoint(**row) for row in rows]
        for point in points:
            _check(point)
    except (TypeError, InvalidInput) as error:
        raise InvalidInput(
            f"`{argument}`: {str(place)!r} holds no path points ({error}); name another file."
        ) from None
    return points
