"""Kernel rows and the Gram design: identities, true error bounds, a cache that is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.designs.gram import (
    Called,
    Gram,
    GramForm,
    Kernel,
    Polynomial,
    Precomputed,
    Rbf,
    exponents,
    gather,
)
from cvxscreen.errors import InvalidInput

N = 70


def points(rng: np.random.Generator, n: int = N, d: int = 3, far: float = 0.0) -> np.ndarray:
    return rng.normal(size=(n, d)) + far


def rbf(left: np.ndarray, right: np.ndarray, gamma: float) -> np.ndarray:
    """Differences taken directly, in extended precision."""
    left, right = left.astype(np.longdouble), right.astype(np.longdouble)
    return np.exp(-gamma * ((left[:, None] - right[None]) ** 2).sum(axis=2))


def poly(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    left, right = left.astype(np.longdouble), right.astype(np.longdouble)
    return (0.5 * (left @ right.T) + 1.0) ** 3


def functions(X: np.ndarray) -> list[tuple[object, np.ndarray]]:
    """Kernels with their values in extended precision."""
    gram = X @ X.T
    gram = 0.5 * (gram + gram.T)
    return [
        (Rbf(X, 0.7), rbf(X, X, 0.7)),
        (Polynomial(X, 0.5, 1.0, 3), poly(X, X)),
        (Precomputed(gram), gram.astype(np.longdouble)),
        (Called(X, lambda a, b: a @ b.T, 1e-14), X.astype(np.longdouble) @ X.T),
    ]


def centred(K: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Inner products of the points less the mean of those in `centre`."""
    means = K[:, centre].mean(axis=1)
    return K - means[:, None] - means + means[centre].mean()


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_values_stay_within_their_stated_error(rng: np.random.Generator, far: float) -> None:
    X = points(rng, far=far)
    for function, exact in functions(X):
        block = function.block(np.arange(N))
        root = np.sqrt(np.diagonal(exact)).astype(float)
        allowed = (function.errors[:, None] + function.errors) * np.outer(root, root)
        assert (np.abs(block - exact) <= allowed * (1 + 1e-6)).all()
        assert np.allclose(function.diagonal, np.diagonal(exact).astype(float), rtol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_identities_against_the_dense_matrix(rng: np.random.Generator, intercept: bool) -> None:
    X = points(rng)
    sign = np.where(rng.random(N) < 0.4, -1.0, 1.0)
    for function, exact in functions(X):
        K = exact.astype(float)
        gram = Gram(Kernel(function), sign, intercept)
        if intercept:
            K = centred(K, gram.kernel.centre)
        form = GramForm(Gram(gram.kernel, None, intercept))
        x, v, theta = rng.normal(size=(3, gram.shape[1]))
        theta = theta[:N]
        size = float(np.abs(K).max())
        b = x[N] if intercept else 0.0
        assert np.allclose(gram.forward(x), sign * (K @ x[:N] + b), atol=1e-11 * size)
        assert np.array_equal(gram.adjoint(theta)[:N], sign * theta)
        assert form.inner(gram.adjoint(theta), x) == pytest.approx(theta @ gram.forward(x))
        assert form.inner(v, x) == pytest.approx(v[:N] @ K @ x[:N] + v[N:] @ x[N:], rel=1e-9)
        norm = np.sqrt(x[:N] @ K @ x[:N])
        assert norm <= form.norm(x) * (1 + 1e-15)
        assert form.norm(x) == pytest.approx(norm, rel=1e-5)
        assert form.dual_reach(v) >= form.norm(v) * (1 - 1e-9)
        norms = form.dual_norms(gram)
        assert (norms**2 >= np.diagonal(K)).all()
        assert np.allclose(norms**2, np.diagonal(K), atol=1e-10 * size)
        few = np.array([3, 5, 8])
        part = gram.take_rows(few)
        assert part.shape == (3, gram.shape[1])
        assert np.allclose(part.forward(x), gram.forward(x)[few], rtol=1e-12)
        assert np.array_equal(part.adjoint(theta[:3])[few], sign[few] * theta[:3])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_inner_products_of_terms_are_within_their_reach(
    rng: np.random.Generator, intercept: bool, far: float
) -> None:
    X, sign = points(rng, far=far), np.where(rng.random(N) < 0.4, -1.0, 1.0)
    for function, exact in functions(X):
        gram = Gram(Kernel(function), sign, intercept)
        other = gram.at_points(np.arange(0, N, 3))
        rows, others = np.arange(1, N, 2), np.array([4, 0, 7])
        found = gram.inner_products(rows, other, others)
        true = centred(exact, gram.kernel.centre) if intercept else exact
        true = (sign[:, None] * true)[np.ix_(rows, other.index[others])]
        reach = np.outer(gram.reaches[rows], other.reaches[others])
        assert (np.abs(found - true) <= 8.0 * gram.forward_factor * reach).all()
        assert (gram.reaches >= np.sqrt(gram.weighted_squares([1.0, 0.0])) * (1 - 1e-12)).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_new_points_join_a_kernel(rng: np.random.Generator, far: float, sparse: bool) -> None:
    """Values are those of the kernel on all of them, within the error that it says."""
    X, new = points(rng, far=far), points(rng, 9, far=far)
    both = np.vstack([X, new])
    known = sp.csr_matrix(X) if sparse else X
    for function in (
        Rbf(known, 0.7), Polynomial(known, 0.5, 1.0, 3), Called(known, lambda a, b: a @ b.T, 1e-14)
    ):
        exact = {Rbf: rbf(both, both, 0.7), Polynomial: poly(both, both)}.get(
            type(function), both.astype(np.longdouble) @ both.T
        )
        for given in (new, sp.csr_matrix(new)):
            if isinstance(function, Called) and sparse:
                continue  # its function returns a sparse matrix
            joined = function.joined(given)
            assert joined.size == N + 9
            block, root = joined.block(np.arange(N + 9)), np.sqrt(np.diagonal(exact)).astype(float)
            allowed = (joined.errors[:, None] + joined.errors) * np.outer(root, root)
            assert (np.abs(block - exact) <= allowed * (1 + 1e-6)).all()
    gram = Gram(Kernel(Rbf(known, 0.7)), None, True).with_points(new)
    assert gram.shape == (N, N + 10)
    assert gram.width == 3
    with pytest.raises(InvalidInput, match="was given"):
        Gram(Kernel(Precomputed(X @ X.T))).with_points(X @ X.T)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_margin_errors_are_bounds(
    rng: np.random.Generator, intercept: bool, scale: float
) -> None:
    X = points(rng, n=400) * scale
    n = len(X)
    for function, exact in ((Rbf(X, 0.7 / scale**2), rbf(X, X, 0.7 / scale**2)),
                            (Polynomial(X, 0.5, 1.0, 3), poly(X, X))):
        gram = Gram(Kernel(function), None, intercept)
        c = rng.normal(size=n)
        if intercept:
            c -= c.mean()
        x = np.append(c, 0.3) if intercept else c
        inner = centred(exact, gram.kernel.centre) if intercept else exact
        true = inner @ c.astype(np.longdouble) + (0.3 if intercept else 0.0)
        off = (gram.forward(x) - true).astype(float)
        if intercept:
            off -= np.median(off)  # what is common to all terms is a shift of the intercept
        bound = gram.forward_error(x, np.ones(n))
        assert (np.abs(off) <= bound).all()
        assert bound.max() <= 1e-9 * float(np.abs(exact).max()) * np.abs(c).sum()
        index = np.arange(0, n, 7)
        precise, left = gram.forward_precise(index, x)
        off = (precise - true[index]).astype(float)
        off -= np.median(off) if intercept else 0.0
        assert (np.abs(off) <= left).all()


def test_cache_is_bounded_and_changes_nothing(rng: np.random.Generator) -> None:
    X = points(rng, n=300)
    whole = Kernel(Rbf(X, 1.0))
    small = Kernel(Rbf(X, 1.0), cache_bytes=20 * 8 * 300)
    for _ in range(5):
        c = np.where(rng.random(300) < 0.3, rng.normal(size=300), 0.0)
        assert np.allclose(small.product(c), whole.product(c), atol=1e-12)
        rows = rng.permutation(300)[:25]
        small.fetch(rows[:20])
        assert np.allclose(small.block(rows, rows), whole.block(rows, rows), atol=1e-14)
        assert 0 < small._store.nbytes <= small.cache_bytes
    assert np.allclose(small.means, whole.means)
    assert small.evaluations > whole.evaluations
    count = whole.evaluations
    at_centre = np.zeros(300)
    at_centre[whole.centre] = 1.0 / len(whole.centre)
    assert np.allclose(whole.product(at_centre), whole.means)
    whole.fetch(np.arange(300))
    assert whole.evaluations <= count + 300 * 300
    count = whole.evaluations
    whole.fetch(np.arange(300))
    assert whole.evaluations == count


def test_centring_takes_few_rows_and_keeps_the_norms_small(rng: np.random.Generator) -> None:
    """The squared norms are those around the mean of all points, but for a 64th of the variance."""
    X = points(rng, n=900) + 5.0
    kernel = Kernel(Polynomial(X, 1.0))
    squares = Gram(kernel, None, True).squares
    assert kernel.evaluations <= 64 * 900
    least = ((X - X.mean(axis=0)) ** 2).sum(axis=1)
    assert squares.mean() <= 1.1 * least.mean()


def test_cached_rows_are_those_of_the_function(rng: np.random.Generator) -> None:
    """Also where the slots that are free next are not one after another."""
    kernel = Kernel(Rbf(points(rng, n=120), 1.0), cache_bytes=20 * 8 * 120)
    every = np.arange(120)
    exact = kernel.function.block(every)
    for _ in range(200):
        kernel.fetch(rng.permutation(120)[: rng.integers(1, 12)])
        owned = kernel._owner >= 0
        np.testing.assert_allclose(kernel._store[owned], exact[kernel._owner[owned]], atol=1e-14)


def test_a_full_cache_is_shared_and_stays_as_it_is(rng: np.random.Generator) -> None:
    """Products are the same to the bit whatever came before, so that threads may have siblings."""
    X = points(rng, n=600)
    kernel = Kernel(Rbf(X, 1.0))
    assert kernel.fill()
    assert kernel.evaluations < 0.8 * 600 * 600
    np.testing.assert_allclose(
        kernel._store, kernel.function.block(np.arange(600)), rtol=0, atol=1e-14
    )
    before = kernel._store.copy()
    c = np.where(rng.random(600) < 0.3, rng.normal(size=600), 0.0)
    first, other = kernel.sibling(), kernel.sibling()
    other.product(rng.normal(size=600))
    other.fetch(rng.permutation(600)[:50])
    assert np.array_equal(first.product(c), other.product(c))
    assert np.array_equal(kernel._store, before)
    assert first.evaluations == other.evaluations == 0
    assert not Kernel(Rbf(X, 1.0), cache_bytes=20 * 8 * 600).fill()


def test_rows_are_found_where_they_are_after_filling_was_interrupted(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filling moves rows to their places; Ctrl-C half way must not leave them under old names."""
    n = 600
    kernel = Kernel(Rbf(points(rng, n=n), 1.0))
    kernel.fetch(np.arange(n)[::-1])  # every row in the place of another
    exact, evaluate, calls = kernel.function.block(np.arange(n)), kernel._evaluate, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel.fill()
    every = np.arange(n)
    np.testing.assert_allclose(kernel.block(every, every), exact, rtol=0, atol=1e-14)
    c = rng.normal(size=n)
    np.testing.assert_allclose(kernel.product(c), exact @ c, rtol=0, atol=1e-11)
    assert kernel.fill()
    np.testing.assert_allclose(kernel.matrix(), exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("slots", [16, 70])
@pytest.mark.parametrize("filled", [False, True])
def test_rows_combined_by_many_weights(
    rng: np.random.Generator, slots: int, filled: bool
) -> None:
    """Whether the rows are in the cache, fit into it, or are evaluated for this alone."""
    X = points(rng)
    kernel = Kernel(Rbf(X, 0.7), cache_bytes=slots * 8 * N)
    if filled:
        kernel.fill()
    for rows in (np.array([3, 60, 4]), rng.permutation(N)[:40], np.arange(N)):
        weights = rng.normal(size=(5, len(rows)))
        expected = weights @ rbf(X, X, 0.7)[rows]
        np.testing.assert_allclose(kernel.combined(weights, rows), expected, rtol=0, atol=1e-12)
        assert (kernel._slot >= 0).sum() >= min(len(rows), kernel.slots)


def test_least_recently_used_rows_go_first(rng: np.random.Generator) -> None:
    kernel = Kernel(Rbf(points(rng, n=100), 1.0), cache_bytes=20 * 8 * 100)
    kernel.fetch(np.arange(20))
    kernel.fetch(np.arange(10))
    count = kernel.evaluations
    kernel.fetch(np.arange(50, 60))
    kernel.fetch(np.arange(10))
    assert kernel.evaluations == count + 10 * 100


def test_products_of_multiples_read_no_rows(rng: np.random.Generator) -> None:
    kernel = Kernel(Rbf(points(rng), 1.0), cache_bytes=16 * 8 * N)
    c = rng.normal(size=N)
    first, count = kernel.product(c), kernel.evaluations
    assert np.allclose(kernel.product(0.37 * c), 0.37 * first, rtol=1e-13)
    assert kernel.evaluations == count
    kernel.product(c + 1e-10)
    assert kernel.evaluations > count


def test_refusals(rng: np.random.Generator) -> None:
    X = points(rng)
    with pytest.raises(InvalidInput, match=r"whole Gram matrix is 39,200 bytes"):
        Kernel(Rbf(X, 1.0), cache_bytes=100)
    gram = Gram(Kernel(Rbf(X, 1.0)))
    for call in (gram.dense, lambda: gram.weighted_gram(np.arange(2), np.ones(2)),
                 lambda: gram.rows_csr(np.arange(2)), GramForm(gram).dense):
        with pytest.raises(InvalidInput, match="no matrix of features"):
            call()
    with pytest.raises(InvalidInput, match="-1 or \\+1"):
        Gram(gram.kernel, np.full(N, 2.0))
    with pytest.raises(InvalidInput, match="returned shape"):
        Kernel(Called(X, lambda a, b: a)).fetch(np.arange(3))


@pytest.mark.parametrize("made", [lambda X: Rbf(X, 0.7), lambda X: Polynomial(X, 0.5, 1.0, 3)])
def test_sparse_points_have_the_same_kernel(made: object, rng: np.random.Generator) -> None:
    """Whole rows, some columns, into the caller's memory, and against new points of either kind."""
    X = points(rng) * (rng.random((N, 3)) < 0.6)
    rows, columns, new = np.arange(5, 25), np.arange(0, N, 3), points(rng, n=9)
    dense, sparse = made(X), made(sp.csr_matrix(X))
    whole, room = dense.block(np.arange(N)), np.full((20, N), np.nan)
    np.testing.assert_allclose(sparse.block(rows), whole[rows], atol=1e-13)
    some = sparse.block(rows, columns)
    np.testing.assert_allclose(some, whole[np.ix_(rows, columns)], atol=1e-13)
    assert sparse.block(rows, None, room) is room
    np.testing.assert_allclose(room, whole[rows], atol=1e-13)
    np.testing.assert_allclose(sparse.diagonal, np.diagonal(whole), atol=1e-13)
    for given in (new, sp.csr_matrix(new)):
        np.testing.assert_allclose(sparse.cross(given), dense.cross(new), atol=1e-13)
    assert (np.abs(sparse.block(rows) - whole[rows]) <= sparse.errors[rows, None]
            + sparse.errors + 1e-13).all()


def test_columns_of_terms(rng: np.random.Generator) -> None:
    sign = rng.choice([-1.0, 1.0], N)
    gram = Gram(Kernel(Rbf(points(rng), 0.7)), sign, True)
    every = np.stack([gram.forward(unit) for unit in np.eye(N + 1)], axis=1)
    for j in (0, 17, N):
        np.testing.assert_allclose(gram.column(j), every[:, j], rtol=1e-12)


def test_the_loops_are_the_same_interpreted(rng: np.random.Generator) -> None:
    left, right = points(rng, n=5), points(rng, n=4)
    right[2] = left[1]  # whose distance is 0, whatever its rounding
    squares = np.square(left).sum(axis=1), np.square(right).sum(axis=1)
    inner = left @ right.T
    inner[0, 0] = np.nan
    found = [inner.copy(), inner.copy()]
    exponents(found[0], 0.7, *squares)
    exponents.py_func(found[1], 0.7, *squares)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-13, atol=1e-15)
    assert found[1][1, 2] <= 0.0
    assert np.isnan(found[1][0, 0])
    slot, columns = np.array([2, -1, 0]), np.array([3, 1])
    store = points(rng, n=3, d=4)
    copies = np.full((2, 3, 2), -7.0)
    gather(store, slot, columns, copies[0])
    gather.py_func(store, slot, columns, copies[1])
    np.testing.assert_array_equal(copies[0], copies[1])
    np.testing.assert_array_equal(copies[0], [store[2, columns], [-7.0, -7.0], store[0, columns]])
