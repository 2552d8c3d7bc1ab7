"""Dense blocks of a matrix that is otherwise sparse, left where the caller has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.reducer.affine import LARGE, Matrix, Scaled

Array = NDArray[np.float64]
Index = NDArray[np.intp]

DENSE_SHARE = 0.3
"""Blocks with a smaller share of non-zero entries are kept sparse."""

def is_dense(block: Matrix) -> bool:
    """Whether `block` is worth keeping as a dense array; small ones are not, whatever they hold."""
    if isinstance(block, Scaled):
        block = block.matrix
    if not isinstance(block, np.ndarray) or block.size < LARGE:
        return False
    return bool(np.count_nonzero(block) >= DENSE_SHARE * block.size)


@dataclass(frozen=True, eq=False)
class Block:
    """A dense block of the matrix, ``diag(factor) @ matrix``.

    Parameters
    ----------
    rows : array of int, shape (k,)
        Increasing.
    start : int
        First column.
    matrix : array, shape (k, width)
        The caller's own data where possible; never written to.
    factor : array, shape (k,), or None
        None for 1.
    """

    rows: Index
    start: int
    matrix: Array
    factor: Array | None = None

    @property
    def span(self) -> slice:
        """The columns of the block."""
        return slice(self.start, self.start + self.matrix.shape[1])

    @property
    def place(self) -> Any:
        """The rows of the block, as a slice where they are consecutive."""
        return as_slice(self.rows)

    def times(self, z: Array) -> Array:
        """The block times one vector (width,) or several (width, k)."""
        out = self.matrix @ z
        if self.factor is None:
            return np.asarray(out)
        return np.asarray(out * (self.factor if z.ndim == 1 else self.factor[:, None]))

    def weigh(self, weights: Array) -> Array:
        """`weights`, shape (k,), for rows of `matrix` alone."""
        return weights if self.factor is None else weights * self.factor

    def columns(self, index: Index | None = None) -> Array:
        """The columns at `index` (all when omitted), multiplied out."""
        out = self.matrix if index is None else self.matrix[:, index]
        return out if self.factor is None else out * self.factor[:, None]


def as_slice(index: Index) -> Any:
    """`index` as a slice where it is consecutive, so that taking rows copies nothing."""
    if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
