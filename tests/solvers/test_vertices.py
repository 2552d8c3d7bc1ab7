"""Vertices and faces of sums of kinks, by pivots and of many programs: optima, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from cvxscreen.solvers.vertices import Curves, Face, Vertices, settled, vertex, vertices

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


def curves(kind: str, d: int, seed: int) -> Curves:
    """Squares, one-sided ones or parabolas with two ends, and a quadratic form of low rank."""
    rng = np.random.default_rng(seed)
    k = 4 * d
    rows, q = rng.standard_normal((k, d)), rng.uniform(0.5, 5.0, k)
    ends = np.full(k, np.inf)
    lo, hi = {
        "squares": (-ends, ends), "one-sided": (np.zeros(k), ends),
        "Huber": (-rng.uniform(0.1, 1.0, k), rng.uniform(0.1, 1.0, k)),
        "form": (-0.0 * q, 0.0 * q),
    }[kind]
    root = rng.standard_normal((max(d // 2, 1), d)) if kind == "form" else np.zeros((1, d))
    kept = hi > lo
    return Curves.beside(
        root.T @ root, rows[kept], rows[kept] @ rng.standard_normal(d), q[kept], lo[kept], hi[kept]
    )


def imbalance(problem: Program, bends: Curves, face: Face) -> float:
    """How far the slopes are from an optimum's, at the point that the face's equations give."""
    A, b, lo, hi, c = problem
    held = face.basis[face.basis >= 0]
    bent = face.bent
    H = (bends.rows[bent].T / bends.q[bent]) @ bends.rows[bent]
    theta, slopes = face.slopes, np.where(bent, 0.0, face.bends)
    pull = c + theta @ A + slopes @ bends.rows
    pull -= (bends.b[bent] / bends.q[bent]) @ bends.rows[bent]
    k, d = len(held), len(c)
    system = np.block([[H, A[held].T], [A[held], np.zeros((k, k))]])
    found = np.linalg.lstsq(system, np.r_[-pull, b[held]], rcond=None)[0]
    x, theta = found[:d], theta.copy()
    theta[held] = found[d:]
    z, t = A @ x - b, bends.slopes(x)
    wrong = np.maximum(lo - theta, theta - hi).max(initial=0.0)
    apart = np.abs(np.where(z > 1e-9, hi, np.where(z < -1e-9, lo, theta)) - theta).max(initial=0.0)
    left = np.abs(c + theta @ A + t @ bends.rows).max()
    return float(max(wrong, apart, left))


@pytest.mark.parametrize("kind", ["squares", "one-sided", "Huber", "form"])
@pytest.mark.parametrize("shape", [(60, 3), (40, 1), (150, 10), (40, 12)])
def test_the_face_is_that_of_the_optimum_from_wherever_it_begins(
    shape: tuple[int, int], kind: str
) -> None:
    """Its equations give slopes that balance, each right for its margin: nothing is better."""
    problem, d = program(*shape, seed=shape[0]), shape[1]
    bends = curves(kind, d, shape[1])
    for x in (np.zeros(d), np.full(d, 5.0)):
        face = Face(*problem, x, bends)
        assert face.descend(8 * d + 40)
        assert imbalance(problem, bends, face) <= 1e-8


def test_curves_alone_are_followed_from_piece_to_piece() -> None:
    """Where one has changed its piece the minimum is another."""
    A, b, lo, hi, c = (part[:0] for part in program(60, 5))
    c = np.zeros(5)
    bends = curves("Huber", 5, 3)
    face = Face(A, b, lo, hi, c, np.full(5, 5.0), bends)
    assert face.descend(40)
    assert imbalance((A, b, lo, hi, c), bends, face) <= 1e-8


def test_a_neighbours_optimum_leads_to_the_face_by_few_searches() -> None:
    """Kinks at which it is are held at once, and let go where their slopes are wrong."""
    A, b, lo, hi, c = program(150, 10)
    bends = curves("squares", 10, 0)
    x = np.zeros(10)
    for _ in range(3):  # Newton's steps of the face: its minimum to the last digit
        face = Face(A, b, lo, hi, c, x, bends)
        assert face.descend(100)
        held = face.basis[face.basis >= 0]
        H = (bends.rows.T / bends.q) @ bends.rows
        pull = c + face.slopes @ A - (bends.b / bends.q) @ bends.rows
        k = len(held)
        system = np.block([[H, A[held].T], [A[held], np.zeros((k, k))]])
        x = np.linalg.solve(system, np.r_[-pull, b[held]])[:10]
    assert 2 <= k < 10
    again = Face(A, b, lo, hi, c, x, bends)
    assert set(again.basis[again.basis >= 0]) == set(held)
    assert again.descend(2)
    near = (A, b, lo, hi, c + 0.3 * np.abs(c))
    assert not Face(*near, x + 1.0, bends).descend(8)
    face = Face(*near, x, bends)
    assert face.descend(8)
    assert imbalance(near, bends, face) <= 1e-8


def test_a_minimum_far_out_is_none_of_a_neighbour() -> None:
    """A tiny curvature alone holds it; a start that is as far out may lead there."""
    A, b, lo, hi, _ = program(60, 3)
    tiny = Curves.beside(1e-9 * np.eye(3), A[:0], b[:0], b[:0], b[:0], b[:0])
    pull = np.full(3, 1e3)
    assert not Face(A, b, lo, hi, pull, np.zeros(3), tiny).descend(200)
    assert Face(A, b, lo, hi, pull, np.full(3, -1e11), tiny).descend(200)


def test_beside_curves_a_direction_without_end_is_none() -> None:
    problem = program(60, 3)
    one_sided = curves("one-sided", 3, 0)
    A, b, lo, hi, _ = problem
    beyond = Curves(one_sided.rows[:2], *(part[:2] for part in (
        one_sided.b, one_sided.q, one_sided.lo, one_sided.hi)))
    assert not Face(A, b, lo, hi, np.full(3, 1e3), np.zeros(3), beyond).descend(200)
    with pytest.raises(np.linalg.LinAlgError):
        Curves.beside(-np.eye(3), A[:0], b[:0], b[:0], b[:0], b[:0])
