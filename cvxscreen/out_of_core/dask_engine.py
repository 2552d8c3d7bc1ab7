"""Dask: arrays of any origin as a source of chunks, and a cluster as the engine that visits them.

* `open_zarr`, `open_parquet`: files that Dask reads.
* `DaskRows`: a Dask array as a source, whatever computes it.
* `DaskEngine`: a pass is one Dask graph, a task for each chunk, run where the chunk is computed,
  and merges of a few neighbours at a time. Dask schedules it, repeats what was lost with a worker,
  and shows its progress. Merges keep the shape of `Tree`, so the result does not depend on workers,
  threads or luck. (Where workers multiply with another number of BLAS threads than this process, a
  cluster may differ from it in the last bit; Dask's own workers use one.)
* `on_dask`: both together, for the models.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.validation import flag, whole
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.out_of_core.streams import (
    Blocks,
    ChunkSubset,
    Column,
    Opened,
    Source,
    Task,
    Tree,
    gathered,
    opened,
    register,
)

Compute = Callable[[Any], Any]


@contextmanager
def _reading(place: Path, needs: str) -> Iterator[None]:
    """Errors of other libraries, as ours."""
    try:
        yield
    except InvalidInput:
        raise
    except ImportError as error:
        raise MissingDependency(
            f"`DATA`: {place.name} is read by Dask with {needs} ({error}); all of it comes with: "
            'pip install "cvxscreen[dask]"'
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(f"`DATA`: {str(place)!r} could not be read: {error}") from None


def open_zarr(place: Path) -> tuple[Any, NDArray[Any]]:
    """The array ``X`` of a Zarr group as a Dask array, cut as it is stored, and its ``y``."""
    with _reading(place, "zarr"):
        from dask.array import from_zarr

        X, y = (from_zarr(str(place), component=name) for name in ("X", "y"))
        return X, np.asarray(y.compute())


def open_parquet(place: Path, target: str | int | None) -> tuple[Any, NDArray[Any]]:
    """Every column of a Parquet file or folder but `target` as a Dask array, and the target."""
    with _reading(place, "pandas and pyarrow"):
        from dask.dataframe import read_parquet

        frame = read_parquet(place)
        names = list(frame.columns)
        wanted = names[-1] if target is None else target
        if wanted not in names:
            shown = ", ".join(map(str, names[:12]))
            raise InvalidInput(f"`target` is {target!r}; {place.name} has the columns {shown}.")
        features = frame[[name for name in names if name != wanted]]
        X = features.to_dask_array(lengths=True)
        if X.dtype.kind not in "fiub":
            words = [n for n in features.columns if features[n].dtype.kind not in "fiub"]
            raise InvalidInput(
                f"`DATA`: the columns {words[:12]} of {place.name} are no numbers; encode them."
            )
        column = frame[wanted].compute()
        if column.isna().any():
            raise InvalidInput(
                f"`DATA`: the target {wanted!r} of {place.name} has gaps; drop those rows."
            )
        y = np.asarray(column)
        return X, y if y.dtype.kind in "fiub" else y.astype(str)


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
        return as_promised(self.blocks[k].compute(scheduler="synchronous"), *self.kind(k))

    def kind(self, k: int) -> tuple[tuple[int, int], bool]:
        """The shape that chunk `k` must have, and whether it is CSR."""
        return (self.bounds[k + 1] - self.bounds[k], self.shape[1]), self.sparse


@dataclass(frozen=True)
class ComputedChunk:
    """Stands for `DaskRows` within a task: the one chunk that Dask has computed for it."""

    sparse: bool
    block: Any = None

    def load(self, k: int) -> Any:
        """The one chunk there is."""
        return self.block


def innermost_source(source: Any, count: int) -> tuple[Any, Sequence[int]]:
    """What a source is made from, ``source.source`` and so on, and which chunks of it are used."""
    places: Sequence[int] = range(count)
    while is_dataclass(source) and hasattr(source, "source"):
        if isinstance(source, ChunkSubset):
            places = [source.chunks[k] for k in places]
        source = source.source
    return source, places


def with_innermost(source: Any, inner: Any) -> Any:
    """The same source made from another innermost one."""
    if not (is_dataclass(source) and hasattr(source, "source")):
        return inner
    return replace(source, source=with_innermost(source.source, inner))  # type: ignore[type-var]


def as_promised(block: Any, shape: tuple[int, int], sparse: bool) -> Any:
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


TOGETHER = 8
"""Results merged by one task; a power of two, so that groups are branches of the whole tree."""

PARCEL = 2**24
"""Bytes of a column that are sent to a cluster at once."""

LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"


@dataclass(eq=False)
class DaskEngine:
    """Chunks are visited by Dask.

    Attributes
    ----------
    client : distributed.Client, optional
        Whose workers do the passes. When omitted, Dask decides as it always does: the client that
        is active, or threads of this process.
    workers : int, optional
        Threads of this process, whatever client is active.
    retries : int
        How often a cluster repeats a task that raised (a file system that stuttered). A task that
        was lost with its worker is repeated anyway.
    progress : bool
        Show Dask's bar for every pass, on standard error.
    passes : int
        Passes made so far.
    """

    client: Any = None
    workers: int | None = None
    retries: int = 2
    progress: bool = False
    passes: int = field(default=0, init=False)
    _kept: dict[int, dict[str, dict[tuple[int, int], Any]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        _delayed()
        if self.client is not None and not callable(getattr(self.client, "compute", None)):
            raise InvalidInput(
                f"`client` is a {type(self.client).__name__}; a distributed.Client is needed."
            )
        if self.client is not None and self.workers is not None:
            raise InvalidInput(
                "`workers` are threads of this process; a `client` has its own. Give one of them."
            )
        if self.workers is not None:
            whole("workers", self.workers, 1)
        whole("retries", self.retries, 0)
        flag("progress", self.progress)

    def run(self, task: Task, source: Source, columns: Sequence[Column] = ()) -> Any:
        """One pass; see `Engine`."""
        self.passes += 1
        return self.compute(self._graph(task, source, columns))

    def gather(self, source: Source, rows: Any) -> Any:
        """The rows at `rows`; only chunks that hold some are visited."""
        return gathered(self, source, rows)

    def compute(self, what: Any) -> Any:
        """The value of one Dask collection."""
        client = self._cluster()
        if client is None:
            with self._bar():
                if self.workers is None:
                    return what.compute()
                return what.compute(scheduler="threads", num_workers=self.workers)
        import dask

        with dask.config.set({LARGE_GRAPH: "1 GiB"}):  # columns that change travel with the pass
            future = client.compute(what, retries=self.retries)
        if self.progress:
            _follow(client, future)
        return future.result()

    def _cluster(self) -> Any:
        """The client that does the passes; None for a scheduler of this process."""
        if self.client is not None or self.workers is not None:
            return self.client
        import dask

        if dask.config.get("scheduler", None) != "dask.distributed":
            return None
        from distributed import get_client

        return get_client()

    @contextmanager
    def _bar(self) -> Iterator[None]:
        if not self.progress:
            yield
            return
        from dask.diagnostics import ProgressBar

        with ProgressBar(out=sys.stderr):
            yield

    def keep(self, column: Column) -> None:
        """Entries of `column` never change: a cluster holds its pieces, where it likes."""
        if isinstance(column, np.ndarray) and id(column) not in self._kept:
            self._kept[id(column)] = {}
            weakref.finalize(column, _forget, weakref.ref(self), id(column))

    def _graph(self, task: Task, source: Source, columns: Sequence[Column]) -> Any:
        """The whole pass as one delayed value; `task` and `source` travel once to each worker."""
        delayed = _delayed()
        shared = delayed(task, traverse=False, pure=False)
        spans = tuple(pairwise(source.bounds))
        pieces = [self._pieces(column, spans) for column in columns]
        inner, places = innermost_source(source, len(spans))
        merge = delayed(merge_some, pure=False)
        if isinstance(inner, DaskRows):
            visit = delayed(visit_block, pure=False)
            outline = delayed(
                with_innermost(source, ComputedChunk(inner.sparse)), traverse=False, pure=False
            )
            results = [
                visit(shared, outline, inner.blocks[at], Opaque(inner.kind(at)), k, span[0], *held)
                for k, (at, span, *held) in enumerate(zip(places, spans, *pieces, strict=True))
            ]
        else:
            visit = delayed(visit_source, pure=False)
            where = delayed(source, traverse=False, pure=False)
            results = [
                visit(shared, where, k, span[0], *held)
                for k, (span, *held) in enumerate(zip(spans, *pieces, strict=True))
            ]
        while len(results) > 1:
            groups = range(0, len(results), TOGETHER)
            results = [merge(shared, *results[k : k + TOGETHER]) for k in groups]
        return results[0]

    def _pieces(self, column: Column, spans: tuple[tuple[int, int], ...]) -> Sequence[Any]:
        """What each chunk gets of `column`: held as it is, or where a cluster keeps it."""
        client, known = self._cluster(), self._kept.get(id(column))
        if client is None or known is None:
            return [Opaque(column[start:stop]) for start, stop in spans]
        from distributed import futures_of

        places = known.setdefault(client.id, {})
        if any(future.cancelled() for future in futures_of(list(places.values()))):
            places.clear()  # the cluster was restarted
        missing = [span for span in spans if span not in places]
        at_once = max(1, len(missing) * PARCEL // (1 + getattr(column, "nbytes", 0)))
        hold = _delayed()(Opaque, pure=False)
        for first in range(0, len(missing), at_once):
            some = missing[first : first + at_once]
            # Copies: a view that a cluster in this process holds would keep the whole column.
            sent = client.persist([hold(np.array(column[a:b])) for a, b in some])
            places.update(zip(some, sent, strict=True))
        return [places[span] for span in spans]


def _forget(engine: Callable[[], DaskEngine | None], key: int) -> None:
    """The column behind `key` is gone; let the cluster drop its pieces."""
    found = engine()
    if found is not None:
        found._kept.pop(key, None)


class Opaque:
    """A wrapper of what Dask is to hand over as it is, without looking for collections inside."""

    def __init__(self, value: Any) -> None:
        self.value = value


def visit_block(
    task: Task, outline: Source, block: Any, kind: Opaque, k: int, start: int, *pieces: Opaque
) -> Any:
    """What `task` makes of a computed chunk of a Dask array."""
    source = with_innermost(outline, ComputedChunk(kind.value[1], as_promised(block, *kind.value)))
    return visit_source(task, source, k, start, *pieces)


def visit_source(task: Task, source: Source, k: int, start: int, *pieces: Opaque) -> Any:
    """What `task` makes of chunk `k` of `source`."""
    return task(source.load(k), start, *(piece.value for piece in pieces))


def merge_some(task: Task, *results: Any) -> Any:
    """Neighbouring results as one, in the order of the whole tree."""
    tree = Tree(len(results), task.merge)
    for k, result in enumerate(results):
        tree.put(k, result)
    return tree.result()


def _follow(client: Any, future: Any) -> None:
    """Dask's own bar until `future` is finished."""
    from distributed import progress

    with client.as_current(), redirect_stdout(sys.stderr):
        progress(future, notebook=False)


def _delayed() -> Any:
    try:
        from dask import delayed
    except ImportError:
        raise MissingDependency(
            'Dask is not installed; it comes with: pip install "cvxscreen[dask]"'
        ) from None
    return delayed


def on_dask(
    X: Any,
    *,
    client: Any = None,
    workers: int | None = None,
    retries: int = 2,
    progress: bool = False,
) -> Opened:
    """Let Dask make the passes over `X`; the result stands for `X` in `svm` and `regression`.

    A Dask array needs this only to choose among the options: handed over as it is, it is visited by
    the active `distributed.Client`, or by threads where there is none.

    Parameters
    ----------
    X : dask array or DataFrame, numpy.memmap, or chunks from `open_data`, shape (n, d)
        Chunks of a Dask array are computed anew at every pass and must come out the same; if they
        fit into the memory of the workers, ``X = X.persist()`` keeps them there. Files must be in
        the same place for every worker.
    client : distributed.Client, optional
    workers : int, optional
        Threads of this process, in place of a client.
    retries : int
        How often a cluster repeats a task that raised.
    progress : bool
        Show Dask's bar for every pass.

    Returns
    -------
    source, engine
        In place of `X`.

    Raises
    ------
    InvalidInput
        For an ordinary matrix, or a client together with threads.
    MissingDependency
        If Dask is not installed.

    Examples
    --------
    >>> import cvxscreen, dask.array
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> rows = cvxscreen.on_dask(dask.array.from_array(X, chunks=(100, 3)))
    >>> cvxscreen.solve(cvxscreen.svm(rows, y)).certificate.ok
    True
    """
    engine = DaskEngine(client, workers, retries, progress)
    if is_dask(X):
        return DaskRows(X, engine.compute), engine
    found = opened(X)
    if found is None:
        raise InvalidInput(
            f"`X` is a {type(X).__name__}; a Dask array (dask.array.from_array(X, chunks=...)), a "
            "numpy.memmap or what `open_data` returns is needed."
        )
    return found[0], engine


register(is_dask, on_dask)
