"""What cannot fit is refused before it is made, with its size and what to use instead."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support import memory as capacity
from cvxscreen._support.memory import memory_limit, memory_of_machine, readable, require
from cvxscreen.core.problem import Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, TooLarge

N = 100_000
GIB = 2.0**30


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 1 GiB, whatever this one has."""
    monkeypatch.setattr(capacity, "memory_of_machine", lambda: 2**30)


def refused(size: float, *words: str) -> Any:
    """The refusal of something of about `size` bytes, before anything was made."""

    class Refused:
        def __enter__(self) -> None:
            tracemalloc.start()
            self.raised = pytest.raises(TooLarge)
            self.found = self.raised.__enter__()

        def __exit__(self, *error: Any) -> bool:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert self.raised.__exit__(*error)
            text = str(self.found.value)
            assert isinstance(self.found.value, MemoryError)
            assert "1 GiB" in text
            assert "memory_limit" in text
            said = int(text.split("(")[1].split(" bytes")[0].replace(",", ""))
            assert said == pytest.approx(size, rel=0.01)
            for word in words:
                assert word in text
            assert peak < 1e-2 * size
            return True

    return Refused()


def test_a_gram_matrix_of_a_hundred_thousand_rows(small_machine) -> None:
    X = np.zeros((N, 2), dtype=np.float32)
    X[::2] = 1.0
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    with refused(8.0 * N**2, "Gram matrix", "cache_bytes", "74.5 GiB"):
        cvxscreen.svm(X, y, kernel="rbf", cache_bytes=8 * N * N)
    cvxscreen.svm(X, y, kernel="rbf", cache_bytes=2**26)  # what it says to do instead


def test_all_triplets_of_many_points_listed_or_joined(small_machine) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    X = rng.standard_normal((500, 2))
    T = cvxscreen.triplets(X, y, k="all")
    assert len(T) > 2e7
    with refused(57.0 * len(T), f"{len(T):,} triplets", "smaller `k`"):
        _ = T.index
    many = rng.integers(0, 3, N)
    with refused(73.0 * N * (N - 1), "neighbours", "`k`"):
        cvxscreen.triplets(np.zeros((N, 2)), many, k="all")
    problem = cvxscreen.rtlm(X, T, 1.0)
    with refused(24.0 * len(T) * 4, "built-in solver", "diagonal=True"):
        problem.design.dense()


def test_metric_learning_for_other_solvers(small_machine) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 100)), rng.integers(0, 3, 300)
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=12), 1.0)
    assert cvxscreen.cvxpy_plugin  # CVXPY is loaded: its own memory does not count
    with refused(24.0 * problem.n * 100**2, "exports"):
        problem.to_cvxpy()


def test_dense_copies_and_forms(small_machine) -> None:
    wide = sp.csr_matrix((10_000, 2_000_000))
    with refused(8.0 * 10_000 * 2_000_000, "dense copy", "sparse"):
        Rows(wide).dense()
    with refused(8.0 * N**2, "quadratic form"):
        Quadratic(np.ones(N)).dense()


def test_the_limit_is_the_callers_to_set(small_machine) -> None:
    with memory_limit(2**20), pytest.raises(TooLarge, match=r"`memory_limit` allows 1 MiB"):
        require(2**21, "a thing", "do without")
    with memory_limit(float("inf")):
        require(2**50, "a thing", "do without")
        with memory_limit(10), pytest.raises(TooLarge):
            require(11, "a thing", "do without")
        require(2**50, "a thing", "do without")
    with pytest.raises(TooLarge):
        require(2**50, "a thing", "do without")
    with pytest.raises(InvalidInput, match="`size`"), memory_limit(0):
        pass
    with pytest.raises(InvalidInput, match="`size`"), memory_limit(float("nan")):
        pass


def test_a_limit_holds_in_its_thread_only(small_machine) -> None:
    seen: list[Exception] = []

    def other() -> None:
        try:
            require(2**30, "a thing", "do without")
        except TooLarge as error:
            seen.append(error)

    with memory_limit(10):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == []


def test_the_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have = memory_of_machine()
    assert have is None or have > 2**26
    place = tmp_path / "memory.max"
    place.write_text("123456789\n")
    monkeypatch.setattr(capacity, "CGROUPS", (str(tmp_path / "none"), str(place)))
    assert memory_of_machine() in (None, 123456789)
    place.write_text("max\n")
    assert memory_of_machine() != 123456789


def test_small_requests_are_not_questioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "memory_of_machine", lambda: 1)
    require(capacity.SMALL, "a thing", "do without")
    with pytest.raises(TooLarge):
        require(capacity.SMALL + 1, "a thing", "do without")


@pytest.mark.parametrize(
    ("size", "text"),
    [(12, "12 bytes"), (2048, "2 KiB"), (74.5 * GIB, "74.5 GiB"), (3e15, "2,728.5 TiB")],
)
def test_sizes_are_readable(size: float, text: str) -> None:
    assert readable(size) == text
