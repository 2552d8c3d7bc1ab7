"""The kernels as plain Python: the same answers, line by line readable and measurable.

Compiled code is what runs; these tests let numba hand back the functions as they are written, on
problems of a few terms, and compare what comes out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from strategies import LOSSES, Case, build, reference

import cvxscreen
from cvxscreen.bounds.regions import cone_ball
from cvxscreen.certificates.many import certify_many
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.duality import dual_feasible, reference_point
from cvxscreen.datasets import two_gaussians
from cvxscreen.out_of_core import streams
from cvxscreen.solvers.column_systems import CurvedRows
from cvxscreen.solvers.compiled_path.segments import CompiledPath
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.metric.solver import closed_form, task_of
from cvxscreen.solvers.stochastic import Sdca, Spdc


@contextmanager
def interpreted() -> Iterator[None]:
    """Kernels as they are written; the compiled ones again afterwards."""
    before = numba.config.DISABLE_JIT
    numba.config.DISABLE_JIT = 1
    # Wherever a compiled function is called by its name, its source stands in.
    places = [
        (vars(module), name, loop)
        for key, module in list(sys.modules.items()) if key.startswith("cvxscreen")
        for name, loop in list(vars(module).items()) if hasattr(loop, "py_func")
    ]
    for space, name, loop in places:
        space[name] = loop.py_func
        loop.py_func.loaded = True
    try:
        yield
    finally:
        numba.config.DISABLE_JIT = before
        for space, name, loop in places:
            space[name] = loop


def both(work: Callable[[], Any]) -> tuple[Any, Any]:
    """What `work` gives compiled and interpreted."""
    compiled = work()
    with interpreted(), np.errstate(all="ignore"):  # as compiled code does
        return compiled, work()


@pytest.mark.table
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_path(loss: str, intercept: bool) -> None:
    """Every screening mode: the same points, the same terms kept, the same certificates."""
    problem = build(Case(loss, intercept, n=24, d=3, C=0.5))
    values = np.array([0.3, 0.5, 0.55, 1.4])  # steps on either side of `COARSE`
    for screen in ("certified", "safe", "off"):
        fast, slow = both(lambda screen=screen: CompiledPath(problem, screen, 1e-5).solve(values))
        assert len(fast) == len(slow) == len(values)
        assert slow.proofs.ok.all()
        for k, value in enumerate(values):
            there = problem.with_(C=float(value))
            assert there.primal(slow.X[k]) == pytest.approx(there.primal(fast.X[k]), rel=2e-5)


def test_a_path_that_is_cut_short() -> None:
    """A tolerance no solver reaches ends the stretch after the point that missed it."""
    problem = build(Case("hinge", n=24, d=3))
    fast, slow = both(
        lambda: CompiledPath(problem, "certified", 1e-300).solve(np.array([0.5, 0.6]))
    )
    assert len(fast) <= 1
    assert len(slow) <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_certificates_of_a_path(loss: str, rng: np.random.Generator) -> None:
    """Gaps and objectives to rounding, of points good and bad."""
    ref = reference(Case(loss, True, n=20))
    theta, _ = dual_feasible(ref.problem, ref.theta)
    rough = reference_point(ref.problem, ref.x + 0.1 * rng.standard_normal(ref.problem.d))
    X, slopes = np.array([ref.x, rough.x, ref.x]), np.array([theta, rough.theta, 1.01 * theta])
    values = np.full(3, ref.problem.C)
    fast, slow = both(lambda: certify_many(ref.problem, values, X, slopes, tol=0.5))
    np.testing.assert_allclose(fast.gap, slow.gap, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(fast.primal, slow.primal, rtol=1e-12)
    np.testing.assert_array_equal(fast.ok, slow.ok)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_kernel_machine(loss: str) -> None:
    """Pairs with an intercept, single coordinates without."""
    X, y = two_gaussians(24, 2, seed=1)
    for intercept in (False, True):
        problem = cvxscreen.svm(X, y, loss=loss, kernel="rbf", intercept=intercept)
        fast, slow = both(lambda p=problem: cvxscreen.solve(p, tol=1e-5))
        assert slow.certificate.ok
        assert slow.value == pytest.approx(fast.value, rel=2e-5)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_a_metric(diagonal: bool, listed: bool) -> None:
    """Product sets and lists of triplets; rules over the cone; the streamed certificate."""
    X, y = two_gaussians(14, 3, seed=2)
    T = cvxscreen.triplets(X, y, k=(2, 3))
    if listed:
        y = np.argsort(y, kind="stable")
        T = np.array([[i, j, k] for i in y[:3] for j in y[3:6] for k in y[-4:]])
    problem = cvxscreen.rtlm(X, T, 1.0, diagonal=diagonal)
    problem = problem.with_(lam=0.1 * cvxscreen.lambda_max(problem))

    def work() -> tuple[Any, Any]:
        found = cvxscreen.solve(problem, tol=1e-5)
        loose = reference_point(problem, cvxscreen.solve(problem, tol=0.1).x)
        verdict = cvxscreen.screen(problem, reference=loose, bound="midpoint", rule="cone")
        return found, verdict

    (fast, fast_verdict), (slow, slow_verdict) = both(work)
    assert slow.certificate.ok
    assert slow.value == pytest.approx(fast.value, rel=2e-5)
    clear = (fast_verdict.codes >= 0) & (slow_verdict.codes >= 0)
    np.testing.assert_array_equal(fast_verdict.codes[clear], slow_verdict.codes[clear])


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge"])
def test_sparse_rows_and_sparse_models(loss: str, rng: np.random.Generator) -> None:
    """Faces of sparse data, and coordinate descent under an L1 term."""
    X = sp.random_array((30, 8), density=0.4, rng=rng, format="csr")
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    for intercept in (False, True):
        problem = cvxscreen.svm(X, y, loss=loss, intercept=intercept)
        target = 1e-6 * problem.primal(np.zeros(problem.d))
        fast, slow = both(lambda p=problem, target=target: DualActiveSet()(p, None, target))
        assert slow.status == fast.status == "optimal"
        assert problem.primal(slow.x) == pytest.approx(problem.primal(fast.x), rel=2e-5)
    sparse = cvxscreen.sparse_svm(X, y, 0.05, loss=loss)
    fast, slow = both(lambda: cvxscreen.solve(sparse, tol=1e-5))
    assert slow.certificate.ok
    assert slow.value == pytest.approx(fast.value, rel=2e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "huber"])
def test_columns_without_a_quadratic_term(
    loss: str, sparse: bool, rng: np.random.Generator
) -> None:
    """The gap, the length of a step and the model's sweeps where an L1 norm stands alone."""
    X = rng.standard_normal((40, 25)) * (rng.random((40, 25)) < (0.3 if sparse else 1.0))
    t = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(40)
    data = sp.csr_matrix(X) if sparse else X
    make = cvxscreen.sparse_svr if loss == "huber" else cvxscreen.sparse_svm
    p = make(data, t if loss == "huber" else np.where(t >= 0, 1.0, -1.0), 1.0, loss=loss, l2=0)
    p = p.with_(lam=0.05 * cvxscreen.lambda_max(p))
    fast, slow = both(lambda: cvxscreen.solve(p, tol=1e-8))
    assert slow.certificate.ok
    assert slow.value == pytest.approx(fast.value, rel=2e-8)
    np.testing.assert_array_equal(slow.x == 0, fast.x == 0)


@pytest.mark.parametrize("shape", [(50, 40), (30, 80)])
def test_systems_on_sparse_columns(shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Products of columns, and of rows where they are fewer: below the diagonal the same."""
    rows, columns = shape
    B = rng.standard_normal(shape) * (rng.random(shape) < 0.15)
    every, chosen = np.arange(columns), np.sort(rng.permutation(columns)[: columns - 3])
    weight, right_side = rng.uniform(0.1, 1.0, len(chosen)), rng.standard_normal(len(chosen))

    def work() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        block = CurvedRows.of(sp.csc_matrix(B), every, np.arange(rows), np.ones(rows))
        return (block.solve(chosen, weight, right_side),
                np.tril(block._gram(chosen)), np.tril(block._outer(chosen, weight)))

    part = B[:, chosen]
    expected = (np.linalg.solve(part.T @ part + np.diag(weight), right_side),
                np.tril(part.T @ part), np.tril(part @ (weight[:, None] * part.T)))
    for found in both(work):
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", [Sdca, Spdc])
def test_stochastic_solvers(solver: type, rng: np.random.Generator) -> None:
    """Dual ascent a term at a time, and primal-dual steps; sparse rows."""
    X = sp.random_array((20, 6), density=0.5, rng=rng, format="csr")
    y = np.where(rng.random(20) < 0.5, 1.0, -1.0)
    problem = cvxscreen.sparse_svm(X, y, 0.005, loss="smoothed_hinge", l2=1.0)
    for sharp in (problem, cvxscreen.sparse_svm(X, y, 0.005, loss="hinge", l2=1.0)):
        target = 1e-4 * problem.primal(np.zeros(6))
        fast, slow = both(lambda p=sharp, target=target: solver()(p, None, target))
        assert sharp.primal(slow.x) == pytest.approx(sharp.primal(fast.x), rel=5e-2)
    assert slow.info["epochs"] > 0


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_streamed_certificate_and_the_terms_of_a_product_set(diagonal: bool) -> None:
    """Far lists short and long (sorted in two ways), and every term listed."""
    for n, k in ((12, 3), (120, 60)):
        X, y = two_gaussians(n, 2, seed=3)
        T = cvxscreen.triplets(X, y, k=(1, k))
        problem = cvxscreen.rtlm(X, T, 1.0, diagonal=diagonal)
        start = closed_form(task_of(problem))
        x = start.value.ravel()
        fast, slow = both(lambda p=problem, x=x: certify_metric(p, x, tol=0.9))
        assert slow.gap == pytest.approx(fast.gap, rel=1e-9)
        assert slow.primal == pytest.approx(fast.primal, rel=1e-12)
        q = T.table(X, diagonal).values(x)
        fast, slow = both(lambda t=T.terms, q=q: t.ordered(q))
        np.testing.assert_array_equal(fast.far, slow.far)
        fast, slow = both(T.terms.index)
        np.testing.assert_array_equal(fast, slow)


def test_a_ball_cut_by_the_non_negative_cone(rng: np.random.Generator) -> None:
    """Multipliers of rows that leave the cone in none, some and all of their entries."""
    q, h = np.array([0.5, 0.0, -0.2, 2.0]), rng.standard_normal((40, 4))
    h[:3] = [[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0]]

    def work(radius: float) -> np.ndarray:
        out, breaks = np.empty(len(h)), np.full(h.shape, np.inf)
        np.divide(q, h, out=breaks, where=q * h > 0)
        cone_ball.vector_multipliers(q, h, np.argsort(breaks, axis=1), radius, out)
        return out

    for radius in (0.1, 0.5, 1.0, 5.0):
        np.testing.assert_allclose(*both(lambda r=radius: work(r)), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_of_rows(dtype: type, rng: np.random.Generator) -> None:
    """Compiled and as written: the same sums to rounding, over more than one strip."""
    block = rng.standard_normal((streams.STRIP + 5, 3)).astype(dtype)
    x, theta = rng.standard_normal(3), rng.standard_normal(len(block))
    theta[::2] = 0.0

    def work() -> np.ndarray:
        return np.concatenate([
            streams.margins(block, x), streams.squares(block, x * x),
            streams.adjoint(block, theta),
        ])

    np.testing.assert_allclose(*both(work), rtol=1e-12, atol=1e-12)
