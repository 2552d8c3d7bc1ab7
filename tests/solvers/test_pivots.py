"""Pivots to the vertex of a sum of kinks: optima, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from cvxscreen.solvers.pivots import settled, vertex

Program = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def program(m: int, d: int, seed: int = 0) -> Program:
    """Kinks with slopes of several widths; the linear term is balanced by slopes inside."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, d))
    b = A @ rng.standard_normal(d) + rng.standard_t(3, m)
    lo, hi = -rng.uniform(0.1, 1.0, m), rng.uniform(0.1, 1.0, m)
    return A, b, lo, hi, -0.3 * rng.uniform(lo, hi) @ A


def value(problem: Program, x: np.ndarray) -> float:
    A, b, lo, hi, c = problem
    z = A @ x - b
    return float(c @ x + np.maximum(lo * z, hi * z).sum())


def by_linprog(problem: Program) -> float:
    """The same value from the dual: slopes within their intervals that balance."""
    A, b, lo, hi, c = problem
    found = linprog(b, A_eq=A.T, b_eq=-c, bounds=list(zip(lo, hi, strict=True)))
    return -float(found.fun)


@pytest.mark.parametrize("shape", [(60, 3), (40, 1), (150, 10), (400, 25)])
def test_the_vertex_is_the_optimum_from_wherever_it_begins(shape: tuple[int, int]) -> None:
    problem = program(*shape, seed=shape[0])
    A, b, lo, hi, c = problem
    for x in (np.zeros(shape[1]), np.full(shape[1], 5.0)):
        found = vertex(*problem, x)
        assert found is not None
        x, theta = found
        assert value(problem, x) == pytest.approx(by_linprog(problem), rel=1e-10)
        assert ((theta >= lo) & (theta <= hi)).all()
        np.testing.assert_allclose(theta @ A, -c, atol=1e-10)
        inside = (theta > lo) & (theta < hi)
        assert inside.sum() <= shape[1]
        np.testing.assert_allclose((A @ x - b)[inside], 0.0, atol=1e-10)


def test_tied_kinks_end_at_an_optimum_or_without_an_answer() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for seed in range(20):
        A, b, lo, hi, c = program(60, 3, seed)
        A, b = np.rint(A), np.rint(b)
        c = -0.3 * rng.uniform(lo, hi) @ A
        got = vertex(A, b, lo, hi, c, np.zeros(3))
        if got is not None:
            found += 1
            best = by_linprog((A, b, lo, hi, c))
            assert value((A, b, lo, hi, c), got[0]) == pytest.approx(best, rel=1e-9)
    assert found > 15


def test_what_has_no_minimum_or_no_vertex_is_not_found() -> None:
    """An unbounded program, one with a column of zeros and one of the same row throughout."""
    A, b, lo, hi, c = program(60, 3)
    assert vertex(A, b, lo, hi, c + 1e3, np.zeros(3)) is None
    for spoilt in (A * [1.0, 1.0, 0.0], np.broadcast_to(A[:1], A.shape).copy()):
        assert vertex(spoilt, b, lo, hi, 0.0 * c, np.zeros(3)) is None


def test_a_basis_that_is_no_optimum_is_refused() -> None:
    problem = program(60, 3)
    best = vertex(*problem, np.zeros(3))
    assert best is not None
    basis = np.flatnonzero((best[1] > problem[2]) & (best[1] < problem[3]))
    A, b, lo, hi, _ = problem
    kept = settled(*problem, basis, best[1])
    assert kept is not None
    np.testing.assert_allclose(kept[0], best[0], atol=1e-12)
    for other in range(5):
        wrong = np.array([*basis[1:], next(i for i in range(other, 60) if i not in basis)])
        inverse = np.linalg.inv(A[wrong])
        there = np.where(A @ inverse @ b[wrong] > b, hi, lo)
        assert settled(*problem, wrong, there) is None
