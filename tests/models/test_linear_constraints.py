"""Signs, directions and rows of ``A @ w >= b``: CVXPY's optimum, and its proof."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import LinearConstraint

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators import (
    ScreenedQuantileRegressor,
    ScreenedRegressor,
    ScreenedRegressorCV,
)

N, D = 300, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.2, -0.1]) + RNG.standard_t(3, size=N)
SIGNS = np.where(Y > 0, 1.0, -1.0)
ORDER = np.diff(np.eye(D), axis=0)
CASES: dict[str, dict[str, Any]] = {
    "signs": {"nonneg": True},
    "directions": {"monotone": [1, -1, 0, 0, 1, -1]},
    "signs and directions": {"nonneg": True, "monotone": [0, 0, 1, 1, 0, 0]},
    "ordered": {"constraints": (ORDER, 0.0)},
    "ordered, sparse": {"constraints": (sp.csr_array(ORDER), np.zeros(D - 1))},
    "simplex": {"nonneg": True, "constraints": LinearConstraint(np.ones((1, D)), 1.0, 1.0)},
    "box": {"constraints": LinearConstraint(np.eye(D), -0.3, 0.4)},
    "far from the data": {"constraints": (np.ones(D), 50.0)},
}
LOSSES = ("absolute", "quantile", "epsilon", "huber", "hinge", "squared_hinge")


def posed(loss: str, case: str, C: float, intercept: bool, penalty: str) -> Any:
    """The same problem twice: ours and CVXPY's, with its coefficients."""
    given = CASES[case]
    classes = "hinge" in loss
    shape = {"tau": 0.9} if loss == "quantile" else {}
    front: Any = cs.svm if classes else cs.regression
    ours = front(
        X, SIGNS if classes else Y, C=C, loss=loss, intercept=intercept, penalty=penalty,
        **shape, **given,
    )
    w, b = cp.Variable(D), cp.Variable()
    scores = X @ w + (b if intercept else 0.0)
    r = cp.multiply(SIGNS, scores) if classes else scores - Y
    losses = {
        "absolute": lambda: cp.sum(cp.abs(r)),
        "quantile": lambda: cp.sum(0.9 * cp.pos(-r) + 0.1 * cp.pos(r)),
        "epsilon": lambda: cp.sum(cp.pos(cp.abs(r) - 0.1)),
        "huber": lambda: 0.5 * cp.sum(cp.huber(r, 1.0)),
        "hinge": lambda: cp.sum(cp.pos(1.0 - r)),
        "squared_hinge": lambda: 0.5 * cp.sum_squares(cp.pos(1.0 - r)),
    }
    held = [w >= 0] if given.get("nonneg") else []
    if "monotone" in given:
        held.append(cp.multiply(given["monotone"], w) >= 0)
    rows = given.get("constraints")
    if isinstance(rows, tuple):
        held.append(rows[0] @ w >= rows[1])
    elif rows is not None:
        held += [rows.A @ w >= rows.lb, rows.A @ w <= rows.ub]
    objective = (1.0 if np.isinf(C) else C) * losses[loss]()
    if np.isfinite(C):
        objective += 0.5 * cp.sum_squares(w) if penalty == "l2" else cp.norm1(w)
    return ours, cp.Problem(cp.Minimize(objective), held)


SETTINGS = (
    (0.05, False, "l2", "certified"), (0.05, True, "l2", "safe"), (0.05, True, "l2", "certified"),
    (0.3, True, "l1", "certified"), (np.inf, True, "l2", "certified"),
)


@pytest.mark.table
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_the_optimum_is_that_of_cvxpy_and_certified(setting: int, case: str) -> None:
    C, intercept, penalty, mode = SETTINGS[setting]
    # Every loss meets every setting and most cases; classification has a penalty.
    losses = LOSSES if np.isfinite(C) else LOSSES[:4]
    loss = losses[(setting + list(CASES).index(case)) % len(losses)]
    ours, plain = posed(loss, case, C, intercept, penalty)
    found = cs.solve(ours, tol=1e-8, mode=mode)
    plain.solve(solver="CLARABEL")
    assert found.status == "optimal"
    assert found.value == pytest.approx(plain.value, rel=1e-6)
    assert ours.side.violation(found.x) < 1e-9
    proof = certify(ours, found.x, found.theta, tol=1e-8, multipliers=found.multipliers)
    assert proof.ok


def test_a_certificate_refuses_a_point_outside() -> None:
    free = cs.solve(cs.regression(X, Y, C=0.1), tol=1e-9)
    held = cs.regression(X, Y, C=0.1, nonneg=True)
    assert free.x.min() < -0.1
    proof = certify(held, free.x, free.theta, tol=1e-6, multipliers=np.zeros(D))
    assert not proof.ok
    assert "side constraints" in proof.reason


def test_a_path_and_left_out_terms_keep_the_constraints() -> None:
    problem = cs.regression(X, Y, C=0.1, nonneg=True, intercept=True)
    path = cs.path(problem, values=[0.01, 0.1, 1.0], tol=1e-8)
    assert all(p.status == "optimal" and p.x[:-1].min() > -1e-9 for p in path.points)
    few = np.arange(60)
    problem = cs.regression(X[few], Y[few], C=0.1, nonneg=True, intercept=True)
    left_out = cs.leave_one_out(cs.solve(problem, tol=1e-9), refit=True, accuracy=1e-3)
    for i in few[::12]:
        rest = few[few != i]
        again = cs.solve(
            cs.regression(X[rest], Y[rest], C=0.1, nonneg=True, intercept=True), tol=1e-10
        )
        residual = Y[i] - X[i] @ again.x[:-1] - again.x[-1]
        assert left_out.low[i] - 1e-9 <= residual <= left_out.high[i] + 1e-9


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"nonneg": "yes"}, "`nonneg`"),
        ({"monotone": [1, 2, 0, 0, 0, 0]}, "`monotone`"),
        ({"monotone": [1, 0]}, "6 features"),
        ({"nonneg": True, "monotone": [0, -1, 0, 0, 0, 0]}, "feature 1"),
        ({"constraints": np.eye(D)}, "pair"),
        ({"constraints": (np.eye(D + 1), 0.0)}, "7 columns"),
        ({"constraints": (np.eye(D), np.zeros(2))}, "6 rows"),
        ({"constraints": (np.full((1, D), np.nan), 0.0)}, "`constraints` holds NaN"),
        ({"constraints": (np.zeros((1, D)), 1.0)}, "row 0"),
        ({"constraints": LinearConstraint(np.eye(D), 1.0, 0.0)}, "row 0"),
        ({"nonneg": True, "kernel": "rbf"}, "`kernel` takes no constraints"),
    ],
)
@pytest.mark.parametrize("front", [cs.svm, cs.regression])
def test_bad_constraints_are_refused(front: Any, given: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        front(X, SIGNS, **given)


def test_the_estimators_take_them_as_scikit_learn_spells_them() -> None:
    kept = X.copy(), ORDER.copy()
    for model in (
        ScreenedRegressor(positive=True), ScreenedQuantileRegressor(alpha=0.0, positive=True),
        ScreenedRegressorCV(2, cv=2, positive=True),
    ):
        assert model.fit(X, Y).coef_.min() > -1e-9
        assert model.certificates_[0].ok
    falling = ScreenedRegressor(monotonic_cst=[-1, 0, 0, 0, 0, 1]).fit(X, Y).coef_
    assert falling[0] <= 1e-9 <= falling[1] ** 2
    assert falling[5] >= -1e-9
    ordered = ScreenedQuantileRegressor(alpha=0.01, constraints=(ORDER, 0.0)).fit(X, Y)
    assert np.diff(ordered.coef_).min() > -1e-9
    impossible = LinearConstraint(np.r_[[np.ones(D)], [-np.ones(D)]], 1.0, np.inf)
    for model in (
        ScreenedRegressor(constraints=impossible),
        ScreenedQuantileRegressor(constraints=impossible),
        ScreenedRegressorCV(2, cv=2, constraints=impossible),
    ):
        with pytest.raises(InvalidInput, match="`constraints`: no coefficients"):
            model.fit(X, Y)
    with pytest.raises(InvalidInput, match="takes no constraints"):
        ScreenedRegressor(kernel="rbf", positive=True).fit(X, Y)
    with pytest.raises(InvalidInput, match="monotonic_cst"):
        ScreenedRegressor(monotonic_cst=[2] * D).fit(X, Y)
    assert np.array_equal(kept[0], X)
    assert np.array_equal(kept[1], ORDER)


def test_directions_by_name() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for model in (
        ScreenedRegressor(monotonic_cst={"a": -1}),
        ScreenedRegressorCV(2, cv=2, monotonic_cst={"a": -1}),
    ):
        assert model.fit(frame, Y).coef_[0] <= 1e-9


def test_a_warm_start_on_the_boundary_does_not_hold_the_interior_point_method_up() -> None:
    from cvxscreen.solvers.interface import Start
    from cvxscreen.solvers.interior_point import InteriorPoint

    problem = cs.svm(X, SIGNS, C=0.05, constraints=(ORDER, 0.0))
    solver = InteriorPoint()
    for target in (1e-1, 1e-2, 1e-3):
        loose = solver(problem, None, target)
        start = Start(loose.x, loose.theta, multipliers=loose.multipliers)
        assert solver(problem, start, 1e-9).status == "optimal"
