"""Dask visits the chunks: threads of this process, or the workers of a cluster.

A pass is one Dask graph: a task for each chunk, run where the chunk is computed, and merges of a
few neighbours at a time. Dask schedules it, repeats what was lost with a worker, and shows its
progress. Merges keep the shape of `Tree`, so the result does not depend on workers, threads or
luck. (Where workers multiply with another number of BLAS threads than this process, a cluster may
differ from it in the last bit; Dask's own workers use one.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.sources.dask_rows import DaskRows, is_dask, settled
from cvxscreen.sources.known import Opened, opened, register
from cvxscreen.streams import Column, Part, Source, Task, Tree, gathered

TOGETHER = 8
"""Results merged by one task; a power of two, so that groups are branches of the whole tree."""


@dataclass
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
        if self.workers is not None and not (isinstance(self.workers, int) and self.workers > 0):
            raise InvalidInput(f"`workers` is {self.workers!r}; a positive integer is needed.")

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
        future = client.compute(what, retries=self.retries)
        if self.progress:
            _follow(future)
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

    def _graph(self, task: Task, source: Source, columns: Sequence[Column]) -> Any:
        """The whole pass as one delayed value; `task` and `source` travel once to each worker."""
        delayed = _delayed()
        shared = delayed(task, traverse=False, pure=False)
        spans = list(pairwise(source.bounds))
        inner, places = _unwrapped(source, len(spans))
        lazy = isinstance(inner, DaskRows)
        visit = delayed(visit_block if lazy else visit_source, pure=False)
        merge = delayed(merge_some, pure=False)
        where = None if lazy else delayed(inner, traverse=False, pure=False)
        results = []
        for k, (start, stop) in zip(places, spans, strict=True):
            pieces = _Held((*(column[start:stop] for column in columns),))
            if isinstance(inner, DaskRows):
                shape = (stop - start, inner.shape[1])
                leaf = visit(shared, inner.blocks[k], shape, inner.sparse, start, pieces)
            else:
                leaf = visit(shared, where, k, start, pieces)
            results.append(leaf)
        while len(results) > 1:
            groups = range(0, len(results), TOGETHER)
            results = [merge(shared, *results[k : k + TOGETHER]) for k in groups]
        return results[0]


class _Held:
    """What Dask is to hand over as it is, without looking for collections inside."""

    def __init__(self, value: Any) -> None:
        self.value = value


def visit_block(
    task: Task, block: Any, shape: tuple[int, int], sparse: bool, start: int, pieces: _Held
) -> Any:
    """What `task` makes of a computed chunk of a Dask array."""
    return task(settled(block, shape, sparse), start, *pieces.value)


def visit_source(task: Task, source: Source, k: int, start: int, pieces: _Held) -> Any:
    """What `task` makes of chunk `k` of any other source."""
    return task(source.load(k), start, *pieces.value)


def merge_some(task: Task, *results: Any) -> Any:
    """Neighbouring results as one, in the order of the whole tree."""
    tree = Tree(len(results), task.merge)
    for k, result in enumerate(results):
        # A merge may write into what it is given; Dask may give the same result out once more.
        tree.put(k, deepcopy(result))
    return tree.result()


def _unwrapped(source: Source, count: int) -> tuple[Source, Sequence[int]]:
    """The source that loads the chunks, and which of its chunks they are."""
    places: Sequence[int] = range(count)
    while isinstance(source, Part):
        places = [source.chunks[k] for k in places]
        source = source.source
    return source, places


def _follow(future: Any) -> None:
    """Dask's own bar until `future` is finished."""
    from distributed import progress

    with redirect_stdout(sys.stderr):
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
        Chunks of a Dask array that fit into the memory of the workers are read only once after
        ``X = X.persist()``. Files must be in the same place for every worker.
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
    """
    engine = DaskEngine(client, workers, retries, progress)
    if is_dask(X):
        return DaskRows(X, engine.compute), engine
    found = opened(X)
    if found is None:
        raise InvalidInput(
            f"`X` is a {type(X).__name__} in memory; give a Dask array (dask.array.from_array(X, "
            "chunks=...)), a numpy.memmap or what `open_data` returns."
        )
    return found[0], engine


def _as_dask_would(X: Any) -> Opened:
    return on_dask(X)


register(is_dask, _as_dask_would)
