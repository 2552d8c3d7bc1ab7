"""The 1-norm SVM against the same program as anybody writes it in CVXPY."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.errors import InvalidInput


def classes(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = X[:, :3] @ np.array([2.0, -1.0, 1.0]) + rng.standard_normal(n)
    return X, np.where(score + 0.5 > 0, 1.0, -1.0)


def written(X: np.ndarray, y: np.ndarray, C: float, loss: str, intercept: bool) -> float:
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    short = cp.pos(1 - cp.multiply(y, X @ w + (b if intercept else 0.0)))
    cost = 0.5 * cp.sum_squares(short) if loss == "squared_hinge" else cp.sum(short)
    problem = cp.Problem(cp.Minimize(cp.norm1(w) + C * cost))
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(problem.value)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("n", [200, 6_000])
def test_the_program_s_optimum(n: int, loss: str, intercept: bool) -> None:
    X, y = classes(n, 12)
    C = 8.0 / n
    found = cvxscreen.solve(
        cvxscreen.svm(X, y, C=C, loss=loss, penalty="l1", intercept=intercept)
    )
    assert found.certificate.ok
    assert found.value == pytest.approx(written(X, y, C, loss, intercept), rel=1e-7)
    coefficients = found.x[:12]
    assert np.count_nonzero(np.abs(coefficients) > 1e-9) < 12


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_without_an_intercept_the_norm_is_the_penalty(loss: str) -> None:
    X, y = classes(60, 300)
    problem = cvxscreen.svm(X, y, C=0.3, loss=loss, penalty="l1")
    found = cvxscreen.solve(problem)
    assert found.certificate.ok
    assert problem.penalty is not None
    assert loss != "hinge" or found.rounds[-1].features < 300  # the other solver looks by itself
    assert found.alpha.shape == (60,)
    assert found.value == pytest.approx(written(X, y, 0.3, loss, False), rel=1e-6)
    at = cvxscreen.path(problem, values=[0.1, 0.6]).points[1]
    assert at.objective == pytest.approx(written(X, y, 0.6, loss, False), rel=1e-6)


def test_huber_s_loss_is_what_its_terms_say() -> None:
    X, y = classes(80, 20)
    target = X[:, 0] + 0.5 * y
    apart = cvxscreen.regression(X, target, C=0.5, loss="huber", penalty="l1")
    terms = cvxscreen.regression(  # constraints that hold anyway
        X, target, C=0.5, loss="huber", penalty="l1", constraints=(np.eye(20), -100.0)
    )
    assert terms.penalty is None
    assert apart.penalty is not None
    found, other = cvxscreen.solve(apart, tol=1e-8), cvxscreen.solve(terms, tol=1e-8)
    assert found.value == pytest.approx(other.value, rel=1e-7)


def test_sparse_data_weights_and_another_C() -> None:
    X, y = classes(300, 8)
    X[np.abs(X) < 0.7] = 0.0
    problem = cvxscreen.svm(sp.csr_array(X), y, C=0.05, penalty="l1", intercept=True)
    doubled = cvxscreen.solve(problem.with_(C=0.1))
    assert doubled.value == pytest.approx(written(X, y, 0.1, "hinge", True), rel=1e-7)
    weighted = cvxscreen.svm(
        X, y, C=0.05, penalty="l1", intercept=True, sample_weight=np.full(300, 2.0)
    )
    assert cvxscreen.solve(weighted).value == pytest.approx(doubled.value, rel=1e-7)


def test_what_cannot_be_meant_is_refused() -> None:
    X, y = classes(50, 4)
    with pytest.raises(InvalidInput, match="kernel"):
        cvxscreen.svm(X, y, penalty="l1", kernel="rbf")
    with pytest.raises(InvalidInput, match="penalty"):
        cvxscreen.svm(X, y, penalty="elastic")
