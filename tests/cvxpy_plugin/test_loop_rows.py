"""Constraints written in a Python loop: one to CVXPY, and every dual value where it belongs."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.looped_zoo import Looped

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.python_loops import Row, bundled
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise

cvxpy_plugin.register()
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


class Data(Looped):
    SEED = 4


LOOPS: dict[str, Any] = {
    "slack": lambda s: (s.ridge + cp.sum(s.xi), [
        *(s.y[i] * (s.X[i] @ s.w + s.b) >= 1 - s.xi[i] for i in range(s.n)), s.xi >= 0]),
    "both_sides": lambda s: (s.ridge + cp.sum(s.xi), [
        row for i in range(s.n)
        for row in (s.X[i] @ s.w - s.r[i] <= s.xi[i], s.xi[i] >= s.r[i] - s.X[i] @ s.w)]),
    "equalities": lambda s: (s.ridge + cp.norm1(s.e), [
        s.e[i] == s.X[i] @ s.w + s.b - s.r[i] for i in range(s.n)]),
    "ones": lambda s: (s.ridge + cp.sum(s.xi), [
        *(s.y[i] * (s.X[i : i + 1] @ s.w + s.b) + s.xi[i : i + 1] >= 1 for i in range(s.n)),
        s.xi >= 0]),
    "everything": lambda s: (s.ridge + cp.sum(s.xi), [
        cp.norm(s.w) <= 1.1, *(s.xi[i] >= 0 for i in range(s.n)), cp.sum(s.w) == 0.4,
        *(1 - s.y[i] * (s.X[i] @ s.w) <= s.xi[i] for i in range(s.n)), s.w <= 0.6]),
    "beside": lambda s: (s.ridge + cp.sum(s.xi) + 2 * cp.norm(s.w), [
        *(s.y[i] * (s.X[i] @ s.w) >= 1 - s.xi[i] for i in range(s.n)), s.xi >= 0]),
    "maxima": lambda s: (s.ridge + cp.sum(s.xi), [
        row for i in range(s.n) for row in (
            s.xi[i] >= s.X[i] @ s.w, s.xi[i] >= s.r[i] - s.X[i - 1] @ s.w, s.xi[i] >= 0)]),
    "metric": lambda s: (s.metric + cp.sum(s.xi), [
        *(cp.trace(s.H[i] @ s.M) >= 1 - s.xi[i] for i in range(s.n)), s.xi >= 0]),
    "maximise": lambda s: (cp.Maximize(-s.ridge - cp.sum(s.xi)), [
        *(s.y[i] * (s.X[i] @ s.w + s.b) >= 1 - s.xi[i] for i in range(s.n)), s.xi >= 0]),
}


def problem_of(name: str, data: Data) -> Any:
    objective, constraints = LOOPS[name](data)
    least = objective if isinstance(objective, cp.Maximize) else cp.Minimize(objective)
    return cp.Problem(least, constraints)


def duals(problem: Any) -> np.ndarray:
    found = [c.dual_value for c in problem.constraints]
    parts = [part for v in found for part in (v if isinstance(v, list) else [v])]
    return np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])


@pytest.mark.parametrize("name", LOOPS)
def test_loops_become_one_or_two_constraints(name: str) -> None:
    problem = problem_of(name, Data())
    made, bundles = bundled(problem)
    assert bundles
    assert len(made.constraints) <= 5
    assert sum(len(bundle.parts) for bundle in bundles) >= 60
    kept = {id(c) for c in made.constraints}
    inside = {id(c) for bundle in bundles for c in bundle.parts}
    assert {id(c) for c in problem.constraints} == (kept | inside) - {
        id(bundle.whole) for bundle in bundles}


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("name", LOOPS)
def test_the_answer_and_every_dual_value(name: str, mode: str) -> None:
    problem, plain = problem_of(name, Data()), problem_of(name, Data(plain=True))
    problem.solve(method="screen", solver="CLARABEL", mode=mode, **TIGHT)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # as far as it gets
        plain.solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    assert problem.status == cp.OPTIMAL
    assert problem.value == pytest.approx(plain.value, rel=1e-8)
    size = 1e-5 if name == "metric" else 1e-6  # of rank one: flat around its vector
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.abs(ours.value - theirs.value).max() <= size
    for ours, theirs in zip(problem.constraints, plain.constraints, strict=True):
        assert np.shape(ours.dual_value) == np.shape(theirs.dual_value)
    assert np.abs(duals(problem)).max() > 0.1
    assert np.abs(duals(problem) - duals(plain)).max() <= size


def test_what_is_left_alone() -> None:
    few = problem_of("slack", Data(n=20))
    assert bundled(few) == (few, ())
    data, target = Data(), cp.Parameter(value=1.0)
    rows = [data.y[i] * (data.X[i] @ data.w) >= target - data.xi[i] for i in range(data.n)]
    changing = cp.Problem(cp.Minimize(data.ridge + cp.sum(data.xi)), [*rows, data.xi >= 0])
    assert bundled(changing) == (changing, ())
    for value in (1.0, 2.0):
        target.value = value
        changing.solve(method="screen", solver="CLARABEL", **TIGHT)
        assert changing.solver_stats.extra_stats["cvxscreen"].recognised
        found = changing.value
        assert found == pytest.approx(changing.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
    bent = cp.Problem(cp.Minimize(data.ridge + cp.sum(data.xi)), [
        cp.abs(data.X[i] @ data.w - data.r[i]) <= data.xi[i] for i in range(data.n)])
    assert bundled(bent) == (bent, ())


def test_a_row_that_is_misread_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Row.add

    def wrong(self: Row, expr: Any, weight: Any) -> None:
        original(self, expr, weight)
        if isinstance(expr, cp.Constant):
            self.constant *= 1.0 + 1e-6

    problem = problem_of("slack", Data())
    monkeypatch.setattr(Row, "add", wrong)
    assert bundled(problem) == (problem, ())


def test_values_are_given_back_and_statuses_are_cvxpys() -> None:
    data = Data()
    problem = problem_of("slack", data)
    data.w.value, data.xi.value = np.arange(3.0), None
    bundled(problem)
    assert data.w.value.tolist() == [0.0, 1.0, 2.0]
    assert data.xi.value is None
    objective, rows = LOOPS["everything"](data)
    bad = cp.Problem(cp.Minimize(objective), [*rows, data.w <= 0])
    assert bad.solve(method="screen") == np.inf
    assert bad.status == cp.INFEASIBLE
    assert all(c.dual_value is None or np.isfinite(np.asarray(c.dual_value)).all()
               for c in bad.constraints[1:])


def test_values_are_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data()
    problem = problem_of("slack", data)
    data.w.value = np.arange(3.0)

    def broken(self: Row) -> list[int]:
        if data.w.value.tolist() != [0.0, 1.0, 2.0]:  # the values are lent
            raise ArithmeticError
        return seen(self)

    seen = Row.seen
    monkeypatch.setattr(Row, "seen", broken)
    with pytest.raises(ArithmeticError):
        bundled(problem)
    assert data.w.value.tolist() == [0.0, 1.0, 2.0]


def test_a_refusal_names_a_constraint_of_the_users() -> None:
    data = Data()
    objective, rows = LOOPS["slack"](data)
    shared = cp.Problem(cp.Minimize(objective), [*rows, cp.sum(data.xi) <= 5])
    assert "shared" in cvxpy_plugin.explain(shared).reasons[0]
    assert "in the constraint" in cvxpy_plugin.explain(shared).reasons[0]


def test_single_entries_are_kept_sparse() -> None:
    """A slack occurs in one row: no array of its length is made for each."""
    data = Data(n=200)
    row = Row()
    row.add(data.xi[7] - 2 * data.xi[-1] + cp.sum(data.xi[:2]), np.ones(()))
    index, weights = row.entries(data.xi.id)
    assert dict(zip(index.tolist(), weights.tolist(), strict=True)) == {
        0: 1.0, 1: 1.0, 7: 1.0, 199: -2.0}
    W = cp.Variable((4, 5))
    row = Row()
    row.add(W[2, 3] + W[-1, 0], np.ones(()))
    assert sorted(row.entries(W.id)[0]) == [3, 2 + 4 * 3]
    assert sp.issparse(recognise(problem_of("slack", data)).standard.rows.sparse)


def test_nothing_keeps_a_problem_of_loops_alive() -> None:
    data = Data()
    problem = problem_of("slack", data)
    problem.solve(method="screen", solver="CLARABEL")
    again = problem.solve(method="screen", solver="CLARABEL")  # from memory
    assert again == pytest.approx(problem.objective.value, rel=1e-9)
    assert np.abs(duals(problem)).max() > 0.1
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None
