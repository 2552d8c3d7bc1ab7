"""Dual coordinate descent: every loss, every storage, with and without shrinking."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.limits import Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers import dual_coordinate_descent
from cvxscreen.solvers.dual_active_set import LEVEL_HALVINGS, DualIterate, PathCache
from cvxscreen.solvers.dual_coordinate_descent import (
    BLOCK,
    COMBINED,
    REST,
    DualCoordinateDescent,
    Part,
    _Descent,
    descend,
    descend_along,
    dual_objective,
    epoch,
    extrapolate,
    extrapolated,
    row_product,
)
from cvxscreen.solvers.dual_terms import DescentRows, subtract_multiple
from cvxscreen.solvers.interface import Start

LOSSES = ("hinge", "smoothed_hinge", "squared_hinge")
REGRESSIONS = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def data(n: int, d: int, seed: int = 0, storage: str = "sparse") -> tuple[object, np.ndarray]:
    """Rows with about a tenth of their entries, and labels that they nearly separate."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2)
    y = np.sign(dense @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n))
    y[y == 0] = 1.0
    if storage == "dense":
        return dense, y
    X = sp.csr_matrix(dense)
    return (X.astype(np.float32) if storage == "float32" else X), y


def whole(run: _Descent) -> Part:
    """All rows of its problem."""
    theta, v = run.iterate.theta, run.iterate.v
    return Part.of(run.rows, run.terms, theta, run.active, len(v), run.random)


def problem(loss: str, intercept: bool = False, storage: str = "sparse", C: float = 1.0):
    """A problem of that loss with 300 terms and 60 features."""
    X, y = data(300, 60, storage=storage)
    if loss in LOSSES:
        return cvxscreen.svm(X, y, C=C, loss=loss, intercept=intercept)
    y = np.asarray(X @ np.ones(60)) + y
    return cvxscreen.regression(X, y, C=C, loss=loss, intercept=intercept)


def test_a_time_limit_that_is_not_near_costs_no_looks():
    """Every fourth epoch was followed by one at all terms, which costs half as much again."""
    p = problem("hinge", intercept=True)
    free = DualCoordinateDescent(tol=1e-7)(p)
    limited = DualCoordinateDescent(tol=1e-7, limits=Limits(time_limit=100.0))(p)
    near = DualCoordinateDescent(tol=1e-7, limits=Limits(time_limit=1e-6))(p)
    assert free.info["epochs"] > 8
    assert limited.info == free.info
    assert near.info["epochs"] <= 4


@pytest.mark.parametrize("storage", ["sparse", "float32", "dense"])
@pytest.mark.parametrize("loss", LOSSES + REGRESSIONS)
def test_reaches_the_tolerance_on_every_loss_and_storage(loss, storage):
    """The certificate holds, and the value is that of another engine."""
    p = problem(loss, storage=storage, C=0.1)
    found = cvxscreen.solve(p, solver="dcd", tol=1e-7)
    other = cvxscreen.solve(p, tol=1e-9)
    assert found.certificate.ok
    assert found.value == pytest.approx(other.value, rel=2e-7)


@pytest.mark.parametrize("storage", ["sparse", "dense"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "quantile", "huber"])
def test_takes_an_intercept(loss, storage):
    """The unpenalised coordinate ends where another engine puts it."""
    p = problem(loss, intercept=True, storage=storage, C=0.1)
    found = cvxscreen.solve(p, solver="dcd", tol=1e-7)
    other = cvxscreen.solve(p, tol=1e-9)
    assert found.certificate.ok
    assert found.value == pytest.approx(other.value, rel=2e-7)


@pytest.mark.parametrize("shrinking", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon"])
def test_with_and_without_shrinking_the_same_optimum(loss, shrinking):
    """Shrinking is a guess that the gap on all terms judges."""
    p = problem(loss)
    found = DualCoordinateDescent(shrinking=shrinking)(p, None, 1e-7)
    assert found.status == "optimal"
    assert reference_point(p, found.x, found.theta).gap <= 2e-7


def test_shrinking_saves_visits():
    """Beside it every epoch visits every term."""
    p = problem("hinge", C=10.0)
    passes = [
        DualCoordinateDescent(shrinking=one)(p, None, 1e-5).info["passes"] for one in (True, False)
    ]
    assert passes[0] < 0.8 * passes[1]


def test_screening_reduces_what_plain_epochs_work_on():
    """Without shrinking the screening loop does what shrinking does: few terms reach the solver."""
    X, y = data(3000, 40, seed=1)
    p = cvxscreen.svm(X, y, C=0.1)
    found = cvxscreen.solve(p, solver=DualCoordinateDescent(shrinking=False), tol=1e-6)
    assert found.certificate.ok
    assert min(r.kept for r in found.rounds) < 0.8 * p.n
    named = cvxscreen.solve(p, solver="DCD_no_shrinking", tol=1e-6)
    assert named.certificate.ok
    assert [r.kept for r in named.rounds] == [r.kept for r in found.rounds]
    assert (named.x == found.x).all()


def test_an_epoch_visits_every_term_once():
    """The blocks are a partition, also where the last is shorter."""
    p = problem("hinge", C=1e-3)  # small C: after one epoch every dual is at its end
    solver = DualCoordinateDescent(shrinking=False)
    run = _Descent(p, p.design, Start(np.zeros(p.d), np.zeros(p.n)), 0.0, solver)
    assert p.n % BLOCK
    part = whole(run)
    epoch(part.rows, part.terms, part.theta, run.iterate.v, part.work, p.n, np.inf, BLOCK, 0)
    assert (run.iterate.theta == p.losses.lo).all()


def test_blocks_keep_their_order_where_they_are_told_to():
    """While they are as many as before."""
    p = problem("hinge")
    run = _Descent(p, p.design, None, 0.0, DualCoordinateDescent(shrinking=False))
    part, number, orders = whole(run), -(-p.n // BLOCK), []
    for ordered in (0, number, 0, number - 1):
        visited = part.rows, part.terms, part.theta, run.iterate.v, part.work
        epoch(*visited, p.n, np.inf, BLOCK, ordered)
        orders.append(part.work.blocks[:number].tolist())
    assert orders[1] == orders[0]
    assert orders[2] != orders[1] != orders[3]
    assert all(sorted(order) == list(range(number)) for order in orders)


def test_short_blocks_take_fewer_epochs_where_neighbours_are_alike(monkeypatch):
    """Squared hinges on few rows are visited four at a time: 12 epochs for 25; hinges are not."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, (40, 60)).astype(float)
    rows = np.repeat(kinds, 50, axis=0) * (rng.random((2000, 60)) < 0.8)
    y = np.where(np.repeat(kinds[:, 0], 50) + 0.5 * rng.standard_normal(2000) > 0.5, 1.0, -1.0)
    epochs = []
    for near in (dual_coordinate_descent.NEAR_ROWS, 0):
        monkeypatch.setattr(dual_coordinate_descent, "NEAR_ROWS", near)
        p = cvxscreen.svm(sp.csr_matrix(rows), y, C=0.01, loss="squared_hinge")
        found = DualCoordinateDescent(tol=1e-6)(p)
        assert certify(p, found.x, found.theta, tol=1e-6).ok
        epochs.append(found.info["epochs"])
        kinked = cvxscreen.svm(sp.csr_matrix(rows), y, C=0.01)
        assert _Descent(kinked, kinked.design, None, 0.0, DualCoordinateDescent()).block == BLOCK
    assert epochs[0] < 0.8 * epochs[1]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "C"),
    [("hinge", 1.0), ("squared_hinge", 1.0), ("epsilon", 0.03), ("absolute", 0.03), ("huber", 1.0)],
)
def test_extrapolation_only_moves_to_a_higher_dual_objective(loss, C, intercept):
    """Within the boxes, v following; where the past points elsewhere nothing moves.

    Beside an unpenalised coordinate that is the objective at one and the same centre.
    """
    p = problem(loss, intercept, C=C)
    run, long = (
        _Descent(p, p.design, None, 0.0, DualCoordinateDescent(shrinking=False)) for _ in range(2)
    )
    f, number = p.losses, -(-p.n // BLOCK)

    def objective(at):
        v, theta = at.iterate.v, at.iterate.theta
        terms = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
        return -0.5 * v @ v - terms.sum()

    def visit(at, part, ordered):
        theta, v = at.iterate.theta, at.iterate.v
        epoch(part.rows, part.terms, theta, v, part.work, p.n, np.inf, BLOCK, ordered)

    part = whole(long)
    for _ in range(20_000):
        visit(long, part, 0)
    optimum, part = objective(long), whole(run)
    ordered, past, shares = 0, part.work.past, []
    v, theta, root, free = run.iterate.v, run.iterate.theta, run.iterate.root, run.iterate.free
    centre = np.zeros(p.d)
    centre[free] = run.iterate.centre / root[free]
    past[:, 0] = theta
    for _ in range(20):
        for k in range(COMBINED):
            visit(run, part, ordered)
            ordered, past[:, k + 1] = number, theta
        before, known = optimum - objective(run), objective(run)
        gain = extrapolate.py_func(part.rows, part.terms, theta, v, part.work, p.n)
        after = optimum - objective(run)
        assert after <= before + 1e-12 * abs(optimum)
        if gain > 0.0:
            assert objective(run) - known == pytest.approx(gain, abs=1e-12 * abs(optimum))
        shares.append(after / max(before, 1e-300))
        assert (f.lo <= theta).all()
        assert (theta <= f.hi).all()
        assert (past[:, 0] == theta).all()
        follows = centre - (p.linear + p.design.adjoint(theta)) * root
        np.testing.assert_allclose(v, follows, atol=1e-12)
    assert min(shares) < 0.5
    known, point = theta.copy(), v.copy()
    elsewhere = np.random.default_rng(0).standard_normal(past.shape)
    past[:] = np.clip(elsewhere, f.lo[:, None], f.hi[:, None])
    assert not extrapolate.py_func(part.rows, part.terms, theta, v, part.work, p.n) > 0.0
    assert (theta == known).all()
    assert (v == point).all()
    assert (past[:, 0] == theta).all()


def test_an_intercept_does_not_creep_where_parabolas_are_wide():
    """Each row has one of every 30 groups of categories, which could stand for the intercept."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 4, (800, 30)) + 4 * np.arange(30)
    X = sp.csr_matrix((np.ones(24_000), columns.ravel(), np.arange(0, 24_001, 30)), (800, 120))
    y = np.sign(X @ rng.standard_normal(120) + 1.0)
    p = cvxscreen.svm(X, y, C=0.01, loss="squared_hinge", intercept=True)
    found = DualCoordinateDescent(tol=1e-6)(p)
    assert found.status == "optimal"
    assert found.info["passes"] < 30  # 35 where it is held as tightly as beside kinks


def test_the_centre_of_an_intercept_goes_as_far_as_its_steps_lead():
    """Fewer epochs by more than half, where the intercept is what is slow: 26 for 166."""
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 3, (2000, 20)) + 3 * np.arange(20)
    X = sp.csr_matrix((np.ones(40_000), columns.ravel(), np.arange(0, 40_001, 20)), (2000, 60))
    y = np.sign(X @ rng.standard_normal(60) + 1.0)
    p, epochs = cvxscreen.svm(X, y, C=0.1, loss="squared_hinge", intercept=True), []
    for smooth in (True, False):
        run = _Descent(p, p.design, None, 0.0, DualCoordinateDescent(tol=1e-6))
        assert run.smooth
        run.smooth = smooth
        run.run()
        assert certify(p, run.iterate.v * run.iterate.root, run.iterate.balanced, tol=2e-6).ok
        epochs.append(run.epochs)
    assert epochs[0] < 0.5 * epochs[1]


def test_a_look_is_at_the_centre_of_an_intercept():
    """The next epoch begins where it would have without one."""
    p = problem("hinge", intercept=True, C=1.0)
    solver = DualCoordinateDescent(tol=1e-12, limits=Limits(max_iter=2))
    run = _Descent(p, p.design, None, 0.0, solver)
    run.descend()
    before, at = run.iterate.v.copy(), run.iterate.v.copy()
    at[run.iterate.free] = run.iterate.centre / run.iterate.root[run.iterate.free]
    run.look()
    assert run.iterate.gap > run.aim
    assert (run.iterate.v == before).all()
    np.testing.assert_allclose(run.iterate.t, p.design.forward(at * run.iterate.root), atol=1e-12)
    assert np.abs(at - before).max() > 1e-6


@pytest.mark.parametrize("loss", LOSSES + REGRESSIONS)
def test_the_level_balances_the_slopes(loss):
    """At it the slopes change their sign together, to the width of the last halving."""
    p = problem(loss, intercept=True)
    iterate, e = DualIterate(p, p.design, None, np.inf), p.free_columns[:, 0]
    margins = np.random.default_rng(5).standard_normal(p.n)
    level = iterate._level(margins)
    width = (np.abs(p.losses.b - margins).max() + p.losses.e.max()) * 0.5**LEVEL_HALVINGS
    sums = [e @ p.losses.slope(margins + at * e) for at in (level - width, level + width)]
    assert sums[0] <= 0.0 <= sums[1]


def test_where_an_intercept_is_held_does_not_change_the_dual_objective():
    """What a relative target is relative to: balanced slopes have the same value at any centre."""
    p = problem("hinge", intercept=True)
    run = _Descent(p, p.design, None, 0.0, DualCoordinateDescent())
    e, free, root = p.free_columns[:, 0], run.iterate.free[0], run.iterate.root
    theta = 0.1 * p.losses.slope(np.zeros(p.n))
    push = e * theta
    theta[push > 0] *= min(push[push > 0].sum(), -push[push < 0].sum()) / push[push > 0].sum()
    theta[push < 0] *= (e * theta)[push > 0].sum() / -push[push < 0].sum()
    v = -p.design.adjoint(theta) * root
    v[free] = 0.0
    value = -0.5 * v @ v - p.losses.b @ theta
    for centre in (0.0, 3.0, -50.0):
        v[free] = centre
        assert dual_objective(run.terms, theta, v, centre) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("little", "apart"), [(-np.inf, COMBINED), (np.inf, COMBINED + REST)])
def test_what_does_not_help_is_left_for_a_while(little, apart, monkeypatch):
    """Epochs come in ever new orders then; else one order is kept, and each is combined."""
    calls, orders = [], []

    def extrapolate_nothing(rows, terms, theta, v, work, count):
        work.past[:, 0] = theta
        calls.append(len(orders))
        return 0.0

    def spied(rows, terms, theta, v, work, count, slack, block, ordered):
        found = epoch(rows, terms, theta, v, work, count, slack, block, ordered)
        orders.append(ordered)
        return found

    for name, value in {
        "LITTLE": little, "SETTLED": 1.0, "extrapolate": extrapolate_nothing, "epoch": spied,
        "descend": descend.py_func,
    }.items():
        monkeypatch.setattr(dual_coordinate_descent, name, value)
    p = problem("hinge", intercept=True)
    solver = DualCoordinateDescent(shrinking=False, tol=1e-12, limits=Limits(max_iter=60))
    _Descent(p, p.design, None, 0.0, solver).descend()
    assert len(calls) > 2
    assert set(np.diff(calls)) == {apart}
    after = orders[calls[0] + 1 : calls[0] + REST]
    assert (not any(after)) == (little == np.inf)


@pytest.mark.parametrize("storage", ["sparse", "float32", "dense"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon", "huber"])
def test_few_active_rows_are_worked_on_in_a_copy(loss, storage, monkeypatch):
    """Slopes come back to their places, and the dual objective counts what is not in the copy."""
    copies = []
    plain = Part.copied

    def spied(part):
        copy, without = plain(part)
        f, theta = part.terms, part.theta
        out = np.setdiff1d(np.arange(len(theta)), part.work.active[: part.count])
        conjugates = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
        assert without == pytest.approx(-conjugates[out].sum())
        copies.append(copy)
        return copy, without

    monkeypatch.setattr(Part, "copied", spied)
    monkeypatch.setattr(dual_coordinate_descent, "SPREAD", 10)
    monkeypatch.setattr(dual_coordinate_descent, "FEW", 0.9)
    p = problem(loss, intercept=True, storage=storage, C=0.1)
    found = DualCoordinateDescent(tol=1e-8)(p)
    assert len(copies) > 1
    assert found.status == "optimal"
    assert certify(p, found.x, found.theta, tol=1e-7).ok
    v = np.append(np.arange(1.0, p.d), 0.0)  # the intercept has a unit of its own
    for copy in copies:
        for k, i in enumerate(copy.index[:5]):
            assert row_product.py_func(k, copy.rows, v) == pytest.approx(p.design.forward(v)[i])


def test_the_same_seed_gives_the_same_bits():
    """Nothing is random but the order, and that is told by the seed."""
    p = problem("hinge")
    first, second = (DualCoordinateDescent(seed=3)(p, None, 1e-6) for _ in range(2))
    assert (first.x == second.x).all()
    assert (first.theta == second.theta).all()
    other = DualCoordinateDescent(seed=4)(p, None, 1e-6)
    assert (first.theta != other.theta).any()


def test_gives_up_when_the_budget_will_not_do():
    """The next solver begins at the point that it leaves."""
    p = problem("hinge", C=1e4)
    found = DualCoordinateDescent(budget=20.0)(p, None, 1e-9)
    assert found.status == "inaccurate"
    assert found.info["passes"] < 40
    assert isinstance(found.state, Start)
    assert found.state.passes is not None
    margins, At_theta = found.state.passes
    np.testing.assert_allclose(margins, p.design.forward(found.x), atol=1e-9)
    np.testing.assert_allclose(At_theta, p.design.adjoint(found.theta), atol=1e-7)


def test_a_cold_solve_on_sparse_data_begins_with_it():
    """Where it reaches the tolerance nothing else runs."""
    X, y = data(500, 2000, seed=2)
    found = cvxscreen.solve(cvxscreen.svm(X, y, C=1e-3))
    assert found.certificate.ok
    assert "epochs" in found.rounds[0].solver_info


def test_the_caller_keeps_its_arrays():
    """Neither the data nor a start is written to."""
    p = problem("hinge")
    x, theta = np.zeros(p.d), np.zeros(p.n)
    before = p.design.matrix.data.copy()
    DualCoordinateDescent()(p, Start(x, theta), 1e-3)
    assert not x.any()
    assert not theta.any()
    assert (p.design.matrix.data == before).all()


def test_refuses_a_penalty():
    """An L1 term has solvers of its own."""
    X, y = data(50, 10)
    with pytest.raises(InvalidInput, match="'dcd'"):
        cvxscreen.solve(cvxscreen.sparse_svm(X, y, lam=0.1), solver="dcd")


def test_duals_without_an_upper_end_survive_a_warm_start():
    """Of an endless box nothing is near the end that is missing."""
    p = problem("squared_hinge")
    theta = cvxscreen.solve(p).theta
    iterate = DualIterate(p, p.design, Start(np.zeros(p.d), theta), 0.0, PathCache())
    assert np.count_nonzero(theta) > 10
    np.testing.assert_array_equal(iterate.theta, theta)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES + REGRESSIONS)
def test_along_C_every_point_is_certified(loss, intercept):
    """Each of the points, those on the line through the last two included."""
    p, values, tol = problem(loss, intercept), np.geomspace(1e-3, 0.3, 8), 1e-6
    found = list(descend_along(p, values, 0.5 * tol, budget=np.inf))
    assert len(found) == len(values)
    for C, (here, x, theta) in zip(values, found, strict=True):
        assert here == C
        assert certify(p.with_(C=C), x, theta, tol=tol).ok


def test_along_C_it_ends_where_the_budget_does():
    """Before the first C that is too hard, and nothing is wrong with those before it."""
    p, values = problem("hinge"), np.geomspace(1e-3, 1e3, 12)
    found = list(descend_along(p, values, 1e-7, budget=20.0))
    assert 0 < len(found) < len(values)
    for C, (_, x, theta) in zip(values, found, strict=False):
        assert certify(p.with_(C=C), x, theta, tol=1e-6).ok


def test_along_C_it_goes_on_from_what_is_known():
    """From two exact solutions on one face the third lies on their line."""
    p, values = problem("hinge", intercept=True), np.array([1e-4, 1.1e-4, 1.2e-4])
    solved = [cvxscreen.solve(p.with_(C=C), tol=1e-12) for C in values[:2]]
    known = [(s.problem.C, s.x, s.theta) for s in solved]
    last = p.with_(C=values[2])
    start = extrapolated(last, known)
    x = known[1][1] + (known[1][1] - known[0][1])
    assert reference_point(last, x, start.theta).relative_gap <= 1e-9
    (found,) = descend_along(p, values[2:], 1e-7, known=known)
    assert certify(last, *found[1:], tol=1e-6).ok


def test_where_no_slope_is_at_its_end_the_solution_stays():
    """The hinges of separable data from some C on: nothing is looked for any more."""
    X, y = data(60, 400)
    p = cvxscreen.svm(X, y)
    s = cvxscreen.solve(p.with_(C=1e4), tol=1e-12)
    assert (np.abs(s.theta) < 1e4).all()
    start = extrapolated(p.with_(C=2e4), [(5e3, 0.9 * s.x, 0.9 * s.theta), (1e4, s.x, s.theta)])
    np.testing.assert_array_equal(start.theta, s.theta)
    bent = cvxscreen.svm(X, y, loss="squared_hinge").with_(C=2e4)
    assert (extrapolated(bent, [(1e4, s.x, s.theta)]).theta != s.theta).any()
    assert extrapolated(p, []) is None


@pytest.mark.parametrize("share", [0.5, 0.47])
def test_a_cold_start_begins_where_the_intercept_rests(share):
    """At a small C: the slopes balance but for a term, and the level is nearly the best."""
    X, _ = data(300, 400)
    y = np.where(np.arange(300) < 300 * share, 1.0, -1.0)
    p = cvxscreen.svm(X, y, C=1e-3, intercept=True)
    iterate = DualIterate(p, p.design, None, np.inf)
    assert abs(y @ iterate.theta) <= 2.0 * p.C
    best = cvxscreen.solve(p, tol=1e-9)
    assert p.primal(np.append(best.w, iterate.centre)) == pytest.approx(best.value, rel=0.02)


def test_a_warm_start_that_no_kink_holds_begins_where_the_intercept_rests():
    """All slopes at an end: the level of the start says nothing, and would creep for 42 epochs."""
    rng = np.random.default_rng(0)
    X = sp.random_array((2000, 100), density=0.05, rng=rng, format="csr")
    scores = X @ rng.standard_normal(100)
    scores = scores + 0.5 * scores.std() * rng.standard_normal(2000)
    p = cvxscreen.svm(X, np.where(scores > np.median(scores), 1.0, -1.0), intercept=True)
    known = []
    for C in (1e-3, 1.6e-3, 2.6e-3, 4e-3, 7e-3, 1e-2):
        here = p.with_(C=C)
        found = DualCoordinateDescent(tol=1e-6)(here, extrapolated(here, known))
        known.append((C, found.x, found.theta))
        assert found.info["epochs"] <= 8
        assert certify(here, found.x, found.theta, tol=2e-6).ok


def test_a_column_of_zeros_as_unpenalised_coordinate_has_no_level():
    """Nothing to rest: the centre stays at 0."""
    p = problem("hinge", intercept=True)
    rows = Rows(p.design.matrix, p.design.scale, np.zeros((300, 1)))
    empty = Problem(rows, p.losses, p.quadratic, p.linear, C=p.C)
    assert DualIterate(empty, rows, None, np.inf).centre == [0.0]


@pytest.mark.parametrize("sparse", [False, True])
def test_few_values_in_single_precision_are_widened(
    sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are read as they are, to the same numbers: what is multiplied is in double precision."""
    values = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    rows = Rows(sp.csr_matrix(values) if sparse else values, extra=np.ones((4, 1)))
    few = DescentRows.of(rows, np.ones(8))
    monkeypatch.setattr("cvxscreen.solvers.dual_terms.WIDENED", 27)
    many = DescentRows.of(rows, np.ones(8))
    assert (few.data.dtype, many.data.dtype) == (np.float64, np.float32)
    for i in range(4):
        moved = [np.linspace(0.1, 1.3, 8) for _ in range(2)]
        for read, v in zip((few, many), moved, strict=True):
            subtract_multiple(i, 0.3, read, v)
        np.testing.assert_array_equal(*moved)
        products = [row_product(i, read, np.linspace(0.1, 1.3, 8)) for read in (few, many)]
        assert products[0] == pytest.approx(products[1], rel=1e-15)
