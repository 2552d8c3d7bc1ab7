"""A lasso with bounds and far more columns than rows: columns that these hold at 0 are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.cvxpy_plugin.size import measure

N, D = 100, 400


def data() -> tuple[np.ndarray, np.ndarray, float]:
    """Rows, responses, and a weight of the L1 norm."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = X[:, :6] @ np.array([2.0, -1.0, 1.0, 0.3, -2.0, 0.2]) + rng.standard_normal(N)
    return X, y, 0.3 * float(np.abs(X.T @ y).max())


def problem(attributes: dict[str, Any], bounds: Callable[[Any], list[Any]], norm: Any) -> Any:
    X, y, weight = data()
    w = cp.Variable(D, **attributes)
    return cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(X @ w - y) + weight * norm(w)), bounds(w)
    )


SPELLINGS: dict[str, tuple[dict[str, Any], Callable[[Any], list[Any]], Any]] = {
    "box": ({}, lambda w: [w >= -0.5, w <= 0.5], cp.norm1),
    "half a box": ({}, lambda w: [w <= np.linspace(0.1, 1.0, D)], cp.norm1),
    "attribute": ({"bounds": [-0.5, 0.5]}, lambda w: [], cp.norm1),
    "largest": ({}, lambda w: [cp.norm_inf(w) <= 0.5], cp.norm1),
    "sizes": ({}, lambda w: [cp.abs(w) <= 0.5], cp.norm1),
    "sign": ({"nonneg": True}, lambda w: [], cp.norm1),
    "sum": ({}, lambda w: [w >= 0], cp.sum),
    "total": ({}, lambda w: [cp.sum(w) <= 0.5], cp.norm1),
    "squares": ({}, lambda w: [w >= 0], lambda w: cp.sum(w) + 0.1 * cp.sum_squares(w)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_optimum_and_the_multipliers_of_the_bounds_are_those_of_a_plain_solve(
    name: str,
) -> None:
    plain, found = (problem(*SPELLINGS[name]) for _ in range(2))
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    found.solve(method="screen", always=True)
    report = found.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert found.status == "optimal"
    assert found.value == pytest.approx(plain.value, rel=1e-7)
    np.testing.assert_allclose(
        found.variables()[0].value, plain.variables()[0].value, atol=1e-5
    )
    for one, other in zip(found.constraints, plain.constraints, strict=True):
        np.testing.assert_allclose(one.dual_value, other.dual_value, atol=1e-4)


@pytest.mark.parametrize("spelling", [
    ({}, lambda w: [w >= -1.0, cp.cumsum(w) >= 0.0], cp.norm1),
    ({"bounds": [-1.0, 1.0]}, lambda w: [], lambda w: 0.0 * cp.sum(w)),
    ({}, lambda w: [w[:100] >= 0], cp.sum),
], ids=["running sums", "nothing at 0", "some"])
def test_what_does_not_hold_every_column_at_0_is_left_to_cvxpy(spelling: Any) -> None:
    assert "as many coordinates as terms" in measure(problem(*spelling)).why_not()


def test_with_no_more_columns_than_rows_it_is_left_to_cvxpy() -> None:
    rng = np.random.default_rng(0)
    w = cp.Variable(300)
    cost = cp.sum_squares(rng.standard_normal((200, 300)) @ w - rng.standard_normal(200))
    assert not cs.explain(cp.Problem(cp.Minimize(cost + 9.0 * cp.norm1(w)), [w <= 1.0])).recognised
