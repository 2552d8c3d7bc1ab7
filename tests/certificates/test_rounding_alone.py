"""An optimum of 0: judged by the losses at x = 0, and only where rounding is all that is left."""

from __future__ import annotations

import numpy as np
import pytest

from cvxscreen.api import solve
from cvxscreen.certificates import certificate
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.closed_form import without_loss
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.models.regression import regression
from cvxscreen.models.svm import svm
from cvxscreen.paths.path import path

LOSSES = ["absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"]


def constant(loss: str, value: float = 3.7, mean: float = 0.0, n: int = 120) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) + mean
    shape = {"tau": 0.3} if loss == "quantile" else {}
    return regression(X, np.full(n, value), loss=loss, intercept=True, **shape)


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


def test_only_where_zero_is_a_lower_bound() -> None:
    """A linear term or a constant may take the optimum below 0: the same point is refused."""
    y = np.full(40, 2.0)
    design = Rows(np.random.default_rng(1).standard_normal((40, 3)), None, np.ones((40, 1)))
    form, losses = Quadratic([1.0] * 3 + [0.0]), Losses(y, 0.0, 0.0, -1.0, 1.0)
    x, theta = np.array([0.0, 0.0, 0.0, 2.0]), np.zeros(40)
    plain = Problem(design, losses, form, np.zeros(4))
    assert certify(plain, x, theta).ok
    pulled = Problem(design, losses, form, np.array([90.0, 0.0, 0.0, 0.0]))
    assert not certify(pulled, x, theta).ok
    assert solve(pulled).value < -1e-3
    lowered = Problem(design, losses, form, np.zeros(4), constant=-1e-16)
    assert certify(lowered, x, theta).relative_gap > 1e-3


def test_the_objective_above_counts_the_rounding_of_margins() -> None:
    """Within the error of every margin the objective is at most what `above` says; attained."""
    problem = constant("absolute")
    x = np.append(np.zeros(4), 3.7)
    t, error = problem.design.forward(x), np.full(problem.n, 1e-3)
    high = certificate.above(problem, x, t, error)
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
