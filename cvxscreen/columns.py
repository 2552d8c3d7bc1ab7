"""The columns of a design: their norms, for bounds on the dual side, and the matrix by columns."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen.designs.protocols import Design
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]

_BLOCK_ROWS = 1024


def _squared(design: Rows) -> sp.csr_matrix:
    """The squares of the sparse entries, row factors included; kept."""
    found: sp.csr_matrix | None = design.__dict__.get("_squared")
    if found is None:
        matrix = design.matrix
        entries = matrix.data.astype(np.float64) ** 2
        if design.scale is not None:
            entries *= np.repeat(design.scale**2, np.diff(matrix.indptr))
        found = sp.csr_matrix((entries, matrix.indices, matrix.indptr), shape=matrix.shape)
        design.__dict__["_squared"] = found
    return found


def row_squares(design: Design, weights: Array) -> Array:
    """``sum_j weights_j a_ij^2``, shape (n,); a product with the squares where rows are sparse."""
    if not isinstance(design, Rows) or not design.sparse or design.extra.shape[1]:
        return design.weighted_squares(weights)
    return np.asarray(_squared(design) @ weights)


def column_squares(design: Design, weights: ArrayLike) -> Array:
    """``sum_i weights_i a_ij^2``, shape (d,)."""
    w = np.asarray(weights, dtype=np.float64)
    if isinstance(design, Rows) and design.sparse:
        own = w if design.scale is None else w * design.scale**2
        return np.concatenate([_squared(design).T @ w, own @ design.extra**2])
    total = np.zeros(design.shape[1])
    for start in range(0, design.shape[0], _BLOCK_ROWS):
        index = np.arange(start, min(start + _BLOCK_ROWS, design.shape[0]))
        index = index[w[index] != 0]
        block = design.dense(index)
        total += np.einsum("ij,ij,i->j", block, block, w[index])
    return total


def by_columns(design: Design) -> sp.csc_matrix:
    """The design as a float64 CSC matrix, row factors and further columns included; kept."""
    if not isinstance(design, Rows):
        return sp.csc_matrix(design.dense())
    found: sp.csc_matrix | None = design.__dict__.get("_by_columns")
    if found is None:
        found = design.__dict__["_by_columns"] = _by_columns(design)
    return found


def _by_columns(design: Rows) -> sp.csc_matrix:
    if not design.sparse:
        return sp.csc_matrix(design.dense())
    matrix = design.matrix.astype(np.float64)  # a copy
    if design.scale is not None:
        matrix.data *= np.repeat(design.scale, np.diff(matrix.indptr))
    if design.extra.shape[1]:
        own = design.extra if design.scale is None else design.extra * design.scale[:, None]
        matrix = sp.hstack([matrix, sp.csr_matrix(own)], format="csr")
    return sp.csc_matrix(matrix)


def column_major(design: Rows) -> Array:
    """Dense rows as a float64 array that lies by columns; kept."""
    found: Array | None = design.__dict__.get("_column_major")
    if found is None:
        found = design.__dict__["_column_major"] = np.asfortranarray(design.dense())
    return found


def narrowed(design: Design, features: NDArray[np.intp]) -> Design:
    """The design made of some coordinates; few columns of sparse rows without a pass over all."""
    if not isinstance(design, Rows) or not design.sparse or 2 * len(features) > design.shape[1]:
        narrow: Design = design.take_columns(features)
        whole = design.__dict__.get("_column_major")
        if whole is not None:
            narrow.__dict__["_column_major"] = whole.T[features].T
        return narrow
    part = by_columns(design)[:, features]
    chosen = Rows(part.tocsr())
    chosen.__dict__["_by_columns"] = part
    return chosen
