"""Sparse matrices by their entries: made and thinned out without a product of two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Index = NDArray[np.intp]


def diagonal(factor: NDArray[np.float64]) -> Any:
    """A sparse diagonal matrix."""
    n = len(factor)
    return sp.csr_array((factor, np.arange(n), np.arange(n + 1)), shape=(n, n))


def without(matrix: Any, columns: Index) -> Any:
    """A sparse matrix with some columns set to zero."""
    whole = sp.csr_array(matrix)
    keep = np.ones(whole.shape[1], dtype=bool)
    keep[columns] = False
    return _entries(whole, keep[whole.indices])


def cleared(quadratic: Any, columns: Index) -> Any:
    """The quadratic term without some columns and rows."""
    keep = np.ones(quadratic.shape[0], dtype=bool)
    keep[columns] = False
    return _entries(quadratic, keep[quadratic.indices] & keep[rows_of(quadratic)])


def rows_of(matrix: Any) -> Index:
    """The row of each entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _entries(matrix: Any, chosen: NDArray[np.bool_]) -> Any:
    """A CSR matrix with the chosen ones of its entries, without explicit zeros."""
    chosen = chosen & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr]
    return sp.csr_array((matrix.data[chosen], matrix.indices[chosen], ends), shape=matrix.shape)
