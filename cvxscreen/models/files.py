"""Data files: svmlight/libsvm (also .gz, .bz2), .npz, .npy, .csv and .tsv, read into X and y."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.files import UNREADABLE, why_unreadable
from cvxscreen._support.validation import array, stored
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
_Reader = Callable[[Path, str | None], tuple[Any, NDArray[Any]]]

_DELIMITERS = ",;\t"
_SHOWN = 12
"""Names of columns or classes listed in a message."""


def read_data(path: str | Path, target: str | None = None) -> tuple[Any, NDArray[Any]]:
    """Read features and targets.

    Parameters
    ----------
    path : path
        ``.npz``: arrays ``X`` and ``y`` (or the four parts of a CSR matrix, ``X_data``,
        ``X_indices``, ``X_indptr``, ``X_shape``). ``.npy``: a matrix whose column `target` is y.
        ``.csv``, ``.tsv``: with or without a header, commas, semicolons or tabs; column `target` is
        y, and may hold words (names of classes). Anything else is read as svmlight.
    target : str, optional
        Name (csv with a header) or index of the target column; the last one when omitted.

    Returns
    -------
    X : array or CSR matrix, shape (n, d)
    y : array, shape (n,)
        Float64; text where a csv's target column holds words.

    Raises
    ------
    InvalidInput
        If the file is missing, unreadable, or has no such column.
    """
    place = Path(path)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not a file"
        raise InvalidInput(f"`DATA`: {str(place)!r} is {what}; name a data file.")
    readers: dict[str, _Reader] = {
        ".npz": _npz, ".npy": _npy, ".csv": _csv, ".tsv": _csv,
    }
    reader: _Reader = readers.get(place.suffix.lower(), _svmlight)
    if target is not None and reader not in (_csv, _npy):
        raise InvalidInput(
            f"`--target` is {target!r}, but {place.name} is no .csv, .tsv or .npy: its targets "
            "have a place of their own."
        )
    if not place.stat().st_size:
        raise InvalidInput(f"`DATA`: {str(place)!r} is empty; name a file with data.")
    try:
        X, y = reader(place, target)
        X = stored(X, f"X of {place.name}")
        if not X.shape[0]:
            raise InvalidInput(f"`DATA`: {place.name} has no rows; name a file with data.")
        if y.shape != (X.shape[0],):
            raise InvalidInput(
                f"`DATA`: y of {place.name} has shape {y.shape}; one target a row of X, "
                f"({X.shape[0]},), is needed."
            )
        return X, y
    except InvalidInput:
        raise
    except UNREADABLE as error:
        kind = place.suffix.lower() if place.suffix.lower() in readers else "svmlight text"
        raise InvalidInput(
            f"`DATA`: {str(place)!r} could not be read as {kind} ({why_unreadable(error)}); it may "
            "be cut short or of another format, see `cvxscreen path --help`."
        ) from None


def _npz(place: Path, target: str | None) -> tuple[Any, Array]:
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        names = set(data.files)
        if "y" not in names:
            raise InvalidInput(f"`DATA`: {place.name} has no array 'y'; found {sorted(names)}.")
        y = array(f"y of {place.name}", data["y"])
        if "X" in names:
            return data["X"], y
        parts = ("X_data", "X_indices", "X_indptr", "X_shape")
        if not names.issuperset(parts):
            raise InvalidInput(f"`DATA`: {place.name} has neither 'X' nor a CSR matrix.")
        triple = (data["X_data"], data["X_indices"], data["X_indptr"])
        return sp.csr_matrix(triple, shape=tuple(data["X_shape"])), y


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


def _npy(place: Path, target: str | None) -> tuple[Array, Array]:
    with place.open("rb") as stream:
        matrix = array(place.name, np.load(stream, allow_pickle=False))
    return _split(matrix, _column(target, None, place.name), place.name)


def _csv(place: Path, target: str | None) -> tuple[Array, NDArray[Any]]:
    with place.open(newline="", encoding="utf-8-sig") as stream:
        first = stream.readline()
        stream.seek(0)
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(stream, delimiter=delimiter)
        lines = [(reader.line_num, row) for row in reader if row]
    if not lines:
        raise InvalidInput(f"`DATA`: {place.name} is empty.")
    header = None
    # A header has words over numbers; names of classes have words under them.
    over = zip(*(row for _, row in lines[:2]), strict=False) if len(lines) > 1 else ()
    if any(not _is_number(top) and _is_number(below) for top, below in over):
        header, lines = [cell.strip() for cell in lines[0][1]], lines[1:]
    width = len(header or lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise InvalidInput(
                f"`DATA`: {place.name}, line {number} has {len(row)} cells, the first line {width}."
            )
    if width < 2:
        raise InvalidInput(
            f"`DATA`: {place.name} has one column; features and a target column are needed."
        )
    column = _column(target, header, place.name)
    if not -width <= column < width:
        raise InvalidInput(f"`--target` is {column}; {place.name} has {width} columns.")
    column %= width
    targets = [row[column].strip() for _, row in lines]
    X = np.empty((len(lines), width - 1))
    features = [j for j in range(width) if j != column]
    for i, (number, row) in enumerate(lines):
        for k, j in enumerate(features):
            try:
                X[i, k] = float(row[j])
            except ValueError:
                named = header[j] if header else j
                raise InvalidInput(
                    f"`DATA`: {place.name}, line {number}, column {named!r} is {row[j]!r}, not a "
                    "number; encode it, drop it, or name the target column with `--target`."
                ) from None
    if all(_is_number(cell) for cell in targets):
        return X, np.array([float(cell) for cell in targets])
    return X, np.array(targets)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
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


def _svmlight(place: Path, target: str | None) -> tuple[Any, Array]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(place))
    return X, np.asarray(y, dtype=np.float64)
