"""Dual points of a path in little memory: most slopes are 0 or an end of their box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Losses

Array = NDArray[np.float64]

ZERO, LOW, HIGH, OTHER = 0, 1, 2, 3
"""What a code says: slope 0, ``lo``, ``hi``, or the next number of the pool."""


def unpack(
    n: int, codes: Any, pool: Any, first: Any, lo: Any, hi: Any, factor: float, out: Any
) -> Any:
    """Write one dual point to `out`; its own numbers begin at ``pool[first]``. Returns their end.

    Plain loops: the certificate compiles this very function.
    """
    for i in range(n):
        code = codes[i]
        out[i] = (lo[i] if code == 1 else hi[i] if code == 2 else 0.0) * factor
    p = first
    for i in range(n):
        if codes[i] == 3:
            out[i] = pool[p]
            p += 1
    return p


@dataclass(frozen=True, eq=False)
class PackedSlopes:
    """K dual points of one table of losses, at K multiples of it.

    Attributes
    ----------
    lo, hi : array, shape (n,)
        The boxes at factor 1.
    factors : array, shape (K,)
    codes : array of int8, shape (K, n)
    pool : array
        The slopes coded OTHER, point after point.
    first : array of int64, shape (K,)
        Where those of each point begin.
    """

    lo: Array
    hi: Array
    factors: Array
    codes: NDArray[np.int8]
    pool: Array
    first: NDArray[np.int64]

    @classmethod
    def of(cls, theta: Array, losses: Losses, factors: Array) -> PackedSlopes:
        """Plain dual points, shape (K, n), as they are."""
        K, n = theta.shape
        codes = np.full((K, n), OTHER, dtype=np.int8)
        return cls(losses.lo, losses.hi, factors, codes, theta.ravel(), n * np.arange(K))

    def __len__(self) -> int:
        return len(self.codes)

    def row(self, k: int) -> Array:
        """Dual point k, shape (n,)."""
        codes, out = self.codes[k], np.zeros(self.codes.shape[1])
        out[codes == LOW] = self.lo[codes == LOW] * self.factors[k]
        out[codes == HIGH] = self.hi[codes == HIGH] * self.factors[k]
        other = codes == OTHER
        first = int(self.first[k])
        out[other] = self.pool[first:first + int(other.sum())]
        return out

    def head(self, count: int) -> PackedSlopes:
        """The first `count` points."""
        return PackedSlopes(
            self.lo, self.hi, self.factors[:count], self.codes[:count], self.pool,
            self.first[:count],
        )
