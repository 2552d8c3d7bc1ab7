"""Data past one machine's memory: where chunks of rows come from, and who visits them.

A *source* cuts the rows of one matrix into chunks and loads one at a time. A *task* is what a pass
does with a chunk: a picklable function, and how two of its results become one. An *engine* runs a
task over all chunks of a source, wherever they live, and reduces the results by a tree whose shape
depends on the number of chunks alone. So a result depends on the cut, never on the engine or on
how many workers it has.

Neighbouring results are merged, level by level, and an odd one out is carried up: seven chunks are
reduced as ``(((0 1)(2 3)) ((4 5) 6))``.

Products with a chunk of dense rows, float32 or float64, are summed in double and in a fixed order:
a product of two float32 is exact in double precision, and the order of the sums depends on the
chunk's shape alone, so that it does not matter which thread or machine made them. A chunk that lies
elsewhere than in this process's memory brings its own products (`OwnProducts`).
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled, read_only
from cvxscreen.errors import InvalidInput


class Source(Protocol):
    """The rows of one matrix, cut into chunks; picklable where an engine sends it elsewhere.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the whole matrix.
    sparse : bool
        Whether chunks are CSR.
    bounds : tuple of int
        Rows at which chunks begin, and n: chunk `k` holds the rows ``bounds[k]:bounds[k + 1]``.
        Increasing, from 0.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether chunks are CSR."""
        ...

    @property
    def bounds(self) -> tuple[int, ...]:
        """Rows at which chunks begin, and n."""
        ...

    def load(self, k: int) -> Any:
        """Chunk `k`: C-contiguous float32 or float64 (rows, d), or canonical CSR of these types.

        Called where the task runs, possibly from several threads at once. Nobody writes to what it
        returns. Values need not be finite: the first pass checks them and names the rows.
        """
        ...


class Task(Protocol):
    """What one pass does; picklable, without state that a call changes.

    A class that inherits from this one has to say what is done with a chunk; its results add up.
    """

    def __call__(self, block: Any, start: int, *pieces: Any) -> Any:
        """The result for the rows ``start : start + block.shape[0]``.

        Parameters
        ----------
        block : array or CSR matrix
            What ``source.load(k)`` returned.
        start : int
            The first row of the chunk.
        *pieces
            ``column[start:stop]`` for each of the engine's `columns`, in order.
        """
        ...

    def merge(self, left: Any, right: Any) -> Any:
        """One result from two neighbouring ones, which may be used again: neither is written to."""
        return left + right


class Column(Protocol):
    """Something with an entry for each row: an array, a memory map, or what slices like one."""

    def __getitem__(self, rows: slice, /) -> Any:
        """The entries of ``start:stop``, of any type that pickles."""
        ...


class Engine(Protocol):
    """Who visits the chunks of a source."""

    def run(self, task: Task, source: Source, columns: Sequence[Column] = ()) -> Any:
        """One pass over all chunks, reduced by ``task.merge`` in the order of `Tree`.

        Chunk k gives ``task(source.load(k), start, *(c[start:stop] for c in columns))`` with
        ``start, stop = source.bounds[k], source.bounds[k + 1]``.

        An exception of a task ends the pass and is raised here as it is.
        """
        ...

    def gather(self, source: Source, rows: Any) -> Any:
        """The rows at the increasing indices `rows`, in order, as one array or CSR matrix."""
        ...

    def keep(self, column: Column) -> None:
        """The entries of `column` never change: pieces may be kept where the chunks are."""
        ...


class Tree:
    """Reduction by neighbours; results may arrive in any order, the answer is the same.

    Parameters
    ----------
    leaves : int
        How many results there will be, at least 1.
    merge : callable
        ``merge(left, right)``.
    """

    def __init__(self, leaves: int, merge: Callable[[Any, Any], Any]) -> None:
        self.leaves, self.merge = leaves, merge
        self._waiting: dict[tuple[int, int], Any] = {}

    def put(self, k: int, value: Any) -> None:
        """The result of chunk `k`; merged with its neighbour as soon as both are there."""
        level, place, width = 0, k, self.leaves
        while width > 1:
            other = place ^ 1
            if other < width:  # otherwise the odd one out: carried up as it is
                if (level, other) not in self._waiting:
                    break
                pair = self._waiting.pop((level, other)), value
                value = self.merge(*(pair if other < place else pair[::-1]))
            level, place, width = level + 1, place // 2, (width + 1) // 2
        self._waiting[level, place] = value

    def result(self) -> Any:
        """The reduced result, once every leaf has been put."""
        [value] = self._waiting.values()
        return value


@dataclass(frozen=True)
class Gather(Task):
    """The task behind `Engine.gather`: its one column is a `RowsPerChunk`."""

    def __call__(self, block: Any, start: int, rows: Any) -> list[Any]:
        """The chosen rows of one chunk, copied."""
        return [np.asarray(block[rows]) if isinstance(block, np.ndarray) else block[rows]]


@dataclass(frozen=True)
class RowsPerChunk:
    """A column that holds, for each chunk, which of its rows are among `index` (increasing)."""

    index: Any

    def __getitem__(self, rows: slice) -> Any:
        first, last = np.searchsorted(self.index, [rows.start, rows.stop])
        return self.index[first:last] - rows.start


@dataclass
class LocalEngine:
    """Chunks are visited in this process, by one thread or a few.

    Attributes
    ----------
    workers : int
        Threads; tasks that hold the interpreter gain nothing from more than one.
    passes : int
        Passes made so far.
    """

    workers: int = 1
    passes: int = field(default=0, init=False)

    def run(self, task: Task, source: Source, columns: Sequence[Column] = ()) -> Any:
        """One pass; see `Engine`."""
        spans = list(pairwise(source.bounds))
        tree = Tree(len(spans), task.merge)

        def visit(k: int) -> Any:
            start, stop = spans[k]
            return task(source.load(k), start, *(column[start:stop] for column in columns))

        for k, value in _visits(visit, len(spans), self.workers):
            tree.put(k, value)
        self.passes += 1
        return tree.result()

    def gather(self, source: Source, rows: Any) -> Any:
        """The rows at `rows`; only chunks that hold some are loaded."""
        return gathered(self, source, rows)

    def keep(self, column: Column) -> None:
        """Nothing to do: columns are in this process already."""


def _visits(
    visit: Callable[[int], Any], count: int, workers: int
) -> Iterator[tuple[int, Any]]:
    """Yield ``(k, visit(k))`` as they finish, with at most ``workers + 1`` under way."""
    if workers <= 1 or count == 1:
        yield from ((k, visit(k)) for k in range(count))
        return
    with ThreadPoolExecutor(workers) as pool:
        under_way: dict[Future[Any], int] = {}
        ahead = iter(range(count))
        try:
            while True:
                while len(under_way) <= workers and (k := next(ahead, None)) is not None:
                    under_way[pool.submit(visit, k)] = k
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield under_way.pop(future), future.result()
        finally:
            for future in under_way:
                future.cancel()


@dataclass(frozen=True)
class ChunkSubset:
    """Some of the chunks of a source, as a source: what a gather has to visit."""

    source: Source
    chunks: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of the chunks that are kept, and columns of the source."""
        return self.bounds[-1], self.source.shape[1]

    @property
    def sparse(self) -> bool:
        """Whether the chunks are CSR."""
        return self.source.sparse

    @property
    def bounds(self) -> tuple[int, ...]:
        """Chunks side by side, counted from 0."""
        whole = self.source.bounds
        return (0, *np.cumsum([whole[k + 1] - whole[k] for k in self.chunks]).tolist())

    def load(self, k: int) -> Any:
        """The k-th of the chunks kept."""
        return self.source.load(self.chunks[k])


def gathered(engine: Engine, source: Source, rows: Any) -> Any:
    """`Engine.gather` by one `Engine.run` of `Gather` over the chunks that hold some of `rows`."""
    rows = np.asarray(rows)
    bounds = np.asarray(source.bounds)
    owner = np.searchsorted(bounds, rows, side="right") - 1
    used, first = np.unique(owner, return_index=True)
    if len(used) == 0:
        d = source.shape[1]
        return sp.csr_matrix((0, d)) if source.sparse else np.zeros((0, d))
    part = ChunkSubset(source, tuple(int(k) for k in used))
    shift = bounds[used] - np.asarray(part.bounds[:-1])
    moved = rows - np.repeat(shift, np.diff([*first, len(rows)]))
    pieces = engine.run(Gather(), part, (RowsPerChunk(moved),))
    return sp.vstack(pieces, format="csr") if source.sparse else np.concatenate(pieces)


# -- on this machine: blocks in a list, a memory map ----------------------------------------------
#
# `opened` is what the models ask of every matrix: it answers with a source and an engine for the
# kinds that are known (`register` adds one, as the modules of Dask and of devices do), and None for
# an ordinary matrix.


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
        return X, LocalEngine()
    if isinstance(X, np.memmap) and X.ndim == 2:
        return Mapped(X), LocalEngine()
    return None


Array = NDArray[np.float64]

STRIP = 1024
"""Rows whose contribution to a column is summed before it joins those of the other strips."""


class OwnProducts(ABC):
    """A block of rows, shape (n, d), that makes its products itself."""

    @abstractmethod
    def margins(self, x: Array) -> Array:
        """``sum_j a_ij x_j`` for every row, shape (n,)."""

    @abstractmethod
    def squares(self, weights: Array) -> Array:
        """``sum_j weights_j a_ij^2`` for every row, shape (n,)."""

    @abstractmethod
    def adjoint(self, theta: Array) -> Array:
        """``sum_i a_ij theta_i`` for every column, summed in strips of `STRIP` rows, shape (d,)."""


def margins(block: Any, x: Array) -> Array:
    """``sum_j a_ij x_j`` for every row of an array or `OwnProducts`, shape (n,)."""
    if isinstance(block, OwnProducts):
        return block.margins(x)
    out = np.empty(len(block))
    margins_of_rows(*read_only(block, x), out)
    return out


def squares(block: Any, weights: Array) -> Array:
    """``sum_j weights_j a_ij^2`` for every row of an array or `OwnProducts`, shape (n,)."""
    if isinstance(block, OwnProducts):
        return block.squares(weights)
    out = np.empty(len(block))
    squares_of_rows(*read_only(block, weights), out)
    return out


def adjoint(block: Any, theta: Array) -> Array:
    """``sum_i a_ij theta_i`` for every column of an array or `OwnProducts`, shape (d,)."""
    if isinstance(block, OwnProducts):
        return block.adjoint(theta)
    out = np.zeros(block.shape[1])
    add_rows(*read_only(block, theta), out)
    return out


@compiled(fastmath=SUMS)
def margins_of_rows(block, x, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j a_ij x_j``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += np.float64(block[i, j]) * x[j]
        out[i] = total


@compiled(fastmath=SUMS)
def squares_of_rows(block, weights, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j weights_j a_ij^2``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            entry = np.float64(block[i, j])
            total += weights[j] * entry * entry
        out[i] = total


@compiled(fastmath=SUMS)
def add_rows(block, theta, out):  # type: ignore[no-untyped-def]
    """``out_j += sum_i a_ij theta_i``, strip by strip; rows with ``theta_i = 0`` are not read."""
    n, d = block.shape
    strip = np.zeros(d)
    for first in range(0, n, STRIP):
        for j in range(d):
            strip[j] = 0.0
        for i in range(first, min(first + STRIP, n)):
            weight = theta[i]
            if weight != 0.0:
                for j in range(d):
                    strip[j] += weight * np.float64(block[i, j])
        for j in range(d):
            out[j] += strip[j]
