"""A Dask array as a source of chunks, whatever it reads: Zarr, Parquet, HDF5, or a computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np

from cvxscreen.errors import InvalidInput
from cvxscreen.sources.memory import Blocks
from cvxscreen.streams import Part

Compute = Callable[[Any], Any]


def is_dask(X: Any) -> bool:
    """Whether `X` is a collection of Dask; imports nothing."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__")


class DaskRows:
    """The rows of a Dask array, chunk by chunk as it is cut; nothing is computed before a pass.

    Chunks without rows are left out. Columns cut into several chunks are put together.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame, shape (n, d)
        Chunks are arrays, or SciPy matrices where ``X._meta`` is one.
    compute : callable
        Computes one Dask collection; called only where the numbers of rows are not known, and then
        reads the data once.

    Raises
    ------
    InvalidInput
        For another shape, columns of unknown number, or entries that are no real numbers.
    """

    def __init__(self, X: Any, compute: Compute) -> None:
        array = _as_array(X)
        if array.numblocks[1] != 1:
            array = array.rechunk({1: -1})
        blocks = array.to_delayed().ravel()
        lengths = list(array.chunks[0])
        if np.isnan(lengths).any():
            lengths = _counted(blocks, compute)
        used = [k for k, length in enumerate(lengths) if length]
        if not used:
            raise InvalidInput("`X` has no rows; at least one is needed.")
        self.blocks: tuple[Any, ...] = tuple(blocks[k] for k in used)
        self.bounds: tuple[int, ...] = (0, *np.cumsum([lengths[k] for k in used]).tolist())
        self.shape: tuple[int, int] = (self.bounds[-1], int(array.shape[1]))
        self.sparse = not isinstance(array._meta, np.ndarray) and hasattr(array._meta, "tocsr")

    def load(self, k: int) -> Any:
        """Chunk `k`, computed by the thread that asks for it."""
        return settled(self.blocks[k].compute(scheduler="synchronous"), *self.kind(k))


    def kind(self, k: int) -> tuple[tuple[int, int], bool]:
        """The shape that chunk `k` must have, and whether it is CSR."""
        return (self.bounds[k + 1] - self.bounds[k], self.shape[1]), self.sparse


@dataclass(frozen=True)
class Given:
    """In place of `DaskRows` where Dask has computed the chunk that is asked for."""

    sparse: bool
    block: Any = None

    def load(self, k: int) -> Any:
        """The one chunk there is."""
        return self.block


def innermost(source: Any, count: int) -> tuple[Any, Sequence[int]]:
    """What a source is made from, ``source.source`` and so on, and which chunks of it are used."""
    places: Sequence[int] = range(count)
    while is_dataclass(source) and hasattr(source, "source"):
        if isinstance(source, Part):
            places = [source.chunks[k] for k in places]
        source = source.source
    return source, places


def rebased(source: Any, inner: Any) -> Any:
    """The same source made from another innermost one."""
    if not (is_dataclass(source) and hasattr(source, "source")):
        return inner
    return replace(source, source=rebased(source.source, inner))  # type: ignore[type-var]


def settled(block: Any, shape: tuple[int, int], sparse: bool) -> Any:
    """A computed chunk as `Source.load` promises it.

    Raises
    ------
    InvalidInput
        Where it is not what its array says.
    """
    if hasattr(block, "tocsr") is not sparse:
        kinds = ("dense", "sparse") if sparse else ("sparse", "dense")
        raise InvalidInput(
            f"`X` has a {kinds[0]} chunk although its Dask array says {kinds[1]}; give "
            "`map_blocks` or `from_delayed` a `meta` of the kind of the chunks."
        )
    block = block if sparse else np.asarray(block)
    if block.shape != shape:
        raise InvalidInput(
            f"`X` has a chunk of shape {block.shape} where its Dask array says {shape}; call "
            "X.compute_chunk_sizes() first."
        )
    return Blocks((block,)).load(0)


def _as_array(X: Any) -> Any:
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    if not hasattr(array, "to_delayed") or getattr(array, "ndim", 0) != 2:
        raise InvalidInput(
            f"`X` is a Dask {type(X).__name__} of shape {getattr(X, 'shape', '?')}; an array "
            "(n, d) or a DataFrame is needed."
        )
    if array.dtype.kind not in "fiub":
        raise InvalidInput(
            f"`X` has dtype {array.dtype}; real numbers are needed. Encode it first, or say "
            "X.astype(float)."
        )
    if np.isnan(array.shape[1]):
        raise InvalidInput("`X` has an unknown number of columns; call X.compute_chunk_sizes().")
    return array


def _rows(block: Any) -> int:
    return int(block.shape[0])


def _counted(blocks: Sequence[Any], compute: Compute) -> list[int]:
    """The rows of every chunk, by one pass over the data."""
    from dask import delayed

    count = delayed(_rows, pure=False)
    return list(compute(delayed(list, pure=False)([count(block) for block in blocks])))
