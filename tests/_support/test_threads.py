"""Passes that threads share: the same bits, nothing left behind, and nobody started in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed
from threadpoolctl import threadpool_info, threadpool_limits

import cvxscreen
from cvxscreen._support import limits as threads
from cvxscreen._support.limits import cores, each
from cvxscreen.certificates import many
from cvxscreen.designs import rows
from cvxscreen.errors import InvalidInput

N, D = 12_000, 6
X, Y = cvxscreen.datasets.two_gaussians(N, D, seed=3)
THIN = sp.random(N, 40, 0.1, "csr", random_state=2)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over some ten thousand numbers has many parts, as one over millions has."""
    monkeypatch.setattr(rows, "SHARE", 2**12)
    monkeypatch.setattr(many, "BLOCKS", 1)
    monkeypatch.setattr(many, "BLOCK", 2**12)


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many helpers have been asked for, once a pass."""
    asked: list[int] = []
    ask = threads.Team._helpers

    def counted(team: threads.Team) -> Any:
        asked.append(team.size - 1)
        return ask(team)

    monkeypatch.setattr(threads.Team, "_helpers", counted)
    yield asked
    assert not [t for t in threading.enumerate() if t.name.startswith("cvxscreen")]


PROBLEMS: dict[str, Callable[[], cvxscreen.Problem]] = {
    "dense": lambda: cvxscreen.svm(X, Y, C=0.5, intercept=True),
    "float32": lambda: cvxscreen.regression(X.astype(np.float32), X[:, 0] + Y, C=0.5),
    "sparse": lambda: cvxscreen.svm(THIN, Y, C=0.5, intercept=True),
    "l1": lambda: cvxscreen.sparse_svm(X, Y, 0.01),
    "no penalty": lambda: cvxscreen.regression(X, X[:, 0] + Y, C=np.inf, loss="quantile"),
}


def numbers(found: Any) -> tuple[bytes, ...]:
    points = getattr(found, "points", [found])
    return tuple(p.x.tobytes() + p.theta.tobytes() for p in points)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("mode", ["certified", "safe"])
def test_the_number_of_threads_changes_no_bit_of_a_solve(
    name: str, mode: str, small_parts: None, helpers: list[int]
) -> None:
    one, two, three = (
        numbers(cvxscreen.solve(PROBLEMS[name](), mode=mode, threads=k)) for k in (1, 2, 3)
    )
    assert one == two == three
    assert set(helpers) == {1, 2}


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_nor_of_a_path(name: str, small_parts: None, helpers: list[int]) -> None:
    grid = np.geomspace(0.01, 0.5, 6)
    one, two, three = (
        numbers(cvxscreen.path(PROBLEMS[name](), values=grid, threads=k)) for k in (1, 2, 3)
    )
    assert one == two == three
    assert set(helpers) == {1, 2}


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
def test_parts_add_up_to_the_products_of_the_whole(kind: str, small_parts: None) -> None:
    """Within the rounding that is charged for them."""
    matrix = {"dense": X, "float32": X.astype(np.float32), "sparse": THIN}[kind]
    own = rows.Rows(matrix, Y, np.ones((N, 1)))
    whole = own.dense().astype(np.longdouble)
    rng = np.random.default_rng(0)
    x, theta = rng.standard_normal(own.shape[1]), rng.standard_normal(N)
    with cores(3):
        forward, adjoint = own.forward(x), own.adjoint(theta)
        squares, gram = own.weighted_squares(x**2), own.weighted_gram(None, theta**2)
    assert (np.abs(forward - whole @ x) <= own.forward_factor * (np.abs(whole) @ np.abs(x))).all()
    charged = own.adjoint_factor * (np.abs(whole).T @ np.abs(theta))
    assert (np.abs(adjoint - whole.T @ theta) <= charged).all()
    np.testing.assert_allclose(squares, (whole**2 @ x**2).astype(float), rtol=1e-13)
    np.testing.assert_allclose(
        gram, (whole.T @ (whole * (theta**2)[:, None])).astype(float), rtol=1e-11, atol=1e-9
    )


def test_small_data_start_no_thread(helpers: list[int]) -> None:
    cvxscreen.solve(cvxscreen.svm(X[:500], Y[:500]), threads=2)
    cvxscreen.path(cvxscreen.svm(X[:500], Y[:500]), values=[0.1, 1.0], threads=-1)
    assert not helpers


@pytest.mark.parametrize("threads", [0, -3, 1.5, "two", True, np.array([1, 2])])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(InvalidInput, match="`threads`"):
        cvxscreen.solve(cvxscreen.svm(X[:50], Y[:50]), threads=threads)


def test_every_thread_takes_parts_and_results_keep_their_order() -> None:
    """The first two parts wait for each other: one thread alone would not get on."""
    gate, seen = threading.Barrier(2), set()

    def work(k: int) -> int:
        if k < 2:
            gate.wait(10.0)
        seen.add(threading.current_thread().name)
        return 10 * k

    with cores(2):
        assert each(work, range(50)) == [10 * k for k in range(50)]
    assert len(seen) == 2


def test_a_pass_within_a_part_starts_nobody(helpers: list[int]) -> None:
    with cores(2):
        assert each(lambda k: each(lambda j: j + k, range(3)), range(2)) == [[0, 1, 2], [1, 2, 3]]
    assert helpers == [1]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_of_joblib_have_one_thread(backend: str) -> None:
    def size() -> int:  # here, so that it travels as it is: workers need not find the tests
        with cores(2):
            team = threads._TEAM.get()
            return 0 if team is None else team.size

    found = Parallel(n_jobs=2, backend=backend)(delayed(size)() for _ in range(2))
    assert found == [1, 1]
    assert size() == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_nobody_begins_another_part(error: type[BaseException]) -> None:
    begun: list[int] = []

    def work(k: int) -> None:
        begun.append(k)
        if threading.current_thread() is threading.main_thread():
            raise error("here")
        time.sleep(0.001)

    with pytest.raises(error, match="here"), cores(2):
        each(work, range(10_000))
    assert len(begun) < 10_000


def test_the_error_of_a_helper_comes_back() -> None:
    gate = threading.Barrier(2)

    def work(k: int) -> None:
        gate.wait(10.0)
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("there")

    with pytest.raises(ValueError, match="there"), cores(2):
        each(work, range(2))


def test_ctrl_c_in_a_pass_keeps_the_finished_points(
    small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, passes, share, last = np.geomspace(0.01, 0.5, 6), 0, threads.Team.each, np.inf

    def counted(team: threads.Team, work: Any, parts: Any) -> Any:
        nonlocal passes
        passes += 1
        return share(team, interrupted if passes >= last else work, parts)

    def interrupted(part: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.001)

    def walked() -> cvxscreen.Path:
        problem = PROBLEMS["dense"]()
        return cvxscreen.path(problem, values=grid, solver="newton", threads=2)

    monkeypatch.setattr(threads.Team, "each", counted)
    whole = walked()
    last, passes = 0.9 * passes, 0
    found = walked()
    assert not found.finished
    assert 0 < len(found.points) < 6
    assert numbers(found) == numbers(whole)[:len(found.points)]


def test_blas_has_one_thread_in_shared_passes_and_its_own_again_after_them() -> None:
    def allowed() -> set[int]:
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = allowed()
        with cores(2):
            assert all(found == {1} for found in each(lambda k: allowed(), range(4)))
            assert allowed() == before
        with cores(1):
            assert each(lambda k: allowed(), range(2)) == [{1}, {1}]
        assert each(lambda k: allowed(), range(2)) == [before, before]


def test_what_numpy_ignores_helpers_ignore() -> None:
    gate = threading.Barrier(2)

    def work(k: int) -> float:
        gate.wait(10.0)
        return float(np.exp(np.array([1000.0]))[0])

    with np.errstate(all="raise", over="ignore"), cores(2):
        assert each(work, range(2)) == [np.inf, np.inf]
