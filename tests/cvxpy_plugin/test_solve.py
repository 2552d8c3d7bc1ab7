"""``prob.solve(method="screen")`` gives the plain solve's value, variables and dual values."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.zoo import SPELLINGS, Data, Spelling

from cvxscreen import cvxpy_plugin

cvxpy_plugin.register()

# CVXPY says so of the plain solve when the data are parameters.
pytestmark = pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
NAMES = [entry.name for entry in SPELLINGS]
QUADRATIC = [entry for entry in SPELLINGS if entry.qp]


def duals(problem: Any) -> list[np.ndarray]:
    out = []
    for constraint in problem.constraints:
        value = constraint.dual_value
        parts = value if isinstance(value, list) else [value]
        out += [np.asarray(part, dtype=float) for part in parts]
    return out


def answer(problem: Any) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    values = [np.array(variable.value) for variable in problem.variables()]
    return float(problem.value), values, duals(problem)


@cache
def plain_answer(name: str, n: int, d: int) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """The plain solve, as tight as Clarabel can still call it optimal."""
    for tol in (1e-11, 1e-10, 1e-9, 1e-8):
        problem = next(entry for entry in SPELLINGS if entry.name == name).make(
            Data(n=n, d=d, plain=True))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            problem.solve(solver="CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        if problem.status == cp.OPTIMAL:
            return answer(problem)
    raise AssertionError(f"{name}: no optimal plain solve")


def compare(found: Any, truth: Any, *, value: float, primal: float, dual: float) -> None:
    assert found[0] == pytest.approx(truth[0], rel=value, abs=value)
    for ours, theirs in zip(found[1], truth[1], strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= primal * max(1.0, np.abs(theirs).max())
    for ours, theirs in zip(found[2], truth[2], strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max(initial=0.0) <= dual * max(1.0, np.abs(theirs).max())


@pytest.mark.table
@pytest.mark.parametrize("entry", SPELLINGS, ids=NAMES)
def test_clarabel(entry: Spelling) -> None:
    """Both sides at the same tight tolerances."""
    problem = entry.make(Data())
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    assert problem.status == cp.OPTIMAL
    assert problem.solver_stats.solver_name == "CLARABEL"
    truth = plain_answer(entry.name, 36, 4)
    compare(answer(problem), truth, value=1e-7, primal=1e-5, dual=1e-5)


def agrees(entry: Spelling, solver: str) -> None:
    """The screened answer by `solver` is that of the full problem."""
    problem = entry.make(Data())
    problem.solve(method="screen", solver=solver)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert problem.status == cp.OPTIMAL
    compare(answer(problem), plain_answer(entry.name, 36, 4), value=1e-7, primal=1e-4, dual=1e-4)


def in_turn(entries: list[Spelling], turn: int) -> list[Any]:
    """A third of the spellings for each first-order solver and HiGHS; all for all with `--long`."""
    return [
        pytest.param(entry, id=entry.name, marks=[] if number % 3 == turn else [pytest.mark.long])
        for number, entry in enumerate(entries)
    ]


@pytest.mark.parametrize("entry", in_turn(SPELLINGS, 0))
def test_scs(entry: Spelling) -> None:
    """A first-order method: eps 1e-9 on the reduced problem leaves 1e-4 in flat directions."""
    agrees(entry, "SCS")


@pytest.mark.parametrize("entry", in_turn(QUADRATIC, 1))
def test_osqp(entry: Spelling) -> None:
    """Polished, so nearly as exact as an interior point; the rest is the plain solve's."""
    agrees(entry, "OSQP")


@pytest.mark.parametrize("entry", in_turn(QUADRATIC, 2))
def test_highs(entry: Spelling) -> None:
    """HiGHS sees affine constraints and no bounds on variables, where it is right."""
    agrees(entry, "HIGHS")


def test_a_wrong_answer_of_highs_does_not_reach_the_user() -> None:
    """CVXPY 1.9.0 to 1.9.3 hand HiGHS bounds that are NaN: an error, or w = 0 called optimal."""
    data = Data(n=1000, d=6)
    problem = cp.Problem(cp.Minimize(data.ridge + data.hinge))
    for solver in ("HIGHS", "CLARABEL"):
        problem.solve(method="screen", solver=solver)
        assert problem.solver_stats.solver_name == solver
        assert problem.value == pytest.approx(plain_answer("pos", 1000, 6)[0], rel=1e-7)


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("name", ["pos", "slack", "slacks_epsilon", "huber", "bounds", "metric"])
def test_larger_problems_are_reduced_and_the_same(name: str, mode: str) -> None:
    entry = next(entry for entry in SPELLINGS if entry.name == name)
    data = Data(n=1500, d=5)
    problem = entry.make(data)
    problem.solve(method="screen", solver="CLARABEL", mode=mode, **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.mode == mode
    assert report.terms == 1500
    if not problem.constraints or name in ("slack", "slacks_epsilon"):
        assert report.kept < 1500 or name == "metric"
    compare(answer(problem), plain_answer(name, 1500, 5), value=1e-7, primal=1e-4, dual=1e-4)


@pytest.mark.parametrize("name", ["pos", "slack", "norm1", "huber", "squared_hinge"])
def test_the_built_in_solver_needs_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = next(entry for entry in SPELLINGS if entry.name == name)
    truth = plain_answer(entry.name, 36, 4)
    problem = entry.make(Data())
    original = cp.Problem.get_problem_data

    def forbidden(self: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError("CVXPY was asked to compile a problem")

    monkeypatch.setattr(cp.Problem, "get_problem_data", forbidden)
    problem.solve(method="screen", solver="Builtin", tol=1e-10)
    monkeypatch.setattr(cp.Problem, "get_problem_data", original)
    assert problem.status == cp.OPTIMAL
    assert problem.solver_stats.solver_name == "builtin"
    compare(answer(problem), truth, value=1e-7, primal=1e-4, dual=1e-4)


def test_solving_again_after_a_parameter_changed() -> None:
    data = Data()
    C = cp.Parameter(nonneg=True)
    slack = [data.margin >= 1 - data.xi, data.xi >= 0, cp.sum(data.w) == 0.2]
    problem = cp.Problem(cp.Minimize(data.ridge + C * cp.sum(data.xi)), slack)
    for value in (0.05, 1.0, 0.3):
        C.value = value
        problem.solve(method="screen", solver="CLARABEL", **TIGHT)
        found = answer(problem)
        problem.solve(solver="CLARABEL", **TIGHT)
        compare(found, answer(problem), value=1e-7, primal=2e-5, dual=2e-5)


def test_values_between_the_solves_do_not_matter() -> None:
    data = Data()
    problem = cp.Problem(cp.Minimize(data.ridge + data.hinge))
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    first = problem.value
    data.w.value, data.b.value = np.full(4, 1e3), 7.0
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    assert problem.value == pytest.approx(first, rel=1e-9)
    data.w.value = None
    problem.solve(method="screen", solver="CLARABEL", warm_start=False, **TIGHT)
    assert problem.value == pytest.approx(first, rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("constraint", [lambda w: w <= 1, lambda w: cp.sum(w) == 0])
def test_side_constraints_leave_little_to_the_solver(constraint: Any, intercept: bool) -> None:
    """Whether they bind or not: without a first point under them everything would be kept."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((3000, 8))
    y = np.sign(X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(3000))
    w, b = cp.Variable(8), cp.Variable() if intercept else 0.0
    cost = 0.5 * cp.sum_squares(w) + cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    problem = cp.Problem(cp.Minimize(cost), [constraint(w)])
    value = problem.solve(method="screen", solver="CLARABEL")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert report.kept < 0.2 * report.terms
    assert value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-7)
