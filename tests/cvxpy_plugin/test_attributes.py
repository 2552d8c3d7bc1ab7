"""Variables with attributes: their values lowered and recovered, their squares never lost."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.solution import Solution

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import standard
from cvxscreen.cvxpy_plugin.recognise.expressions import free_entries, full_value
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.standard import without_bare_attributes

cvxpy_plugin.register()
NAMES = ("PSD", "NSD", "symmetric", "diag")


def drawn(name: str, d: int = 3) -> Any:
    rng = np.random.default_rng(2)
    if name == "diag":
        return sp.diags_array(rng.normal(size=d))
    half = rng.normal(size=(d, d))
    return {"PSD": half @ half.T, "NSD": -half @ half.T}.get(name, half + half.T)


def full(value: Any) -> np.ndarray:
    return value.toarray() if sp.issparse(value) else np.asarray(value)


@pytest.mark.parametrize("name", NAMES)
def test_values_there_and_back_as_cvxpy_has_them(name: str) -> None:
    variable = cp.Variable((3, 3), **{name: True})
    value = drawn(name)
    small = free_entries(variable, value)
    assert small.size == (3 if name == "diag" else 6)
    assert np.array_equal(full(full_value(variable, small)), full(value))
    # CVXPY's own way back, which any reduction has.
    reduction = CvxAttr2Constr(reduce_bounds=True)
    made, inverse = reduction.apply(cp.Problem(cp.Minimize(cp.sum(variable))))
    behind = next(v for v in made.variables() if v.size == small.size)
    solution = Solution(cp.OPTIMAL, 0.0, {behind.id: small.reshape(behind.shape)}, {}, {})
    theirs = reduction.invert(solution, inverse).primal_vars[variable.id]
    assert np.array_equal(full(theirs), full(value))


def test_other_variables_are_left_alone() -> None:
    variable = cp.Variable((2, 3), nonneg=True)
    value = -np.arange(6.0).reshape(2, 3)
    assert np.array_equal(free_entries(variable, value), value)
    assert np.array_equal(full_value(variable, value), value)  # not projected


def metric(M: Any, square: Any) -> Any:
    rng = np.random.default_rng(5)
    H = rng.normal(size=(80, 3, 3))
    loss = cp.sum(cp.pos(1 - (H + H.transpose(0, 2, 1)).reshape(80, -1) @ cp.vec(M, order="F")))
    rows = [cp.trace(M) <= 3.0]
    return cp.Problem(cp.Minimize(20.0 * square + loss), rows)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_squares_of_such_variables_are_never_lost(
    name: str, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the detour of old versions and without it: the same problem, value and dual values."""
    if old:
        monkeypatch.setattr(standard, "version", lambda: (1, 8, 0))
    M = cp.Variable((3, 3), **{name: True})
    problem = metric(M, cp.sum_squares(M))
    plain = metric(M, cp.sum_squares(1.0 * M))  # no bare variable: kept by every version
    assert recognise(problem).problem.quadratic.floor > 0
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    problem.solve(method="screen", solver="CLARABEL", **tight)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    found = problem.value, full(M.value), problem.constraints[0].dual_value
    plain.solve(solver="CLARABEL", **tight)
    assert found[0] == pytest.approx(plain.value, rel=1e-8)
    assert np.abs(found[1] - full(M.value)).max() <= 1e-5
    assert found[2] == pytest.approx(plain.constraints[0].dual_value, abs=1e-6)


def test_the_detour_shares_the_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    M, w = cp.Variable((3, 3), PSD=True), cp.Variable(2)
    problem, other = metric(M, cp.sum_squares(M)), cp.Problem(cp.Minimize(cp.sum_squares(w)))
    monkeypatch.setattr(standard, "version", lambda: (1, 9, 2))
    made = without_bare_attributes(problem)
    assert made is not problem
    assert made.constraints[0] is problem.constraints[0]
    assert without_bare_attributes(other) is other
    monkeypatch.setattr(standard, "version", lambda: (1, 9, 3))
    assert without_bare_attributes(problem) is problem
