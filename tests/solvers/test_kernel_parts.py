"""Small kernel problems over one matrix: each solved as `solve` does, whatever C is."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.certificates.kernels import KernelParts, certify_parts
from cvxscreen.estimators import ScreenedSVC, classifier
from cvxscreen.solvers import smo
from cvxscreen.solvers.smo import solve_parts


def against_the_rest(
    n: int, C: float, loss: str, intercept: bool, gamma: float = 0.5
) -> KernelParts:
    rng = np.random.default_rng(n)
    label = np.arange(n) % 3
    X = rng.standard_normal((n, 3)) + 1.5 * np.eye(3)[label]
    signs = [np.where(label == k, 1.0, -1.0) for k in range(3)]
    whole = cvxscreen.svm(
        X, signs[0], C=C, loss=loss, intercept=intercept, kernel="rbf",
        kernel_params={"gamma": gamma},
    )
    assert whole.design.kernel.fill()
    some = np.flatnonzero(label != 2)
    return KernelParts.of(
        whole, [*[np.arange(n)] * 3, some], [*signs, signs[0][some]]
    )


@pytest.mark.table
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge"])
def test_answers_are_those_of_the_general_solver(loss: str, intercept: bool, C: float) -> None:
    parts = against_the_rest(60, C, loss, intercept)
    _, _, proofs = solve_parts(parts, 1e-6)
    for k, proof in enumerate(proofs):
        assert proof.ok
        best = cvxscreen.solve(parts.problem(k), tol=1e-9)
        assert best.certificate.dual <= proof.primal * (1.0 + 1e-12)
        assert proof.primal <= best.value * (1.0 + 1e-6)


def test_where_coordinate_descent_gets_stuck_newton_steps_go_on() -> None:
    """A smooth kernel, nearly singular, and a large C; the rows that nobody has read included."""
    parts = against_the_rest(240, 1e4, "hinge", True, gamma=1e-2)
    _, _, proofs = solve_parts(parts, 1e-6)
    assert all(proof.ok for proof in proofs)


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_what_is_not_certified_goes_through_solve(
    multi_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    y = np.arange(75) % 3
    X = rng.standard_normal((75, 3)) + 1.2 * np.eye(3)[y]
    model = ScreenedSVC(kernel="rbf", multi_class=multi_class, tol=1e-8)
    expected = model.fit(X, y).decision_function(X)

    def spoiled(parts: KernelParts, tol: float):
        c, b, _ = solve_parts(parts, tol)
        c[parts.terms(1)] = 0.0
        return c, b, certify_parts(parts, c, b, tol)

    monkeypatch.setattr(classifier, "solve_parts", spoiled)
    again = ScreenedSVC(kernel="rbf", multi_class=multi_class, tol=1e-8).fit(X, y)
    assert all(proof.ok for proof in again.certificates_)
    assert np.allclose(again.decision_function(X), expected, atol=1e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon", "huber"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_lone_problem_is_one_of_them(
    loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`solve` gives the optimum of the loop, in one round; where that is refused, the loop does."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((70, 3))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(70)
    make, target = (cvxscreen.svm, np.sign(y)) if "hinge" in loss else (cvxscreen.regression, y)
    problem = make(X, target, C=2.0, loss=loss, intercept=intercept, kernel="rbf")
    expected = cvxscreen.solve(problem, tol=1e-8, mode="safe")
    found = cvxscreen.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert [one.kept for one in found.rounds] == [70]
    assert np.allclose(problem.design.forward(found.x), problem.design.forward(expected.x),
                       atol=1e-3)
    proof = cvxscreen.certify(problem, found.x, found.theta, tol=1e-8)
    assert proof.ok
    assert np.isclose(found.certificate.primal, proof.primal, rtol=1e-12)
    monkeypatch.setattr(smo, "AIM", 1e9)
    again = cvxscreen.solve(problem, tol=1e-8)
    assert again.certificate.ok
    assert again.rounds[-1].solver_info["evaluations"] >= 0  # of the loop's solver


@pytest.mark.parametrize("limit", ["ONE_MATRIX", "AT_ONCE", "OF_TWO_CLASSES"])
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_large_problems_find_the_same_models(
    multi_class: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 4)) + np.eye(4)[y]
    settings = {"kernel": "rbf", "multi_class": multi_class, "tol": 1e-8, "C": 10.0}
    small = ScreenedSVC(**settings).fit(X, y)
    monkeypatch.setattr(classifier, limit, 10)
    large = ScreenedSVC(**settings).fit(X, y)
    assert np.allclose(small.decision_function(X), large.decision_function(X), atol=1e-3)
    assert (small.predict(X) == large.predict(X)).all()
