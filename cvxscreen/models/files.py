"""Data files: svmlight/libsvm (also .gz, .bz2), .npz, .npy, .csv, .tsv and .parquet, as X and y."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.files import UNREADABLE, why_unreadable
from cvxscreen._support.validation import array, stored
from cvxscreen.errors import InvalidInput, MissingDependency

Array = NDArray[np.float64]
_DELIMITERS = "\t;,"
"""In this order: with semicolons or tabs, commas are decimal ones."""
_SHOWN = 12
"""Names of columns or classes listed in a message."""


@dataclass(frozen=True)
class Table:
    """A data file in memory.

    Attributes
    ----------
    X : array or CSR matrix, shape (n, d)
    y : array, shape (n,)
        Float64; text where the target column holds words.
    features : tuple of str
        Names of the columns of `X`; empty where the file gives none.
    target : str
        Name of the target column, or empty.
    remark : str
        What a person should know about how it was read.
    """

    X: Any
    y: NDArray[Any]
    features: tuple[str, ...] = ()
    target: str = ""
    remark: str = ""


_Reader = Callable[[Path, str | None], Table]


def read_data(path: str | Path, target: str | None = None) -> tuple[Any, NDArray[Any]]:
    """Read features and targets: the `X` and `y` of `read_table`."""
    found = read_table(path, target)
    return found.X, found.y


def read_table(
    path: str | Path, target: str | None = None, wanted: Sequence[str] | None = None
) -> Table:
    """Read features and targets, with their names where the file has them.

    Parameters
    ----------
    path : path
        ``.npz``: arrays ``X`` and ``y`` (or the four parts of a CSR matrix, ``X_data``,
        ``X_indices``, ``X_indptr``, ``X_shape``). ``.npy``: a matrix whose column `target` is y.
        ``.csv``, ``.tsv`` (also ``.gz``): with or without a header; commas, semicolons or tabs,
        with the latter two decimal commas as well; column `target` is y, and may hold words (names
        of classes). ``.parquet``: one file. Anything else is read as svmlight.
    target : str, optional
        Name (of a file with names) or index of the target column; the last one when omitted.
    wanted : sequence of str, optional
        Read these columns and no target (`y` is then 0): of files with names, for predictions.

    Raises
    ------
    InvalidInput
        If the file is missing, unreadable, or has no such column.
    MissingDependency
        For Parquet without pyarrow.
    """
    place = Path(path)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not a file"
        raise InvalidInput(f"`DATA`: {str(place)!r} is {what}; name a data file.")
    kind = kind_of(place)

    def text(place: Path, target: str | None) -> Table:
        return _csv(place, target, wanted)

    def columns(place: Path, target: str | None) -> Table:
        return _parquet(place, target, wanted)

    readers: dict[str, _Reader] = {
        ".npz": _npz, ".npy": _npy, ".csv": text, ".tsv": text, ".parquet": columns,
    }
    reader: _Reader = readers.get(kind, _svmlight)
    if target is not None and reader not in (text, columns, _npy):
        raise InvalidInput(
            f"`--target` is {target!r}, but {place.name} is no .csv, .tsv, .parquet or .npy: its "
            "targets have a place of their own."
        )
    if not place.stat().st_size:
        raise InvalidInput(f"`DATA`: {str(place)!r} is empty; name a file with data.")
    try:
        found = reader(place, target)
        X = stored(found.X, f"X of {place.name}")
        if not X.shape[0]:
            raise InvalidInput(f"`DATA`: {place.name} has no rows; name a file with data.")
        if found.y.shape != (X.shape[0],):
            raise InvalidInput(
                f"`DATA`: y of {place.name} has shape {found.y.shape}; one target a row of X, "
                f"({X.shape[0]},), is needed."
            )
        return Table(X, found.y, found.features, found.target, found.remark)
    except InvalidInput:
        raise
    except UNREADABLE as error:
        word = kind if kind in readers else "svmlight text"
        raise InvalidInput(
            f"`DATA`: {str(place)!r} could not be read as {word} ({why_unreadable(error)}); it may "
            "be cut short or of another format, see `cvxscreen path --help`."
        ) from None


def kind_of(place: Path) -> str:
    """The suffix that says how a file is read: ``.csv`` for ``a.csv.gz``."""
    kind = place.suffix.lower()
    packed = kind == ".gz" and Path(place.stem).suffix.lower() in (".csv", ".tsv")
    return Path(place.stem).suffix.lower() if packed else kind


def _npz(place: Path, target: str | None) -> Table:
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        names = set(data.files)
        if "y" not in names:
            raise InvalidInput(f"`DATA`: {place.name} has no array 'y'; found {sorted(names)}.")
        y = array(f"y of {place.name}", data["y"])
        if "X" in names:
            return Table(data["X"], y)
        parts = ("X_data", "X_indices", "X_indptr", "X_shape")
        if not names.issuperset(parts):
            raise InvalidInput(f"`DATA`: {place.name} has neither 'X' nor a CSR matrix.")
        triple = (data["X_data"], data["X_indices"], data["X_indptr"])
        return Table(sp.csr_matrix(triple, shape=tuple(data["X_shape"])), y)


def _split(matrix: Array, column: int, name: str) -> tuple[Array, Array]:
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise InvalidInput(
            f"`DATA`: {name} has shape {matrix.shape}; a matrix with a target column is needed."
        )
    if not -matrix.shape[1] <= column < matrix.shape[1]:
        raise InvalidInput(f"`--target` is {column}; {name} has {matrix.shape[1]} columns.")
    y = np.asarray(matrix[:, column], dtype=np.float64)
    return np.delete(matrix, column, axis=1), y


def _column(target: str | None, header: list[str] | None, name: str) -> int:
    if target is None:
        return -1
    if header is not None and target in header:
        return header.index(target)
    try:
        return int(target)
    except ValueError:
        known = "no header" if header is None else "columns " + ", ".join(header[:12])
        raise InvalidInput(
            f"`--target` is {target!r}, which is no column of {name} ({known})."
        ) from None


def _npy(place: Path, target: str | None) -> Table:
    with place.open("rb") as stream:
        matrix = array(place.name, np.load(stream, allow_pickle=False))
    return Table(*_split(matrix, _column(target, None, place.name), place.name))


def _csv(place: Path, target: str | None, wanted: Sequence[str] | None) -> Table:
    opened: Any = gzip.open if place.suffix.lower() == ".gz" else open
    with opened(place, "rt", newline="", encoding="utf-8-sig") as stream:
        first = stream.readline()
        stream.seek(0)
        delimiter = next((d for d in _DELIMITERS if d in first), ",")
        reader = csv.reader(stream, delimiter=delimiter)
        lines = [(reader.line_num, row) for row in reader if row]
    if not lines:
        raise InvalidInput(f"`DATA`: {place.name} is empty.")
    commas = delimiter != "," and any("," in cell for _, row in lines[1:2] for cell in row)
    commas = commas or (delimiter != "," and any(
        _is_number(cell, True) and "," in cell for cell in lines[0][1]
    ))

    def numeric(cell: str) -> bool:
        return _is_number(cell, commas)

    header = None
    # A header has words over numbers; names of classes have words under them.
    over = zip(*(row for _, row in lines[:2]), strict=False) if len(lines) > 1 else ()
    if any(not numeric(top) and numeric(below) for top, below in over):
        header, lines = [cell.strip() for cell in lines[0][1]], lines[1:]
    elif len(lines) == 1 and len(lines[0][1]) > 1 and not any(map(numeric, lines[0][1])):
        raise InvalidInput(f"`DATA`: {place.name} has a header and no rows; name a file with data.")
    width = len(header or lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise InvalidInput(
                f"`DATA`: {place.name}, line {number} has {len(row)} cells, the first line {width}."
            )
    if width < 2 and wanted is None:
        raise InvalidInput(
            f"`DATA`: {place.name} has one column; features and a target column are needed."
        )
    if wanted is not None and header is not None:
        features, column = _places(wanted, header, place.name), None
    elif wanted is not None and width == len(wanted):
        features, column = list(range(width)), None
    else:
        column = _column(target, header, place.name)
        if not -width <= column < width:
            raise InvalidInput(f"`--target` is {column}; {place.name} has {width} columns.")
        column %= width
        features = [j for j in range(width) if j != column]
    X = np.empty((len(lines), len(features)))
    for i, (number, row) in enumerate(lines):
        for k, j in enumerate(features):
            try:
                X[i, k] = float(row[j].replace(",", ".") if commas else row[j])
            except ValueError:
                named = header[j] if header else j
                raise InvalidInput(
                    f"`DATA`: {place.name}, line {number}, column {named!r} is {row[j]!r}, not a "
                    "number; encode it, drop it, or name the target column with `--target`."
                ) from None
    names = tuple(header[j] for j in features) if header else ()
    remark = "decimal commas" if commas else ""
    if column is None:
        return Table(X, np.zeros(len(lines)), names, "", remark)
    targets = [row[column].strip() for _, row in lines]
    y: NDArray[Any] = np.array(targets)
    if all(map(numeric, targets)):
        y = np.array([float(cell.replace(",", ".") if commas else cell) for cell in targets])
    return Table(X, y, names, header[column] if header else "", remark)


def _places(wanted: Sequence[str], names: Sequence[str], file: str) -> list[int]:
    """Where the `wanted` columns are among `names`.

    Raises
    ------
    InvalidInput
        If one is missing.
    """
    missing = [name for name in wanted if name not in names]
    if missing:
        shown = ", ".join(map(repr, missing[:_SHOWN]))
        raise InvalidInput(f"`DATA`: {file} lacks the column(s) {shown} of the model.")
    return [list(names).index(name) for name in wanted]


def _parquet(place: Path, target: str | None, wanted: Sequence[str] | None) -> Table:
    try:
        from pyarrow.parquet import read_table as read_parquet
    except ImportError as error:
        raise MissingDependency(
            'Parquet needs pyarrow: pip install "cvxscreen[frames]"'
        ) from error
    found = read_parquet(place)
    names = list(found.column_names)
    if wanted is not None:
        features, column = _places(wanted, names, place.name), None
    else:
        column = _column(target, names, place.name) % len(names) if names else 0
        features = [j for j in range(len(names)) if j != column]
    if not features:
        raise InvalidInput(f"`DATA`: {place.name} has no columns besides the target.")
    try:
        parts = [np.asarray(found.column(j), dtype=np.float64) for j in features]
    except (TypeError, ValueError):
        words = [names[j] for j in features if not _numbers(found.column(j))]
        raise InvalidInput(
            f"`DATA`: the column(s) {words} of {place.name} are no numbers; encode or drop them."
        ) from None
    X = np.column_stack(parts)
    if column is None:
        return Table(X, np.zeros(len(X)), tuple(names[j] for j in features))
    y = np.asarray(found.column(column))
    y = y.astype(np.float64) if y.dtype.kind in "biuf" else y.astype(str)
    return Table(X, y, tuple(names[j] for j in features), names[column])


def _numbers(column: Any) -> bool:
    """Whether a column of Parquet holds numbers."""
    return np.asarray(column).dtype.kind in "biuf"


def _is_number(cell: str, commas: bool = False) -> bool:
    try:
        float(cell.replace(",", ".") if commas else cell)
    except ValueError:
        return False
    return True


def two_classes(y: NDArray[Any], positive: str | None = None) -> tuple[Array, str]:
    """Targets as -1 and +1, and a sentence that says which class is which.

    Parameters
    ----------
    y : array, shape (n,)
        Numbers or words.
    positive : str, optional
        The class that becomes +1, all others -1; when omitted there must be two, and the larger
        (or later in the alphabet) becomes +1.

    Raises
    ------
    InvalidInput
        For another number of classes without `positive`, or if `positive` does not occur.
    """
    classes = np.unique(y)
    names = [str(c) if y.dtype.kind in "US" else f"{c:g}" for c in classes]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    if positive is None:
        if len(classes) < 2:
            raise InvalidInput(f"the target has only one class ({shown}); two are needed.")
        if len(classes) > 2:
            raise InvalidInput(
                f"the target has {len(classes)} classes ({shown}); name the one that becomes +1 "
                "with `--positive`, or choose a loss for regression."
            )
        return np.where(y == classes[1], 1.0, -1.0), f"+1 is {names[1]}, -1 is {names[0]}"
    wanted = f"{float(positive):g}" if _is_number(positive) and positive not in names else positive
    if wanted not in names:
        raise InvalidInput(f"`--positive` is {positive!r}, which is none of the classes: {shown}.")
    hit = np.where(y == classes[names.index(wanted)], 1.0, -1.0)
    return hit, f"+1 is {wanted}, -1 is every other class"


def _svmlight(place: Path, target: str | None) -> Table:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(place))
    return Table(X, np.asarray(y, dtype=np.float64))
