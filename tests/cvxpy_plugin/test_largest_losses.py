"""Sums of the largest losses: the same value in other atoms, and the plain answer with duals."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.draft import Draft
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import above_levels, in_simpler_atoms
from cvxscreen.cvxpy_plugin.recognise.recognise import one_loss, recognise, recognise_standard
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
RNG = np.random.default_rng(20261123)
N, D, K = 60, 3, 7
X, Y, C = RNG.standard_normal((N, D)), RNG.standard_normal(N), RNG.random(N) + 0.1
w, b = cp.Variable(D, name="w"), cp.Variable(name="b")
e = X @ w + b - Y
m = cp.multiply(np.sign(Y), X @ w)

TAKEN = {
    "absolute": cp.sum_largest(cp.abs(e), K),
    "all": cp.sum_largest(cp.abs(e), N),
    "one": cp.sum_largest(cp.abs(e), 1),
    "risk": cp.cvar(cp.abs(e), 0.87),
    "weights": cp.sum_largest(cp.multiply(C, cp.abs(e)), K),
    "shifted": cp.sum_largest(2 * cp.abs(e) + 0.5, K),
    "two lines": cp.sum_largest(cp.maximum(e, -e), K),
    "pinball": cp.sum_largest(cp.maximum(0.3 * e, -0.7 * e), K),
    "tilted": cp.sum_largest(cp.abs(e) + 0.2 * e, K),
    "dead zone": cp.sum_largest(cp.pos(cp.abs(e) - 0.4), 0.6 * N + 0.5),
    "dead zones": cp.sum_largest(cp.pos(cp.abs(e) - C), K),
    "hinge": cp.sum_largest(cp.pos(1 - m), K),
    "few errors": cp.sum_largest(cp.pos(0.1 - m), 0.9 * N + 0.25),
    "all hinges": cp.sum_largest(cp.pos(1 - m), N),
    "from a level on": cp.sum_largest(cp.maximum(e, 0.7), 0.8 * N + 0.5),
    "matrix": cp.sum_largest(cp.abs(cp.reshape(e, (N // 2, 2), order="F")), K),
    "signs turned": cp.sum_largest(2.3 * cp.pos(Y - X @ w) + 0.7 * cp.pos(X @ w - Y), K),
    "signs of three turned": cp.sum_largest(
        2.3 * cp.pos(Y - X @ w - b) + 0.7 * cp.pos(X @ w + b - Y) + 0.3 * cp.abs(X @ w + b - Y), K),
    "a number's signs turned": cp.sum_largest(2.3 * cp.pos(Y - b) + 0.7 * cp.pos(b - Y), K),
    "inside": 3 * cp.sum_largest(cp.abs(e), K) / K + cp.norm1(w) - cp.sum(w),
    "smallest": -cp.sum_smallest(-cp.abs(e), K),
    "below a maximum": cp.maximum(cp.sum_largest(cp.abs(e), K), 3.0),
}
LEFT = {
    "affine by more than there are": cp.sum_largest(e, N),
    "affine in a maximum": cp.maximum(cp.sum_largest(e, K), 3.0),
    "more than there are": cp.sum_largest(cp.abs(e), N + 1),
    "levels that differ": cp.sum_largest(cp.abs(e) + C, K),
    "floors that differ": cp.sum_largest(cp.maximum(e, C), K),
    "two rising lines": cp.sum_largest(cp.maximum(e, 2 * e - 1, -e), K),
    "no least value": cp.sum_largest(cp.maximum(e, 2 * e), K),
    "two arguments": cp.sum_largest(cp.maximum(e, m), K),
    "one sign turned": cp.sum_largest(2.3 * cp.pos(Y - X @ w) + 0.7 * cp.pos(Y + X @ w), K),
    "squares": cp.sum_largest(cp.square(e), K),
    **({"by columns": cp.sum(cp.sum_largest(
        cp.abs(cp.reshape(e, (N // 2, 2), order="F")), 3, axis=0
    ))} if "axis" in signature(cp.sum_largest).parameters else {}),  # since CVXPY 1.9
    "a parameter": cp.sum_largest(cp.pos(cp.abs(e) - cp.Parameter(value=0.3)), K),
    "no such sum": cp.norm1(e),
}


def value(expr: Any, scale: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    w.value, b.value = scale * rng.standard_normal(D), scale * rng.standard_normal()
    return float(expr.value)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("way", [cp.Minimize, lambda expr: cp.Maximize(-expr)])
def test_the_lines_have_the_value_of_the_losses(name: str, way: Any) -> None:
    problem = cp.Problem(way(TAKEN[name]))
    made = in_simpler_atoms(problem)
    assert made is not problem
    assert made.is_dcp()
    atoms = [a for a in made.objective.expr.atoms() if a in (cp.abs, cp.maximum)]
    assert not atoms or name == "below a maximum"
    for seed, scale in enumerate((0.1, 0.3, 1.0, 3.0)):
        said = value(made.objective.expr, scale, seed)
        assert said == pytest.approx(value(problem.objective.expr, scale, seed), rel=1e-12)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_alone(name: str) -> None:
    problem = cp.Problem(cp.Minimize(LEFT[name]))
    assert in_simpler_atoms(problem) is problem


@pytest.mark.parametrize("way", [cp.Minimize, lambda expr: cp.Maximize(-expr)])
def test_the_largest_affine_entries_are_losses_above_a_level(way: Any) -> None:
    """Minimised over the level, which is a variable more, they are the sum."""
    problem = cp.Problem(way(3 * cp.sum_largest(e, K) / K + cp.sum_squares(w)))
    made, (level,) = above_levels(problem)
    assert made.is_dcp()
    assert cp.sum_largest not in made.objective.expr.atoms()
    truth = value(problem.objective.expr, 1.0, 5)
    fixed = [w == w.value, b == b.value]
    assert cp.Problem(made.objective, fixed).solve(solver="CLARABEL") == pytest.approx(truth)
    level.variable.value = float(np.sort(e.value)[-K])
    assert made.objective.value == pytest.approx(truth)
    level.variable.value += 1.0
    assert abs(made.objective.value - truth) > 1e-3


def fit(n: int, d: int, seed: int) -> tuple[Any, Any, Any]:
    """A residual with an intercept, margins, and the coefficients."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((n, d))
    target = data @ rng.standard_normal(d) + rng.standard_t(3, n)
    x, level = cp.Variable(d, name="x"), cp.Variable(name="level")
    return data @ x + level - target, cp.multiply(np.sign(target), data @ x + level), x


PROBLEMS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "errors": lambda e, m, x, n: (cp.sum_largest(cp.abs(e), n // 20), []),
    "risk of errors": lambda e, m, x, n: (cp.cvar(cp.abs(e), 0.913), [cp.sum(x) == 1, x <= 2]),
    "a newsvendor's": lambda e, m, x, n: (
        cp.cvar(2.3 * cp.pos(e) + 0.7 * cp.pos(-e), 0.913), [cp.norm1(x) <= 8]),
    "hinges": lambda e, m, x, n: (
        cp.sum_largest(cp.pos(1 - m), n / 7) / n + 0.01 * cp.norm1(x), []),
    "ridge": lambda e, m, x, n: (
        cp.sum_squares(x) + cp.sum_largest(cp.pos(cp.abs(e) - 0.2), n // 5), []),
    "affine": lambda e, m, x, n: (
        cp.sum_squares(x) + 2 * cp.cvar(-m, 0.913), [cp.sum(x) == 1, x <= 0.5]),
    "two affine": lambda e, m, x, n: (
        cp.sum_largest(e, n / 9) / (n / 9) + cp.cvar(-e, 0.8) + 0.1 * cp.norm1(x), [x >= -1]),
    "bounded": lambda e, m, x, n: (cp.norm1(x), [cp.sum_largest(cp.abs(e), 30) <= 180.0]),
    "bounded risk": lambda e, m, x, n: (cp.sum_squares(x - 1), [cp.cvar(cp.abs(e), 0.9) <= 4.0]),
    "both": lambda e, m, x, n: (
        cp.sum_largest(cp.abs(e), 30), [cp.sum_largest(cp.pos(1 - m), 40) <= 110.0]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_plain_answer_with_its_dual_values(name: str) -> None:
    """Duals come back to the constraints that the user wrote."""
    pair = []
    for options in ({"solver": "CLARABEL", **TIGHT}, {"method": "screen", "always": True}):
        objective, constraints = PROBLEMS[name](*fit(600, 4, 0), 600)
        pair.append(cp.Problem(cp.Minimize(objective), constraints))
        pair[-1].solve(**options)
    truth, ours = pair
    report = cvxscreen.Report.of(ours)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    assert ours.status == truth.status == cp.OPTIMAL
    assert ours.value == pytest.approx(truth.value, rel=1e-7)
    for mine, other in zip(ours.constraints, truth.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-6
        apart = np.abs(np.asarray(mine.dual_value) - other.dual_value).max()
        assert apart <= 1e-5 * max(1.0, np.abs(other.dual_value).max())


def test_an_answer_for_other_values_of_a_parameter() -> None:
    """What stands in the sum's argument, and beside it, may change between two solves."""
    e, _, x = fit(600, 4, 1)
    weight, shift = cp.Parameter(nonneg=True, value=0.1), cp.Parameter(value=0.0)
    cost = cp.sum_largest(cp.abs(e - shift), 30) + weight * cp.norm1(x)
    problem = cp.Problem(cp.Minimize(cost), [x >= -1])
    for weight.value, shift.value in ((0.1, 0.0), (9.0, 0.0), (9.0, 1.5)):
        truth = problem.solve(solver="CLARABEL", **TIGHT)
        assert problem.solve(method="screen", always=True) == pytest.approx(truth, rel=1e-7)
        assert cvxscreen.Report.of(problem).recognised


def test_a_risk_beside_squares_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its level is a coordinate like the user's: no rule is tried on it, nor is another form."""
    rng = np.random.default_rng(1)
    returns = rng.standard_normal((5000, D)) + 0.1
    share = cp.Variable(D)
    objective = cp.Minimize(cp.cvar(-returns @ share, 0.9) + cp.sum_squares(share))
    risk = cp.Problem(objective, [cp.sum(share) == 1, share >= 0])
    plain = risk.solve(solver="CLARABEL", **TIGHT)
    monkeypatch.setattr(Draft, "of", lambda *_, **__: pytest.fail("rules are tried"))
    found = recognise(risk)
    assert (found.problem.n, found.problem.d) == (5000, D + 1)
    assert risk.solve(method="screen", always=True) == pytest.approx(plain, rel=1e-8)


def test_losses_of_a_constraint_are_no_coordinates() -> None:
    """Beside twice as many lines of the objective a bound on a risk is a budget as before."""
    e, m, x = fit(600, 4, 2)
    cost = cp.sum_largest(cp.abs(e), 30) / 30 + 0.1 * cp.norm(x)
    problem = cp.Problem(cp.Minimize(cost), [cp.cvar(-m, 0.9) <= 3.0])
    assert cvxscreen.explain(problem).recognised
    truth = problem.solve(solver="CLARABEL", **TIGHT)
    assert problem.solve(method="screen", always=True) == pytest.approx(truth, rel=1e-7)
    assert any("budget" in words for words in cvxscreen.Report.of(problem).beside)


def test_where_no_direction_gains() -> None:
    """At w = 0 all hinges are alike, and a reduced problem without them falls without end."""
    rng = np.random.default_rng(2)
    n, d = 2500, 40
    X, slope = rng.normal(size=(n, d)), rng.normal(size=d)
    rng.standard_t(3, size=n)  # the draw after it makes such a reduced problem
    labels = np.where(X @ slope + 2 * rng.normal(size=n) > 0, 1.0, -1.0)
    w, b = cp.Variable(d), cp.Variable()
    losses = cp.pos(1 - cp.multiply(labels, X @ w + b))
    prob = cp.Problem(
        cp.Minimize(cp.sum_largest(losses, n // 10) / (n // 10) + 0.05 * cp.sum_squares(w))
    )
    assert prob.solve(method="screen", always=True) == pytest.approx(1.0, abs=1e-9)
    report = cvxscreen.Report.of(prob)
    assert report.solver == "builtin"
    assert report.relative_gap <= 1e-9
    assert report.rounds <= 6


@pytest.mark.parametrize("seed", range(3))
def test_repeated_rows_are_certified(seed: int) -> None:
    """At a level that whole groups of equal residuals share no gap of a round is finite."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 50, 1000)
    data, targets = rng.standard_normal((50, 5))[drawn], 3.0 * rng.standard_normal(50)[drawn]

    def made() -> Any:
        w, b = cp.Variable(5), cp.Variable()
        risk = cp.cvar(cp.abs(data @ w + b - targets), 0.9)
        return cp.Problem(cp.Minimize(1e-3 * risk + 0.5 * cp.sum_squares(w)))

    screened, plain = made(), made()
    screened.solve(method="screen", always=True)
    assert cvxscreen.Report.of(screened).recognised
    plain.solve("CLARABEL", **TIGHT)
    np.testing.assert_allclose(screened.value, plain.value, rtol=1e-8)


def test_a_full_matrix_of_squares_beside_needs_no_rules() -> None:
    """CVaR and variance: the same problem as by the rules, and none of a matrix that is not PSD."""
    rng = np.random.default_rng(3)
    R, A = rng.standard_normal((3_000, 6)), rng.standard_normal((6, 6))
    w = cp.Variable(6)
    for square in (A @ A.T, np.diag([1.0, 1.0, 1.0, 1.0, 1.0, -1.0]) + 0.1):
        risk = cp.cvar(R @ w, 0.9) + cp.quad_form(w, cp.psd_wrap(square))
        problem = cp.Problem(cp.Minimize(risk), [cp.sum(w) == 1, w >= 0])
        standard = standardise(canonicalise(problem))
        found = one_loss(standard, None)
        if square[5, 5] < 0.0:
            assert found is None
            continue
        assert found is not None
        check(found)
        ruled = recognise_standard(standard, strongly_convex=False)
        z = rng.standard_normal(standard.size)
        ours, theirs = (each.problem.primal(z[each.core]) for each in (found, ruled))
        assert ours == pytest.approx(theirs, rel=1e-12)


FAR = RNG.standard_normal((1200, D))
r = FAR @ w + b - FAR @ [0.5, 1.0, -0.5] - 0.1 * RNG.standard_normal(1200)
MAXIMA = {
    "affine": cp.max(r) + cp.sum_squares(w),
    "absolute": cp.max(cp.abs(r)),
    "norm": cp.norm_inf(r),
    "pinball": cp.max(cp.maximum(0.3 * r, -0.7 * r)) + 0.1 * cp.norm1(w),
    "hinge": 3 * cp.max(cp.pos(1 - cp.multiply(np.sign(FAR[:, 0]), r))) + cp.sum_squares(w),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_a_maximum_of_data_is_the_one_largest(name: str) -> None:
    held = [b == 0] if name == "affine" else []
    problem = cp.Problem(cp.Minimize(MAXIMA[name]), held)
    assert canonicalise(problem).groups
    problem.solve("CLARABEL", **TIGHT)
    right = problem.value
    problem.solve(method="screen", always=True)
    report = cvxscreen.Report.of(problem)
    assert report.recognised, report.reason
    assert report.beside == ()
    assert problem.value == pytest.approx(right, rel=1e-6)


def test_a_maximum_of_coordinates_or_few_is_none() -> None:
    long = cp.Variable(1500)
    for expr in (cp.max(long), cp.norm_inf(long), cp.max(r[:900]), cp.norm_inf(r[:900])):
        problem = cp.Problem(cp.Minimize(expr + cp.sum_squares(long) + cp.sum_squares(w)))
        assert not canonicalise(problem).groups
