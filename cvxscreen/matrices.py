"""A caller's data matrix as the designs store it: a float array or CSR, finite, checked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import array, real


def stored(matrix: Any, name: str) -> Any:
    """`matrix` as a 2-D float ndarray or CSR without copying when it already is one."""
    if sp.issparse(matrix):
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise InvalidInput(
                f"`{name}` has shape {matrix.shape} and dtype {matrix.dtype}; a matrix (n, d) of "
                "real numbers is needed."
            )
        _in_bounds(matrix, name)
        m = matrix.tocsr()
        if not m.has_canonical_format:
            m = m.copy()
            m.sum_duplicates()
        if m.dtype not in (np.float32, np.float64):
            with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
                m = m.astype(np.float64)
        finite = np.isfinite(m.data).all()
    else:
        m = real(name, matrix)
        if m.dtype not in (np.float32, np.float64):
            m = array(name, m)
        if m.ndim != 2:
            raise InvalidInput(
                f"`{name}` has shape {m.shape}; a matrix (n, d) is needed "
                "(reshape one column with X[:, None])."
            )
        if not (m.flags.c_contiguous or m.flags.f_contiguous):
            m = np.ascontiguousarray(m)
        finite = bool(np.isfinite(m).all())
    if not finite:
        raise InvalidInput(f"`{name}` holds NaN or infinity; impute or drop those rows first.")
    return m


def _in_bounds(matrix: Any, name: str) -> None:
    """Refuse index arrays that point outside the matrix: SciPy would read or write there."""
    if matrix.format not in ("csr", "csc", "bsr"):
        return
    pointers, indices = matrix.indptr, matrix.indices
    wide = np.array(matrix.shape) // getattr(matrix, "blocksize", (1, 1))
    major, minor = wide[::-1] if matrix.format == "csc" else wide
    ends = len(pointers) == major + 1 and pointers[0] == 0 and pointers[-1] <= len(indices)
    if not ends or (np.diff(pointers) < 0).any() or len(indices) != len(matrix.data):
        raise InvalidInput(
            f"`{name}` is a broken {matrix.format.upper()} matrix: its `indptr` must rise from 0 "
            "to the number of entries; build it again from its parts."
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= minor):
        raise InvalidInput(
            f"`{name}` is a broken {matrix.format.upper()} matrix: its `indices` go from "
            f"{indices.min()} to {indices.max()}, those of shape {matrix.shape} from 0 to "
            f"{minor - 1}; build it again from its parts."
        )
