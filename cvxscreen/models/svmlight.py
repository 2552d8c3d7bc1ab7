"""svmlight/libsvm text read a range of bytes at a time: a source of CSR chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.sources.memory import CHUNK_BYTES, Blocks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SvmlightRows:
    """The rows of a text file, parsed anew at every visit; only its name travels.

    Attributes
    ----------
    path : str
    ranges : tuple of (int, int)
        First byte and end of each chunk, at ends of lines.
    one_based : bool
        Whether features are counted from 1 in the file.
    shape : (int, int)
    bounds : tuple of int
    """

    path: str
    ranges: tuple[tuple[int, int], ...]
    one_based: bool
    shape: tuple[int, int]
    bounds: tuple[int, ...]
    sparse: bool = True

    def load(self, k: int) -> Any:
        """The rows between two bytes, as CSR."""
        X, _ = _parsed(self.path, self.ranges[k], self.shape[1] + self.one_based)
        rows = self.bounds[k + 1] - self.bounds[k]
        if X.shape[0] != rows:
            raise InvalidInput(f"`X`: {self.path!r} has changed; open it again.")
        indices = X.indices - self.one_based
        return Blocks((sp.csr_matrix((X.data, indices, X.indptr), (rows, self.shape[1])),)).load(0)


def open_svmlight(
    place: Path, chunk_bytes: int = CHUNK_BYTES
) -> tuple[SvmlightRows, Array]:
    """The rows of a text file as a source, and its targets; reads the file once.

    Parameters
    ----------
    place : Path
    chunk_bytes : int
        Text of about this size makes a chunk.

    Raises
    ------
    InvalidInput
        For a compressed file, or a line that is no svmlight.
    """
    if place.suffix in (".gz", ".bz2"):
        raise InvalidInput(
            f"`DATA`: {place.name} is compressed and cannot be read in pieces; decompress it first."
        )
    ranges, counts, targets = [], [], []
    least, most = np.iinfo(np.int64).max, -1
    for span in _cuts(place, chunk_bytes):
        X, y = _parsed(str(place), span, None)
        if not len(y):
            continue
        if X.nnz:
            least, most = min(least, int(X.indices.min())), max(most, int(X.indices.max()))
        ranges.append(span)
        counts.append(len(y))
        targets.append(y)
    if most < 0:
        raise InvalidInput(f"`DATA`: {place.name} has no rows with features.")
    shape = (sum(counts), most + 1 - (least > 0))
    bounds = (0, *np.cumsum(counts).tolist())
    source = SvmlightRows(str(place), tuple(ranges), least > 0, shape, bounds)
    return source, np.concatenate(targets)


def _cuts(place: Path, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of bytes that begin and end with lines."""
    size = place.stat().st_size
    ends = [0]
    with place.open("rb") as stream:
        while ends[-1] < size:
            stream.seek(min(ends[-1] + chunk_bytes, size) - 1)
            stream.readline()
            ends.append(stream.tell())
    return pairwise(ends)


def _parsed(name: str, span: tuple[int, int], width: int | None) -> tuple[Any, Array]:
    """Rows and targets of a range of bytes; features as numbered in the file."""
    from sklearn.datasets import load_svmlight_file

    with Path(name).open("rb") as stream:
        stream.seek(span[0])
        text = stream.read(span[1] - span[0])
    try:
        X, y = load_svmlight_file(BytesIO(text), n_features=width, zero_based=True)
    except ValueError as error:
        raise InvalidInput(
            f"`DATA`: {name!r} could not be read as svmlight between the bytes {span[0]} and "
            f"{span[1]}: {error}"
        ) from None
    return X, np.asarray(y, dtype=np.float64)
