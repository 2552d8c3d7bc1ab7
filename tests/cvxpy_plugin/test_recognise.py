"""What is recognised, as what, and that nothing is lost on the way there and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.zoo import REFUSED, SPELLINGS, Data, Spelling

from cvxscreen.core.losses import Losses
from cvxscreen.cvxpy_plugin.cvxpy_solver import build
from cvxscreen.cvxpy_plugin.inspection import loss_names
from cvxscreen.cvxpy_plugin.recognise import standard
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.draft import GroupTerms
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import LossGroup
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise, recognise_standard
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.errors import NotScreenable

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
NAMES = [entry.name for entry in SPELLINGS]


@pytest.mark.parametrize("entry", SPELLINGS, ids=NAMES)
def test_every_spelling_is_recognised_as_its_loss(entry: Spelling) -> None:
    problem = entry.make(Data())
    found = recognise(problem).problem
    kinds = entry.kind.split(" and ")
    assert set(loss_names(found.losses)) == set(kinds)
    most = Data().n + Data().d * (len(kinds) - 1)
    assert Data().n * 2 // 3 <= found.n <= most  # weights and rows of data may be zero
    assert all(variable.value is None for variable in problem.variables())


@pytest.mark.table
@pytest.mark.parametrize("entry", SPELLINGS, ids=NAMES)
def test_all_multipliers_are_restored(entry: Spelling) -> None:
    """The full KKT system of the canonical problem holds at the restored solution."""
    found = recognise(entry.make(Data()))
    built = build(found.problem)
    built.problem.solve(solver="CLARABEL", **TIGHT)
    x, theta, side = built.read()
    z = found.columns(x)
    multipliers = found.multipliers(z, theta, side)
    standard = found.standard
    assert found.value(z) == pytest.approx(found.problem.primal(x), rel=1e-12, abs=1e-12)
    scale = 1.0 + np.abs(multipliers).max()
    assert np.abs(found.residual(z, multipliers)).max() <= 1e-6 * scale
    rows = standard.rows.values(z)
    for cone in standard.cones:
        row, dual = rows[cone.rows], multipliers[cone.rows]
        if cone.kind == "zero":
            assert np.abs(row).max(initial=0.0) <= 1e-8 * scale
            continue
        assert abs(float(row @ dual)) <= 1e-6 * scale
        if cone.kind == "nonneg":
            assert row.min(initial=0.0) >= -1e-8
            assert dual.min(initial=0.0) >= -1e-8 * scale
        elif cone.kind == "soc":
            assert np.linalg.norm(row[1:]) <= row[0] + 1e-7
            assert np.linalg.norm(dual[1:]) <= dual[0] + 1e-7 * scale


def test_bounds_of_a_dead_zone_take_up_what_its_equality_pulls() -> None:
    """``|r + e|`` with ``e = 2 v`` and v bounded: the multiplier of the equality comes first."""
    data = Data()
    pair, copy = data.xi == 2 * data.zeta, cp.Variable(data.n) == data.zeta
    above, below = data.zeta >= -0.1, data.zeta <= 0.25
    objective = data.ridge + cp.norm1(data.residual + data.xi)
    problem = cp.Problem(cp.Minimize(objective), [pair, copy, above, below])
    problem.solve(method="screen", always=True)
    assert Report.of(problem).recognised
    pulled = 2.0 * pair.dual_value
    assert np.abs(pulled).max() == pytest.approx(2.0)
    assert below.dual_value - above.dual_value == pytest.approx(pulled, abs=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_a_reason(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(NotScreenable, match=words):
        recognise(make())


def test_parameters_without_a_value_are_named() -> None:
    data = Data()
    price = cp.Parameter(nonneg=True, name="price")
    with pytest.raises(NotScreenable, match="parameter price has no value"):
        recognise(cp.Problem(cp.Minimize(data.ridge + price * data.hinge)))


def test_hand_computed_numbers() -> None:
    """Two weighted hinges of two variables, written out."""
    w, slack = cp.Variable(2, name="w"), cp.Variable(2)
    rows = [np.array([[2.0, 1.0], [-1.0, 3.0]]) @ w >= 1 - slack, slack >= 0]
    price = np.array([3.0, 5.0])
    objective = 2 * cp.sum_squares(w) + price @ slack + 7 - 4 * w[1]
    found = recognise(cp.Problem(cp.Minimize(objective), rows)).problem
    assert np.array_equal(found.design.dense(), [[2.0, 1.0], [-1.0, 3.0]])
    assert np.array_equal(found.losses.b, [1.0, 1.0])
    assert np.array_equal(found.losses.lo, [-3.0, -5.0])
    assert np.array_equal(found.losses.hi, [0.0, 0.0])
    assert np.array_equal(found.quadratic.diagonal, [4.0, 4.0])
    assert np.array_equal(found.linear, [0.0, -4.0])
    assert found.constant == 7.0


def test_huber_numbers() -> None:
    """``huber(e, M)`` is ``e^2`` up to M: conjugate ``theta^2 / 4`` on [-2M, 2M]."""
    data = Data()
    found = recognise(cp.Problem(cp.Minimize(data.ridge + cp.sum(cp.huber(data.residual, 0.8)))))
    losses = found.problem.losses
    assert np.allclose(losses.q, 0.5)
    assert np.allclose(losses.hi, 1.6)
    assert np.allclose(losses.lo, -1.6)
    assert np.allclose(np.sort(np.abs(losses.b)), np.sort(np.abs(data.r)))


def test_side_constraints_stay_as_they_are() -> None:
    data = Data()
    constraints = [cp.sum(data.w) == 1, data.w >= -0.1, cp.norm(data.w) <= 1]
    found = recognise(cp.Problem(cp.Minimize(data.ridge + data.hinge), constraints)).problem
    assert found.side is not None
    assert found.side.dims == (("zero", 1), ("nonneg", data.d), ("soc", data.d + 1))
    assert found.d == data.d + 1


def test_the_users_values_are_left_alone() -> None:
    data = Data()
    problem = cp.Problem(cp.Minimize(data.ridge + data.hinge), [data.w >= 0])
    data.w.value = np.arange(4.0)
    recognise(problem)
    assert np.array_equal(data.w.value, np.arange(4.0))
    assert data.b.value is None
    assert problem.status is None


def broken(change: Any, name: str = "pos") -> Any:
    found = recognise(next(entry for entry in SPELLINGS if entry.name == name).make(Data()))
    return found._replace(**change(found))


CORRUPTIONS = {
    "weights": lambda r: {"problem": replace(r.problem, losses=r.problem.losses.scaled(1.0001))},
    "constant": lambda r: {"problem": replace(r.problem, constant=1e-6)},
    "linear": lambda r: {"problem": replace(r.problem, linear=r.problem.linear + 1e-6)},
    "kink": lambda r: {"problem": replace(r.problem, losses=Losses(
        r.problem.losses.b + 1e-6, r.problem.losses.e, r.problem.losses.q, r.problem.losses.lo,
        r.problem.losses.hi))},
    "columns": lambda r: {"core": r.core[::-1]},
    "rows": lambda r: {"steps": tuple(
        replace(s, rows=s.rows[::-1]) if isinstance(s, GroupTerms) else s for s in r.steps)},
    "steps": lambda r: {"steps": tuple(
        replace(s, order=s.order[:, ::-1]) if hasattr(s, "order") else s for s in r.steps)},
}  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_self_check_refuses_a_corrupted_recognition(name: str) -> None:
    spelling = {"steps": "slack_loop", "rows": "bounds"}.get(name, "pos")
    check(broken(lambda found: {}, spelling))
    with pytest.raises(NotScreenable, match="recognised"):
        check(broken(CORRUPTIONS[name], spelling))


def test_a_rule_that_goes_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One factor forgotten in a rule, and the problem is refused rather than solved wrongly."""
    right = LossGroup.weighed

    def wrong(self: LossGroup, paying: Any) -> Any:
        b, e, q, lo, hi = right(self, paying)
        return b, e, q, 0.5 * lo, hi

    monkeypatch.setattr(LossGroup, "weighed", wrong)
    for entry in SPELLINGS[:3]:
        with pytest.raises(NotScreenable, match="does not agree"):
            recognise(entry.make(Data()))


def test_dense_data_are_not_copied_into_sparse_ones() -> None:
    data = Data(n=2000, d=6)
    standard = standardise(canonicalise(cp.Problem(cp.Minimize(data.ridge + data.hinge))))
    wide = [block for block in standard.rows.blocks if not block.repeated]
    assert [block.matrix.shape for block in wide] == [(2000, 6)]
    found = recognise_standard(standard).problem
    assert not found.design.sparse
    assert np.allclose(found.design.dense(), data.y[:, None] * np.column_stack(
        [data.X, np.ones(2000)]))


def test_sparse_data_stay_sparse() -> None:
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(3000), 3)
    where = (rows, rng.integers(0, 500, 9000))
    X = cp.Constant(sp.csr_array((rng.normal(size=9000), where), shape=(3000, 500)))
    w = cp.Variable(500)
    found = recognise(cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(cp.pos(1 - X @ w)))))
    assert found.problem.design.sparse


def _free_problems() -> dict[str, Any]:
    rng = np.random.default_rng(11)
    X, t = rng.standard_normal((90, 4)), rng.standard_normal(90)
    w, b, W = cp.Variable(4), cp.Variable(), cp.Variable((2, 4))
    lam = cp.Parameter(nonneg=True, value=0.3)
    lad, hinge = cp.norm1(X @ w + b - t), cp.sum(cp.pos(1 - cp.multiply(np.sign(t), X @ w)))
    return {
        "ridge": lad + 0.5 * cp.sum_squares(w),
        "parameter": hinge + lam * cp.sum_squares(w) + 3.0,
        "two squares": lad + cp.sum_squares(w) / 3.0 + 0.1 * cp.square(b) + 2.0 * cp.sum_squares(w),
        "weighed": lad + cp.quad_over_lin(w, 4.0) - cp.sum(w),
        "a matrix": cp.norm1(X @ W.T - t[:, None]) + cp.sum_squares(W),
        "no square": lad,
    }


@pytest.mark.parametrize("name", _free_problems())
def test_squares_of_free_variables_are_read_as_cvxpy_canonicalises_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = cp.Problem(cp.Minimize(_free_problems()[name]))
    ours = standardise(canonicalise(problem))
    monkeypatch.setattr(standard, "is_in_cone_form", lambda _: False)
    theirs = standardise(canonicalise(problem))
    assert [ours.label(k) for k in range(ours.size)] == [
        theirs.label(k) for k in range(theirs.size)
    ]
    assert abs(ours.quadratic - theirs.quadratic).max() <= 1e-15
    np.testing.assert_allclose(ours.linear, theirs.linear, atol=1e-15)
    assert ours.constant == theirs.constant
    assert recognise(problem).problem.n == 90 * (2 if name == "a matrix" else 1)


def test_what_constrains_a_variable_is_left_to_cvxpy() -> None:
    X, t = np.random.default_rng(0).standard_normal((90, 4)), np.ones(90)
    for options in ({"nonneg": True}, {"bounds": [0.0, 1.0]}, {"bounds": [None, np.ones(4)]}):
        w = cp.Variable(4, **options)
        loss = cp.norm1(X @ w - t) + cp.sum_squares(w)
        assert not standard.is_in_cone_form(cp.Problem(cp.Minimize(loss)))
    w = cp.Variable(4)
    assert standard.is_in_cone_form(cp.Problem(cp.Minimize(cp.sum_squares(w))))
    assert standard.is_in_cone_form(cp.Problem(cp.Minimize(cp.sum_squares(w)), [w >= 0]))
    ball = cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.norm2(w) <= 1])
    assert not standard.is_in_cone_form(ball)
    assert not standard.is_in_cone_form(cp.Problem(cp.Maximize(-cp.sum_squares(w))))
    assert not standard.is_in_cone_form(cp.Problem(cp.Minimize(cp.sum_squares(X @ w))))
    assert not standard.is_in_cone_form(cp.Problem(cp.Minimize(cp.norm2(w))))
