"""The residuals of norms as blocks, apart from the bounds that only they have.

Mostly ``A_i`` of ``|A_i x + b_i| <= a_i t_i`` has few columns or shares them with many others, so
that Gram matrices of all of them are dense ones of blocks that are alike (`Blocks`). What side
constraints hold beside them is told apart once (`NormFrame`), whatever the norms cost.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from cvxscreen.core.cones import ResidualNorms, SideConstraints

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FILLED = 0.2
"""Share of their columns that blocks side by side have to fill."""


class Group(NamedTuple):
    """Blocks of one size over the same few columns.

    Attributes
    ----------
    at : array of int, shape (n, k)
        Their rows among those of all blocks.
    columns : tuple of arrays of int
        Which columns the first, the second, ... row of a block has.
    parts : tuple of arrays, shape (n, d_a)
        The entries of these.
    """

    at: Index
    columns: tuple[Index, ...]
    parts: tuple[Array, ...]

    def add_gram(self, diagonal: Array, along: Array | None, out: Array) -> None:
        """Add ``A' (diag(diagonal) - along along') A``, block by block, to `out` in place.

        Both of shape (n, k); no `along` for 0.
        """
        touched = np.unique(np.concatenate(self.columns))
        place = np.searchsorted(touched, np.arange(out.shape[0]))
        own = np.zeros((len(touched), len(touched)))
        for a, (columns, part) in enumerate(zip(self.columns, self.parts, strict=True)):
            here = place[columns]
            own[np.ix_(here, here)] += (part.T * diagonal[:, a]) @ part
        if along is not None:
            crossed = np.zeros((len(self.at), len(touched)))
            for a, (columns, part) in enumerate(zip(self.columns, self.parts, strict=True)):
                crossed[:, place[columns]] += along[:, a, None] * part
            own -= crossed.T @ crossed
        out[np.ix_(touched, touched)] += own


class Blocks(NamedTuple):
    """``A_i`` of all norms, one below the other.

    Attributes
    ----------
    matrix : CSR matrix, shape (m, d)
        With a row of zeros for the head of each.
    groups : tuple of Group or None
        None where some block is sparse.
    """

    matrix: Any
    groups: tuple[Group, ...] | None

    @classmethod
    def of(cls, matrix: Any, sizes: Index) -> Blocks:
        """The blocks of cones of these sizes, heads included."""
        matrix = sp.csr_matrix(matrix)
        matrix.sort_indices()
        starts = np.cumsum(sizes) - sizes
        runs = _runs(matrix)
        label = _sharing_columns(matrix, starts, runs) * (int(sizes.max()) + 1) + sizes
        groups: list[Group] = []
        for value in np.unique(label):
            mine = np.flatnonzero(label == value)
            at = starts[mine][:, None] + 1 + np.arange(sizes[mine[0]] - 1)
            columns, parts = [], []
            for rows in at.T:
                found = _dense(matrix, rows, runs)
                if found is None:
                    return cls(matrix, None)
                columns.append(found[0])
                parts.append(found[1])
            groups.append(Group(at, tuple(columns), tuple(parts)))
        return cls(matrix, tuple(groups))

    def gram(self, diagonal: Array, along: Array | None = None) -> Array:
        """``A' (diag(diagonal) - along along') A``, block by block; both of shape (m,).

        No `along` where some block is sparse.
        """
        if self.groups is None:
            return np.asarray((self.matrix.T @ sp.diags(diagonal) @ self.matrix).toarray())
        out = np.zeros((self.matrix.shape[1],) * 2)
        for group in self.groups:
            group.add_gram(diagonal[group.at], None if along is None else along[group.at], out)
        return out


class _Runs(NamedTuple):
    """The first column of each row, how many it has, and whether they lie side by side."""

    first: Index
    counts: Index
    solid: Mask


def _runs(matrix: Any) -> _Runs:
    """Those of a CSR matrix with its columns in order."""
    counts = np.diff(matrix.indptr).astype(np.intp)
    last = max(matrix.nnz - 1, 0)
    first = np.zeros(len(counts), dtype=np.intp)
    solid = counts == 0
    if matrix.nnz:
        first = matrix.indices[np.minimum(matrix.indptr[:-1], last)].astype(np.intp)
        end = matrix.indices[np.maximum(matrix.indptr[1:] - 1, 0)]
        solid |= end - first + 1 == counts
    return _Runs(first, counts, solid)


def _dense(matrix: Any, rows: Index, runs: _Runs) -> tuple[Index, Array] | None:
    """The columns that some rows have, and their entries; None where these fill few of them."""
    first, counts, solid = runs
    begin, width = first[rows], counts[rows]
    if solid[rows].all() and (width == width[0]).all() and (begin == begin[0]).all():
        entry = matrix.indptr[rows][:, None] + np.arange(width[0])
        return begin[0] + np.arange(width[0]), matrix.data[entry]
    part = matrix[rows]
    used = np.flatnonzero(np.bincount(part.indices, minlength=matrix.shape[1]))
    if len(rows) * len(used) > part.nnz / FILLED:
        return None
    place = np.zeros(matrix.shape[1], dtype=np.intp)
    place[used] = np.arange(len(used))
    dense = np.zeros((len(rows), len(used)))
    row = np.repeat(np.arange(len(rows)), np.diff(part.indptr))
    dense[row, place[part.indices]] = part.data
    return used, dense


def _sharing_columns(matrix: Any, starts: Index, runs: _Runs) -> Index:
    """A label for each block, from these rows on, the same where they share columns, however far.

    Of the facilities of a location problem each has its own.
    """
    m, d = matrix.shape
    first, counts, solid = runs
    first = np.where(counts > 0, first, d)
    of_block = np.minimum.reduceat(first, starts)
    owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, m)))
    graph = np.zeros((d + 1, d + 1), dtype=bool)
    filled = counts > 0
    graph[of_block[owner[filled]], first[filled]] = True
    whole = filled & solid
    for pair in np.unique(first[whole] * (d + 1) + counts[whole]):
        begin, count = divmod(int(pair), d + 1)
        graph[begin, begin : begin + count] = True
    odd = np.flatnonzero(filled & ~solid)
    if len(odd):
        graph[np.repeat(first[odd], counts[odd]), matrix[odd].indices] = True
    labels = connected_components(sp.csr_matrix(graph), directed=False)[1]
    return np.asarray(labels[of_block], dtype=np.intp)


class NormFrame(NamedTuple):
    """Side constraints with norms of residuals, told apart.

    Attributes
    ----------
    found : ResidualNorms
    others : array of int, shape (d',)
        The coordinates that are no bounds of theirs.
    rows, kept : arrays of int
        The rows of the norms, and those of all other constraints.
    offset : array, shape (m,)
        Of the rows of the norms.
    blocks : Blocks
    rest : SideConstraints or None
        The other constraints, on `others`.
    """

    found: ResidualNorms
    others: Index
    rows: Index
    kept: Index
    offset: Array
    blocks: Blocks
    rest: SideConstraints | None


_FRAMES: weakref.WeakKeyDictionary[SideConstraints, NormFrame | None] = (
    weakref.WeakKeyDictionary()
)
"""Constraints never change; costs do."""


def norm_frame(side: SideConstraints | None) -> NormFrame | None:
    """The norms of residuals in `side` apart; None where all coordinates are bounds, or none is."""
    if side is None:
        return None
    if side not in _FRAMES:
        _FRAMES[side] = _frame(side)
    return _FRAMES[side]


def _frame(side: SideConstraints) -> NormFrame | None:
    found = side.residual_norms
    bounds = np.zeros(side.matrix.shape[1], dtype=bool)
    bounds[found.heads] = True
    others = np.flatnonzero(~bounds)
    if not (len(found.heads) and len(others)):
        return None
    mine = np.repeat(found.cones, side.heights)
    rows, kept = np.flatnonzero(mine), np.flatnonzero(~mine)
    blocks = Blocks.of(_without_columns(side.matrix, bounds, rows), found.sizes)
    rest = None
    if len(kept):
        left, _ = side.take(~found.cones)
        rest = SideConstraints(left.matrix[:, others], left.offset, left.dims)
    return NormFrame(found, others, rows, kept, side.offset[rows], blocks, rest)


def _without_columns(matrix: Any, gone: Mask, rows: Index) -> Any:
    """Some rows of a CSR matrix without the columns that are `gone`."""
    part = matrix if len(rows) == matrix.shape[0] else matrix[rows]
    place = np.cumsum(~gone) - 1
    stays = ~gone[part.indices]
    ends = np.append(0, np.cumsum(stays))[part.indptr]
    columns = place[part.indices[stays]]
    shape = (len(rows), int((~gone).sum()))
    return sp.csr_matrix((part.data[stays], columns, ends), shape=shape)
