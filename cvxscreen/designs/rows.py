"""Rows of a matrix, dense or CSR, float32 or float64, through one code path.

Row ``i`` is ``a_i = scale_i [x_i, extra_i]``: the label sign of an SVM and the column of ones of an
intercept never force a copy of the data. float32 data are multiplied in double precision (products
of two float32 are exact there), a block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.limits import require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import array, stored
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]

_BLOCK_ROWS = 1024
_WIDE_ROWS = 64
SPARSE_PRODUCTS = 0.05
"""Share of non-zero entries up to which sparse rows are multiplied with each other as such: a
dense product needs the square of its inverse more operations, each some hundred times faster."""


@dataclass(eq=False)
class Copies:
    """The entries of some rows stored in other ways, and None where they are not.

    Made, and handed on to some of the columns, by `cvxscreen.designs.columns`; rows that were cut
    out start with none.
    """

    squares: sp.csr_matrix | None = None
    column_counts: NDArray[np.intp] | None = None
    by_rows: sp.csr_matrix | None = None
    by_columns: sp.csc_matrix | None = None
    column_major: Array | None = None
    columns_taken: int = 0
    """How often columns have been taken from sparse rows that are not kept by columns."""


class Rows:
    """The design ``A`` (n x d) with rows ``a_i = scale_i [x_i, extra_i]``.

    Parameters
    ----------
    matrix : array_like or sparse matrix, shape (n, p)
        Held by reference when it is a float32/float64 array or canonical CSR; never written to.
    scale : array_like, shape (n,), optional
        Factor of each row (labels of a classification problem); 1 when omitted.
    extra : array_like, shape (n, k), optional
        Further dense columns, multiplied by `scale` too (a column of ones for an intercept).
    name : str
        What to call the matrix in error messages.
    known : bool
        Whether the matrix has been checked: finite, C-contiguous float or canonical CSR.

    Raises
    ------
    InvalidInput
        On NaN, infinity, wrong shapes or non-numeric data.
    """

    streamed, centred = False, False
    reach: Array | None = None

    def __init__(
        self,
        matrix: Any,
        scale: ArrayLike | None = None,
        extra: ArrayLike | None = None,
        *,
        name: str = "X",
        known: bool = False,
    ) -> None:
        self.matrix = matrix if known else stored(matrix, name)
        n, p = self.matrix.shape
        self.scale: Array | None = None
        if scale is not None:
            self.scale = array("scale", scale).copy()
            if self.scale.shape != (n,):
                raise InvalidInput(f"`scale` has shape {self.scale.shape}; ({n},) is needed.")
            if not np.isfinite(self.scale).all():
                raise InvalidInput("`scale` holds NaN or infinity.")
        self.extra = np.zeros((n, 0))
        if extra is not None:
            self.extra = array("extra", extra).copy()
            if self.extra.ndim != 2 or len(self.extra) != n:
                raise InvalidInput(f"`extra` has shape {self.extra.shape}; ({n}, k) is needed.")
            if not np.isfinite(self.extra).all():
                raise InvalidInput("`extra` holds NaN or infinity.")
        self.shape: tuple[int, int] = (n, p + self.extra.shape[1])
        self.copies = Copies()

    @property
    def sparse(self) -> bool:
        """Whether the data are stored as CSR."""
        return bool(sp.issparse(self.matrix))

    @property
    def filled(self) -> float:
        """The share of the entries that is stored."""
        size = self.matrix.shape[0] * self.matrix.shape[1]
        return self.matrix.nnz / max(size, 1) if self.sparse else 1.0

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Blocks of rows in double precision."""
        n = self.shape[0]
        for start in range(0, n, _BLOCK_ROWS):
            rows = slice(start, min(start + _BLOCK_ROWS, n))
            yield rows, self.matrix[rows].astype(np.float64, copy=False)

    @cached_property
    def _turned(self) -> Any:
        """``matrix.T`` of sparse rows, in the same memory: scipy checks what it transposes."""
        return self.matrix.T

    # -- the two passes -----------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """``A x``, shape (n,): one pass over the data."""
        x = np.asarray(x, dtype=np.float64)
        p = self.matrix.shape[1]
        if self.sparse or self.matrix.dtype == np.float64:
            out = np.asarray(self.matrix @ x[:p], dtype=np.float64)
        else:
            out = np.empty(self.shape[0])
            for rows, block in self._blocks():
                out[rows] = block @ x[:p]
        if self.extra.shape[1]:
            out = out + self.extra @ x[p:]
        return out if self.scale is None else out * self.scale

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,): one pass over the data, summed block by block."""
        theta = np.asarray(theta, dtype=np.float64)
        weights = theta if self.scale is None else theta * self.scale
        if self.sparse:
            head = np.asarray(self._turned @ weights, dtype=np.float64)
        else:
            head = np.zeros(self.matrix.shape[1])
            for rows, block in self._blocks():
                head += block.T @ weights[rows]
        if not self.extra.shape[1]:
            return head
        tail = np.zeros(self.extra.shape[1])
        for start in range(0, self.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            tail += self.extra[rows].T @ weights[rows]
        return np.concatenate([head, tail])

    def forward_precise(self, index: Index, x: ArrayLike) -> tuple[Array, Array]:
        """``<a_i, x>`` of a few rows in extended precision, and a bound of the error left.

        For rows whose rounding would otherwise dominate a duality gap. Where the machine has no
        wider type the result is that of `forward`, with its bound.
        """
        wide, x = np.longdouble, np.asarray(x, dtype=np.longdouble)
        exact, size = self._wide_products(index, x)
        unit = float(np.finfo(wide).eps)
        factor = 2.0 * (self.shape[1] + 6) * unit
        rounded = np.asarray(exact, dtype=np.float64)
        return rounded, 1.01 * factor * size + UNIT * np.abs(rounded)

    def _wide_products(self, index: Index, x: Any) -> tuple[Any, Array]:
        """``<a_i, x>`` and ``sum_j |a_ij x_j|`` in extended precision; sparse rows stay sparse."""
        p = self.matrix.shape[1]
        rows = np.flatnonzero(index) if np.asarray(index).dtype == bool else np.asarray(index)
        total = np.zeros(len(rows), dtype=np.longdouble)
        size = np.zeros(len(rows), dtype=np.longdouble)
        for start in range(0, len(rows), _WIDE_ROWS):
            part = slice(start, start + _WIDE_ROWS)
            block = self.matrix[rows[part]]
            if self.sparse:
                products = block.data.astype(np.longdouble) * x[block.indices]
                used = np.flatnonzero(np.diff(block.indptr))
                if len(used):
                    first = block.indptr[used]
                    total[start + used] = np.add.reduceat(products, first)
                    size[start + used] = np.add.reduceat(np.abs(products), first)
            else:
                wide = block.astype(np.longdouble)
                total[part], size[part] = wide @ x[:p], np.abs(wide) @ np.abs(x[:p])
            extra = self.extra[rows[part]].astype(np.longdouble)
            total[part] += extra @ x[p:]
            size[part] += np.abs(extra) @ np.abs(x[p:])
        if self.scale is not None:
            scale = self.scale[rows].astype(np.longdouble)
            total, size = total * scale, size * np.abs(scale)
        return total, np.asarray(size, dtype=np.float64)

    @cached_property
    def forward_factor(self) -> float:
        """``|computed - exact| <= forward_factor * sum_j |a_ij x_j|`` in every row."""
        if self.sparse:
            terms = int(np.diff(self.matrix.indptr).max(initial=0))
        else:
            terms = self.matrix.shape[1]
        return gamma(terms + self.extra.shape[1] + 4)

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (n,); `sizes` are ``||a_i||``."""
        return self.forward_factor * float(np.linalg.norm(x)) * sizes

    @cached_property
    def adjoint_factor(self) -> float:
        """``|computed - exact| <= adjoint_factor * sum_i |a_ij theta_i|`` in every column."""
        n = self.shape[0]
        if self.sparse:
            column = np.bincount(self.matrix.indices, minlength=1).max(initial=0)
            depth = max(int(column), min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 1)
        else:
            depth = min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 1
        return gamma(depth + 4)

    @cached_property
    def entries_norm(self) -> float:
        """The norm of all entries, roughly; known without a look at single rows."""
        entries = self.matrix.data if self.sparse else self.matrix.ravel(order="K")
        scale = 1.0 if self.scale is None else float(np.abs(self.scale).max(initial=0.0))
        with np.errstate(over="ignore"):
            total = float(np.linalg.norm(entries)) + float(np.linalg.norm(self.extra))
            return scale * total

    def offset(self, x: ArrayLike) -> float:
        """What the design has added to an intercept: nothing."""
        return 0.0

    # -- norms and small matrices -------------------------------------------------------------

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j a_ij^2``, shape (n,)."""
        weights = np.asarray(weights, dtype=np.float64)
        p = self.matrix.shape[1]
        if self.sparse:
            entries = np.square(self.matrix.data, dtype=np.float64)
            squares = sp.csr_array(
                (entries, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape
            )
            out = np.asarray(squares @ weights[:p])
        else:
            out = np.empty(self.shape[0])
            for rows, block in self._blocks():
                out[rows] = np.einsum("ij,ij,j->i", block, block, weights[:p])
        if self.extra.shape[1]:
            out = out + self.extra**2 @ weights[p:]
        return out if self.scale is None else out * self.scale**2

    def dense(self, index: Index | slice | None = None) -> Array:
        """The rows at `index` (all when omitted) as a dense float64 array."""
        block = self.matrix if index is None else self.matrix[index]
        n, d = block.shape[0], self.shape[1]
        require(
            8 * n * d, f"a dense copy of {n:,} x {d:,} entries",
            "keep the data sparse, or use fewer features",
        )
        head = block.toarray() if self.sparse else block
        extra = self.extra if index is None else self.extra[index]
        out = np.hstack([np.asarray(head, dtype=np.float64), extra])
        if self.scale is not None:
            out *= (self.scale if index is None else self.scale[index])[:, None]
        return out

    def rows_csr(self, index: Index) -> sp.csr_matrix:
        """The rows at `index` as CSR float64, extra columns included."""
        head = sp.csr_matrix(self.matrix[index], dtype=np.float64)
        out = sp.hstack([head, sp.csr_matrix(self.extra[index])], format="csr")
        if self.scale is not None:
            out = sp.diags(self.scale[index]) @ out
        return sp.csr_matrix(out)

    def weighted_gram(self, index: Index | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J`` for the rows J at `index` (None: all), dense (d, d).

        Weights are non-negative. Block by block, so that the data are never copied; each block is
        one symmetric rank-k update.
        """
        roots = np.sqrt(np.asarray(weights, dtype=np.float64))
        if self.scale is not None:
            roots *= np.abs(self.scale if index is None else self.scale[index])
        if index is not None and np.asarray(index).dtype == bool:
            index = np.flatnonzero(index)
        few = self.sparse and self.matrix.nnz < SPARSE_PRODUCTS * self.shape[0] * self.shape[1]
        p, d = self.matrix.shape[1], self.shape[1]
        out = np.zeros((d, d))
        buffer = None if few else np.empty((min(_BLOCK_ROWS, len(roots)), d))
        for start in range(0, len(roots), _BLOCK_ROWS):
            part = slice(start, min(start + _BLOCK_ROWS, len(roots)))
            rows: Any = part if index is None else index[part]
            weight, block = roots[part, None], self.matrix[rows]
            if buffer is None:
                extra = sp.csr_matrix(self.extra[rows])
                scaled = sp.csr_matrix(sp.hstack([block, extra])).multiply(weight).tocsr()
                out += (scaled.T @ scaled).toarray()
                continue
            dense = buffer[: part.stop - start]
            np.multiply(block.toarray() if self.sparse else block, weight, out=dense[:, :p])
            if p < d:
                np.multiply(self.extra[rows], weight, out=dense[:, p:])
            out += dense.T @ dense
        return out

    # -- closed under taking rows and columns -------------------------------------------------

    def take_rows(self, index: Index) -> Rows:
        """The design made of the rows at `index`."""
        scale = None if self.scale is None else self.scale[index]
        return Rows(self.matrix[index], scale, self.extra[index], known=self.sparse)

    def take_columns(self, index: Index) -> Rows:
        """The design made of the coordinates at `index` (in the order of the columns)."""
        mask = np.zeros(self.shape[1], dtype=bool)
        mask[index] = True
        p = self.matrix.shape[1]
        part = self.matrix[:, mask[:p]]
        return Rows(part, self.scale, self.extra[:, mask[p:]], known=self.sparse)

    def column(self, j: int) -> Array:
        """Coordinate `j` of every row, shape (n,)."""
        unit = np.zeros(self.shape[1])
        unit[j] = 1.0
        return self.forward(unit)
