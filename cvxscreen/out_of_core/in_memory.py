"""Chunks on this machine, blocks in a list or a memory map; and which objects are data in chunks.

`Blocks` and `Mapped` are sources of chunks. `opened` is what the models ask of every matrix: it
answers with a source and an engine for the kinds that are known (`register` adds one, as the
modules of Dask and of devices do), and None for an ordinary matrix.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Engine, Local, Source

CHUNK_BYTES = 2**24
"""Bytes of a chunk where nobody says otherwise."""


def even_bounds(n: int, row_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> tuple[int, ...]:
    """Rows at which chunks of about `chunk_bytes` begin, and n: the cut of every dense source."""
    rows = max(1, chunk_bytes // max(1, row_bytes))
    return (*range(0, n, rows), n)


@dataclass(frozen=True)
class Blocks:
    """Chunks that are already in memory: a tuple of arrays or of CSR matrices.

    Raises
    ------
    InvalidInput
        Where chunks differ in kind or number of columns, or hold no rows.
    """

    blocks: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks:
            raise InvalidInput("`X` has no chunks; at least one is needed.")
        for k, block in enumerate(self.blocks):
            shape: tuple[int, ...] = getattr(block, "shape", ())
            fits = len(shape) == 2 and shape[1] == self.blocks[0].shape[1] and shape[0] > 0
            if not fits or isinstance(block, np.ndarray) is self.sparse:
                raise InvalidInput(
                    f"`X`: chunk {k} has shape {shape}; every chunk needs rows, the columns of "
                    "the first one, and its kind (arrays, or CSR matrices)."
                )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole."""
        n = sum(block.shape[0] for block in self.blocks)
        return n, int(self.blocks[0].shape[1])

    @property
    def sparse(self) -> bool:
        """Whether the chunks are CSR."""
        return not isinstance(self.blocks[0], np.ndarray)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where chunks begin, and n."""
        return (0, *np.cumsum([int(block.shape[0]) for block in self.blocks]).tolist())

    def load(self, k: int) -> Any:
        """Chunk `k`, as it is when it is float and in order, otherwise converted."""
        block = self.blocks[k]
        if not self.sparse:
            return _dense(block)
        block = block.tocsr()
        if block.dtype not in (np.float32, np.float64):
            block = block.astype(np.float64)
        if not block.has_canonical_format:
            block = block.copy()
            block.sum_duplicates()
        return block


class Mapped:
    """A memory map of a matrix, rows in order, cut into even chunks; never written to.

    It is sent to another process as the name of the file, not as its contents.

    Parameters
    ----------
    array : numpy.memmap, shape (n, d)
        Also a slice of one.
    chunk_bytes : int
        About how large a chunk is.
    """

    sparse = False

    def __init__(self, array: np.memmap, chunk_bytes: int = CHUNK_BYTES) -> None:
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InvalidInput(
                f"`X` is a memory map of shape {array.shape} and dtype {array.dtype}; a matrix "
                "(n, d) of real numbers is needed."
            )
        self.array = np.asarray(array)
        self.shape: tuple[int, int] = array.shape
        self.chunk_bytes = chunk_bytes
        self.bounds = even_bounds(array.shape[0], array.shape[1] * array.itemsize, chunk_bytes)
        self._file = (array.filename, _place_in_file(array))

    def load(self, k: int) -> Any:
        """Chunk `k`: a view of the map where its rows are float and in order."""
        return _dense(self.array[self.bounds[k] : self.bounds[k + 1]])

    def __reduce__(self) -> tuple[Any, ...]:
        name, place = self._file
        if name is None:
            return _whole, (np.array(self.array), self.chunk_bytes)
        a = self.array
        return _reopened, (name, place, a.shape, a.strides, a.dtype, self.chunk_bytes)


def _dense(block: Any) -> Any:
    kind = block.dtype if block.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return np.ascontiguousarray(block, dtype=kind.newbyteorder("="))


def _place_in_file(array: np.memmap) -> int:
    """Byte of the file at which the first entry of `array` lies (slices keep their base's)."""
    base = getattr(array, "_mmap", None)
    if base is None:
        return 0
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return int(array.ctypes.data - np.frombuffer(base, dtype=np.uint8).ctypes.data + start)


def _reopened(
    name: Any, place: int, shape: Any, strides: Any, dtype: Any, chunk_bytes: int
) -> Mapped:
    raw = np.memmap(name, dtype=np.uint8, mode="r")
    view = np.ndarray(shape, dtype, buffer=raw, offset=place, strides=strides)
    return _mapped(view, name, place, chunk_bytes)


def _whole(array: Any, chunk_bytes: int) -> Mapped:
    return _mapped(array, None, 0, chunk_bytes)


def _mapped(array: Any, name: Any, place: int, chunk_bytes: int) -> Mapped:
    made = Mapped.__new__(Mapped)
    made.array, made.shape, made.chunk_bytes = array, array.shape, chunk_bytes
    made.bounds = even_bounds(array.shape[0], array.shape[1] * array.itemsize, chunk_bytes)
    made._file = (name, place)
    return made


Opened = tuple[Source, Engine]

_KNOWN: list[tuple[Callable[[Any], bool], Callable[[Any], Opened]]] = []


def register(fits: Callable[[Any], bool], build: Callable[[Any], Opened]) -> None:
    """Let `build` turn every X for which ``fits(X)`` into a source and the engine to visit it.

    `fits` must be cheap and import nothing: ask for the name of the type's module.
    """
    _KNOWN.append((fits, build))


def opened(X: Any, kernel: object = None) -> Opened | None:
    """The source and engine behind `X`; None where `X` is an ordinary matrix.

    In order: ``(source, engine)`` as it is; whatever `register` was told of; a source, visited by
    one thread of this process; a two-dimensional `numpy.memmap`. With a `kernel`, a matrix between
    all pairs of rows, a memory map is an ordinary array.

    Raises
    ------
    InvalidInput
        For chunks of another kind with a kernel.
    """
    found = None if kernel is not None and isinstance(X, np.memmap) else _opened(X)
    if found is not None and kernel is not None:
        raise InvalidInput(
            "`kernel` needs the rows of `X` in memory; load them into an array, or leave `kernel` "
            "out for a linear model of data in chunks."
        )
    return found


def _opened(X: Any) -> Opened | None:
    if isinstance(X, tuple) and len(X) == 2 and callable(getattr(X[0], "load", None)):
        return X
    for fits, build in _KNOWN:
        if fits(X):
            return build(X)
    if callable(getattr(X, "load", None)) and hasattr(X, "bounds"):
        return X, Local()
    if isinstance(X, np.memmap) and X.ndim == 2:
        return Mapped(X), Local()
    return None
