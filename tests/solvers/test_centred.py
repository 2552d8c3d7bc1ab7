"""Features far from 0 beside an intercept: the same optimum, certified on the data as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.api import solve
from cvxscreen.certificates.certificate import _judged, certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin import Report
from cvxscreen.designs.rows import Rows
from cvxscreen.models.linear import regression, svm
from cvxscreen.paths.path import path
from cvxscreen.solvers import dual_coordinate_descent
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.reformulations import Centred

FAR_OFF = np.array([0.0, 3.0, 1e3, -1e5, 1e6])


def data(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    X = np.round(rng.standard_normal((n, 5)) * 2**20) / 2**20  # exact after any of these shifts
    return X, X @ np.arange(5.0) + rng.standard_t(3, n)


def model(loss: str, X: np.ndarray, y: np.ndarray, **kwargs: Any) -> Problem:
    if "hinge" in loss:
        return svm(X, np.where(y > 0, 1.0, -1.0), loss=loss, intercept=True, **kwargs)
    shape = {"tau": 0.8} if loss == "quantile" else {}
    return regression(X, y, loss=loss, intercept=True, **shape, **kwargs)


@pytest.mark.table
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute", "quantile", "huber"])
@pytest.mark.parametrize("C", [0.1, 1.0, np.inf])
@pytest.mark.parametrize("off", [FAR_OFF, np.full(5, 1e6)])
def test_the_optimum_is_that_of_the_data_about_0(loss: str, C: float, off: np.ndarray) -> None:
    """A mean of a million times the spread ended with gaps of 1, after a second."""
    if "hinge" in loss and not np.isfinite(C):
        C = 30.0
    X, y = data()
    near, far = (solve(model(loss, A, y, C=C), tol=1e-9) for A in (X, X + off))
    assert far.status == "optimal", far.certificate
    assert far.value == pytest.approx(near.value, rel=2e-9)
    assert far.problem.design.matrix.max() > 9e5
    assert far.w == pytest.approx(near.w, abs=1e-3)
    assert certify(far.problem, far.x, far.theta, tol=1e-9).ok


@pytest.mark.parametrize("loss", ["hinge", "absolute", "quantile", "huber"])
def test_slopes_are_balanced_on_the_way_back(loss: str) -> None:
    """About the centre a lack of 1e-5 costs next to nothing, beside a mean of 1e6 all there is."""
    X, y = data()
    problem = model(loss, X + FAR_OFF, y, C=1.0)
    centred = Centred.of(problem)
    assert centred is not None
    near = centred.equivalent
    found = solve_screened(near, tol=1e-9)
    f, theta = near.losses, found.theta.copy()
    inside = np.flatnonzero((theta > f.lo + 1e-3) & (theta < f.hi - 1e-3))
    theta[inside[0]] += 1e-5
    answer = centred.invert(replace(found, theta=theta), 1e-6)
    assert answer.status == "optimal", answer.certificate
    as_it_was = _judged(problem, answer.x, theta, np.zeros(0), 1e-6, None)
    assert not as_it_was.ok
    assert certify(near, found.x, theta, tol=1e-4).ok


def test_the_way_there_and_back() -> None:
    """A start is moved, an answer moved back, and neither the problem nor the data change."""
    X, y = data()
    far = X + FAR_OFF
    before = far.copy()
    problem = model("absolute", far, y, C=0.5)
    centred = Centred.of(problem)
    assert centred is not None
    assert (centred.mean[:2] == 0.0).all()  # near enough as they are
    assert centred.mean[2:5] == pytest.approx(FAR_OFF[2:], abs=4.0)
    assert Centred.of(centred.equivalent) is None
    x = np.arange(6.0)
    moved = centred.apply(Start(x, np.zeros(problem.n)))
    assert centred.equivalent.primal(moved.x) == pytest.approx(problem.primal(x), rel=1e-9)
    first = solve_screened(problem, tol=1e-9)
    again = solve_screened(problem, tol=1e-9, start=Start(first.x, first.theta))
    assert first.status == again.status == "optimal"
    assert len(again.rounds) <= len(first.rounds)
    assert np.array_equal(far, before)


def test_a_linear_term_on_the_intercept_moves_with_it() -> None:
    """A fit whose intercept is rewarded, as in one-class support vector machines.

    About 0 the intercept is smaller by ``<off, w>``, so that the same functional has more of w.
    """
    X, y = data(120)
    losses, form = Losses(y, 0.0, 0.0, -1.0, 1.0), Quadratic([1.0] * 5 + [0.0])
    linear = np.array([0.0, 0.3, 0.0, 0.0, 0.0, 7.0])
    near = solve(Problem(Rows(X, None, np.ones((120, 1))), losses, form, linear), tol=1e-9)
    rows = Rows(X + FAR_OFF, None, np.ones((120, 1)))
    far = solve(Problem(rows, losses, form, linear + 7.0 * np.append(FAR_OFF, 0.0)), tol=1e-8)
    assert near.status == far.status == "optimal", far.certificate
    assert far.value == pytest.approx(near.value, rel=2e-8)


def test_what_is_left_as_it_is() -> None:
    """No intercept, sparse data, constraints on the intercept, constant columns, safe mode."""
    X, y = data(100)
    far = X + 1e4
    assert Centred.of(regression(far, y)) is None
    assert Centred.of(model("absolute", X, y)) is None
    constant = np.c_[X, np.full(100, 1e6)]
    assert Centred.of(model("absolute", constant, y)) is None
    bound = SideConstraints(np.eye(6)[5:], np.zeros(1), [("nonneg", 1)])
    held = model("absolute", far, y)
    held = Problem(held.design, held.losses, held.quadratic, held.linear, side=bound)
    assert Centred.of(held) is None
    free = SideConstraints(np.eye(6)[:5], np.zeros(5), [("nonneg", 5)])
    assert Centred.of(Problem(held.design, held.losses, held.quadratic, held.linear, side=free))


def test_entries_that_are_rounded_on_the_way_are_not_taken_for_exact() -> None:
    """One row far from all others, an intercept of 1/3, a linear term: each would be rounded."""
    X, y = data(100)
    far = X + np.array([0.0, 3.0, 1e3, -1e5, 1e6])
    centred = Centred.of(model("absolute", far, y))
    assert centred is not None
    assert centred.exact
    np.testing.assert_array_equal(centred.equivalent.design.matrix + centred.mean[:5], far)
    alone = far.copy()
    alone[2, 4] = 1.0 / 3.0  # none of the rows that tell the centre
    assert not Centred.of(model("absolute", alone, y)).exact
    plain = model("absolute", far, y)
    third = replace(plain, design=Rows(far, None, np.full((100, 1), 1.0 / 3.0)))
    assert not Centred.of(third).exact
    assert not Centred.of(replace(plain, linear=np.eye(6)[5])).exact


@pytest.mark.parametrize(
    "more", [{"penalty": "l1"}, {"nonneg": True}, {"monotone": [1, 0, -1, 0, 1]}]
)
def test_beside_an_l1_norm_and_constraints(more: dict[str, Any]) -> None:
    X, y = data()
    near, far = (solve(model("absolute", A, y, C=0.2, **more), tol=1e-9) for A in (X, X + FAR_OFF))
    assert far.status == "optimal", far.certificate
    assert far.value == pytest.approx(near.value, rel=2e-9)


def test_paths_and_cvxpy_have_it_too() -> None:
    X, y = data(600)
    far = X + FAR_OFF
    levels = path(model("quantile", far, y, C=np.inf), over="tau", values=[0.2, 0.5, 0.9], tol=1e-9)
    assert [point.status for point in levels.points] == ["optimal"] * 3
    w, b = cp.Variable(5), cp.Variable()
    problem = cp.Problem(cp.Minimize(cp.norm1(far @ w + b - y)))
    problem.solve(method="screen", always=True)
    assert Report.of(problem).recognised
    assert problem.value == pytest.approx(
        solve(model("absolute", X, y, C=np.inf), tol=1e-9).value, rel=1e-8
    )


def test_nothing_that_holds_of_the_centre_is_said_of_the_data() -> None:
    """Neither what was proven there, whose entries were rounded, nor a status: both are made anew.
    """
    X, y = data()
    problem = model("absolute", X + FAR_OFF, y, C=0.5)
    centred = Centred.of(problem)
    assert centred is not None
    found = solve_screened(centred.equivalent, mode="safe", tol=1e-9)
    assert found.status == "optimal"
    found = replace(found, earlier=found.screening)  # whether or not rounds have proven some of it
    assert (found.earlier.codes >= 0).any()
    back = centred.invert(found, 1e-6)
    assert back.status == "optimal"
    assert back.earlier.problem is problem
    assert not (back.earlier.codes >= 0).any()
    away = centred.invert(replace(found, x=1.001 * found.x), 1e-6)
    assert away.status == "inaccurate"
    assert not away.certificate.ok


SPREADS = [np.ones(80), np.resize([0.0, 1.0, 3.0, 10.0, 28.0], 80), np.full(80, 1e3)]


@pytest.mark.parametrize("off", SPREADS, ids=["1", "mixed", "1000"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute", "huber"])
@pytest.mark.usefixtures("compiled_descent")
def test_coordinate_descent_goes_about_the_centre(loss: str, off: np.ndarray) -> None:
    """As many epochs as about 0; a mean of one spread took twice as many, of ten up to twenty."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 80))
    y = X @ rng.standard_normal(80) + rng.standard_normal(400)
    near, far = (solve(model(loss, A, y, C=1e-3), tol=1e-8) for A in (X, X + off))
    epochs = [found.rounds[-1].solver_info["epochs"] for found in (near, far)]
    assert epochs[1] <= 1.5 * epochs[0]
    assert near.status == far.status == "optimal"
    assert far.value == pytest.approx(near.value, rel=2e-8)
    assert certify(far.problem, far.x, far.theta, tol=1e-8).ok


@pytest.fixture
def compiled_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a compiler."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *asked: True)
    monkeypatch.setattr("cvxscreen.solvers.solve.before_loading", lambda problem: False)
    monkeypatch.setattr("cvxscreen.solvers.solve.ready", lambda: True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("place", ["beside", "within"])
def test_the_shortest_rows_are_orthogonal_to_the_intercept(dtype: type, place: str) -> None:
    """Labels, an intercept that is no column of ones, one that is a column of the data."""
    rng = np.random.default_rng(9)
    X = (rng.standard_normal((200, 6)) + 5.0).astype(dtype)
    ones, signs = rng.uniform(1.0, 2.0, 200), np.where(rng.random(200) > 0.4, 1.0, -1.0)
    rows = Rows(X, signs, ones[:, None])
    if place == "within":
        rows = Rows(np.ascontiguousarray(np.c_[X, ones.astype(dtype)]), signs)
    losses = Losses(np.zeros(200), 0.0, 0.0, -1.0, 1.0)
    problem = Problem(rows, losses, Quadratic([1.0] * 6 + [0.0]), np.arange(7.0))
    before, centred = rows.matrix.copy(), Centred.shortest(problem)
    assert centred is not None
    there, x = centred.equivalent, rng.standard_normal(7)
    assert there.design.adjoint(there.free_columns[:, 0])[:6] == pytest.approx(0.0, abs=1e-9)
    assert Centred.shortest(there) is None
    back = centred.restored(x)
    assert problem.primal(back) == pytest.approx(there.primal(x), rel=1e-12)
    assert centred.apply(Start(back, losses.lo)).x == pytest.approx(x)
    assert np.array_equal(rows.matrix, before)


def test_rows_that_stay_as_they_are() -> None:
    """Near 0, sparse, without an intercept, a single one, of nothing but 0."""
    rng = np.random.default_rng(10)
    X, y = rng.standard_normal((300, 40)), rng.standard_normal(300)
    assert Centred.shortest(regression(X + 1.0, y, intercept=True)) is not None
    for A in (X, X + 0.2, sp.csr_matrix(X + 1.0), np.zeros_like(X)):
        assert Centred.shortest(regression(A, y, intercept=True)) is None
    assert Centred.shortest(regression(X + 1.0, y)) is None
    assert Centred.shortest(regression(X[:1] + 1.0, y[:1], intercept=True)) is None
