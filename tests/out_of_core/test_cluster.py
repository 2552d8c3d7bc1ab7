"""A cluster of worker processes on this machine: the same bits, whoever dies."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunk_tasks import Failing, Faulty, Sum

import cvxscreen
from cvxscreen import on_dask
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import LocalEngine, Mapped

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N = 1003
X = np.random.default_rng(0).standard_normal((N, 7)).astype(np.float32)
WEIGHT = np.linspace(0.0, 1.0, N, dtype=np.float32)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two worker processes that are started anew when they die; not the active client."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
            silence_logs=50, memory_limit=None,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


@pytest.fixture
def mapped(tmp_path: Path) -> Mapped:
    """The rows as a memory map in chunks of 31."""
    np.save(tmp_path / "X.npy", X)
    return Mapped(np.load(tmp_path / "X.npy", mmap_mode="r"), chunk_bytes=31 * 7 * 4)


def test_processes_do_not_change_a_bit(client: Any, mapped: Mapped) -> None:
    wanted = LocalEngine().run(Sum(), mapped, (WEIGHT,))
    array = da.from_array(X, chunks=(31, 7))
    for given in (mapped, array, client.persist(array)):
        source, engine = on_dask(given, client=client)
        assert source.bounds == mapped.bounds
        assert np.array_equal(engine.run(Sum(), source, (WEIGHT,)), wanted)
        some = np.arange(5, N, 17)
        assert np.array_equal(engine.gather(source, some), X[some])


def test_an_exception_of_a_task_arrives_as_it_is(client: Any, mapped: Mapped) -> None:
    source, engine = on_dask(mapped, client=client)
    with pytest.raises(InvalidInput, match="rows 31 to 61"):
        engine.run(Failing(), source, (WEIGHT,))


def test_the_active_client_does_the_passes(client: Any, mapped: Mapped) -> None:
    source, engine = on_dask(mapped)
    assert engine._cluster() is None
    with client.as_current():
        assert engine._cluster() is client
        assert on_dask(mapped, workers=2)[1]._cluster() is None
        found = engine.run(Sum(), source, (WEIGHT,))
    assert np.array_equal(found, LocalEngine().run(Sum(), mapped, (WEIGHT,)))


def test_a_column_that_never_changes_is_sent_once(client: Any, mapped: Mapped) -> None:
    source, engine = on_dask(mapped, client=client)
    column = WEIGHT.copy()
    engine.keep(column)
    wanted = engine.run(Sum(), source, (column,))
    again = column.copy()
    column[:] = 0.0  # not seen by the workers, who have it already
    assert np.array_equal(engine.run(Sum(), source, (column,)), wanted)
    [places] = engine._kept[id(column)].values()
    client.cancel(distributed.futures_of(list(places.values())))  # as a restart of the cluster does
    column[:] = again  # asked for anew
    assert np.array_equal(engine.run(Sum(), source, (column,)), wanted)
    key = id(column)
    assert key in engine._kept
    del column
    gc.collect()
    assert key not in engine._kept


def test_progress_of_a_cluster_goes_to_standard_error(
    client: Any, mapped: Mapped, capsys: pytest.CaptureFixture[str]
) -> None:
    source, engine = on_dask(mapped, client=client, progress=True)
    engine.run(Sum(), source, (WEIGHT,))
    out, err = capsys.readouterr()
    assert not out
    assert "100% Completed" in err
    with pytest.raises(InvalidInput, match="rows 31 to 61"):
        engine.run(Failing(), source, (WEIGHT,))


def test_a_task_that_raises_is_repeated(client: Any, mapped: Mapped, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source, engine = on_dask(Faulty(mapped, str(mark), 20, "stutter", os.getpid()), client=client)
    found = engine.run(Sum(), source, (WEIGHT,))
    assert mark.exists()  # it did raise
    assert np.array_equal(found, LocalEngine().run(Sum(), mapped, (WEIGHT,)))
    engine.retries = 0
    mark.unlink()
    with pytest.raises(OSError, match="stutters"):
        engine.run(Sum(), source, (WEIGHT,))


@pytest.mark.long  # processes die and are started anew, for seconds
def test_a_solve_survives_a_worker_that_is_killed_in_it(client: Any, tmp_path: Path) -> None:
    data, y = cvxscreen.datasets.two_gaussians(2000, 4, seed=3)
    np.save(tmp_path / "data.npy", data)
    mapped = Mapped(np.load(tmp_path / "data.npy", mmap_mode="r"), chunk_bytes=200 * 4 * 8)
    wanted = cvxscreen.solve(cvxscreen.svm(mapped, y, C=0.5))
    mark = tmp_path / "mark"
    mark.touch()
    dying = Faulty(mapped, str(mark), 6, "kill", os.getpid())
    problem = cvxscreen.svm(on_dask(dying, client=client), y, C=0.5)
    mark.unlink()
    found = cvxscreen.solve(problem)
    assert mark.read_text() != str(os.getpid())
    assert found.status == "optimal"
    assert np.array_equal(found.x, wanted.x)
    assert found.certificate == wanted.certificate
