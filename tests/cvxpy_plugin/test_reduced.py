"""A smaller problem to solve with anything, and the way back."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import BOTH, problem_of
from cvxpy_plugin.zoo import SPELLINGS, Data

from cvxscreen import cvxpy_plugin
from cvxscreen.errors import NotCertified, NotScreenable

cvxpy_plugin.register()


def made(name: str, n: int = 36) -> Any:
    return next(entry for entry in SPELLINGS if entry.name == name).make(Data(n=n))


@pytest.mark.parametrize("name", ["slack", "huber", "slacks_epsilon", "squared_hinge", "bounds"])
def test_reduce_solve_restore(name: str) -> None:
    problem, plain = made(name, n=600), made(name, n=600)
    reduced = cvxpy_plugin.reduce(problem)
    assert problem.status is None
    tight = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    reduced.problem.solve(solver="CLARABEL", **tight)
    proof = reduced.restore()
    assert proof.ok
    assert problem.status == cp.OPTIMAL
    plain.solve(solver="CLARABEL", **tight)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.allclose(ours.value, theirs.value, atol=1e-4)
    for ours, theirs in zip(problem.constraints, plain.constraints, strict=True):
        assert np.allclose(ours.dual_value, theirs.dual_value, atol=1e-4)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.kept + sum(report.fixed.values()) == report.terms == 600
    assert "Screening" in str(reduced)


PROVEN = [name for name in BOTH if name != "logistic_intercept"]


@pytest.mark.table
@pytest.mark.parametrize("name", PROVEN)
def test_reduce_solve_restore_beside_another_convex_part(name: str) -> None:
    """Terms kept word for word and maxima of many pieces: the small problem, and the way back."""
    tight = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    problem, plain = problem_of(name), problem_of(name)
    reduced = cvxpy_plugin.reduce(problem)
    assert problem.status is None
    with pytest.raises(NotCertified, match="has not been solved"):
        reduced.restore()
    reduced.problem.solve(solver="CLARABEL", **tight)
    proof = reduced.restore()
    assert proof.ok
    assert proof.relative_gap <= 1e-6
    assert problem.status == cp.OPTIMAL
    plain.solve(solver="CLARABEL", **tight)
    sign = -1.0 if name == "maximise" else 1.0
    assert sign * reduced.problem.value == pytest.approx(plain.value, rel=1e-6)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        size = max(1.0, np.abs(theirs.value).max())
        assert np.abs(ours.value - theirs.value).max() <= 5e-5 * size
    for ours, theirs in zip(problem.constraints, plain.constraints, strict=True):
        size = max(1.0, np.abs(theirs.dual_value).max())
        assert np.abs(ours.dual_value - theirs.dual_value).max() <= 5e-5 * size
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.beside
    assert (report.mode, report.fixed.get("predicted", 0)) == ("safe", 0)
    assert report.kept < 0.6 * report.terms
    sizes = [sum(c.size for c in p.constraints) for p in (reduced.problem, plain)]
    assert name not in ("slack", "slack_sum_fixed") or sizes[0] < 0.6 * sizes[1]


@pytest.mark.parametrize("name", [entry.name for entry in SPELLINGS if "elastic" in entry.name])
def test_reduce_of_an_elastic_net(name: str) -> None:
    """Features that are proven zero are not in the small problem, and are restored as zeros."""
    tight = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    entry = next(entry for entry in SPELLINGS if entry.name == name)
    problem, plain = entry.make(Data(n=200, d=12)), entry.make(Data(n=200, d=12))
    reduced = cvxpy_plugin.reduce(problem)
    reduced.problem.solve(solver="CLARABEL", **tight)
    assert reduced.restore().ok
    plain.solve(solver="CLARABEL", **tight)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.abs(ours.value - theirs.value).max() <= 5e-5
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.kept < report.terms or "squares" in name  # a squared loss has one piece
    if name == "elastic_weights":
        assert report.dropped >= 3


@pytest.mark.parametrize("loss", [cp.norm1, cp.sum_squares])
def test_reduce_to_nothing(loss: Any) -> None:
    """Where every feature is dropped a problem without variables is left, and can be solved."""
    X, r = np.random.default_rng(0).standard_normal((60, 2)), np.linspace(-1.0, 1.0, 60)
    w = cp.Variable(2)
    cost = 0.5 * cp.sum_squares(w) + 80.0 * cp.norm1(w) + 0.5 * loss(X @ w - r)
    problem = cp.Problem(cp.Minimize(cost))
    reduced = cvxpy_plugin.reduce(problem)
    assert reduced.screening.dropped.all()
    reduced.problem.solve(solver="CLARABEL")
    assert reduced.restore().ok
    assert not w.value.any()
    assert problem.value == pytest.approx(float(0.5 * loss(r).value), rel=1e-7)


def test_reduce_where_nothing_can_be_proven_says_so() -> None:
    with pytest.raises(NotScreenable, match="nothing can be proven"):
        cvxpy_plugin.reduce(problem_of("logistic_intercept"))


def test_reduce_of_an_infeasible_problem_beside_says_so() -> None:
    data = Data()
    bad = [cp.sum(data.w) == 1, data.w <= 0]
    hinge = cp.sum(cp.pos(1 - data.X @ data.w))
    with pytest.raises(NotCertified, match="infeasible"):
        cvxpy_plugin.reduce(cp.Problem(cp.Minimize(data.ridge + hinge + cp.norm(data.w)), bad))


@pytest.mark.parametrize("beside", [False, True])
def test_restore_of_a_loose_solve_is_refused_by_its_certificate(beside: bool) -> None:
    problem = problem_of("slack_sum_fixed") if beside else made("bounds", n=400)
    reduced = cvxpy_plugin.reduce(problem)
    reduced.problem.solve(solver="SCS", eps=1e-2 if beside else 1e-3)
    with pytest.warns(UserWarning, match="may be inaccurate"):
        proof = reduced.restore(tol=1e-10 if beside else 1e-9)
    assert not proof.ok
    assert problem.status == cp.OPTIMAL_INACCURATE


def test_restore_before_a_solve_says_what_to_do() -> None:
    problem = made("slack")
    reduced = cvxpy_plugin.reduce(problem)
    with pytest.raises(NotCertified, match=r"has not been solved.*reduced.problem.solve\(\)"):
        reduced.restore()
    assert problem.status is None
    assert all(variable.value is None for variable in problem.variables())


@pytest.mark.parametrize("beside", [False, True])
def test_restore_after_a_parameter_has_changed_is_refused(beside: bool) -> None:
    """The reduced problem is that of the old value: its certificate would be of another problem."""
    data, C = Data(n=200), cp.Parameter(nonneg=True, value=1.0, name="C")
    cost = data.ridge + C * data.hinge + (cp.norm(data.w) if beside else 0.0)
    problem = cp.Problem(cp.Minimize(cost))
    reduced = cvxpy_plugin.reduce(problem)
    reduced.problem.solve(solver="CLARABEL")
    C.value = 0.001
    with pytest.raises(NotCertified, match=r"parameter C has changed.*reduce\(prob\)"):
        reduced.restore()
    assert problem.status is None
    C.value = 1.0
    assert reduced.restore(tol=1e-4).ok


def test_reduce_refuses_with_the_reason() -> None:
    data = Data()
    problem = cp.Problem(cp.Minimize(cp.norm1(data.w) + data.hinge))
    with pytest.raises(NotScreenable, match="no squared norm"):
        cvxpy_plugin.reduce(problem)


def test_reduce_beside_an_equality_and_an_intercept_refuses() -> None:
    """Nothing can be proven there, so nothing unreduced is handed out as if it were reduced."""
    s = Data()
    loss = cp.sum(cp.pos(1 - cp.multiply(s.y, s.X @ s.w + s.b)))
    problem = cp.Problem(cp.Minimize(s.ridge + loss), [cp.sum(s.w) == 0])
    with pytest.raises(NotScreenable, match="beside an equality constraint"):
        cvxpy_plugin.reduce(problem)


def test_reduce_of_an_infeasible_problem_says_so() -> None:
    data = Data()
    bad = [cp.sum(data.w) == 1, data.w <= 0]
    with pytest.raises(NotCertified, match="infeasible"):
        cvxpy_plugin.reduce(cp.Problem(cp.Minimize(data.ridge + data.hinge), bad))
