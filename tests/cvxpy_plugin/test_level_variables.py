"""Numbers that losses lie above, written by hand: read as sums of the largest, and written back."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import auxiliary_variables
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import without_level_variables
from cvxscreen.cvxpy_plugin.recognise.python_loops import summands_of
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise

cvxpy_plugin.register()

N, D = 300, 3
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, D))
Y = 10.0 + X @ [1.0, -2.0, 0.5] + RNG.standard_t(3, N)
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
w, x, t = cp.Variable(D), cp.Variable(), cp.Variable(name="t")
u, one = cp.Variable(nonneg=True), cp.Variable(1)
r, e = X @ w + x - Y, x - Y
cost, price = cp.maximum(4 * e, -9 * e), cp.Parameter(nonneg=True, value=2.0)


def tail(losses: Any, level: Any = t, share: float = 0.1) -> Any:
    return level + cp.sum(cp.pos(losses - level)) / (share * N)


FORMS: dict[str, Any] = {
    "a newsvendor's": (cp.Minimize(tail(cost)), []),
    "beside its mean": (cp.Minimize(0.5 * cp.sum(cost) / N + 0.5 * tail(cost)), [x >= 1]),
    "absolute values": (cp.Minimize(tail(cp.abs(r)) + 0.01 * cp.norm1(w)), []),
    "a maximisation": (cp.Maximize(-3 * tail(cp.abs(r), share=0.25)), [cp.sum(w) == 0]),
    "a maximum with zero": (
        cp.Minimize(3 * t + 0.13 * cp.sum(cp.maximum(0, cp.abs(r) - t))), [w <= 5]),
    "weights that are one number": (
        cp.Minimize(t + np.full(N, 0.05) @ cp.maximum(-t + cost, 0)), []),
    "a number that is a vector": (cp.Minimize(tail(cost, one, 0.07)), []),
    "hinges": (cp.Minimize(tail(cp.pos(1 - cp.multiply(np.sign(Y - 10), X @ w)))
                           + 0.1 * cp.sum_squares(w)), []),
    "at a weight that is a parameter": (
        cp.Minimize(price * tail(cost) + cp.sum(cp.abs(r)) / N), []),
    "two of them": (cp.Minimize(tail(cost, t) + tail(cp.abs(r), one)), []),
    "a limit": (cp.Minimize(cp.norm1(r)), [tail(cp.abs(r)) <= 4.5]),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_least_over_the_number_is_the_sum_of_the_largest(name: str) -> None:
    problem = cp.Problem(*FORMS[name])
    whole, found = without_level_variables(problem)
    assert len(found) == (2 if name == "two of them" else 1)
    assert not {level.variable for level in found} & set(whole.variables())
    for variable in problem.variables():
        variable.value = RNG.standard_normal(variable.shape) + 5.0
    others = {variable.id: variable.value for variable in whole.variables()}
    for level in found:
        level.variable.value = level.value(others)
    at_best = problem.objective.value, [float(np.squeeze(c.expr.value)) for c in
                                        problem.constraints if c.size == 1]
    now = whole.objective.value, [float(np.squeeze(c.expr.value)) for c in
                                  whole.constraints if c.size == 1]
    assert at_best[0] == pytest.approx(now[0], rel=1e-12)
    np.testing.assert_allclose(at_best[1], now[1], rtol=1e-12)
    sign = 1.0 if isinstance(problem.objective, cp.Minimize) else -1.0
    limit = [c for c in problem.constraints if c.size == 1]
    for step in (-0.3, 0.3):  # nothing is lower elsewhere
        found[0].variable.value = found[0].value(others) + step
        assert sign * problem.objective.value >= sign * at_best[0] - 1e-12
        for constraint, best in zip(limit, at_best[1], strict=True):
            assert float(np.squeeze(constraint.expr.value)) >= best - 1e-12


@pytest.mark.parametrize("name", FORMS)
def test_values_and_dual_values_are_the_users(name: str) -> None:
    problem = cp.Problem(*FORMS[name])
    value = problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).recognised
    mine = [variable.value for variable in problem.variables()]
    assert problem.objective.value == pytest.approx(value, rel=1e-8)
    assert max([0.0, *(float(np.max(c.violation())) for c in problem.constraints)]) <= 1e-8
    duals = [constraint.dual_value for constraint in problem.constraints]
    assert problem.solve(solver="CLARABEL", **TIGHT) == pytest.approx(value, rel=1e-8)
    for ours, constraint in zip(duals, problem.constraints, strict=True):
        np.testing.assert_allclose(ours, constraint.dual_value, atol=1e-4)
    for ours, variable in zip(mine, problem.variables(), strict=True):
        if variable is not t and variable is not one:  # any level between two losses is as good
            np.testing.assert_allclose(ours, variable.value, atol=1e-3)


LEFT = {
    "losses beside a line": (t + 0.1 * cp.sum(cp.pos(cost - t - x)), []),
    "losses of two arguments": (tail(cp.maximum(r, e)), []),
    "affine losses": (tail(r), []),
    "a number with a sign": (tail(cost, u), []),
    "a number that is held": (tail(cost), [t >= 1]),
    "a number that is used again": (tail(cost) + cp.abs(t), []),
    "a price that is too high": (N * t + cp.sum(cp.pos(cost - t)), []),
    "no price": (cp.sum(cp.pos(cost - t)) + cp.sum_squares(w - 1), []),
    "weights": (t + np.linspace(0.05, 0.1, N) @ cp.pos(cost - t), []),
    "twice the number": (t + 0.1 * cp.sum(cp.pos(cost - 2 * t)), []),
    "another price": (price * t + 0.1 * cp.sum(cp.pos(cost - t)), []),
    "squares": (t + 0.1 * cp.sum(cp.square(cp.pos(cost - t))), []),
    "above another number than zero": (t + 0.1 * cp.sum(cp.maximum(cost - t, 1)), []),
}


@pytest.mark.parametrize("name", LEFT)
def test_near_misses_are_left(name: str) -> None:
    objective, constraints = LEFT[name]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    assert without_level_variables(problem) == (problem, ())


def test_the_weight_of_a_level_may_change() -> None:
    problem = cp.Problem(*FORMS["at a weight that is a parameter"])
    recognise(problem)
    for price.value in (2.0, 0.5, 0.0, 3.0):
        value = problem.solve(method="screen", always=True)
        assert problem.objective.value == pytest.approx(value, rel=1e-7)
        assert problem.solve(solver="CLARABEL", **TIGHT) == pytest.approx(value, rel=1e-7)


def test_two_levels_in_one_objective() -> None:
    """Each is a sum of the largest of its own losses."""
    rng, x = np.random.default_rng(3), cp.Variable(2)
    D, levels = rng.gamma(5.0, 8.0, (200, 2)), [cp.Variable() for _ in range(2)]
    losses = [cp.maximum(2 * (x[j] - D[:, j]), 7 * (D[:, j] - x[j])) for j in range(2)]
    total = sum(t + cp.sum(cp.pos(loss - t)) / 20 for t, loss in zip(levels, losses, strict=True))
    problem = cp.Problem(cp.Minimize(total))
    whole, found = without_level_variables(problem)
    assert {level.variable.id for level in found} == {t.id for t in levels}
    assert {v.id for v in whole.variables()} == {x.id}
    assert whole.solve(solver="CLARABEL") == pytest.approx(problem.solve(solver="CLARABEL"))


def test_many_numbers_are_looked_for_in_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def counted(*args: Any) -> Any:
        read.append(args)
        return summands_of(*args)

    monkeypatch.setattr(auxiliary_variables, "summands_of", counted)
    orders = [cp.Variable() for _ in range(30)]
    costs = sum(cp.pos(k - order) + 0.1 * order for k, order in enumerate(orders))
    problem = cp.Problem(cp.Minimize(costs))
    assert without_level_variables(problem) == (problem, ())
    assert len(read) == 1
