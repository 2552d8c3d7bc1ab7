"""Row designs: one answer whatever the storage, nothing written to, bad data refused by name."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen._support import compiled as compiled_support, validation
from cvxscreen._support.compiled import CompileClock
from cvxscreen.core.losses import Losses
from cvxscreen.designs import rows as module
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

RNG = np.random.default_rng(11)
N, P = 37, 5
# Multiples of 1/8: every product and sum below is exact in float64, the data in float32 too.
X = RNG.integers(-40, 41, (N, P)) / 8.0
X[RNG.random((N, P)) < 0.3] = 0.0
SIGN = RNG.choice([-1.0, 1.0], N)
EXTRA = np.column_stack([np.ones(N), RNG.integers(-3, 4, N)])
DENSE = SIGN[:, None] * np.hstack([X, EXTRA])


def frozen(matrix: np.ndarray) -> np.ndarray:
    matrix = matrix.copy()
    matrix.flags.writeable = False
    return matrix


def duplicated() -> sp.csr_matrix:
    """CSR with every entry split in two halves: not canonical."""
    half = sp.coo_matrix(X / 2)
    rows, columns = np.tile(half.row, 2), np.tile(half.col, 2)
    data = np.tile(half.data, 2)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=N)
    return sp.csr_matrix(
        (data[order], columns[order], np.concatenate([[0], np.cumsum(counts)])), shape=(N, P)
    )


STORED: dict[str, Callable[[], Any]] = {
    "float64": lambda: X.copy(),
    "float32": lambda: X.astype(np.float32),
    "Fortran order": lambda: np.asfortranarray(X),
    "Fortran float32": lambda: np.asfortranarray(X.astype(np.float32)),
    "negative strides": lambda: X[::-1, ::-1].copy()[::-1, ::-1],
    "every second row": lambda: np.repeat(X, 2, axis=0)[::2],
    "read-only": lambda: frozen(X),
    "list": lambda: X.tolist(),
    "float16": lambda: X.astype(np.float16),
    "big-endian": lambda: X.astype(">f8"),
    "CSR": lambda: sp.csr_matrix(X),
    "CSR float32": lambda: sp.csr_matrix(X.astype(np.float32)),
    "CSR array": lambda: sp.csr_array(X),
    "CSC": lambda: sp.csc_matrix(X),
    "COO": lambda: sp.coo_matrix(X),
    "CSR with duplicates": duplicated,
    "CSR with explicit zeros": lambda: sp.csr_matrix(
        (X.ravel(), np.tile(np.arange(P), N), np.arange(0, N * P + 1, P)), shape=(N, P)
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_every_storage_gives_the_same_numbers(name: str) -> None:
    """Both passes, squares, Gram matrices and columns equal those of the dense float64 matrix."""
    rows = Rows(STORED[name](), SIGN, EXTRA)
    x, theta = RNG.integers(-9, 10, P + 2) / 4.0, RNG.integers(-9, 10, N) / 4.0
    assert rows.shape == (N, P + 2)
    np.testing.assert_array_equal(rows.forward(x), DENSE @ x)
    np.testing.assert_array_equal(rows.adjoint(theta), DENSE.T @ theta)
    np.testing.assert_array_equal(rows.weighted_squares(x**2), DENSE**2 @ x**2)
    np.testing.assert_array_equal(rows.dense(), DENSE)
    np.testing.assert_array_equal(rows.column(0), DENSE[:, 0])
    np.testing.assert_array_equal(rows.column(P + 1), DENSE[:, P + 1])
    index = np.array([3, 0, 30])
    np.testing.assert_array_equal(rows.rows_csr(index).toarray(), DENSE[index])
    weights = np.array([4.0, 0.25, 1.0])
    np.testing.assert_array_equal(
        rows.weighted_gram(index, weights), DENSE[index].T @ (weights[:, None] * DENSE[index])
    )
    precise, error = rows.forward_precise(index, x)
    assert (np.abs(precise - (DENSE @ x)[index]) <= error).all()
    assert rows.sparse == ("CS" in name or "COO" in name)


@pytest.mark.parametrize("name", STORED)
def test_coordinates_that_no_row_has_are_as_if_zeros_were_stored(name: str) -> None:
    """In every pass, square and copy, and in what is taken of the rows and columns."""
    rows = Rows(STORED[name](), SIGN, EXTRA, absent=3)
    zeros = np.zeros((N, 3))
    whole = Rows(STORED[name](), SIGN, np.hstack([EXTRA, zeros]))
    x, theta = RNG.integers(-9, 10, P + 5) / 4.0, RNG.integers(-9, 10, N) / 4.0
    index, columns = np.array([3, 0, 30]), np.array([1, P, P + 2, P + 4])
    pairs = [
        (rows, whole), (rows.take_rows(index), whole.take_rows(index)),
        (rows.take_columns(columns), whole.take_columns(columns)),
    ]
    for ours, full in pairs:
        some, weights = x[: full.shape[1]], theta[: full.shape[0]] ** 2
        assert ours.shape == full.shape
        assert ours.absent
        assert ours.beside.shape[1] != full.beside.shape[1]
        same = [
            (own.forward(some), own.adjoint(weights), own.weighted_squares(some**2), own.dense(),
             own.extra, own.used_columns(), own.weighted_gram(None, weights),
             own.weighted_gram(np.array([2, 1]), weights[:2]), own.entries_norm,
             own.rows_csr(np.array([1])).toarray(), own.adjoint_precise(weights)[0],
             own.forward_precise(np.array([2, 0]), some)[0],
             own.both_ways(np.stack([some, -some]), lambda at, margins: margins),
             module.column_squares(own, weights), module.by_columns(own).toarray(),
             module.by_rows(own).toarray(), module.row_squares(own, some**2), *own.light,
             *(own.column(j) for j in range(own.shape[1])))
            for own in (ours, full)
        ]
        for mine, theirs in zip(*same, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        sizes = np.sqrt((full.dense() ** 2).sum(axis=1))
        assert (ours.forward_error(some, sizes) <= full.forward_error(some, sizes)).all()
        if not ours.sparse:
            np.testing.assert_array_equal(module.column_major(ours), full.dense())


@pytest.mark.parametrize("store", [np.asarray, sp.csr_matrix])
def test_rows_of_one_entry_are_added_to_the_diagonal(store: Any) -> None:
    """Two of a column as well, a factor of 0, an entry beside the matrix, and none at all."""
    matrix = np.vstack([X[:3], np.diag([2.0, -1.0, 0.5]) @ np.eye(3, P), np.eye(1, P, 1)])
    matrix = np.vstack([matrix, np.zeros((1, P)), np.eye(2, P)])
    scale = np.array([1.0, -1.0, 1.0, 1.0, 2.0, 1.0, -1.0, 1.0, 0.0, 1.0])
    extra = np.zeros((10, 1))
    extra[[0, 7, 9]] = 3.0
    rows = Rows(store(matrix), scale, extra)
    index, columns, factors = rows.single
    np.testing.assert_array_equal(index, [3, 4, 5, 6])
    np.testing.assert_array_equal(columns, [0, 1, 2, 1])
    np.testing.assert_array_equal(factors, [2.0, -2.0, 0.5, -1.0])
    whole, weights = rows.dense(), np.arange(10.0) ** 2
    np.testing.assert_array_equal(
        rows.weighted_gram(None, weights), whole.T @ (weights[:, None] * whole)
    )


@pytest.mark.parametrize("name", ["float64", "Fortran float32", "CSR"])
def test_rows_of_few_entries_are_found(name: str) -> None:
    """Of none, one and two, with further columns and without; there may be no columns at all."""
    for columns in range(P + 1):
        for extra in (EXTRA, None):
            rows = Rows(STORED[name]()[:, :columns], SIGN, extra)
            counts = np.count_nonzero(rows.dense(), axis=1)
            index, found = rows.light
            np.testing.assert_array_equal(index, np.flatnonzero(counts <= 2))
            np.testing.assert_array_equal(found, counts[index])


@pytest.mark.parametrize("others", [0, 3])
def test_sparse_rows_of_one_entry_need_no_product(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each on its own, where sparse rows have mostly one, without a product of matrices."""
    entries = np.zeros((N, P))
    entries[np.arange(N), RNG.integers(P, size=N)] = RNG.integers(1, 9, N) / 8.0
    entries[-3] = 0.0
    entries[:others] = X[:others]
    light, weights = Rows(sp.csr_matrix(entries), SIGN), RNG.integers(0, 5, N) ** 2 / 4.0
    monkeypatch.setattr(module, "ENTRYWISE", 2.0)
    asked, parts = [], Rows._parts
    monkeypatch.setattr(
        Rows, "_parts", lambda self, count, **k: asked.append(count) or parts(self, count, **k)
    )
    found = light.weighted_gram(None, weights)
    np.testing.assert_array_equal(found, entries.T @ (weights[:, None] * entries))
    assert asked[-1] <= others + 1


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_light_rows_are_multiplied_entry_by_entry(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same numbers as without compiled code, whose price is counted till it is there."""
    clock = CompileClock(np.inf, SimpleNamespace(signatures=()))
    monkeypatch.setattr(compiled_support, "on_disk", lambda loop: False)
    monkeypatch.setattr(module, "GRAMS", clock)
    monkeypatch.setattr(module, "ENTRYWISE", 2.0)
    light = Rows(sp.csr_matrix(X.astype(kind)), SIGN, EXTRA)
    weights, some = RNG.integers(0, 5, N) ** 2 / 4.0, RNG.random(N) < 0.5
    cases = (None, weights), (some, weights[some]), (np.array([3, 0, 30]), weights[:3])
    made = [light.weighted_gram(*case) for case in cases]
    assert clock.spent > 0.0
    clock.price, spent, calls = 0.0, clock.spent, []
    add = module.add_outer_products if kind is np.float64 else module.add_outer_products.py_func
    monkeypatch.setattr(module, "add_outer_products", lambda *a: calls.append(1) or add(*a))
    for (index, weight), before in zip(cases, made, strict=True):
        rows = DENSE if index is None else DENSE[index]
        found = light.weighted_gram(index, weight)
        np.testing.assert_array_equal(found, rows.T @ (weight[:, None] * rows))
        np.testing.assert_array_equal(found, before)
    assert len(calls) == 3
    assert clock.spent == spent


@pytest.mark.parametrize("name", STORED)
def test_rows_and_columns_can_be_taken_and_taken_again(name: str) -> None:
    """`take_rows` and `take_columns` are closed: the result is a design like any other."""
    rows = Rows(STORED[name](), SIGN, EXTRA)
    mask = RNG.random(N) < 0.5
    some = rows.take_rows(mask)
    np.testing.assert_array_equal(some.dense(), DENSE[mask])
    np.testing.assert_array_equal(some.take_rows(np.array([2, 1])).dense(), DENSE[mask][[2, 1]])
    columns = np.array([0, 2, P, P + 1])
    np.testing.assert_array_equal(rows.take_columns(columns).dense(), DENSE[:, columns])
    both = rows.take_columns(columns).take_rows(mask).take_columns(np.array([1, 2]))
    np.testing.assert_array_equal(both.dense(), DENSE[mask][:, columns][:, [1, 2]])
    nothing = rows.take_rows(np.zeros(N, dtype=bool))
    assert nothing.shape == (0, P + 2)
    assert nothing.forward(np.ones(P + 2)).shape == (0,)
    np.testing.assert_array_equal(nothing.adjoint(np.zeros(0)), np.zeros(P + 2))


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_blocks_of_rows(storage: Callable[[Any], Any], kind: type) -> None:
    """More rows than one block: every row and every block counts once."""
    tall = RNG.integers(-8, 9, (2500, 3)).astype(kind)
    rows = Rows(storage(tall), None, np.ones((2500, 1)))
    full = np.hstack([tall.astype(np.float64), np.ones((2500, 1))])
    theta = RNG.integers(-8, 9, 2500) / 2.0
    np.testing.assert_array_equal(rows.adjoint(theta), full.T @ theta)
    np.testing.assert_array_equal(rows.forward(np.arange(4.0)), full @ np.arange(4.0))
    np.testing.assert_array_equal(rows.weighted_squares(np.ones(4)), (full**2).sum(axis=1))


def test_precise_margins_of_sparse_rows_need_no_dense_rows() -> None:
    """400 rows of 50,000 columns with 5 entries each: far less memory than their dense form."""
    n, d = 400, 50_000
    columns = RNG.integers(0, d, (n, 5))
    matrix = sp.csr_matrix(
        (RNG.standard_normal(5 * n), (np.repeat(np.arange(n), 5), columns.ravel())), shape=(n, d)
    )
    rows, x = Rows(matrix), RNG.standard_normal(d)
    tracemalloc.start()
    margins, error = rows.forward_precise(np.arange(n), x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (np.abs(margins - matrix @ x) <= error + 1e-13).all()
    assert peak < 8 * n * d / 4  # a quarter of the dense rows in double precision


def test_float_matrices_are_held_not_copied() -> None:
    """A float array and canonical CSR are kept by reference; scale and extra are not."""
    for matrix in (X.copy(), X.astype(np.float32)):
        assert Rows(matrix).matrix is matrix
    csr = sp.csr_matrix(X)
    assert Rows(csr).matrix is csr
    sign, extra = SIGN.copy(), EXTRA.copy()
    rows = Rows(X, sign, extra)
    sign[:], extra[:] = 0.0, 0.0
    np.testing.assert_array_equal(rows.dense(), DENSE)


@pytest.mark.parametrize("name", STORED)
def test_nothing_of_the_caller_is_written_to(name: str) -> None:
    """After all operations the caller's arrays hold the same bytes."""
    matrix = STORED[name]()
    arrays = [matrix.data, *(getattr(matrix, part) for part in ("indptr", "indices", "row", "col")
                             if hasattr(matrix, part))] if sp.issparse(matrix) else [matrix]
    before = [np.array(array, copy=True) for array in arrays]
    sign, extra = SIGN.copy(), EXTRA.copy()
    rows = Rows(matrix, sign, extra)
    index = np.array([1, 5])
    rows.forward(np.ones(P + 2))
    rows.adjoint(np.ones(N))
    rows.weighted_squares(np.ones(P + 2))
    rows.dense()[:] = 7.0
    rows.dense(index)[:] = 7.0
    rows.rows_csr(index).data[:] = 7.0
    rows.weighted_gram(index, np.ones(2))[:] = 7.0
    rows.take_rows(index).dense()[:] = 7.0
    for old, new in zip(before, arrays, strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))
    np.testing.assert_array_equal(sign, SIGN)
    np.testing.assert_array_equal(extra, EXTRA)


BAD = [
    (np.array([[1.0, np.nan]]), "NaN or infinity"),
    (np.array([[1.0, np.inf]]), "NaN or infinity"),
    (np.array([[1.0, -np.inf]], dtype=np.float32), "NaN or infinity"),
    (sp.csr_matrix(np.array([[1.0, np.nan]])), "NaN or infinity"),
    (np.array([[1.0, -1e155]]), "1.0e+155, whose squares overflow"),
    (sp.csr_matrix(np.array([[1.0, 1e200]])), "1.0e+200, whose squares overflow"),
    (np.array([1.0, 2.0]), "shape"),
    (np.array(3.0), "shape"),
    (np.zeros((2, 2, 2)), "shape"),
    (sp.coo_array(np.array([1.0, 2.0])), "shape"),
    (np.array([["a", "b"]]), "dtype"),
    (np.array([["1.5", "2"]]), "dtype"),
    (np.array([[None, 1.0]], dtype=object), "dtype|NaN"),
    (np.array([[{}, 1.0]], dtype=object), "dtype"),
    ([[1.0, 2.0], [3.0]], "not an array of numbers"),
    (np.array([[1 + 2j, 2.0]]), "dtype"),
    (sp.csr_matrix(np.array([[1 + 2j, 2.0]])), "dtype"),
    (np.array([["2020-01-01"]], dtype="datetime64[D]"), "dtype"),
    (None, "None"),
]


@pytest.mark.parametrize(("matrix", "words"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_data_are_refused_by_name(matrix: Any, words: str) -> None:
    """The message names the argument and what was found; nothing is silently converted."""
    with pytest.raises(InvalidInput, match="`data`") as caught:
        Rows(matrix, name="data")
    assert any(word in str(caught.value) for word in words.split("|"))


def test_bad_scale_and_extra_are_refused_by_name() -> None:
    """Wrong shapes and numbers that are not finite, in the vectors beside the matrix."""
    for scale in (np.ones(N + 1), np.ones((N, 1)), np.full(N, np.nan), np.full(N, np.inf)):
        with pytest.raises(InvalidInput, match="`scale`"):
            Rows(X, scale)
    column = np.ones((N, 1))
    for extra in (np.ones(N), np.ones((N + 1, 1)), column * np.nan, column * np.inf):
        with pytest.raises(InvalidInput, match="`extra`"):
            Rows(X, None, extra)


def test_wide_indices_become_narrow_beside_the_same_entries(monkeypatch: Any) -> None:
    """The caller's stay as they are; where 32 bits hold them no loop is compiled for 64."""
    given = sp.csr_matrix(np.eye(4))
    given.indices, given.indptr = given.indices.astype(np.int64), given.indptr.astype(np.int64)
    held = Rows(given).matrix
    assert held.indices.dtype == held.indptr.dtype == np.int32
    assert np.shares_memory(held.data, given.data)
    assert given.indices.dtype == given.indptr.dtype == np.int64
    assert np.array_equal(held.toarray(), np.eye(4))
    monkeypatch.setattr(validation, "MOST_NARROW", 3)  # of the four rows, columns and entries
    assert Rows(given).matrix.indices is given.indices


def test_integers_and_booleans_become_floats() -> None:
    """Integer and Boolean data are numbers; objects that hold numbers are too."""
    for matrix in (np.eye(3, dtype=int), np.eye(3, dtype=bool), np.eye(3).astype(object)):
        rows = Rows(matrix)
        assert rows.matrix.dtype == np.float64
        np.testing.assert_array_equal(rows.dense(), np.eye(3))


# Columns of a design: their norms and the matrix by columns, for every way rows are stored.

@pytest.fixture(params=["dense", "float32", "sparse", "sparse float32"])
def design(request: pytest.FixtureRequest, rng: np.random.Generator) -> Rows:
    """Rows with factors that are no signs, and two module besides."""
    X: Any = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.6)
    if "float32" in request.param:
        X = X.astype(np.float32)
    if "sparse" in request.param:
        X = sp.csr_matrix(X)
    return Rows(X, rng.uniform(0.5, 2.0, 40), rng.standard_normal((40, 2)))


@pytest.mark.parametrize("block", [16, 1024])
def test_squares_of_columns_are_those_of_the_rows_with_their_factors(
    design: Rows, block: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_ROWS", block)
    weights = rng.uniform(0.0, 2.0, 40) * (rng.random(40) < 0.7)
    found = module.column_squares(design, weights)
    np.testing.assert_allclose(found, weights @ design.dense() ** 2, rtol=1e-13)


def test_the_matrix_by_columns_is_the_design(design: Rows) -> None:
    made = module.by_columns(design).toarray() if design.sparse else module.column_major(design)
    np.testing.assert_array_equal(made, design.dense())
    assert design.sparse or not np.shares_memory(made, design.matrix)


def test_columns_that_no_row_has_an_entry_of_are_known() -> None:
    matrix = np.zeros((40, 5))
    matrix[3, 1], matrix[39, 4] = -2.0, 1e-300
    extra = np.zeros((40, 2))
    extra[0, 1] = 1.0
    for form in (matrix, matrix.astype(np.float64, order="F"), sp.csr_array(matrix)):
        used = Rows(form, None, extra).used_columns()
        assert used.tolist() == [False, True, False, False, True, False, True]


@pytest.mark.parametrize("equal", [True, False])
def test_norms_of_columns_are_in_the_metric_of_the_curvatures(
    design: Rows, equal: bool, rng: np.random.Generator
) -> None:
    """One pass serves both norms where all curvatures are equal; terms without one do not count."""
    q = np.full(40, 0.3) if equal else rng.choice([0.0, 0.3, 2.0], 40)
    losses = Losses(np.zeros(40), np.zeros(40), q, np.full(40, -1.0), np.zeros(40))
    base = cs.Problem(design, losses, cs.Quadratic(np.ones(9)), np.zeros(9))
    inverse = np.divide(1.0, q, out=np.zeros(40), where=q > 0)
    whole = design.dense()
    np.testing.assert_allclose(base.column_norms, np.sqrt(inverse @ whole**2), rtol=1e-13)
    np.testing.assert_allclose(base.column_sizes, np.sqrt((whole**2).sum(axis=0)), rtol=1e-13)
    assert not replace(base, losses=replace(losses, q=np.zeros(40))).column_norms.any()
