"""Products with a dense block of rows, float32 or float64, summed in double and in a fixed order.

A product of two float32 is exact in double precision. The order of the sums depends on the block's
shape alone, so that it does not matter which thread or machine made them; other threads of Python
run meanwhile. A block that lies elsewhere than in this process's memory brings its own products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled

Array = NDArray[np.float64]

STRIP = 1024
"""Rows whose contribution to a column is summed before it joins those of the other strips."""


class OwnProducts(ABC):
    """A block of rows, shape (n, d), that makes its products itself."""

    @abstractmethod
    def margins(self, x: Array) -> Array:
        """``sum_j a_ij x_j`` for every row, shape (n,)."""

    @abstractmethod
    def squares(self, weights: Array) -> Array:
        """``sum_j weights_j a_ij^2`` for every row, shape (n,)."""

    @abstractmethod
    def adjoint(self, theta: Array) -> Array:
        """``sum_i a_ij theta_i`` for every column, summed in strips of `STRIP` rows, shape (d,)."""


def margins(block: Any, x: Array) -> Array:
    """``sum_j a_ij x_j`` for every row of an array or `OwnProducts`, shape (n,)."""
    if isinstance(block, OwnProducts):
        return block.margins(x)
    out = np.empty(len(block))
    margins_of_rows(block, x, out)
    return out


def squares(block: Any, weights: Array) -> Array:
    """``sum_j weights_j a_ij^2`` for every row of an array or `OwnProducts`, shape (n,)."""
    if isinstance(block, OwnProducts):
        return block.squares(weights)
    out = np.empty(len(block))
    squares_of_rows(block, weights, out)
    return out


def adjoint(block: Any, theta: Array) -> Array:
    """``sum_i a_ij theta_i`` for every column of an array or `OwnProducts`, shape (d,)."""
    if isinstance(block, OwnProducts):
        return block.adjoint(theta)
    out = np.zeros(block.shape[1])
    add_rows(block, theta, out)
    return out


@compiled(fastmath=SUMS, nogil=True)
def margins_of_rows(block, x, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j a_ij x_j``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += np.float64(block[i, j]) * x[j]
        out[i] = total


@compiled(fastmath=SUMS, nogil=True)
def squares_of_rows(block, weights, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j weights_j a_ij^2``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            entry = np.float64(block[i, j])
            total += weights[j] * entry * entry
        out[i] = total


@compiled(fastmath=SUMS, nogil=True)
def add_rows(block, theta, out):  # type: ignore[no-untyped-def]
    """``out_j += sum_i a_ij theta_i``, strip by strip; rows with ``theta_i = 0`` are not read."""
    n, d = block.shape
    strip = np.zeros(d)
    for first in range(0, n, STRIP):
        for j in range(d):
            strip[j] = 0.0
        for i in range(first, min(first + STRIP, n)):
            weight = theta[i]
            if weight != 0.0:
                for j in range(d):
                    strip[j] += weight * np.float64(block[i, j])
        for j in range(d):
            out[j] += strip[j]
