"""Columns that terms of their own hold at 0 are let in as slopes ask for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import columns, interior_point, loop
from cvxscreen.solvers.columns import UnitTerms


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are left out of problems where that would not pay."""
    monkeypatch.setattr(loop, "MANY_COLUMNS", 20)


def whole(problem: Problem, monkeypatch: pytest.MonkeyPatch, **options: Any) -> cs.Solution:
    """The solution with all columns."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "MANY_COLUMNS", 10**6)
        return cs.solve(problem, **options)


def data(n: int = 30, d: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :4] @ np.array([2.0, -1.0, 1.0, 3.0]) + rng.standard_normal(n)


def bounded(
    upper: float = 0.5, total: float | None = None, sign: float = 1.0
) -> Problem:
    """Least squares with ``2 sum |x|``, ``0 <= x <= upper`` and maybe ``sum x = total``, as terms.
    """
    X, y = data(28)
    n, d = X.shape
    one, no = np.ones(d), np.zeros(d)
    rows = [X, np.eye(d), sign * np.eye(d), -2.0 * sign * np.eye(d)]
    b = [y, no, no, -2.0 * upper * one]
    q = [np.ones(n), no, no, no]
    lo = [np.full(n, -np.inf), -2.0 * one, np.full(d, -np.inf), np.full(d, -np.inf)]
    hi = [np.full(n, np.inf), 2.0 * one, no, no]
    if total is not None:
        for part, more in zip((rows, b, q, lo, hi), (
            np.ones((1, d)), [total], [0.0], [-np.inf], [np.inf]
        ), strict=True):
            part.append(np.asarray(more))
    q, lo, hi, b = (np.concatenate(part) for part in (q, lo, hi, b))
    losses = cs.Losses(b, np.zeros(len(b)), q, lo, hi)
    return Problem(Rows(np.vstack(rows)), losses, Quadratic(no), no)


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon", "huber", "squared"])
@pytest.mark.parametrize("store", ["dense", "csr", "float32"])
def test_the_optimum_is_that_of_all_columns(
    loss: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data()
    X = X.astype(np.float32) if store == "float32" else sp.csr_matrix(X) if store == "csr" else X
    problem = cs.regression(X, y, loss=loss, penalty="l1", C=0.1, intercept=True)
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"
    assert cs.certify(problem, found.x, found.theta, tol=1e-9).ok
    assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-9).value, rel=1e-8)
    assert 0 < found.rounds[-1].features < problem.d
    assert found.rounds[-1].kept < problem.n


@pytest.mark.parametrize("loss", ["absolute", "huber", "squared"])
def test_where_most_columns_would_come_in_all_of_them_do(loss: str) -> None:
    """In the second round; and which were needed is not asked of them again."""
    problem = cs.regression(*data(), loss=loss, penalty="l1", C=20.0, intercept=True)
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"
    assert [r.features for r in found.rounds][1:] == [problem.d]


def test_of_more_columns_than_the_interior_point_method_takes_most_are_left_out(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is given has few; where all are let in Clarabel takes them."""
    monkeypatch.setattr(interior_point, "MOST_COORDINATES", 45)
    X, y = data()
    few = cs.regression(X, y, loss="absolute", penalty="l1", C=0.1, intercept=True)
    found = cs.solve(few, tol=1e-9)
    assert (found.status, found.solver) == ("optimal", "INTERIOR_POINT")
    assert max(entry.features for entry in found.rounds) <= 45 < few.d
    every = cs.regression(X, y, loss="absolute", penalty="l1", C=20.0, intercept=True)
    found = cs.solve(every, tol=1e-6)
    assert found.status == "optimal"
    assert found.rounds[-1].features == every.d
    safe = cs.solve(few, tol=1e-6, mode="safe")
    assert safe.value == pytest.approx(cs.solve(few, tol=1e-9).value, rel=1e-5)


def test_a_gap_of_roundings_does_not_let_in_all_columns() -> None:
    """Short of a tolerance that rounding forbids, the answer is called inaccurate."""
    X, y = data(60, 400)
    problem = cs.regression(X, y, loss="huber", penalty="l1", C=0.1, intercept=True)
    found = cs.solve(problem, tol=1e-16)
    assert found.status == "inaccurate"
    assert found.certificate.relative_gap <= 1e-9
    assert max(entry.features for entry in found.rounds) < problem.d


def test_from_a_neighbour_no_more_columns_are_needed() -> None:
    X, y = data()
    problem = cs.regression(X, y, loss="absolute", penalty="l1", C=0.3)
    first = cs.solve(problem, tol=1e-9)
    again = cs.solve(problem, tol=1e-9, start=first)
    assert again.value == pytest.approx(first.value, rel=1e-9)
    assert len(again.rounds) == 1


def test_bounds_hold_columns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An L1 norm and two bounds, so that three terms share what balances a column."""
    monkeypatch.setattr(columns, "SHARE", 1.0)
    problem = bounded()
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"
    assert found.rounds[-1].features < problem.d
    assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-9).value, rel=1e-8)
    assert found.x.min() >= -1e-9
    assert found.x.max() == pytest.approx(0.5, abs=1e-9)


def test_constraints_that_need_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The restriction has no feasible point: everything is let in."""
    problem = bounded(total=20.0)
    found = cs.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert found.x.sum() == pytest.approx(20.0, abs=1e-7)
    assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-8).value, rel=1e-7)


def test_without_a_feasible_point_or_a_minimum_the_status_says_so() -> None:
    assert cs.solve(bounded(total=31.0)).status == "infeasible"
    X, y = data()
    problem = cs.regression(X, y, loss="absolute", penalty="l1", C=0.3)
    linear = np.zeros(problem.d)
    linear[5] = 100.0
    assert cs.solve(replace(problem, linear=linear)).status == "unbounded"


def test_a_bound_that_zero_violates_holds_nothing() -> None:
    """``x_j >= 0.1`` for a third of the coordinates: these columns are there from the start."""
    problem = bounded()
    b, n = problem.losses.b.copy(), 28
    b[n + 60: n + 80] = 0.1
    f = problem.losses
    moved = replace(problem, losses=cs.Losses(b, f.e, f.q, f.lo, f.hi))
    units = UnitTerms.of(moved)
    assert units is not None
    np.testing.assert_array_equal(units.held, np.arange(60) >= 20)
    found = cs.solve(moved, tol=1e-9)
    assert found.status == "optimal"
    assert found.x[:20].min() >= 0.1 - 1e-9
    assert UnitTerms.of(cs.regression(*data(), loss="absolute", C=np.inf)) is None


def test_slopes_are_shared_so_that_their_total_is_as_near_as_may_be() -> None:
    units = UnitTerms.of(bounded(sign=3.0))
    assert units is not None
    rng = np.random.default_rng(0)
    for size in (0.5, 5.0):
        wanted = size * rng.standard_normal(60)
        theta = units.shared(wanted)
        assert ((theta >= units.low) & (theta <= units.high)).all()
        total = np.bincount(units.coordinates, units.factors * theta, 60)
        np.testing.assert_allclose(total, np.clip(wanted, units.least, units.most), atol=1e-12)
        np.testing.assert_allclose(
            units.excess(wanted), np.abs(wanted - np.clip(wanted, units.least, units.most))
        )


def test_slopes_of_bounds_take_all_so_that_those_of_the_norm_keep_room() -> None:
    """``x >= 0`` may have any slope of its sign; what the norm's may still move balances rounding.
    """
    units = UnitTerms.of(bounded(sign=3.0))
    assert units is not None
    theta = units.shared(np.full(60, -5.0))
    np.testing.assert_array_equal(theta[:60], 0.0)
    np.testing.assert_allclose(theta[60:120], -5.0 / 3.0)


def test_out_of_time_the_last_point_is_certified() -> None:
    X, y = data()
    problem = cs.regression(X, y, loss="absolute", penalty="l1", C=3.0)
    found = cs.solve(problem, tol=1e-9, time_limit=1e-9)
    assert found.status == "time_limit"
    assert found.certificate.gap >= 0.0


@pytest.mark.parametrize("store", ["dense", "csr", "float32", "units"])
@pytest.mark.parametrize("intercept", [False, True])
def test_signs_that_are_constraints_hold_columns_as_well(
    store: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data(25)
    X = X.astype(np.float32) if store == "float32" else sp.csr_matrix(X) if store == "csr" else X
    X = X * 10.0 ** np.linspace(-4.0, 2.0, X.shape[1]) if store == "units" else X
    problem = cs.regression(
        X, y, loss="squared", penalty="l1", C=0.1, nonneg=True, intercept=intercept
    )
    found, plain = cs.solve(problem, tol=1e-9), whole(problem, monkeypatch, tol=1e-9)
    assert found.problem is problem
    assert found.status == "optimal"
    assert cs.certify(problem, found.x, found.theta, found.multipliers, tol=1e-9).ok
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    assert found.rounds[-1].features < problem.d
    assert len(cs.solve(problem, tol=1e-9, start=found).rounds) == 1
    assert loop.bounds_as_terms(problem) is not None


def test_other_constraints_stay_constraints() -> None:
    """A sum beside the signs, and squares."""
    X, y = data(25)
    total = np.ones((1, 60)), np.ones(1)
    for problem in (
        cs.regression(X, y, loss="squared", C=np.inf, nonneg=True, constraints=total),
        cs.regression(X, y, loss="absolute", C=0.1, nonneg=True),
    ):
        assert loop.bounds_as_terms(problem) is None
