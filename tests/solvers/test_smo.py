"""The kernel solver: certified optima for every loss, the same as those of other formulations."""

from __future__ import annotations

import children
import cvxpy as cp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression, svm
from cvxscreen.solvers import smo
from cvxscreen.solvers.box_qp import BoxQp
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.smo import Smo

CLASSIFIERS = ("hinge", "smoothed_hinge", "squared_hinge")
REGRESSORS = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def data(seed: int, n: int = 250, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.6 * rng.normal(size=n)
    return X, np.where(score > 0.4, 1.0, -1.0), score


def make(loss: str, seed: int = 0, *, n: int = 250, **options: object) -> Problem:
    X, label, score = data(seed, n)
    if loss in CLASSIFIERS:
        return svm(X, label, loss=loss, **options)
    return regression(X, score, loss=loss, **options)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", CLASSIFIERS + REGRESSORS)
def test_every_loss_is_certified(loss: str, intercept: bool) -> None:
    for kernel, params, C in (("rbf", {"gamma": 0.3}, 1.0), ("poly", {"degree": 2}, 0.1),
                              ("rbf", {"gamma": 3.0}, 30.0), ("linear", None, 1.0)):
        p = make(loss, kernel=kernel, kernel_params=params, C=C, intercept=intercept)
        scale = p.primal(np.zeros(p.d))
        found = Smo()(p, None, 1e-11 * scale)
        assert found.status == "optimal", (kernel, found.info)
        point = reference_point(p, found.x, found.theta)
        assert point.relative_gap <= 1e-8
        assert certify(p, point.x, point.theta, tol=1e-8).ok


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", CLASSIFIERS + REGRESSORS)
def test_linear_kernel_is_the_linear_model(loss: str, intercept: bool) -> None:
    """Same optimum, dual values, intercept, and margins."""
    p = make(loss, kernel="linear", intercept=intercept, C=0.5)
    q = make(loss, intercept=intercept, C=0.5)
    ours, linear = solve_screened(p, tol=1e-10), solve_screened(q, tol=1e-10)
    assert ours.value == pytest.approx(linear.value, rel=3e-10)
    X, _, _ = data(0)
    w = ours.x[: p.n] @ X
    assert np.allclose(w, linear.w, atol=1e-4)
    assert ours.intercept == pytest.approx(linear.intercept, abs=1e-4)
    margins = p.design.forward(ours.x)
    assert np.allclose(margins, q.design.forward(linear.x), atol=1e-4)


@pytest.mark.parametrize("intercept", [False, True])
def test_against_cvxpy(intercept: bool) -> None:
    X, label, score = data(3, n=40)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    root = np.linalg.cholesky(K + 1e-13 * np.eye(40))
    for target, loss in ((label, "hinge"), (score, "absolute"), (score, "epsilon")):
        v, b = cp.Variable(40), cp.Variable()
        values = root @ v + (b if intercept else 0.0)
        if loss == "hinge":
            p = svm(X, target, C=2.0, kernel="rbf", kernel_params={"gamma": 0.5},
                    intercept=intercept)
            cost = cp.sum(cp.pos(1 - cp.multiply(target, values)))
        else:
            p = regression(X, target, C=2.0, loss=loss, kernel="rbf", kernel_params={"gamma": 0.5},
                           intercept=intercept)
            cost = cp.sum(cp.pos(cp.abs(values - target) - (0.1 if loss == "epsilon" else 0.0)))
        prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(v) + 2.0 * cost))
        prob.solve(solver="CLARABEL")
        found = solve_screened(p, tol=1e-9)
        assert found.status == "optimal"
        assert found.value == pytest.approx(prob.value, rel=1e-6)
        assert np.allclose(found.problem.design.centred_product(found.x[:40])
                           + (found.x[-1] if intercept else 0.0), values.value, atol=1e-3)


@pytest.mark.parametrize("mode", ["safe", "certified"])
@pytest.mark.parametrize("intercept", [False, True])
def test_shared_loop_reduces_and_certifies(mode: str, intercept: bool) -> None:
    p = make("hinge", n=900, kernel="rbf", kernel_params={"gamma": 0.5}, intercept=intercept)
    found = solve_screened(p, Smo(max_rounds=8), mode=mode, tol=1e-9)  # so that one is not enough
    assert found.status == "optimal"
    assert found.rounds[-1].kept < 900
    assert (found.screening.codes >= 0).mean() > 0.5
    alone = Smo()(p, None, 1e-10 * found.value)
    assert found.value == pytest.approx(p.primal(alone.x), rel=2e-9)


def test_blocks_smaller_than_the_problem_reach_the_same_optimum() -> None:
    """More terms than one dense block, a cache of a few hundred rows, and a warm start."""
    options = {"kernel": "rbf", "kernel_params": {"gamma": 0.5}, "intercept": True}
    p = make("hinge", n=1800, **options)
    small = make("hinge", n=1800, cache_bytes=600 * 8 * 1800, **options)
    scale = p.primal(np.zeros(p.d))
    full = Smo()(p, None, 1e-9 * scale)
    few = Smo(block=64)(small, None, 1e-9 * scale)
    assert full.status == few.status == "optimal"
    assert p.primal(full.x) == pytest.approx(small.primal(few.x), rel=1e-7)
    assert small.design.kernel._store.nbytes <= 600 * 8 * 1800
    there = p.with_(C=1.3)
    warm = Smo()(there, Start(full.x, 1.3 * full.theta), 1e-8 * scale)
    cold = Smo()(there, None, 1e-8 * scale)
    assert warm.status == cold.status == "optimal"
    assert there.primal(warm.x) == pytest.approx(there.primal(cold.x), rel=1e-6)


def test_singular_matrices_and_duplicates() -> None:
    """Repeated points, a kernel of rank one, a constant point: nothing divides by zero."""
    X, label, _ = data(5, n=60)
    doubled = np.vstack([X, X])
    for labels in (np.tile(label, 2), np.concatenate([label, -label])):
        p = svm(doubled, labels, kernel="rbf", intercept=True, C=10.0)
        assert solve_screened(p, tol=1e-8).status == "optimal"
    for K in (np.ones((120, 120)), np.zeros((120, 120))):
        p = svm(K, np.tile(label, 2), kernel="precomputed", C=1.0)
        assert solve_screened(p, tol=1e-8).status == "optimal"


def test_terms_without_weight_take_no_part() -> None:
    X, label, _ = data(6, n=80)
    weight = np.where(np.arange(80) < 60, 1.0, 0.0)
    options = {"kernel": "rbf", "kernel_params": {"gamma": 0.5}, "intercept": True}
    found = solve_screened(svm(X, label, sample_weight=weight, **options), tol=1e-9)
    fewer = solve_screened(svm(X[:60], label[:60], **options), tol=1e-9)
    assert found.value == pytest.approx(fewer.value, rel=1e-8)
    assert not found.alpha[60:].any()


@pytest.mark.parametrize("balanced", [False, True])
def test_block_meets_its_optimality_conditions(balanced: bool) -> None:
    rng = np.random.default_rng(1)
    m = 40
    A = rng.normal(size=(m, 12))
    K, f = A @ A.T, rng.normal(size=m)
    lo, hi = -rng.random(m), rng.random(m)
    e, q = np.where(rng.random(m) < 0.5, 0.2, 0.0), np.where(rng.random(m) < 0.5, 0.3, 0.0)
    block = BoxQp(K, f.copy(), np.zeros(m), lo, hi, e, q, balanced)
    block.solve(1e-9)
    c, g = block.c, K @ block.c + f + q * block.c
    assert np.allclose(block.F, K @ c + f, atol=1e-9)
    up = np.where(c < hi, g + np.where(c >= 0, e, -e), np.inf).min()
    down = np.where(c > lo, g + np.where(c > 0, e, -e), -np.inf).max()
    assert down - up <= 1e-8 if balanced else (up >= -1e-8 and down <= 1e-8)
    assert abs(c.sum()) <= 1e-12 or not balanced


def test_refuses_other_problems() -> None:
    with pytest.raises(InvalidInput, match="kernel problems"):
        Smo()(make("hinge"))


def test_import_needs_neither_numba_nor_sklearn() -> None:
    code = "import sys, cvxscreen; sys.exit(any(m in sys.modules for m in ('numba', 'sklearn')))"
    assert children.run(code).returncode == 0


def test_more_terms_inside_their_box_than_the_cache_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an intercept the worst are those far from its level, not far from 0."""
    monkeypatch.setattr(smo, "DENSE", 100)
    X, y = two_gaussians(600, 20, seed=0)
    y = np.where(np.arange(600) % 5 == 0, 1.0, -1.0)  # so that the level is not 0
    problem = svm(
        X, y, C=1.5, kernel="rbf", kernel_params={"gamma": 0.2}, intercept=True,
        cache_bytes=100 * 600 * 8,
    )
    found = Smo(block=40)(problem, None, 1e-6 * problem.primal(np.zeros(problem.d)))
    inside = (found.theta > problem.losses.lo) & (found.theta < problem.losses.hi)
    assert inside.sum() > 200
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-5).ok


@pytest.mark.parametrize(("features", "threads"), [(4, 1), (3000, 2)])
def test_small_points_are_evaluated_by_one_thread_of_blas(
    features: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And afterwards BLAS has its threads again; large points keep them all the while."""
    def allowed() -> int:  # the most: some solver may bring a library that has one thread only
        return max(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")

    seen: list[int] = []
    improve = smo._improve

    def watched(*args: object) -> tuple[int, float]:
        seen.append(allowed())
        return improve(*args)

    monkeypatch.setattr(smo, "_improve", watched)
    X = np.random.default_rng(0).standard_normal((400, features))
    p = svm(X, np.sign(X[:, 0]), kernel="rbf")
    with threadpool_limits(2, user_api="blas"):
        assert solve_screened(p, Smo(), tol=1e-3).status == "optimal"
        assert allowed() == 2
    assert set(seen) == {threads}


def test_a_matrix_that_lies_whole_in_the_cache_is_read_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where most terms have a coefficient the blocks are whole, uncopied, and change no entry."""
    seen = []
    made = smo.BoxQp

    def watched(K: np.ndarray, *columns: object) -> BoxQp:
        seen.append(K)
        return made(K, *columns)

    monkeypatch.setattr(smo, "BoxQp", watched)
    X, label, _ = data(3, 900, 8)
    label = label * np.where(np.random.default_rng(0).random(900) < 0.3, -1.0, 1.0)
    problem = svm(X, label, intercept=True, kernel="rbf")
    found = Smo()(problem, target=1e-6)
    kernel = problem.design.kernel
    assert found.status == "optimal"
    assert kernel.filled
    assert any(np.shares_memory(K, kernel.matrix()) for K in seen)
    every = np.arange(900)
    np.testing.assert_array_equal(kernel.matrix(), kernel.block(every, every))
    np.testing.assert_allclose(
        kernel.matrix(), kernel.function.block(every, every), rtol=1e-12, atol=1e-15
    )
    assert certify(problem, found.x, found.theta, tol=1e-6).ok
    few = svm(X, label, intercept=True, kernel="rbf", cache_bytes=600 * 8 * 900)
    again = Smo()(few, target=1e-6)
    assert few.design.kernel.matrix() is None
    assert again.status == "optimal"
