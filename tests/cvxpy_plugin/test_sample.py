"""Large problems are compared with the user's at a sample of their terms; all terms are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.cvxpy_plugin.recognise.check import Sample, check, entries_at
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import LossGroup, above_levels
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.errors import NotScreenable

N, D, ODD = 4001, 4, 2718
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, D))
T = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.3 * RNG.standard_normal(N)
Y = np.where(T > 0, 1.0, -1.0)


def but_one(value: float, other: float) -> np.ndarray:
    """`value` in every row but one."""
    out = np.full(N, value)
    out[ODD] = other
    return out


class Model:
    """Variables and the usual parts of an objective."""

    def __init__(self) -> None:
        self.w, self.b = cp.Variable(D), cp.Variable()
        self.xi, self.u, self.v = cp.Variable(N), cp.Variable(N), cp.Variable(N)
        self.margin = cp.multiply(Y, X @ self.w + self.b)
        self.residual = T - X @ self.w - self.b
        self.square = 0.5 * cp.sum_squares(self.w)

    def slack(self, bound: Any, cost: Any = 1.0) -> tuple[Any, list[Any]]:
        """Hinges as slacks."""
        return cp.sum(cp.multiply(cost, self.xi)), [self.xi >= 0, self.margin >= bound - self.xi]

    def split(self, up: Any, down: Any) -> tuple[Any, list[Any]]:
        """Residuals in two parts."""
        cost = up @ self.u + down @ self.v
        return cost, [self.residual == self.u - self.v, self.u >= 0, self.v >= 0]


ONE_ODD_ROW: dict[str, Callable[[Model], tuple[Any, list[Any]]]] = {
    "weight": lambda s: (but_one(1.0, 5.0) @ cp.pos(1 - s.margin), []),
    "weight_inside": lambda s: (cp.sum(cp.multiply(but_one(1.0, 5.0), cp.abs(s.residual))), []),
    "no_weight": lambda s: (but_one(1.0, 0.0) @ cp.pos(1 - s.margin), []),
    "divided": lambda s: (cp.sum(cp.huber(s.residual, 1.0) / but_one(1.0, 4.0)), []),
    "margin": lambda s: (cp.sum(cp.pos(but_one(1.0, 3.0) - s.margin)), []),
    "squared": lambda s: (cp.sum_squares(cp.pos(but_one(1.0, 3.0) - s.margin)), []),
    "label": lambda s: (
        cp.sum(cp.pos(1 - cp.multiply(np.where(np.arange(N) == ODD, 2.0, Y), X @ s.w + s.b))), []
    ),
    "level": lambda s: (cp.sum(cp.maximum(
        cp.multiply(but_one(0.3, 0.9), s.residual),
        cp.multiply(but_one(0.3, 0.9) - 1, s.residual),
    )), []),
    "dead_zone": lambda s: (cp.sum(cp.pos(cp.abs(s.residual) - but_one(0.1, 0.7))), []),
    "slack": lambda s: s.slack(but_one(1.0, 3.0)),
    "slack_cost": lambda s: s.slack(1.0, but_one(1.0, 5.0)),
    "split_cost": lambda s: s.split(but_one(0.3, 2.0), np.full(N, 0.7)),
}


def recognised(model: Model, loss: Any, constraints: list[Any]) -> tuple[Any, Recognition]:
    problem = cp.Problem(cp.Minimize(model.square + loss), constraints)
    return problem, recognise(problem)


def put(problem: Any, found: Recognition, x: np.ndarray) -> None:
    """Give the user's variables the values of a core point, slacks their best ones."""
    standard = found.standard
    values = standard.canonical.user_values(standard.split(found.columns(x)))
    for variable in problem.variables():
        variable.save_value(values[variable.id])


@pytest.mark.parametrize("name", ONE_ODD_ROW)
def test_one_row_that_is_different_is_read(name: str) -> None:
    """Rows without a weight, and labels that are no signs, are copied, and compared in full."""
    model = Model()
    problem, found = recognised(model, *ONE_ODD_ROW[name](model))
    sample = Sample.of(found)
    assert (sample is None) == (name in ("no_weight", "label"))
    assert sample is None or len(sample.index) < N // 4
    for seed in range(3):
        x = 2.0 * np.random.default_rng(seed).standard_normal(found.problem.d)
        put(problem, found, x)
        for constraint in problem.constraints:
            assert np.max(constraint.violation()) <= 1e-9
        assert found.problem.primal(x) == pytest.approx(problem.objective.value, rel=1e-12)


def test_among_many_different_rows_each_is_read() -> None:
    """A row that is neither drawn nor extreme is what it was written as."""
    model = Model()
    weight, margin = RNG.uniform(0.5, 2.0, N), RNG.uniform(-1.0, 1.0, N)
    weight[ODD], margin[ODD] = 1.25, 0.25
    _, found = recognised(model, weight @ cp.pos(margin - model.margin), [])
    sample = Sample.of(found)
    assert sample is not None
    assert ODD not in sample.index
    losses = found.problem.losses.take(np.array([ODD]))
    assert (losses.b[0], losses.lo[0], losses.hi[0]) == (0.25, -1.25, 0.0)
    np.testing.assert_array_equal(found.problem.losses.lo, -weight)
    np.testing.assert_array_equal(found.problem.losses.b, margin)


@pytest.mark.parametrize("place", [0, ODD, N - 1])
@pytest.mark.parametrize("weight", [1.0, 0.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_row_that_is_not_finite_is_refused(bad: float, weight: float, place: int) -> None:
    data, weights, w = X.copy(), np.ones(N), cp.Variable(D)
    data[place, 1], weights[place] = bad, weight
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + weights @ cp.pos(1 - data @ w)))
    with pytest.raises(NotScreenable, match=r"NaN|nan"):
        recognise(problem)


@pytest.mark.parametrize("k", [1, 37.5, 0.1 * N, N - 0.5])
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("limit", [False, True])
def test_largest_entries_are_compared_in_a_sample(
    k: float, wrong: bool, limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the user's own atom: entries that are not in the sample lie where they add nothing.

    Helpers of constraints stand beside the data, and no zeros are stored for them.
    """

    def one_more(problem: Any) -> tuple[Any, Any]:
        made, levels = above_levels(problem)
        return cp.Problem(cp.Minimize(made.objective.expr + levels[0].variable)), levels

    if wrong:
        place = "cvxscreen.cvxpy_plugin.recognise.standard.above_levels"
        monkeypatch.setattr(place, one_more)
    s = Model()
    cost, constraints = cp.sum_largest(s.residual, k), [cp.sum(s.w) == 1]
    if limit:
        constraints.append(cp.norm1(s.w - 0.1) <= 0.8)
    problem = cp.Problem(cp.Minimize(cost if limit else s.square + cost), constraints)
    if wrong:
        with pytest.raises(NotScreenable, match="does not agree"):
            recognise(problem)
        return
    found = recognise(problem)
    sample = Sample.of(found)
    assert found.problem.design.absent == (D if limit else 0)
    assert sample is not None
    assert sample.level is not None
    assert len(sample.index) < N // 4


def test_one_negative_weight_is_refused() -> None:
    model = Model()
    with pytest.raises(NotScreenable, match="DCP"):
        recognised(model, but_one(1.0, -1.0) @ cp.pos(1 - model.margin), [])


@pytest.mark.parametrize("name", ["weight", "label", "slack_cost"])
def test_a_wrong_operation_shows_in_the_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it goes wrong in the one row that is different."""
    right = LossGroup.weighed

    def wrong(self: LossGroup, paying: Any) -> Any:
        b, e, q, lo, hi = right(self, paying)
        index = np.arange(len(self.weight)) == (ODD if name != "label" else 5)
        return b, e, q, np.where(index if name != "label" else True, 0.9 * lo, lo), hi

    monkeypatch.setattr(LossGroup, "weighed", wrong)
    model = Model()
    with pytest.raises(NotScreenable, match="does not agree"):
        recognised(model, *ONE_ODD_ROW[name](model))


def test_a_wrong_bound_of_a_slack_shows_in_the_sample() -> None:
    """The constraint is another one when the recognition is compared."""
    model = Model()
    problem, found = recognised(model, *ONE_ODD_ROW["slack"](model))
    check(found)
    other = model.margin >= 1.5 - model.xi
    other.id = problem.constraints[1].id
    problem._constraints[1] = other
    with pytest.raises(NotScreenable, match="no bound of a slack"):
        check(found)


def test_cvxpy_evaluates_no_expression_over_all_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, their arguments and products with the data are evaluated in the sample."""
    seen: list[int] = []
    for atom in (cp.pos(cp.Variable(2)), cp.huber(cp.Variable(2)), cp.Variable(2) * 2 + 1,
                 cp.multiply(np.ones(2), cp.Variable(2)), np.ones((2, 2)) @ cp.Variable(2)):
        kind = type(atom)

        def numeric(self: Any, values: Any, right: Any = kind.numeric) -> Any:
            if np.ndim(values[0]) and not self.is_constant():
                seen.append(max(np.size(value) for value in values[-1:]))
            return right(self, values)

        monkeypatch.setattr(kind, "numeric", numeric)
    for name in ("margin", "divided"):
        seen.clear()
        model = Model()
        recognised(model, *ONE_ODD_ROW[name](model))
        assert max(seen) < N, name


def test_entries_are_those_of_the_value() -> None:
    w, W, b = cp.Variable(D), cp.Variable((D, 3)), cp.Variable()
    w.value, W.value, b.value = X[0], X[:3].T, 0.3
    p = cp.Parameter(N, value=T)
    S = sp.csr_array(np.where(np.abs(X) > 1, X, 0.0))
    several = X @ W
    for expr in (
        cp.pos(1 - cp.multiply(Y, X @ w + b)), cp.huber(p - S @ w, 0.5), cp.abs(X @ w) / Y,
        cp.maximum(X @ w, -0.5 * (X @ w), 1.0), several, cp.abs(several - X[:, :3]), S @ W,
        cp.square(cp.pos(several)) + 1.0, cp.vec(several, order="F"), X @ w + cp.sum(w) - b,
        cp.power(cp.pos(p + X @ w), 2), -cp.minimum(p, X @ w), several[:, 1],
    ):
        index = np.random.default_rng(1).integers(0, expr.size, 50)
        whole = np.broadcast_to(np.asarray(expr.value), expr.shape).ravel(order="F")
        found = np.broadcast_to(entries_at(expr, index), index.shape)
        np.testing.assert_allclose(found, whole[index], rtol=1e-13)
