"""Pivots on the face of a dual over a box: exact optima, dependent rows, and what they judge by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold

import cvxscreen
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.estimators import ScreenedSVC, ScreenedSVCCV
from cvxscreen.solvers import dual_coordinate_descent
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.dual_coordinate_descent import DualCoordinateDescent, _Descent
from cvxscreen.solvers.dual_pivots import (
    Basis,
    PivotPlan,
    drop_column,
    pivot,
    rank_bound,
    solve_factor,
    solve_transposed,
)

CLASSES = ("hinge", "smoothed_hinge", "squared_hinge")
REGRESSIONS = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def of(loss: str, intercept: bool = False, storage: str = "sparse", C: float = 0.3) -> Problem:
    """A problem of 200 terms with 40 features, a third of whose entries are stored."""
    rng = np.random.default_rng(7)
    A = rng.standard_normal((200, 40)) * (rng.random((200, 40)) < 0.3)
    y = A @ rng.standard_normal(40) + 0.5 * rng.standard_normal(200)
    X: Any = sp.csr_matrix(A) if storage == "sparse" else A
    if loss in CLASSES:
        return cvxscreen.svm(X, np.where(y > 0, 1.0, -1.0), C=C, loss=loss, intercept=intercept)
    return cvxscreen.regression(X, y, C=C, loss=loss, intercept=intercept)


def begun(problem: Problem, tol: float = 1e-8) -> _Descent:
    """A descent that has done nothing yet."""
    assert isinstance(problem.design, Rows)
    return _Descent(problem, problem.design, None, 0.0, DualCoordinateDescent(tol=tol))


@pytest.mark.table
@pytest.mark.parametrize("storage", ["sparse", "dense"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", CLASSES + REGRESSIONS)
def test_they_reach_the_optimum_from_a_cold_start(
    loss: str, intercept: bool, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every loss, without a single epoch: certified, and the value of Newton's method."""
    monkeypatch.setattr(dual_coordinate_descent, "PIVOTS_LEAST", 5000)
    problem = of(loss, intercept, storage)
    run = begun(problem)
    run.finish_face()
    assert run.pivots > 0
    assert run.epochs == 0
    found = run.result()
    assert found.status == "optimal"
    proof = certify(problem, found.x, found.theta, tol=1e-8)
    other = cvxscreen.solve(problem, solver="newton", tol=1e-10)
    assert proof.ok
    assert abs(problem.primal(found.x) - other.value) <= proof.gap + other.certificate.gap


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("labels", ["same", "other"])
def test_repeated_rows_do_not_enter(
    labels: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are there three times, and once more with the other label, as in tables of counts.

    Then the matrix of all free terms is singular, and a term moves with the basis without v.
    """
    monkeypatch.setattr(dual_coordinate_descent, "PIVOTS_LEAST", 5000)
    rng = np.random.default_rng(1)
    A = (rng.random((60, 12)) < 0.4).astype(float)
    y = np.where(A @ rng.standard_normal(12) > 0, 1.0, -1.0)
    X = sp.csr_matrix(np.vstack([A, A, A, A[:20]]))
    y = np.concatenate([y, y, y, y[:20] if labels == "same" else -y[:20]])
    for C in (0.01, 1.0, 100.0):
        problem = cvxscreen.svm(X, y, C=C, intercept=intercept)
        run = begun(problem)
        run.finish_face()
        found = run.result()
        assert found.status == "optimal"
        other = cvxscreen.solve(problem, solver="newton", tol=1e-10)
        proof = certify(problem, found.x, found.theta, tol=1e-8)
        assert proof.ok
        assert abs(problem.primal(found.x) - other.value) <= proof.gap + other.certificate.gap


def test_they_end_what_epochs_have_begun() -> None:
    """Long before epochs alone are done, and as exactly as the factor is."""
    problem = of("hinge", C=10.0)
    alone = DualCoordinateDescent(tol=1e-9, shrinking=False)(problem)
    found = DualCoordinateDescent(tol=1e-9)(problem)
    assert found.status == "optimal"
    assert found.info["pivots"] > 0
    assert found.info["epochs"] < 0.5 * alone.info["epochs"]
    assert found.info["relative_gap"] <= 1e-12


def test_where_epochs_are_soon_done_there_are_none() -> None:
    """Though these have cost as much already: what counts is how many are to come.

    But for where another value of C begins: an exact solution is the better start.
    """
    rng = np.random.default_rng(3)
    X = sp.random_array((8000, 100), density=0.04, rng=rng, format="csr")
    X.data[:] = 1.0
    t = X @ rng.standard_normal(100)
    y = np.where(t + rng.standard_normal(8000) > np.median(t), 1.0, -1.0)
    problem = cvxscreen.svm(X, y, C=0.03)
    found = DualCoordinateDescent(tol=1e-6)(problem)
    assert found.status == "optimal"
    assert found.info["pivots"] == 0
    assert DualCoordinateDescent(tol=1e-6, exact=True)(problem).info["pivots"] > 0
    assert DualCoordinateDescent(tol=1e-12)(problem).info["pivots"] > 0


def test_they_wait_for_their_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is bought epochs go on; on wide sparse rows that is what it is rented for."""
    rng = np.random.default_rng(2)
    X = sp.random_array((300, 120), density=0.1, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(120) + 0.1 * rng.standard_normal(300) > 0, 1.0, -1.0)
    problem, clock = cvxscreen.svm(X, y, C=10.0), dual_coordinate_descent.PIVOT_CLOCK
    assert dual_coordinate_descent.pivots_end(problem)
    monkeypatch.setattr(type(clock), "bought", property(lambda self: self is not clock))
    assert not dual_coordinate_descent.pivots_end(problem)
    before = clock.spent
    found = DualCoordinateDescent(tol=1e-6)(problem)
    assert found.info["pivots"] == 0
    assert found.status == "optimal"
    assert clock.spent > before


@pytest.mark.parametrize("stuck", [False, True])
def test_where_they_fail_epochs_go_on(stuck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times at most; the answer is that of epochs then."""
    calls = []

    def nothing(*given: Any) -> tuple[int, int, int, float, float]:
        calls.append(given[4].size)
        return (10**9 if stuck else 0), 0, 1, 1.0, given[7]

    monkeypatch.setattr(dual_coordinate_descent, "pivot", nothing)
    problem = of("hinge", intercept=True, C=3.0)
    found = DualCoordinateDescent(tol=1e-6)(problem)
    assert found.status == "optimal"
    assert found.info["pivots"] == (len(calls) * 10**9 if stuck else 0)
    assert len(calls) >= dual_coordinate_descent.FACES
    assert certify(problem, found.x, found.theta, tol=2e-6).ok


def test_the_factor_loses_any_column() -> None:
    """And both solves are those of the triangle."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((9, 12))
    matrix, right = rows @ rows.T, rng.standard_normal(9)
    upper = np.linalg.cholesky(matrix).T
    for k in range(9):
        factor, less = np.full((11, 11), np.nan), np.delete(np.delete(matrix, k, 0), k, 1)
        factor[:9, :9] = np.triu(upper)
        drop_column(factor, np.uint64(9), np.uint64(k))
        found = np.triu(factor[:8, :8])
        np.testing.assert_allclose(found.T @ found, less, atol=1e-12)
        values = right.copy()
        solve_transposed(factor, np.uint64(8), values)
        solve_factor(factor, np.uint64(8), values)
        np.testing.assert_allclose(values[:8], np.linalg.solve(less, right[:8]), rtol=1e-9)
        assert values[8] == right[8]


def test_pivots_are_counted_and_end() -> None:
    """At the number asked for, and where the basis is full."""
    problem = of("hinge", C=10.0)
    run = begun(problem)
    active, theta, v = np.arange(problem.n), run.iterate.theta, run.iterate.v
    basis = Basis.of(problem, problem.n)
    assert len(basis.rows) == rank_bound(problem) == 41
    done, held, *_ = pivot(
        run.rows, run.terms, theta, v, active, basis, 0, 0.0, PivotPlan(0.0, 7, -1)
    )
    assert done == 7
    assert 0 < held <= 7
    assert (basis.place[basis.rows[:held]] == np.arange(held)).all()
    small = basis._replace(factor=np.empty((3, 3)))
    small.place[:] = -1
    _, held, _, gap, _ = pivot(
        run.rows, run.terms, theta, v, active, small, 0, 0.0, PivotPlan(0.0, 10**6, -1)
    )
    assert held == 3
    assert gap > 0.0
    assert (theta >= problem.losses.lo).all()
    assert (theta <= problem.losses.hi).all()
    np.testing.assert_allclose(v, -problem.design.adjoint(theta), atol=1e-9)


def test_a_dual_that_rises_without_end_ends_them() -> None:
    """Hard rows that contradict each other: nothing steps endlessly far."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    problem = cvxscreen.svm(X, np.array([1.0, 1.0, -1.0]))
    hard = replace(problem.losses, lo=np.full(3, -np.inf))
    assert hard.hard.all()
    run = begun(replace(problem, losses=hard))
    run.finish_face()
    assert run.faces == 1
    assert np.abs(run.iterate.theta).max() < 1e100


@pytest.mark.parametrize("intercept", [False, True])
def test_folds_of_hinges_over_sparse_rows_are_followed_by_epochs_and_pivots(
    intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certified along C, and the scores are those of single fits."""
    done, method = [], _Descent.finish_face

    def watched(self: _Descent) -> None:
        method(self)
        done.append(self.pivots)

    monkeypatch.setattr(_Descent, "finish_face", watched)
    rng = np.random.default_rng(4)
    X = sp.random_array((700, 100), density=0.2, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(100) + 0.3 * rng.standard_normal(700) > 0, 1.0, -1.0)
    Cs, folds = np.geomspace(0.01, 10.0, 6), StratifiedKFold(3)
    found = ScreenedSVCCV(Cs, cv=folds, fit_intercept=intercept).fit(X, y)
    assert (found.path_gaps_ <= 1e-6).all()
    assert sum(done) > 0
    for row, (train, test) in zip(found.scores_, folds.split(X, y), strict=True):
        for score, C in zip(row, Cs, strict=True):
            single = ScreenedSVC(C, fit_intercept=intercept, tol=1e-8).fit(X[train], y[train])
            assert score == pytest.approx(single.score(X[test], y[test]), abs=1.01 / len(test))


def test_what_follows_by_factors_is_worth_further_passes_where_pivots_end_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Binary rows that would be given up else; none for parabolas, and where a basis is dear."""
    monkeypatch.setattr(dual_coordinate_descent.PIVOT_CLOCK, "spent", np.inf)
    rng = np.random.default_rng(21)

    def begun_on(n: int, d: int, density: float, loss: str = "hinge") -> DualCoordinateDescent:
        X = sp.random_array((n, d), density=density, rng=rng, format="csr").sign()
        t = X @ rng.standard_normal(d)
        t += 0.5 * t.std() * rng.standard_normal(n) - np.median(t)
        given.append(cvxscreen.svm(X, np.where(t > 0.0, 1.0, -1.0), loss=loss))
        return DualCoordinateDescent.beginning(given[-1], DualActiveSet(), 1e-6)

    given: list[Problem] = []
    descent = begun_on(3000, 150, 0.1)
    assert descent.further > 0.0
    assert descent(given[-1]).status == "optimal"
    assert replace(descent, further=0.0)(given[-1]).status == "inaccurate"
    assert begun_on(3000, 150, 0.1, "squared_hinge").further == 0.0
    assert begun_on(3000, 400, 0.005).further == 0.0
    assert begun_on(300, 600, 0.1).further == 0.0
    monkeypatch.setattr(dual_coordinate_descent, "pivots_end", lambda _: False)
    assert begun_on(3000, 150, 0.1).further == 0.0
