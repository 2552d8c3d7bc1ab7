"""Dask as the engine: what it takes, and that workers, threads and losses change nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from chunk_tasks import Failing, Sum

import cvxscreen
from cvxscreen import on_dask
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.out_of_core.streams import Blocks, LocalEngine, Mapped, opened

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

N = 1003
X = np.random.default_rng(0).standard_normal((N, 7)).astype(np.float32)
WEIGHT = np.linspace(0.0, 1.0, N, dtype=np.float32)
CUTS = [31 * k for k in range(33)]


def blocks() -> Blocks:
    """The rows in 33 chunks: neither a power of two nor a multiple of what is merged at once."""
    return Blocks(tuple(X[k : k + 31] for k in CUTS))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_threads_do_not_change_a_bit(workers: int) -> None:
    wanted = LocalEngine().run(Sum(), blocks(), (WEIGHT,))
    for given in (blocks(), da.from_array(X, chunks=(31, 7)), da.from_array(X, chunks=(31, 3))):
        source, engine = on_dask(given, workers=workers)
        assert source.bounds == blocks().bounds
        assert np.array_equal(engine.run(Sum(), source, (WEIGHT,)), wanted)
        assert engine.passes == 1


@pytest.mark.parametrize("chunks", [1, 2, 7, 8, 9, 15, 17, 63, 64, 65, 73, 521])
def test_merges_have_the_shape_of_the_tree(chunks: int) -> None:
    rows = np.array_split(X, chunks)
    source, engine = on_dask(Blocks(tuple(rows)), workers=1)
    wanted = LocalEngine().run(Sum(), source, (WEIGHT,))
    assert np.array_equal(engine.run(Sum(), source, (WEIGHT,)), wanted)


def test_a_dask_array_is_taken_as_it_is() -> None:
    found = opened(da.from_array(X, chunks=(100, 7)))
    assert found is not None
    source, engine = found
    assert source.shape == (N, 7)
    assert np.array_equal(source.load(3), X[300:400])
    with dask.config.set(scheduler="synchronous"):
        assert np.array_equal(engine.gather(source, np.array([3, 99, 100, N - 1])),
                              X[[3, 99, 100, N - 1]])


def test_unknown_and_empty_chunks_are_counted() -> None:
    array = da.from_array(X, chunks=(31, 7))
    chosen = array[array[:, 0] > 1.8]
    assert np.isnan(chosen.shape[0])
    source, engine = on_dask(chosen)
    wanted = X[X[:, 0] > 1.8]
    assert source.shape == wanted.shape
    assert len(source.bounds) < len(CUTS)  # some chunks have no rows left
    assert np.array_equal(engine.gather(source, np.arange(len(wanted))), wanted)
    assert np.isnan(chosen.shape[0])  # the caller's array is as it was


def test_sparse_chunks() -> None:
    thin = np.where(np.abs(X) > 1, X, 0)
    array = da.from_array(thin, chunks=(100, 7)).map_blocks(sp.csr_matrix)
    source, engine = on_dask(array, workers=2)
    assert source.sparse
    found = engine.gather(source, np.arange(0, N, 3))
    assert np.array_equal(found.toarray(), thin[::3])


def test_integers_are_converted() -> None:
    source, engine = on_dask(da.from_array(np.arange(20).reshape(10, 2), chunks=(3, 2)))
    found = engine.gather(source, np.arange(10))
    assert found.dtype == np.float64
    assert np.array_equal(found, np.arange(20).reshape(10, 2))


def test_a_data_frame_and_its_targets() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frames = pytest.importorskip("dask.dataframe")
    data, y = cvxscreen.datasets.two_gaussians(400, 3, seed=3)
    frame = pd.DataFrame(data, columns=["a", "b", "c"]).assign(y=y)
    lazy = frames.from_pandas(frame, npartitions=5)
    found = cvxscreen.solve(cvxscreen.svm(lazy[["a", "b", "c"]], lazy["y"]))
    assert found.status == "optimal"
    assert found.value == pytest.approx(cvxscreen.solve(cvxscreen.svm(data, y)).value, rel=2e-6)


def test_targets_in_a_dask_array() -> None:
    data, y = cvxscreen.datasets.two_gaussians(400, 3, seed=3)
    rows, targets = da.from_array(data, chunks=(90, 3)), da.from_array(y, chunks=77)
    found = cvxscreen.solve(cvxscreen.svm(rows, targets))
    again = cvxscreen.solve(cvxscreen.svm(rows, y))
    assert np.array_equal(found.x, again.x)
    with pytest.raises(InvalidInput, match=r"`y` has shape \(390,\) but `X` has 400 rows"):
        cvxscreen.svm(rows, targets[:390])


def refused() -> dict[str, tuple[Any, str]]:
    """Dask arrays that cannot be used, and what to say."""
    rows = da.from_array(X, chunks=(100, 7))
    flat = da.from_array(X.T, chunks=(7, N))
    unsaid = da.from_delayed(dask.delayed(sp.csr_matrix)(X), shape=X.shape, dtype=X.dtype)
    wrong = da.from_delayed(dask.delayed(np.ones)((3, 7)), shape=(4, 7), dtype=float)
    return {
        "one dimension": (lambda: on_dask(rows[:, 0]), r"an array \(n, d\)"),
        "words": (lambda: on_dask(rows.astype(str)), "Encode it first"),
        "no rows": (lambda: on_dask(rows[:0]), "no rows"),
        "unknown columns": (lambda: on_dask(flat[flat[:, 0] > 0].T), "unknown number of columns"),
        "no meta": (lambda: total(unsaid), "give `map_blocks`"),
        "wrong shape": (lambda: total(wrong), r"says \(4, 7\); call X.compute_chunk_sizes"),
        "in memory": (lambda: on_dask(X), r"dask.array.from_array\(X, chunks"),
        "no client": (lambda: on_dask(rows, client="tcp://localhost"), "distributed.Client"),
        "no threads": (lambda: on_dask(rows, workers=0), "whole number, 1 or more"),
        "both": (lambda: on_dask(rows, client=dask, workers=2), "Give one of them"),
    }


def total(array: Any) -> Any:
    """One pass."""
    source, engine = on_dask(array)
    return engine.run(Sum(), source, (np.ones(source.shape[0]),))


@pytest.mark.parametrize("case", list(refused()))
def test_refuses(case: str) -> None:
    call, words = refused()[case]
    with pytest.raises(InvalidInput, match=words):
        call()


def test_an_exception_of_a_task_is_raised_as_it_is() -> None:
    source, engine = on_dask(blocks(), workers=2)
    with pytest.raises(InvalidInput, match="rows 31 to 61"):
        engine.run(Failing(), source, (WEIGHT,))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_solve_is_the_same_whoever_makes_the_passes(tmp_path: Path, sparse: bool) -> None:
    data, y = cvxscreen.datasets.two_gaussians(2000, 4, seed=3)
    chunks = Blocks(tuple(
        sp.csr_matrix(part) if sparse else part for part in np.array_split(data, 19)
    ))
    array = da.from_array(data, chunks=(chunks.blocks[0].shape[0], 4))
    given = [on_dask(chunks, workers=2), on_dask(chunks, workers=4)]
    if not sparse:
        np.save(tmp_path / "X.npy", data)
        mapped = Mapped(np.load(tmp_path / "X.npy", mmap_mode="r"), len(data) * 4 * 8 // 19)
        given += [mapped, on_dask(mapped, workers=4), array.rechunk((mapped.bounds[1], 2))]
    found = [cvxscreen.solve(cvxscreen.svm(X, y, C=0.5, intercept=True)) for X in [chunks, *given]]
    plain = cvxscreen.solve(cvxscreen.svm(data, y, C=0.5, intercept=True))
    for groups in (found[:3], found[3:]):  # the same cut
        for one in groups:
            assert one.status == "optimal"
            assert one.value == pytest.approx(plain.value, rel=2e-6)
            assert np.array_equal(one.x, groups[0].x)
            assert one.certificate == groups[0].certificate


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    source, engine = on_dask(blocks(), workers=1, progress=True)
    engine.run(Sum(), source, (WEIGHT,))
    out, err = capsys.readouterr()
    assert not out
    assert "100% Completed" in err


def test_without_dask_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingDependency, match=r'pip install "cvxscreen\[dask\]"'):
        on_dask(blocks())
