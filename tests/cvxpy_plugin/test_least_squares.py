"""Least squares with constraints and other parts beside them: tall data fold into one matrix.

Every square has one piece, so that all terms are proven at once and the reduced problem has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.cvxpy_plugin.recognise import draft
from cvxscreen.cvxpy_plugin.size import measure

N, D = 240, 10
Written = tuple[Any, list[Any]]
FORMS: dict[str, Callable[[Any, Any, Any, Any], Written]] = {}


def form(written: Callable[[Any, Any, Any, Any], Written]) -> Callable[..., Written]:
    """One formulation: data, targets, coefficients, intercept to objective and constraints."""
    FORMS[written.__name__] = written
    return written


@form
def alone(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y), []


@form
def intercept(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w + b - y), [w >= 0]


@form
def ridge(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w + b - y) + 3 * cp.sum_squares(w), [cp.sum(w) == 1]


@form
def simplex(X: Any, y: Any, w: Any, b: Any) -> Written:
    return 0.5 * cp.sum_squares(X @ w - y), [w >= 0, cp.sum(w) == 1]


@form
def norm1_ball(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(y - X @ w) / N, [cp.norm1(w) <= 0.6]


@form
def norm2_ball(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y), [cp.norm(w) <= 0.4]


@form
def box_and_norm1(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y) + 9 * cp.norm1(w), [w >= -0.2, w <= 0.2]


@form
def one_norm(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y) + 20 * cp.norm(w), []


@form
def groups(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y) + 15 * (cp.norm(w[:5]) + cp.norm(w[5:])), []


@form
def total_variation(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y) + 9 * cp.tv(w), []


@form
def monotone(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w + b - y), [cp.diff(w) >= 0]


@form
def equalities(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.sum_squares(X @ w - y), [w[0] + w[1] == 1, w[2] == 0.5]


@form
def weighted(X: Any, y: Any, w: Any, b: Any) -> Written:
    weights = np.linspace(0.2, 2.0, N)
    return cp.sum(cp.multiply(weights, cp.square(X @ w - y))), [w <= 0.1]


@form
def squared_norm(X: Any, y: Any, w: Any, b: Any) -> Written:
    return cp.norm(X @ w - y) ** 2, [w >= 0]


@form
def slack_residuals(X: Any, y: Any, w: Any, b: Any) -> Written:
    e = cp.Variable(N, name="e")
    return cp.sum_squares(e), [X @ w + b == y + 2 * e, w >= 0]


@form
def slack_margins(X: Any, y: Any, w: Any, b: Any) -> Written:
    """Least-squares support vector machines as their paper writes them."""
    label, e = np.where(y > 0, 1.0, -1.0), cp.Variable(N, name="e")
    return 0.5 * cp.sum_squares(w) + 5 * cp.sum(e**2), [cp.multiply(label, X @ w + b) == 1 - e]


@form
def predictions(X: Any, y: Any, w: Any, b: Any) -> Written:
    f = cp.Variable(N, name="f")
    return cp.sum_squares(f - y), [f == X @ w + b, w <= 0.5]


@form
def weighted_slacks(X: Any, y: Any, w: Any, b: Any) -> Written:
    e = cp.Variable(N, name="e")
    weighted = cp.multiply(np.linspace(0.2, 2.0, N), e)
    return cp.sum_squares(weighted), [e == X @ w - y, cp.sum(w) == 1]


def problem(name: str, n: int = N, seed: int = 0) -> Any:
    """One of the forms over well-conditioned data with scales of their own."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) * np.geomspace(0.3, 3.0, D)
    y = X @ (rng.standard_normal(D) * (rng.random(D) < 0.6)) + rng.standard_normal(n)
    objective, constraints = FORMS[name](X, y, cp.Variable(D, name="w"), cp.Variable(name="b"))
    return cp.Problem(cp.Minimize(objective), constraints)


STRONGLY_CONVEX = {"ridge", "slack_margins"}
FOLDED = FORMS.keys() - {"total_variation", "box_and_norm1"} - STRONGLY_CONVEX


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_form_is_folded_and_has_the_optimum_of_the_whole(name: str) -> None:
    found, truth = problem(name), problem(name)
    value = found.solve(method="screen")
    truth.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    report = cvxscreen.Report.of(found)
    assert report.recognised, report.reason
    # Terms of an L1 norm stay; what is strongly convex goes to Newton's method as it is.
    assert report.kept <= (0 if name in FOLDED else N if name in STRONGLY_CONVEX else 2 * D)
    assert value == pytest.approx(truth.value, rel=1e-7)
    for mine, theirs in zip(found.variables(), truth.variables(), strict=True):
        assert np.allclose(mine.value, theirs.value, atol=2e-4)
    for mine, theirs in zip(found.constraints, truth.constraints, strict=True):
        size = 1.0 + float(np.abs(theirs.dual_value).max())
        assert np.allclose(mine.dual_value, theirs.dual_value, atol=1e-4 * size)
    assert cvxscreen.certify(found).ok


@pytest.mark.parametrize("name", ["alone", "simplex", "norm2_ball", "groups", "monotone"])
def test_the_folded_problem_is_handed_out_and_restored(name: str) -> None:
    whole, truth = problem(name), problem(name)
    reduced = cvxscreen.reduce(whole)
    assert sum(part.size for part in reduced.problem.variables()) <= 3 * D
    reduced.problem.solve(solver="CLARABEL")
    assert reduced.restore(tol=1e-5).ok
    assert whole.value == pytest.approx(truth.solve(solver="CLARABEL"), rel=1e-6)


def test_all_squares_are_proven_to_be_on_their_one_piece() -> None:
    found = problem("simplex")
    found.solve(method="screen")
    report = cvxscreen.Report.of(found)
    assert report.fixed["quadratic"] == N


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scales_of_the_data_change_nothing(factor: float) -> None:
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((N, D)), cp.Variable(D)
    y = X @ rng.standard_normal(D) + rng.standard_normal(N)
    scaled = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - factor * y)), [w >= 0])
    value, truth = scaled.solve(method="screen"), cp.Variable(D)
    wanted = cp.Problem(cp.Minimize(cp.sum_squares(X @ truth - y)), [truth >= 0]).solve("CLARABEL")
    assert cvxscreen.Report.of(scaled).recognised
    assert value == pytest.approx(factor**2 * wanted, rel=1e-6)


def test_columns_that_are_zero_or_stand_twice_leave_the_value() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, D))
    X[:, 3], X[:, 7] = 0.0, X[:, 1]
    y = X @ rng.standard_normal(D) + rng.standard_normal(N)
    w, truth = cp.Variable(D), cp.Variable(D)
    found = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.sum(w) == 1, w >= -1])
    wanted = cp.Problem(
        cp.Minimize(cp.sum_squares(X @ truth - y)), [cp.sum(truth) == 1, truth >= -1]
    )
    assert found.solve(method="screen") == pytest.approx(wanted.solve("CLARABEL"), rel=1e-7)
    assert cvxscreen.Report.of(found).recognised


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infeasible_and_unbounded_ones_have_cvxpys_statuses(sign: float) -> None:
    rng = np.random.default_rng(5)
    X, w, t = rng.standard_normal((N, D)), cp.Variable(D), cp.Variable()
    cost = cp.sum_squares(X @ w - 1)
    if sign > 0:
        found = cp.Problem(cp.Minimize(cost), [w >= 1, cp.sum(w) <= 0])
        assert found.solve(method="screen") == np.inf
        assert found.status == cp.INFEASIBLE
    else:
        found = cp.Problem(cp.Minimize(cost + t), [t <= 3])
        assert found.solve(method="screen") == -np.inf
        assert found.status == cp.UNBOUNDED


def test_a_parameter_beside_the_squares_is_followed() -> None:
    rng = np.random.default_rng(6)
    X, w = rng.standard_normal((N, D)), cp.Variable(D)
    y, weight = X @ rng.standard_normal(D) + rng.standard_normal(N), cp.Parameter(nonneg=True)
    found = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - y) + weight * cp.norm1(w)), [w >= -0.1])
    for weight.value in (1.0, 10.0, 100.0):
        value = found.solve(method="screen")
        assert cvxscreen.Report.of(found).recognised
        assert value == pytest.approx(found.solve("CLARABEL"), rel=1e-7)


@pytest.mark.parametrize("beside", ["norm1", "squares", "signs"])
def test_squares_weighed_by_nothing_are_left_out_one_sample_after_the_other(beside: str) -> None:
    rng = np.random.default_rng(8)
    X, w, kept = rng.standard_normal((N, D)), cp.Variable(D), cp.Parameter(N, nonneg=True)
    y = X @ rng.standard_normal(D) + rng.standard_normal(N)
    cost = cp.sum(cp.multiply(kept, cp.square(X @ w - y)))
    cost += {"norm1": 5 * cp.norm1(w), "squares": cp.sum_squares(w), "signs": 0}[beside]
    found = cp.Problem(cp.Minimize(cost), [w >= 0] if beside == "signs" else [])
    for share in (0.7, 0.4, 1.0):
        kept.value = (rng.random(N) < share).astype(float)
        value, at = found.solve(method="screen"), w.value
        report = cvxscreen.Report.of(found)
        assert report.recognised
        assert report.terms <= int(kept.value.sum()) + D
        duals = [np.array(c.dual_value) for c in found.constraints]
        assert value == pytest.approx(found.solve("CLARABEL"), rel=1e-7)
        assert at == pytest.approx(w.value, abs=1e-5)
        for dual, constraint in zip(duals, found.constraints, strict=True):
            assert dual == pytest.approx(constraint.dual_value, abs=1e-4)


def test_beside_other_losses_the_squares_are_no_losses() -> None:
    rng = np.random.default_rng(7)
    X, w = rng.standard_normal((N, D)), cp.Variable(D)
    y = X @ rng.standard_normal(D) + rng.standard_normal(N)
    cost = cp.sum_squares(X @ w - y) + cp.norm1(X @ w - 2 * y)
    found = cp.Problem(cp.Minimize(cost), [w >= 0])
    text = str(cvxscreen.explain(found))
    assert "absolute" in text
    assert "squared" not in text
    assert found.solve(method="screen") == pytest.approx(found.solve("CLARABEL"), rel=1e-7)


def test_predictions_beside_other_losses_are_part_of_the_quadratic_term() -> None:
    """They are looked at first as losses of their own, and taken back."""
    rng = np.random.default_rng(3)
    X, Z = rng.standard_normal((N, D)), rng.standard_normal((N // 2, D))
    w, f = cp.Variable(D), cp.Variable(N // 2)
    whole = cp.Problem(
        cp.Minimize(cp.sum(cp.pos(1 - X @ w)) + cp.sum_squares(f - 1.0)), [f == Z @ w]
    )
    best = whole.solve(solver="CLARABEL")
    slopes = whole.constraints[0].dual_value
    assert cvxscreen.explain(whole).recognised
    assert whole.solve(method="screen") == pytest.approx(best, rel=1e-7)
    assert cvxscreen.Report.of(whole).terms == N
    assert np.allclose(f.value, Z @ w.value, atol=1e-9)
    assert np.allclose(whole.constraints[0].dual_value, slopes, atol=1e-4)


def test_predictions_that_something_else_holds_too_are_left_to_cvxpy() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((N, D)), rng.standard_normal(N)
    w, f = cp.Variable(D), cp.Variable(N)
    smooth = cp.sum_squares(f - y) + cp.sum_squares(cp.diff(f))
    whole = cp.Problem(cp.Minimize(smooth), [f == X @ w])
    best = whole.solve(solver="CLARABEL")
    assert whole.solve(method="screen") == pytest.approx(best, rel=1e-9)
    assert np.allclose(f.value, X @ w.value, atol=1e-7)


def test_with_few_rows_for_each_coordinate_they_are_left_to_cvxpy() -> None:
    w = cp.Variable(D)
    X = np.random.default_rng(8).standard_normal((2 * D, D))
    found = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - 1)), [w >= 0])
    explanation = cvxscreen.explain(found)
    assert not explanation.recognised
    assert "4 rows for each coordinate" in explanation.reasons[0]


@pytest.mark.parametrize(
    ("name", "n", "solver", "taken"),
    [
        ("alone", 2_000, "", False), ("alone", 50_000, "", True),
        ("simplex", 2_000, "", False), ("simplex", 6_000, "", True),
        ("simplex", 6_000, "CLARABEL", False), ("simplex", 20_000, "CLARABEL", True),
        ("intercept", 6_000, "", False), ("intercept", 20_000, "", True),
    ],
)
def test_the_size_decides_by_what_a_plain_solve_takes(
    name: str, n: int, solver: str, taken: bool
) -> None:
    reason = measure(problem(name, n=n)).why_not(solver)
    assert (not reason) == taken, reason


@pytest.mark.parametrize("columns", [3, 6])
def test_what_defines_predictions_in_few_rows_is_data(columns: int) -> None:
    """Columns that only an eliminated one in a loss brings in are coordinates all the same."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((600, columns))
    y = X @ np.arange(1.0, columns + 1.0) + rng.standard_normal(600)
    w, b, f = cp.Variable(columns), cp.Variable(), cp.Variable(600)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(f - y) + 2 * cp.norm1(w)), [f == X @ w + b])
    found = problem.solve(method="screen", always=True)
    assert cvxscreen.Report.of(problem).recognised
    assert found == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-7)


def test_a_variable_whose_part_in_a_loss_was_overlooked_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no column counted as a loss's, w looks like a helper whose best value is 0."""
    monkeypatch.setattr(
        draft, "picked", lambda weights, rows: sp.csr_array((1, rows.shape[1]))
    )
    rng = np.random.default_rng(11)
    X = rng.standard_normal((600, 3))
    y = X @ np.arange(1.0, 4.0) + rng.standard_normal(600)
    w, b, f = cp.Variable(3), cp.Variable(), cp.Variable(600)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(f - y) + 2 * cp.norm1(w)), [f == X @ w + b])
    reasons = " ".join(cvxscreen.explain(problem).reasons)
    assert "eliminated with something of it overlooked" in reasons
