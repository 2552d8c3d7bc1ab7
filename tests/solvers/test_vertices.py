"""Vertices of sums of kinks, by pivots and of many programs together: optima, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from cvxscreen.solvers.vertices import Vertices, settled, vertex, vertices

Program = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def programs(K: int = 4, m: int = 60, d: int = 3, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Kinks with slopes of several widths; the linear terms are balanced by slopes inside."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((K, m, d))
    b = A @ rng.standard_normal(d) + rng.standard_t(3, (K, m))
    lo, hi = -rng.uniform(0.1, 1.0, (K, m)), rng.uniform(0.1, 1.0, (K, m))
    c = -np.einsum("km,kmd->kd", 0.3 * rng.uniform(lo, hi), A)
    return A, b, lo, hi, c


def values(problem: tuple[np.ndarray, ...], x: np.ndarray) -> np.ndarray:
    A, b, lo, hi, c = problem
    z = np.einsum("kmd,kd->km", A, x) - b
    return np.einsum("kd,kd->k", c, x) + np.maximum(lo * z, hi * z).sum(axis=1)


def by_linprog(A, b, lo, hi, c) -> float:
    """The same value from the dual: slopes within their intervals that balance."""
    found = linprog(b, A_eq=A.T, b_eq=-c, bounds=list(zip(lo, hi, strict=True)))
    return -float(found.fun)


@pytest.mark.parametrize("shape", [(5, 60, 3), (1, 40, 1), (3, 150, 10)])
def test_the_vertices_are_optimal(shape: tuple[int, int, int]) -> None:
    problem = programs(*shape)
    A, b, lo, hi, c = problem
    found = vertices(*problem, np.zeros(c.shape))
    assert found.found.all()
    expected = [by_linprog(*(part[k] for part in problem)) for k in range(shape[0])]
    np.testing.assert_allclose(values(problem, found.x), expected, rtol=1e-9)
    assert ((found.theta >= lo) & (found.theta <= hi)).all()
    np.testing.assert_allclose(np.einsum("km,kmd->kd", found.theta, A), -c, atol=1e-10)
    inside = (found.theta > lo) & (found.theta < hi)
    assert (inside.sum(axis=1) <= shape[2]).all()
    np.testing.assert_allclose((np.einsum("kmd,kd->km", A, found.x) - b)[inside], 0.0, atol=1e-10)


def test_a_program_is_solved_as_it_is_alone() -> None:
    problem = programs()
    together = vertices(*problem, np.zeros((4, 3)))
    for k in range(4):
        alone: Vertices = vertices(*(part[k:k + 1] for part in problem), np.zeros((1, 3)))
        np.testing.assert_allclose(alone.x[0], together.x[k], atol=1e-10)


def test_what_has_no_minimum_or_no_vertex_is_not_found() -> None:
    """An unbounded program, one with a column of zeros and one of the same row throughout."""
    A, b, lo, hi, c = programs(2)
    found = vertices(A, b, lo, hi, np.stack([c[0], c[1] + 1e3]), np.zeros((2, 3)))
    np.testing.assert_array_equal(found.found, [True, False])
    for spoilt in (A * [1.0, 1.0, 0.0], np.broadcast_to(A[:, :1], A.shape).copy()):
        assert not vertices(spoilt, b, lo, hi, 0.0 * c, np.zeros((2, 3))).found.any()


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


@pytest.mark.parametrize("shape", [(60, 3), (40, 1), (150, 10), (400, 25)])
def test_the_vertex_is_the_optimum_from_wherever_it_begins(shape: tuple[int, int]) -> None:
    problem = program(*shape, seed=shape[0])
    A, b, lo, hi, c = problem
    for x in (np.zeros(shape[1]), np.full(shape[1], 5.0)):
        found = vertex(*problem, x)
        assert found is not None
        x, theta = found
        assert value(problem, x) == pytest.approx(by_linprog(*problem), rel=1e-10)
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
            best = by_linprog(A, b, lo, hi, c)
            assert value((A, b, lo, hi, c), got[0]) == pytest.approx(best, rel=1e-9)
    assert found > 15


def test_pivots_find_no_minimum_and_no_vertex_where_there_is_none() -> None:
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
