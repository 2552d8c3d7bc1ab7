"""Rows of a matrix, dense or CSR, float32 or float64, through one code path; and by columns.

Row ``i`` is ``a_i = scale_i [x_i, extra_i]``: the label sign of an SVM and the column of ones of an
intercept never force a copy of the data. float32 data are multiplied in double precision (products
of two float32 are exact there), a block of rows at a time.

Designs are made for passes over rows. Bounds on the dual side, and solvers that go through
features, ask for columns: their squares, a CSC matrix, a dense one in column order. Such copies are
made when first asked for and stay with the rows (`Copies`). All are float64, with the factors of
the rows and the further columns in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import CONTRACT, CompileClock, compiled, unsigned
from cvxscreen._support.limits import each, require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import array, stored
from cvxscreen.designs.protocols import Design
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]

SHORT = 64
"""Rows of fewer numbers are turned feature by feature. Measured: 50,000 x 20 0.8 ms that way, 2.0
the other, 5,000 x 256 4.1 and 1.7, the same at 48."""
_BLOCK_ROWS = 1024
"""Rows that are summed at first: sums of n rows are then 1,024 + n / 1,024 deep, and rounded so."""
_COUNTED = 2**16
"""Sparse rows from which on the entries of each column are counted: the columns of fewer are taken
to be full, which charges 7e-12 for rounding at most, as a column of ones does."""
_WIDE_ROWS = 64
"""Rows that are turned to extended precision at a time."""
_SQUARED = 2**17
"""Entries that are squared at a time (1 MB), in whole blocks of rows."""
SHARE = 2**20
"""Entries of one part of a pass, about half a millisecond: ten times what handing it to another
thread costs. What has fewer is one part."""
PER_SUM = 8
"""So many entries at least are added up for each number that a part hands on to be added."""
SPARSE_PRODUCTS, ENTRYWISE = 0.05, 0.2
"""Share of non-zero entries up to which sparse rows are multiplied with each other as such: a
dense product needs the square of its inverse more operations, each some hundred times faster. And
where products of entries are added one by one in compiled code: 5,000 x 40 to 3,000 x 1,000 takes
0.03 to 0.25 of the time of the better of the two at 1 and 3 % filled, 0.1 to 0.45 at 10 %, 0.3 to
0.9 at 20 %."""

PAIR = 2
"""Entries of a row that is no part of the data: of a difference, of a bound, of a move."""
ALONE = 10
"""Rows for each column up to which rows of one entry are looked for before squares are added up:
beside an L1 norm or bounds they are a tenth of them at least."""

CRUDE = 1000.0
"""By how much a row's norm times that of x may exceed ``sum_j |a_ij x_j|`` before the latter is
worked out for every row."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""A product below it may have lost all its digits, but is off by less."""
UNDERFLOWN = 1e-280
"""Sums of squares above it have lost nothing to underflow that rounding would not have taken: a
product loses 5e-324 at most, 2e27 of them a unit roundoff of this."""
FILLED = 0.03
"""Share of the entries of sparse rows from which on compiled passes take them as dense."""


@dataclass(eq=False)
class Copies:
    """The entries of some rows stored in other ways, and None where they are not.

    Handed on to some of the columns; rows that were cut out start with none.
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
    roundings : int
        How often each product ``a_ij x_j`` has been rounded before it is made, in `matrix` or in x;
        bounds of rounding count it (`cvxscreen.designs.shift`).
    absent : int
        So many coordinates at the end that no row has an entry of, such as helpers of constraints:
        no zeros are stored for them, and no pass goes over any.

    Attributes
    ----------
    beside : array, shape (n, k)
        The further columns that are stored: `extra` as it was given.

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
        roundings: int = 0,
        absent: int = 0,
    ) -> None:
        self.roundings = roundings
        self.absent = absent
        self.matrix = matrix if known else stored(matrix, name)
        self.sparse = bool(sp.issparse(self.matrix))
        """Whether the data are stored as CSR."""
        n, p = self.matrix.shape
        self.scale: Array | None = None
        if scale is not None:
            self.scale = array("scale", scale).copy()
            if self.scale.shape != (n,):
                raise InvalidInput(f"`scale` has shape {self.scale.shape}; ({n},) is needed.")
            if not np.isfinite(self.scale).all():
                raise InvalidInput("`scale` holds NaN or infinity.")
        self.beside = np.zeros((n, 0))
        if extra is not None:
            self.beside = array("extra", extra).copy()
            if self.beside.ndim != 2 or len(self.beside) != n:
                raise InvalidInput(f"`extra` has shape {self.beside.shape}; ({n}, k) is needed.")
            if not np.isfinite(self.beside).all():
                raise InvalidInput("`extra` holds NaN or infinity.")
        self.shape: tuple[int, int] = (n, p + self.beside.shape[1] + absent)
        self.copies = Copies()

    @cached_property
    def extra(self) -> Array:
        """All columns beyond those of `matrix`, with zeros for those that no row has."""
        return np.hstack([self.beside, self._no_entries(self.shape[0])]) if self.absent else (
            self.beside
        )

    @property
    def stored(self) -> int:
        """How many coordinates, the first ones, have entries that are stored."""
        return self.shape[1] - self.absent

    def _no_entries(self, rows: int) -> Array:
        """Of so many rows, what they have of the coordinates that none has an entry of."""
        return np.broadcast_to(0.0, (rows, self.absent))

    @property
    def filled(self) -> float:
        """The share of the entries that is stored."""
        size = self.matrix.shape[0] * self.matrix.shape[1]
        return self.matrix.nnz / max(size, 1) if self.sparse else 1.0

    def _parts(self, rows: int | None = None, least: int = 0) -> list[slice]:
        """What each thread takes at a time, of so many `rows` (None: all): whole blocks of them.

        With at least `least` entries. The same however many threads there are.
        """
        n, p = self.matrix.shape
        count, size = n if rows is None else rows, max(SHARE, least)
        width = max(self.matrix.nnz // max(n, 1) if self.sparse else p, 1)
        if count * width <= size:
            return [slice(0, count)]
        step = (size // width // _BLOCK_ROWS + 1) * _BLOCK_ROWS
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    @cached_property
    def _pieces(self) -> list[tuple[slice, Any, Any]]:
        """The parts of the data and of their transpose, in the same memory.

        scipy checks what it makes of sparse rows: not in each pass.
        """
        matrix, pieces = self.matrix, []
        for rows in self._parts(least=PER_SUM * matrix.shape[1] if self.sparse else 0):
            piece = matrix
            if self.sparse and rows.stop - rows.start < matrix.shape[0]:
                pointers = matrix.indptr[rows.start:rows.stop + 1]
                own = slice(pointers[0], pointers[-1])
                entries = matrix.data[own], matrix.indices[own], pointers - pointers[0]
                piece = sp.csr_matrix(entries, (len(pointers) - 1, matrix.shape[1]), copy=False)
            elif not self.sparse:
                piece = matrix[rows]
            pieces.append((rows, piece, piece.T))
        return pieces

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the views in `_pieces`, which would be sent as copies."""
        return {name: value for name, value in vars(self).items() if name != "_pieces"}

    # -- the two passes -----------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """``A x``, shape (n,): one pass over the data."""
        x = np.asarray(x, dtype=np.float64)
        p = self.matrix.shape[1]

        def multiply(piece: tuple[slice, Any, Any]) -> Array:
            rows, matrix, _ = piece
            if self.sparse or matrix.dtype == np.float64:
                out = np.asarray(matrix @ x[:p], dtype=np.float64)
            else:
                out = np.concatenate([block @ x[:p] for block in _doubled(matrix)])
            for j in range(self.beside.shape[1]):  # BLAS takes ten times as long for one column
                out += self.beside[rows, j] * x[p + j]
            if self.scale is not None:
                out *= self.scale[rows]
            return out

        found = each(multiply, self._pieces)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,): one pass over the data, summed block by block."""
        theta = np.asarray(theta, dtype=np.float64)

        def add(piece: tuple[slice, Any, Any]) -> Array:
            rows, matrix, turned = piece
            weights = theta[rows] if self.scale is None else theta[rows] * self.scale[rows]
            if self.sparse:
                head = np.asarray(turned @ weights, dtype=np.float64)
            else:
                head = _summed(matrix, weights)
            if not self.beside.shape[1]:
                return head
            return np.concatenate([head, _summed(self.beside[rows], weights)])

        found = each(add, self._pieces)
        total = found[0] if len(found) == 1 else np.sum(found, axis=0)
        return self._with_absent(total)

    def _with_absent(self, total: Array) -> Array:
        """Sums over the rows, one for each stored coordinate, with 0 for all others."""
        return np.append(total, np.zeros(self.absent)) if self.absent else total

    def both_ways(self, X: Array, take: Callable[[slice, Array], Array]) -> Array:
        """Both products in one pass: ``A x`` of every row of X, and ``A'`` of what is made of it.

        Block by block ``take(rows, margins (K, len(rows)))`` gets the first, which it may change,
        and returns slopes, (J, len(rows)), of which the second is summed: (J, d). As close as
        `forward` and `adjoint` are, by the same factors. Threads may call `take`, each for rows of
        its own.
        """
        p = self.matrix.shape[1]

        def multiply(piece: tuple[slice, Any, Any]) -> Array:
            rows, matrix, turned = piece
            step, total = max(matrix.shape[0], 1) if self.sparse else _BLOCK_ROWS, []
            for start in range(0, matrix.shape[0], step):
                at = slice(rows.start + start, rows.start + min(start + step, matrix.shape[0]))
                if self.sparse:
                    out = np.ascontiguousarray((matrix @ X[:, :p].T).T)
                else:
                    block = matrix[start:start + step].astype(np.float64, copy=False)
                    out = X[:, :p] @ block.T
                for j in range(self.beside.shape[1]):
                    out += X[:, p + j, None] * self.beside[at, j]
                if self.scale is not None:
                    out *= self.scale[at]
                slopes = take(at, out)
                if self.scale is not None:
                    slopes = slopes * self.scale[at]
                head = (turned @ slopes.T).T if self.sparse else slopes @ block
                none = self._no_entries(len(head))
                total.append(np.column_stack([head, slopes @ self.beside[at], none]))
            return np.sum(total, axis=0)

        found = each(multiply, self._pieces)
        return found[0] if len(found) == 1 else np.sum(found, axis=0)

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
        factor += self.roundings * UNIT
        return rounded, 1.01 * factor * size + UNIT * np.abs(rounded)

    def adjoint_precise(self, theta: Array) -> tuple[Array, float]:
        """``A' theta`` in extended precision, and the factor that it is as close by as `adjoint`.

        For columns that balance to rounding. Beside that the result is rounded to double precision.
        """
        wide, n = np.longdouble, self.shape[0]
        weights = np.asarray(theta, dtype=wide)
        weights = weights if self.scale is None else weights * self.scale.astype(wide)
        total: Any = np.zeros(self.stored, dtype=wide)
        for start in range(0, n, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            parts = (self.matrix[rows], self.beside[rows])
            total += np.concatenate([part.astype(wide).T @ weights[rows] for part in parts])
        depth = min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 5
        factor = depth * float(np.finfo(wide).eps) + self.roundings * UNIT
        return self._with_absent(np.asarray(total, dtype=np.float64)), 1.01 * factor

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
            extra = self.beside[rows[part]].astype(np.longdouble)
            total[part] += extra @ x[p:self.stored]
            size[part] += np.abs(extra) @ np.abs(x[p:self.stored])
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
        return gamma(terms + self.beside.shape[1] + 4 + self.roundings)

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (n,); `sizes` are ``||a_i||``.

        Zeros of x are added without rounding. By Cauchy and Schwarz; entry by entry, in a pass,
        where a few rows say that this is far too much: beside features far from 0 an intercept is
        as large as these, and meets ones.
        """
        x = np.abs(np.asarray(x, dtype=np.float64))
        factor = self._factor_at(x)
        error = float(np.linalg.norm(x)) * sizes
        n, p = self.matrix.shape

        few = slice(None, None, max(n // 4, 1))
        if n and CRUDE * self._few_products(few, x) < error[few].max():
            for start in range(0, n, _BLOCK_ROWS):
                rows = slice(start, start + _BLOCK_ROWS)
                head, extra = abs(self.matrix[rows]).astype(np.float64), np.abs(self.beside[rows])
                sizes = head @ x[:p] + extra @ x[p:self.stored]
                sizes += SMALLEST * len(x)  # some may have underflown
                if self.scale is not None:
                    sizes *= np.abs(self.scale[rows])
                error[rows] = np.minimum(error[rows], sizes)
        return factor * error

    def _factor_at(self, x: Array) -> float:
        """`forward_factor`, less where x has many zeros."""
        return min(self.forward_factor, gamma(int(np.count_nonzero(x)) + 4 + self.roundings))

    def largest_forward_error(self, x: Array, sizes: Array) -> Array:
        """`forward_error` by Cauchy and Schwarz alone: no less than that, and without a look."""
        return self._factor_at(x) * float(np.linalg.norm(x)) * sizes

    def _few_products(self, few: slice, x: Array) -> float:
        """The largest ``sum_j |a_ij x_j|`` of a few rows; SciPy takes longer to cut one out."""
        matrix, largest = self.matrix, 0.0
        for i in range(*few.indices(matrix.shape[0])):
            if self.sparse:
                own = slice(matrix.indptr[i], matrix.indptr[i + 1])
                head, at = matrix.data[own], x[matrix.indices[own]]
            else:
                head, at = matrix[i], x[: matrix.shape[1]]
            extra = np.abs(self.beside[i]) @ x[matrix.shape[1]:self.stored]
            size = float(np.abs(head) @ at + extra)
            largest = max(largest, size if self.scale is None else size * abs(self.scale[i]))
        return largest

    @cached_property
    def adjoint_factor(self) -> float:
        """``|computed - exact| <= adjoint_factor * sum_i |a_ij theta_i|`` in every column."""
        n = self.shape[0]
        if self.sparse and n <= _COUNTED:
            depth = n + 1
        elif self.sparse:
            column = np.bincount(self.matrix.indices, minlength=1).max(initial=0)
            depth = max(int(column), min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 1)
        else:
            depth = min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 1
        return gamma(depth + 4 + self.roundings)

    @cached_property
    def entries_norm(self) -> float:
        """The norm of all entries, roughly; known without a look at single rows."""
        entries = self.matrix.data if self.sparse else self.matrix.ravel(order="K")
        scale = 1.0 if self.scale is None else float(np.abs(self.scale).max(initial=0.0))
        with np.errstate(over="ignore"):
            total = float(np.linalg.norm(entries)) + float(np.linalg.norm(self.beside))
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
            if not (weights[:p] == 1.0).all():
                entries *= weights[self.matrix.indices]
            pointers = self.matrix.indptr
            used = np.flatnonzero(pointers[1:] > pointers[:-1])
            out = np.zeros(self.matrix.shape[0])
            out[used] = np.add.reduceat(entries, pointers[used]) if len(used) else 0.0
        else:
            even = bool((weights[:p] == 1.0).all())  # numpy sums two factors twice as fast as three
            form, factors = ("ij,ij->i", ()) if even else ("ij,ij,j->i", (weights[:p],))
            found = each(
                lambda piece: [
                    np.einsum(form, block, block, *factors) for block in _in_double(piece[1])
                ], self._pieces,
            )
            blocks = [block for part in found for block in part]
            out = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        if self.beside.shape[1]:
            out = out + self.beside**2 @ weights[p:self.stored]
        if self.scale is not None:  # not its square, which underflows where entries are large
            out = out * self.scale * self.scale
        return self.above_underflow(out, weights)

    def above_underflow(self, squares: Array, weights: Array) -> Array:
        """`squares` of `weighted_squares`, with what underflow may have taken off added.

        Entries below 1e-154 have squares that are 0 or have lost their digits; a region would take
        their rows for shorter than they are. Rows of zeros stay 0.
        """
        if squares.min(initial=np.inf) >= UNDERFLOWN * largest_factor(weights, self.scale):
            return squares
        factors = factors_of(weights, self.scale)
        few = np.flatnonzero(squares < UNDERFLOWN * factors)
        if not few.size:
            return squares
        p, some = self.matrix.shape[1], np.asarray(weights) > 0.0
        filled = np.asarray((self.matrix[few] != 0) @ some[:p]).ravel() > 0
        filled |= (self.beside[few] != 0) @ some[p:self.stored]
        lost = SMALLEST * (1.0 + self.shape[1]) * np.broadcast_to(factors, squares.shape)[few]
        out = squares.copy()
        out[few] += np.where(filled, lost, 0.0)
        return out

    def dense(self, index: Index | slice | None = None, out: Array | None = None) -> Array:
        """The rows at `index` (all when omitted) as a dense float64 array, in `out` if given."""
        block = self.matrix if index is None else self.matrix[index]
        n, d = block.shape[0], self.shape[1]
        require(
            8 * n * d, f"a dense copy of {n:,} x {d:,} entries",
            "keep the data sparse, or use fewer features",
        )
        head = block.toarray() if self.sparse else block
        extra = self.beside if index is None else self.beside[index]
        scale = None if self.scale is None else self.scale if index is None else self.scale[index]
        out, p = np.empty((n, d)) if out is None else out, head.shape[1]
        # NumPy's inner loop is the last axis where strides disagree: the longer one, then.
        along = out.strides[0] < out.strides[1] and d < SHORT
        out[:, self.stored:] = 0.0
        for part, into in ((head, out[:, :p]), (extra, out[:, p:self.stored])):
            if scale is None:
                into[:] = part
            elif part.shape[1] and along:
                np.multiply(part.T, scale, out=into.T)
            elif part.shape[1]:
                np.multiply(part, scale[:, None], out=into)
        return out

    @cached_property
    def light(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows with at most `PAIR` entries that are not 0, and how many these have; kept."""
        matrix = self.matrix
        if self.sparse:
            index = np.flatnonzero(np.diff(matrix.indptr) <= PAIR)
            counts = np.diff(matrix.indptr)[index]
        else:  # such a row has a zero among the first columns, if there are more, few others have
            first = matrix[:, :PAIR + 1].T
            zero = np.equal(first, 0, order="C").any(axis=0)  # along the rows: a third of the time
            index = np.flatnonzero(zero | (len(first) <= PAIR))
            counts = np.count_nonzero(matrix[index], axis=1)
        counts = counts + np.count_nonzero(self.beside[index], axis=1)
        few = counts <= PAIR
        return index[few], counts[few]

    def rows_csr(self, index: Index) -> sp.csr_matrix:
        """The rows at `index` as CSR float64, extra columns included."""
        head = sp.csr_matrix(self.matrix[index], dtype=np.float64)
        none = sp.csr_matrix((head.shape[0], self.absent))
        out = sp.hstack([head, sp.csr_matrix(self.beside[index]), none], format="csr")
        if self.scale is not None:
            out = sp.diags(self.scale[index]) @ out
        return sp.csr_matrix(out)

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """The rows of a single entry other than 0, the columns of these, and their values."""
        rows, counts = self.light
        rows = rows[counts <= 1]
        rows = rows[~self.beside[rows].any(axis=1)]
        part = sp.coo_array(self.matrix[rows])
        rows, values = rows[part.row], part.data.astype(np.float64)
        factors = values if self.scale is None else values * self.scale[rows]
        used = factors != 0.0
        return rows[used], part.col[used].astype(np.intp), factors[used]

    def weighted_gram(self, index: Index | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J`` for the rows J at `index` (None: all), dense (d, d).

        Weights are non-negative. Block by block, so that the data are never copied; each block is
        one symmetric rank-k update. Rows of one entry, as of an L1 norm or bounds, are added to the
        diagonal where they may be many.
        """
        if self.sparse and self.filled < ENTRYWISE:
            looked_for = self.matrix.nnz < PAIR * self.shape[0]  # half of them have one, or none
        else:
            looked_for = self.shape[0] <= ALONE * self.shape[1]
        if index is None and looked_for:
            alone, columns, factors = self.single
            if len(alone):
                weights = np.asarray(weights, dtype=np.float64)
                others = np.ones(self.shape[0], dtype=bool)
                others[alone] = False
                out = self.weighted_gram(others, weights[others])
                np.add.at(out, (columns, columns), weights[alone] * factors * factors)
                return out
        roots = np.sqrt(np.asarray(weights, dtype=np.float64))
        if self.scale is not None:
            roots *= np.abs(self.scale if index is None else self.scale[index])
        if index is not None and np.asarray(index).dtype == bool:
            index = np.flatnonzero(index)
        filled = self.filled if self.sparse else 1.0
        p, d = self.matrix.shape[1], self.stored
        compiled_sum = filled < ENTRYWISE and GRAMS.loaded_or_due

        def entry_by_entry(rows: slice) -> Array:
            head, out = np.zeros((p, p)), np.empty((d, d))
            chosen: Any = rows if index is None else np.asarray(index, dtype=np.int64)[rows]
            numbers = np.arange(rows.start, rows.stop) if index is None else chosen
            start, indices = unsigned(self.matrix.indptr, self.matrix.indices)
            weight = roots[rows] ** 2
            add_outer_products(numbers, weight, start, start[1:], indices, self.matrix.data, head)
            out[:p, :p] = head + head.T
            if p < d:
                extra = self.beside[chosen]
                out[:p, p:] = self.matrix[chosen].T @ (weight[:, None] * extra)
                out[p:, :p], out[p:, p:] = out[:p, p:].T, extra.T @ (weight[:, None] * extra)
            return out

        def by_products(rows: slice) -> Array:
            out = np.zeros((d, d))
            few = filled < SPARSE_PRODUCTS
            buffer = None if few else np.empty((min(_BLOCK_ROWS, rows.stop - rows.start), d))
            for start in range(rows.start, rows.stop, _BLOCK_ROWS):
                part = slice(start, min(start + _BLOCK_ROWS, rows.stop))
                chosen: Any = part if index is None else index[part]
                weight, block = roots[part, None], self.matrix[chosen]
                if buffer is None:
                    extra = sp.csr_matrix(self.beside[chosen])
                    scaled = sp.csr_matrix(sp.hstack([block, extra])).multiply(weight).tocsr()
                    out += (scaled.T @ scaled).toarray()
                    continue
                dense = buffer[: part.stop - start]
                np.multiply(block.toarray() if self.sparse else block, weight, out=dense[:, :p])
                if p < d:
                    np.multiply(self.beside[chosen], weight, out=dense[:, p:])
                out += dense.T @ dense
            return out

        rented = filled < ENTRYWISE and not compiled_sum
        with GRAMS.rent() if rented else nullcontext():
            gram = entry_by_entry if compiled_sum else by_products
            found = each(gram, self._parts(len(roots), least=PER_SUM * d * d))
        total = found[0] if len(found) == 1 else np.sum(found, axis=0)
        return np.pad(total, (0, self.absent)) if self.absent else total

    # -- closed under taking rows and columns -------------------------------------------------

    def take_rows(self, index: Index) -> Rows:
        """The design made of the rows at `index`."""
        scale = None if self.scale is None else self.scale[index]
        return Rows(
            self.matrix[index], scale, self.beside[index], known=self.sparse,
            roundings=self.roundings, absent=self.absent,
        )

    def take_columns(self, index: Index) -> Rows:
        """The design made of the coordinates at `index` (in the order of the columns)."""
        mask = np.zeros(self.shape[1], dtype=bool)
        mask[index] = True
        p = self.matrix.shape[1]
        part = self.matrix[:, mask[:p]]
        extra, absent = self.beside[:, mask[p:self.stored]], int(mask[self.stored:].sum())
        return Rows(
            part, self.scale, extra, known=self.sparse, roundings=self.roundings, absent=absent
        )

    def used_columns(self) -> NDArray[np.bool_]:
        """Mask of the coordinates that any row has an entry of, shape (d,): one pass."""
        if self.sparse:
            used = np.bincount(self.matrix.indices, minlength=self.matrix.shape[1]) > 0
        else:
            used = self.matrix.any(axis=0)
        none = np.zeros(self.absent, dtype=bool)
        return np.concatenate([used, (self.beside != 0).any(axis=0), none])

    def column(self, j: int) -> Array:
        """Coordinate `j` of every row, shape (n,)."""
        p = self.matrix.shape[1]
        if j >= self.stored:
            return np.zeros(self.shape[0])
        if j >= p:
            found = self.beside[:, j - p].astype(np.float64)
        elif self.sparse:
            found = self.matrix[:, [j]].toarray()[:, 0].astype(np.float64)
        else:
            found = self.matrix[:, j].astype(np.float64)
        return found if self.scale is None else found * self.scale


@compiled(fastmath=CONTRACT, allocates=False)
def add_outer_products(rows, weights, start, stop, indices, data, out):  # type: ignore[no-untyped-def]
    """Add half of ``sum_k weights_k a_i a_i'``, i = rows_k, to `out`: with its transpose it is all.

    The lower half where columns rise within a row. The rows are sparse, or the columns of a CSC
    matrix; `stop` may be longer than it need be.
    """
    for k in range(rows.size):
        first = start[rows[k]]
        for p in range(first, stop[rows[k]]):
            j, value = indices[p], weights[k] * data[p]
            for q in range(first, p):
                out[j, indices[q]] += value * data[q]
            out[j, j] += 0.5 * value * data[p]


GRAMS = CompileClock(1.0, add_outer_products)
"""Of `add_outer_products`, against products of matrices. Measured on a fresh cache: 0.6 to 1.2."""


def largest_factor(weights: Array, scale: Array | None) -> float:
    """The largest of `factors_of`."""
    size = 1.0 + float(weights.max(initial=0.0))
    if scale is None or not len(scale):
        return size
    longest = max(1.0, float(scale.max()), -float(scale.min()))
    return size * longest * longest


def factors_of(weights: Array, scale: Array | None) -> float | Array:
    """What squares of entries are multiplied by at most, 1 or more, a number or one a row."""
    size = 1.0 + float(weights.max(initial=0.0))
    if scale is None:
        return size
    with np.errstate(over="ignore"):  # infinite factors: rows of unknown length, which is safe
        return size * np.maximum(scale**2, 1.0)


def _in_double(matrix: Array) -> Iterable[Array]:
    """Dense rows in double precision: all at once where they are, else block by block."""
    return [matrix] if matrix.dtype == np.float64 else _doubled(matrix)


def _doubled(matrix: Array) -> Iterator[Array]:
    """Blocks of dense rows in double precision, one at a time."""
    for start in range(0, max(len(matrix), 1), _BLOCK_ROWS):
        yield matrix[start:start + _BLOCK_ROWS].astype(np.float64, copy=False)


def _summed(matrix: Array, weights: Array) -> Array:
    """``matrix' weights`` in double precision, block of rows by block of rows, shape (columns,).

    Whole blocks in a single call of NumPy: threads that come back between them wait for each other.
    """
    n, p = matrix.shape
    if n <= _BLOCK_ROWS:
        return np.asarray(matrix.astype(np.float64, copy=False).T @ weights)
    if matrix.dtype != np.float64:
        parts = [slice(start, start + _BLOCK_ROWS) for start in range(0, n, _BLOCK_ROWS)]
        return np.sum([_summed(matrix[part], weights[part]) for part in parts], axis=0)
    whole = n // _BLOCK_ROWS
    cut = whole * _BLOCK_ROWS
    sums = np.matmul(weights[:cut].reshape(whole, 1, _BLOCK_ROWS),
                     matrix[:cut].reshape(whole, _BLOCK_ROWS, p)).sum(axis=(0, 1))
    return sums if cut == n else sums + matrix[cut:].T @ weights[cut:]


# -- the same design by its columns ----------------------------------------------------------------


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
        copies.squares = _with_factors(design.matrix, _factors(design))
        copies.squares.data = copies.squares.data**2
    return copies.squares


def row_squares(design: Design, weights: Array) -> Array:
    """``sum_j weights_j a_ij^2``, shape (n,); a product with the squares where rows are sparse."""
    if not isinstance(design, Rows) or not design.sparse:
        return design.weighted_squares(weights)
    if design.shape[1] > design.matrix.shape[1]:
        return design.weighted_squares(weights)
    return design.above_underflow(np.asarray(_squares(design) @ weights), weights)


def column_squares(design: Design, weights: ArrayLike) -> Array:
    """``sum_i weights_i a_ij^2``, shape (d,)."""
    w = np.asarray(weights, dtype=np.float64)
    if isinstance(design, Rows):
        scale = _factors(design)
        extra = design.beside if scale is None else scale[:, None] * design.beside
        head = _squares(design).T @ w if design.sparse else _dense_squares(design.matrix, scale, w)
        total = np.concatenate([head, w @ extra**2, np.zeros(design.absent)])
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
    factors = largest_factor(weights, design.scale)
    few = np.flatnonzero(squares[:design.stored] < UNDERFLOWN * factors)
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
    filled = np.concatenate([filled, (design.beside[:, tail] != 0)[used].any(axis=0)])
    out = squares.copy()
    out[few] += np.where(filled, SMALLEST * (1.0 + len(weights)) * factors, 0.0)
    return out


def _factors(design: Rows) -> Array | None:
    """The factors of the rows where squares notice them.

    They are multiplied by before anything is squared: their own squares may underflow.
    """
    plain = design.scale is None or bool((np.abs(design.scale) == 1.0).all())
    return None if plain else design.scale


def _with_factors(matrix: sp.csr_matrix, scale: Array | None) -> sp.csr_matrix:
    """Sparse rows times their factors, in double precision."""
    data = matrix.data.astype(np.float64, copy=False)
    if scale is not None:
        data = data * np.repeat(scale, np.diff(matrix.indptr))
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _dense_squares(matrix: Array, scale: Array | None, weights: Array) -> Array:
    """``sum_i weights_i (scale_i x_ij)^2``, in double precision."""
    total = np.zeros(matrix.shape[1])
    step = max(_SQUARED // max(matrix.shape[1], 1) // _BLOCK_ROWS, 1) * _BLOCK_ROWS
    for start in range(0, len(matrix), step):
        rows = slice(start, start + step)
        block = matrix[rows] if scale is None else scale[rows, None] * matrix[rows]
        total += _summed(np.square(block, dtype=np.float64), weights[rows])
    return total


def entries(design: Design) -> int:
    """How many numbers a pass over the design multiplies."""
    n, d = design.shape
    if not isinstance(design, Rows):
        return int(n * d)
    return int(design.matrix.nnz + design.beside.size if design.sparse else n * design.stored)


def column_counts(design: Rows) -> NDArray[np.intp]:
    """Entries of each column of sparse rows, shape (d,); kept."""
    copies = design.copies
    if copies.column_counts is None:
        n, p = design.matrix.shape
        counts = np.bincount(design.matrix.indices, minlength=p)
        extra = np.full(design.beside.shape[1], n)
        copies.column_counts = np.concatenate([counts, extra, np.zeros(design.absent, dtype=int)])
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
    matrix = _with_factors(design.matrix, design.scale)
    if design.shape[1] > matrix.shape[1]:
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
        np.multiply(design.beside, scale, out=found[:, p:design.stored])
        found[:, design.stored:] = 0.0
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
