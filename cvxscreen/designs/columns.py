"""A design by its columns: norms and counts of them, and the matrix stored in other ways.

Designs are made for passes over rows. Bounds on the dual side, and solvers that go through
features, ask for columns: their squares, a CSC matrix, a dense one in column order. Such copies are
made when first asked for and stay with the rows (`cvxscreen.designs.rows.Copies`). All are float64,
with the factors of the rows and the further columns in them.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.limits import require
from cvxscreen.designs.protocols import Design
from cvxscreen.designs.rows import SMALLEST, UNDERFLOWN, Rows, factors_of

Array = NDArray[np.float64]

_BLOCK_ROWS = 1024

OFTEN = 3
"""So many times columns are taken from rows, at two to four passes each, before the matrix is
turned for good: that takes ten to fourteen."""
FEW = 0.1
"""Share of the entries up to which columns are turned into rows faster than rows are gone through.
"""


# -- sums of squares, and counts --------------------------------------------------------------


def _squares(design: Rows) -> sp.csr_matrix:
    """The squares of the sparse entries, row factors included; kept."""
    copies = design.copies
    if copies.squares is None:
        matrix = design.matrix
        entries = matrix.data.astype(np.float64)
        if (scale := _factors(design)) is not None:
            entries *= np.repeat(scale, np.diff(matrix.indptr))
        copies.squares = sp.csr_matrix(
            (entries**2, matrix.indices, matrix.indptr), shape=matrix.shape
        )
    return copies.squares


def row_squares(design: Design, weights: Array) -> Array:
    """``sum_j weights_j a_ij^2``, shape (n,); a product with the squares where rows are sparse."""
    if not isinstance(design, Rows) or not design.sparse or design.extra.shape[1]:
        return design.weighted_squares(weights)
    return design.above_underflow(np.asarray(_squares(design) @ weights), weights)


def column_squares(design: Design, weights: ArrayLike) -> Array:
    """``sum_i weights_i a_ij^2``, shape (d,)."""
    w = np.asarray(weights, dtype=np.float64)
    if isinstance(design, Rows):
        scale = _factors(design)
        extra = design.extra if scale is None else scale[:, None] * design.extra
        head = _squares(design).T @ w if design.sparse else _dense_squares(design.matrix, scale, w)
        total = np.concatenate([head, w @ extra**2])
        return _above_underflow(total, design, w)
    total = np.zeros(design.shape[1])
    for start in range(0, design.shape[0], _BLOCK_ROWS):
        index = np.arange(start, min(start + _BLOCK_ROWS, design.shape[0]))
        index = index[w[index] != 0]
        block = design.dense(index)
        total += np.einsum("ij,ij,i->j", block, block, w[index])
    return total


def _above_underflow(squares: Array, design: Rows, weights: Array) -> Array:
    """`squares` of columns, with what underflow may have taken off added (as rows' are).

    Columns without an entry in a row that has a weight stay 0.
    """
    factors = float(np.max(factors_of(weights, design.scale), initial=1.0))
    few = np.flatnonzero(squares < UNDERFLOWN * factors)
    used = weights > 0.0
    if not few.size or not used.any():
        return squares
    p, matrix = design.matrix.shape[1], design.matrix
    head, tail = few[few < p], few[few >= p] - p
    if not design.sparse:
        block = matrix[:, head]
        filled = block.any(axis=0)
        filled = block[used].any(axis=0) if filled.any() else filled
    elif _squares(design).data.min(initial=np.inf) * weights[used].min() > UNDERFLOWN:
        filled = np.zeros(len(head), dtype=bool)  # these columns have no entries there
    else:
        entries = (matrix.data != 0) & np.repeat(used, np.diff(matrix.indptr))
        filled = np.bincount(matrix.indices[entries], minlength=p)[head] > 0
    filled = np.concatenate([filled, (design.extra[:, tail] != 0)[used].any(axis=0)])
    out = squares.copy()
    out[few] += np.where(filled, SMALLEST * (1.0 + len(weights)) * factors, 0.0)
    return out


def _factors(design: Rows) -> Array | None:
    """The factors of the rows where squares notice them.

    They are multiplied by before anything is squared: their own squares may underflow.
    """
    plain = design.scale is None or bool((np.abs(design.scale) == 1.0).all())
    return None if plain else design.scale


def _dense_squares(matrix: Array, scale: Array | None, weights: Array) -> Array:
    """``sum_i weights_i (scale_i x_ij)^2``, in double precision."""
    total = np.zeros(matrix.shape[1])
    for start in range(0, len(matrix), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        block = matrix[rows].astype(np.float64, copy=False)
        block = block if scale is None else scale[rows, None] * block
        total += np.einsum("ij,ij,i->j", block, block, weights[rows])
    return total


def entries(design: Design) -> int:
    """How many numbers a pass over the design multiplies."""
    n, d = design.shape
    if not isinstance(design, Rows) or not design.sparse:
        return int(n * d)
    return int(design.matrix.nnz + design.extra.size)


def column_counts(design: Rows) -> NDArray[np.intp]:
    """Entries of each column of sparse rows, shape (d,); kept."""
    copies = design.copies
    if copies.column_counts is None:
        n, p = design.matrix.shape
        counts = np.bincount(design.matrix.indices, minlength=p)
        copies.column_counts = np.append(counts, np.full(design.extra.shape[1], n))
    return copies.column_counts


# -- the whole matrix, stored in another way --------------------------------------------------


def by_columns(design: Design) -> sp.csc_matrix:
    """The design as a CSC matrix; kept for `Rows`."""
    if not isinstance(design, Rows):
        return sp.csc_matrix(design.dense())
    copies = design.copies
    if copies.by_columns is None:
        rows = _whole_rows(design) if design.sparse else design.dense()
        copies.by_columns = sp.csc_matrix(rows)
    return copies.by_columns


def by_rows(design: Design) -> sp.csr_matrix:
    """The design as a CSR matrix; kept for `Rows`."""
    if not isinstance(design, Rows):
        return sp.csr_matrix(design.dense())
    copies = design.copies
    if copies.by_rows is None:
        rows = _whole_rows(design) if design.sparse else sp.csr_matrix(design.dense())
        copies.by_rows = rows
    return copies.by_rows


def _whole_rows(design: Rows) -> sp.csr_matrix:
    """Sparse rows as float64 CSR, row factors and further columns included."""
    matrix = sp.csr_matrix(design.matrix, dtype=np.float64)
    if design.scale is not None:
        data = matrix.data * np.repeat(design.scale, np.diff(matrix.indptr))
        matrix = sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    if design.extra.shape[1]:
        own = design.extra if design.scale is None else design.extra * design.scale[:, None]
        matrix = sp.csr_matrix(sp.hstack([matrix, sp.csr_matrix(own)], format="csr"))
    return matrix


def column_major(design: Rows) -> Array:
    """Dense rows as an array that lies by columns; kept."""
    copies = design.copies
    if copies.column_major is None:
        (n, d), p = design.shape, design.matrix.shape[1]
        require(8 * n * d, f"a dense copy of {n:,} x {d:,} entries", "use fewer features")
        found = np.empty(design.shape, order="F")
        scale = 1.0 if design.scale is None else design.scale[:, None]
        np.multiply(design.matrix, scale, out=found[:, :p])  # at once: several copies take longer
        np.multiply(design.extra, scale, out=found[:, p:])
        copies.column_major = found
    return copies.column_major


# -- some of the columns ----------------------------------------------------------------------


def cut_often(design: Rows) -> None:
    """Keep sparse rows by columns, too, once a few sets of columns have been taken from them."""
    if design.copies.columns_taken >= OFTEN:
        by_columns(design)
    design.copies.columns_taken += 1


def few_entries(design: Design, features: NDArray[np.intp]) -> bool:
    """Whether the design is kept by columns, and these hold a small share of its entries."""
    whole = design.copies.by_columns if isinstance(design, Rows) else None
    if whole is None:
        return False
    return bool(np.diff(whole.indptr)[features].sum() <= FEW * whole.nnz)


def narrowed(design: Design, features: NDArray[np.intp]) -> Design:
    """The design made of some coordinates; where it is kept by columns, so is what is made of it.

    A pass over the rows, or less; `by_columns` costs twenty and is not asked for here.
    """
    if not isinstance(design, Rows):
        return design.take_columns(features)
    dense, whole = design.copies.column_major, design.copies.by_columns
    if not design.sparse or whole is None:
        narrow = design.take_columns(features)
        if not design.sparse and dense is not None:
            narrow.copies.column_major = dense.T[features].T
        return narrow
    part, few = whole[:, features], few_entries(design, features)
    narrow = Rows(part.tocsr(), known=True) if few else design.take_columns(features)
    narrow.copies.by_columns = part
    return narrow
