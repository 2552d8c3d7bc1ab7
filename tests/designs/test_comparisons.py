"""The design of metric learning against matrices H written out, and its own error bounds."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp
from rational import Fraction

from cvxscreen.designs.comparisons import (
    Pairs,
    PairTable,
    Products,
    centred,
    indexed_pass,
    product_pass,
)
from cvxscreen.models.metric import Comparisons, pairs, quadruplets, triplets

SETS = ("products", "listed", "pairs", "quadruplets", "mixture")


def points(rng: np.random.Generator, n: int = 24, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((n, d)) + 3.0, rng.integers(0, 3, n)


def chosen(kind: str, X: np.ndarray, y: np.ndarray) -> Comparisons:
    made = triplets(X, y, (2, 3))
    if kind == "listed":
        return triplets(X, index=made.index[::-3])
    if kind == "pairs":
        return pairs(X, y, 2)
    if kind == "quadruplets":
        return quadruplets(X, [[0, 1, 2, 3], [4, 4, 5, 6], [7, 8, 9, 9], [1, 0, 7, 5]])
    if kind == "mixture":
        return made.weighted(2.0) + pairs(X, y, 2)
    return made


def matrices(X: np.ndarray, T: Comparisons, diagonal: bool) -> np.ndarray:
    """Every H of the set, one row each, from its definition."""
    plus, minus = T.terms.index()
    step = X[T.left] - X[T.right]
    step = np.vstack([step, np.zeros((1, X.shape[1]))])
    a, b = step[plus], step[minus]
    if diagonal:
        return a**2 - b**2
    return (a[:, :, None] * a[:, None] - b[:, :, None] * b[:, None]).reshape(len(a), -1)


@pytest.mark.parametrize("diagonal", [False, True])
def test_norms_whose_squares_underflow_are_not_too_small(
    diagonal: bool, rng: np.random.Generator
) -> None:
    """Points near one another, beside points that are not: ``|H|^2`` leaves double precision."""
    X = 10.0 ** rng.uniform(-160.0, -60.0, (40, 1)) * rng.standard_normal((40, 3))
    table = PairTable(X, np.arange(0, 40, 2, np.int32), np.arange(1, 40, 2, np.int32), diagonal)
    plus, minus = rng.integers(0, 21, (2, 200)).astype(np.int32)
    step = [[mp.mpf(float(u)) - mp.mpf(float(v)) for u, v in zip(a, b, strict=True)]
            for a, b in zip(X[::2], X[1::2], strict=True)] + [[mp.mpf(0)] * 3]
    found = table.norms(plus, minus)
    for value, i, j in zip(found, plus, minus, strict=True):
        a, b = step[i], step[j]
        if diagonal:
            square = mp.fsum((u**2 - v**2) ** 2 for u, v in zip(a, b, strict=True))
        else:
            square = mp.fsum(
                (a[k] * a[m] - b[k] * b[m]) ** 2 for k in range(3) for m in range(3)
            )
        assert mp.mpf(float(value)) >= mp.sqrt(square)
        assert float(value) <= (1.0 + 1e-13) * float(mp.sqrt(square)) + 2e-150 + 4e-15 * float(
            mp.fsum(v * v for v in (*a, *b))
        )


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("kind", SETS)
def test_passes_norms_and_rows_are_those_of_the_matrices(
    kind: str, diagonal: bool, rng: np.random.Generator
) -> None:
    X, y = points(rng)
    T = chosen(kind, X, y)
    design = Pairs(T.table(X, diagonal), T.terms)
    H = matrices(design.table.points, T, diagonal)
    assert design.shape == H.shape
    x = rng.standard_normal(H.shape[1])
    if not diagonal:
        x = (x.reshape(4, 4) + x.reshape(4, 4).T).ravel()
    theta = rng.standard_normal(len(H))
    np.testing.assert_allclose(design.forward(x), H @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(design.adjoint(theta), H.T @ theta, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(design.dense(), H, atol=1e-13)
    norms = np.linalg.norm(H, axis=1)
    np.testing.assert_allclose(design.frobenius, norms, rtol=1e-12, atol=1e-12)
    assert (design.frobenius >= norms * (1 - 1e-15)).all()
    weights = rng.uniform(0.5, 2.0, H.shape[1])
    np.testing.assert_allclose(design.weighted_squares(weights), H**2 @ weights, rtol=1e-12)
    some = np.flatnonzero(rng.random(len(H)) < 0.4)
    part = design.take_rows(some)
    np.testing.assert_allclose(part.forward(x), H[some] @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(part.adjoint(theta[some]), H[some].T @ theta[some], atol=1e-11)
    np.testing.assert_allclose(part.dense(), H[some], atol=1e-13)
    assert len(part.table) <= len(design.table)
    gram = design.weighted_gram(some, np.ones(len(some)))
    np.testing.assert_allclose(gram, H[some].T @ H[some], atol=1e-10)
    np.testing.assert_allclose(design.column(1), H[:, 1] if diagonal else 0.5 * (H[:, 1] + H[:, 4]),
                               atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6, np.array([1e6, 1.0, 1e-6, 1e3])])
@pytest.mark.parametrize("diagonal", [False, True])
def test_rounding_bounds_hold_in_rational_arithmetic(
    scale: float | np.ndarray, diagonal: bool, rng: np.random.Generator
) -> None:
    X, y = points(rng)
    X = X * scale + 1e3 * np.max(scale)
    T = triplets(X, y, (2, 2))
    design = Pairs(T.table(X, diagonal), T.terms)
    P = [[Fraction(float(v)) for v in row] for row in design.table.points]
    x = rng.standard_normal(design.shape[1])
    if not diagonal:
        x = (x.reshape(4, 4) + x.reshape(4, 4).T).ravel()
    M = [Fraction(float(v)) for v in x]
    plus, minus = T.terms.index()

    def value(p: int) -> Fraction:
        a = [u - v for u, v in zip(P[T.left[p]], P[T.right[p]], strict=True)]
        if diagonal:
            return sum((m * u * u for m, u in zip(M, a, strict=True)), Fraction(0))
        return sum((M[4 * i + j] * a[i] * a[j] for i in range(4) for j in range(4)), Fraction(0))

    exact = [value(p) - value(m) for p, m in zip(plus, minus, strict=True)]
    found, error = design.forward(x), design.forward_error(x, design.frobenius)
    off = np.array([abs(float(Fraction(float(f)) - e)) for f, e in zip(found, exact, strict=True)])
    assert (off <= error).all()
    assert off.max() > 0.0
    precise, left = design.forward_precise(np.arange(len(exact)), x)
    off = [abs(float(Fraction(float(f)) - e)) for f, e in zip(precise, exact, strict=True)]
    assert (np.array(off) <= left).all()
    assert left.max() < 1e-2 * error.max()

    theta = rng.standard_normal(len(exact))
    size = 1 if diagonal else 4
    K = [[Fraction(0)] * size for _ in range(4)]
    for t, weight in enumerate(theta):
        for p, sign in ((plus[t], 1), (minus[t], -1)):
            a = [u - v for u, v in zip(P[T.left[p]], P[T.right[p]], strict=True)]
            for i in range(4):
                for j in range(size):
                    K[i][j] += sign * Fraction(float(weight)) * a[i] * (a[i] if diagonal else a[j])
    force = design.adjoint(theta).reshape(4, size)
    off = np.array([[float(Fraction(float(force[i, j])) - K[i][j]) for j in range(size)]
                    for i in range(4)])
    assert np.linalg.norm(off) <= design.adjoint_factor * float(np.abs(theta) @ design.reach)
    norms = design.frobenius
    for t in range(0, len(exact), 7):
        a, b = ([u - v for u, v in zip(P[T.left[p]], P[T.right[p]], strict=True)]
                for p in (plus[t], minus[t]))
        if diagonal:
            square = sum((u * u - v * v) ** 2 for u, v in zip(a, b, strict=True))
        else:
            square = sum((a[i] * a[j] - b[i] * b[j]) ** 2 for i in range(4) for j in range(4))
        assert Fraction(float(norms[t])) ** 2 >= square


def test_centring_is_exact_for_single_precision_and_integers(rng: np.random.Generator) -> None:
    for X in (rng.standard_normal((9, 3)).astype(np.float32), rng.integers(0, 256, (9, 3))):
        moved = centred(X)
        for i in range(1, 9):
            for k in range(3):
                kept = Fraction(float(moved[i, k])) - Fraction(float(moved[0, k]))
                assert kept == Fraction(float(X[i, k])) - Fraction(float(X[0, k]))


def test_the_loops_are_the_same_interpreted(rng: np.random.Generator) -> None:
    X, y = points(rng, 15, 3)
    T = triplets(X, y, (2, 3))
    table, terms = T.table(X, False), T.terms
    assert isinstance(terms, Products)
    q = rng.uniform(0.0, 3.0, len(table) + 1)
    for width in (0.05, 0.0):
        results = []
        for function in (product_pass, product_pass.py_func):
            omega = np.zeros(len(table) + 1)
            work = np.empty((2, terms.widest))
            results.append((function(terms.arrays, q, 1.0, width, 1.5, omega, work), omega))
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-13)
        np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-12)
    plus, minus = terms.index()
    omega = np.zeros(len(table) + 1)
    total = indexed_pass(
        plus, minus, q, np.ones(1), np.full(1, 0.05), np.full(1, 1.5), omega
    )
    z = 1.0 - (q[plus] - q[minus])
    tau = np.clip(z / 0.05, 0.0, 1.0)
    assert total == pytest.approx(float(1.5 * np.sum(tau * (z - 0.025 * tau))), rel=1e-13)
    np.testing.assert_allclose(omega, terms.scatter(1.5 * tau), atol=1e-12)


def test_windows_keep_what_compaction_keeps(rng: np.random.Generator) -> None:
    X, y = points(rng, 30, 3)
    T = triplets(X, y, (3, 4))
    terms = T.terms
    assert isinstance(terms, Products)
    lo = rng.integers(0, 3, len(terms.lo))
    hi = np.minimum(lo + rng.integers(0, 3, len(lo)), terms.hi)
    lo = np.minimum(lo, hi)
    part = Products(terms.near_ptr, terms.near, terms.far_ptr, terms.far, lo, hi, terms.pairs)
    small, kept = part.compact()
    q = rng.standard_normal(terms.pairs + 1)
    np.testing.assert_array_equal(small.margins(np.append(q[kept], 0.0)), part.margins(q))
    theta = rng.standard_normal(len(part))
    wide = np.zeros(terms.pairs + 1)
    wide[kept] = small.scatter(theta)[:-1]
    np.testing.assert_allclose(wide, part.scatter(theta), atol=1e-14)
    assert len(small) == len(part) == int((hi - lo).sum())


@pytest.mark.parametrize("sorted_pairs", [True, False])
def test_passes_over_many_pairs_of_a_point_are_exact_to_their_bounds(
    sorted_pairs: bool, rng: np.random.Generator
) -> None:
    """Runs of four pairs and single ones, factors of every shape, adjoints far from the origin."""
    X = rng.standard_normal((12, 3)) + np.array([40.0, 0.0, 0.0]) * (np.arange(12) % 2)[:, None]
    left, right = np.triu_indices(12, 1)
    order = np.arange(len(left)) if sorted_pairs else rng.permutation(len(left))
    table = PairTable(X, left[order].astype(np.int32), right[order].astype(np.int32))
    P = [[Fraction(float(v)) for v in row] for row in X]
    steps = [[u - v for u, v in zip(P[i], P[j], strict=True)]
             for i, j in zip(table.left, table.right, strict=True)]
    full = rng.standard_normal((3, 3))
    for factor in (np.tril(full), full, full[:, :2].copy()):
        W = [[Fraction(float(v)) for v in row] for row in factor]
        exact = [
            sum((sum((a[k] * W[k][c] for k in range(3)), Fraction(0)) ** 2
                 for c in range(factor.shape[1])), Fraction(0))
            for a in steps
        ]
        size = float(np.linalg.norm(factor @ factor.T))
        found = table.distances(factor)
        off = [abs(float(Fraction(float(q)) - e)) for q, e in zip(found, exact, strict=False)]
        assert (np.array(off) <= table.value_error(size)[:-1]).all()
        np.testing.assert_allclose(table.values((factor @ factor.T).ravel()), found, atol=1e-10)
    weights = rng.standard_normal(len(table) + 1)
    weights[:-1][::5] = 0.0
    weights[-1] = 0.0
    image = table.adjoint(weights)
    np.testing.assert_array_equal(image, image.T)
    for i in range(3):
        for j in range(3):
            total = sum((Fraction(float(w)) * a[i] * a[j]
                         for w, a in zip(weights, steps, strict=False)), Fraction(0))
            room = table.adjoint_factor(1) * float(np.abs(weights) @ table.spread)
            assert abs(float(Fraction(float(image[i, j])) - total)) <= room
