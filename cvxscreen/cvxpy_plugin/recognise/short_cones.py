"""Second-order cones of many rows over few columns, with as many rows as there are columns.

::

    |A z + b| = |Q'(A z + b)|,      [A, b] = Q R,  Q with orthonormal columns

What an expression of the user's says of few variables is shortened before anything is canonicalised
(`triangular`). What does so only once definitions are substituted, the norm of ``e`` with
``e == y - X @ w``, and data that a parameter holds, are shortened here: the short rows ``Q'`` are a
combination of the long ones, as every row of the rules is, and ``Q u`` is the way back for their
multipliers u. Q is Householder's, orthonormal to a few units of rounding however nearly the columns
depend on each other (Higham, "Accuracy and stability of numerical algorithms", 2002, section 19.3).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.recognise.draft import Draft, substitute_defined, without_columns
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.triangular import AGREEMENT, BLOCK, TALL

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MOST_FILLED = 2**24
"""Entries of sparse rows, written out, up to which they are shortened: 128 MB."""


class ShortCone(Immutable):
    """A cone's head and the combinations of its other rows that are as long as these.

    Attributes
    ----------
    head : int
        Row of the cone's head; the others follow it.
    size : int
        Number of its rows, head included.
    weights : CSR array, shape (k, m)
        ``Q'``.
    rows : Stack, shape (k, N)
        What these combinations are, without defined columns: the triangle.
    """

    head: int
    size: int
    weights: Any
    rows: Stack

    @property
    def text(self) -> str:
        """What has been replaced by what, for records."""
        return f"the norm of {self.size - 1:,} residuals as of {self.rows.shape[0]}"

    def agrees(self, values: Array) -> bool:
        """Whether all rows of the cone, at their `values`, are as long as their combinations."""
        tail = values[self.head + 1 : self.head + self.size]
        long, short = np.linalg.norm(tail), np.linalg.norm(self.weights @ values)
        fixed = np.linalg.norm(self.rows.offset)
        return bool(abs(long - short) <= AGREEMENT * (max(long, short) + fixed))


def shorten_cones(draft: Draft) -> tuple[ShortCone, ...]:
    """The open cones of `draft` that can be shortened."""
    places = [
        cone.rows for cone in draft.standard.cones
        if cone.kind == "soc" and cone.size > 2 * TALL and not draft.used_rows[cone.rows.start]
    ]
    if not places:
        return ()
    tails = np.concatenate([np.arange(place.start + 1, place.stop) for place in places])
    settled = substitute_defined(draft, draft.current_rows[tails])
    sizes = np.array([place.stop - place.start - 1 for place in places])
    ends = np.cumsum(sizes)
    long = np.flatnonzero(sizes > TALL * (_fewest_columns(draft, settled, sizes) + 1))
    found = (
        _shorter(draft, places[at], settled[ends[at] - sizes[at] : ends[at]]) for at in long
    )
    return tuple(short for short in found if short is not None)


def _fewest_columns(draft: Draft, settled: Any, sizes: Index) -> Index:
    """Columns that each cone occurs in at least: those outside dense blocks, shape (k,).

    Of thousands of short cones, each distance from a point, none is then looked at by itself.

    Parameters
    ----------
    settled : CSR array, shape (m, rows)
        The rows of all cones without their heads, without defined columns.
    sizes : array of int, shape (k,)
        How many of them are each cone's.
    """
    if len(sizes) == 1:  # which is looked at anyway
        return np.zeros(1, dtype=np.intp)
    entries = sp.coo_array(settled @ draft.standard.rows.sparse)
    held = (entries.data != 0) & ~draft.eliminated[entries.col]
    cone = np.repeat(np.arange(len(sizes)), sizes)[entries.row[held]]
    columns = draft.standard.size
    met = np.unique(cone.astype(np.int64) * columns + entries.col[held])
    return np.bincount(met // columns, minlength=len(sizes))


def _shorter(draft: Draft, place: slice, settled: Any) -> ShortCone | None:
    tail = np.arange(place.start + 1, place.stop)
    rows = without_columns(draft.standard.rows.combine(settled), draft.eliminated)
    index = np.flatnonzero(rows.touched())
    n, k = len(tail), len(index) + 1
    if n <= TALL * k:
        return None
    matrix: Any = rows.columns(index)
    if sp.issparse(matrix):
        if n * k > MOST_FILLED:
            return None
        matrix = matrix.toarray()
    columns, triangle = factors(np.column_stack([matrix, rows.offset]))
    if not np.isfinite(triangle).all():
        return None
    # The rows as they stand: the bound of a sum of squares may be in place of its column.
    weights = sp.csr_array(sp.csr_array(columns.T) @ draft.current_rows[tail])
    linear = sp.coo_array(triangle[:, :-1])
    entries = linear.data, (linear.row, index[linear.col])
    sparse = sp.csr_array(entries, shape=(k, rows.shape[1]))
    short = Stack(sparse, (), triangle[:, -1].copy())
    return ShortCone(place.start, place.stop - place.start, weights, short)


def factors(matrix: Array) -> tuple[Array, Array]:
    """Q and R of ``matrix = Q R``, some rows after the others, shapes (n, k) and (k, k).

    Parameters
    ----------
    matrix : array, shape (n, k)
        Of at least k rows.
    """
    parts = [np.linalg.qr(matrix[first : first + BLOCK]) for first in range(0, len(matrix), BLOCK)]
    if len(parts) == 1:
        return parts[0].Q, parts[0].R
    outer, triangle = np.linalg.qr(np.vstack([part.R for part in parts]))
    columns, first = [], 0
    for part in parts:
        last = first + len(part.R)
        columns.append(part.Q @ outer[first:last])
        first = last
    return np.concatenate(columns), triangle


def with_short_cones(
    side: Any, held: Stack, short: tuple[ShortCone, ...]
) -> tuple[Any, Stack]:
    """Side constraints whose last rows are the heads of short cones, with the rows of these.

    Parameters
    ----------
    side : CSR array, shape (k, m)
        As combinations of rows.
    held : Stack, shape (k, N)
        What these are, without defined columns.
    short : tuple of ShortCone
        In the order of their heads.

    Returns
    -------
    CSR array, shape (k + l, m)
    Stack, shape (k + l, N)
    """
    k, sizes = side.shape[0], [one.rows.shape[0] for one in short]
    ends = k + np.cumsum([0, *sizes])
    order = [np.arange(k - len(short))]
    for at, (first, last) in enumerate(pairwise(ends)):
        order += [np.array([k - len(short) + at]), np.arange(first, last)]
    index = np.concatenate(order)
    pick = sp.csr_array((np.ones(len(index)), index, np.arange(len(index) + 1)))
    parts = [one.rows for one in short]
    whole = Stack(
        sp.csr_array(sp.vstack([held.sparse, *(part.sparse for part in parts)])),
        held.blocks,
        np.concatenate([held.offset, *(part.offset for part in parts)]),
    )
    combined = sp.vstack([side, *(one.weights for one in short)], format="csr")
    return sp.csr_array(combined[index]), whole.combine(pick)
