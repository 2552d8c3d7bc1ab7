"""Variables that an equation defines: read as what they stand for, and given back with its dual."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import without_defined_variables
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
N, D = 1_200, 5
RNG = np.random.default_rng(20261130)
R = 0.02 * RNG.standard_normal((N, D)) + 0.002 * RNG.standard_normal(D)
Y, MEAN = 0.02 * RNG.standard_normal(N), R.mean(axis=0)
SIGNS = np.sign(R[:, 0] + Y)
w, z, v, t = cp.Variable(D), cp.Variable(N), cp.Variable(N), cp.Variable()
xi, up, down = cp.Variable(N), cp.Variable(N, nonneg=True), cp.Variable(N, nonneg=True)
few, many = cp.Variable((D, 3)), cp.Variable((N // 4, 3))
LOSSES, WHOLE = z == -R @ w, [cp.sum(w) == 1, w >= 0]
RISK, SQUARES = cp.cvar(z, 0.9), cp.sum_squares(w)

READ: dict[str, tuple[Any, list[Any]]] = {
    "cvar": (cp.Minimize(RISK), [LOSSES, *WHOLE]),
    "on the right": (cp.Minimize(RISK), [-R @ w == z, *WHOLE]),
    "turned": (cp.Minimize(RISK), [R @ w + z == 0, *WHOLE]),
    "turned twice": (cp.Minimize(RISK), [-R @ w - z == 0, *WHOLE]),
    "with a mean": (cp.Minimize(RISK + cp.sum(z) / N), [LOSSES, *WHOLE]),
    "with squares": (cp.Minimize(RISK + 0.3 * cp.sum_squares(z)), [LOSSES, *WHOLE]),
    "a maximum": (cp.Maximize(-cp.sum(z) / N - 2 * RISK), [R @ w + z == 0, *WHOLE]),
    "a limit": (cp.Maximize(MEAN @ w), [RISK <= 0.02, LOSSES, *WHOLE]),
    "a limit with a mean": (
        cp.Maximize(-cp.sum(z) / N), [RISK + cp.sum(z) / N <= 0.02, LOSSES, *WHOLE]
    ),
    "bounds": (cp.Minimize(RISK), [LOSSES, z[:20] <= 0.5 * np.abs(R[:20]).max(), *WHOLE]),
    "absolute": (cp.Minimize(cp.norm1(z)), [z == R @ w - Y]),
    "huber": (cp.Minimize(cp.sum(cp.huber(z, 0.01))), [R @ w - z == Y]),
    "the largest": (cp.Minimize(cp.max(z)), [LOSSES, *WHOLE]),
    "hinge": (cp.Minimize(SQUARES + cp.sum(cp.pos(1 - z))), [z == cp.multiply(SIGNS, R @ w + t)]),
    "epigraph": (cp.Minimize(SQUARES + t), [z == R @ w - Y, cp.sum(cp.abs(z)) <= 2 * t]),
    "slack": (
        cp.Minimize(SQUARES + cp.sum(xi)),
        [z == cp.multiply(SIGNS, R @ w - t), xi >= 1 - z, xi >= 0],
    ),
    "parted": (
        cp.Minimize(0.7 * cp.sum(up) + 0.3 * cp.sum(down)), [z == R @ w - t, Y - z == up - down]
    ),
    "one by another": (
        cp.Minimize(cp.sum(cp.abs(v)) / N - 0.1 * cp.sum(z)),
        [v == z - MEAN @ w, z == R @ w, *WHOLE],
    ),
    "both in losses": (
        cp.Minimize(cp.sum(cp.abs(v)) / N + RISK), [LOSSES, v == z + MEAN @ w, *WHOLE]
    ),
    "a matrix": (
        cp.Minimize(cp.sum(cp.abs(many - Y[: N // 4, None])) + cp.sum_squares(few)),
        [many == R[: N // 4] @ few],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_the_plain_answer(name: str) -> None:
    problem = cp.Problem(*READ[name])
    found = recognise_any(problem).standard
    assert found.canonical.defined
    if name != "with squares":  # which CVXPY has a column for each of
        assert found.size < 30
    for variable in problem.variables():
        variable.save_value(None)  # CVXPY 1.9 fails to compile `cvar` of known values
    problem.solve("CLARABEL", **TIGHT)
    value, duals = problem.value, [constraint.dual_value for constraint in problem.constraints]
    problem.solve(method="screen", always=True)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert problem.value == pytest.approx(value, rel=1e-6)
    largest = max(float(np.abs(right).max()) for right in duals)
    for constraint, right in zip(problem.constraints, duals, strict=True):
        assert np.max(constraint.violation()) <= 1e-9
        size = max(1e-3 * largest, float(np.abs(right).max()))
        assert np.abs(constraint.dual_value - right).max() <= 1e-3 * size


OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "a norm": (cp.Minimize(SQUARES + cp.norm1(z) + cp.norm(z)), [z == R @ w - Y]),
    "a maximum": (cp.Minimize(SQUARES + cp.norm1(z) + cp.max(z[:300])), [z == R @ w - Y]),
    "curved": (cp.Minimize(SQUARES + cp.norm1(z)), [z == R @ w - Y, cp.norm(z) <= 2.0]),
    "no loss": (cp.Minimize(cp.sum(cp.pos(1 - R @ w)) + SQUARES + cp.sum(z)), [z == R @ w - Y]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_read_as_before(name: str) -> None:
    problem = cp.Problem(*OTHERS[name])
    assert without_defined_variables(problem)[1]
    assert not canonicalise(problem).defined


def test_what_is_no_definition_stays() -> None:
    sized = cp.Variable(N, nonneg=True)
    rows = {
        "bounded": sized == R @ w, "twice": z + R @ w == 2 * z, "scaled": 3 * z == R @ w,
        "wide": z == np.eye(N) @ v, "in itself": z == R @ w + z[0],
    }
    for name, row in rows.items():
        objective = cp.Minimize(cp.sum(cp.abs(sized if name == "bounded" else z)))
        assert not without_defined_variables(cp.Problem(objective, [row]))[1], name


def test_at_another_value_of_a_parameter() -> None:
    shift, level = cp.Parameter(value=0.0), cp.Parameter(nonneg=True, value=1.0)
    made = [z == R @ w - Y + shift]
    problem = cp.Problem(cp.Minimize(SQUARES + level * cp.norm1(z)), made)
    for values in ((0.0, 1.0), (0.0, 2.0), (0.01, 2.0)):
        shift.value, level.value = values
        problem.solve(method="screen", always=True)
        dual = made[0].dual_value
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        problem.solve("CLARABEL", **TIGHT)
        assert np.abs(made[0].dual_value - dual).max() <= 1e-4 * values[1]


def test_another_definition_is_refused() -> None:
    found = recognise_any(cp.Problem(*READ["absolute"]))
    (one,) = found.standard.canonical.defined
    other = one._replace(definition=one.definition._replace(expr=1.001 * one.definition.expr))
    canonical = found.standard.canonical._replace(defined=(other,))
    wrong = found._replace(standard=found.standard._replace(canonical=canonical))
    with pytest.raises(NotScreenable):
        check(wrong)
