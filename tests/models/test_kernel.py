"""Kernels at the front doors: all ways agree, no decision is wrong, refusals are clear."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC, SVR

import cvxscreen as cs
from cvxscreen.bounds import BOUNDS, PARAMETER_CHANGE
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.models import kernel as models
from cvxscreen.models.kernel import decision_function
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.smo import Smo

NAMED = [
    ("rbf", {"gamma": 0.4}), ("poly", {"gamma": 0.3, "degree": 3, "coef0": 1.0}), ("linear", {}),
    ("laplacian", {"gamma": 0.2}), ("cosine", {}),
]


def data(seed: int, n: int = 150, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.6 * rng.normal(size=n)
    return X, np.where(score > 0.4, 1.0, -1.0), score


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("name", "params"), NAMED)
def test_name_matrix_and_function_agree(name: str, params: dict, intercept: bool) -> None:
    """One optimum whichever way the kernel is given, from float32, CSR and lists as well."""
    X, y, _ = data(1)
    X = X.astype(np.float32).astype(float)

    def function(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return pairwise_kernels(left, right, metric=name, **params)

    K = function(X, X)
    given = {"kernel": name, "kernel_params": params or None}
    problems = [
        svm(X, y, intercept=intercept, **given),
        svm(K, y, intercept=intercept, kernel="precomputed"),
        svm(X, y, intercept=intercept, kernel=function),
        svm(X.astype(np.float32), y, intercept=intercept, **given),
        svm(sp.csr_matrix(X), y, intercept=intercept, **given),
        svm(X.tolist(), y, intercept=intercept, **given),
    ]
    found = [solve_screened(p, tol=1e-10) for p in problems]
    new = data(2, n=30)[0]
    decisions = [decision_function(s, function(new, X) if s is found[1] else new) for s in found]
    for s, decision in zip(found, decisions, strict=True):
        assert s.status == "optimal"
        assert s.value == pytest.approx(found[0].value, rel=1e-9)
        assert np.allclose(decision, decisions[0], atol=1e-4)


@pytest.mark.parametrize(("name", "params"), NAMED[:3])
def test_against_libsvm(name: str, params: dict) -> None:
    X, y, score = data(3)
    K = pairwise_kernels(X, X, metric=name, **params)
    new = data(4, n=40)[0]
    at_new = pairwise_kernels(new, X, metric=name, **params)
    given = {"kernel": name, "kernel_params": params or None, "intercept": True, "C": 0.7}
    svc = SVC(kernel="precomputed", C=0.7, tol=1e-8).fit(K, y)
    svr = SVR(kernel="precomputed", C=0.7, tol=1e-8, epsilon=0.2).fit(K, score)
    ours = solve_screened(svm(X, y, **given), tol=1e-10)
    assert np.allclose(decision_function(ours, new), svc.decision_function(at_new), atol=1e-4)
    assert ours.intercept == pytest.approx(svc.intercept_[0], abs=1e-4)
    ours = solve_screened(regression(X, score, loss="epsilon", epsilon=0.2, **given), tol=1e-10)
    assert np.allclose(decision_function(ours, new), svr.predict(at_new), atol=1e-4)


def settled(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Pieces that a nearly exact optimum is on (-1 near a kink), and its coordinates."""
    found = Smo()(problem, None, 1e-13 * problem.primal(np.zeros(problem.d)))
    point = reference_point(problem, found.x, found.theta)
    slack = 1e-6 + 10.0 * np.sqrt(point.gap) * problem.norms
    codes = problem.losses.piece_within(point.margins - slack, point.margins + slack)
    return codes, found.x


def sweep(problem: Problem, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Decisions, and those a nearly exact optimum contradicts, from good and bad points."""
    rng = np.random.default_rng(seed)
    truth, best = settled(problem)
    scale = problem.primal(np.zeros(problem.d))
    decided: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for level in (1e-1, 1e-3, 1e-6):
        for factor in (1.0, 1.3):
            there = problem.with_(C=problem.C * factor)
            found = Smo()(there, None, level * scale)
            x = found.x + level * rng.normal() * best
            elsewhere = reference_point(there, x, found.theta)
            here = reference_point(problem, x, found.theta / factor)
            for name, bound in BOUNDS.items():
                point = elsewhere if name in PARAMETER_CHANGE else here
                codes = judge(problem, bound(problem, point)).codes
                both = (codes >= 0) & (truth >= 0)
                decided[name] += int(both.sum())
                wrong[name] += int((codes[both] != truth[both]).sum())
    return decided, wrong


@pytest.mark.parametrize("intercept", [False, True])
def test_no_wrong_decision(intercept: bool) -> None:
    """RBF and polynomial kernels, six losses, float32 data, scales: every decision holds.

    Each loss meets each kernel, and each scale and storage; each kernel meets these.
    """
    decided: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for seed, (scale, dtype) in enumerate([(1.0, float), (1e-3, float), (1e3, np.float32)]):
        X, y, score = data(seed, n=140)
        X = (X * scale).astype(dtype)
        kernels = (("rbf", {"gamma": 0.5 / scale**2}),
                   ("poly", {"gamma": 0.3 / scale**2, "degree": 2}))
        losses = ("hinge", "smoothed_hinge", "squared_hinge", "absolute", "epsilon", "huber")
        for number, loss in enumerate(losses):
            kernel, params = kernels[(seed + number) % 2]
            front, target = (svm, y) if number < 3 else (regression, score)
            new = sweep(front(X, target, loss=loss, kernel=kernel, kernel_params=params,
                              intercept=intercept), seed)
            decided += new[0]
            wrong += new[1]
    assert not wrong.total(), f"{wrong.total()} of {decided.total()}"
    assert min(decided[name] for name in BOUNDS) >= 2000


def test_given_arrays_stay_as_they_are() -> None:
    X, y, _ = data(5)
    K = X @ X.T
    for kernel, matrix in (("rbf", X), ("precomputed", K)):
        before, labels = matrix.copy(), y.copy()
        matrix.flags.writeable = False
        solve_screened(svm(matrix, y, kernel=kernel, intercept=True), tol=1e-8)
        assert np.array_equal(matrix, before)
        assert np.array_equal(y, labels)
    assert svm(K, y, kernel="precomputed").design.kernel.function.matrix is K


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_sparse_points_too_large_to_be_dense(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay sparse, and new points may be dense or sparse."""
    X, y, _ = data(5)
    X[np.abs(X) < 0.5] = 0.0
    dense = solve_screened(svm(X, y, kernel=kernel), tol=1e-10)
    monkeypatch.setattr(models, "_DENSE_BYTES", 0)
    rows = sp.csr_matrix(X)
    problem = svm(rows, y, kernel=kernel)
    assert sp.issparse(problem.design.kernel.function.points)
    rows.data[:] = np.nan  # the problem has its own
    found, new = solve_screened(problem, tol=1e-10), data(2, n=30)[0]
    assert found.certificate.ok
    assert found.value == pytest.approx(dense.value, rel=1e-9)
    expected = decision_function(dense, new)
    for given in (new, sp.csr_matrix(new)):
        np.testing.assert_allclose(decision_function(found, given), expected, atol=1e-5)


def indefinite(n: int) -> np.ndarray:
    """Unit diagonal, small entries, one eigenvalue of about -1."""
    rng = np.random.default_rng(0)
    v = rng.choice([-1.0, 1.0], size=n)
    K = -2.0 * np.outer(v, v) / n
    np.fill_diagonal(K, 1.0)
    return K


def test_refuses_what_is_no_kernel() -> None:
    X, y, _ = data(6)
    K = X @ X.T
    crooked, negative, beyond, broken = K.copy(), K.copy(), K.copy(), K.copy()
    crooked[0, 1] += 0.1
    negative[3, 3] = -1.0
    beyond[0, 1] = beyond[1, 0] = 100.0
    broken[2, 2] = np.nan
    for matrix, words in ((K[:, :5], "square Gram matrix"), (crooked, "not symmetric"),
                          (negative, "negative diagonal entry"), (beyond, "negative eigenvalues"),
                          (indefinite(150), "negative eigenvalues"), (broken, "NaN"),
                          (sp.csr_matrix(K), "sparse")):
        with pytest.raises(InvalidInput, match=words):
            svm(matrix, y, kernel="precomputed")
    with pytest.raises(InvalidInput, match="negative eigenvalues"):
        svm(X, y, kernel="sigmoid", kernel_params={"gamma": 2.0, "coef0": 0.0})
    with pytest.raises(InvalidInput, match="not symmetric"):
        svm(X, y, kernel=lambda a, b: np.exp(-((a[:, :1] - 2.0 * b[:, :1].T) ** 2)))


def test_refuses_a_large_indefinite_matrix() -> None:
    n = 3200
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    with pytest.raises(InvalidInput, match="negative eigenvalues"):
        svm(indefinite(n), y, kernel="precomputed")


def test_random_vectors_see_what_the_block_of_a_large_matrix_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No pair of rows shows it, and no more of the block than its one entry is factorised."""
    monkeypatch.setattr(models, "CHECKED_WHOLE", 1)
    y = np.where(np.arange(150) % 2 == 0, 1.0, -1.0)
    signs = np.triu(np.random.default_rng(3).choice([-0.9, 0.9], (150, 150)), 1)
    with pytest.raises(InvalidInput, match="negative eigenvalues"):
        svm(np.eye(150) + signs + signs.T, y, kernel="precomputed")
    assert cs.solve(svm(np.eye(150) + 0.5, y, kernel="precomputed")).certificate.ok


def test_refuses_bad_options() -> None:
    X, y, score = data(7)
    with pytest.raises(UnknownName, match="precomputed"):
        svm(X, y, kernel="gauss")
    for kernel, params, words in (
        ("rbf", {"width": 1.0}, "takes"), ("rbf", {"gamma": -1.0}, "`gamma`"),
        ("poly", {"degree": 2.5}, "`degree`"), ("poly", {"coef0": -1.0}, "`coef0`"),
        ("precomputed", {"gamma": 1.0}, "named kernel"),
    ):
        with pytest.raises(InvalidInput, match=words):
            regression(X, score, kernel=kernel, kernel_params=params)
    with pytest.raises(InvalidInput, match="whole Gram"):
        svm(X, y, kernel="rbf", cache_bytes=1000)
    found = solve_screened(svm(X, y, kernel="rbf"))
    with pytest.raises(InvalidInput, match="`X_new` has 2 columns"):
        decision_function(found, X[:, :2])
    with pytest.raises(InvalidInput, match="kernel problem"):
        decision_function(solve_screened(svm(X, y)), X)


def test_kernel_without_kernel_options_changes_nothing() -> None:
    X, y, _ = data(8)
    assert svm(X, y).kind == "svm"
    assert "kernel" in str(svm(X, y, kernel="rbf"))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_exported_through_the_gram_matrix_full_and_reduced(intercept: bool, solver: str) -> None:
    X, y, score = data(5, n=60)
    tight = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 200_000}
    accuracy = tight if solver == "SCS" else {}
    for problem in (
        svm(X, y, kernel="rbf", intercept=intercept),
        regression(X, score, loss="quantile", tau=0.3, kernel="poly", intercept=intercept),
    ):
        ours = solve_screened(problem, tol=1e-9)
        reduced = ours.screening.reduce()
        assert reduced.n < problem.n
        for exported in (problem.to_cvxpy(), reduced.to_cvxpy()):
            assert exported.solve(solver=solver, **accuracy) == pytest.approx(ours.value, rel=1e-6)


def test_a_solver_of_cvxpy_by_name() -> None:
    X, y, _ = data(6, n=60)
    problem = svm(X, y, kernel="rbf", intercept=True)
    ours, theirs = cs.solve(problem, tol=1e-9), cs.solve(problem, solver="CLARABEL", tol=1e-8)
    assert theirs.certificate.ok
    np.testing.assert_allclose(
        decision_function(theirs, X), decision_function(ours, X), atol=1e-4
    )
