"""``explain``, ``certify`` and ``verify``: what a problem is, and whether answers are right."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from importlib import import_module
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import BOTH, problem_of
from cvxpy_plugin.zoo import REFUSED, SPELLINGS, Data

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.standard import version
from cvxscreen.errors import InvalidInput, NotScreenable

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def made(name: str, n: int = 60) -> Any:
    return next(entry for entry in SPELLINGS if entry.name == name).make(Data(n=n))


def state(problem: Any) -> tuple[Any, ...]:
    values = [np.array(v.value, dtype=float) for v in problem.variables()]
    return problem.status, problem.value, values


@pytest.mark.table
@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem that is not DPP")
@pytest.mark.parametrize("name", [entry.name for entry in SPELLINGS])
def test_a_plain_answer_is_certified(name: str) -> None:
    problem = made(name)
    problem.solve(solver="CLARABEL", **TIGHT)
    proof = cvxscreen.certify(problem)
    if name == "metric" and version() < (1, 9, 3):
        assert not proof.ok  # these releases drop the squares of a matrix with attributes
        return
    assert proof.ok, proof.reason
    assert proof.relative_gap <= 1e-6
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    assert proof.primal == pytest.approx(sign * problem.value, rel=1e-6)


@pytest.mark.parametrize("solver", ["SCS", "OSQP"])
def test_the_answer_of_a_first_order_solver(solver: str) -> None:
    """A loose answer is refused for what it is off, not for its dual values."""
    problem, truth = made("pos", n=200), made("pos", n=200)
    best = truth.solve(solver="CLARABEL", **TIGHT)
    problem.solve(solver=solver)
    proof = cvxscreen.certify(problem, tol=1e-3)
    assert proof.ok, proof.reason
    off = problem.value - best
    assert off <= proof.gap <= off + 1e-5 * abs(best)


@pytest.mark.parametrize("name", ["pos", "slack", "huber", "bounds", "elastic_weights"])
@pytest.mark.parametrize("moved", [1e-2, 0.3])
def test_a_bad_answer_is_refused(name: str, moved: float) -> None:
    problem = made(name)
    best = problem.solve(solver="CLARABEL", **TIGHT)
    rng = np.random.default_rng(0)
    for variable in problem.variables():
        there = variable.value + moved * rng.standard_normal(variable.shape)
        variable.save_value(there)
    proof = cvxscreen.certify(problem)
    assert not proof.ok
    assert proof.reason
    lost = problem.objective.value - best
    assert proof.violation > 1e-6 or proof.gap >= lost - 1e-10 * abs(best)  # Clarabel's own digits


def test_slacks_that_waste_are_refused() -> None:
    """The coordinates are optimal; only the slacks are larger than they need be."""
    problem = made("slack")
    best = problem.solve(solver="CLARABEL", **TIGHT)
    (xi,) = (v for v in problem.variables() if v.name() == "xi")
    xi.save_value(xi.value + 0.01)
    proof = cvxscreen.certify(problem)
    assert not proof.ok
    assert "slack" in proof.reason
    assert proof.gap >= problem.objective.value - best - 1e-6


def test_slacks_that_cheat_are_refused() -> None:
    problem = made("slack")
    problem.solve(solver="CLARABEL", **TIGHT)
    (xi,) = (v for v in problem.variables() if v.name() == "xi")
    xi.save_value(0.0 * xi.value)
    proof = cvxscreen.certify(problem)
    assert not proof.ok
    assert proof.violation > 0.1


def test_a_changed_parameter_is_noticed() -> None:
    problem = made("parameters")
    problem.solve(solver="CLARABEL", **TIGHT)
    assert cvxscreen.certify(problem).ok
    problem.parameters()[0].value = 3.0 * problem.parameters()[0].value
    assert not cvxscreen.certify(problem).ok


@pytest.mark.table
@pytest.mark.parametrize("name", BOTH)
def test_losses_beside_another_convex_part(name: str) -> None:
    problem = problem_of(name)
    problem.solve(solver="CLARABEL", **TIGHT)
    assert cvxscreen.certify(problem, tol=1e-5).ok
    for variable in problem.variables():
        variable.save_value(variable.value + 0.1)
    assert not cvxscreen.certify(problem, tol=1e-5).ok


def test_nothing_is_changed() -> None:
    problem = made("bounds")
    problem.solve(solver="CLARABEL")
    before, duals = state(problem), [c.dual_value for c in problem.constraints]
    cvxscreen.certify(problem)
    after = state(problem)
    assert before[:2] == after[:2]
    assert all(np.array_equal(a, b) for a, b in zip(before[2], after[2], strict=True))
    for had, constraint in zip(duals, problem.constraints, strict=True):
        assert np.array_equal(had, constraint.dual_value)


def test_what_cannot_be_certified_says_why() -> None:
    problem = made("pos")
    with pytest.raises(InvalidInput, match=r"variable w has no value.*solve the problem first"):
        cvxscreen.certify(problem)
    problem.solve(solver="CLARABEL")
    with pytest.raises(InvalidInput, match="tol"):
        cvxscreen.certify(problem, tol=-1.0)
    problem.variables()[0].save_value(np.full(problem.variables()[0].shape, np.nan))
    with pytest.raises(InvalidInput, match="NaN"):
        cvxscreen.certify(problem)
    refused = REFUSED["logistic"][0]()
    refused.solve(solver="CLARABEL")
    with pytest.raises(NotScreenable, match="logistic"):
        cvxscreen.certify(refused)
    with pytest.raises(InvalidInput, match="`problem`"):
        cvxscreen.certify(3)


def test_explain_a_recognised_problem() -> None:
    data = Data()
    constraints = [cp.sum(data.w) == 1, cp.norm(data.w) <= 1]
    objective = data.ridge + data.hinge + cp.norm1(data.residual)
    problem = cp.Problem(cp.Minimize(objective), constraints)
    found = cvxpy_plugin.explain(problem)
    assert found.recognised
    assert found.reasons == ()
    assert found.terms == {"hinge": 36, "absolute": 36}
    assert (found.coordinates, found.unpenalised) == (5, 1)
    assert found.side == (("zero", 1), ("soc", 5))
    assert problem.status is None
    for words in ("hinge terms", "absolute terms", "unpenalised", "soc"):
        assert words in str(found)


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "three_rows"])
def test_explain_says_why_not(name: str) -> None:
    found = cvxpy_plugin.explain(REFUSED[name][0]())
    assert not found.recognised
    assert len(found.reasons) == 1
    assert found.reasons[0] in str(found)


def test_records_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        cvxpy_plugin.explain(made("pos", n=36)).recognised = False  # type: ignore[misc]


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP"])
def test_verify_agrees_and_prints(solver: str) -> None:
    problem = made("slack", n=500)
    found = cvxscreen.verify(problem, solver=solver)
    assert found.agrees
    assert found.terms == 500
    assert found.kept < 500
    assert found.primal <= 1e-4
    assert len(found.duals) == 2
    assert max(found.duals.values()) <= 1e-3
    text = str(found)
    for words in ("agree", "objective", "CPU seconds", "dual of 1: 0.0 <= xi", solver):
        assert words in text
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised


def test_verify_of_a_refused_problem_compares_two_plain_solves() -> None:
    found = cvxscreen.verify(REFUSED["logistic"][0]())
    assert found.agrees
    assert not found.report.recognised


def test_verify_of_an_infeasible_problem() -> None:
    data = Data()
    bad = [cp.sum(data.w) == 1, data.w <= 0]
    found = cvxscreen.verify(cp.Problem(cp.Minimize(data.ridge + data.hinge), bad))
    assert found.status == (cp.INFEASIBLE, cp.INFEASIBLE)
    assert found.agrees


def test_verify_notices_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("cvxscreen.cvxpy_plugin.inspection")
    data, C = Data(), cp.Parameter(nonneg=True, value=1.0)
    problem = cp.Problem(cp.Minimize(data.ridge + C * data.hinge))

    def wrong(problem: Any, *_: Any, **__: Any) -> None:
        C.value = 1.001
        problem.solve(solver="CLARABEL")
        problem.solver_stats.extra_stats = {"cvxscreen": cvxpy_plugin.Report(True)}

    monkeypatch.setattr(module, "solve", wrong)
    found = module.verify(problem)
    assert not found.agrees
    assert "DO NOT AGREE" in str(found)


def test_verify_with_several_solvers() -> None:
    problem = made("slack", n=500)
    found = cvxscreen.verify(problem, solver=["CLARABEL", "OSQP", "SCS"])
    assert found.agrees
    assert found.whole
    assert [run.report.solver for run in found.runs] == ["CLARABEL", "OSQP", "SCS"]
    text = str(found)
    assert text.count("reduced") == 4
    assert text.count("500") >= 3
    for line in found.lines:
        assert line[2] == cp.OPTIMAL
        assert float(line[4]) <= 1e-6
        assert float(line[6]) <= 1e-3


def test_verify_with_a_solver_that_cannot_take_the_problem() -> None:
    found = cvxscreen.verify(made("norm_ball"), solver=["CLARABEL", "OSQP"])
    assert not found.whole
    assert found.agrees
    assert len(found.runs) == 1
    assert "failed" in str(found)
    with pytest.raises(cp.error.SolverError):
        cvxscreen.verify(made("norm_ball"), solver="OSQP")
    with pytest.raises(InvalidInput, match="empty"):
        cvxscreen.verify(made("slack"), solver=[])
