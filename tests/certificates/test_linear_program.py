"""The certificate of linear programs: what it bounds, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxscreen.certificates.linear_program import proven

EQUAL = 2


def program(seed: int = 0) -> tuple[np.ndarray, tuple[sp.csr_matrix, np.ndarray, int]]:
    """``min <q, x>`` over a bounded polyhedron with equations, and a feasible point inside."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((30, 6))
    inside = rng.standard_normal(6)
    E = rng.standard_normal((EQUAL, 6))
    b = np.concatenate([E @ inside, A @ inside + rng.uniform(0.5, 2.0, 30), np.full(12, 20.0)])
    A = np.vstack([E, A, np.eye(6), -np.eye(6)])
    return rng.standard_normal(6), (sp.csr_matrix(A), b, EQUAL)


def optimum(q: np.ndarray, rows: tuple[sp.csr_matrix, np.ndarray, int]) -> tuple[np.ndarray, ...]:
    A, b, k = rows
    found = linprog(q, A[k:].toarray(), b[k:], A[:k].toarray(), b[:k], bounds=(None, None))
    z = -np.concatenate([found.eqlin.marginals, found.ineqlin.marginals])
    return found.x, z


@pytest.mark.parametrize("seed", range(5))
def test_an_optimum_is_proven(seed: int) -> None:
    q, rows = program(seed)
    x, z = optimum(q, rows)
    proof = proven(q, rows, x, z)
    assert proof.relative_gap < 1e-10
    assert proof.violation < 1e-10
    assert proof.value == pytest.approx(q @ x)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_bounds_what_a_feasible_point_is_above_the_optimum(seed: int) -> None:
    q, rows = program(seed)
    x, z = optimum(q, rows)
    rng = np.random.default_rng(seed)
    for size in (1e-1, 1e-3, 1e-6):
        # Multipliers of another objective do not bound this one: what is left is charged.
        other = np.maximum(z + size * rng.standard_normal(len(z)), 0.0)
        other[:EQUAL] = z[:EQUAL] + size * rng.standard_normal(EQUAL)
        far, _ = optimum(q + rng.standard_normal(len(q)), rows)
        point = x + 0.05 * (far - x)  # feasible, and about as large
        proof = proven(q, rows, point, other)
        assert proof.gap >= q @ point - q @ x
        near = proven(q, rows, x + 1e-3 * size * (far - x), other)
        assert near.gap > 0.0


def test_a_violated_row_is_no_optimum() -> None:
    q, rows = program()
    x, z = optimum(q, rows)
    proof = proven(q, rows, x - 1e-3 * q, z)
    assert proof.violation > 1e-6
    assert proof.gap > 1e-6


@pytest.mark.parametrize("off", [0.01, -0.01])
def test_a_violated_equation_is_no_optimum(off: float) -> None:
    q, rows = program()
    A, b, k = rows
    _, z = optimum(q, rows)
    inside = optimum(q, (A, b + np.where(np.arange(len(b)) < k, off, 0.0), k))[0]
    assert proven(q, rows, inside, z).violation > 1e-5


def test_a_multiplier_of_the_wrong_sign_is_seen() -> None:
    q, rows = program()
    x, z = optimum(q, rows)
    # Two rows that say the same: their multipliers may be moved from one to the other.
    A, b, k = rows
    at = k + int(np.argmax(z[k:]))
    twice = sp.vstack([A, A[at]], format="csr"), np.append(b, b[at]), k
    assert proven(q, twice, x, np.append(z, 0.0)).violation < 1e-10
    wrong = np.append(z, -0.5)
    wrong[at] += 0.5
    assert proven(q, twice, x, wrong).violation > 1e-3


def test_what_stationarity_lacks_is_charged() -> None:
    q, rows = program()
    x, z = optimum(q, rows)
    off = q + 1e-3
    proof = proven(off, rows, x, z)
    # The optimum of `off` may be lower than the bound of z by what is left.
    assert proof.gap >= 1e-3 * np.abs(x).sum()
    assert proof.violation > 1e-5
