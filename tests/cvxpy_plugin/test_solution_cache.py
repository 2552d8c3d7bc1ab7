"""Re-solving after a parameter changed: what is kept, what is not, and that it is the same."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import Data as BesideData
from cvxpy_plugin.zoo import Data

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import budgets, composite as composite_module, plugin, solution_cache
from cvxscreen.cvxpy_plugin.recognise import loss_atoms
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.request import Report, Request
from cvxscreen.errors import InvalidInput
from cvxscreen.paths import path as path_module
from cvxscreen.solvers import interior_point
from cvxscreen.solvers.compiled_path import segments
from cvxscreen.solvers.registry import fine_gap

cvxpy_plugin.register()
pytestmark = pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def scalar(value: float = 1.0) -> Any:
    return cp.Parameter(nonneg=True, value=value, name="C")


def double(p: Any) -> None:
    p.value = 2.0 * p.value


CASES: dict[str, tuple[Any, Any, bool]] = {
    # name: (data -> (objective, constraints, parameter), change, whether the rules are spared)
    "C": (lambda s, p: (s.ridge + p * s.hinge, []), None, True),
    "lambda": (lambda s, p: (s.hinge / s.n + p * cp.sum_squares(s.w), []), None, True),
    "lambda_norm": (lambda s, p: (s.hinge + p * cp.norm(s.w) ** 2, []), None, True),
    "slack": (lambda s, p: (s.ridge + p * cp.sum(s.xi), [s.margin >= 1 - s.xi, s.xi >= 0]),
              None, True),
    "slack_squared": (lambda s, p: (
        s.ridge + p * cp.sum_squares(s.xi), [s.margin >= 1 - s.xi]), None, True),
    "squared_hinge": (lambda s, p: (s.ridge + p * cp.sum_squares(cp.pos(1 - s.margin)), []),
                      None, True),
    "huber": (lambda s, p: (s.ridge + p * cp.sum(cp.huber(s.residual, 0.8)), []), None, True),
    "absolute": (lambda s, p: (s.ridge + p * cp.norm1(s.residual), []), None, True),
    "tilted": (lambda s, p: (s.ridge + p * cp.sum(
        cp.maximum(0.5 * s.residual + 1, 2 * s.residual)), []), None, True),
    "difference": (lambda s, p: (
        s.ridge + p * cp.sum(s.xi) + 2 * p * cp.sum(s.zeta),
        [s.residual == s.xi - s.zeta, s.xi >= 0, s.zeta >= 0]), None, True),
    "half": (lambda s, p: (
        s.ridge + p * cp.sum(s.xi) + 2 * cp.sum(s.zeta),
        [s.residual == s.xi - s.zeta, s.xi >= 0, s.zeta >= 0]), None, False),
    "renamed": (lambda s, p: (
        s.ridge + p * cp.sum(s.zeta), [s.zeta == s.xi, s.margin >= 1 - s.xi, s.xi >= 0]),
        None, True),
    "shifted": (lambda s, p: (p * cp.sum_squares(s.w - 1) + s.w[0] + s.hinge, []), None, False),
    "shifted_whole": (lambda s, p: (p * cp.sum_squares(s.w - 1) + s.hinge, []), None, True),
    "bounded": (lambda s, p: (s.ridge + p * s.hinge, [s.w <= 0.3, cp.sum(s.w) == 0.1]),
                None, True),
    "turned": (lambda s, p: (s.ridge + s.hinge + (p - 1) * cp.sum(s.w), []), None, True),
    "turned_apart": (lambda s, p: (p * s.ridge + s.hinge + (2 - p) * s.w[0], []), None, True),
    "twice": (lambda s, p: (s.ridge + p * cp.sum_squares(s.w) + s.hinge, []), None, True),
    "everything": (lambda s, p: (2 * p * s.ridge + s.hinge * (p / 3), []), None, True),
    "norm1": (lambda s, p: (s.ridge + p * cp.norm1(s.w) + s.hinge, []), None, True),
    "constant": (lambda s, p: (s.ridge + p * (s.hinge + 3) + 2, []), None, True),
    "moved": (lambda s, p: (s.ridge + (0.1 + p) * s.hinge, []), None, True),
    "epsilon_inside": (lambda s, p: (
        s.ridge + cp.sum(cp.pos(cp.abs(s.residual) - 0.1 * p)), []), None, False),
    "bound_inside": (lambda s, p: (s.ridge + s.hinge, [s.w <= 0.2 * p]), None, False),
}


def make(name: str, data: Data, p: Any) -> Any:
    objective, constraints = CASES[name][0](data, p)
    return cp.Problem(cp.Minimize(objective), constraints)


def numbers(found: Any) -> list[np.ndarray]:
    problem, f = found.problem, found.problem.losses
    return [f.b, f.e, f.q, f.lo, f.hi, problem.linear, problem.quadratic.dense(),
            np.array([problem.constant]), problem.design.dense()]


@pytest.mark.parametrize("name", CASES)
def test_a_recalled_recognition_is_that_of_a_new_problem(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, restored columns and multipliers, at values up and down from the first."""
    p, spared = scalar(), CASES[name][2]
    problem = make(name, Data(), p)
    solution_cache.cached_recognition(problem, recognise)
    calls: list[Any] = []
    original = solution_cache.recognise_numbers
    monkeypatch.setattr(
        solution_cache, "recognise_numbers", lambda s: calls.append(s) or original(s)  # type: ignore
    )
    rng = np.random.default_rng(2)
    for value in (2.5, 0.3, 1.0):
        p.value = value
        known = solution_cache.cached_recognition(
            problem, lambda _: pytest.fail("canonicalised anew")
        )
        q = scalar(value)
        fresh = recognise(make(name, Data(), q))
        for ours, theirs in zip(numbers(known), numbers(fresh), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-12, atol=1e-13)
        x = rng.standard_normal(known.problem.d)
        z = known.columns(x)
        assert np.allclose(z, fresh.columns(x), rtol=1e-12, atol=1e-12)
        low = np.maximum(known.problem.losses.lo, -1.0)
        theta = low + rng.random(known.problem.n) * (
            np.minimum(known.problem.losses.hi, 1.0) - low)
        side = rng.standard_normal(known.side.shape[0])
        assert np.allclose(
            known.multipliers(z, theta, side), fresh.multipliers(z, theta, side), atol=1e-11)
    assert bool(calls) != spared


def test_other_weights_are_not_read_from_the_expressions_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it is known which of them each cost follows: for as long as they go together."""
    data, C, lam = Data(), scalar(), scalar(0.5)

    def problem_of(C: Any, lam: Any) -> Any:
        return cp.Problem(cp.Minimize(lam * data.ridge + C * data.hinge + cp.norm1(data.w)))

    problem, reads = problem_of(C, lam), []
    original = solution_cache.with_current_costs
    monkeypatch.setattr(
        solution_cache, "with_current_costs", lambda s: reads.append(s) or original(s)  # type: ignore
    )
    values = [(1.0, 0.5), (2.0, 1.0), (3.0, 1.5), (3.0, 0.5), (0.2, 0.5), (0.2, 7.0), (1.0, 2.0)]
    for C.value, lam.value in values:
        known = solution_cache.cached_recognition(problem, recognise)
        fresh = recognise(problem_of(C.value, lam.value))
        for ours, theirs in zip(numbers(known), numbers(fresh), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    assert len(reads) == 3  # of the second values, the fourth and the sixth


def test_a_cost_that_two_weights_share_follows_neither() -> None:
    """However small the share of one of them was when the other was told from it."""
    data, p = Data(), scalar()

    def problem_of(p: Any) -> Any:
        tiny = 1e-16 * cp.sum_squares(data.w)
        return cp.Problem(cp.Minimize(data.ridge + p * tiny + data.hinge))

    problem = problem_of(p)
    for value in (1.0, 2.0, 1e16):
        p.value = value
        known = solution_cache.cached_recognition(problem, recognise)
    fresh = recognise(problem_of(1e16)).problem.quadratic.dense()
    assert np.allclose(known.problem.quadratic.dense(), fresh)
    assert fresh.max() > 2.0


def test_changed_data_beside_changed_weights_are_noticed() -> None:
    data, C = Data(), scalar()
    shift = cp.Parameter(value=0.0)

    def problem_of(C: Any, shift: Any) -> Any:
        bounds = [data.margin >= 1 + shift - data.xi, data.xi >= 0]
        return cp.Problem(cp.Minimize(data.ridge + C * cp.sum(data.xi)), bounds)

    problem = problem_of(C, shift)
    for C.value, shift.value in [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.5), (5.0, 0.0)]:
        known = solution_cache.cached_recognition(problem, recognise)
        fresh = recognise(problem_of(C.value, shift.value))
        for ours, theirs in zip(numbers(known), numbers(fresh), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_weights_of_the_samples_and_of_the_classes() -> None:
    data, weights = Data(), cp.Parameter(36, nonneg=True)
    pair = cp.Parameter(2, nonneg=True, value=[1.0, 2.0])
    loss = cp.pos(1 - data.margin)
    by_class = pair[0] * cp.sum(loss[:10]) + pair[1] * cp.sum(loss[10:])
    problem = cp.Problem(cp.Minimize(data.ridge + weights @ loss + by_class))
    rng = np.random.default_rng(0)
    for k in range(4):
        weights.value = rng.random(36) + (0.5 if k != 2 else -0.0) * (rng.random(36) > 0.3)
        if k == 2:
            weights.value = weights.value * (rng.random(36) > 0.5)  # zeros among them
        pair.value = rng.random(2)
        problem.solve(method="screen", solver="CLARABEL", **TIGHT)
        found = problem.value, data.w.value.copy()
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        problem.solve(solver="CLARABEL", **TIGHT)
        assert found[0] == pytest.approx(problem.value, rel=1e-8)
        assert np.allclose(found[1], data.w.value, atol=1e-5)


def test_data_as_parameters_are_noticed_when_they_change() -> None:
    data = Data()
    X = cp.Parameter((data.n, data.d), value=data.X)
    loss = cp.sum(cp.pos(1 - X @ data.w))
    problem = cp.Problem(cp.Minimize(data.ridge + loss))
    for sign in (1.0, -1.0):
        X.value = sign * data.X
        problem.solve(method="screen")
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        w = np.array(data.w.value)
        problem.solve(solver="CLARABEL", ignore_dpp=True)
        assert np.allclose(w, data.w.value, atol=1e-5)


def test_without_dpp_nothing_is_kept() -> None:
    data, p = Data(), scalar()
    problem = cp.Problem(cp.Minimize(data.ridge + p * p * data.hinge))
    assert not problem.is_dpp()
    for value in (1.0, 2.0):
        p.value = value
        problem.solve(method="screen", solver="CLARABEL")
        ours = problem.value
        assert problem.solver_stats.extra_stats["cvxscreen"].recognised
        assert ours == pytest.approx(
            cp.Problem(cp.Minimize(data.ridge + value**2 * data.hinge)).solve("CLARABEL"), rel=1e-6)


def test_a_cost_of_zero_and_back() -> None:
    data, p = Data(), scalar(1.0)
    problem = cp.Problem(cp.Minimize(data.ridge + p * data.hinge))
    values = []
    for value in (1.0, 0.0, 1.0):
        p.value = value
        values.append(problem.solve(method="screen", solver="CLARABEL"))
    assert values[1] == pytest.approx(0.0, abs=1e-9)
    assert values[0] == pytest.approx(values[2], rel=1e-8)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised


def test_an_l1_norm_that_cost_nothing_is_one_once_it_costs_something() -> None:
    """Its helpers were coordinates of their own: with a weight they are terms."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((300, 5)), np.where(rng.random(300) < 0.5, 1.0, -1.0)
    w, weight = cp.Variable(5), cp.Parameter(nonneg=True, value=0.0)
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    problem = cp.Problem(cp.Minimize(loss + weight * cp.norm1(w) + cp.sum_squares(w)))
    problem.solve(method="screen")
    for weight.value in (500.0, 3.0, 0.0, 20.0):
        value = problem.solve(method="screen")
        fixed = weight.value * cp.norm1(w) if weight.value else 0.0
        fresh = cp.Problem(cp.Minimize(loss + fixed + cp.sum_squares(w)))
        assert value == pytest.approx(fresh.solve(method="screen"), rel=1e-9)
        found, new = cvxscreen.Report.of(problem), cvxscreen.Report.of(fresh)
        assert (found.solver, found.terms) == (new.solver, new.terms)


def test_the_last_solution_is_the_reference() -> None:
    """A small change of C proves most terms before anything is solved."""
    data, p = Data(n=1500, d=5), scalar(1.0)
    problem = cp.Problem(cp.Minimize(data.ridge + p * data.hinge))
    problem.solve(method="screen", solver="builtin")
    assert problem.solver_stats.extra_stats["cvxscreen"].before == {}
    p.value = 1.01
    problem.solve(method="screen", solver="builtin")
    before = problem.solver_stats.extra_stats["cvxscreen"].before
    assert before["zero"] + before["linear"] > 0.5
    problem.solve(method="screen", solver="builtin", warm_start=False)
    assert problem.solver_stats.extra_stats["cvxscreen"].before == {}


def test_nothing_is_kept_longer_than_its_problem() -> None:
    problem = make("C", Data(), scalar())
    problem.solve(method="screen")
    count, alive = len(solution_cache._ENTRIES), weakref.ref(problem)
    del problem
    gc.collect()
    assert alive() is None
    assert len(solution_cache._ENTRIES) < count


def test_reports_travel() -> None:
    problem = make("C", Data(), scalar())
    problem.solve(method="screen")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    copy = pickle.loads(pickle.dumps(report))
    assert dict(copy.fixed) == dict(report.fixed)
    assert str(copy) == str(report)


# -- paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["C", "lambda", "slack", "bounded", "tilted", "bound_inside"])
def test_a_path_is_what_plain_solves_find(name: str) -> None:
    data, p = Data(n=500), scalar()
    problem = make(name, data, p)
    grid = [0.3, 1.0, 2.0]
    found = cvxscreen.path(problem, p, grid)
    assert p.value == 2.0
    assert problem.status == cp.OPTIMAL
    assert (found.terms, found.name, found.finished) == (500, "C", True)
    last = problem.value
    W = found.of(data.w)
    assert W.shape == (3, 4)
    for k, value in enumerate(grid):
        p.value = value
        problem.solve(solver="CLARABEL", **TIGHT)
        assert found.points[k].objective == pytest.approx(problem.value, rel=2e-6)
        assert found.points[k].relative_gap <= 1e-6
        assert np.allclose(W[k], data.w.value, atol=2e-2)
    assert last == pytest.approx(problem.value, rel=2e-6)
    assert "Path over C" in str(found)


def test_paths_of_problems_that_are_not_recognised() -> None:
    data, p = Data(), scalar()
    problem = cp.Problem(cp.Minimize(data.ridge + p * cp.sum(cp.logistic(-data.margin))))
    found = cvxscreen.path(problem, p, [0.5, 1.0], solver="CLARABEL")
    assert found.terms == 0
    assert found.points[0].relative_gap is None
    assert " - " in str(found)
    assert found.points[0].objective < found.points[1].objective


def test_paths_refuse_what_cannot_be_meant() -> None:
    data, p = Data(), scalar()
    problem = cp.Problem(cp.Minimize(data.ridge + p * data.hinge))
    with pytest.raises(InvalidInput, match="must be one of"):
        cvxscreen.path(problem, cp.Parameter(), [1.0])
    with pytest.raises(InvalidInput, match="non-empty"):
        cvxscreen.path(problem, p, [])
    with pytest.raises(ValueError, match="nonneg"):
        cvxscreen.path(problem, p, [1.0, -1.0])
    found = cvxscreen.path(problem, p, [1.0])
    with pytest.raises(InvalidInput, match="not in the problem"):
        found.of(cp.Variable(name="other"))
    own = cvxscreen.svm(data.X, data.y)
    assert len(cvxscreen.path(own, values=[0.5, 1.0]).points) == 2


def weighed(n: int = 600, d: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] + rng.standard_normal(n) > 0, 1.0, -1.0)
    w, C = cp.Variable(d), cp.Parameter(nonneg=True, value=1.0)
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * loss)), C


def test_the_same_problem_again_is_certified_again_and_not_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, C = weighed()
    problem.solve(method="screen")
    C.value = 2.0
    value = problem.solve(method="screen")
    calls: list[Any] = []
    original = plugin.engine_solution
    monkeypatch.setattr(
        plugin, "engine_solution", lambda *a: calls.append(a) or original(*a)
    )
    assert problem.solve(method="screen") == pytest.approx(value, rel=1e-12)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.relative_gap <= 1e-10
    assert not calls
    problem.solve(method="screen", warm_start=False)
    assert len(calls) == 1
    C.value = 3.0
    problem.solve(method="screen")
    assert len(calls) == 2
    C.value = 2.0
    assert problem.solve(method="screen") == pytest.approx(value, rel=1e-9)
    assert len(calls) == 3


def test_an_answer_to_other_data_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = weighed()
    problem.solve(method="screen")
    last = solution_cache._ENTRIES[problem].last
    assert last is not None
    assert last.solution is not None
    bad = replace(last, solution=replace(last.solution, x=last.x + 0.1))
    solution_cache.store_solution(problem, bad)
    problem.solve(method="screen")
    truth, _ = weighed()
    assert problem.value == pytest.approx(truth.solve(solver="CLARABEL"), rel=1e-7)


def test_units_of_losses_die_with_their_expression() -> None:
    problem, C = weighed()
    problem.solve(method="screen")
    C.value = 5.0
    problem.solve(method="screen")
    before = len(loss_atoms._UNITS)
    del problem, C
    gc.collect()
    assert len(loss_atoms._UNITS) < before


# -- losses beside another convex part, and in budgets ---------------------------------------------


def composite(name: str, p: Any) -> Any:
    s = BesideData(n=400)
    slack = s.square + p * s.cost * cp.sum(s.t)
    return {
        "a norm": lambda: cp.Problem(cp.Minimize(s.ridge + p * s.hinge + 3 * cp.norm(s.w))),
        "a weighted norm": lambda: cp.Problem(cp.Minimize(s.ridge + s.hinge + p * cp.norm(s.w))),
        "maxima": lambda: cp.Problem(cp.Minimize(slack), s.rows),
        "maxima and a linear part": lambda: cp.Problem(cp.Minimize(s.square + p * (
            cp.sum(cp.max(s.scores + 1 - s.Y, axis=1)) - cp.sum(s.own)))),
        "maxima, losses, a norm": lambda: cp.Problem(cp.Minimize(
            s.ridge + s.hinge + p * s.cost * cp.sum(cp.maximum(
                s.X @ s.w, s.r - s.X[::-1] @ s.w, 0)) + cp.norm(s.w))),
        "a budget": lambda: cp.Problem(
            cp.Minimize(cp.norm1(s.w)), [cp.sum(cp.abs(s.X @ s.w - s.r)) <= (1 + p) * 250]),
        "a budget beside a cost": lambda: cp.Problem(
            cp.Minimize(s.ridge - p * s.w[0]), [s.hinge <= 200, cp.sum(s.w) <= 3]),
    }[name]()


COMPOSITES = (
    "a norm", "a weighted norm", "maxima", "maxima and a linear part", "maxima, losses, a norm",
    "a budget", "a budget beside a cost",
)


def stop(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("what is known already is worked out anew")


def agree(problem: Any, name: str) -> None:
    """The answer is that of another object for the same problem, solved plainly."""
    p = next(iter(problem.parameters()))
    plain = composite(name, cp.Parameter(nonneg=True, value=p.value))
    assert problem.value == pytest.approx(plain.solve(solver="CLARABEL", **TIGHT), rel=1e-6)
    for ours, theirs in zip(problem.constraints, plain.constraints, strict=True):
        np.testing.assert_allclose(ours.dual_value, theirs.dual_value, atol=5e-3)
        assert np.max(ours.violation()) <= 1e-6


@pytest.mark.parametrize("name", COMPOSITES)
def test_what_stands_beside_losses_is_kept_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same problem again is certified, and neither recognised nor solved; others start there.

    What the user writes into values does not come back.
    """
    problem = composite(name, scalar(1.0))
    problem.solve(method="screen")
    first = cvxscreen.Report.of(problem)
    assert first.recognised
    assert first.beside
    agree(problem, name)
    value = problem.value
    with monkeypatch.context() as patched:
        for owner, function in (
            (composite_module, "recognise_standard"), (budgets, "recognise_standard"),
            (composite_module.ScreenedComposite, "called"), (budgets.ScreenedBudgets, "solve"),
            (plugin, "recognise"),
        ):
            patched.setattr(owner, function, stop)
        for _ in range(2):
            for variable in problem.variables():
                variable.value[...] = 7.0
            problem.solve(method="screen")
            assert problem.value == pytest.approx(value, rel=1e-9)
            agree(problem, name)
            again = cvxscreen.Report.of(problem)
            assert (again.recognised, again.rounds, again.beside) == (True, 0, first.beside)
            assert again.relative_gap <= 1e-6


@pytest.mark.parametrize("name", COMPOSITES)
def test_other_parameters_beside_losses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    C = scalar(1.0)
    problem = composite(name, C)
    problem.solve(method="screen")
    if "budget" not in name:  # then costs alone change, and no rule runs
        monkeypatch.setattr(composite_module, "recognise_standard", stop)
    for C.value in (1.5, 1.5, 0.7, 1.0):
        problem.solve(method="screen")
        assert cvxscreen.Report.of(problem).recognised
        agree(problem, name)


def curved(name: str, p: Any) -> Any:
    """A quadratic part, kinks and linear constraints."""
    rng = np.random.default_rng(5)
    X, w, b = rng.standard_normal((1500, 8)), cp.Variable(8), cp.Variable()
    z = X @ np.round(rng.standard_normal(8))
    y, sign = z + 0.5 * rng.standard_t(3, 1500), np.sign(z + rng.standard_normal(1500))
    hinge = cp.sum(cp.pos(1 - cp.multiply(sign, X @ w + b)))
    objective, constraints = {
        "hinges and squares": (hinge + p * cp.sum_squares(w), [w[0] >= w[1], cp.sum(w) <= 0.5]),
        "quantiles on the simplex": (
            cp.sum(cp.maximum(0.9 * (X @ w - y), 0.1 * (y - X @ w))) + p * cp.sum_squares(w),
            [cp.sum(w) == 1, w >= 0]),
        "Huber in a box": (
            cp.sum(cp.huber(X @ w - y)) + 20 * p * cp.norm1(w), [w >= -0.2, w <= 0.4]),
        "squared hinges and kinks": (
            cp.sum(cp.square(cp.pos(1 - cp.multiply(sign, X @ w)))) + 20 * p * cp.norm1(w),
            [cp.sum(w) <= 0.2]),
        "squares in a budget": (cp.sum_squares(X @ w - y), [cp.norm1(w) <= p]),
    }[name]
    return cp.Problem(cp.Minimize(objective), constraints)


@pytest.mark.parametrize("name", [
    "hinges and squares", "quantiles on the simplex", "Huber in a box",
    "squared hinges and kinks", "squares in a budget",
])
def test_other_weights_go_on_from_the_last_face(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No path is entered again, and value, variables and multipliers are Clarabel's."""
    p = scalar(1.0)
    problem = curved(name, p)
    problem.solve(method="screen", always=True)
    monkeypatch.setattr(interior_point, "PrimalDualPath", stop)
    for p.value in (1.05, 1.4, 0.8):
        problem.solve(method="screen", always=True)
        assert cvxscreen.Report.of(problem).recognised
        other = curved(name, cp.Parameter(nonneg=True, value=p.value))
        assert problem.value == pytest.approx(other.solve(solver="CLARABEL", **TIGHT), rel=1e-8)
        for ours, theirs in zip(problem.variables(), other.variables(), strict=True):
            np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)
        for ours, theirs in zip(problem.constraints, other.constraints, strict=True):
            np.testing.assert_allclose(ours.dual_value, theirs.dual_value, atol=5e-3)
            assert np.max(ours.violation()) <= 1e-9


def test_what_stands_beside_losses_dies_with_its_problem() -> None:
    for name in COMPOSITES:
        problem = composite(name, scalar(1.0))
        problem.solve(method="screen")
        seen = weakref.ref(problem)
        del problem
        gc.collect()
        assert seen() is None, name


def test_an_answer_that_is_not_precise_enough_is_not_given_again() -> None:
    problem = composite("a norm", scalar(1.0))
    problem.solve(method="screen", tol=1e-4)
    assert problem.solver_stats.extra_stats["cvxscreen"].rounds > 0
    problem.solve(method="screen", tol=1e-12)
    report = cvxscreen.Report.of(problem)
    assert report.rounds > 0 or not report.recognised


def test_a_named_solver_or_a_cold_start_solves_again_beside_other_parts() -> None:
    for name in ("a norm", "a budget"):
        problem = composite(name, scalar(1.0))
        problem.solve(method="screen")
        for options in ({"solver": "CLARABEL"}, {"warm_start": False}):
            problem.solve(method="screen", **options)
            assert cvxscreen.Report.of(problem).rounds > 0
            agree(problem, name)


def swept(parameter: Any) -> Any:
    """Hinges whose squares, or whose losses, a parameter weighs; an intercept; many terms."""
    rng = np.random.default_rng(5)
    X, w, b = rng.standard_normal((600, 4)), cp.Variable(4), cp.Variable()
    y = np.where(X @ np.ones(4) + 2.0 * rng.standard_normal(600) > 0, 1.0, -1.0)
    hinges = cp.pos(1 - cp.multiply(y, X @ w + b))
    if parameter.size > 1:
        return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + parameter @ hinges))
    return cp.Problem(cp.Minimize(parameter * cp.sum_squares(w) + cp.sum(hinges)))


@pytest.fixture
def paths_made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problems that a compiled path was begun for."""
    made: list[Any] = []

    class Seen(segments.CompiledPath):
        def __init__(self, problem: Any, *args: Any) -> None:
            made.append(problem)
            super().__init__(problem, *args)

    monkeypatch.setattr(segments, "CompiledPath", Seen)
    monkeypatch.setattr(path_module, "CompiledPath", Seen)
    return made


def test_other_values_go_on_from_the_compiled_path_of_the_first(paths_made: list[Any]) -> None:
    """Near ones from its last point, far ones from nothing; all certified as ever."""
    lam = scalar(1.0)
    problem = swept(lam)
    for value in (1.0, 1.2, 1.5, 300.0, 0.01, 0.012, 0.012):
        lam.value = value
        found = problem.solve(method="screen")
        report = cvxscreen.Report.of(problem)
        assert report.recognised
        assert report.relative_gap <= 1e-9
        assert found == pytest.approx(swept(scalar(value)).solve("CLARABEL", **TIGHT), rel=1e-8)
    assert len(paths_made) == 1


def test_a_path_whose_point_was_refused_is_not_gone_on_from(paths_made: list[Any]) -> None:
    """Whatever is wrong with it, as where Ctrl-C has left it half way, the next one begins anew."""
    lam = scalar(1.0)
    problem = swept(lam)
    for value in (1.0, 1.1):
        lam.value = value
        problem.solve(method="screen")
    broken = solution_cache.kept_path(problem).path
    assert len(paths_made) == 1
    for numbers in (broken.work.x, broken.along.t, broken.along.theta, broken.along.now):
        numbers[:] = np.nan
    for value in (1.2, 1.3, 1.4):
        lam.value = value
        found = problem.solve(method="screen")
        assert cvxscreen.Report.of(problem).relative_gap <= 1e-9
        assert found == pytest.approx(swept(scalar(value)).solve("CLARABEL", **TIGHT), rel=1e-8)
    assert solution_cache.kept_path(problem).path is not broken
    assert len(paths_made) == 2


def test_other_weights_of_the_samples_begin_another_path(paths_made: list[Any]) -> None:
    weights = cp.Parameter(600, nonneg=True, value=np.ones(600))
    problem = swept(weights)
    for changed in (np.ones(600), 2.0 * np.ones(600), 1.0 + np.arange(600) % 3):
        weights.value = changed
        other = cp.Parameter(600, nonneg=True, value=changed)
        plain = swept(other).solve("CLARABEL", **TIGHT)
        assert problem.solve(method="screen") == pytest.approx(plain, rel=1e-8)
    assert len(paths_made) == 2


def test_no_path_is_kept_of_large_data_or_without_a_parameter(
    monkeypatch: pytest.MonkeyPatch, paths_made: list[Any]
) -> None:
    problem = swept(scalar())
    problem.solve(method="screen")
    path = weakref.ref(solution_cache.kept_path(problem).path)
    assert path() is not None
    del problem
    paths_made.clear()
    gc.collect()
    assert path() is None
    fixed = cp.Problem(swept(cp.Constant(1.0)).objective)
    fixed.solve(method="screen")
    assert solution_cache.kept_path(fixed) is None
    monkeypatch.setattr(segments, "MOST_KEPT", 100)
    lam = scalar()
    large = swept(lam)
    for value in (1.0, 2.0):
        lam.value = value
        large.solve(method="screen")
    assert solution_cache.kept_path(large).path is None
    assert len(paths_made) == 3


def test_a_path_over_what_weighs_the_squares_is_compiled(paths_made: list[Any]) -> None:
    """Whatever factor the squares have: it is one over C for squares of weight 1/2."""
    lam = scalar()
    problem, values = swept(lam), [3.0, 1.0, 0.3]
    found = cvxscreen.path(problem, lam, values, tol=1e-9)
    assert len(paths_made) == 1
    for point, value in zip(found.points, values, strict=True):
        plain = swept(scalar(value)).solve("CLARABEL", **TIGHT)
        assert point.objective == pytest.approx(plain, rel=1e-8)


def test_a_path_over_what_turns_a_linear_term_is_solved_point_by_point(
    paths_made: list[Any],
) -> None:
    """At the first value there is none; later ones are no problems over C."""
    def turned(lam: Any) -> Any:
        data = Data()
        return cp.Problem(cp.Minimize(data.ridge + data.hinge + (lam - 1) * cp.sum(data.w)))

    lam, values = scalar(), [1.0, 0.2, 1.7]
    found = cvxscreen.path(turned(lam), lam, values, tol=1e-9)
    for point, value in zip(found.points, values, strict=True):
        plain = turned(scalar(value)).solve("CLARABEL", **TIGHT)
        assert point.objective == pytest.approx(plain, rel=1e-8)


def test_an_answer_that_stalled_short_of_the_aim_is_the_answer_again() -> None:
    """Without noise every residual is 0: the last digits are out of reach, in every solve alike."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 6)) @ rng.standard_normal((6, 12))
    w = cp.Variable(12)
    error = X @ w - X @ rng.standard_normal(12)
    problem = cp.Problem(cp.Minimize(cp.norm1(error) + 1e-3 * cp.sum_squares(w)))
    value = problem.solve(method="screen", always=True)
    gap = Report.of(problem).relative_gap
    found = solution_cache.cached_recognition(problem, recognise)
    assert fine_gap(found.problem) < gap <= 1e-6
    assert plugin.same_solution(found, Request()) is not None
    assert plugin.same_solution(found, Request(tol=0.1 * gap)) is None
    assert problem.solve(method="screen", always=True) == value
    report = Report.of(problem)
    assert (report.rounds, report.times["solve"]) == (1, 0.0)
