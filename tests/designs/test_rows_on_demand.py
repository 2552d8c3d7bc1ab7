"""Rows of a kernel matrix that come when a loop wants them: what they hold, and where they go."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.designs.gram import Kernel, Polynomial, Rbf
from cvxscreen.designs.rows_on_demand import RowsOnDemand, want_row
from cvxscreen.solvers import smo


def test_rows_are_copied_once_and_are_those_of_the_matrix() -> None:
    rng = np.random.default_rng(0)
    larger = rng.standard_normal((7, 7))
    larger, index = larger + larger.T, np.array([5, 0, 3])
    rows = RowsOnDemand.copied(larger, index, np.full(12, np.nan))
    assert want_row(1, rows) == 0
    assert rows.slot.tolist() == [-1, 0, -1]
    assert np.array_equal(rows.K[0], larger[0, index])
    assert np.isnan(rows.K[1:]).all()
    rows.K[0] = 4.0
    assert want_row(1, rows) == 0
    assert (rows.K[0] == 4.0).all()
    assert want_row(2, rows) == 1
    assert np.array_equal(rows.K[1], larger[3, index])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_evaluated_rows_are_within_their_error_of_the_exact_ones(
    scale: float, offset: float
) -> None:
    rng = np.random.default_rng(1)
    X = scale * (rng.standard_normal((200, 7)) + offset)
    X[3] = X[11]
    function = Rbf(X, 0.3 / scale**2)
    kernel = Kernel(function)
    with kernel.on_demand() as rows:
        for k in (11, 0, 150):
            place = want_row(k, rows)
            away = (X[k].astype(np.longdouble) - X.astype(np.longdouble)) ** 2
            exact = np.exp(-np.longdouble(function.gamma) * away.sum(axis=1))
            error = function.errors[k] + function.errors
            assert (np.abs(rows.K[place] - exact) <= error).all()
    assert function.errors.max() < 1e-6 or offset  # the test says something


def test_what_came_is_in_the_cache_and_no_more() -> None:
    rng = np.random.default_rng(2)
    kernel, whole = (Kernel(Rbf(X, 0.2)) for X in [rng.standard_normal((60, 3))] * 2)
    assert whole.fill()
    kernel.fetch(np.array([7, 2]))
    with kernel.on_demand() as rows:
        assert want_row(2, rows) == 1
        assert want_row(40, rows) == 2
        assert want_row(0, rows) == 3
    assert kernel.known == 4
    assert kernel.evaluations == 4 * 60
    c = np.zeros(60)
    c[[40, 0, 2]] = 1.0, -2.0, 0.5
    assert np.allclose(kernel.product(c), whole.product(c), rtol=0.0, atol=1e-14)
    assert kernel.evaluations == 4 * 60  # from the cache
    kernel.fetch(np.array([33]))  # beside them, where there is room
    assert kernel.known == 5
    assert np.allclose(kernel.product(c), whole.product(c), rtol=0.0, atol=1e-14)


def test_a_loop_that_is_interrupted_leaves_the_cache_as_it_was() -> None:
    kernel = Kernel(Rbf(np.random.default_rng(3).standard_normal((50, 3)), 0.2))
    kernel.fetch(np.array([4]))

    def cut_off() -> None:
        with kernel.on_demand() as rows:
            want_row(9, rows)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_off()
    assert kernel.known == 1
    kernel.fetch(np.array([20]))
    some = np.array([4, 9, 20])
    found, exact = kernel.block(some, np.arange(50)), kernel.function.block(some)
    assert np.allclose(found, exact, rtol=0.0, atol=1e-14)


def test_there_is_no_room_beyond_the_cache_nor_for_other_kernels() -> None:
    X = np.random.default_rng(4).standard_normal((40, 3))
    with Kernel(Rbf(X, 0.2), cache_bytes=8 * 40 * 16).on_demand() as rows:
        assert [want_row(k, rows) for k in range(18)] == [*range(16), -1, -1]
        assert rows.full
    for function in (Polynomial(X), Rbf(np.ones((40, 70)), 0.2)):
        kernel = Kernel(function)
        with kernel.on_demand() as rows:
            assert want_row(0, rows) == -1
            assert rows.full
            assert not rows.K.any()  # read at once, with weight 0
        assert kernel.known == 0


def test_rows_that_have_taken_the_places_of_others_leave_no_room() -> None:
    """Which came last is not known then; none of them is lost."""
    kernel = Kernel(Rbf(np.random.default_rng(5).standard_normal((40, 3)), 0.2))
    kernel.fetch(np.arange(3))
    kernel._owner[1], kernel._slot[1] = -1, -1
    with kernel.on_demand() as rows:
        assert want_row(5, rows) == -1
    some = np.array([0, 2])
    assert np.allclose(kernel.block(some, np.arange(40)), kernel.function.block(some), atol=1e-14)
    assert kernel.evaluations == 3 * 40


def overlapping(n: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = rng.standard_normal((n, 3))
    X[:, 0] += apart * y
    return X, y


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("apart", "C", "cache"),
    [(2.5, 1.0, 2**30), (1.0, 1.0, 2**30), (1.0, 100.0, 2**30), (1.0, 1.0, 8 * 1300 * 60)],
)
def test_problems_that_begin_so_have_the_optimum_of_the_loop(
    loss: str, intercept: bool, apart: float, C: float, cache: int
) -> None:
    """Easy ones are solved so, hard ones and those without room are gone on with from there."""
    X, y = overlapping(1300, apart)
    problem = cvxscreen.svm(
        X, y, C=C, loss=loss, intercept=intercept, kernel="rbf", kernel_params={"gamma": 0.5},
        cache_bytes=cache,
    )
    found = cvxscreen.solve(problem, tol=1e-6)
    assert found.status == "optimal"
    assert cvxscreen.certify(problem, found.x, found.theta, tol=1e-6).ok
    other = cvxscreen.solve(problem, tol=1e-6, mode="safe")
    assert found.certificate.dual <= other.certificate.primal
    assert other.certificate.dual <= found.certificate.primal


def test_an_easy_problem_has_little_more_than_the_rows_of_its_support_vectors() -> None:
    X, y = overlapping(3000, 3.0)
    problem = cvxscreen.svm(
        X, y, C=1.0, intercept=True, kernel="rbf", kernel_params={"gamma": 0.1}
    )
    found = cvxscreen.solve(problem, tol=1e-4)
    support = int(np.count_nonzero(found.x[:-1]))
    kernel = problem.design.kernel
    assert [one.kept for one in found.rounds] == [3000]
    assert support < 100
    assert kernel.known <= 1.5 * support
    # beside those of the centre
    assert kernel.evaluations <= (kernel.known + 64 + 1) * 3000


def test_where_all_rows_are_there_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = overlapping(2100, 2.0)
    problem = cvxscreen.svm(X, y, intercept=True, kernel="rbf", kernel_params={"gamma": 0.5})
    expected = cvxscreen.solve(problem, tol=1e-6)
    assert problem.design.kernel.fill()
    before = problem.design.kernel.evaluations
    found = cvxscreen.solve(problem, tol=1e-6)
    assert problem.design.kernel.evaluations == before
    assert np.isclose(found.value, expected.value, rtol=1e-6)
    monkeypatch.setattr(smo, "ON_DEMAND", 100)
    again = cvxscreen.solve(problem, tol=1e-6)
    assert np.isclose(again.value, expected.value, rtol=1e-6)
