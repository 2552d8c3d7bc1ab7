"""Shards: a matrix kept as .npz files, a chunk each, with the targets beside the rows."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.in_memory import Blocks
from cvxscreen.out_of_core.streams import Source

CSR_PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


@dataclass(frozen=True)
class Shards:
    """Rows kept in .npz files: an array ``X``, or the parts of a CSR matrix.

    Only the names travel to another process; a file is read whenever its chunk is visited.

    Attributes
    ----------
    paths : tuple of str
    shape : (int, int)
    sparse : bool
    bounds : tuple of int
        Where the rows of each file begin, and n.
    """

    paths: tuple[str, ...]
    shape: tuple[int, int]
    sparse: bool
    bounds: tuple[int, ...]

    def load(self, k: int) -> Any:
        """The rows of file `k`."""
        with np.load(self.paths[k], allow_pickle=False) as data:
            block = matrix_of(data, self.paths[k])
        rows = self.bounds[k + 1] - self.bounds[k]
        if block.shape != (rows, self.shape[1]):
            raise InvalidInput(
                f"`X`: {self.paths[k]!r} has changed: its rows have shape {block.shape}, "
                f"{(rows, self.shape[1])} when it was opened. Open the shards again."
            )
        return Blocks((block,)).load(0)


def matrix_of(data: Any, name: str) -> Any:
    """The matrix in an opened .npz file: ``X``, or a CSR matrix from its four parts.

    Raises
    ------
    InvalidInput
        If there is neither.
    """
    if "X" in data.files:
        return data["X"]
    if not set(data.files).issuperset(CSR_PARTS):
        raise InvalidInput(f"`DATA`: {Path(name).name} has neither 'X' nor a CSR matrix.")
    triple = (data["X_data"], data["X_indices"], data["X_indptr"])
    return sp.csr_matrix(triple, shape=tuple(data["X_shape"]))


def open_shards(paths: Iterable[str | Path]) -> tuple[Shards, NDArray[Any]]:
    """The rows of a list of .npz files as a source, and their targets ``y`` in one vector.

    The matrices are not read, only their shapes.

    Raises
    ------
    InvalidInput
        Where a file lacks ``y``, is no .npz file, or does not go with the first one.
    """
    names = [str(path) for path in paths]
    if not names:
        raise InvalidInput("`DATA` is an empty list of shards; at least one .npz file is needed.")
    found = [_opened(name) for name in names]
    _, d, sparse, _ = found[0]
    for name, (_, width, kind, _) in zip(names, found, strict=True):
        if width != d or kind is not sparse:
            raise InvalidInput(
                f"`DATA`: {name!r} holds {'CSR' if kind else 'dense'} rows of {width} features, "
                f"{names[0]!r} {'CSR' if sparse else 'dense'} rows of {d}; they must agree."
            )
    used = [k for k, (rows, _, _, _) in enumerate(found) if rows]
    if not used:
        raise InvalidInput("`DATA`: the shards hold no rows.")
    bounds = (0, *np.cumsum([found[k][0] for k in used]).tolist())
    source = Shards(tuple(names[k] for k in used), (bounds[-1], d), sparse, bounds)
    return source, np.concatenate([found[k][3] for k in used])


def write_shards(source: Source, y: NDArray[Any], folder: Path) -> tuple[Shards, NDArray[Any]]:
    """Copy every chunk of `source` and its targets into `folder`, opened as shards."""
    names = []
    for k, (start, stop) in enumerate(pairwise(source.bounds)):
        block = source.load(k)
        parts = {"X": block}
        if source.sparse:
            found = (block.data, block.indices, block.indptr, block.shape)
            parts = dict(zip(CSR_PARTS, found, strict=True))
        names.append(folder / f"part-{k:06d}.npz")
        np.savez(names[-1], y=y[start:stop], **parts)
    return open_shards(names)


def empty_folder(folder: Path) -> Path:
    """`folder`, made if it does not exist.

    Raises
    ------
    InvalidInput
        If there is something in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(
            f"`cache`: the folder {str(folder)!r} is not empty; name another one, or open it in "
            "place of the data if it was made from them."
        )
    return folder


def _opened(name: str) -> tuple[int, int, bool, NDArray[Any]]:
    """Rows, columns, kind and targets of one shard."""
    try:
        with np.load(name, allow_pickle=False) as data, zipfile.ZipFile(name) as archive:
            if "y" not in data.files:
                raise InvalidInput(f"`DATA`: {name!r} has no array 'y'; found {data.files}.")
            y = data["y"]
            if "X" in data.files:
                shape, sparse = _shape(archive, "X.npy"), False
            elif set(data.files).issuperset(CSR_PARTS):
                shape, sparse = tuple(int(k) for k in data["X_shape"]), True
            else:
                raise InvalidInput(f"`DATA`: {name!r} has neither 'X' nor a CSR matrix.")
    except InvalidInput:
        raise
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"`DATA`: {name!r} could not be read as .npz: {error}") from None
    if len(shape) != 2 or y.shape != shape[:1]:
        raise InvalidInput(
            f"`DATA`: {name!r} holds X of shape {tuple(shape)} and y of shape {y.shape}; (n, d) "
            "and (n,) are needed."
        )
    return int(shape[0]), int(shape[1]), sparse, y


def _shape(archive: zipfile.ZipFile, member: str) -> Sequence[int]:
    """The shape of an array in a .npz file, from its header alone."""
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise ValueError(f"the array {member} is of the unknown version {version}")
        shape, _, _ = readers[version](stream)
    return tuple(int(k) for k in shape)
