"""An optimum of 0: judged by the losses at x = 0, and only where rounding is all that is left."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import nnls

from cvxscreen.api import solve
from cvxscreen.certificates import certificate
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.closed_form import without_loss
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin import Report
from cvxscreen.designs.rows import Rows
from cvxscreen.models.linear import regression, svm
from cvxscreen.paths.path import path

LOSSES = ["absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"]


def constant(loss: str, value: float = 3.7, mean: float = 0.0, n: int = 120) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) + mean
    shape = {"tau": 0.3} if loss == "quantile" else {}
    return regression(X, np.full(n, value), loss=loss, intercept=True, **shape)


@pytest.mark.table
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [3.7, 1e-8, -2e6])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_a_constant_target_is_solved(loss: str, value: float, mean: float) -> None:
    """The intercept is the target, in either mode, along a path, and the promise is kept."""
    problem = constant(loss, value, mean)
    for mode in ("certified", "safe"):
        found = solve(problem, tol=1e-9, mode=mode)
        assert found.status == "optimal", found.certificate
        assert found.intercept == value
        assert not found.w.any()
        assert 0.0 <= found.value <= found.certificate.gap <= 1e-9 * problem.primal(np.zeros(5))
    points = path(problem, values=[0.1, 1.0, 10.0]).points
    assert [point.status for point in points] == ["optimal"] * 3


@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber"])
def test_a_search_that_ends_in_rounding_is_accepted(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the solvers find without the shortcut: all margins within units of the last place."""
    for name in ("solvers.rows", "solvers.compiled_path.segments"):
        monkeypatch.setattr(f"cvxscreen.{name}.without_loss", lambda problem: None)
    problem = constant(loss)
    found = solve(problem)
    assert found.status == "optimal", found.certificate
    assert found.intercept == pytest.approx(3.7, rel=1e-9)


@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber"])
@pytest.mark.parametrize("away", [1e-6, 1e-9, 1e-12])
def test_a_point_beyond_rounding_is_refused(loss: str, away: float) -> None:
    """An intercept that misses by more than a few units of the last place proves nothing."""
    problem = constant(loss)
    x = np.append(np.zeros(4), 3.7 * (1.0 + away))
    scale = problem.primal(x) / (1e-16 * problem.primal(np.zeros(5)))
    proof = certify(problem, x, np.zeros(problem.n))
    assert not proof.ok or scale < 1.0  # Huber's square of 1e-12 is rounding
    tilted = np.append(np.full(4, 1e-6), 3.7)
    assert not certify(problem, tilted, np.zeros(problem.n)).ok


def fitted(linear: float = 0.0, constant: float = 0.0) -> Problem:
    """Forty targets of 2, three features of noise and a column of ones that nothing penalises."""
    design = Rows(np.random.default_rng(1).standard_normal((40, 3)), None, np.ones((40, 1)))
    form, losses = Quadratic([1.0] * 3 + [0.0]), Losses(np.full(40, 2.0), 0.0, 0.0, -1.0, 1.0)
    return Problem(design, losses, form, np.array([linear, 0.0, 0.0, 0.0]), constant=constant)


def test_beside_a_linear_term_zero_is_no_lower_bound() -> None:
    """It may take the optimum below 0: a point with an objective of 0 is refused."""
    x, theta = np.array([0.0, 0.0, 0.0, 2.0]), np.zeros(40)
    assert certify(fitted(), x, theta).ok
    pulled = fitted(90.0)
    assert not certify(pulled, x, theta).ok
    assert solve(pulled).value < -1e-3


def test_beside_a_linear_term_that_is_known_roughly_zero_is_no_lower_bound() -> None:
    """A reduced problem may stand for one with a linear term within its `imbalance` of this one's.

    Such a term takes the optimum below 0 (`pulled`), so that the point is not proven to be one.
    """
    x, theta = np.array([0.0, 0.0, 0.0, 2.0]), np.zeros(40)
    pulled = fitted(90.0)
    rough = replace(fitted(), imbalance=float(np.abs(pulled.linear).max()))
    assert not certify(pulled, x, theta).ok
    assert not certify(rough, x, theta).ok
    assert certify(replace(rough, imbalance=0.0), x, theta).ok


@pytest.mark.parametrize("constant", [-1e-16, 1e-13])
def test_a_constant_shifts_both(constant: float) -> None:
    """What is certified is the distance from the optimum, which a constant does not change."""
    x, theta = np.array([0.0, 0.0, 0.0, 2.0]), np.zeros(40)
    plain, shifted = certify(fitted(), x, theta), certify(fitted(constant=constant), x, theta)
    assert shifted.ok
    assert shifted.gap == plain.gap
    away = np.array([0.0, 0.0, 0.0, 2.0 + 1e-9])
    assert not certify(fitted(constant=constant), away, theta).ok


def bounded(high: float) -> tuple[Problem, np.ndarray]:
    """Targets that a vector fits exactly, and ``x <= high``; the vector."""
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((60, 3)), np.array([1.0, -2.0, 0.5])
    side = SideConstraints(-np.eye(3), np.full(3, high), [("nonneg", 3)])
    losses = Losses(X @ w, 0.0, 0.0, -1.0, 1.0)
    return Problem(Rows(X), losses, Quadratic([0.0] * 3), np.zeros(3), side=side), w


def test_constraints_only_raise_an_optimum_of_zero() -> None:
    """A feasible exact fit is optimal, whatever the slopes are; an infeasible one is refused."""
    problem, w = bounded(2.0)
    for theta in (np.zeros(60), np.full(60, 0.5)):
        assert certify(problem, w, theta, np.zeros(3)).ok
    problem, w = bounded(1.0 - 1e-3)
    proof = certify(problem, w, np.zeros(60), np.zeros(3))
    assert not proof.ok
    assert "violated" in proof.reason


def test_squares_of_sums_that_cancel_have_their_parts_for_a_unit() -> None:
    """The distance of two boxes that meet: 0 to the rounding of the sums; 1e-6 of these is not."""
    rng = np.random.default_rng(4)
    A, k = rng.standard_normal((3, 40)), 40
    held = SideConstraints(np.vstack([np.eye(k), np.ones((1, k))]), np.append(np.zeros(k), -1.0),
                           [("nonneg", k), ("nonneg", 1)])
    ends = np.full(3, np.inf)
    losses = Losses(np.zeros(3), 0.0, 1.0, -ends, ends)
    problem = Problem(Rows(A), losses, Quadratic(np.zeros(k)), np.zeros(k), side=held)
    x = nnls(np.vstack([1e4 * A, np.ones((1, k))]), np.array([0.0, 0.0, 0.0, 2.0]))[0]
    none = np.zeros(3), np.zeros(k + 1)
    parts = 0.5 * float(np.square(np.abs(A) @ np.abs(x)).sum())
    proof = certify(problem, x, *none, tol=1e-10)
    assert proof.ok, proof.reason
    assert proof.gap <= 1e-20 * parts
    moved = x.copy()
    moved[0] += 1e-3
    proof = certify(problem, moved, *none, tol=1e-10)
    assert 1e-12 * parts < proof.gap < 1e-4 * parts
    assert not proof.ok


def minimax(n: int = 50) -> tuple[Problem, np.ndarray]:
    """The largest ``|x - y_i| <= s``, s the last coordinate, for equal targets; ``(2, 0)``."""
    ones, last = np.ones((n, 1)), -np.ones((n, 1))
    design = Rows(np.vstack([np.hstack([ones, last]), np.hstack([-ones, last])]))
    y = np.full(n, 2.0)
    losses = Losses(np.append(y, -y), 0.0, 0.0, 0.0, np.inf)
    form = Quadratic([0.0] * 2)
    return Problem(design, losses, form, np.array([0.0, 1.0])), np.array([2.0, 0.0])


def test_beside_a_linear_term_the_gap_is_judged_by_what_cancels() -> None:
    """A minimax fit without residuals: slopes that prove it do, others prove nothing."""
    problem, x = minimax()
    theta = np.zeros(problem.n)
    theta[[0, 50]] = 0.5
    assert certify(problem, x, theta).ok
    assert not certify(problem, x, np.zeros(problem.n)).ok
    assert not certify(problem, [2.0, 1e-9], theta).ok


def test_slopes_that_cancel_prove_that_nothing_is_to_be_gained() -> None:
    """The largest of ``a_i' x``, plus squares, where no direction lowers all: the optimum is 0."""
    rng = np.random.default_rng(8)
    half = rng.standard_normal((40, 3))
    design = Rows(np.hstack([np.vstack([half, -half]), -np.ones((80, 1))]))
    losses = Losses(np.zeros(80), 0.0, 0.0, 0.0, np.inf)
    problem = Problem(design, losses, Quadratic([2.0] * 3 + [0.0]), np.array([0.0] * 3 + [1.0]))
    balanced = np.full(80, 1.0 / 80.0)
    near = np.array([1e-10, 0.0, 0.0, 1e-9])
    for x in (np.zeros(4), near * 1e-8):
        assert certify(problem, x, balanced).ok
    assert not certify(problem, near, balanced).ok
    tilted = balanced + np.where(np.arange(80) < 40, 0.1, -0.1) / 80.0
    assert not certify(problem, np.zeros(4), tilted).ok


@pytest.mark.parametrize("intercept", [True, False])
def test_large_data_are_no_scale_beside_kinks_of_their_own(intercept: bool) -> None:
    """Columns far from 0: slopes that cancel to a billionth certify no point that loses a lot.

    Without any coefficient every hinge costs 1; a gap of several times that is no rounding, however
    small beside ``(sum_i |theta_i| |a_i|)^2``.
    """
    rng = np.random.default_rng(0)
    y = np.resize([1.0, -1.0], 300)
    X = rng.standard_normal((300, 5)) + np.outer(y, [0.2] * 5) + 1e8
    problem = svm(X, y, intercept=intercept)
    for C in (0.1, 1.0):
        x, theta = np.zeros(problem.d), np.full(300, -C)
        proof = certify(replace(problem, C=C), x, theta)
        better = svm(X - 1e8, y, C=C, intercept=True)
        assert proof.primal > 1.3 * solve(better).value
        assert proof.gap > proof.primal
        assert not proof.ok


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_past_the_largest_are_no_scale() -> None:
    """Slopes that cancel and whose squares overflow make every gap small beside them: refused."""
    half = np.random.default_rng(9).standard_normal((40, 3))
    losses = Losses(np.zeros(80), 0.0, 0.0, 0.0, 1e156)
    problem = Problem(Rows(np.vstack([half, -half])), losses, Quadratic([2.0] * 3), np.zeros(3))
    proof = certify(problem, [1e-10, 0.0, 0.0], np.full(80, 1e155))
    assert proof.gap >= 1e140
    assert not proof.ok


def test_an_objective_that_happens_to_be_zero_is_no_optimum() -> None:
    """Losses of 90 and a linear term of -90 at a point: its gap is seen, and refused."""
    problem, theta = fitted(90.0), np.full(40, -0.25)
    x = np.array([-1.0, 0.0, 0.0, 2.0])
    losses = problem.primal(x) + 90.0
    x[0] *= losses / 90.0
    for _ in range(60):  # the objective vanishes where the line meets the losses
        x[0] = -(problem.primal(x) - 90.0 * x[0]) / 90.0
    assert abs(problem.primal(x)) < 1e-9
    assert not certify(problem, x, theta).ok


@pytest.mark.parametrize("form", ["absolute", "quantile", "huber", "largest", "minimax", "cvar"])
def test_exact_fits_from_cvxpy_are_certified(form: str) -> None:
    """Targets without noise, beside bounds: a first thing to try, and an optimum of 0."""
    rng = np.random.default_rng(4)
    X, w = rng.standard_normal((400, 4)), cp.Variable(4)
    residuals = X @ w - X @ [1.0, -2.0, 0.5, 3.0]
    cost = {
        "absolute": lambda: cp.norm1(residuals),
        "quantile": lambda: cp.sum(cp.maximum(0.9 * residuals, -0.1 * residuals)),
        "huber": lambda: cp.sum(cp.huber(residuals)),
        "largest": lambda: cp.sum_largest(cp.abs(residuals), 20),
        "minimax": lambda: cp.norm_inf(residuals),
        "cvar": lambda: cp.cvar(cp.abs(residuals), 0.9),
    }[form]()
    problem = cp.Problem(cp.Minimize(cost), [cp.abs(w) <= 5])
    problem.solve(method="screen", always=True)
    report = Report.of(problem)
    assert report.recognised, report.reason
    assert problem.status == "optimal"
    assert abs(problem.value) < 1e-9
    assert w.value == pytest.approx([1.0, -2.0, 0.5, 3.0], abs=1e-6)


def test_the_objective_above_counts_the_rounding_of_margins() -> None:
    """Within the error of every margin the objective is at most what `above` says; attained."""
    problem = constant("absolute")
    x = np.append(np.zeros(4), 3.7)
    t, error = problem.design.forward(x), np.full(problem.n, 1e-3)
    high = certificate.objective_above(problem, x, t, error)
    worst = certificate.piecewise_value(problem.losses, t + error).sum()
    assert worst <= high <= worst * (1.0 + 1e-9)


def test_a_problem_with_losses_has_no_point_without_them() -> None:
    """Two targets, two classes, features instead of a constant column: None, at once."""
    X, y = np.random.default_rng(2).standard_normal((30, 3)), np.full(30, 2.0)
    assert without_loss(regression(X, y)) is None
    assert without_loss(regression(X, np.append(y[:-1], 1.0), intercept=True)) is None
    middle = y.copy()
    middle[7] = 5.0
    assert without_loss(regression(X, middle, intercept=True)) is None
    assert without_loss(svm(X, np.resize([1.0, -1.0], 30), intercept=True)) is None
    assert without_loss(regression(X, y, intercept=True)) is not None


@pytest.mark.parametrize("loss", ["absolute", "quantile"])
@pytest.mark.parametrize(("n", "d"), [(5, 5), (20, 30), (21, 20)])
@pytest.mark.parametrize("intercept", [True, False])
def test_as_many_coefficients_as_targets_fit_them(
    loss: str, n: int, d: int, intercept: bool
) -> None:
    """An exact fit without a penalty: what rounding x leaves of it is a billionth of the losses."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = rng.standard_normal(n) if n <= d else X @ rng.standard_normal(d)
    found = solve(regression(X, y, C=np.inf, loss=loss, intercept=intercept), tol=1e-9)
    assert found.status == "optimal", found.certificate
    assert found.value <= 1e-9 * found.problem.primal(np.zeros(found.problem.d))
    x = found.x + 1e-8 * np.sign(found.x)
    assert not certify(found.problem, x, found.theta, tol=1e-9).ok


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon", "huber"])
@pytest.mark.parametrize("intercept", [True, False])
def test_targets_of_zero_are_solved(kernel: str | None, loss: str, intercept: bool) -> None:
    """Nothing pulls at any coefficient: they are 0, whatever the kernel."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    found = solve(regression(X, np.zeros(60), loss=loss, kernel=kernel, intercept=intercept))
    assert (found.status, found.value) == ("optimal", 0.0)
    assert not found.w.any()


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge"])
def test_a_class_without_weight_leaves_the_label_of_the_other(
    kernel: str | None, loss: str
) -> None:
    """The intercept is that label, and costs nothing."""
    y = np.resize([1.0, -1.0], 60)
    X = np.random.default_rng(0).standard_normal((60, 3)) + y[:, None]
    for label in (1.0, -1.0):
        weight = (y == label).astype(float)
        problem = svm(X, y, loss=loss, kernel=kernel, sample_weight=weight, intercept=True)
        found = solve(problem)
        assert (found.status, found.value, found.intercept) == ("optimal", 0.0, label)
