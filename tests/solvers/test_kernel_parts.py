"""Small kernel problems over one matrix: each solved as `solve` does, whatever C is."""

from __future__ import annotations

from typing import Any

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

    def spoiled(parts: KernelParts, tol: float, each: Any):
        c, b, _ = solve_parts(parts, tol, each)
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


@pytest.mark.parametrize("settings", [{}, {"cache_bytes": 8 * 260 * 20}, {"C": 1e3}])
def test_of_classes_of_all_sizes_each_two_are_solved(
    settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large ones alone, the others together; where rows have no room by the general solver."""
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(4), (100, 80, 50, 30))
    X = rng.standard_normal((260, 3)) + 1.5 * np.eye(4)[y][:, :3]
    settings = {"kernel": "rbf", "multi_class": "ovo", "tol": 1e-8, **settings}
    with monkeypatch.context() as patch:
        patch.setattr(classifier, "MANY_SAMPLES", 10)
        expected = ScreenedSVC(**settings).fit(X, y)
    together, sizes = classifier.solve_parts, []

    def counted(parts: KernelParts, tol: float, each: Any):
        sizes.extend(np.diff(parts.first).tolist())
        return together(parts, tol, each)

    monkeypatch.setattr(classifier, "solve_parts", counted)
    monkeypatch.setattr(classifier, "OF_TWO_CLASSES", 140)
    monkeypatch.setattr(classifier, "ONE_MATRIX", 100)
    monkeypatch.setattr(smo, "IN_PLACE", 100)
    found = ScreenedSVC(**settings).fit(X, y)
    threads = ScreenedSVC(**settings, n_jobs=2).fit(X, y)
    assert np.array_equal(threads.intercept_, found.intercept_)
    assert np.array_equal(threads.dual_coef_, found.dual_coef_)
    if classifier.DEMAND_CLOCK.bought and "cache_bytes" not in settings:
        assert sorted(sizes) == [80, 80, 110, 110, 130, 130, 130, 130]
    assert all(proof.ok for proof in found.certificates_)
    for one, other in zip(found.certificates_, expected.certificates_, strict=True):
        assert one.dual <= other.primal
        assert other.dual <= one.primal
    assert np.allclose(found.decision_function(X), expected.decision_function(X), atol=2e-3)


def test_many_parts_have_their_rows_evaluated_until_all_at_once_are_the_cheaper() -> None:
    rng = np.random.default_rng(6)
    label = np.arange(300) % 6
    for apart, filled in ((6.0, False), (0.3, True)):
        X = rng.standard_normal((300, 5)) + apart * np.eye(6)[label][:, :5]
        whole = cvxscreen.svm(
            X, np.where(label == 0, 1.0, -1.0), intercept=True, kernel="rbf",
            kernel_params={"gamma": 0.02},
        )
        rows = [np.flatnonzero((label == i) | (label == j)) for i in range(6) for j in range(i)]
        signs = [np.where(label[some] == label[some[0]], 1.0, -1.0) for some in rows]
        parts = KernelParts.of(whole, rows, signs)
        _, _, proofs = solve_parts(parts, 1e-6)
        assert all(proof.ok for proof in proofs)
        assert whole.design.kernel.filled == filled


def test_rows_that_take_too_much_memory_are_given_up_and_evaluated_again() -> None:
    rng = np.random.default_rng(7)
    label = np.arange(160) % 4
    X = rng.standard_normal((160, 5)) + 3.0 * np.eye(4)[label][:, :4] @ np.eye(4, 5)
    signs = np.where(label == 0, 1.0, -1.0)
    rows = [np.flatnonzero((label == i) | (label == j)) for i in range(4) for j in range(i)]
    found = []
    least = 8 * 160 * 16
    for cache in (2**30, least):
        whole = cvxscreen.svm(X, signs, intercept=True, kernel="rbf", cache_bytes=cache)
        parts = KernelParts.of(
            whole, rows, [np.where(label[some] == label[some[0]], 1.0, -1.0) for some in rows]
        )
        found.append(solve_parts(parts, 1e-6))
        assert (8 * parts.evaluated() > least) == (cache == 2**30)
    for one, other in zip(*(proofs for _, _, proofs in found), strict=True):
        assert one.ok
        assert other.ok
        assert one.primal == pytest.approx(other.primal, rel=1e-6)


def test_without_memory_for_the_rows_of_all_points_each_two_classes_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(8)
    y = np.arange(300) % 10
    X = rng.standard_normal((300, 3)) + 2.0 * np.eye(10)[y][:, :3]
    monkeypatch.setattr(classifier, "ONE_MATRIX", 100)
    model = ScreenedSVC(kernel="rbf", multi_class="ovo")
    expected = model.fit(X, y).decision_function(X)
    with cvxscreen.memory_limit(8 * 200 * 200):  # of 300 points, or of 60
        found = model.fit(X, y).decision_function(X)
    assert np.allclose(found, expected, atol=1e-2)
