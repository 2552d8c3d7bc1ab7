"""`reweight`, `remove`, `add`, `bootstrap`: the fits they promise, their proofs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.datasets import two_gaussians

X, Y = two_gaussians(60, 3, seed=1)
T = X @ np.array([1.0, -2.0, 0.5]) + np.sin(5.0 * X[:, 0])
RNG = np.random.default_rng(3)
COUNTS = RNG.poisson(1.0, 60).astype(float)

PROBLEMS = {
    "hinge": lambda X=X, Y=Y: cs.svm(X, Y, C=0.5),
    "intercept": lambda X=X, Y=Y: cs.svm(X, Y, C=0.5, intercept=True),
    "csr": lambda X=X, Y=Y: cs.svm(sp.csr_matrix(X), Y, loss="squared_hinge"),
    "float32, badly scaled": lambda X=X, Y=Y: cs.svm((1e3 * X).astype(np.float32), Y, C=1e-4),
    "smoothed": lambda X=X, Y=Y: cs.svm(X, Y, loss="smoothed_hinge", intercept=True),
}
RESPONSES = {
    "absolute": lambda X=X, T=T: cs.regression(X, T, C=0.5),
    "quantile": lambda X=X, T=T: cs.regression(X, T, loss="quantile", tau=0.8, intercept=True),
    "huber": lambda X=X, T=T: cs.regression(sp.csr_matrix(X), T, C=0.5, loss="huber"),
}
KERNELS = {
    "kernel": lambda X=X, Y=Y: cs.svm(X, Y, kernel="rbf", kernel_params={"gamma": 0.5}),
    "kernel, intercept": lambda X=X, Y=Y: cs.svm(
        X + 5.0, Y, kernel="rbf", kernel_params={"gamma": 0.5}, intercept=True),
    "polynomial, sparse points": lambda X=X, Y=Y: cs.svm(sp.csr_matrix(X), Y, kernel="poly"),
    "called": lambda X=X, Y=Y: cs.svm(X, Y, kernel=lambda a, b: a @ b.T, loss="squared_hinge"),
    "kernel, absolute": lambda X=X, T=T: cs.regression(
        X, T, kernel="rbf", kernel_params={"gamma": 0.5}, intercept=True),
}
OTHERS = {
    **KERNELS,
    "elastic net": lambda: cs.sparse_svm(X, Y, 0.02),
}
EVERY = {**PROBLEMS, **RESPONSES, **OTHERS}


def repeated(problem: cs.Problem, counts: np.ndarray) -> cs.Problem:
    """The problem with every term as often as `counts` says: another way to weigh it."""
    rows = np.repeat(np.arange(problem.n), counts.astype(int))
    return replace(
        problem, design=problem.design.take_rows(rows), losses=problem.losses.take(rows)
    )


@pytest.mark.parametrize("name", EVERY)
def test_weights_are_repetitions_and_the_proofs_hold(name: str) -> None:
    solution = cs.solve(EVERY[name](), tol=1e-9)
    change = cs.reweight(solution, COUNTS, tol=1e-9)
    true = cs.solve(repeated(solution.problem, COUNTS), tol=1e-11)
    assert change.solution.certificate.ok
    assert change.solution.value == pytest.approx(true.value, rel=1e-7)
    margins = solution.problem.design.forward(true.x)
    rounding = 1e-6 * (1.0 + np.abs(margins))
    assert (change.low <= margins + rounding).all()
    assert (margins <= change.high + rounding).all()
    used = COUNTS > 0
    wrong = change.verdict.zero & used & (np.abs(cs.solve(
        change.problem, tol=1e-11).theta) > 1e-6)
    assert not wrong.any()


@pytest.mark.parametrize("name", EVERY)
def test_removed_terms_are_gone(name: str) -> None:
    solution = cs.solve(EVERY[name](), tol=1e-9)
    mask = np.zeros(60, dtype=bool)
    mask[[3, 17, 40]] = True
    weights = np.where(mask, 0.0, 1.0)
    by_mask, by_index = cs.remove(solution, mask, tol=1e-9), cs.remove(solution, [3, -20, 17])
    by_weight = cs.reweight(solution, weights, tol=1e-9)
    assert by_mask.problem.n == 57
    assert by_index.problem.n == 57
    assert by_mask.solution.value == pytest.approx(by_weight.solution.value, rel=1e-7)
    np.testing.assert_array_equal(by_mask.verdict.codes, by_weight.verdict.codes[~mask])


@pytest.mark.parametrize("name", {**PROBLEMS, **RESPONSES, **KERNELS})
def test_added_samples_are_as_if_they_had_been_there(name: str) -> None:
    make = EVERY[name]
    whole = cs.solve(make(), tol=1e-10)
    target = T if name in RESPONSES or "absolute" in name else Y
    rows = 1e3 * X if "scaled" in name else X + 5.0 if name == "kernel, intercept" else X
    part = cs.solve(make(X[:50], target[:50]), tol=1e-10)
    change = cs.add(part, rows[50:], target[50:], tol=1e-10)
    assert change.problem.n == 60
    assert change.solution.value == pytest.approx(whole.value, rel=1e-8)
    margins = whole.problem.design.forward(whole.x)
    rounding = 1e-5 * (1.0 + np.abs(margins))
    assert ((change.low <= margins + rounding) & (margins <= change.high + rounding)).all()


def test_the_ball_is_attained_by_a_term_orthogonal_to_the_others() -> None:
    """An isolated support vector: its margin without it is exactly an end of its interval."""
    A = np.zeros((41, 3))
    A[:40, :2], A[40, 2] = X[:40, :2], 0.3
    labels = np.append(Y[:40], 1.0)
    solution = cs.solve(cs.svm(A, labels), tol=1e-13)
    assert solution.alpha[40] > 0.5
    change = cs.reweight(solution, np.append(np.ones(40), 0.0), tol=1e-12)
    assert abs(change.solution.x[2]) < 1e-9
    assert change.low[40] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["hinge", "quantile", "csr", "elastic net"])
def test_bootstrap_fits_are_those_of_the_drawn_samples(name: str) -> None:
    problem = EVERY[name]()
    found = cs.bootstrap(problem, 5, seed=7, tol=1e-9)
    assert found.certified.all()
    for k in range(5):
        drawn = np.random.default_rng((7, k)).integers(0, 60, 60)
        true = cs.solve(repeated(problem, np.bincount(drawn, minlength=60)), tol=1e-11)
        np.testing.assert_allclose(found.coefficients[k], true.x, atol=1e-3)
    low, high = found.intervals(0.5)
    assert (low <= high).all()
    assert "5 fits" in str(found)
    assert found.standard_error.shape == (problem.d,)


def test_the_same_bits_in_any_number_of_threads() -> None:
    solution = cs.solve(cs.svm(X, Y, C=0.5))
    one, two = (cs.bootstrap(solution, 6, seed=1, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.coefficients, two.coefficients)
    longer = cs.bootstrap(solution, 8, seed=1)
    np.testing.assert_array_equal(one.coefficients, longer.coefficients[:6])


def test_a_limit_keeps_the_fits_that_are_done() -> None:
    found = cs.bootstrap(cs.solve(cs.svm(X, Y)), 50, time_limit=1e-9)
    assert not found.finished
    assert 1 <= len(found.coefficients) < 50


def test_the_callers_arrays_stay() -> None:
    solution = cs.solve(cs.svm(X, Y, C=0.5))
    before = solution.x.copy(), solution.theta.copy(), X.copy(), COUNTS.copy()
    cs.reweight(solution, COUNTS), cs.remove(solution, [1]), cs.add(solution, X[:2], Y[:2])
    for old, new in zip(before, (solution.x, solution.theta, X, COUNTS), strict=True):
        np.testing.assert_array_equal(old, new)


def test_refusals_say_what_to_do() -> None:
    solution = cs.solve(cs.svm(X, Y))
    with pytest.raises(cs.InvalidInput, match="not be negative"):
        cs.reweight(solution, -np.ones(60))
    with pytest.raises(cs.InvalidInput, match="one must be positive"):
        cs.reweight(solution, np.zeros(60))
    with pytest.raises(cs.InvalidInput, match="all 60 terms"):
        cs.remove(solution, np.arange(60))
    with pytest.raises(cs.InvalidInput, match="beyond"):
        cs.remove(solution, [60])
    with pytest.raises(cs.InvalidInput, match="whole numbers"):
        cs.remove(solution, [0.5])
    with pytest.raises(cs.InvalidInput, match=r"shapes \(m, 3\)"):
        cs.add(solution, X[:, :2], Y)
    with pytest.raises(cs.InvalidInput, match="labels"):
        cs.add(solution, X, T)
    with pytest.raises(cs.InvalidInput, match="weights of their own"):
        cs.add(cs.solve(cs.svm(X, Y, sample_weight=1.0 + np.arange(60))), X, Y)
    with pytest.raises(cs.InvalidInput, match="kind 'sparse svm'"):
        cs.add(cs.solve(cs.sparse_svm(X, Y, 0.02)), X, Y)
    kernel = cs.solve(cs.svm(X, Y, kernel="rbf"))
    with pytest.raises(cs.InvalidInput, match=r"shapes \(m, 3\)"):
        cs.add(kernel, X[:, :2], Y)
    with pytest.raises(cs.InvalidInput, match="labels"):
        cs.add(kernel, X, T)
    given = cs.solve(cs.svm(X @ X.T, Y, kernel="precomputed"))
    with pytest.raises(cs.InvalidInput, match="Gram matrix of `solution` was given"):
        cs.add(given, X @ X.T, Y)
    with pytest.raises(cs.InvalidInput, match="kernel"):
        cs.bootstrap(cs.svm(X, Y, kernel="rbf"), 2)
