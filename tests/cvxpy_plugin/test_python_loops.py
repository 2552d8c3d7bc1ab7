"""Terms and constraints written in a Python loop: the same problem, and every dual value."""

from __future__ import annotations

import gc
import warnings
import weakref
from importlib import import_module
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.looped_zoo import Looped

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise import python_loops as vectorise
from cvxscreen.cvxpy_plugin.recognise.expressions import read_affine
from cvxscreen.cvxpy_plugin.recognise.python_loops import (
    Row,
    Unreadable,
    _narrowed,
    bundled,
    vectorised,
)
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise

cvxpy_plugin.register()
pytestmark = pytest.mark.filterwarnings("ignore:Objective contains too many subexpressions")

_traces = import_module("cvxpy.atoms.affine.trace")
Trace = getattr(_traces, "Trace", _traces.trace)
"""The atom itself: most versions write the trace of a product as a sum of its entries."""

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


class Data(Looped):
    SEED = 8


def over(make: Any) -> Any:
    return lambda s: sum(make(s, i) for i in range(s.n))


LOOPS: dict[str, tuple[str, Any]] = {
    # name: the losses, and the objective
    "hinge": ("hinge", lambda s: s.ridge + over(lambda s, i: cp.pos(1 - s.margin(i)))(s)),
    "maximum": ("hinge", lambda s: s.ridge + over(
        lambda s, i: 0.3 * cp.maximum(0, 1 - s.margin(i)))(s)),
    "mean": ("hinge", lambda s: s.ridge + over(
        lambda s, i: cp.pos(1 - s.margin(i)) / s.n)(s)),
    "whole_mean": ("hinge", lambda s: s.ridge + over(
        lambda s, i: cp.pos(1 - s.margin(i)))(s) / s.n),
    "stacked": ("hinge", lambda s: s.ridge + cp.sum(cp.hstack(
        [cp.pos(1 - s.margin(i)) for i in range(s.n)]))),
    "weights": ("hinge", lambda s: s.ridge + over(
        lambda s, i: (1.0 + i % 3) * cp.pos(1 - s.margin(i)))(s)),
    "entries": ("hinge", lambda s: s.ridge + over(
        lambda s, i: cp.pos(1 - s.y[i] * (s.X[i, 0] * s.w[0] + s.w[1] - s.b)))(s)),
    "slopes_and_entries": ("hinge", lambda s: s.ridge + over(
        lambda s, i: cp.pos(1 - s.margin(i) - s.w[0] - 0.5 * s.w[0]))(s)),
    "absolute": ("absolute", lambda s: s.ridge + over(
        lambda s, i: cp.abs(s.X[i] @ s.w - s.r[i]))(s)),
    "absolute_and_line": ("absolute", lambda s: s.ridge + over(
        lambda s, i: cp.abs(s.X[i] @ s.w - s.r[i]) + 0.1 * (s.X[i] @ s.w))(s)),
    "huber": ("Huber", lambda s: s.ridge + over(
        lambda s, i: cp.huber(s.X[i] @ s.w - s.r[i], 0.8))(s)),
    "squared_hinge": ("squared hinge", lambda s: s.ridge + over(
        lambda s, i: cp.square(cp.pos(1 - s.margin(i))))(s)),
    "pinball": ("pinball", lambda s: s.ridge + over(
        lambda s, i: cp.maximum(0.3 * (s.X[i] @ s.w - s.r[i]), -0.7 * (s.X[i] @ s.w - s.r[i])))(s)),
    "maximise": ("hinge", lambda s: cp.Maximize(
        -s.ridge - over(lambda s, i: cp.pos(1 - s.margin(i)))(s))),
    "trace": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 - cp.trace(s.H[i] @ s.M)))(s)),
    "trace_right": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 - cp.trace(s.M @ s.H[i])))(s)),
    "multiply": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 - cp.sum(cp.multiply(s.H[i], s.M))))(s)),
    "vec": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 - s.H[i].ravel() @ cp.vec(s.M, order="F")))(s)),
    "vec_both": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 - cp.vec(s.H[i], order="C") @ cp.vec(s.M, order="C")))(s)),
    "quadratic_form": ("hinge", lambda s: s.metric + over(
        lambda s, i: cp.pos(1 + s.X[i] @ s.M @ s.X[i] - s.X[i - 1] @ (s.M @ s.X[i - 1])))(s)),
}


def problem_of(name: str, data: Data) -> Any:
    made = LOOPS[name][1](data)
    objective = made if isinstance(made, cp.Maximize) else cp.Minimize(made)
    metric = any(variable is data.M for variable in made.variables())
    row = cp.trace(data.M) <= 2.0 if metric else cp.sum(data.w) >= 0.1
    return cp.Problem(objective, [row])


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_becomes_one_expression_of_the_same_value(name: str) -> None:
    data = Data()
    problem = problem_of(name, data)
    made = vectorised(problem)
    assert made is not problem
    assert len(made.objective.expr.args) <= 4
    assert made.constraints[0] is problem.constraints[0]
    assert {v.id for v in made.variables()} == {v.id for v in problem.variables()}
    rng = np.random.default_rng(1)
    for _ in range(3):
        for variable in problem.variables():
            variable.save_value(rng.normal(size=variable.shape))
        assert made.objective.value == pytest.approx(problem.objective.value, rel=1e-12)


@pytest.mark.table
@pytest.mark.parametrize("name", LOOPS)
def test_the_answer_is_that_of_the_plain_solve(name: str) -> None:
    data, again = Data(), Data(plain=True)
    problem, plain = problem_of(name, data), problem_of(name, again)
    assert set(cvxpy_plugin.explain(problem).terms) == {LOOPS[name][0]}
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    plain.solve(solver="CLARABEL", **TIGHT)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.abs(ours.value - theirs.value).max() <= 1e-5
    dual = problem.constraints[0].dual_value
    assert dual == pytest.approx(plain.constraints[0].dual_value, abs=1e-5)


def test_what_may_change_is_not_read() -> None:
    """Data in a parameter stay in the tree; a factor that is one stays outside."""
    data, C = Data(), cp.Parameter(nonneg=True, value=1.0)
    target = cp.Parameter(value=1.0)
    loop = over(lambda s, i: cp.pos(target - s.margin(i)))(data)
    problem = cp.Problem(cp.Minimize(data.ridge + C * loop))
    assert vectorised(problem) is problem
    loop = over(lambda s, i: cp.pos(1 - s.margin(i)))(data)
    problem = cp.Problem(cp.Minimize(data.ridge + C * loop / data.n + C * cp.sum_squares(data.b)))
    made = vectorised(problem)
    assert made is not problem
    assert made.parameters() == [C]
    for value in (1.0, 0.2, 3.0):
        C.value = value
        problem.solve(method="screen", solver="CLARABEL", **TIGHT)
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        found = problem.value
        assert found == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), rel=1e-8)


def test_factors_of_several_parameters_are_kept_apart() -> None:
    """Terms that are alike but for the parameter in front of them are not one group."""
    data, factors = Data(), [cp.Parameter(nonneg=True, value=value) for value in (1.0, 2.0)]
    parts = [over(lambda s, i, C=C: C * cp.pos(1 - s.margin(i)))(data) for C in factors]
    problem = cp.Problem(cp.Minimize(data.ridge + parts[0] + parts[1]))
    made = vectorised(problem)
    assert made is not problem
    rng = np.random.default_rng(1)
    for values in ((1.0, 2.0), (0.3, 5.0)):
        for C, value in zip(factors, values, strict=True):
            C.value = value
        for variable in problem.variables():
            variable.save_value(rng.normal(size=variable.shape))
        assert made.objective.value == pytest.approx(problem.objective.value, rel=1e-12)


def test_what_is_left_alone() -> None:
    data = Data(n=vectorise.MANY - 10)
    few = cp.Problem(cp.Minimize(over(lambda s, i: cp.pos(1 - s.margin(i)))(data)))
    assert vectorised(few) is few
    data = Data()
    unlike = cp.Problem(cp.Minimize(over(lambda s, i: cp.huber(s.margin(i), 1.0 + i))(data)))
    assert vectorised(unlike) is unlike
    imaginary = cp.Problem(cp.Minimize(cp.real(over(
        lambda s, i: cp.pos(1 - s.margin(i)) + cp.real(1j * s.w[0]))(data))))
    assert vectorised(imaginary) is imaginary
    concave = cp.Problem(cp.Minimize(over(
        lambda s, i: (-1.0) ** i * cp.pos(1 - s.margin(i)))(data)))
    assert vectorised(concave) is concave
    with pytest.raises(cp.error.DCPError):
        concave.solve(method="screen")


def test_other_terms_stay_beside_the_loop() -> None:
    data = Data()
    problem = cp.Problem(cp.Minimize(
        data.ridge + over(lambda s, i: cp.pos(1 - s.y[i] * (s.X[i] @ s.w)))(data)
        + 2 * cp.norm(data.w)))
    assert len(vectorised(problem).objective.expr.args) == 3
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert report.beside
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL", **TIGHT), rel=1e-7)


def test_nan_in_the_data_is_refused_as_ever() -> None:
    data = Data()
    data.X[3, 1] = np.nan
    with np.errstate(invalid="ignore"):
        found = cvxpy_plugin.explain(problem_of("hinge", data))
    assert not found.recognised
    assert "NaN" in found.reasons[0]


def affine(s: Data) -> dict[str, Any]:
    """Affine numbers with every kind of node that is read."""
    A, X = s.H[0] + np.triu(s.X[:3]), s.X[:3]
    W = cp.Variable((3, 3), name="W")
    return {
        "constant": cp.Constant(3.0) * 2,
        "sum": 1 + s.b - 2 * s.w[1] + cp.sum(s.w) / 4,
        "matmul_vector": s.X[0] @ (A @ s.w),
        "matmul_left": (s.w @ A) @ s.X[0],
        "matmul_matrix": s.X[0] @ W @ s.X[1],
        "row_times_matrix": (s.X[0] @ W)[1],
        "matrix_times_column": cp.sum(W @ s.X[0]),
        "both_sides": cp.sum(A @ W @ X),
        "sparse": (cp.Constant(sp.csc_array(A)) @ s.w)[0],
        "trace": cp.trace(A @ W),
        "trace_right": cp.trace(W @ A),
        "trace_node": Trace(A @ W) - 2 * Trace(W @ X),
        "trace_sum": cp.trace(W + W.T @ A),
        "broadcast": cp.sum(cp.multiply(X, cp.reshape(s.w, (1, 3), order="C"))),
        "entries": 2 * W[0, 2] - W[1, 0] / 3 + W[0, 2],
        "scalar_times": cp.sum(cp.multiply(s.b, A)),
        "shifted": cp.sum(W + s.b),
        "stacked": cp.sum(cp.hstack([s.w, s.b, s.w[::-1]]) @ np.arange(7.0)),
        "reshaped": cp.sum(cp.multiply(A, cp.reshape(cp.vec(W, order="C"), (3, 3), order="F"))),
        "diagonal": cp.diag(W) @ s.X[0] + cp.sum(cp.multiply(cp.diag(s.w), A)),
        "wrapped": cp.trace(A @ cp.psd_wrap(W)),
    }


@pytest.mark.parametrize("name", affine(Data()))
def test_rows_are_those_of_the_walk(name: str) -> None:
    expr = affine(Data())[name]
    row = Row()
    row.add(expr, np.ones(expr.shape))
    truth = read_affine(expr)
    assert row.constant == pytest.approx(float(truth.constant.sum()), abs=1e-12)
    for variable in expr.variables():
        block = truth.blocks[variable.id]
        dense = block.toarray() if hasattr(block, "toarray") else np.asarray(
            block if isinstance(block, np.ndarray) else np.diag(block.entries))
        index, weights = row.entries(variable.id)
        ours = np.bincount(index, weights=weights, minlength=variable.size)
        assert np.allclose(ours, dense.ravel(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (2, 1), (1, 1), (2, 3)])
def test_weights_go_back_through_broadcasting(shape: tuple[int, ...]) -> None:
    """``<weight, z repeated> = <narrowed weight, z>``, where a version repeats unsaid."""
    rng = np.random.default_rng(0)
    weight, z = rng.standard_normal((2, 3)), rng.standard_normal(shape)
    narrowed = _narrowed(weight, shape)
    assert narrowed.shape == shape
    whole = float(np.sum(weight * np.broadcast_to(z, (2, 3))))
    assert float(np.sum(narrowed * z)) == pytest.approx(whole, rel=1e-12)


def test_what_is_not_affine_is_not_read() -> None:
    data = Data()
    for expr in (cp.abs(data.b), cp.sum_squares(data.w), data.b * cp.Parameter(value=2.0),
                 data.b * (3.0 + cp.Parameter(value=2.0)),
                 cp.cumsum(data.w)[0], cp.sum(data.M, axis=0)[0]):
        with pytest.raises(Unreadable):
            Row().add(expr, np.ones(expr.shape))


def test_a_wrong_coefficient_is_found_by_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from cvxscreen.errors import NotScreenable

    original = Row.add

    def wrong(self: Row, expr: Any, weight: Any) -> None:
        original(self, expr, weight)
        if isinstance(expr, cp.Variable):
            self.slopes[expr.id] = 1.001 * self.slopes[expr.id]

    problem = problem_of("hinge", Data())
    recognise(problem)
    monkeypatch.setattr(Row, "add", wrong)
    with pytest.raises(NotScreenable, match="does not agree"):
        recognise(problem_of("hinge", Data()))


cvxpy_plugin.register()
TIGHTER = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


class RowData(Looped):
    SEED = 4


ROW_LOOPS: dict[str, Any] = {
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


def rows_problem_of(name: str, data: RowData) -> Any:
    objective, constraints = ROW_LOOPS[name](data)
    least = objective if isinstance(objective, cp.Maximize) else cp.Minimize(objective)
    return cp.Problem(least, constraints)


def duals(problem: Any) -> np.ndarray:
    found = [c.dual_value for c in problem.constraints]
    parts = [part for v in found for part in (v if isinstance(v, list) else [v])]
    return np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])


@pytest.mark.parametrize("name", ROW_LOOPS)
def test_loops_become_one_or_two_constraints(name: str) -> None:
    problem = rows_problem_of(name, RowData())
    made, bundles = bundled(problem)
    assert bundles
    assert len(made.constraints) <= 5
    assert sum(len(bundle.parts) for bundle in bundles) >= 60
    kept = {id(c) for c in made.constraints}
    inside = {id(c) for bundle in bundles for c in bundle.parts}
    assert {id(c) for c in problem.constraints} == (kept | inside) - {
        id(bundle.whole) for bundle in bundles}


@pytest.mark.table
@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("name", ROW_LOOPS)
def test_the_answer_and_every_dual_value(name: str, mode: str) -> None:
    problem, plain = rows_problem_of(name, RowData()), rows_problem_of(name, RowData(plain=True))
    problem.solve(method="screen", solver="CLARABEL", mode=mode, **TIGHTER)
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


def test_rows_that_are_left_alone() -> None:
    few = rows_problem_of("slack", RowData(n=20))
    assert bundled(few) == (few, ())
    data, target = RowData(), cp.Parameter(value=1.0)
    rows = [data.y[i] * (data.X[i] @ data.w) >= target - data.xi[i] for i in range(data.n)]
    changing = cp.Problem(cp.Minimize(data.ridge + cp.sum(data.xi)), [*rows, data.xi >= 0])
    assert bundled(changing) == (changing, ())
    for value in (1.0, 2.0):
        target.value = value
        changing.solve(method="screen", solver="CLARABEL", **TIGHTER)
        assert changing.solver_stats.extra_stats["cvxscreen"].recognised
        found = changing.value
        assert found == pytest.approx(changing.solve(solver="CLARABEL", **TIGHTER), rel=1e-8)
    bent = cp.Problem(cp.Minimize(data.ridge + cp.sum(data.xi)), [
        cp.abs(data.X[i] @ data.w - data.r[i]) <= data.xi[i] for i in range(data.n)])
    assert bundled(bent) == (bent, ())


def test_a_row_that_is_misread_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Row.add

    def wrong(self: Row, expr: Any, weight: Any) -> None:
        original(self, expr, weight)
        if isinstance(expr, cp.Constant):
            self.constant *= 1.0 + 1e-6

    problem = rows_problem_of("slack", RowData())
    monkeypatch.setattr(Row, "add", wrong)
    assert bundled(problem) == (problem, ())


def test_values_are_given_back_and_statuses_are_cvxpys() -> None:
    data = RowData()
    problem = rows_problem_of("slack", data)
    data.w.value, data.xi.value = np.arange(3.0), None
    bundled(problem)
    assert data.w.value.tolist() == [0.0, 1.0, 2.0]
    assert data.xi.value is None
    objective, rows = ROW_LOOPS["everything"](data)
    bad = cp.Problem(cp.Minimize(objective), [*rows, data.w <= 0])
    assert bad.solve(method="screen") == np.inf
    assert bad.status == cp.INFEASIBLE
    assert all(c.dual_value is None or np.isfinite(np.asarray(c.dual_value)).all()
               for c in bad.constraints[1:])


def test_values_are_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = RowData()
    problem = rows_problem_of("slack", data)
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
    data = RowData()
    objective, rows = ROW_LOOPS["slack"](data)
    shared = cp.Problem(cp.Minimize(objective), [*rows, cp.sum(data.xi) <= 5])
    assert "shared" in cvxpy_plugin.explain(shared).reasons[0]
    assert "in the constraint" in cvxpy_plugin.explain(shared).reasons[0]


def test_single_entries_are_kept_sparse() -> None:
    """A slack occurs in one row: no array of its length is made for each."""
    data = RowData(n=200)
    row = Row()
    row.add(data.xi[7] - 2 * data.xi[-1] + cp.sum(data.xi[:2]), np.ones(()))
    index, weights = row.entries(data.xi.id)
    assert dict(zip(index.tolist(), weights.tolist(), strict=True)) == {
        0: 1.0, 1: 1.0, 7: 1.0, 199: -2.0}
    W = cp.Variable((4, 5))
    row = Row()
    row.add(W[2, 3] + W[-1, 0], np.ones(()))
    assert sorted(row.entries(W.id)[0]) == [3, 2 + 4 * 3]
    assert sp.issparse(recognise(rows_problem_of("slack", data)).standard.rows.sparse)


def test_nothing_keeps_a_problem_of_loops_alive() -> None:
    data = RowData()
    problem = rows_problem_of("slack", data)
    problem.solve(method="screen", solver="CLARABEL")
    again = problem.solve(method="screen", solver="CLARABEL")  # from memory
    assert again == pytest.approx(problem.objective.value, rel=1e-9)
    assert np.abs(duals(problem)).max() > 0.1
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None
