"""The rows of one chunk, what a pass asks of them, and the task that asks it of all chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.chunk_loops import STRIP, loops_for
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chunk:
    """The rows ``scale_i [block_i, 1]`` of one chunk; the 1 where there is an `intercept`."""

    block: Any
    scale: Array | None
    intercept: bool

    @classmethod
    def of(cls, block: Any, scale: Any, intercept: bool) -> Chunk:
        """A chunk whose row factors may be integers, or missing."""
        return cls(
            block, None if scale is None else np.asarray(scale, dtype=np.float64), intercept
        )

    def __len__(self) -> int:
        return int(self.block.shape[0])

    @property
    def width(self) -> int:
        """Columns, the intercept's included."""
        return int(self.block.shape[1]) + self.intercept

    def margins(self, x: Array) -> Array:
        """``<a_i, x>``."""
        p = self.block.shape[1]
        if sp.issparse(self.block):
            out = np.asarray(self.block @ x[:p], dtype=np.float64)
        else:
            out = np.empty(len(self))
            loops_for(self.block).margins(self.block, x[:p], out)
        if self.intercept:
            out += x[p]
        if self.scale is not None:
            out *= self.scale
        return out

    def adjoint(self, theta: Array) -> Array:
        """``sum_i theta_i a_i``."""
        weights = theta if self.scale is None else theta * self.scale
        p = self.block.shape[1]
        out = np.zeros(self.width)
        if sp.issparse(self.block):
            out[:p] = self.block.T @ weights
        else:
            loops_for(self.block).pull(self.block, weights, out[:p])
        if self.intercept:
            out[p] = weights.sum()
        return out

    def squares(self, weights: Array) -> Array:
        """``sum_j weights_j a_ij^2``."""
        p = self.block.shape[1]
        if sp.issparse(self.block):
            out = np.asarray(self.block.astype(np.float64).power(2) @ weights[:p])
        else:
            out = np.empty(len(self))
            loops_for(self.block).squares(self.block, weights[:p], out)
        if self.intercept:
            out += weights[p]
        return out if self.scale is None else out * self.scale**2

    def take(self, rows: Any) -> Chunk:
        """The rows at `rows`, copied."""
        return Chunk(
            self.block[rows], None if self.scale is None else self.scale[rows], self.intercept
        )

    def gram(self, weights: Array) -> Array:
        """``sum_i weights_i a_i a_i'``; rows of weight 0 are not read."""
        total = np.zeros((self.width, self.width))
        for first in range(0, len(self), STRIP):
            used = np.flatnonzero(weights[first : first + STRIP]) + first
            rows = self.take(used).rows().dense()
            total += rows.T @ (rows * weights[used, None])
        return total

    def rows(self) -> Rows:
        """The same rows as an ordinary design."""
        extra = np.ones((len(self), 1)) if self.intercept else None
        return Rows(self.block, self.scale, extra, known=True)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of a source that stay in memory: their indices (increasing), and the rows."""

    index: NDArray[np.intp]
    block: Any


@dataclass(frozen=True)
class Each:
    """The task that calls a function of a chunk and one more column; results in a list or summed.

    `call` is the name of a method of `Chunk`; `fixed` its argument, or None to give it the column.
    """

    call: str
    fixed: Any
    intercept: bool
    summed: bool

    def __call__(self, block: Any, start: int, scale: Any, column: Any) -> Any:
        """The method's result for one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        argument = np.asarray(column, dtype=np.float64) if self.fixed is None else self.fixed
        found = getattr(chunk, self.call)(argument)
        return found if self.summed else [found]

    def merge(self, left: Any, right: Any) -> Any:
        """The sum, or both in order."""
        return left + right
