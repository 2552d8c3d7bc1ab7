"""Data files: svmlight/libsvm (also .gz, .bz2), .npz, .npy and .csv, read into X and y."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]


def read_data(path: str | Path, target: str | None = None) -> tuple[Any, Array]:
    """Read features and targets.

    Parameters
    ----------
    path : path
        ``.npz``: arrays ``X`` and ``y`` (or the four parts of a CSR matrix, ``X_data``,
        ``X_indices``, ``X_indptr``, ``X_shape``). ``.npy``: a matrix whose column `target` is y.
        ``.csv``: with or without a header; column `target` is y. Anything else is read as svmlight.
    target : str, optional
        Name (csv with a header) or index of the target column; the last one when omitted.

    Returns
    -------
    X : array or CSR matrix, shape (n, d)
    y : array, shape (n,)

    Raises
    ------
    InvalidInput
        If the file is missing, unreadable, or has no such column.
    """
    place = Path(path)
    if not place.is_file():
        raise InvalidInput(f"`DATA`: {str(place)!r} is not a file.")
    readers = {".npz": _npz, ".npy": _npy, ".csv": _csv}
    try:
        return readers.get(place.suffix.lower(), _svmlight)(place, target)
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"`DATA`: {str(place)!r} could not be read as {place.suffix or 'svmlight'}: {error}"
        ) from None


def _npz(place: Path, target: str | None) -> tuple[Any, Array]:
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        names = set(data.files)
        if "y" not in names:
            raise InvalidInput(f"`DATA`: {place.name} has no array 'y'; found {sorted(names)}.")
        y = np.asarray(data["y"], dtype=np.float64)
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
    matrix = np.load(place, allow_pickle=False)
    return _split(matrix, _column(target, None, place.name), place.name)


def _csv(place: Path, target: str | None) -> tuple[Array, Array]:
    with place.open(newline="", encoding="utf-8-sig") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if not rows:
        raise InvalidInput(f"`DATA`: {place.name} is empty.")
    header = None
    try:
        [float(cell) for cell in rows[0]]
    except ValueError:
        header, rows = [cell.strip() for cell in rows[0]], rows[1:]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise InvalidInput(f"`DATA`: the rows of {place.name} have different lengths {widths}.")
    values = np.empty((len(rows), widths.pop()))
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            try:
                values[i, j] = float(cell)
            except ValueError:
                named = header[j] if header else j
                raise InvalidInput(
                    f"`DATA`: {place.name}, row {i + 1}, column {named!r} is {cell!r}, not a "
                    "number; encode or drop it."
                ) from None
    return _split(values, _column(target, header, place.name), place.name)


def _svmlight(place: Path, target: str | None) -> tuple[Any, Array]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(place))
    return X, np.asarray(y, dtype=np.float64)
