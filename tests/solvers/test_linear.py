"""The Newton system by its three ways: all solve the same equations."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import newton as linear
from cvxscreen.solvers.newton import solve_newton_system


def problem_of(
    n: int, d: int, *, sparse: bool, free: bool = False, single: bool = False,
    matrix: bool = False, seed: int = 0,
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < (0.2 if sparse else 1.0))
    X = X.astype(np.float32) if single else X
    extra = np.ones((n, 1)) if free else None
    diagonal = np.r_[rng.uniform(0.5, 2.0, d), np.zeros(int(free))]
    B = rng.standard_normal((2, d + int(free)))
    return Problem(
        Rows(sp.csr_matrix(X) if sparse else X, rng.uniform(-2, 2, n), extra),
        Losses(np.zeros(n), 0.0, 0.0, -1.0, 1.0),
        Quadratic(diagonal, B.T @ B if matrix else None),
        np.zeros(len(diagonal)),
    )


def residual(problem: Problem, rows: np.ndarray, bend: np.ndarray, damping: np.ndarray,
             right: np.ndarray, step: np.ndarray) -> float:
    """Relative difference from numpy's solution of the dense system."""
    A = problem.design.dense()[rows]
    H = problem.quadratic.dense() + np.diag(damping) + A.T @ (bend[:, None] * A)
    expected = np.linalg.solve(H, right)
    return float(np.linalg.norm(step - expected) / np.linalg.norm(expected))


def system(problem: Problem, k: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(problem.n, k, replace=False))
    damping = np.where(problem.quadratic.free, 0.1, 0.0)
    return rows, rng.uniform(0.1, 10.0, k), damping, rng.standard_normal(problem.d)


BRANCHES: dict[str, Callable[[bool, bool, bool], tuple[Problem, int, str]]] = {
    "few coordinates": lambda s, f, h: (problem_of(60, 6, sparse=s, free=f, single=h), 40, ""),
    "few rows": lambda s, f, h: (problem_of(60, 30, sparse=s, free=f, single=h), 9, "_woodbury"),
    "dense quadratic": lambda s, f, h: (
        problem_of(60, 30, sparse=s, free=f, single=h, matrix=True), 9, ""
    ),
    "no rows": lambda s, f, h: (problem_of(60, 6, sparse=s, free=f, single=h), 0, ""),
}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_direct_ways_agree_with_numpy(
    branch: str, sparse: bool, free: bool, single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cholesky by coordinates or by rows, to rounding; the expected way is the one taken."""
    problem, k, expected = BRANCHES[branch](sparse, free, single)
    rows, bend, damping, right = system(problem, k)
    taken: list[str] = []
    for name in ("_woodbury", "_conjugate_gradients"):
        original = getattr(linear, name)
        monkeypatch.setattr(
            linear, name, lambda *a, _n=name, _f=original: (taken.append(_n), _f(*a))[1]
        )
    step = solve_newton_system(problem, rows, bend, damping, right)
    assert taken == [expected] * bool(expected)
    # The systems here have condition numbers below 1e4.
    assert residual(problem, rows, bend, damping, right, step) <= 1e-10


@pytest.mark.parametrize("shape", [(60, 30, 9), (60, 6, 5), (60, 6, 40)])
@pytest.mark.parametrize("damping", [1e-2, 1e-8, 1e-12, 1e-14])
def test_little_damping_on_a_free_coordinate(shape: tuple[int, int, int], damping: float) -> None:
    """The rows curve it, so the system is well conditioned however small its own diagonal is."""
    n, d, k = shape
    problem = problem_of(n, d, sparse=False, free=True)
    rows, bend, extra, right = system(problem, k)
    extra = np.where(problem.quadratic.free, damping, 0.0)
    step = solve_newton_system(problem, rows, bend, extra, right)
    # A direction for a line search: six digits are plenty.
    assert residual(problem, rows, bend, extra, right, step) <= 1e-6


@pytest.mark.parametrize("k", [3, 5, 40])
@pytest.mark.parametrize("bend", [1.0, 1e6, 1e12])
def test_badly_scaled_columns_do_not_break_the_factorisation(k: int, bend: float) -> None:
    """Columns of 1e-6 to 1e6, a free coordinate, huge second derivatives: still a descent step."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 5)) * 10.0 ** np.linspace(-6, 6, 5)
    problem = Problem(
        Rows(X, None, np.ones((60, 1))), Losses(np.zeros(60), 0.0, 0.0, -1.0, 1.0),
        Quadratic(np.r_[np.ones(5), 0.0]), np.zeros(6),
    )
    rows, right = np.arange(k), rng.standard_normal(6) * np.r_[10.0 ** np.linspace(-6, 6, 5), 1.0]
    damping = np.r_[np.zeros(5), 1e-12]
    step = solve_newton_system(problem, rows, np.full(k, bend), damping, right)
    assert np.isfinite(step).all()
    assert step @ right > 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_conjugate_gradients_agree_with_numpy(
    sparse: bool, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit for factorising, the system is solved to the forcing tolerance of 1e-3."""
    monkeypatch.setattr(linear, "DENSE_LIMIT", 10)
    problem = problem_of(80, 30, sparse=sparse, free=free)
    rows, bend, damping, right = system(problem, 40)
    step = solve_newton_system(problem, rows, bend, damping, right)
    A = problem.design.dense()[rows]
    H = problem.quadratic.dense() + np.diag(damping) + A.T @ (bend[:, None] * A)
    assert np.linalg.norm(H @ step - right) <= 2e-3 * np.linalg.norm(right)
    assert step @ right > 0


def test_conjugate_gradients_never_form_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many coordinates neither Gram matrix is asked for."""
    problem = problem_of(2000, 1300, sparse=True)
    monkeypatch.setattr(
        Rows, "weighted_gram", lambda *_: pytest.fail("the d x d matrix was formed")
    )
    monkeypatch.setattr(linear, "_woodbury", lambda *_: pytest.fail("the k x k matrix was formed"))
    rows, bend, damping, right = system(problem, 1500)
    step = solve_newton_system(problem, rows, 0.01 * bend, damping, right)
    assert np.isfinite(step).all()


def test_the_inputs_are_not_changed() -> None:
    """Factorisations may overwrite their own copies only."""
    for matrix in (False, True):
        problem = problem_of(40, 8, sparse=False, matrix=matrix)
        rows, bend, damping, right = system(problem, 20)
        copies = [array.copy() for array in (rows, bend, damping, right)]
        before = problem.quadratic.dense().copy()
        solve_newton_system(problem, rows, bend, damping, right)
        for old, new in zip(copies, (rows, bend, damping, right), strict=True):
            np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(before, problem.quadratic.dense())


@pytest.mark.parametrize("bend", [1.0, 1e8, 1e16])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_few_rows_that_curve_a_free_coordinate_ever_more(bend: float, size: float) -> None:
    """Wide data, an intercept, huge second derivatives: against the system in fifty digits.

    As a difference of two numbers of the size of W the intercept's curvature would be noise, and
    no Cholesky factor of it exist.
    """
    rng = np.random.default_rng(5)
    problem = Problem(
        Rows(size * rng.uniform(0.5, 1.5, (6, 30)), None, np.ones((6, 1))),
        Losses(np.zeros(6), 0.0, 0.0, -1.0, 1.0), Quadratic(np.r_[np.ones(30), 0.0]), np.zeros(31),
    )
    right, damping = rng.standard_normal(31), np.r_[np.zeros(30), 1e-12 * bend]
    step = solve_newton_system(problem, np.arange(6), np.full(6, bend), damping, right)
    with mpmath.workdps(50):
        A = mpmath.matrix(problem.design.dense().tolist())
        H = bend * A.T * A + mpmath.diag((np.r_[np.ones(30), 0.0] + damping).tolist())
        expected = np.array([float(x) for x in mpmath.lu_solve(H, mpmath.matrix(right.tolist()))])
    assert np.linalg.norm(step - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("k", [3, 25, 40])
def test_products_of_all_rows_solve_the_same_system(free: bool, k: int) -> None:
    """The part of them that a step needs stands for the rows; with more rows than columns, none."""
    problem = problem_of(60, 40, sparse=False, free=free)
    rows, bend, damping, right = system(problem, k)
    kept = ~problem.quadratic.free
    A = problem.design.dense()[:, kept]
    products = (A / problem.quadratic.diagonal[kept]) @ A.T
    before = products.copy()
    step = solve_newton_system(problem, rows, bend, damping, right, products)
    assert residual(problem, rows, bend, damping, right, step) <= 1e-10
    np.testing.assert_array_equal(products, before)
    if 2 * k > problem.d:  # where they are used at all, wrong ones are noticed
        other = solve_newton_system(problem, rows, bend, damping, right, 2.0 * products)
        assert residual(problem, rows, bend, damping, right, other) > 1e-3
