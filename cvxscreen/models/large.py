"""Data past memory: `open_data` finds out what lies at a path and gives rows in chunks, and y."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import file_path, whole
from cvxscreen.models.svmlight import open_svmlight
from cvxscreen.sources.dask_files import open_parquet, open_zarr
from cvxscreen.sources.memory import CHUNK_BYTES, Mapped
from cvxscreen.sources.shards import empty_folder, open_shards, write_shards

Opened = tuple[Any, NDArray[Any]]


def open_data(
    path: str | Path | Sequence[str | Path],
    target: str | int | None = None,
    *,
    cache: str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Opened:
    """Open data too large for memory: rows in chunks, read at every pass, and the targets.

    Parameters
    ----------
    path : path, or list of paths
        * a folder of .npz files, or a list of them: shards with the arrays ``X`` (or ``X_data``,
          ``X_indices``, ``X_indptr``, ``X_shape``, a CSR matrix) and ``y``, in the order of their
          names; each is one chunk;
        * .npy: a matrix whose first or last column is the target, mapped into memory;
        * .zarr: a group with the arrays ``X`` and ``y`` (through Dask);
        * .parquet: a file or folder; every column but the target is a feature (through Dask);
        * anything else: svmlight/libsvm text, not compressed, parsed in ranges of bytes.
    target : str or int, optional
        Target column of a .parquet (name) or .npy (0 or -1); the last one when omitted.
    cache : path, optional
        An empty folder, or one to make: the chunks are copied there as shards and read from there.
        Worth it for svmlight, whose text takes many times longer to read; `open_data` of that
        folder opens it again.
    chunk_bytes : int
        About how large a chunk of a .npy or svmlight file is.

    Returns
    -------
    X : object
        For `svm`, `regression` and `on_dask`, in place of a matrix.
    y : array, shape (n,)

    Raises
    ------
    InvalidInput
        If there is nothing there, or not what its name says.
    MissingDependency
        For .zarr and .parquet without Dask and what it needs to read them.
    """
    chunk_bytes = whole("chunk_bytes", chunk_bytes, 1)
    folder = None if cache is None else empty_folder(file_path("cache", cache))
    if isinstance(path, list | tuple):
        X, y = _shards([file_path("path", one) for one in path])
    else:
        X, y = _one(file_path("path", path), target, chunk_bytes)  # type: ignore[arg-type]
    if folder is None:
        return X, y
    if not hasattr(X, "load"):
        raise InvalidInput("`cache` copies files that are slow to read; a Dask array is not one.")
    return write_shards(X, y, folder)


def _one(place: Path, target: str | int | None, chunk_bytes: int) -> Opened:
    kind = place.suffix.lower()
    if not place.exists():
        raise InvalidInput(f"`DATA`: {str(place)!r} does not exist; name a file or a folder.")
    if kind == ".parquet":
        return open_parquet(place, target)
    if kind == ".zarr":
        return open_zarr(place)
    if place.is_dir():
        return _shards(sorted(place.glob("*.npz")), place)
    if kind == ".npz":
        return _shards([place])
    if kind == ".npy":
        return _mapped(place, -1 if target is None else target, chunk_bytes)
    if kind in (".csv", ".tsv"):
        raise InvalidInput(
            f"`DATA`: {place.name} cannot be read in pieces; write it as .npy, .parquet or shards."
        )
    return open_svmlight(place, chunk_bytes)


def _shards(paths: Sequence[Path], folder: Path | None = None) -> Opened:
    if folder is not None and not paths:
        raise InvalidInput(
            f"`DATA`: the folder {str(folder)!r} holds no .npz files; name one that does."
        )
    return open_shards(paths)


def _mapped(place: Path, target: str | int, chunk_bytes: int) -> Opened:
    try:
        mapped = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"`DATA`: {str(place)!r} could not be mapped: {error}") from None
    if mapped.ndim != 2 or mapped.shape[1] < 2:
        raise InvalidInput(
            f"`DATA`: {place.name} has shape {mapped.shape}; features and a target are needed."
        )
    column = int(target) if str(target).lstrip("-").isdigit() else None
    last = mapped.shape[1] - 1
    if column not in (0, -1, last):
        raise InvalidInput(
            f"`target` is {target!r}; the target must be the first (0) or last (-1) of the "
            f"{last + 1} columns of {place.name}."
        )
    y = np.array(mapped[:, column], dtype=np.float64)
    return Mapped(mapped[:, 1:] if column == 0 else mapped[:, :-1], chunk_bytes), y
