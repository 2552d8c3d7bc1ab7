"""Columns that terms of their own hold at 0 are let in as slopes ask for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import columns, interior_point, loop
from cvxscreen.solvers.columns import HeldColumns
from cvxscreen.solvers.interface import Start


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
    problem = replace(problem, layout=None)  # a lasso that is known as one goes another way
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
    units = HeldColumns.of(moved)
    assert units is not None
    np.testing.assert_array_equal(units.held, np.arange(60) >= 20)
    found = cs.solve(moved, tol=1e-9)
    assert found.status == "optimal"
    assert found.x[:20].min() >= 0.1 - 1e-9
    assert HeldColumns.of(cs.regression(*data(), loss="absolute", C=np.inf)) is None


def test_slopes_are_shared_so_that_their_total_is_as_near_as_may_be() -> None:
    units = HeldColumns.of(bounded(sign=3.0))
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
    units = HeldColumns.of(bounded(sign=3.0))
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


def beside(kind: str, loss: str = "squared", seed: int = 0) -> Problem:
    """An L1 norm or signs with side constraints, which 0 violates but for ``"sum"``."""
    X, y = data(25, 100, seed)
    rows = np.random.default_rng(1).standard_normal((3, 100))
    limit = np.array([1.0, -2.0, 0.5])
    if kind == "signs":
        total = sp.vstack([sp.eye(100), np.ones((1, 100))]), np.r_[np.zeros(100), -1.0]
        side = SideConstraints(*total, (("nonneg", 100), ("zero", 1)))
    elif kind == "cone":  # the rows are within 0.5 of their limits
        side = SideConstraints(
            sp.vstack([sp.csr_matrix((1, 100)), sp.csr_matrix(rows)]),
            np.r_[0.5, -limit], (("soc", 4),),
        )
    else:
        dims = (("nonneg", 3),) if kind == "rows" else (("zero", 3),)
        side = SideConstraints(rows, np.zeros(3) if kind == "sum" else -limit, dims)
    problem = cs.regression(X, y, loss=loss, penalty="l1", C=0.1, intercept=True)
    side = replace(side, matrix=sp.hstack([side.matrix, np.zeros((side.matrix.shape[0], 1))]))
    return replace(problem, side=side, layout=None)


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
@pytest.mark.parametrize("kind", ["sum", "equations", "rows", "cone", "signs"])
def test_other_side_constraints_stand_beside(
    kind: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "SHARE", 1.0)
    problem = beside(kind, loss)
    found, plain = cs.solve(problem, tol=1e-9), whole(problem, monkeypatch, tol=1e-9)
    assert (found.status, found.problem) == ("optimal", problem)
    assert cs.certify(problem, found.x, found.theta, found.multipliers, tol=1e-9).ok
    assert found.certificate.within == np.inf
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    assert 0 < found.rounds[-1].features < problem.d
    assert problem.side is not None
    assert problem.side.violation(found.x) <= 1e-9
    again = cs.solve(problem, tol=1e-9, start=found)
    assert (again.status, len(again.rounds)) == ("optimal", 1)


def test_squares_of_the_coordinates_are_no_reason_to_keep_columns(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their slopes at 0 are those without."""
    for kind in ("sum", "none"):
        problem = beside("sum", "absolute")
        curved = np.r_[np.full(100, 0.3), 0.0]
        side = problem.side if kind == "sum" else None
        problem = replace(problem, quadratic=Quadratic(curved), side=side)
        found = loop.solve_screened(problem, tol=1e-9)
        assert (found.status, found.solver) == ("optimal", "INTERIOR_POINT")
        assert 0 < found.rounds[-1].features < problem.d
        assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-9).value, rel=1e-8)
        safe = cs.solve(problem, tol=1e-6, mode="safe")
        assert safe.value == pytest.approx(found.value, rel=1e-5)


def test_the_first_columns_are_those_that_bring_constraints_nearest_to_holding() -> None:
    """Of one equation those with the largest entries, on the side that their bounds leave them."""
    row = np.linspace(-3.0, 2.0, 100)
    X, y = data(25, 100)
    side = SideConstraints(
        sp.vstack([sp.eye(100), row[None, :]]), np.r_[np.zeros(100), -1.0],
        (("nonneg", 100), ("zero", 1)),
    )
    problem = cs.regression(X, y, loss="absolute", C=1.0)
    problem = replace(problem, side=side, quadratic=Quadratic(np.zeros(100)), layout=None)
    other = loop.bounds_as_terms(problem)
    assert other is not None
    screened = columns.ScreenedColumns(
        other.equivalent, interior_point.InteriorPoint(), "certified", 1e-9, (), None
    )
    screened.begin(Start(np.zeros(100), np.zeros(other.equivalent.n)), cs.solve)
    screened.working_set[:] = False
    np.testing.assert_array_equal(np.flatnonzero(screened.reaching(7)), np.arange(93, 100))
    np.testing.assert_array_equal(screened.reaching(100), row > 0.0)


@pytest.mark.parametrize(("upper", "status"), [(0.015, "optimal"), (0.0099, "infeasible")])
def test_twice_as_many_columns_come_in_where_constraints_need_more(
    upper: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sum x = 1`` within ``0 <= x <= upper``: 67 of 100 columns, or more than there are."""
    monkeypatch.setattr(columns, "AT_ONCE", 10)
    monkeypatch.setattr(columns, "SHARE", 0.9)
    X, y = data(5, 100)
    eye = sp.eye(100)
    side = SideConstraints(
        sp.vstack([eye, -eye, np.ones((1, 100))]),
        np.r_[np.zeros(100), np.full(100, upper), -1.0], (("nonneg", 200), ("zero", 1)),
    )
    problem = cs.regression(X, y, loss="absolute", C=1.0)
    problem = replace(problem, side=side, quadratic=Quadratic(np.zeros(100)), layout=None)
    found = cs.solve(problem, tol=1e-9)
    assert found.status == status
    sizes = [entry.features for entry in found.rounds]
    assert sizes[:3] == [20, 40, 80]
    if status == "optimal":
        assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-9).value, rel=1e-8)


def test_in_safe_mode_clarabel_takes_more_columns_than_the_interior_point_method(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """There nothing is left out on a prediction."""
    monkeypatch.setattr(interior_point, "MOST_COORDINATES", 60)
    problem = beside("sum", "squared")
    found, safe = cs.solve(problem, tol=1e-7), cs.solve(problem, tol=1e-6, mode="safe")
    assert max(entry.features for entry in found.rounds) <= 60 < problem.d
    assert safe.value == pytest.approx(found.value, rel=1e-5)


def grouped(
    loss: str, *, own: float = 0.0, rows: bool = False, size: int = 5, n: int = 30, d: int = 150
) -> Problem:
    """A loss of `d` coefficients and an intercept under norms of blocks, heads last.

    Maybe with an L1 norm of weight `own` as well, and two rows of constraints.
    """
    X, y = data(n, d)
    base = cs.regression(X, y, loss=loss, C=np.inf, intercept=True)
    f, count = base.losses, d // size
    wide = d + 1 + count
    design = np.zeros((n + (d if own else 0), wide))
    design[:n, :d], design[:n, d] = X, 1.0
    if own:
        design[n:, :d] = np.eye(d)
    one = np.ones(d if own else 0)
    columns = (np.r_[a, b * one] for a, b in zip(
        (f.b, f.e, f.q, f.lo, f.hi), (0.0, 0.0, 0.0, -own, own), strict=True
    ))
    F, dims = np.zeros((count * (size + 1), wide)), [("soc", size + 1)] * count
    for k in range(count):
        F[k * (size + 1), d + 1 + k] = 2.0
        F[k * (size + 1) + 1 + np.arange(size), k * size + np.arange(size)] = 0.5 + (k % 3)
    if rows:
        more = np.random.default_rng(4).standard_normal((2, wide))
        more[:, d:] = 0.0
        F, dims = np.vstack([F, more]), [*dims, ("zero", 1), ("nonneg", 1)]
    offset = np.r_[np.zeros(count * (size + 1)), [0.7, 0.3] if rows else []]
    strength = {"squared": 40.0, "absolute": 15.0}.get(loss, 10.0)
    q = np.r_[np.zeros(d + 1), strength * np.sqrt(size) * np.ones(count)]
    return Problem(
        Rows(design), cs.Losses(*columns), Quadratic(np.zeros(wide)), q,
        side=SideConstraints(F, offset, dims),
    )


@pytest.mark.table
@pytest.mark.parametrize("own", [0.0, 1.0])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber", "squared"])
def test_blocks_below_norms_go_in_and_out_as_a_whole(
    loss: str, rows: bool, own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "AT_ONCE", 5)
    monkeypatch.setattr(columns, "SHARE", 0.9)
    problem = grouped(loss, own=own, rows=rows)
    assert loop.held_at_zero(problem)
    found = cs.solve(problem, tol=1e-7)
    assert found.status == "optimal"
    assert cs.certify(problem, found.x, found.theta, found.multipliers, tol=1e-7).ok
    assert found.value == pytest.approx(whole(problem, monkeypatch, tol=1e-7).value, rel=2e-7)
    blocks = np.any(found.x[:150].reshape(30, 5) != 0.0, axis=1)
    assert 0 < blocks.sum() < 30
    assert found.rounds[-1].features == 6 * blocks.sum() + 1
    np.testing.assert_array_equal(found.x[151:] > 0.0, blocks)


def test_a_block_asks_where_its_slopes_are_longer_than_its_cost() -> None:
    """After what the L1 norm takes, in the units of the norm; and lies inside well below it."""
    assert HeldColumns.of(grouped("absolute", own=1.0, n=100)) is None  # not wide enough
    problem = grouped("absolute", own=1.0)
    held = HeldColumns.of(problem)
    assert held is not None
    assert len(held.norms) == 30
    wanted = -problem.linear.copy()
    np.testing.assert_array_equal(held.costs(wanted), problem.linear[151:])
    cost = problem.linear[151]
    # Of which 0.3, -0.4 and 0 of the cost are left for factors of 0.5, below twice the head.
    wanted[:3] = [1.0 + 0.3 * cost, -1.0 - 0.4 * cost, 0.9]
    excess = held.excess(wanted)
    assert excess[151] == pytest.approx(cost)
    assert not excess[:151].any()
    assert not excess[152:].any()
    theta = np.zeros(problem.n)
    theta[held.terms] = held.shared(wanted)
    heads, tails = held.multipliers(wanted, theta)
    np.testing.assert_allclose(heads, held.costs(wanted) / 2.0)
    np.testing.assert_allclose(tails[:3], -cost / 2.0 * np.array([0.6, -0.8, 0.0]))
    assert not held.inside(wanted)[:5].any()
    assert held.inside(wanted)[5:10].all()
    near = wanted.copy()
    near[:3] = [1.0 + 0.6 * cost / 4.0, 0.0, 0.0]
    assert held.inside(near)[[0, 1, 2, 3, 4, 151]].all()
    near[0] = 1.0 + 0.8 * cost / 4.0
    assert not held.inside(near)[[0, 1, 2, 3, 4, 151]].any()
    mask = np.zeros(problem.d, dtype=bool)
    mask[[7, 152]] = True
    np.testing.assert_array_equal(np.flatnonzero(held.whole(mask)), [5, 6, 7, 8, 9, 152])
    np.testing.assert_array_equal(held.width[150:153], [1, 6, 6])


def test_norms_that_hold_nothing_are_left_in() -> None:
    """A head without a cost or in a loss, a block with a square of its own, too few of them."""
    problem = grouped("absolute")
    free = problem.linear.copy()
    free[151] = 0.0
    held = HeldColumns.of(replace(problem, linear=free))
    assert held is not None
    assert len(held.norms) == 29
    assert not held.held[[0, 151]].any()
    design = problem.design.dense().copy()
    design[3, 152] = 1.0
    held = HeldColumns.of(replace(problem, design=Rows(design)))
    assert held is not None
    assert len(held.norms) == 29
    assert not held.held[[5, 152]].any()
    squares = np.zeros(problem.d)
    squares[153] = 1.0
    held = HeldColumns.of(replace(problem, quadratic=Quadratic(squares)))
    assert held is not None
    assert len(held.norms) == 29
    assert not held.held[153]
    free[151:171] = 0.0
    assert HeldColumns.of(replace(problem, linear=free)) is None


def within_budget(loss: str, total: float, *, size: int = 1, rows: bool = False) -> Problem:
    """A loss of 150 coefficients and an intercept with ``sum_g |x_g| <= total``, heads last.

    Blocks of one are two inequalities each; maybe two rows of constraints besides.
    """
    d, n = 150, 30
    X, y = data(n, d)
    count = d // size
    base = cs.regression(X, y, loss=loss, C=np.inf, intercept=True)
    wide = d + 1 + count
    design = np.hstack([X, np.ones((n, 1)), np.zeros((n, count))])
    x, t = np.eye(wide)[:d], np.eye(wide)[d + 1:]
    if size == 1:
        F, dims = np.vstack([t - x, t + x]), [("nonneg", 2 * d)]
    else:
        blocks = x.reshape(count, size, wide)
        F = np.concatenate([t[:, None], blocks], axis=1).reshape(-1, wide)
        dims = [("soc", size + 1)] * count
    offset = np.zeros(len(F))
    more, ends = [-t.sum(axis=0)], [total]
    if rows:
        some = np.random.default_rng(4).standard_normal((2, wide))
        some[:, d:] = 0.0
        more, ends = [*more, *some], [*ends, 0.7, 0.3]
    return Problem(
        Rows(design), base.losses, Quadratic(np.zeros(wide)), np.zeros(wide),
        side=SideConstraints(
            np.vstack([F, *more]), np.r_[offset, ends], (*dims, ("nonneg", len(more)))
        ),
    )


@pytest.mark.table
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber", "squared"])
def test_what_a_head_costs_may_be_a_budget(
    loss: str, rows: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "AT_ONCE", 5)
    problem = within_budget(loss, 2.0, size=size, rows=rows)
    assert loop.held_at_zero(problem)
    found = cs.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert cs.certify(problem, found.x, found.theta, found.multipliers, tol=1e-8).ok
    best = whole(problem, monkeypatch, tol=1e-8)
    assert found.value == pytest.approx(best.value, rel=2e-8)
    budget = -3 if rows else -1
    assert found.multipliers[budget] == pytest.approx(best.multipliers[budget], rel=1e-4)
    assert found.x[151:].sum() == pytest.approx(2.0, rel=1e-7)
    assert found.rounds[-1].features < 0.5 * problem.d
    inside = problem.side.project_dual(found.multipliers)
    np.testing.assert_allclose(found.multipliers, inside, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("size", [1, 5])
def test_a_column_that_a_budget_does_not_hold_is_no_certificate(size: int) -> None:
    """The optimum of the first columns alone: its gap is no less than what the others are worth."""
    problem = within_budget("absolute", 2.0, size=size)
    best = cs.solve(problem, tol=1e-9)
    held = HeldColumns.of(problem)
    assert held is not None
    features = np.zeros(problem.d, dtype=bool)
    features[[*range(10, 60), 150]] = True
    inside = held.norms.take(held.norms.any_of(features))
    inside.spread(np.ones(len(inside), dtype=bool), features)
    screened = columns.ScreenedColumns(
        problem, interior_point.InteriorPoint(), "certified", 1e-9, (), None
    )
    screened.begin(None, cs.solve)
    screened.working_set = features
    reduced, lift = screened.reduce(screened.select())
    lifted = lift(screened.solve(reduced, screened.select()))
    proof = cs.certify(problem, lifted.x, lifted.theta, lifted.multipliers, tol=1e-9)
    assert not proof.ok
    assert proof.gap >= problem.primal(lifted.x) - best.value > 1.0
    assert screened.asking(lifted.wanted).any()


def test_where_a_budget_is_loose_few_columns_fit_as_well_as_all() -> None:
    """The objective is down to rounding: it is certified at slopes of 0, and the rest stays out."""
    for loss in ("absolute", "huber", "squared"):
        for size in (1, 5):
            problem = within_budget(loss, 60.0, size=size)
            found = cs.solve(problem, tol=1e-8)
            assert found.status == "optimal"
            assert found.rounds[-1].features < problem.d
            assert abs(found.value) <= 1e-10
            assert not found.multipliers.any()
