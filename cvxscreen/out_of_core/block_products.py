"""Products with a dense block of rows, float32 or float64, summed in double and in a fixed order.

A product of two float32 is exact in double precision. The order of the sums depends on the block's
shape alone, so that it does not matter which thread or machine made them. Without numba the same
sums are made by einsum over pieces of the block.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cvxscreen._support.compiled import Loop, together

STRIP = 1024
"""Rows whose contribution to a column is summed before it joins those of the other strips."""


def _margins(block, x, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j a_ij x_j``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += np.float64(block[i, j]) * x[j]
        out[i] = total


def _squares(block, weights, out):  # type: ignore[no-untyped-def]
    """``out_i = sum_j weights_j a_ij^2``."""
    n, d = block.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            entry = np.float64(block[i, j])
            total += weights[j] * entry * entry
        out[i] = total


def _pull(block, theta, out):  # type: ignore[no-untyped-def]
    """``out_j += sum_i a_ij theta_i``, strip by strip; rows with ``theta_i = 0`` are not read."""
    n, d = block.shape
    strip = np.zeros(d)
    for first in range(0, n, STRIP):
        strip[:] = 0.0
        for i in range(first, min(first + STRIP, n)):
            weight = theta[i]
            if weight != 0.0:
                for j in range(d):
                    strip[j] += weight * np.float64(block[i, j])
        for j in range(d):
            out[j] += strip[j]


def _plain_margins(block: Any, x: Any, out: Any) -> None:
    for first in range(0, len(block), STRIP):
        rows = slice(first, first + STRIP)
        out[rows] = np.einsum("ij,j->i", block[rows].astype(np.float64, copy=False), x)


def _plain_squares(block: Any, weights: Any, out: Any) -> None:
    for first in range(0, len(block), STRIP):
        rows = block[first : first + STRIP].astype(np.float64, copy=False)
        out[first : first + STRIP] = np.einsum("ij,ij,j->i", rows, rows, weights)


def _plain_pull(block: Any, theta: Any, out: Any) -> None:
    for first in range(0, len(block), STRIP):
        used = np.flatnonzero(theta[first : first + STRIP]) + first
        rows = block[used].astype(np.float64, copy=False)
        out += np.einsum("ij,i->j", rows, theta[used])


class ChunkLoops(NamedTuple):
    """The loops of this module, compiled where numba is installed."""

    margins: Loop
    squares: Loop
    pull: Loop


@lru_cache(maxsize=1)
def chunk_loops() -> ChunkLoops:
    """The loops, compiled on first use; by einsum without numba."""
    free = frozenset({"contract", "reassoc", "nsz"})
    names = ("_margins", "_squares", "_pull")
    made = together(globals(), [(name, free) for name in names], nogil=True)
    if made is None:
        return ChunkLoops(_plain_margins, _plain_squares, _plain_pull)
    return ChunkLoops(*[made[name] for name in names])


def loops_for(block: Any) -> ChunkLoops:
    """The loops of a dense block: its own, where it brings some, or those of this module."""
    return getattr(block, "loops", None) or chunk_loops()
